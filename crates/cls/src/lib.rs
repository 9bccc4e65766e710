//! Object classes over an abstract object context.
//!
//! Each class has a module. No I/O: time, identity and randomness come through the context. How to add a class:
//! docs/design/classes.md.
//!
//! | module | contents |
//! | --- | --- |
//! | `ctx` | access of class methods to their object |
//! | `guard` | records whether a method reads or writes its object, to enforce its flags |
//! | `parts` | long calls: methods that go through more omap entries than one turn of a reactor may take run in parts |
//! | `registry` | the list of classes (`CLASSES`), lookup of methods, and execution with checked flags |
//! | `util` | decoding input and stored values, encoding output, iterating over the omap |
//! | `cas` | class `cas`: content-addressed chunks, reference-counted by the objects that use them |
//! | `cephfs` | class `cephfs`: statistics that `cephfs-data-scan` collects on the first object of a file |
//! | `cmpomap` | class `cmpomap`: compares omap values, and sets or removes keys by the result |
//! | `fifo` | class `fifo`: a queue of a meta object and part objects, used for radosgw's data log |
//! | `hello` | class `hello`: an example class, used by Ceph's tests |
//! | `journal` | class `journal`: the journal of an RBD image: its header and the guard of its data objects |
//! | `lock` | class `lock`: advisory locks on an object, held by pairs of client and cookie |
//! | `log` | class `log`: entries ordered by time, used for radosgw's metadata and data logs |
//! | `lua` | class `lua`: runs a client's script on the object |
//! | `numops` | class `numops`: arithmetic on decimal numbers stored as text in omap values |
//! | `otp` | class `otp`: time-based one-time passwords (RFC 6238), used for radosgw's multi-factor authentication |
//! | `queue` | class `queue`: a ring of entries in the object's data, see `ring` |
//! | `rbd` | class `rbd`: all metadata of block images |
//! | `refcount` | class `refcount`: reference-counted objects; the last `put` removes the object |
//! | `rgw` | class `rgw`: bucket indexes and other lists of radosgw |
//! | `rgw_gc` | class `rgw_gc`: garbage of radosgw in a queue (see `ring`) |
//! | `sdk` | class `sdk`: writes and reads back each kind of data; used by Ceph's tests |
//! | `sem_set` | class `sem_set`: named counters that are removed at zero, used by radosgw's multisite |
//! | `timeindex` | class `timeindex`: values by time, used by radosgw's object expirer |
//! | `timekey` | omap keys that sort by time, shared by the classes `log` and `timeindex` |
//! | `user` | class `user`: a radosgw user's buckets with their statistics, and the resources of an account |
//! | `version` | class `version`: a version (number and tag) of an object, with conditions on it |
//! | `testing` | an in-memory object for tests of classes; its vectors are atomic, as on an OSD |
//!
//! Invariants:
//!  1. Methods pass `ClsError::Wait` on unchanged, and the caller repeats them from the start with the original state.
//!     So a method reads its object before changing it, or tolerates the repetition.
//!  2. Stored formats (xattr names, omap keys, value encodings) are Ceph's, because other tools read them directly.
//!
//! Tests: `crates/pg/tests/long.rs` (1, `calls_in_parts_equal_calls_in_one`), `src/tests/recorded.rs` (2).

#![forbid(unsafe_code)]

pub mod ctx;
mod guard;
pub mod parts;
pub mod registry;
mod util;

mod cas;
mod cephfs;
mod cmpomap;
mod fifo;
mod hello;
mod journal;
mod lock;
mod log;
mod lua;
mod numops;
mod otp;
mod queue;
mod rbd;
mod refcount;
mod rgw;
mod rgw_gc;
mod sdk;
mod sem_set;
mod timeindex;
mod timekey;
mod user;
mod version;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use ctx::{ClsError, ClsResult, ObjectCtx, Watcher};
pub use parts::{Parts, Room};
pub use registry::{Method, MethodFlags, Output, find};
