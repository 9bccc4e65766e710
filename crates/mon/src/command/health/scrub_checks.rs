//! Alerts about late scrubs, and about OSDs that repaired many reads.

use super::Severity::Warn;
use super::checks::Adder;
use crate::state::ClusterState;
use base::{Now, Utime};
use cluster::pool::PoolOpt;
use mgr::stats::Scrub;
use std::time::Duration;

/// Most PGs listed in the detail of an alert.
const DETAIL_MAX: usize = 50;

/// Adds the alerts about scrubs.
pub(super) fn add(a: &mut Adder, state: &ClusterState, now: Now) {
    let w = &state.options.scrubs;
    late(
        a,
        state,
        now,
        ("PG_NOT_DEEP_SCRUBBED", "deep-scrubbed", "deep_scrub_interval"),
        (w.deep_interval, w.deep_ratio),
        Scrub::Deep,
    );
    let scrubbed = ("PG_NOT_SCRUBBED", "scrubbed", "scrub_max_interval");
    late(a, state, now, scrubbed, (w.interval, w.ratio), Scrub::Shallow);
    let detail: Vec<String> = state
        .mgr
        .stats
        .osds()
        .filter(|(_, s)| w.repaired > 0 && s.num_shards_repaired > w.repaired)
        .map(|(o, s)| format!("{o} had {} reads repaired", s.num_shards_repaired))
        .collect();
    if !detail.is_empty() {
        let n = detail.len();
        a.add("OSD_TOO_MANY_REPAIRS", Warn, n, format!("Too many repaired reads on {n} OSDs"), detail);
    }
}

/// PGs whose last scrub is older than interval and ratio allow. A pool's own interval takes precedence.
fn late(
    a: &mut Adder,
    state: &ClusterState,
    now: Now,
    (code, word, option): (&str, &str, &str),
    (interval, ratio): (f64, f64),
    kind: Scrub,
) {
    if !(ratio > 0.0 && ratio.is_finite()) {
        return;
    }
    let stats = &state.mgr.stats;
    let (mut n, mut detail) = (0usize, Vec::new());
    for (id, pool) in state.osdmap.pools.iter() {
        let own = match pool.opt(option) {
            Some(PoolOpt::Float(f)) if *f > 0.0 => Some(*f),
            Some(PoolOpt::Int(i)) if *i > 0 => Some(*i as f64),
            _ => None,
        };
        let allowed = own.unwrap_or(interval) * (1.0 + ratio);
        if !(allowed > 0.0 && allowed < 1e12) {
            continue;
        }
        let before = Utime::from_unix(now.wall.to_unix().saturating_sub(Duration::from_secs_f64(allowed)));
        let (late, first) = stats.scrubbed_before(*id, kind, before, DETAIL_MAX);
        n += late;
        for pg in first.into_iter().take(DETAIL_MAX.saturating_sub(detail.len())) {
            let Some(p) = stats.pg(pg) else { continue };
            let last = if kind == Scrub::Deep { p.last_deep_scrub_stamp } else { p.last_scrub_stamp };
            detail.push(format!("pg {pg} not {word} since {}", last.iso()));
        }
    }
    if n > 0 {
        if n > detail.len() {
            detail.push(format!("{} more pgs... ", n - detail.len()));
        }
        a.add(code, Warn, n, format!("{n} pgs not {word} in time"), detail);
    }
}
