//! Pushes of objects into this copy: the parts that have come, and what to answer to the next one.
//!
//! Invariants:
//!  1. A push that has begun is forgotten only when its last part is durable, when its sender begins another push of the
//!     same object, or when the sender's OSD is down or the interval ends.
//!  2. The parts of a push are applied in order and without gaps, whatever arrives.
//!
//! Tests: below.

use crate::limits::{INCOMING_DONE, INCOMING_MAX};
use crate::pg::seldom::Part;
use crate::shards::PeerId;
use base::HObject;
use base::planted::{Bug, acts};
use std::collections::{BTreeMap, VecDeque};

/// A push that has begun and is not complete.
#[derive(Clone, Debug, PartialEq)]
struct Open {
    head: HObject,
    /// Number of the part expected next.
    next: u32,
    /// Parts before this one are durable.
    durable: u32,
}

/// The pushes into this copy; see the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::pg) struct Incoming {
    open: BTreeMap<(PeerId, u64), Open>,
    /// The newest complete pushes, oldest first: sender, number and hash of the object. A repeated part of them is
    /// acknowledged again.
    done: VecDeque<(PeerId, u64, u32)>,
}

/// The answer to a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pg) enum Answer {
    /// The part is the next one: apply it.
    Apply,
    /// The part is durable here.
    Acknowledge,
    /// An answer will follow, or the sender is to try again later.
    Later,
    /// Earlier parts are not here: the push must begin anew.
    Again,
}

impl Part for Incoming {
    const EMPTY: &'static Self = &Self { open: BTreeMap::new(), done: VecDeque::new() };

    fn is_empty(&self) -> bool {
        self.open.is_empty() && self.done.is_empty()
    }
}

impl Incoming {
    /// True if the push has begun here, or was completed lately.
    pub(in crate::pg) fn knows(&self, from: PeerId, id: u64, head: &HObject) -> bool {
        self.open.get(&(from, id)).is_some_and(|o| o.head == *head) || self.was_done(from, id, head)
    }

    fn was_done(&self, from: PeerId, id: u64, head: &HObject) -> bool {
        self.done.iter().rev().any(|d| *d == (from, id, head.hash))
    }

    /// Takes part `n` of a push that is wanted.
    pub(in crate::pg) fn take(&mut self, from: PeerId, id: u64, n: u32, head: &HObject) -> Answer {
        let Some(o) = self.open.get_mut(&(from, id)).filter(|o| o.head == *head) else {
            return self.begin(from, id, n, head);
        };
        if n > 0 && acts(Bug::ForgetPush) {
            Answer::Later
        } else if n == o.next {
            o.next += 1;
            Answer::Apply
        } else if n < o.durable {
            Answer::Acknowledge
        } else if n < o.next || o.durable < o.next {
            // Earlier parts are being applied.
            Answer::Later
        } else {
            self.open.remove(&(from, id));
            Answer::Again
        }
    }

    fn begin(&mut self, from: PeerId, id: u64, n: u32, head: &HObject) -> Answer {
        if self.was_done(from, id, head) {
            return Answer::Acknowledge;
        }
        if n != 0 {
            return Answer::Again;
        }
        // The sender pushes an object once at a time.
        self.open.retain(|(p, i), o| *p != from || *i != id && o.head != *head);
        if self.open.len() >= INCOMING_MAX {
            return Answer::Later;
        }
        self.open.insert((from, id), Open { head: head.clone(), next: 1, durable: 0 });
        Answer::Apply
    }

    /// Notes that part `n` is durable here.
    pub(in crate::pg) fn durable(&mut self, from: PeerId, id: u64, n: u32, last: bool, head: &HObject) {
        let Some(o) = self.open.get_mut(&(from, id)).filter(|o| o.head == *head) else { return };
        o.durable = n.saturating_add(1).min(o.next);
        if last {
            self.open.remove(&(from, id));
            if self.done.len() >= INCOMING_DONE {
                self.done.pop_front();
            }
            self.done.push_back((from, id, head.hash));
        }
    }

    /// Notes that part `n` could not be applied and is expected again.
    pub(in crate::pg) fn dropped(&mut self, from: PeerId, id: u64, n: u32, head: &HObject) {
        if let Some(o) = self.open.get_mut(&(from, id)).filter(|o| o.head == *head) {
            o.next = o.next.min(n.max(o.durable));
        }
    }

