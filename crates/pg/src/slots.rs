//! How many PGs of a reactor recover at a time. Objects that clients wait for need no slot.

use std::cell::Cell;
use std::rc::Rc;

/// The slots, shared by the PGs of a reactor.
#[derive(Debug)]
pub struct RecoverySlots {
    max: usize,
    used: Cell<usize>,
    freed: Cell<bool>,
}

impl Default for RecoverySlots {
    fn default() -> Self {
        Self::new(crate::limits::RECOVERY_SLOTS)
    }
}

impl RecoverySlots {
    /// That many.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { max: max.max(1), used: Cell::new(0), freed: Cell::new(false) }
    }

    /// Takes one until it is dropped, if one is free.
    pub(crate) fn take(self: &Rc<Self>) -> Option<Slot> {
        let used = self.used.get();
        (used < self.max).then(|| {
            self.used.set(used + 1);
            Slot(Rc::clone(self))
        })
    }

    /// True once after a slot was given back.
    #[must_use]
    pub fn freed(&self) -> bool {
        self.freed.replace(false)
    }
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Slot(Rc<RecoverySlots>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.used.set(self.0.used.get().saturating_sub(1));
        self.0.freed.set(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_given_back_and_that_is_told_once() {
        let s = Rc::new(RecoverySlots::new(1));
        let one = s.take();
        assert!(one.is_some() && s.take().is_none() && !s.freed());
        drop(one);
        assert!(s.freed() && !s.freed() && s.take().is_some());
    }
}
