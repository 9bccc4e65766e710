//! Removal of a collection that no machine has any more: what a PG that moved left, or what was not filled to the end.
//!
//! First it is made void, so that a restart does not take it for the PG; then it is emptied in bounded steps that the pacer
//! lets through, and removed. A crash leaves it to be done again.

use crate::limits::{DELETE_BATCH, DELETE_BATCH_COST};
use crate::pace::{Class, Pacer};
use crate::reserve::{Remains, Reserver};
use base::Mono;
use base::errno::ENOSPC;
use bytes::Bytes;
use std::rc::Rc;
use std::sync::Arc;
use store::removal::{self, Bounds};
use store::{Cid, Event, ObjectStore, Op, ReadError, Tag, Transaction};

/// Bits of a tag that count transactions; the rest is the machine's index.
const TAG_BITS: u32 = 40;

/// What came of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swept {
    /// The collection is void. Call [`Sweep::run`] to go on.
    Void,
    /// It is gone; drop the machine.
    Gone,
    /// It could not be removed; the next start tries again.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Void,
    Empty,
    Remove,
}

/// See the module.
#[derive(Debug)]
pub struct Sweep {
    cid: Cid,
    index: u32,
    n: u64,
    at: At,
    /// A transaction is on its way.
    busy: bool,
    /// There was no room for it.
    stuck: bool,
    pacer: Rc<Pacer>,
    /// Until then nothing of that name is made.
    _remains: Remains,
}

impl Sweep {
    /// For the machine `index` of a reactor; call [`Sweep::run`] next.
    #[must_use]
    pub fn new(cid: Cid, index: u32, pacer: Rc<Pacer>, reserver: &Arc<Reserver>) -> Self {
        Self { cid, index, n: 0, at: At::Void, busy: false, stuck: false, pacer, _remains: reserver.sweep(cid) }
    }

    /// Which collection.
    #[must_use]
    pub fn cid(&self) -> Cid {
        self.cid
    }

    /// There was no room for the last step: call [`Sweep::run`] again after a while.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.stuck
    }

    fn tag(&self) -> Tag {
        Tag(u64::from(self.index) << TAG_BITS | self.n)
    }

    /// An event of the store for this machine.
    pub fn handle(&mut self, e: &Event, now: Mono, store: &mut dyn ObjectStore) -> Option<Swept> {
        match e {
            Event::Durable(_, Ok(())) => {
                self.busy = false;
                match self.at {
                    At::Void => {
                        self.at = At::Empty;
                        Some(Swept::Void)
                    }
                    At::Empty => self.run(now, store),
                    At::Remove => Some(Swept::Gone),
                }
            }
            Event::Durable(_, Err(_)) => Some(Swept::Failed),
            _ => self.run(now, store),
        }
    }

    /// Goes on if it may.
    pub fn run(&mut self, now: Mono, store: &mut dyn ObjectStore) -> Option<Swept> {
        if self.busy {
            return None;
        }
        if self.at == At::Empty && !self.pacer.take(Class::BestEffort, DELETE_BATCH_COST, self.index, now) {
            return None;
        }
        self.stuck = false;
        match self.step(store) {
            Ok(txn) => {
                store.submit(self.tag(), txn);
                self.n += 1;
                self.busy = true;
                None
            }
            Err(ReadError::Wait) => None,
            Err(ReadError::Io { errno: ENOSPC, .. }) => {
                store.release(self.tag());
                self.stuck = true;
                None
            }
            Err(error) => {
                tracing::error!(collection = ?self.cid, ?error, "what a PG left can't be removed; the next start tries again");
                store.release(self.tag());
                // Nothing is to come of it in this run.
                self.busy = true;
                Some(Swept::Failed)
            }
        }
    }

    fn step(&mut self, store: &mut dyn ObjectStore) -> Result<Transaction, ReadError> {
        let (tag, cid) = (self.tag(), self.cid);
        let ops = match self.at {
            At::Void => vec![Op::PgInfo { cid, info: Bytes::new() }],
            At::Empty | At::Remove => {
                let bounds = Bounds { objects: DELETE_BATCH, ..Bounds::default() };
                let found = removal::step(store, tag, cid, bounds)?;
                if found.is_empty() {
                    self.at = At::Remove;
                    vec![Op::RemoveCollection { cid }]
                } else {
                    found
                }
            }
        };
        let mut txn = Transaction { ops };
        loop {
            match store.prepare_own(tag, &txn) {
                // A few at a time, if there is room for no more.
                Err(ReadError::Io { errno: ENOSPC, .. }) if txn.ops.len() > 1 => {
                    txn.ops.truncate(txn.ops.len().div_ceil(2));
                }
                done => return done.map(|()| txn),
            }
        }
    }
}
