//! Moves of a PG to another reactor of its OSD.
//!
//! - `out`: the source machine
//! - `in_`: the target machine

pub(in crate::pg) mod in_;
pub(in crate::pg) mod out;

use crate::map::MapView;
use crate::moving::Postponed;
use in_::Arrive;
use out::Depart;

/// State of a move to another reactor.
#[derive(Debug, Default)]
#[repr(C)]
pub(in crate::pg) struct Relocate {
    /// State as source of a move to another reactor.
    depart: Option<Box<Depart>>,
    /// State as target of a move.
    arrive: Option<Box<Arrive>>,
    /// Maps and other inputs that were held for a move, to be handled now.
    replay: (Vec<MapView>, Vec<Postponed>),
}

impl Relocate {
    /// Prefetches what every operation reads.
    #[inline]
    pub(in crate::pg) fn prefetch(&self) {
        base::prefetch(&self.depart);
        base::prefetch(&self.replay);
    }

    /// True if this machine is the source or the target of a move.
    pub(in crate::pg) fn is_busy(&self) -> bool {
        self.departs() || self.arrives()
    }

    /// True if this machine is the source of a move.
    pub(in crate::pg) fn departs(&self) -> bool {
        self.depart.is_some()
    }

    /// True if this machine is the target of a move.
    pub(in crate::pg) fn arrives(&self) -> bool {
        self.arrive.is_some()
    }

    /// Ends a move with the machine.
    pub(in crate::pg) fn end(&mut self) {
        (self.depart, self.arrive) = (None, None);
    }
}
