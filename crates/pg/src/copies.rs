//! The copies of a reactor: `copy_from` operations that hold content of their sources.
//!
//! Invariants:
//!  1. Together they have at most [`COPY_BYTES_MAX`], unless one alone has more. How large a source is shows its
//!     first chunk; until then a copy counts [`COPY_UNKNOWN`].
//!  2. Others wait for room in order of arrival, with nothing held, and then begin anew. A copy for which there is no
//!     room as it grows is among them.
//!  3. While others wait, a copy whose source does not answer for [`COPY_STALL`] gives up its room.
//!
//! Tests: below (1, 2), `tests/copy.rs` (3, `copies_beyond_their_room_wait`).
//!
//! [`COPY_STALL`]: crate::limits::COPY_STALL

use crate::limits::{COPY_BYTES_MAX, COPY_UNKNOWN};
use crate::long::Caller;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// The copies of a reactor, shared by its PGs; see the module.
#[derive(Debug, Default)]
pub struct Copies {
    used: Rc<Cell<usize>>,
    /// Those that wait, each with the bytes that it needs.
    waiting: RefCell<VecDeque<(Caller, usize)>>,
}

/// Room of one copy in bytes; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct CopyRoom {
    used: Rc<Cell<usize>>,
    bytes: usize,
}

impl Drop for CopyRoom {
    fn drop(&mut self) {
        self.used.set(self.used.get() - self.bytes);
    }
}

impl CopyRoom {
    /// Makes the room as large as `bytes`. False if there is not so much.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        let others = self.used.get() - self.bytes;
        let fits = bytes <= self.bytes || others == 0 || others + bytes <= COPY_BYTES_MAX;
        if fits {
            self.used.set(others + bytes);
            self.bytes = bytes;
        }
        fits
    }
}

impl Copies {
    fn fits(&self, bytes: usize) -> bool {
        self.used.get() == 0 || self.used.get() + bytes <= COPY_BYTES_MAX
    }

    /// Takes room for a copy of which `known` bytes are known to be needed, if any. `None`: it must wait. `turn`: it
    /// has waited.
    pub(crate) fn room(&self, known: Option<usize>, turn: bool) -> Option<CopyRoom> {
        let bytes = known.unwrap_or(COPY_UNKNOWN);
        if !self.fits(bytes) || !turn && self.is_waited_for() {
            return None;
        }
        self.used.set(self.used.get() + bytes);
        Some(CopyRoom { used: Rc::clone(&self.used), bytes })
    }

    /// Queues a copy until there is room.
    pub(crate) fn queue(&self, who: Caller, known: Option<usize>) {
        self.waiting.borrow_mut().push_back((who, known.unwrap_or(COPY_UNKNOWN)));
    }

    /// True if copies wait.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// True if [`Copies::take`] will return a copy.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.waiting.borrow().front().is_some_and(|(_, bytes)| self.fits(*bytes))
    }

    /// The copy for which there is room now.
    pub fn take(&self) -> Option<Caller> {
        self.is_due().then(|| self.waiting.borrow_mut().pop_front()).flatten().map(|(who, _)| who)
    }

    /// Bytes that all copies have together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.used.get()
    }

    /// Drops the copies of a machine whose plans are gone.
    pub(crate) fn forget(&self, machine: u32, stays: impl Fn(u64) -> bool) {
        self.waiting.borrow_mut().retain(|(c, _)| c.0 != machine || stays(c.1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_wait_in_order_and_one_alone_may_be_large() {
        let c = Copies::default();
        let mut large = c.room(Some(COPY_BYTES_MAX + 1), false).unwrap();
        assert!(c.room(None, false).is_none());
        c.queue((1, 1), None);
        c.queue((2, 2), Some(1));
        assert!(!c.is_due() && c.take().is_none());
        assert!(large.resize(COPY_BYTES_MAX - COPY_UNKNOWN));
        assert_eq!(c.take(), Some((1, 1)));
        assert!(c.room(None, false).is_none(), "another one waits");
        let first = c.room(None, true).unwrap();
        assert!(!c.is_due() && !large.resize(COPY_BYTES_MAX) && c.bytes() == COPY_BYTES_MAX);
        drop(first);
        assert!(large.resize(COPY_BYTES_MAX + 5), "it is alone");
        drop(large);
        assert_eq!((c.take(), c.take(), c.bytes()), (Some((2, 2)), None, 0));
        c.queue((3, 3), None);
        c.forget(3, |_| false);
        assert!(!c.is_due() && !c.is_waited_for());
    }
}
