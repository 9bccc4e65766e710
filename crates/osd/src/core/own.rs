//! Transactions of the OSD itself, besides those of its PGs: maps, the superblock, requests of tools.
//!
//! Invariants:
//!  1. Transactions are submitted in the order given, because later maps build on earlier ones.
//!  2. A transaction that must happen ([`Need::Must`], no caller waits for it) waits for space; any other is
//!     refused without space.
//!
//! Tests: those of this file, and `tests/reactor.rs`.

use base::errno::{EIO, ENOSPC, Errno};
use std::collections::VecDeque;
use store::{ObjectStore, ReadError, Tag, Transaction};

/// Treatment of a transaction without room in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The transaction may use the store's reserve, and waits when that is used up.
    Must,
    /// The transaction is refused.
    May,
}

/// A transaction that the store refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Tag of the transaction.
    pub tag: Tag,
    /// Kind of the transaction. After a refused [`Need::Must`], PGs would go on with maps that the next start
    /// lacks, so the store has failed.
    pub need: Need,
    /// Errno of the refusal.
    pub errno: Errno,
}

/// Queue of the OSD's own transactions; see the module.
#[derive(Debug)]
pub struct OwnQueue {
    next: u64,
    waiting: VecDeque<(Tag, Transaction, Need)>,
}

impl Default for OwnQueue {
    fn default() -> Self {
        // Tag 0 belongs to reads before PGs are loaded.
        Self { next: 1, waiting: VecDeque::new() }
    }
}

impl OwnQueue {
    /// A new tag, for a transaction or a read.
    pub fn tag(&mut self) -> Tag {
        self.next += 1;
        Tag(self.next - 1)
    }

    /// Adds a transaction behind the others. [`OwnQueue::submit`] must follow.
    pub fn push(&mut self, t: Transaction, need: Need) -> Tag {
        let tag = self.tag();
        self.waiting.push_back((tag, t, need));
        tag
    }

    /// Puts a transaction that frees space before the others. Waiting [`Need::May`] transactions are dropped.
    pub fn make_room(&mut self, t: Transaction, store: &mut dyn ObjectStore) {
        if let Some((tag, ..)) = self.waiting.front() {
            // Ends the plan of the first transaction.
            store.release(*tag);
        }
        self.waiting.retain(|(.., need)| *need == Need::Must);
        let tag = self.tag();
        self.waiting.push_front((tag, t, Need::Must));
    }

    /// True if an event of the store belongs to the transaction being prepared.
    #[must_use]
    pub fn awaits(&self, tag: Tag) -> bool {
        self.waiting.front().is_some_and(|(t, ..)| *t == tag)
    }

    /// True if no transaction waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Submits transactions as far as the store is ready for them. The caller repeats this at
    /// [`store::Event::Ready`] of an awaited tag, and from time to time.
    pub fn submit(&mut self, store: &mut dyn ObjectStore) -> Vec<Refused> {
        let mut refused = Vec::new();
        while let Some((tag, t, need)) = self.waiting.front() {
            let (tag, need) = (*tag, *need);
            let ready = if need == Need::Must { store.prepare_own(tag, t) } else { store.prepare(tag, t) };
            match ready {
                Err(ReadError::Wait) => break,
                Err(ReadError::Io { errno: ENOSPC, what }) if need == Need::Must => {
                    tracing::debug!(%what, "no space for a transaction of the OSD itself");
                    store.release(tag);
                    break;
                }
                Err(error) => {
                    store.release(tag);
                    self.waiting.pop_front();
                    let errno = if let ReadError::Io { errno, .. } = error { errno } else { EIO };
                    refused.push(Refused { tag, need, errno });
                }
                Ok(()) => {
                    if let Some((tag, t, _)) = self.waiting.pop_front() {
                        store.submit(tag, t);
                    }
                }
            }
        }
        refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{HObject, PoolId, SnapId};
    use bytes::Bytes;
    use store::mem::MemStore;
    use store::{Cid, Event, Oid, Op};

    fn oid(n: u8) -> Oid {
        HObject { oid: vec![n].into(), snap: SnapId::HEAD, pool: PoolId(-1), ..HObject::min() }.into()
    }

    fn write(n: u8) -> Transaction {
        let mut t = Transaction::new();
        t.push(Op::Write { cid: Cid::Meta, oid: oid(n), off: 0, data: Bytes::from(vec![n; 4096]), sums: None });
        t
    }

    #[test]
    fn transactions_are_submitted_in_order_and_refused_ones_are_returned() {
        let mut store = MemStore::new();
        let mut q = OwnQueue::default();
        let mut t = Transaction::new();
        t.push(Op::MakeCollection { cid: Cid::Meta, bits: 0 });
        q.push(t, Need::Must);
        let a = q.push(write(1), Need::Must);
        let b = q.push(write(2), Need::May);
        assert!(q.awaits(Tag(1)) && !q.awaits(a));
        assert_eq!(q.submit(&mut store), []);
        assert!(q.is_empty());
        let mut done = Vec::new();
        while let Some(e) = store.poll_event() {
            done.extend(if let Event::Durable(t, Ok(())) = e { Some(t) } else { None });
        }
        assert_eq!(done, [Tag(1), a, b]);
        // Without room, a `Must` transaction and those behind it wait; a `May` transaction is refused.
        store.set_room(0);
        let e = q.push(write(3), Need::May);
        q.push(write(4), Need::Must);
        q.push(write(5), Need::May);
        assert_eq!(q.submit(&mut store), [Refused { tag: e, need: Need::May, errno: ENOSPC }]);
        assert_eq!((q.submit(&mut store), q.is_empty()), (Vec::new(), false));
        let mut t = Transaction::new();
        t.push(Op::Remove { cid: Cid::Meta, oid: oid(1) });
        q.make_room(t, &mut store);
        store.set_room(usize::MAX);
        assert_eq!((q.submit(&mut store), q.is_empty()), (Vec::new(), true));
        let there = [3, 4, 5].map(|n| store.read(Tag(0), Cid::Meta, &oid(n), 0, 1).is_ok());
        assert_eq!(there, [false, true, false]);
        // This transaction needs a missing collection.
        let mut t = Transaction::new();
        t.push(Op::Write {
            cid: Cid::Pg(base::PgId::new(1, 0).into()),
            oid: oid(1),
            off: 0,
            data: Bytes::new(),
            sums: None,
        });
        let c = q.push(t, Need::Must);
        let refused = q.submit(&mut store);
        assert_eq!(refused.iter().map(|r| (r.tag, r.need)).collect::<Vec<_>>(), [(c, Need::Must)]);
        assert!(q.is_empty());
    }
}
