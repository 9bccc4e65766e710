//! Space that is used up: quotas of pools, OSDs, and the file systems under the files of OSDs.

use super::names;
use crate::evidence::{Check, Evidence, Osd, Pool};
use crate::load::Load;
use crate::verdict::{Kind, Verdict};

/// A health check about full OSDs.
struct Level {
    code: &'static str,
    /// Part of the space in use from which the map shows an OSD so.
    ratio: fn(&Evidence) -> f64,
    /// The remedy if data takes the space.
    remedy: &'static str,
}

const LEVELS: &[Level] = &[
    Level {
        code: "OSD_FULL",
        ratio: |e| if e.full_ratio > 0.0 { e.full_ratio } else { 0.95 },
        remedy: "add OSDs, or remove data (`rados rm OBJECT --force-full`, `belemnite rm`); if clients cannot say \
            so, `ceph osd set-full-ratio 0.97` until they have removed it",
    },
    Level {
        code: "OSD_BACKFILLFULL",
        ratio: |e| if e.backfillfull_ratio > 0.0 { e.backfillfull_ratio } else { 0.9 },
        remedy: "add OSDs, or balance them (`ceph balancer on`)",
    },
];

/// Default of `osd_failsafe_full_ratio`.
const FAILSAFE: f64 = 0.97;

/// The remedy for a full file system.
const MAKE_ROOM: &str = "make room on that file system: logs in DIR/log, exports in DIR/backups, files of others \
                         (docs/operate/cluster-full.md)";

/// Bytes in words.
fn bytes(n: u64) -> String {
    if n >= 1 << 30 { format!("{:.1} GiB", n as f64 / f64::from(1 << 30)) } else { format!("{} MiB", n >> 20) }
}

/// Operations that wait for space, as the end of a sentence.
fn waits(e: &Evidence) -> String {
    let all = e.osds.iter().flat_map(|o| &o.waiting).filter(|w| w.cause == "space");
    match all.map(|w| w.ops).sum::<u64>() {
        0 => String::new(),
        n => format!("; {n} operations wait for space"),
    }
}

/// The OSD that begins a detail of a check.
fn named(detail: &str) -> Option<i32> {
    detail.split_whitespace().next()?.strip_prefix("osd.")?.parse().ok()
}

/// True if an OSD would not have this fullness if its file system had room for its file.
fn is_of_file_system(o: &Osd, ratio: f64) -> bool {
    let own = 1.0 - o.space.available as f64 / o.space.total.max(1) as f64;
    o.space.lacks > 0 && own < ratio
}

/// A verdict about OSDs whose file systems are full.
fn of_file_systems(e: &Evidence, share: f64, osds: &[&Osd], pools: &str) -> Option<Verdict> {
    let first = osds.first()?;
    let ids: Vec<i32> = osds.iter().map(|o| o.osd).collect();
    let text = format!("the file system under the OSD's file is full: it has {} free", bytes(first.space.free));
    let shows = format!(
        "osd.{} on {} counts {} as free in its file, of which the file system lacks {}",
        first.osd,
        first.host,
        bytes(first.space.available),
        bytes(first.space.lacks.min(first.space.available)),
    );
    let v = Verdict::new(Kind::Full, names(&ids), share, text).osds(ids);
    Some(and_pools(v.shows(shows + &waits(e)), pools).remedy(MAKE_ROOM))
}

/// Full pools that have reached no quota.
fn pools_without_quota(e: &Evidence) -> Vec<&Pool> {
    e.pools.iter().filter(|p| p.full && !p.quota).collect()
}

