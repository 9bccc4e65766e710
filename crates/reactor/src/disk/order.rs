//! Holds flushes back until the writes before them have completed.

use base::device::IoId;
use std::collections::VecDeque;

/// What waits for writes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Held {
    Flush(IoId),
    /// A write that is its own flush and that of what it waits for: its slot.
    Write(usize),
    /// A flush that the writes before it carry: its slot. It is done when they are.
    Carried(usize),
}

/// Counts writes in flight by the flush that has to wait for them.
///
/// Writes belong to generations; a flush closes one. A flush may go when all writes of its own and of earlier
/// generations are done.
#[derive(Debug, Default)]
pub(super) struct Order {
    generation: u64,
    /// Oldest generation first: writes in flight, and the flushes that wait for it.
    open: VecDeque<Generation>,
}

#[derive(Debug)]
struct Generation {
    number: u64,
    writes: usize,
    held: Vec<Held>,
}

impl Order {
    /// A write is submitted; keep the number for [`Order::write_done`].
    pub(super) fn write(&mut self) -> u64 {
        let n = self.generation;
        match self.open.back_mut() {
            Some(g) if g.number == n => g.writes += 1,
            _ => self.open.push_back(Generation { number: n, writes: 1, held: Vec::new() }),
        }
        n
    }

    /// A flush is asked for: true if it may go now, else it comes out of [`Order::write_done`] later.
    pub(super) fn hold(&mut self, h: Held) -> bool {
        match self.open.back_mut() {
            None => true,
            Some(g) => {
                g.held.push(h);
                self.generation = g.number + 1;
                false
            }
        }
    }

    /// A write of generation `n` completed; what may go now.
    pub(super) fn write_done(&mut self, n: u64) -> Vec<Held> {
        if let Some(g) = self.open.iter_mut().find(|g| g.number == n) {
            g.writes -= 1;
        }
        let mut out = Vec::new();
        while self.open.front().is_some_and(|g| g.writes == 0) {
            if let Some(g) = self.open.pop_front() {
                out.extend(g.held);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_wait_for_earlier_writes_only() {
        let mut o = Order::default();
        assert!(o.hold(Held::Flush(IoId(1))), "nothing in flight");
        let a = o.write();
        let b = o.write();
        assert!(!o.hold(Held::Flush(IoId(2))));
        let c = o.write();
        assert!(o.write_done(b).is_empty());
        assert!(o.write_done(c).is_empty(), "a later write frees no earlier flush");
        assert_eq!(o.write_done(a), [Held::Flush(IoId(2))]);
        assert!(o.hold(Held::Flush(IoId(3))));
    }

    #[test]
    fn two_flushes_on_the_same_writes() {
        let mut o = Order::default();
        let a = o.write();
        assert!(!o.hold(Held::Flush(IoId(1))));
        assert!(!o.hold(Held::Flush(IoId(2))));
        assert_eq!(o.write_done(a), [Held::Flush(IoId(1)), Held::Flush(IoId(2))]);
    }
}
