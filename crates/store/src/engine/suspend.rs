//! Transactions that miss a page or block while they are applied.
//!
//! `prepare` can only guess the needs of later operations of a transaction, and another transaction may come
//! between. So the needs of an operation are checked again on the state it meets, if they may have changed. If
//! a page or block is missing, the store suspends the transaction, reads it, and goes on. Until then no frame
//! is closed, no checkpoint starts, reads wait and submitted transactions queue. So order stays, and no caller
//! sees half a transaction, except in sums over collections and the device.

use super::Store;
use super::early::Early;
use super::pack::Packs;
use super::prepare::needs_edges;
use crate::api::{Event, ReadError, Tag};
use crate::meta::change::Marks;
use crate::txn::{Op, Transaction};
use std::collections::VecDeque;

/// A transaction between two of its operations.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) tag: Tag,
    pub(super) ops: std::vec::IntoIter<Op>,
    /// All needs of the operations are known to be in memory.
    pub(super) sure: bool,
    /// Start of its record in the open frame, and the state of the encoder.
    pub(super) at: usize,
    /// Most log bytes of the transaction.
    pub(super) log_bytes: usize,
    pub(super) marks: Marks,
    pub(super) reserved: u64,
    pub(super) pool: Vec<(u64, u32)>,
    pub(super) early: Vec<Early>,
    pub(super) packs: Packs,
    pub(super) version: u32,
}

/// The suspended transaction; see the module.
#[derive(Debug)]
pub(super) struct Suspended {
    job: Job,
    /// The missing page or block has arrived.
    awake: bool,
    /// Transactions submitted since the suspension.
    queue: VecDeque<(Tag, Transaction)>,
    /// Plans that wait for the end of the suspended transaction.
    waiting: Vec<Tag>,
}

impl Suspended {
    /// Queues a transaction that was submitted behind the suspended one.
    pub(super) fn queue(&mut self, tag: Tag, txn: Transaction) {
        self.queue.push_back((tag, txn));
    }

    /// Forgets a plan that has ended.
    pub(super) fn forget(&mut self, tag: Tag) {
        self.waiting.retain(|t| *t != tag);
    }
}

/// Marks the suspended transaction as ready if it has this tag. Returns true if so.
pub(super) fn wake(s: &mut Option<Box<Suspended>>, tag: Tag) -> bool {
    match s.as_mut().filter(|s| s.job.tag == tag) {
        Some(s) => {
            s.awake = true;
            true
        }
        None => false,
    }
}

impl Store {
    /// Checks that the needs of one operation, on the present state, are in memory.
    pub(super) fn op_ready(&mut self, tag: Tag, op: &Op, pool: &[(u64, u32)]) -> Result<(), ReadError> {
        self.needs.set_applying(true);
        let r = self.op_needs(tag, std::slice::from_ref(op), pool);
        self.needs.set_applying(false);
        r
    }

    fn op_needs(&mut self, tag: Tag, ops: &[Op], pool: &[(u64, u32)]) -> Result<(), ReadError> {
        self.with_meta(tag, |m| m.need_ops(ops))?;
        if ops.iter().any(needs_edges) || self.meta.packs() {
            self.bring_edges(tag, ops)?;
        }
        if pool.is_empty() { Ok(()) } else { self.with_meta(tag, |m| m.need_counts(ops, pool).then_some(())) }
    }

    pub(super) fn suspend(&mut self, job: Job) {
        self.counters.suspensions += 1;
        self.suspended = Some(Box::new(Suspended { job, awake: false, queue: VecDeque::new(), waiting: Vec::new() }));
    }

    /// Continues the suspended transaction if the missing data has arrived, then the queued ones.
    pub(super) fn resume(&mut self) {
        let Some(s) = self.suspended.take_if(|s| s.awake) else { return };
        let Suspended { job, mut queue, waiting, .. } = *s;
        self.go_on(job);
        while self.suspended.is_none()
            && let Some((tag, txn)) = queue.pop_front()
        {
            self.perform_txn(tag, txn);
        }
        match &mut self.suspended {
            Some(s) => {
                s.queue = queue;
                s.waiting = waiting;
            }
            None => self.events.extend(waiting.into_iter().map(Event::Ready)),
        }
    }

    /// Makes a plan wait for the end of a suspended transaction, so that it sees the transaction whole.
    pub(super) fn in_order(&mut self, tag: Tag) -> Result<(), ReadError> {
        if self.suspended.is_none() {
            return Ok(());
        }
        // Without a plan, the end of the wait would go unnoticed.
        self.tag_state(tag);
        if let Some(s) = &mut self.suspended
            && !s.waiting.contains(&tag)
        {
            s.waiting.push(tag);
        }
        Err(ReadError::Wait)
    }

    /// Drops the suspended and queued transactions of a failed store. Returns their tags.
    pub(super) fn abandon_suspended(&mut self) -> Vec<Tag> {
        let Some(s) = self.suspended.take() else { return Vec::new() };
        self.events.extend(s.waiting.into_iter().map(Event::Ready));
        let tags: Vec<Tag> = std::iter::once(s.job.tag).chain(s.queue.into_iter().map(|q| q.0)).collect();
        for t in &tags {
            self.end_tag(*t);
        }
        tags
    }
}
