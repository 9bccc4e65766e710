//! The life of a machine, from its creation to its end.
//!
//! - `begin`: creating and loading a PG
//! - `follow`: maps and intervals. A map that shows another acting set, as after the death of an OSD, ends the interval
//! - `end`: removal of the PG, and stopping with the OSD

mod begin;
mod end;
mod follow;

use super::State;
use crate::shards::PeerId;
use base::Mono;

/// The host's request to stop, and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// There is no request.
    No,
    /// The request came; operations in flight finish.
    Asked,
    /// The host knows that the machine has stopped.
    Told,
}

/// Where a machine is in its life.
#[derive(Debug)]
#[repr(C)]
pub(in crate::pg) struct Life {
    state: State,
    ending: Ending,
    created_told: bool,
    /// Number of the interval in this machine; actions of an older one are void.
    generation: u64,
}

impl Life {
    pub(in crate::pg) fn new(state: State) -> Self {
        Self { state, ending: Ending::No, created_told: false, generation: 0 }
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

    /// The copy whose log is being merged or asked for.
    pub(in crate::pg) fn auth(&self) -> Option<PeerId> {
        if let State::GetLog { auth, .. } = self.state { Some(auth) } else { None }
    }

    /// Copies that are filled once the interval has started; none before they are chosen and after the start.
    pub(in crate::pg) fn targets(&self) -> &[PeerId] {
        match &self.state {
            State::GetLog { targets, .. } | State::WaitUpThru { targets } | State::Activating { targets, .. } => {
                targets
            }
            _ => &[],
        }
    }

    fn targets_mut(&mut self) -> Option<&mut Vec<PeerId>> {
        match &mut self.state {
            State::GetLog { targets, .. } | State::WaitUpThru { targets } | State::Activating { targets, .. } => {
                Some(targets)
            }
            _ => None,
        }
    }

    /// Takes the copies that are to be filled, for the next state.
    pub(in crate::pg) fn take_targets(&mut self) -> Vec<PeerId> {
        self.targets_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Leaves out a copy that was to be filled.
    pub(in crate::pg) fn drop_target(&mut self, p: PeerId) {
        if let Some(targets) = self.targets_mut() {
            targets.retain(|t| *t != p);
        }
    }

    /// Notes that the start of the interval is durable here.
    pub(in crate::pg) fn start_recorded(&mut self) {
        debug_assert!(matches!(self.state, State::Activating { .. }), "the interval starts: {:?}", self.state);
        if let State::Activating { recorded, .. } = &mut self.state {
            *recorded = true;
        }
    }

    /// True while the interval starts, once the start is durable here.
    pub(in crate::pg) fn is_start_recorded(&self) -> bool {
        matches!(self.state, State::Activating { recorded: true, .. })
    }

    /// Time until which a former primary may serve reads by a lease, while that is waited for.
    pub(in crate::pg) fn lease_wait(&self) -> Option<Mono> {
        if let State::WaitLease { until } = self.state { until } else { None }
    }

    /// True from the host's request to stop on.
    pub(in crate::pg) fn is_stopping(&self) -> bool {
        self.ending != Ending::No
    }

    /// Number of the interval in this machine.
    pub(in crate::pg) fn generation(&self) -> u64 {
        self.generation
    }

    /// True if the next batch of a deletion waits for the pacer.
    pub(in crate::pg) fn deletion_waits(&self) -> bool {
        matches!(self.state, State::Deleting { paused: true })
    }

    /// Sets whether the next batch of a deletion waits for the pacer. A copy that failed meanwhile deletes nothing more.
    fn pause_deletion(&mut self, pause: bool) {
        if let State::Deleting { paused } = &mut self.state {
            *paused = pause;
        }
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
