//! Transactions that find, while they are applied, that something they need is not in memory.
//!
//! `prepare` can only guess what later operations of a transaction find, and another transaction may come between. So before an
//! operation whose needs may have changed, these are asked for again, on the state it finds. If something is missing the store
//! stops at that point: it reads what is missing and goes on. Until then no frame is closed and no checkpoint starts, reads
//! wait, and what is submitted queues: nobody sees half a transaction, but in sums over collections and the device, and order stays.

use super::Store;
use super::early::Early;
use super::prepare::needs_edges;
use crate::api::{Event, ReadError, Tag};
use crate::meta::change::Marks;
use crate::txn::{Op, Transaction};
use std::collections::VecDeque;

/// A transaction that is being applied, between two of its operations.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) tag: Tag,
    pub(super) ops: std::vec::IntoIter<Op>,
    /// What it needs is known to be there.
    pub(super) sure: bool,
    /// Where its record begins in the open frame, and what the encoder remembers.
    pub(super) at: usize,
    /// Most bytes of it.
    pub(super) log_bytes: usize,
    pub(super) marks: Marks,
    pub(super) reserved: u64,
    pub(super) pool: Vec<(u64, u32)>,
    pub(super) early: Vec<Early>,
    pub(super) version: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Suspended {
    job: Job,
    /// What was missing has come.
    awake: bool,
    /// Transactions submitted meanwhile.
    pub(super) queue: VecDeque<(Tag, Transaction)>,
    /// Plans that wait for its end.
    pub(super) waiting: Vec<Tag>,
}

/// True if it is the suspended transaction that waited for this.
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
    /// Asks for what one operation needs of the state as it is.
    pub(super) fn op_ready(&mut self, tag: Tag, op: &Op, pool: &[(u64, u32)]) -> Result<(), ReadError> {
        self.needs.applying = true;
        let r = self.op_needs(tag, std::slice::from_ref(op), pool);
        self.needs.applying = false;
        r
    }

    fn op_needs(&mut self, tag: Tag, ops: &[Op], pool: &[(u64, u32)]) -> Result<(), ReadError> {
        self.with_meta(tag, |m| m.need_ops(ops))?;
        if ops.iter().any(needs_edges) {
            self.bring_edges(tag, ops)?;
        }
        if pool.is_empty() { Ok(()) } else { self.with_meta(tag, |m| m.need_counts(ops, pool).then_some(())) }
    }

    pub(super) fn suspend(&mut self, job: Job) {
        self.counters.suspensions += 1;
        self.suspended = Some(Box::new(Suspended { job, awake: false, queue: VecDeque::new(), waiting: Vec::new() }));
    }

    /// Goes on with the suspended transaction if what it missed has come, and with those behind it.
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

    /// Plans wait for a suspended transaction, so that they see it whole.
    pub(super) fn in_order(&mut self, tag: Tag) -> Result<(), ReadError> {
        if self.suspended.is_none() {
            return Ok(());
        }
        // The plan exists so that its end is known.
        self.plan(tag);
        if let Some(s) = &mut self.suspended
            && !s.waiting.contains(&tag)
        {
            s.waiting.push(tag);
        }
        Err(ReadError::Wait)
    }

    /// The store failed: whose transactions will never be whole.
    pub(super) fn abandon_suspended(&mut self) -> Vec<Tag> {
        let Some(s) = self.suspended.take() else { return Vec::new() };
        self.events.extend(s.waiting.into_iter().map(Event::Ready));
        let tags: Vec<Tag> = std::iter::once(s.job.tag).chain(s.queue.into_iter().map(|q| q.0)).collect();
        for t in &tags {
            self.end_plan(*t);
        }
        tags
    }
}
