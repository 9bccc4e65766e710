//! The control plane's state: one small key-value trait and its backends.
//!
//! [`StateStore`] is completion-style: a request goes in with a token, an event comes out with the same token, and no
//! call ever blocks. Semantics follow what a replicated store (etcd v3) can give too, so that monitors stay stateless
//! front-ends:
//!
//!  1. Requests of one handle take effect in the order they were submitted.
//!  2. A transaction compares, then applies one of two lists of changes, all or nothing; a transaction that changes
//!     something raises the store's revision by one, and every key it wrote carries that revision.
//!  3. A reply to a transaction means that it is durable. Nothing is visible to anyone before it is durable.
//!  4. A watch delivers every change of its range after the revision its registration replied with, in order.
//!  5. A key put under a lease disappears when the lease expires or is revoked. Time comes in by [`StateStore::tick`].
//!
//! [`memory::MemoryStore`] serves tests and simulation; [`embedded::EmbeddedStore`] is one file on the local machine.

#![forbid(unsafe_code)]

mod api;
pub mod conformance;
pub mod embedded;
mod engine;
pub mod memory;

pub use api::{
    Change, Compare, Entry, Event, LeaseId, MAX_KEY, MAX_TXN_BYTES, MAX_VALUE, Op, Outcome, Range, Reply, Request,
    StateError, StateStore, Token, Txn, WatchId, Write, prefix_end,
};
