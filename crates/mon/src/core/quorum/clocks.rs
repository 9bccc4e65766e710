//! Compares the clocks of monitors, because each monitor checks the expiry of tickets and blocklist entries by its
//! own wall clock.
//!
//! The leader asks all other monitors at once. Half the time until the answer is the precision; a smaller difference
//! counts as none.

use std::time::Duration;

use base::{AddrVec, Now, Utime};

use crate::core::MonCore;
use crate::state::clocks::{clock_drift_allowed, seconds};

impl MonCore {
    fn is_skewed(&self) -> bool {
        let allowed = clock_drift_allowed(&self.state);
        self.state.mons.clocks.differences().values().any(|d| d.skew.abs() > allowed)
    }

    fn check_every(&self, skewed: bool) -> Duration {
        let every = if skewed {
            seconds(&self.state, "mon_timecheck_skew_interval", 30.0)
        } else {
            seconds(&self.state, "mon_timecheck_interval", 300.0)
        };
        Duration::from_secs_f64(every.clamp(1.0, 86_400.0))
    }

    /// The number of a new round of clock comparison, if one is due. Called about once a second.
    pub fn clock_round(&mut self, now: Now) -> Option<u64> {
        self.state.mons.up.as_ref()?;
        let every = self.check_every(self.is_skewed());
        let there = self.state.quorum();
        self.state.clocks_mut().retain(&there);
        self.state.clocks_mut().begin(every, now)
    }

    /// Begins the next round at the next tick, since another monitor has come.
    pub fn clock_soon(&mut self) {
        self.state.clocks_mut().soon();
    }

    /// Records the time `here` that the monitor with these addresses reported for a round.
    pub fn clock_answered(&mut self, addrs: &AddrVec, round: u64, here: Utime, now: Now) {
        if let Some(name) = self.state.monmap.name_at(addrs).map(str::to_owned) {
            self.state.clocks_mut().answered(&name, round, here, now);
            if self.is_skewed() {
                let at = now.mono + self.check_every(true);
                self.state.clocks_mut().no_later(at);
            }
        }
    }
}
