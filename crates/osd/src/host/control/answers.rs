//! Answers to commands: the state of the control machine, and what operators order it to do.

use super::ControlHost;
use crate::core::control::Control;
use base::counter::Section;
use base::{AddrKind, OsdId, SpgId};
use reactor::clock;
use std::collections::BTreeMap;
use wire::types::HbPingTime;

impl ControlHost {
    /// Adds what this machine counts to the counters of the reactors.
    pub(in crate::host) fn count(&self, all: &mut [Section]) {
        let (taken, refused) = self.answering.admission.figures();
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
        for s in all {
            if s.name == "osd" {
                self.core.borrow().count(s);
                // As in Ceph, in hundredths.
                s.add_to("loadavg", (load * 100.0) as u64);
            } else if s.name == "admission" {
                s.add_to("heartbeat_taken", taken);
                s.add_to("heartbeat_refused", refused);
            }
        }
    }

    /// Answer to `status` of the admin socket.
    pub(in crate::host) fn status(&self) -> serde_json::Value {
        let c = self.core.borrow();
        let epoch = c.map().map_or(0, |m| m.epoch.0);
        serde_json::json!({
            "cluster_fsid": c.map().map(|m| m.fsid.to_string()),
            "whoami": c.whoami().0,
            "state": format!("{:?}", c.phase()).to_lowercase(),
            "oldest_map": c.oldest_map().0,
            "newest_map": epoch,
            "up_from": c.up_from().0,
            "num_reactors": self.routes.reactors.len(),
        })
    }

    /// Answer to `dump_blocklist`.
    pub(in crate::host) fn blocklist(&self) -> serde_json::Value {
        let core = self.core.borrow();
        let entries = core.map().into_iter().flat_map(|m| m.blocklist.iter().chain(m.range_blocklist.iter()));
        entries
            .map(|(a, until)| {
                let a = a.0;
                serde_json::json!({
                    "entity_addr": {
                        "type": if a.kind == AddrKind::CIDR { "cidr" } else { "any" },
                        "addr": a.sock.map_or_else(|| "-".to_owned(), |s| s.to_string()),
                        "nonce": a.nonce,
                    },
                    "expire_time": until.iso(),
                })
            })
            .collect()
    }

    /// Writes a line to the cluster log.
    pub(in crate::host) fn log_line(&self, prio: u16, text: String) {
        self.with(|c, now| c.clog(prio, text, now));
    }

    /// Reports to the manager at once. Returns the number that `osd last-stat-seq` shows once the report is there.
    pub(in crate::host) fn flush_stats(&self) -> u64 {
        self.with(Control::flush_stats)
    }

    /// Reports the OSD to the monitors as that full, or as it is again, at once.
    pub(in crate::host) fn inject_full(&self, state: Option<u32>) {
        self.with(|c, _| c.inject_full(state));
        self.flush_stats();
    }

    /// Sends a beacon to the monitors at once.
    pub(in crate::host) fn beacon(&self) {
        self.with(Control::beacon);
    }

    /// Number of this OSD.
    pub(in crate::host) fn whoami(&self) -> OsdId {
        self.core.borrow().whoami()
    }

    /// Metadata of this OSD, as the monitors got it.
    pub(in crate::host) fn metadata(&self) -> BTreeMap<String, String> {
        self.core.borrow().metadata().clone()
    }

    /// Ping times of the watched OSDs.
    pub(in crate::host) fn ping_times(&self) -> BTreeMap<OsdId, HbPingTime> {
        self.core.borrow().ping_times(clock::read())
    }

    /// Scrub slots in use, and all.
    pub(in crate::host) fn scrub_slots(&self) -> (u32, u32) {
        self.scrubs.figures()
    }

    /// Unanswered operations of this OSD's own client.
    pub(in crate::host) fn requests(&self) -> serde_json::Value {
        let ops = self.objecter.borrow().as_ref().map_or_else(Vec::new, |o| o.in_flight());
        let one = |(tid, osd, pg, oid): (u64, Option<OsdId>, SpgId, String)| {
            serde_json::json!({
                "tid": tid, "pg": pg.to_string(), "osd": osd.map_or(-1, |o| o.0), "object_id": oid,
            })
        };
        serde_json::json!({
            "ops": ops.into_iter().map(one).collect::<Vec<_>>(),
            "linger_ops": [], "pool_ops": [], "pool_stat_ops": [], "statfs_ops": [], "command_ops": [],
        })
    }
}
