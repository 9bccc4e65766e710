//! The PG's log and info, and the transactions that change them: what is submitted, durable here, and durable on all
//! copies.
//!
//! - `action`: the actions that wait for a transaction, by part
//! - `commit`: submission, and what follows when a transaction is durable
//! - `note`: changes of info and log by what they mean
//!
//! Invariants:
//!  1. `durable` ≤ `local` ≤ `submitted`.
//!  2. The stored info and log records together give the info in memory, unless the info is marked as changed.
//!
//! Tests: `tests/order.rs`.

pub(in crate::pg) mod action;
pub(in crate::pg) mod commit;
mod note;

use crate::event::{OpRequest, SessionId};
use crate::info::PgInfo;
use crate::keep::Keep;
use crate::log::PgLog;
use crate::pg::idle::queue;
use action::Action;
use commit::Commit;
use std::collections::VecDeque;

/// Log, info and transactions of a copy.
#[derive(Debug, Default)]
#[repr(C)]
pub(in crate::pg) struct Journal {
    /// Submitted transactions whose actions have not run, oldest first.
    commits: VecDeque<Commit>,
    /// Number of the newest submitted transaction.
    submitted: u64,
    /// Number of the newest transaction that is durable here.
    local: u64,
    /// Number of the newest transaction that is durable on all copies that must have it.
    durable: u64,
    /// Newest transaction of older intervals. Until it is durable here, this copy tells no other its state.
    settle_point: u64,
    /// Lower bound of the settle point: 1 for a child of a split, whose content the parent submitted before the child's
    /// first transaction.
    settle_min: u64,
    /// The stored info differs from `info` in more than replay of the log restores.
    dirty: bool,
    /// Log records submitted since the info was stored.
    since_info: u32,
    info: PgInfo,
    log: PgLog,
    /// How much of the log to keep, instead of the OSD's share.
    keep: Option<Box<Keep>>,
}

impl Journal {
    /// Prefetches what every operation reads.
    #[inline]
    pub(in crate::pg) fn prefetch(&self) {
        base::prefetch(&self.commits);
        base::prefetch(&self.info.last_update);
        base::prefetch(&self.info.stats.num_objects);
        base::prefetch(&self.log);
    }

    /// Info of the PG; the stored one may be older.
    pub(in crate::pg) fn info(&self) -> &PgInfo {
        &self.info
    }

    /// Notes that the info must be stored with the next transaction.
    pub(in crate::pg) fn info_changed(&mut self) {
        self.dirty = true;
    }

    /// True if the info must be stored with the next transaction.
    pub(in crate::pg) fn is_info_changed(&self) -> bool {
        self.dirty
    }

    /// True if the stored info differs from the present one.
    pub(in crate::pg) fn is_info_behind(&self) -> bool {
        self.dirty || self.since_info > 0
    }

    /// Gives up storing the info: the collection is removed.
    pub(in crate::pg) fn drop_info(&mut self) {
        self.dirty = false;
        self.since_info = 0;
    }

    /// The PG's log.
    pub(in crate::pg) fn log(&self) -> &PgLog {
        &self.log
    }

    /// Takes over info and log, as they are stored.
    pub(in crate::pg) fn restore(&mut self, info: PgInfo, log: PgLog) {
        (self.info, self.log) = (info, log);
    }

    /// Keeps this much of the log instead of the OSD's share.
    pub(in crate::pg) fn keep_log(&mut self, keep: Keep) {
        self.keep = Some(Box::new(keep));
    }

    /// Number of the newest submitted transaction.
    pub(in crate::pg) fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Number of the newest transaction that is durable on all copies that must have it.
    pub(in crate::pg) fn durable(&self) -> u64 {
        self.durable
    }

    /// True if no action waits for a transaction.
    pub(in crate::pg) fn is_settled(&self) -> bool {
        self.commits.is_empty()
    }

    /// Number of submitted transactions whose actions have not run.
    pub(in crate::pg) fn uncommitted(&self) -> usize {
        self.commits.len()
    }

    /// The submitted transactions whose actions have not run, oldest first.
    pub(in crate::pg) fn commits(&self) -> impl Iterator<Item = &Commit> {
        self.commits.iter()
    }

    /// The actions that wait for transactions.
    pub(in crate::pg) fn actions(&self) -> impl Iterator<Item = &Action> {
        self.commits.iter().flat_map(|c| &c.actions)
    }

    /// Takes the requests that wait with their replies, of one session or of all: the replies no longer bring them
    /// back in the next interval.
    pub(in crate::pg) fn take_requests(&mut self, of: Option<SessionId>) -> impl Iterator<Item = Box<OpRequest>> {
        let is_of = move |a: &Action| of.is_none_or(|s| a.request().is_some_and(|r| r.session == s));
        let all = self.commits.iter_mut().flat_map(|c| &mut c.actions);
        all.filter_map(move |a| if is_of(a) { a.take_request() } else { None })
    }

    /// Drops the waiting actions that `keep` refuses.
    pub(in crate::pg) fn retain_actions(&mut self, mut keep: impl FnMut(&Commit, &Action) -> bool) {
        for c in &mut self.commits {
            let mut actions = std::mem::take(&mut c.actions);
            actions.retain(|a| keep(c, a));
            c.actions = actions;
        }
    }

    /// Drops the waiting transactions with their actions: the store, or this copy, has failed.
    pub(in crate::pg) fn drop_commits(&mut self) {
        self.commits.clear();
    }

    /// Raises the settle point to all that was submitted: a new interval begins.
    pub(in crate::pg) fn raise_settle_point(&mut self) {
        self.settle_point = self.submitted.max(self.settle_min);
    }

    /// Sets a lower bound of the settle point, for a child whose content its parent has submitted.
    pub(in crate::pg) fn await_parent(&mut self) {
        self.settle_min = 1;
    }

    /// Checks the order of the counters, invariant 1.
    fn check(&self) {
        debug_assert!(self.durable <= self.local && self.local <= self.submitted, "transactions end in their order");
    }

    /// True if everything of older intervals is durable here.
    pub(in crate::pg) fn is_past_settle_point(&self) -> bool {
        self.local >= self.settle_point
    }

    /// Releases unused memory.
    pub(in crate::pg) fn release_memory(&mut self) {
        queue(&mut self.commits);
        self.log.release_memory();
        self.info.past.shrink_to_fit();
    }
}
