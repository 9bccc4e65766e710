//! Beacons, by which the monitors see that this OSD is alive.

use super::{Control, Phase};
use base::{Epoch, Mono, Now, Utime};
use std::time::Duration;
use wire::msg::MOsdBeacon;

/// `osd_beacon_report_interval`.
const BEACON_INTERVAL: Duration = Duration::from_secs(300);

/// Beacons of an OSD; see the module.
#[derive(Debug, Default)]
pub(super) struct Beacon {
    next: Mono,
    /// Lowest `last_epoch_clean` of the PGs, 0 before the first report.
    min_last_epoch_clean: Epoch,
}

impl Beacon {
    /// Time of the next beacon.
    pub(super) fn next(&self) -> Mono {
        self.next
    }

    /// Lets the next beacon be due now.
    pub(super) fn send_soon(&mut self, now: Now) {
        self.next = now.mono;
    }

    /// Sets the lowest `last_epoch_clean` of the PGs.
    pub(super) fn set_clean(&mut self, epoch: Epoch) {
        self.min_last_epoch_clean = epoch;
    }
}

impl Control {
    /// Sends a beacon at once.
    pub fn beacon(&mut self, now: Now) {
        if self.phase == Phase::Active {
            self.send_beacon(now);
        }
    }

    /// Sends a beacon.
    pub(super) fn send_beacon(&mut self, now: Now) {
        self.beacon.next = now.mono + BEACON_INTERVAL;
        let clean = self.beacon.min_last_epoch_clean;
        let lec = if clean == Epoch(0) { self.maps.epoch() } else { clean };
        let b = MOsdBeacon {
            paxos: self.maps.epoch().into(),
            pgs: Vec::new(),
            min_last_epoch_clean: lec,
            last_purged_snaps_scrub: Utime::ZERO,
            osd_beacon_report_interval: BEACON_INTERVAL.as_secs() as i32,
        };
        self.mon.send_now(&b);
    }
}
