//! The object store: transactions on a block device or file.
//!
//! The core is pure: it emits [`base::device::IoRequest`]s and is handed completions. `key`, `txn` and `api` are the
//! interface that everything above builds on; the engine and the in-memory model implement [`api::ObjectStore`].

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
