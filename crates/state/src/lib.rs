//! The control plane's state: one small key-value trait and its backends.
//!
//! [`StateStore`] is completion-style: a request goes in with a token, an event comes out with the same token, and no
//! call ever blocks. Semantics follow what a replicated store (etcd v3) can give too, so that monitors stay stateless
//! front-ends:
//!
//!  1. Transactions of one handle take effect in the order they were submitted, and a read sees those before it.
//!  2. A transaction compares, then changes, all or nothing. One that changes something raises the store's revision, and
//!     every key it wrote carries that revision. It changes no key twice and stays within [`MAX_TXN_OPS`] and
//!     [`MAX_TXN_BYTES`].
//!  3. [`Outcome::Committed`] means durable; [`Outcome::Conflict`] and all errors but [`StateError::Unknown`] mean that
//!     nothing was changed. After [`StateError::Unknown`] the transaction may have taken effect or may still.
//!  4. Nothing is visible to anyone before it is durable. A read shows one revision, the newest or the one asked for.
//!  5. A watch delivers every change of its range from its first revision on, in order, a transaction's changes together,
//!     or says that it is lost. A revision that is compacted is refused.
//!  6. A key put under a lease disappears when the lease expires or is revoked. Its holder goes by his own clock
//!     ([`lease::Held`]): he stops before anybody else may begin.
//!
//! | backend | for |
//! | --- | --- |
//! | [`embedded::EmbeddedStore`] | one file on the local machine |
//! | [`etcd::EtcdStore`] | an etcd v3 cluster |
//! | [`memory::MemoryStore`] | tests and the simulator's single monitor |
//! | [`simulated::SimulatedStore`] | a replicated store with faults, for tests of what is above it |

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
