//! `osd reweight-by-utilization` and `-by-pg`, and their trials: lower weights for the fullest OSDs, as in Ceph
//! (`reweight::by_utilization`). The balancer does better; scripts and habits use these.

use crate::command::{Cmd, CommandOutcome, Ctx, Res, When, cmd, flag as cf, invalid, plain, refuse};
use base::{OsdId, PgId, PoolId, errno};
use cluster::OsdMap;
use cluster::osdmap::WEIGHT_IN;
use mgr::stats::space::used_raw;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd(
        "osd reweight-by-utilization oload:Int? max_change:Float? max_osds:Int? no_increasing:Choices(--no-increasing)?",
        "osd",
        "rw",
        cf::MGR,
        |c| run(c, false, true),
        "lower the weights of OSDs that are fuller than the average",
    ),
    cmd(
        "osd test-reweight-by-utilization oload:Int? max_change:Float? max_osds:Int? no_increasing:Bool?",
        "osd",
        "r",
        cf::MGR,
        |c| run(c, false, false),
        "show what reweight-by-utilization would do",
    ),
    cmd(
        "osd reweight-by-pg oload:Int? max_change:Float? max_osds:Int? pools:Poolname*?",
        "osd",
        "rw",
        cf::MGR,
        |c| run(c, true, true),
        "lower the weights of OSDs that have more PGs than the average",
    ),
    cmd(
        "osd test-reweight-by-pg oload:Int? max_change:Float? max_osds:Int? pools:Poolname*?",
        "osd",
        "r",
        cf::MGR,
        |c| run(c, true, false),
        "show what reweight-by-pg would do",
    ),
];

/// Fewest PGs per OSD (`mon_reweight_min_pgs_per_osd`).
const PGS_PER_OSD: f64 = 10.0;
/// Least space per OSD (`mon_reweight_min_bytes_per_osd`), and least space that is used.
const BYTES_PER_OSD: i64 = 100 << 20;
const USED_LEAST: u64 = 5 << 20;
/// Most PGs whose move a trial counts in its turn.
const PGS_MAX: u64 = 32_768;

/// The use of OSDs, and its average.
struct Use {
    of: Vec<(OsdId, f64)>,
    average: f64,
}

/// PGs per CRUSH weight.
fn by_pgs(c: &Ctx<'_>, pools: &BTreeSet<PoolId>) -> Res<Use> {
    let crush = &c.state.osdmap.crush;
    let mut counts: BTreeMap<OsdId, f64> = BTreeMap::new();
    for (pg, s) in c.state.mgr.stats.pgs() {
        if pools.is_empty() || pools.contains(&pg.pool) {
            for o in s.acting.iter().filter(|o| crush.item_weight(o.0) > 0) {
                *counts.entry(*o).or_default() += 1.0;
            }
        }
    }
    let weight = |o: &OsdId| f64::from(crush.item_weight(o.0)) / f64::from(WEIGHT_IN);
    let copies: f64 = counts.values().sum();
    if counts.is_empty() || copies / (counts.len() as f64) < PGS_PER_OSD {
        let n = counts.len();
        return refuse(errno::EDOM, format!("Refusing to reweight: we only have {copies} PGs across {n} osds!\n"));
    }
    let average = copies / counts.keys().map(weight).sum::<f64>();
    Ok(Use { of: counts.iter().map(|(o, n)| (*o, n / weight(o))).collect(), average })
}

/// Share of the space that is used.
fn by_space(c: &Ctx<'_>) -> Res<Use> {
    let stats = &c.state.mgr.stats;
    let (sum, n) = (stats.osd_sum(), stats.osds().count());
    let kib = sum.statfs.total / 1024;
    if n == 0 || sum.statfs.total < BYTES_PER_OSD.saturating_mul(n as i64) {
        return refuse(errno::EDOM, format!("Refusing to reweight: we only have {kib} kb across all osds!\n"));
    }
    let used = used_raw(&sum.statfs);
    if used < USED_LEAST {
        let kib = used / 1024;
        return refuse(errno::EDOM, format!("Refusing to reweight: we only have {kib} kb used across all osds!\n"));
    }
    let share = |used: u64, total: i64| used as f64 / total.max(1) as f64;
    let of = stats.osds().filter(|(_, s)| s.statfs.total > 0);
    let of = of.map(|(o, s)| (*o, share(used_raw(&s.statfs), s.statfs.total))).collect();
    Ok(Use { of, average: share(used, sum.statfs.total) })
}

/// The new weights (16.16 fixed point), the fullest OSDs first.
fn changes(map: &OsdMap, mut u: Use, over: f64, step: f64, most: usize, increase: bool) -> Vec<(OsdId, u32, u32)> {
    u.of.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut out = Vec::new();
    for (o, used) in u.of {
        let old = map.weight(o);
        let weight = f64::from(old) / f64::from(WEIGHT_IN);
        let new = if used >= over {
            (u.average / used * weight).max(weight - step)
        } else if increase && used <= u.average && old < WEIGHT_IN {
            (if used > 0.0 { u.average / used * weight } else { 1.0 }).min(weight + step).min(1.0)
        } else {
            continue;
        };
        let new = (new.max(0.0) * f64::from(WEIGHT_IN)) as u32;
        if old == 0 || new == old {
            continue;
        }
        if out.len() >= most {
            break;
        }
        out.push((o, old, new));
    }
    out
}

