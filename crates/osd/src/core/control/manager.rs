//! Reports to the manager, and what they are made of.

use super::Control;
use crate::core::mgr::Stats;
use base::counter::Section;
use base::{Epoch, Now, OsdId};
use std::collections::BTreeMap;
use wire::msg::{MMgrConfigure, MMgrReport, MPgStats};
use wire::types::HbPingTime;

impl Control {
    /// Handles the opened connection to the manager.
    pub fn handle_mgr_open(&mut self) {
        self.mgr.handle_open();
    }

    /// Handles the lost connection to the manager.
    pub fn handle_mgr_closed(&mut self, now: Now) {
        self.mgr.handle_closed(now);
    }

    /// Applies the manager's report interval.
    pub fn handle_mgr_configure(&mut self, m: &MMgrConfigure, now: Now) {
        self.mgr.handle_configure(m, now);
    }

    /// Makes the messages for the manager from the reports of all reactors. Also tells the monitor when the OSD
    /// becomes full.
    pub fn report(&mut self, mut s: Stats, min_last_epoch_clean: Epoch, now: Now) -> (MMgrReport, MPgStats) {
        self.beacon.set_clean(min_last_epoch_clean);
        s.hb_peers = self.hb.peers();
        s.hb_pingtime = self.hb.ping_times(now);
        self.judge_fullness(&s);
        let (fsid, epoch, up_from) = (self.id.fsid, self.maps.epoch(), self.up_from());
        self.mgr.report(s, fsid, epoch, up_from)
    }

    /// Takes the options in force, for the manager.
    pub fn set_options(&mut self, values: BTreeMap<String, BTreeMap<i32, String>>) {
        self.mgr.set_options(values);
    }

    /// Reports to the manager with the next output. Returns the sequence number of that report.
    pub fn flush_stats(&mut self, now: Now) -> u64 {
        let up_from = self.up_from();
        self.mgr.flush(up_from, now)
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
