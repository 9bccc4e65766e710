//! PGs that do not serve, and space that is used up.

use super::{SHARE_MIN, names};
use crate::evidence::{Activity, Background, Check, Evidence};
use crate::load::Load;
use crate::verdict::{Kind, Verdict};

pub(super) fn not_serving(e: &Evidence, l: &Load) -> Vec<Verdict> {
    let share = l.share(l.cause("peering") + l.cause("lease") + l.cause("paused"));
    let pgs: Vec<&Background> = e.background.iter().filter(|b| b.activity == Activity::Inactive).collect();
    // Clients keep most operations to themselves while the map says so.
    let flags = e.health.iter().find(|c| c.code == "OSDMAP_FLAGS" && c.summary.contains("pause"));
    let paused = flags.is_some() || l.share(l.cause("paused")) >= SHARE_MIN;
    if !paused && pgs.is_empty() && share < SHARE_MIN {
        return Vec::new();
    }
    let down = e.health.iter().find(|c| c.code == "OSD_DOWN");
    let mut osds: Vec<i32> = pgs.iter().flat_map(|b| b.osds.iter().copied()).collect();
    osds.sort_unstable();
    osds.dedup();
    let first: Vec<String> = pgs.iter().take(3).map(|b| format!("{} ({})", b.pg, b.state)).collect();
    let text = match (paused, pgs.is_empty()) {
        (true, _) => "operations are paused by flags of the map".to_owned(),
        (_, true) => "operations waited for PGs that changed their OSDs".to_owned(),
        _ => format!("{} PGs do not serve: {}", pgs.len(), first.join(", ")),
    };
    let mut v = Verdict::new(Kind::NotServing, "PGs", share, text).osds(osds);
    if let Some(f) = flags {
        v = v.shows(format!("{}: {}", f.code, f.summary));
    }
    if let Some(d) = down {
        v = v.shows(format!("{}: {}", d.code, d.summary));
    }
    if !e.silent.is_empty() {
        v = v.shows(format!("{} did not answer", names(&e.silent)));
    }
    let remedy = if paused {
        "`ceph osd unpause`"
    } else if down.is_some() {
        "start the OSDs that are down; `ceph pg PGID query` says what a PG waits for"
    } else {
        "wait some seconds; `ceph pg PGID query` says what a PG waits for"
    };
    vec![v.remedy(remedy)]
}

/// Health checks about space, and the setting or step that ends each.
const SPACE: &[(&str, &str)] = &[
    (
        "POOL_FULL",
        "raise the pool's quota (`ceph osd pool set-quota POOL max_bytes N`, or `max_objects`), or remove data",
    ),
    ("OSD_FULL", "add OSDs, or remove data; meanwhile `ceph osd set-full-ratio 0.97` lets removals through"),
    ("OSD_BACKFILLFULL", "add OSDs, or balance them (`ceph balancer on`)"),
];

pub(super) fn full(e: &Evidence, l: &Load) -> Vec<Verdict> {
    let share = l.share(l.cause("space"));
    let checks: Vec<(&Check, &str)> = e
        .health
        .iter()
        .filter_map(|c| SPACE.iter().find(|(code, _)| *code == c.code).map(|(_, remedy)| (c, *remedy)))
        .collect();
    let full: Vec<i64> = e.pools.iter().filter(|p| p.full).map(|p| p.pool).collect();
    let verdict = |(c, remedy): &(&Check, &str)| {
        let culprit = match (c.code.as_str(), full.as_slice()) {
            ("POOL_FULL", [_, ..]) => full.iter().map(|p| e.pool_name(*p)).collect::<Vec<_>>().join(", "),
            _ => c.code.clone(),
        };
        let waits: u64 = e.osds.iter().flat_map(|o| &o.waiting).filter(|w| w.cause == "space").map(|w| w.ops).sum();
        let remedy = remedy.replace("POOL", &culprit);
        let mut v = Verdict::new(Kind::Full, culprit, share, c.summary.clone());
        if c.code == "POOL_FULL" {
            v = v.pools(full.iter().copied());
        }
        let detail = c.detail.first().cloned().unwrap_or_default();
        let waiting = if waits == 0 { String::new() } else { format!("; {waits} operations wait for space") };
        v.shows(detail + &waiting).remedy(remedy)
    };
    checks.iter().map(verdict).collect()
}
