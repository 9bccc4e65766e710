//! How full this OSD is, as the monitors are told: by its space, by reactors that accept no growing writes, or as an
//! operator's test says (`injectfull`).

use super::super::mgr::Stats;
use super::Control;
use cluster::osdmap::osd_state;
use std::collections::BTreeSet;
use wire::msg::MOsdFull;

/// The bits of an OSD's state in the map that tell how full it is.
const BITS: u32 = osd_state::FULL | osd_state::BACKFILLFULL | osd_state::NEARFULL;

/// The fullness of an OSD.
#[derive(Debug, Default)]
pub(super) struct Fullness {
    /// The state that the monitors are told.
    told: u32,
    /// The state that `injectfull` says.
    injected: Option<u32>,
    /// Reactors that accept no growing writes.
    short: BTreeSet<usize>,
}

/// The state that leaves less room.
fn worse(a: u32, b: u32) -> u32 {
    let states = [osd_state::FULL, osd_state::BACKFILLFULL, osd_state::NEARFULL];
    states.into_iter().find(|s| a == *s || b == *s).unwrap_or_default()
}

impl Control {
    /// A reactor accepts no growing writes, or does so again. The monitors learn at once that this OSD is full, since
    /// other members of its PGs accept writes; that it is not any more, with the next statistics.
    pub fn set_short(&mut self, reactor: usize, short: bool) {
        if !short {
            self.fullness.short.remove(&reactor);
        } else if self.fullness.short.insert(reactor) && self.fullness.told != osd_state::FULL {
            self.fullness.told = osd_state::FULL;
            self.send_full();
        }
    }

    /// Reports the OSD to the monitors as at least this full; with `None`, as it is again. The next statistics tell the
    /// monitors that an OSD is not full any more.
    pub fn inject_full(&mut self, state: Option<u32>) {
        self.fullness.injected = state;
        match state {
            Some(state) => {
                tracing::warn!("reporting more use than there is, until `injectfull none` or a restart");
                self.fullness.told = worse(self.fullness.told, state);
                self.send_full();
            }
            None => tracing::info!("reporting the use that there is"),
        }
    }

    /// The state that the monitors are told.
    #[must_use]
    pub fn told_fullness(&self) -> u32 {
        self.fullness.told
    }

    pub(super) fn judge_fullness(&mut self, s: &Stats) {
        let Some(map) = self.maps.current() else { return };
        if s.statfs.total <= 0 && self.fullness.injected.is_none() {
            return;
        }
        let used = 1.0 - s.statfs.available as f64 / s.statfs.total as f64;
        let over = |ratio: f32| ratio > 0.0 && used > f64::from(ratio);
        let state = if over(map.full_ratio) || !self.fullness.short.is_empty() {
            osd_state::FULL
        } else if over(map.backfillfull_ratio) {
            osd_state::BACKFILLFULL
        } else if over(map.nearfull_ratio) {
            osd_state::NEARFULL
        } else {
            0
        };
        let state = self.fullness.injected.map_or(state, |injected| worse(state, injected));
        let differs = map.state(self.id.whoami) & BITS != state;
        if state != self.fullness.told || differs {
            self.fullness.told = state;
            self.send_full();
        }
    }

    pub(super) fn send_full(&mut self) {
        let Some(map) = self.maps.current() else { return };
        if map.state(self.id.whoami) & BITS != self.fullness.told {
            let m = MOsdFull { paxos: map.epoch.into(), map_epoch: map.epoch, state: self.fullness.told };
            self.mon.send_now(&m);
        }
    }
}
