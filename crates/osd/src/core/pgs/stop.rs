//! The end of a reactor's work: by order, or because its store failed.
//!
//! Invariant: [`Output::Stopped`] is sent once, when no PG is left.
//!
//! Tests: `tests/reactor.rs`, `tests/pgs/main.rs` (`maps_reach_pgs_in_parts_and_later_inputs_wait`).

use super::{Behind, Output, Pgs};
use base::Now;
use pg::Event;
use store::ObjectStore;

/// Stage of a reactor's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// The reactor serves.
    #[default]
    Serving,
    /// No new work is accepted; PGs finish theirs.
    Stopping,
    /// All PGs have finished, and the host was told.
    Stopped,
}

impl Stage {
    /// True once no new work is accepted.
    pub(super) fn is_stopping(self) -> bool {
        self != Self::Serving
    }

    /// Accepts no new work from now on.
    fn begin(&mut self) {
        if *self == Self::Serving {
            *self = Self::Stopping;
        }
    }
}

impl Pgs {
    /// Stops accepting new work. [`Output::Stopped`] follows when all is durable.
    pub fn stop(&mut self, now: Now, store: &mut dyn ObjectStore) {
        if self.is_walking() {
            return self.wait_behind(Behind::Stop);
        }
        self.stage.begin();
        self.stop_transfers();
        self.parked.take_ops();
        let all = self.pgs.numbers();
        for i in all {
            self.feed_pg(i, Event::Stop, now, store);
        }
        self.check_stopped();
    }

    /// Handles a failed store: drops all PGs at once and serves nothing from now on.
    pub fn abandon(&mut self) {
        self.stage.begin();
        self.walk.clear();
        self.stop_transfers();
        self.parked.clear();
        self.pacing.clear();
        for i in self.pgs.numbers() {
            if let Some(p) = self.pgs.remove(i) {
                self.forget(p.spg(), i);
            }
        }
        self.check_stopped();
    }

    /// Tells the host once that all PGs have finished.
    pub(super) fn check_stopped(&mut self) {
        if self.stage == Stage::Stopping && self.pgs.is_empty() {
            self.stage = Stage::Stopped;
            self.out.push_back(Output::Stopped);
        }
    }
}
