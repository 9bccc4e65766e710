//! Object classes over an abstract object context.
//!
//! `ctx` is a method's access to its object; `registry` finds methods and enforces their flags; each class has a
//! module. No I/O: time, identity and randomness come through the context. How to add a class: docs/design/classes.md.
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
