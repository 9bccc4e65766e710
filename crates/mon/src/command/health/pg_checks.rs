//! Alerts that follow from PG states and OSD reports.

use super::Severity::{Err, Warn};
use super::checks::Adder;
use crate::command::units::age;
use crate::state::ClusterState;
use base::{Now, PgId, Utime};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::types::{PgStat, pg_state as s};

/// Time in a transient state after which a PG counts as stuck (`mon_pg_stuck_threshold`).
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// Most PGs listed in the detail of an alert.
const DETAIL_MAX: usize = 50;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Unavailable,
    Degraded,
    BackfillFull,
    Damaged,
    RecoveryFull,
}

/// A rule for one state bit: the alert's class and, for transient states, the time the PG last was without that
/// state.
struct Rule {
    bit: u64,
    class: Class,
    since: Option<fn(&PgStat) -> Utime>,
    absent: bool,
}

const fn now_bad(bit: u64, class: Class) -> Rule {
    Rule { bit, class, since: None, absent: false }
}

const RULES: [Rule; 14] = [
    Rule { bit: s::ACTIVE, class: Class::Unavailable, since: Some(|p| p.last_active), absent: true },
    now_bad(s::DOWN, Class::Unavailable),
    now_bad(s::RECOVERY_UNFOUND, Class::Damaged),
    now_bad(s::BACKFILL_UNFOUND, Class::Damaged),
    now_bad(s::DEGRADED, Class::Degraded),
    now_bad(s::INCONSISTENT, Class::Damaged),
    Rule { bit: s::PEERING, class: Class::Unavailable, since: Some(|p| p.last_peered), absent: false },
    now_bad(s::REPAIR, Class::Damaged),
    now_bad(s::INCOMPLETE, Class::Unavailable),
    Rule { bit: s::STALE, class: Class::Unavailable, since: Some(|p| p.last_unstale), absent: false },
    now_bad(s::BACKFILL_TOOFULL, Class::BackfillFull),
    Rule { bit: s::UNDERSIZED, class: Class::Degraded, since: Some(|p| p.last_fullsized), absent: false },
    now_bad(s::RECOVERY_TOOFULL, Class::RecoveryFull),
    now_bad(s::SNAPTRIM_ERROR, Class::Damaged),
];

/// The statistics keep PGs in groups for these states, so that no look at the health walks over all PGs.
const _: () = {
    let mut n = 0;
    while n < RULES.len() {
        assert!(RULES[n].absent || RULES[n].bit & mgr::stats::NOTABLE == RULES[n].bit, "a rule about a quiet state");
        n += 1;
    }
};

/// Adds the alerts about PGs and OSD reports. A separate manager gets these reports, not this process, and tells its own
/// alerts.
pub(super) fn add(a: &mut Adder, state: &ClusterState, now: Now) {
    if state.options.external_mgr {
        return;
    }
    let mut found: BTreeMap<Class, Found> = BTreeMap::new();
    let (map, stats) = (&*state.osdmap, &state.mgr.stats);
    for ids in stats.notable() {
        look(&mut found, ids.len(), ids.iter().filter_map(|id| Some((*id, stats.pg(*id)?))), now);
    }
    // PGs that no OSD has reported are unknown. They count as stuck once the pool and this process are old enough.
    for (pool, p) in map.pools.iter() {
        let since = p.create_time.max(state.started.wall);
        let silent = stats.num_silent_of(*pool, p.pg_num);
        if silent == 0 || now.wall.to_unix().saturating_sub(since.to_unix()) < STUCK_AFTER {
            continue;
        }
        let blank = PgStat { last_active: since, ..PgStat::default() };
        look(&mut found, silent, stats.silent_pgs_of(*pool, p.pg_num).map(|id| (id, &blank)), now);
    }
    let sum = &state.mgr.stats.sum().stats.sum;
    for (class, f) in &mut found {
        let mut parts: Vec<String> = Vec::new();
        if *class == Class::Degraded && sum.num_objects_degraded > 0 && sum.num_object_copies > 0 {
            parts.push(share(sum.num_objects_degraded, sum.num_object_copies, "objects degraded"));
        }
        parts.extend(f.states.iter().filter_map(|(rule, n)| {
            let name = name_of(RULES.get(*rule)?);
            Some(format!("{n} pg{} {name}", if *n == 1 { "" } else { "s" }))
        }));
        let (code, severity, lead) = match class {
            Class::Unavailable => ("PG_AVAILABILITY", Warn, "Reduced data availability: "),
            Class::Degraded => ("PG_DEGRADED", Warn, "Degraded data redundancy: "),
            Class::Damaged => ("PG_DAMAGED", Err, "Possible data damage: "),
            Class::RecoveryFull => ("PG_RECOVERY_FULL", Err, "Full OSDs blocking recovery: "),
            Class::BackfillFull => (
                "PG_BACKFILL_FULL",
                Warn,
                "Low space hindering backfill (add storage if this doesn't resolve itself): ",
            ),
        };
        let mut detail: Vec<String> = std::mem::take(&mut f.detail).into_values().take(DETAIL_MAX).collect();
        if f.pgs > detail.len() {
            detail.push(format!("... and {} more", f.pgs - DETAIL_MAX));
        }
        a.add(code, severity, f.pgs, format!("{lead}{}", parts.join(", ")), detail);
    }
    objects(a, state);
    osds(a, state);
    slow_pings(a, state);
    super::scrub_checks::add(a, state, now);
}

