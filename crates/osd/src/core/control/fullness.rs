//! How full this OSD is, as the monitors are told: by its space, by reactors that accept no growing writes, or as an
//! operator's test says (`injectfull`).

use super::super::mgr::Stats;
use super::Control;
use cluster::osdmap::osd_state;
use wire::msg::MOsdFull;

/// The bits of an OSD's state in the map that tell how full it is.
const BITS: u32 = osd_state::FULL | osd_state::BACKFILLFULL | osd_state::NEARFULL;

impl Control {
    /// A reactor accepts no growing writes, or does so again. The monitors learn at once that this OSD is full, since
    /// other members of its PGs accept writes; that it is not any more, with the next statistics.
    pub fn set_short(&mut self, reactor: usize, short: bool) {
        if !short {
            self.short.remove(&reactor);
        } else if self.short.insert(reactor) && self.full_state != osd_state::FULL {
            self.full_state = osd_state::FULL;
            self.send_full();
        }
    }

    /// Reports the OSD to the monitors in this state, whatever its space is; with `None`, as it is again. The next
    /// statistics tell the monitors that an OSD is not full any more.
    pub fn inject_full(&mut self, state: Option<u32>) {
        self.injected_full = state;
        if let Some(state) = state {
            self.full_state = state;
            self.send_full();
        }
    }

    pub(super) fn judge_fullness(&mut self, s: &Stats) {
        let Some(map) = self.maps.current() else { return };
        if s.statfs.total <= 0 && self.injected_full.is_none() {
            return;
        }
        let used = 1.0 - s.statfs.available as f64 / s.statfs.total as f64;
        let over = |ratio: f32| ratio > 0.0 && used > f64::from(ratio);
        let state = if let Some(injected) = self.injected_full {
            injected
        } else if over(map.full_ratio) || !self.short.is_empty() {
            osd_state::FULL
        } else if over(map.backfillfull_ratio) {
            osd_state::BACKFILLFULL
        } else if over(map.nearfull_ratio) {
            osd_state::NEARFULL
        } else {
            0
        };
        let differs = map.state(self.id.whoami) & BITS != state;
        if state != self.full_state || differs {
            self.full_state = state;
            self.send_full();
        }
    }

    pub(super) fn send_full(&mut self) {
        let Some(map) = self.maps.current() else { return };
        if map.state(self.id.whoami) & BITS != self.full_state {
            let m = MOsdFull { paxos: map.epoch.into(), map_epoch: map.epoch, state: self.full_state };
            self.mon.send_now(&m);
        }
    }
}
