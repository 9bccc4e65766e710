//! The object store: transactions on a block device or file.
//!
//! The core is pure: it emits [`base::device::IoRequest`]s and is handed completions. `key`, `txn` and `api` are the
//! interface that everything above builds on; the engine and the in-memory model implement [`api::ObjectStore`].

pub mod api;
pub mod key;
pub mod txn;

pub use api::{Event, ObjectStat, ObjectStore, ReadError, Statfs, Tag};
pub use key::{Cid, Oid};
pub use txn::{Op, Transaction};
