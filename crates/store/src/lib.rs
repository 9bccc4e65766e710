//! The object store: transactions on a block device or file.
//!
//! The core is pure: it emits [`base::device::IoRequest`]s and is handed completions. `key`, `txn` and `api` are the
//! interface that everything above builds on; the engine and the in-memory model implement [`api::ObjectStore`].
//!
//! | module | contents |
//! | --- | --- |
//! | `api` | the interface of an object store, as the PG layer uses it |
//! | `codec` | byte encodings of the on-disk format: little-endian integers, LEB128 counts, length-prefixed bytes |
//! | `compress` | compression of data: settings of pools, and the bytes of a compressed extent |
//! | `engine` | the engine: an `ObjectStore` on a device, sans I/O |
//! | `key` | names of collections and objects |
//! | `layout` | layout of a device: superblock copies, root slots, log rings, and space, which is everything else |
//! | `mem` | `MemStore`, a complete `ObjectStore` in memory: the executable specification of the interface |
//! | `meta` | all metadata of one store: trees of pages, cached in memory within a budget, and the changes to them |
//! | `removal` | removal of a collection in steps |
//! | `shape` | refusals of `prepare` that do not depend on space |
//! | `space` | free space: one bitmap for the device, shared by the stores of its reactors, and allocation in groups |
//! | `superblock` | the superblock: identity and layout of the device; roots: places of newest checkpoints |
//! | `testing` | a device with faults, and the comparison of a store with the model |
//! | `txn` | transactions: ordered lists of changes that become durable as a whole or not at all |
//! | `wal` | frames of the write-ahead log, and the ring that holds them |

#![forbid(unsafe_code)]

pub mod api;
mod codec;
pub mod compress;
pub mod engine;
#[cfg(test)]
mod format_doc;
pub mod key;
pub mod layout;
pub mod mem;
mod meta;
pub mod removal;
mod shape;
mod space;
pub mod superblock;
pub mod testing;
pub mod txn;
mod wal;

pub use api::{BLOCK, Event, Health, ObjectStat, ObjectStore, ReadError, Statfs, Tag};
pub use compress::Compression;
pub use key::{Cid, ObjectName, Oid};
pub use txn::{Op, Transaction};
