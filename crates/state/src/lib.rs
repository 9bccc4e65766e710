//! State of the control plane: a small key-value trait and its backends.
//!
//! [`StateStore`] is asynchronous: a request is submitted with a token, an event with the same token completes it, and
//! no call blocks. The semantics are those that a replicated store (etcd v3) can provide, so that monitors can be
//! stateless front-ends:
//!
//!  1. Transactions of one handle take effect in the order of submission, and a read sees the earlier ones.
//!  2. A transaction compares and then writes, atomically. If it changes anything it increments the revision of the
//!     store, and every key it wrote has that revision. It changes no key twice and stays within [`MAX_TXN_OPS`] and
//!     [`MAX_TXN_BYTES`].
//!  3. [`Outcome::Committed`] means durable. [`Outcome::Conflict`] and all errors except [`StateError::Unknown`] mean
//!     that nothing was changed. After [`StateError::Unknown`] the transaction may have taken effect, or may still.
//!  4. Nothing is visible before it is durable. A read returns the state at one revision, the newest or the requested
//!     one.
//!  5. A watch delivers every change of its range from its first revision on, in order and with all changes of a
//!     transaction together, or reports that it is lost. A compacted revision is refused.
//!  6. A key put with a lease is deleted when the lease expires or is revoked. The holder counts by its own clock
//!     ([`lease::Held`]) and stops before another holder can start.
//!
//! | backend | for |
//! | --- | --- |
//! | [`embedded::EmbeddedStore`] | one file on the local machine |
//! | [`etcd::EtcdStore`] | an etcd v3 cluster |
//! | [`memory::MemoryStore`] | tests and the simulator's single monitor |
//! | [`simulated::SimulatedStore`] | a replicated store with faults, for tests of its users |
//!
//! `api` has the trait with its requests and events. `engine` has the semantics over an ordered map, for backends in
//! this process, and `history` their latest revisions, for watches and reads of the past. `conformance` is the suite of
//! tests for all backends.

#![forbid(unsafe_code)]

mod api;
pub mod conformance;
pub mod embedded;
mod engine;
pub mod etcd;
mod history;
pub mod lease;
pub mod memory;
pub mod simulated;

pub use api::{
    Change, Compare, Entry, Event, LeaseId, MAX_KEY, MAX_TXN_BYTES, MAX_TXN_OPS, MAX_VALUE, MIN_LEASE, Op, Outcome,
    Range, Reply, Request, StateError, StateStore, Token, Txn, WatchId, Write, prefix_end,
};
