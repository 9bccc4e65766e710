//! Work of the cluster itself beside that of clients.

use super::{SHARE_MIN, names};
use crate::evidence::{Activity, Background, Evidence};
use crate::load::Load;
use crate::verdict::{Kind, Verdict};

/// Mean time in milliseconds from which operations suffer from work beside them, whatever they took before: work that goes on
/// for ten minutes is in their mean, too.
const SUFFER_MS: f64 = 10.0;

fn suffer(l: &Load) -> bool {
    l.is_slow() || l.mean_ms >= SUFFER_MS
}

/// A number of PGs.
fn count(pgs: &[&Background]) -> String {
    if pgs.len() == 1 { "1 PG".to_owned() } else { format!("{} PGs", pgs.len()) }
}

/// A verb in the number of the PGs.
fn are(pgs: &[&Background]) -> &'static str {
    if pgs.len() == 1 { "is" } else { "are" }
}

/// How quickly recovery goes, and how long operations waited for it, if that is known.
fn progress(e: &Evidence, l: &Load) -> Option<String> {
    let waited = l.cause("recovery") / 1e6;
    let moves = (e.recovery_rate >= 1e5).then(|| format!("recovery moves {:.1} MB a second", e.recovery_rate / 1e6));
    let waits = (waited >= 0.05).then(|| format!("operations waited {waited:.1} s for objects that it had to bring"));
    let all: Vec<String> = moves.into_iter().chain(waits).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn busy(e: &Evidence, a: Activity) -> (Vec<&Background>, Vec<i32>) {
    let pgs: Vec<&Background> = e.background.iter().filter(|b| b.activity == a).collect();
    let mut osds: Vec<i32> = pgs.iter().flat_map(|b| b.osds.iter().copied()).collect();
    osds.sort_unstable();
    osds.dedup();
    (pgs, osds)
}

/// Share of the operations' time spent on devices of these OSDs.
fn device_share(e: &Evidence, l: &Load, osds: &[i32]) -> f64 {
    let those = e.osds.iter().filter(|o| osds.contains(&o.osd));
    l.share(those.map(|o| l.at(o, "commit") + l.at(o, "read") + l.blamed(e, o.osd)).sum())
}

/// First PGs of a list.
fn shown(pgs: &[&Background]) -> String {
    let first: Vec<&str> = pgs.iter().take(4).map(|b| b.pg.as_str()).collect();
    if pgs.len() > 4 { format!("{} and {} more", first.join(", "), pgs.len() - 4) } else { first.join(", ") }
}

pub(super) fn deep_scrub(e: &Evidence, l: &Load) -> Vec<Verdict> {
    let (pgs, osds) = busy(e, Activity::DeepScrub);
    let held = l.share(l.cause("scrub"));
    if pgs.is_empty() || !(suffer(l) || held >= SHARE_MIN) {
        return Vec::new();
    }
    let share = held.max(device_share(e, l, &osds));
    if share < SHARE_MIN {
        return Vec::new();
    }
    vec![
        Verdict::new(
            Kind::DeepScrub,
            format!("deep scrub of {}", count(&pgs)),
            share,
            format!("{} {} read beside the clients' operations", shown(&pgs), are(&pgs)),
        )
        .shows(format!("{} read for it; operations take {:.1} ms ({:.1} ms over ten minutes)", names(&osds), l.mean_ms, l.long_mean_ms))
        .osds(osds)
        .remedy("scrub at night: `ceph config set osd osd_scrub_begin_hour 22` and `osd_scrub_end_hour 6`; now: `ceph osd set nodeep-scrub`"),
    ]
}

pub(super) fn recovery(e: &Evidence, l: &Load) -> Vec<Verdict> {
    let (pgs, osds) = busy(e, Activity::Recovery);
    let held = l.share(l.cause("recovery"));
    if pgs.is_empty() || !(suffer(l) || held >= SHARE_MIN) {
        return Vec::new();
    }
    let share = held.max(device_share(e, l, &osds));
    if share < SHARE_MIN {
        return Vec::new();
    }
    let mut v = Verdict::new(
        Kind::Recovery,
        format!("recovery of {}", count(&pgs)),
        share,
        format!("{} {} copied beside the clients' operations", shown(&pgs), are(&pgs)),
    );
    if let Some(p) = progress(e, l) {
        v = v.shows(p);
    }
    vec![
        v
        .shows(format!("{} take part; operations take {:.1} ms ({:.1} ms over ten minutes)", names(&osds), l.mean_ms, l.long_mean_ms))
        .osds(osds)
        .remedy("let it finish (`belemnite eta`), or slow it down: `ceph config set osd osd_mclock_profile high_client_ops`"),
    ]
}
