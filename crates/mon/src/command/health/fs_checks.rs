//! Alerts about file systems: ranks that are missing, damaged or recovering, missing standbys, and the warnings of
//! MDS daemons in their beacons.

use super::checks::Adder;
use super::{Check, Severity};
use crate::state::ClusterState;
use std::collections::BTreeMap;
use wire::types::{FsMap, MdsMap};

/// Code and summary of the warnings that MDS daemons send (`mds_metric_t`), by their number.
const METRICS: [(&str, &str); 16] = [
    ("MDS_TRIM", "%num% MDSs behind on trimming"),
    ("MDS_CLIENT_RECALL", "%num% clients failing to respond to cache pressure"),
    ("MDS_CLIENT_LATE_RELEASE", "%num% clients failing to respond to capability release"),
    ("MDS_CLIENT_RECALL_MANY", "%num% MDSs have many clients failing to respond to cache pressure"),
    ("MDS_CLIENT_LATE_RELEASE_MANY", "%num% MDSs have many clients failing to respond to capability release"),
    ("MDS_CLIENT_OLDEST_TID", "%num% clients failing to advance oldest client/flush tid"),
    ("MDS_CLIENT_OLDEST_TID_MANY", "%num% MDSs have clients failing to advance oldest client/flush tid"),
    ("MDS_DAMAGE", "%num% MDSs report damaged metadata"),
    ("MDS_READ_ONLY", "%num% MDSs are read only"),
    ("MDS_SLOW_REQUEST", "%num% MDSs report slow requests"),
    ("MDS_CACHE_OVERSIZED", "%num% MDSs report oversized cache"),
    ("MDS_SLOW_METADATA_IO", "%num% MDSs report slow metadata IOs"),
    ("MDS_CLIENTS_LAGGY", "%num% client(s) laggy due to laggy OSDs"),
    ("MDS_CLIENTS_LAGGY_MANY", "%num% MDSs have many clients laggy due to laggy OSDs"),
    ("MDS_CLIENTS_BROKEN_ROOTSQUASH", "%num% MDS report clients with broken root_squash implementation"),
    ("MDS_ESTIMATED_REPLAY_TIME", "%num% estimated journal replay time"),
];
/// The metric that Ceph's MDS sends in tests only.
const DUMMY: u16 = 17;

/// Alerts by code, whose summaries still hold placeholders such as `%num%`.
struct Open(BTreeMap<String, Check>);

impl Open {
    fn add(&mut self, code: &str, severity: Severity, summary: &str, count: i64, detail: String) {
        let c = self.0.entry(code.to_owned()).or_insert_with(|| Check {
            severity,
            summary: summary.to_owned(),
            detail: Vec::new(),
            count: 0,
        });
        c.severity = c.severity.max(severity);
        c.count += count;
        c.detail.push(detail);
    }

    fn close(self, a: &mut Adder) {
        for (code, mut c) in self.0 {
            let n = c.detail.len();
            let many = n > 1;
            c.summary = c
                .summary
                .replace("%num%", &n.to_string())
                .replace("%plurals%", if many { "s" } else { "" })
                .replace("%isorare%", if many { "are" } else { "is" })
                .replace("%hasorhave%", if many { "have" } else { "has" });
            a.checks.insert(code, c);
        }
    }
}

/// Adds the alerts about file systems.
pub(super) fn add(a: &mut Adder, state: &ClusterState) {
    let map = &state.fs.map;
    let mut open = Open(BTreeMap::new());
    metrics(&mut open, state);
    let mut missing = 0;
    for (id, fs) in &map.filesystems {
        one(&mut open, map, *id, &fs.mds_map);
        missing = missing.max(fs.mds_map.standbys_missing(map.standby_daemons.len()));
    }
    if missing > 0 {
        let detail = format!("have {}; want {missing} more", map.standby_daemons.len());
        let summary = "insufficient standby MDS daemons available";
        open.add("MDS_INSUFFICIENT_STANDBY", Severity::Warn, summary, 1, detail);
    }
    open.close(a);
}

/// Adds the warnings in MDS beacons. An unknown kind is shown by its number.
fn metrics(open: &mut Open, state: &ClusterState) {
    for info in state.fs.map.daemons() {
        let Some(health) = state.fs.health.get(&info.global_id) else { continue };
        for m in health.metrics.iter().filter(|m| m.kind != DUMMY) {
            let severity = if m.severity == 0 { Severity::Err } else { Severity::Warn };
            let known = usize::from(m.kind).checked_sub(1).and_then(|i| METRICS.get(i));
            let number = format!("MDS_HEALTH_{}", m.kind);
            let (code, summary) = known.copied().unwrap_or((&number, "%num% MDSs report a warning"));
            let more: Vec<String> = m.metadata.iter().map(|(k, v)| format!("{k}: {v}")).collect();
            let more = if more.is_empty() { String::new() } else { format!(" {}", more.join(", ")) };
            let detail = format!("mds.{}(mds.{}): {}{more}", info.name, info.rank, m.message);
            open.add(code, severity, summary, 1, detail);
        }
    }
}

fn one(open: &mut Open, map: &FsMap, fscid: i32, m: &MdsMap) {
    let name = &m.fs_name;
    let stuck = m.failed.iter().filter(|r| map.replacement(fscid, **r).is_none()).count();
    if stuck > 0 {
        let detail = format!("fs {name} has {stuck} failed mds{}", if stuck > 1 { "s" } else { "" });
        let summary = "%num% filesystem%plurals% %hasorhave% a failed mds daemon";
        open.add("FS_WITH_FAILED_MDS", Severity::Warn, summary, 1, detail);
    }
    for rank in &m.damaged {
        let summary = "%num% mds daemon%plurals% damaged";
        open.add("MDS_DAMAGE", Severity::Err, summary, 1, format!("fs {name} mds.{rank} is damaged"));
    }
    if m.is_degraded() {
        let summary = "%num% filesystem%plurals% %isorare% degraded";
        open.add("FS_DEGRADED", Severity::Warn, summary, 1, format!("fs {name} is degraded"));
    }
    let (have, want) = (m.ranks_in.len(), m.max_mds);
    if (have as i64) < i64::from(want) {
        let summary = "%num% filesystem%plurals% %isorare% online with fewer MDS than max_mds";
        let detail = format!("fs {name} has {have} MDS online, but wants {want}");
        open.add("MDS_UP_LESS_THAN_MAX", Severity::Warn, summary, 1, detail);
    }
    if m.up.is_empty() && want > 0 {
        let summary = "%num% filesystem%plurals% %isorare% offline";
        let detail = format!("fs {name} is offline because no MDS is active for it.");
        open.add("MDS_ALL_DOWN", Severity::Err, summary, 1, detail);
    }
    if m.inline_data_enabled {
        let summary = "%num% filesystem%plurals% with deprecated feature inline_data";
        let detail = format!("fs {name} has deprecated feature inline_data enabled.");
        open.add("FS_INLINE_DATA_DEPRECATED", Severity::Warn, summary, 1, detail);
    }
}