/// Adds alerts about slow heartbeats between OSDs: for each pair, the highest average of the 1, 5 and 15 minute
/// windows.
fn slow_pings(a: &mut Adder, state: &ClusterState) {
    let o = &state.options;
    let limit_ms = if o.slow_ping_ms > 0.0 {
        o.slow_ping_ms
    } else {
        o.osds.heartbeat_grace.as_secs_f64() * 1000.0 * o.slow_ping_ratio
    };
    if limit_ms <= 0.0 {
        return;
    }
    let (map, limit) = (&*state.osdmap, limit_ms * 1000.0);
    let place = |osd: base::OsdId| {
        let loc: Vec<String> = map.crush.full_location(osd.0).into_iter().rev().map(|(_, n)| n.to_string()).collect();
        if loc.is_empty() { String::new() } else { format!("[{}]", loc.join(",")) }
    };
    for (code, front, word) in [("OSD_SLOW_PING_TIME_BACK", false, "back"), ("OSD_SLOW_PING_TIME_FRONT", true, "front")]
    {
        let mut slow: Vec<(u32, String)> = Vec::new();
        for (from, st) in state.mgr.stats.osds() {
            for (to, t) in st.hb_pingtime.iter().filter(|(to, _)| map.is_up(**to)) {
                let means = if front { t.front_pingtime } else { t.back_pingtime };
                let worst = means.into_iter().max().unwrap_or(0);
                if f64::from(worst) <= limit {
                    continue;
                }
                let last = if front { t.front_last } else { t.back_last };
                // The last ping was fast enough, but an average still exceeds the limit.
                let now = if f64::from(last) <= limit { " possibly improving" } else { "" };
                let text = format!(
                    "Slow OSD heartbeats on {word} from {from} {} to {to} {} {:.3} msec{now}",
                    place(*from),
                    place(*to),
                    f64::from(worst) / 1000.0
                );
                slow.push((worst, text));
            }
        }
        slow.sort_by_key(|(t, _)| std::cmp::Reverse(*t));
        let Some((worst, _)) = slow.first() else { continue };
        let summary = format!("Slow OSD heartbeats on {word} (longest {:.3}ms)", f64::from(*worst) / 1000.0);
        let n = slow.len();
        let mut detail: Vec<String> = slow.into_iter().take(DETAIL_MAX).map(|(_, t)| t).collect();
        if n > DETAIL_MAX {
            detail.push(
                "Truncated long network list.  Use ceph daemon mgr.# dump_osd_network for more information".into(),
            );
        }
        a.add(code, Warn, n, summary, detail);
    }
}

#[derive(Default)]
struct Found {
    /// Number of PGs by index of the rule; the index is also the order in the summary.
    states: BTreeMap<usize, usize>,
    pgs: usize,
    /// The lines of the first PGs of each group.
    detail: BTreeMap<PgId, String>,
}

fn name_of(r: &Rule) -> String {
    if r.absent { "inactive".into() } else { s::to_string(r.bit) }
}

/// How long a PG is stuck, as Ceph words it; `None` if it is not for long. A PG that was never in the state has no time.
fn stuck_for(since: Utime, now: Now) -> Option<String> {
    if since == Utime::ZERO {
        return Some("since forever".into());
    }
    let stuck = now.wall.to_unix().saturating_sub(since.to_unix());
    (stuck >= STUCK_AFTER).then(|| format!("for {}", age(stuck.as_secs())))
}

/// Counts `n` PGs for which the same rules hold.
fn look<'a>(found: &mut BTreeMap<Class, Found>, n: usize, pgs: impl Iterator<Item = (PgId, &'a PgStat)>, now: Now) {
    let mut pgs = pgs.take(DETAIL_MAX).peekable();
    let Some((_, first)) = pgs.peek().copied() else { return };
    // A PG has one line for each class: that of the last rule that holds.
    let mut lines: BTreeMap<Class, &Rule> = BTreeMap::new();
    for (index, r) in RULES.iter().enumerate() {
        let holds = (first.state() & r.bit != 0) != r.absent;
        if holds && r.since.is_none_or(|since| stuck_for(since(first), now).is_some()) {
            *found.entry(r.class).or_default().states.entry(index).or_default() += n;
            lines.insert(r.class, r);
        }
    }
    for class in lines.keys() {
        found.entry(*class).or_default().pgs += n;
    }
    for (id, st) in pgs.filter(|_| !lines.is_empty()) {
        for (class, r) in &lines {
            found.entry(*class).or_default().detail.insert(id, line(r, id, st, now));
        }
    }
}

