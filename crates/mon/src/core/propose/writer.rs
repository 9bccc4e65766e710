//! The writer of proposals: the one in flight, the names of its transactions, and what these compare.
//!
//! Invariants:
//!  1. At most one proposal is in flight.
//!  2. No two transactions have the same name, whichever process made them: the name has a random number of the
//!     process and a count.
//!
//! Tests: an assertion (1), `tests/do_several_monitors_stay_one.rs` (2, `one_history_whatever_fails`).

use std::time::Duration;

use base::planted::{Bug, acts};
use bytes::Bytes;
use state::Compare;

use super::Inflight;
use crate::state::records::key;

/// The writer of proposals.
pub(in crate::core) struct Writer {
    inflight: Option<Inflight>,
    /// Revision of the bounds that the next transaction compares.
    bounds_revision: u64,
    /// A random number of this process.
    instance: u64,
    /// Number of transactions so far.
    transactions: u64,
    /// True if the next commit must write the current layout's version.
    old_format: bool,
    /// Key and revision that every transaction of the leader compares; `None` for a single monitor.
    fence: Option<(Bytes, u64)>,
    /// Number of commits so far, and their total time in nanoseconds.
    commits: (u64, u64),
}

impl Writer {
    /// The writer of a new process on a state whose bounds have this revision.
    pub(in crate::core) fn new(instance: u64, bounds_revision: u64, old_format: bool) -> Self {
        let (inflight, fence) = (None, None);
        Self { inflight, bounds_revision, instance, transactions: 0, old_format, fence, commits: (0, 0) }
    }

    /// True while a proposal is in flight.
    pub(in crate::core) fn is_busy(&self) -> bool {
        self.inflight.is_some()
    }

    /// The proposal in flight.
    pub(in crate::core) fn inflight(&self) -> Option<&Inflight> {
        self.inflight.as_ref()
    }

    /// Takes the proposal in flight, which ends by this unless [`Writer::set_inflight`] gives it back.
    pub(in crate::core) fn take(&mut self) -> Option<Inflight> {
        self.inflight.take()
    }

    /// Sets the proposal in flight.
    pub(in crate::core) fn set_inflight(&mut self, i: Inflight) {
        debug_assert!(self.inflight.is_none(), "one proposal is in flight at a time");
        self.inflight = Some(i);
    }

    /// The name of the next transaction.
    pub(in crate::core) fn next_name(&mut self) -> (u64, u64) {
        self.transactions += 1;
        (self.instance, self.transactions)
    }

    /// The comparisons of the next transaction.
    pub(in crate::core) fn compare(&self) -> Vec<Compare> {
        let mut compare = vec![Compare::Modified(key::OSDMAP_BOUNDS.into(), self.bounds_revision)];
        if !acts(Bug::LeaderWithoutFence) {
            compare.extend(self.fence.iter().map(|(k, revision)| Compare::Modified(k.clone(), *revision)));
        }
        compare
    }

    /// True if the newest durable transaction has this revision.
    pub(in crate::core) fn is_newest(&self, revision: u64) -> bool {
        self.bounds_revision == revision
    }

    /// Notes that a transaction is durable, with its revision.
    pub(in crate::core) fn durable(&mut self, revision: u64) {
        self.bounds_revision = revision;
    }

    /// True once, if the stored layout is an older one.
    pub(in crate::core) fn takes_format(&mut self) -> bool {
        std::mem::take(&mut self.old_format)
    }

    /// Makes every further transaction compare the leader's fence: a key and its revision.
    pub(in crate::core) fn lead(&mut self, fence: (Bytes, u64)) {
        self.fence = Some(fence);
    }

    /// Counts a commit that took `took`.
    pub(in crate::core) fn count(&mut self, took: Duration) {
        self.commits.0 += 1;
        self.commits.1 += took.as_nanos() as u64;
    }

    /// Number of commits so far, and their total time in nanoseconds.
    pub(in crate::core) fn commits(&self) -> (u64, u64) {
        self.commits
    }
}
