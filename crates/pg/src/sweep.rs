//! Removal of a collection that belongs to no machine: the source of a finished move, or a target that was never
//! completed.
//!
//! The sweep first voids the collection, so that a restart does not take it for the PG. It then empties it in bounded
//! steps, paced as best effort, and removes it. After a crash the next start begins again.

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

/// Bits of a tag that number transactions; the bits above are the machine's index.
const TAG_BITS: u32 = 40;

/// Progress after an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swept {
    /// The collection is void. The caller goes on with [`Sweep::run`].
    Void,
    /// The collection is removed; drop the machine.
    Gone,
    /// The collection could not be removed; the next start tries again.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Void,
    Empty,
    Remove,
}

/// The removal of one collection; see the module.
#[derive(Debug)]
pub struct Sweep {
    cid: Cid,
    index: u32,
    n: u64,
    at: At,
    /// A transaction is in flight.
    busy: bool,
    /// The store had no room for the last step.
    stuck: bool,
    pacer: Rc<Pacer>,
    /// Keeps the name reserved until the collection is gone.
    _remains: Remains,
}

impl Sweep {
    /// A sweep of collection `cid`, as machine `index` of a reactor; the caller goes on with [`Sweep::run`].
    #[must_use]
    pub fn new(cid: Cid, index: u32, pacer: Rc<Pacer>, reserver: &Arc<Reserver>) -> Self {
        Self { cid, index, n: 0, at: At::Void, busy: false, stuck: false, pacer, _remains: reserver.sweep(cid) }
    }

    /// The collection that is removed.
    #[must_use]
    pub fn cid(&self) -> Cid {
        self.cid
    }

    /// True if the store had no room for the last step: call [`Sweep::run`] again after a while.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.stuck
    }

    fn tag(&self) -> Tag {
        Tag(u64::from(self.index) << TAG_BITS | self.n)
    }

    /// Handles a store event for this machine.
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

    /// Runs the next step, unless one is in flight or the pacer holds it back.
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
                tracing::error!(collection = ?self.cid, ?error, "a collection without a PG can't be removed; the next start of the OSD tries again");
                store.release(self.tag());
                // No further step in this run of the OSD.
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
                // If there is no room for the whole step, half of it is tried.
                Err(ReadError::Io { errno: ENOSPC, .. }) if txn.ops.len() > 1 => {
                    txn.ops.truncate(txn.ops.len().div_ceil(2));
                }
                done => return done.map(|()| txn),
            }
        }
    }
}