fn pool_names(pools: &[&Pool]) -> String {
    pools.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// The verdict with the pools that are full by it.
fn and_pools(v: Verdict, pools: &str) -> Verdict {
    if pools.is_empty() { v } else { v.shows(format!("so these pools are full, without a reached quota: {pools}")) }
}

/// Pools that have reached a quota.
pub(super) fn quota(e: &Evidence, l: &Load) -> Vec<Verdict> {
    let full: Vec<&Pool> = e.pools.iter().filter(|p| p.quota).collect();
    if full.is_empty() {
        return Vec::new();
    }
    let culprit = pool_names(&full);
    let mut detail = e.health.iter().filter(|c| c.code == "POOL_FULL").flat_map(|c| &c.detail);
    let of_quota = detail.find(|d| d.contains("quota")).cloned().unwrap_or_default();
    let text = match full.len() {
        1 => "the pool has reached its quota",
        _ => "the pools have reached their quotas",
    };
    let remedy =
        format!("raise the quota (`ceph osd pool set-quota {culprit} max_bytes N`, or `max_objects`), or remove data");
    let v = Verdict::new(Kind::Full, culprit, l.share(l.cause("space")), text);
    vec![v.pools(full.iter().map(|p| p.pool)).shows(of_quota + &waits(e)).remedy(remedy)]
}

/// OSDs that are full, by their data or by the file system under their file; the pools on them are full, too.
pub(super) fn full(e: &Evidence, l: &Load) -> Vec<Verdict> {
    let share = l.share(l.cause("space"));
    let mut all = Vec::new();
    let mut told: Vec<i32> = Vec::new();
    let pools = pools_without_quota(e);
    let hit = pool_names(&pools);
    for level in LEVELS {
        let Some(c) = e.health.iter().find(|c| c.code == level.code) else { continue };
        let ratio = (level.ratio)(e);
        let hit = if level.code == "OSD_FULL" { hit.as_str() } else { "" };
        let listed: Vec<i32> = c.detail.iter().filter_map(|d| named(d)).collect();
        let (starved, others): (Vec<i32>, Vec<i32>) =
            listed.iter().partition(|id| e.osds.iter().any(|o| o.osd == **id && is_of_file_system(o, ratio)));
        let osds: Vec<&Osd> = e.osds.iter().filter(|o| starved.contains(&o.osd)).collect();
        all.extend(of_file_systems(e, share, &osds, hit));
        if !others.is_empty() || listed.is_empty() {
            all.push(of_data(e, share, c, &others, level, hit));
        }
        told.extend(listed);
    }
    // An OSD refuses writes on its own before the map has its flag, or without one.
    let short: Vec<&Osd> = e.osds.iter().filter(|o| o.space.short && !told.contains(&o.osd)).collect();
    let explained = !short.is_empty() || e.health.iter().any(|c| c.code == "OSD_FULL");
    let (starved, others): (Vec<&Osd>, Vec<&Osd>) = short.into_iter().partition(|o| is_of_file_system(o, FAILSAFE));
    all.extend(of_file_systems(e, share, &starved, ""));
    if !others.is_empty() {
        let ids: Vec<i32> = others.iter().map(|o| o.osd).collect();
        let text = "the store is above `osd_failsafe_full_ratio`, so growing writes wait";
        let v = Verdict::new(Kind::Full, names(&ids), share, text).osds(ids);
        all.push(v.shows(format!("the OSD itself reports it{}", waits(e))).remedy("add OSDs, or remove data"));
    }
    if !explained && !pools.is_empty() {
        let text = "no space is left for more data; no quota is reached";
        let v = Verdict::new(Kind::Full, hit, share, text).pools(pools.iter().map(|p| p.pool));
        let shows = format!("the map has the flag `full` for the pool{}", waits(e));
        all.push(v.shows(shows).remedy("add OSDs, or remove data; `ceph osd df` shows which OSDs are full"));
    }
    all
}

/// A verdict about OSDs that are full of data.
fn of_data(e: &Evidence, share: f64, c: &Check, osds: &[i32], level: &Level, pools: &str) -> Verdict {
    let culprit = if osds.is_empty() { c.code.clone() } else { names(osds) };
    let detail = c.detail.iter().find(|d| osds.is_empty() || named(d).is_some_and(|o| osds.contains(&o)));
    let v = Verdict::new(Kind::Full, culprit, share, format!("{}: {}", c.code, c.summary)).osds(osds.iter().copied());
    and_pools(v.shows(detail.cloned().unwrap_or_default() + &waits(e)), pools).remedy(level.remedy)
}

/// The reasons of OSDs that do not run because the file system under their file is full.
pub(super) fn starved(e: &Evidence) -> Vec<&String> {
    let failed = e.health.iter().filter(|c| c.code == "OSD_STORE_FAILED").flat_map(|c| &c.detail);
    failed.filter(|d| d.contains("bytes free") || d.contains("ENOSPC")).collect()
}

/// OSDs that do not run because the file system under their file is full.
pub(super) fn not_running(e: &Evidence, l: &Load) -> Vec<Verdict> {
    let reasons = starved(e);
    let Some(first) = reasons.first() else { return Vec::new() };
    let ids: Vec<i32> = reasons.iter().filter_map(|d| named(d)).collect();
    let share = l.share(l.cause("peering") + l.cause("lease"));
    let text = "the file system under the OSD's file is full, so the OSD does not run";
    let v = Verdict::new(Kind::Full, names(&ids), share, text).osds(ids);
    vec![v.shows((*first).clone()).remedy(format!("{MAKE_ROOM}; the OSD then starts by itself"))]
}
