//! The control machine's part of the section `osd`.

use super::{Control, Phase};
use base::counter::Section;
use base::{Now, OsdId};
use std::collections::BTreeMap;
use wire::types::HbPingTime;

impl Control {
    /// Reports to the manager with the next output. Returns the sequence number of that report.
    pub fn flush_stats(&mut self, now: Now) -> u64 {
        let up_from = self.up_from();
        self.mgr.flush(up_from, now)
    }

    /// Sends a beacon at once.
    pub fn beacon(&mut self, now: Now) {
        if self.phase == Phase::Active {
            self.send_beacon(now);
        }
    }

    /// Metadata of this OSD, as the monitors get it.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.id.metadata
    }

    /// Ping times of the watched OSDs.
    #[must_use]
    pub fn ping_times(&self, now: Now) -> BTreeMap<OsdId, HbPingTime> {
        self.hb.ping_times(now)
    }

    /// Adds heartbeats and maps to the section `osd` of the reactors.
    pub fn count(&self, osd: &mut Section) {
        let m = self.maps.counts();
        osd.add_to("heartbeat_to_peers", self.hb.peers().len());
        osd.add_to("map_messages", m.messages);
        osd.add_to("map_message_epochs", m.epochs);
        osd.add_to("map_message_epoch_dups", m.known);
        osd.add_to("full_map_received", m.full);
        osd.add_to("inc_map_received", m.steps);
    }
}
