//! PGs that do not serve.

use super::{SHARE_MIN, names, space};
use crate::evidence::{Activity, Background, Evidence};
use crate::load::Load;
use crate::old_state;
use crate::placement::Placement;
use crate::verdict::{Kind, Verdict};
use std::collections::BTreeMap;

/// PGs with their states, the first three of them.
fn shown(pgs: &[&Background]) -> String {
    let first: Vec<String> = pgs.iter().take(3).map(|b| format!("{} ({})", b.pg, b.state)).collect();
    let count = if pgs.len() == 1 { "1 PG does" } else { &format!("{} PGs do", pgs.len()) };
    format!("{count} not serve: {}", first.join(", "))
}

/// The monitors' old state, which keeps OSDs from serving.
fn refused(e: &Evidence, share: f64, pgs: &[&Background]) -> Option<Verdict> {
    let v = Verdict::new(Kind::OldState, "monitors", share, old_state::found(&e.health)?);
    let summary = e.health.iter().filter(|c| c.code == old_state::CODE).map(|c| format!("{}: {}", c.code, c.summary));
    let shows = if pgs.is_empty() { summary.collect() } else { shown(pgs) };
    Some(v.shows(shows).remedy(old_state::REMEDY))
}

/// Pools for whose PGs CRUSH finds too few places.
fn without_places(pgs: &[&Background], share: f64) -> Vec<Verdict> {
    let mut by_place: BTreeMap<String, (&Placement, Vec<&Background>)> = BTreeMap::new();
    for b in pgs {
        by_place.entry(b.placement.text()).or_insert((&b.placement, Vec::new())).1.push(*b);
    }
    let verdict = |(text, (p, pgs)): (String, (&Placement, Vec<&Background>))| {
        let pool = pgs.first().and_then(|b| b.pg.split_once('.')?.0.parse::<i64>().ok());
        let v = Verdict::new(Kind::NotServing, format!("pool {}", p.pool), share, text).pools(pool);
        v.shows(shown(&pgs)).remedy(p.remedy())
    };
    by_place.into_iter().map(verdict).collect()
}

pub(super) fn not_serving(e: &Evidence, l: &Load) -> Vec<Verdict> {
    let share = l.share(l.cause("peering") + l.cause("lease") + l.cause("paused"));
    // A monitor that has just started knows no PG. Health says those that stay unknown.
    let stuck = e.health.iter().any(|c| c.code == "PG_AVAILABILITY" || c.code == "OSD_DOWN");
    let stops =
        |b: &&Background| b.activity == Activity::Inactive && (b.state != "unknown" || stuck || b.placement.stops());
    let mut pgs: Vec<&Background> = e.background.iter().filter(stops).collect();
    let mut all = Vec::new();
    if let Some(v) = refused(e, share, &pgs) {
        all.push(v);
        pgs.clear();
    }
    let (unplaced, pgs): (Vec<&Background>, Vec<&Background>) = pgs.into_iter().partition(|b| b.placement.stops());
    all.extend(without_places(&unplaced, share));
    // Clients keep most operations to themselves while the map says so.
    let flags = e.health.iter().find(|c| c.code == "OSDMAP_FLAGS" && c.summary.contains("pause"));
    let paused = flags.is_some() || l.share(l.cause("paused")) >= SHARE_MIN;
    if !paused && pgs.is_empty() && (share < SHARE_MIN || !all.is_empty()) {
        return all;
    }
    let down = e.health.iter().find(|c| c.code == "OSD_DOWN");
    let mut osds: Vec<i32> = pgs.iter().flat_map(|b| b.osds.iter().copied()).collect();
    osds.sort_unstable();
    osds.dedup();
    let text = match (paused, pgs.is_empty()) {
        (true, _) => "operations are paused by flags of the map".to_owned(),
        (_, true) => "operations waited for PGs that changed their OSDs".to_owned(),
        _ => shown(&pgs),
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
    } else if !space::starved(e).is_empty() {
        "make room on the file systems of the OSDs that do not run; they start by themselves then"
    } else if down.is_some() {
        "start the OSDs that are down; `ceph pg PGID query` says what a PG waits for"
    } else {
        "wait some seconds; `ceph pg PGID query` says what a PG waits for"
    };
    all.push(v.remedy(remedy));
    all
}
