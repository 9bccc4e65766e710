//! The life of a machine, from its creation to its end.
//!
//! - `begin`: creating and loading a PG
//! - `follow`: maps and intervals. A map that shows another acting set, as after the death of an OSD, ends the interval
//! - `end`: removal of the PG, and stopping with the OSD

mod begin;
mod end;
mod follow;

use super::State;

/// Where a machine is in its life.
#[derive(Debug)]
#[repr(C)]
pub(in crate::pg) struct Life {
    state: State,
    stopping: bool,
    stopped_told: bool,
    created_told: bool,
    /// The next batch of a deletion waits for the pacer.
    delete_rests: bool,
    /// Number of the interval in this machine; actions of an older one are void.
    generation: u64,
}

impl Life {
    pub(in crate::pg) fn new(state: State) -> Self {
        Self { state, stopping: false, stopped_told: false, created_told: false, delete_rests: false, generation: 0 }
    }

    /// Prefetches what every operation reads.
    #[inline]
    pub(in crate::pg) fn prefetch(&self) {
        base::prefetch(&self.state);
    }

    pub(in crate::pg) fn state(&self) -> &State {
        &self.state
    }

    pub(in crate::pg) fn enter(&mut self, state: State) {
        self.state = state;
    }

    /// True from the host's request to stop on.
    pub(in crate::pg) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Number of the interval in this machine.
    pub(in crate::pg) fn generation(&self) -> u64 {
        self.generation
    }

    /// True if the next batch of a deletion waits for the pacer.
    pub(in crate::pg) fn deletion_waits(&self) -> bool {
        self.delete_rests
    }

    /// True if the monitor was told that the PG exists.
    pub(in crate::pg) fn is_creation_told(&self) -> bool {
        self.created_told
    }

    /// Sets whether the monitor was told that the PG exists.
    pub(in crate::pg) fn set_creation_told(&mut self, told: bool) {
        self.created_told = told;
    }
}