fn line(r: &Rule, id: PgId, st: &PgStat, now: Now) -> String {
    let acting: Vec<String> = st.acting.iter().map(|o| o.0.to_string()).collect();
    let (acting, text) = (acting.join(","), s::to_string(st.state()));
    match r.since {
        None => {
            let unfound = st.stats.sum.num_objects_unfound;
            let more = if unfound > 0 { format!(", {unfound} unfound") } else { String::new() };
            format!("pg {id} is {text}, acting [{acting}]{more}")
        }
        Some(since) => {
            let t = stuck_for(since(st), now).unwrap_or_default();
            format!("pg {id} is stuck {} {t}, current state {text}, last acting [{acting}]", name_of(r))
        }
    }
}

/// `12/300 objects degraded (4.000%)`.
pub(in crate::command) fn share(part: i64, whole: i64, what: &str) -> String {
    let pct = if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 };
    format!("{part}/{whole} {what} ({pct:.3}%)")
}

/// Pools with large omap objects, followed by a hint where to find details.
fn large_omaps(state: &ClusterState) -> Vec<String> {
    let map = &*state.osdmap;
    let count = |id| state.mgr.stats.pool(id).stats.sum.num_large_omap_objects;
    let mut lines: Vec<String> = (map.pools.keys().map(|id| (*id, count(*id))))
        .filter(|(_, n)| *n > 0)
        .map(|(id, n)| format!("{n} large objects found in pool '{}'", map.pool_name(id).unwrap_or_default()))
        .collect();
    lines.push("Search the cluster log for 'Large omap object found' for more details.".to_owned());
    lines
}

fn objects(a: &mut Adder, state: &ClusterState) {
    let sum = &state.mgr.stats.sum().stats.sum;
    if sum.num_objects_unfound > 0 {
        let detail: Vec<String> = state
            .mgr
            .stats
            .unfound()
            .iter()
            .take(DETAIL_MAX)
            .filter_map(|id| Some((id, state.mgr.stats.pg(*id)?)))
            .map(|(id, p)| format!("pg {id} has {} unfound objects", p.stats.sum.num_objects_unfound))
            .collect();
        let text = share(sum.num_objects_unfound, sum.num_objects, "objects unfound");
        a.add("OBJECT_UNFOUND", Warn, detail.len(), text, detail);
    }
    if sum.num_objects_misplaced > 0 {
        let text = share(sum.num_objects_misplaced, sum.num_object_copies, "objects misplaced");
        a.add("OBJECT_MISPLACED", Warn, usize::try_from(sum.num_objects_misplaced).unwrap_or(0), text, Vec::new());
    }
    if sum.num_scrub_errors > 0 {
        let n = usize::try_from(sum.num_scrub_errors).unwrap_or(0);
        a.add("OSD_SCRUB_ERRORS", Err, n, format!("{n} scrub errors"), Vec::new());
    }
    if sum.num_large_omap_objects > 0 {
        let n = usize::try_from(sum.num_large_omap_objects).unwrap_or(0);
        a.add("LARGE_OMAP_OBJECTS", Warn, n, format!("{n} large omap objects"), large_omaps(state));
    }
    let map = &*state.osdmap;
    let in_osds = map.osds().filter(|o| map.is_in(*o)).count() as i64;
    if in_osds > 0 {
        let placed: i64 = map.pools.values().map(|p| i64::from(p.pg_num) * i64::from(p.size)).sum();
        let (per, max) = (placed / in_osds, i64::from(state.options.pools.max_pg_per_osd));
        if max > 0 && per > max {
            a.add(
                "TOO_MANY_PGS",
                Warn,
                (per - max) as usize,
                format!("too many PGs per OSD ({per} > max {max})"),
                Vec::new(),
            );
        }
    }
}

fn osds(a: &mut Adder, state: &ClusterState) {
    let mut alerts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (osd, st) in state.mgr.stats.osds() {
        for (code, text) in st.os_alerts.values().flatten() {
            alerts.entry(code).or_default().push(format!("{osd} {text}"));
        }
    }
    for (code, detail) in alerts {
        let what = code.to_lowercase().replace('_', " ");
        a.add_some(code, Warn, &format!("OSD(s): {what}"), detail);
    }
}
