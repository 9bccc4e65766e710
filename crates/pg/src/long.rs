//! The long calls of a reactor: class calls that run in parts ([`cls::parts`]), each part in a turn of its own; and
//! the copies that wait for room ([`Copies`]).
//!
//! Invariants:
//!  1. The reactor runs one part in a turn, of one call after the other, whatever their PGs. Only a part that had to
//!     wait for the store runs when its data is there.
//!  2. At most [`LONG_CALLS_MAX`] calls have something kept. Others wait for a place, in order of arrival, and then
//!     begin anew.
//!
//! Tests: `tests/long.rs` (1, `a_turn_reads_a_bounded_number_of_entries`), below (2).

use crate::copies::Copies;
use crate::limits::LONG_CALLS_MAX;
use cls::Room;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Index of a PG machine, and the number of its plan.
pub type Caller = (u32, u64);

/// The long calls of a reactor, shared by its PGs; see the module.
#[derive(Debug, Default)]
pub struct LongCalls {
    room: Cell<Room>,
    /// Places taken: the references to it beyond this one.
    places: Rc<()>,
    next: RefCell<VecDeque<Caller>>,
    waiting: RefCell<VecDeque<Caller>>,
    /// The reactor's copies of objects.
    pub copies: Copies,
}

/// A place among the calls of which something is kept; dropping it gives it back.
#[derive(Clone, Debug)]
pub(crate) struct Place(#[allow(dead_code, reason = "it is counted")] Rc<()>);

impl LongCalls {
    /// Sets the room of the parts.
    pub fn set_room(&self, r: Room) {
        self.room.set(r);
    }

    pub(crate) fn room(&self) -> Room {
        self.room.get()
    }

    fn has_place(&self) -> bool {
        Rc::strong_count(&self.places) <= LONG_CALLS_MAX
    }

    /// Takes a place for a call, if there is one.
    pub(crate) fn place(&self) -> Option<Place> {
        self.has_place().then(|| Place(self.places.clone()))
    }

    /// Queues a call for its next part; without a `place`, for its first.
    pub(crate) fn queue(&self, who: Caller, place: bool) {
        if place { &self.next } else { &self.waiting }.borrow_mut().push_back(who);
    }

    /// True if [`LongCalls::take`] will return a call.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let first = self.has_place() && !self.waiting.borrow().is_empty();
        first || !self.next.borrow().is_empty() || self.copies.is_due()
    }

    /// The call whose part is next, or the copy that may begin.
    pub fn take(&self) -> Option<Caller> {
        let first = if self.has_place() { self.waiting.borrow_mut().pop_front() } else { None };
        first.or_else(|| self.copies.take()).or_else(|| self.next.borrow_mut().pop_front())
    }

    /// Number of calls of which something is kept.
    #[must_use]
    pub fn kept(&self) -> usize {
        Rc::strong_count(&self.places) - 1
    }

    /// Drops the calls of a machine whose plans are gone.
    pub(crate) fn forget(&self, machine: u32, stays: impl Fn(u64) -> bool) {
        let keep = |c: &Caller| c.0 != machine || stays(c.1);
        self.next.borrow_mut().retain(keep);
        self.waiting.borrow_mut().retain(keep);
        self.copies.forget(machine, stays);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_beyond_the_places_wait_and_none_starves() {
        let l = LongCalls::default();
        let mut places: Vec<_> = (0..LONG_CALLS_MAX).map(|_| l.place().unwrap()).collect();
        assert!(l.place().is_none() && l.kept() == LONG_CALLS_MAX);
        l.queue((1, 1), true);
        l.queue((2, 2), false);
        l.queue((3, 3), false);
        assert_eq!((l.take(), l.take()), (Some((1, 1)), None));
        assert!(!l.is_due());
        places.pop();
        l.queue((1, 1), true);
        assert_eq!(l.take(), Some((2, 2)), "the oldest that waits takes the place");
        places.push(l.place().unwrap());
        l.queue((2, 2), true);
        assert_eq!((l.take(), l.take(), l.take()), (Some((1, 1)), Some((2, 2)), None));
        places.clear();
        l.forget(3, |_| false);
        assert!(!l.is_due() && l.kept() == 0);
    }
}