/// How many PG shards of `pools` would move, and the numbers on each OSD before and after.
fn moves(c: &Ctx<'_>, pools: &BTreeSet<PoolId>, new: &[(OsdId, u32, u32)]) -> Option<(u64, u64, [Vec<u64>; 2])> {
    let map = &c.state.osdmap;
    let ours = || map.pools.iter().filter(|(id, _)| pools.is_empty() || pools.contains(id));
    if ours().map(|(_, p)| u64::from(p.pg_num)).sum::<u64>() > PGS_MAX {
        return None;
    }
    let mut weights = (*map.osd_weight).clone();
    for (o, _, w) in new {
        if let Some(at) = usize::try_from(o.0).ok().and_then(|i| weights.get_mut(i)) {
            *at = *w;
        }
    }
    let next = OsdMap { osd_weight: Arc::new(weights), ..OsdMap::clone(map) };
    let mut counts = [vec![0u64; map.osd_weight.len()], vec![0u64; map.osd_weight.len()]];
    let (mut moved, mut total) = (0, 0);
    for (id, p) in ours() {
        for seed in 0..p.pg_num {
            let pg = PgId { pool: *id, seed };
            let (a, b) = (map.pg_to_raw_upmap(pg), next.pg_to_raw_upmap(pg));
            total += a.len() as u64;
            moved += b.iter().filter(|o| !a.contains(o)).count() as u64;
            for (set, n) in [&a, &b].into_iter().zip(&mut counts) {
                for o in set.iter() {
                    if let Some(n) = usize::try_from(o.0).ok().and_then(|i| n.get_mut(i)) {
                        *n += 1;
                    }
                }
            }
        }
    }
    Some((moved, total, counts))
}

/// The lines on moves.
fn moves_text(map: &OsdMap, (moved, total, [a, b]): (u64, u64, [Vec<u64>; 2])) -> String {
    let there: Vec<usize> = (0..a.len()).filter(|i| map.is_in(OsdId(*i as i32))).collect();
    let n = there.len().max(1) as f64;
    let avg = total as f64 / n;
    let dev =
        |v: &[u64]| (there.iter().filter_map(|i| v.get(*i)).map(|x| (*x as f64 - avg).powi(2)).sum::<f64>() / n).sqrt();
    let of = |v: &[u64], i: usize| v.get(i).copied().unwrap_or(0);
    let percent = 100.0 * moved as f64 / total.max(1) as f64;
    let base = (total as f64 / n * (1.0 - 1.0 / n)).sqrt();
    let mut s = format!("moved {moved} / {total} ({percent:.6}%)\navg {avg}\n");
    _ = writeln!(s, "stddev {:.6} -> {:.6} (expected baseline {base:.6})", dev(&a), dev(&b));
    let ends = [("min", there.iter().min_by_key(|i| of(&a, **i))), ("max", there.iter().max_by_key(|i| of(&a, **i)))];
    for (word, i) in ends.into_iter().filter_map(|(w, i)| Some((w, *i?))) {
        let (x, y) = (of(&a, i), of(&b, i));
        let mean = |x: u64| x as f64 / avg.max(f64::MIN_POSITIVE);
        _ = writeln!(s, "{word} osd.{i} with {x} -> {y} pgs ({:.6} -> {:.6} * mean)", mean(x), mean(y));
    }
    s + "\n"
}

fn run(c: &mut Ctx<'_>, pgs: bool, real: bool) -> Res<CommandOutcome> {
    let oload = c.args.int("oload").unwrap_or(120);
    let step = c.args.float("max_change").unwrap_or(0.05);
    let most = c.args.int("max_osds").unwrap_or(4);
    if oload <= 100 {
        return invalid(
            "You must give a percentage higher than 100. The reweighting threshold will be calculated as \
             <average-utilization> times <input-percentage>. For example, an argument of 200 would reweight OSDs which \
             are twice as utilized as the average OSD.\n",
        );
    }
    if step <= 0.0 || step.is_nan() {
        return invalid(format!("max_change {step} must be positive"));
    }
    let Some(most_osds) = usize::try_from(most).ok().filter(|n| *n > 0) else {
        return invalid(format!("max_osds {most} must be positive"));
    };
    let map = c.map();
    let mut pools = BTreeSet::new();
    for name in c.args.list("pools") {
        match map.pool_by_name(&name) {
            Some(id) => _ = pools.insert(id),
            None => return refuse(errno::ENOENT, format!("pool '{name}' does not exist")),
        }
    }
    let u = if pgs { by_pgs(c, &pools)? } else { by_space(c)? };
    let (average, over) = (u.average, u.average * oload as f64 / 100.0);
    let new = changes(&map, u, over, step, most_osds, !pgs && !c.args.flag("no_increasing"));
    let mut text = moves(c, &pools, &new).map(|m| moves_text(&map, m)).unwrap_or_default();
    _ = writeln!(text, "oload {oload}\nmax_change {step}\nmax_change_osds {most}");
    _ = writeln!(text, "average_utilization {average:.4}\noverload_utilization {over:.4}");
    let float = |w: u32| f64::from(w) / f64::from(WEIGHT_IN);
    for (o, old, w) in &new {
        _ = writeln!(text, "{o} weight {:.4} -> {:.4}", float(*old), float(*w));
    }
    if !real || new.is_empty() {
        if real {
            text = format!("no change\n{text}");
        }
        return plain(text);
    }
    let inc = c.inc();
    for (o, _, w) in new {
        inc.new_weight.insert(o, w);
    }
    Ok(CommandOutcome { when: When::Committed, ..CommandOutcome::output(text) })
}