    /// Forgets the pushes of senders that are not `here`. A later process of the same OSD numbers its pushes anew.
    pub(in crate::pg) fn keep_senders(&mut self, here: impl Fn(PeerId) -> bool) {
        self.open.retain(|(p, _), _| here(*p));
        self.done.retain(|(p, ..)| here(*p));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{OsdId, PoolId};

    fn object(n: u32) -> HObject {
        HObject { pool: PoolId(1), hash: n, oid: n.to_string().into(), ..HObject::min() }.head()
    }

    fn osd(n: i32) -> PeerId {
        OsdId(n).into()
    }

    /// Takes part `n` and makes it durable.
    fn part(i: &mut Incoming, from: PeerId, id: u64, n: u32, last: bool, head: &HObject) -> Answer {
        let a = i.take(from, id, n, head);
        if a == Answer::Apply {
            i.durable(from, id, n, last, head);
        }
        a
    }

    #[test]
    fn a_push_of_many_parts_outlives_any_number_of_others() {
        let mut i = Incoming::default();
        let large = object(0);
        let rounds = 3 * INCOMING_MAX as u32;
        for n in 0..rounds {
            assert_eq!(part(&mut i, osd(1), 1, n, n + 1 == rounds, &large), Answer::Apply, "part {n}");
            // The numbers of a source that has run for long are higher, those of one that restarted lower.
            for (from, id) in [(osd(1), u64::from(n) + 2), (osd(2), u64::from(n) + 1_000_000)] {
                assert_eq!(part(&mut i, from, id, 0, true, &object(n + 1)), Answer::Apply);
            }
        }
        assert!(i.open.is_empty() && i.done.len() == INCOMING_DONE);
        assert_eq!(i.take(osd(1), 1, rounds - 1, &large), Answer::Acknowledge, "its last part comes again");
    }

    #[test]
    fn a_part_that_cannot_be_used_is_refused() {
        let mut i = Incoming::default();
        let (a, b) = (object(1), object(2));
        assert_eq!(i.take(osd(1), 7, 3, &a), Answer::Again, "its first parts never came");
        assert_eq!(i.take(osd(1), 7, 0, &a), Answer::Apply);
        assert_eq!(i.take(osd(1), 7, 0, &a), Answer::Later, "it is being applied");
        assert_eq!(i.take(osd(1), 7, 2, &a), Answer::Later);
        i.durable(osd(1), 7, 0, false, &a);
        assert_eq!(i.take(osd(1), 7, 0, &a), Answer::Acknowledge);
        assert_eq!(i.take(osd(1), 7, 2, &a), Answer::Again, "part 1 is lost");
        assert_eq!(i.take(osd(1), 7, 0, &a), Answer::Apply, "it begins anew");
        i.durable(osd(1), 7, 0, false, &a);
        // There was no space for a part: it is taken when it comes again.
        assert_eq!((i.take(osd(1), 7, 1, &a), i.take(osd(1), 7, 1, &a)), (Answer::Apply, Answer::Later));
        i.dropped(osd(1), 7, 1, &a);
        assert_eq!((i.take(osd(1), 7, 0, &a), i.take(osd(1), 7, 1, &a)), (Answer::Acknowledge, Answer::Apply));
        // The sender gave that push up and begins another one.
        assert_eq!(i.take(osd(1), 8, 0, &a), Answer::Apply);
        assert_eq!(i.take(osd(1), 7, 1, &a), Answer::Again);
        // A process that restarted uses the number for another object.
        assert_eq!(i.take(osd(1), 8, 1, &b), Answer::Again);
        assert_eq!(i.take(osd(1), 8, 0, &b), Answer::Apply);
        i.durable(osd(1), 8, 0, true, &a);
        assert!(i.knows(osd(1), 8, &b) && !i.knows(osd(1), 8, &a));
        i.keep_senders(|p| p != osd(1));
        assert_eq!(i, Incoming::default());
    }

    #[test]
    fn open_pushes_are_bounded_and_none_gives_way() {
        let mut i = Incoming::default();
        for n in 0..INCOMING_MAX as u32 + 10 {
            let a = i.take(osd(1), u64::from(n), 0, &object(n));
            assert_eq!(a, if n < INCOMING_MAX as u32 { Answer::Apply } else { Answer::Later });
        }
        i.durable(osd(1), 0, 0, false, &object(0));
        assert_eq!(i.take(osd(1), 0, 1, &object(0)), Answer::Apply);
    }
}
