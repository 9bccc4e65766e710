//! Signs of life of OSDs: the newest beacon of each, and the times since which others are down.
//!
//! Volatile: a new process gives each OSD the full time again.

use std::collections::BTreeMap;
use std::time::Duration;

use base::{Epoch, Mono, OsdId};

/// The newest beacon of an OSD. Plain data.
#[derive(Clone, Copy, Debug)]
pub(in crate::core) struct Beacon {
    /// Time of the beacon.
    pub(in crate::core) last: Mono,
    /// The newest map that the OSD had.
    pub(in crate::core) epoch: Epoch,
    /// The oldest epoch since which PGs of the OSD are not clean.
    pub(in crate::core) min_last_epoch_clean: Epoch,
    /// Seconds until the next beacon.
    pub(in crate::core) interval: u32,
}

/// Beacons of OSDs that are up, and the times since which OSDs in service are down.
#[derive(Debug, Default)]
pub(in crate::core) struct Liveness {
    beacons: BTreeMap<OsdId, Beacon>,
    down_since: BTreeMap<OsdId, Mono>,
}

impl Liveness {
    /// Notes a beacon.
    pub(super) fn heard(&mut self, osd: OsdId, beacon: Beacon) {
        self.beacons.insert(osd, beacon);
    }

    /// The newest beacon of an OSD.
    pub(in crate::core) fn beacon(&self, osd: OsdId) -> Option<&Beacon> {
        self.beacons.get(&osd)
    }

    /// The newest beacon of an OSD that is up. The time of one without a beacon begins now.
    pub(in crate::core) fn beacon_or_begin(&mut self, osd: OsdId, now: Mono) -> Beacon {
        let none = Beacon { last: now, epoch: Epoch(0), min_last_epoch_clean: Epoch(0), interval: 0 };
        *self.beacons.entry(osd).or_insert(none)
    }

    /// Drops the beacon of an OSD that went down, or boots.
    pub(super) fn forget_beacon(&mut self, osd: OsdId) {
        self.beacons.remove(&osd);
    }

    /// Begins the time of an OSD that is down, unless it began already.
    pub(in crate::core) fn is_down(&mut self, osd: OsdId, now: Mono) {
        self.down_since.entry(osd).or_insert(now);
    }

    /// Ends the time of an OSD that is up, out of service or gone.
    pub(in crate::core) fn is_not_down(&mut self, osd: OsdId) {
        self.down_since.remove(&osd);
    }

    /// OSDs that are down, each with the time for which it is.
    pub(in crate::core) fn down(&self, now: Mono) -> impl Iterator<Item = (OsdId, Duration)> {
        self.down_since.iter().map(move |(o, t)| (*o, now.since(*t)))
    }
}
