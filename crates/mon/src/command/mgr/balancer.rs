//! Commands of the balancer. The run is in `core::pool::balance`, the optimizer in `mgr::balance`.

use crate::command::{
    Cmd, CommandEffect, CommandOutcome, Ctx, Refused, Res, cmd, committed, flag as cf, invalid, plain, refuse,
};
use crate::json::J;
use crate::obj;
use crate::state::ConfigKey;
use crate::state::balance::{self, NotNow};
use base::{PgId, PoolId, Utime, errno};
use mgr::balance::{BalancerChange, Figures, Metric, NamedPlan, Score, Spread, score};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

/// Most plans that are kept.
const PLANS_MAX: usize = 64;

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd("balancer status", "mgr", "r", cf::MGR, status, "show the balancer's mode and last result"),
    cmd("balancer status detail", "mgr", "r", cf::MGR, detail, "show the balancer's last result and its moves"),
    cmd(
        "balancer mode mode:Choices(none|crush-compat|upmap|read|upmap-read)",
        "mgr",
        "rw",
        cf::MGR,
        mode,
        "set the balancer's mode: upmap, read, upmap-read, or none",
    ),
    cmd("balancer on", "mgr", "rw", cf::MGR, |c| switch(c, true), "balance automatically"),
    cmd("balancer off", "mgr", "rw", cf::MGR, |c| switch(c, false), "do not balance automatically"),
    cmd("balancer pool ls", "mgr", "r", cf::MGR, pool_ls, "list the pools that are balanced; none: all are"),
    cmd("balancer pool add pools:String*", "mgr", "rw", cf::MGR, |c| pools(c, true), "balance these pools"),
    cmd("balancer pool rm pools:String*", "mgr", "rw", cf::MGR, |c| pools(c, false), "balance these pools no longer"),
    cmd(
        "balancer eval option:String?",
        "mgr",
        "r",
        cf::MGR,
        |c| eval(c, false),
        "judge how evenly the cluster, a pool or a plan spreads data",
    ),
    cmd(
        "balancer eval-verbose option:String?",
        "mgr",
        "r",
        cf::MGR,
        |c| eval(c, true),
        "judge how evenly the cluster, a pool or a plan spreads data, in detail",
    ),
    cmd("balancer optimize plan:String pools:String*?", "mgr", "rw", cf::MGR, optimize, "make a plan of moves"),
    cmd("balancer show plan:String", "mgr", "r", cf::MGR, show, "show a plan as commands"),
    cmd("balancer dump plan:String", "mgr", "r", cf::MGR, dump, "show a plan as a change of the map"),
    cmd("balancer ls", "mgr", "r", cf::MGR, ls, "list the plans"),
    cmd("balancer execute plan:String", "mgr", "rw", cf::MGR, execute, "carry out a plan"),
    cmd(
        "balancer rm plan:String",
        "mgr",
        "rw",
        cf::MGR,
        |c| effect(BalancerChange::Drop(c.args.str("plan")?)),
        "drop a plan",
    ),
    cmd("balancer reset", "mgr", "rw", cf::MGR, |_| effect(BalancerChange::DropAll), "drop all plans"),
];

fn refused((rc, rs): NotNow) -> Refused {
    Refused::new(rc, rs)
}

fn effect(b: BalancerChange) -> Res<CommandOutcome> {
    Ok(CommandOutcome { effects: vec![CommandEffect::Balancer(b)], ..CommandOutcome::done("") })
}

/// A time in the form of C's `asctime`; empty for none.
fn clock(t: Utime) -> String {
    if t == Utime::ZERO {
        return String::new();
    }
    let [y, m, d, hour, minute, second] = t.utc();
    let days = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let day = days.get((t.sec / 86_400 % 7) as usize).copied().unwrap_or_default();
    let month = months.get(m.saturating_sub(1) as usize).copied().unwrap_or_default();
    format!("{day} {month} {d:>2} {hour:02}:{minute:02}:{second:02} {y}")
}

fn span(d: Option<Duration>) -> String {
    let Some(d) = d else { return String::new() };
    let s = d.as_secs();
    format!("{}:{:02}:{:02}.{:06}", s / 3600, s / 60 % 60, s % 60, d.subsec_micros())
}

fn status_tree(c: &Ctx<'_>) -> J {
    let b = &c.state.mgr.balancer();
    let o = balance::options(c.state);
    obj! {
        "active": o.active,
        "last_optimize_duration": span(b.last_duration()),
        "last_optimize_started": clock(b.last_started()),
        "mode": o.mode.as_str(),
        "no_optimization_needed": b.is_even(),
        "optimize_result": b.result(),
        "plans": b.plans().keys().map(|n| J::from(n.as_str())).collect::<J>(),
    }
}

fn status(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    plain(status_tree(c).pretty())
}

fn detail(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let mut j = status_tree(c);
    let map = &c.state.osdmap;
    j.put("pg_upmap_items", J::from(map.pg_upmap_items.len() as u64));
    j.put("pg_upmap_primaries", J::from(map.pg_upmap_primaries.len() as u64));
    plain(j.pretty())
}

fn set_option(c: &mut Ctx<'_>, name: &str, value: &str) -> Res<CommandOutcome> {
    let key = ConfigKey { who: "mgr".into(), name: format!("mgr/balancer/{name}") };
    c.pending.set_config(key, Some(value.to_owned()));
    let effects = vec![CommandEffect::Balancer(BalancerChange::Wake)];
    Ok(CommandOutcome { effects, ..CommandOutcome::committed("") })
}

fn mode(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let mode = c.args.str("mode")?;
    if mode == "crush-compat" {
        return refuse(
            errno::EOPNOTSUPP,
            "mode crush-compat is not supported: it changes CRUSH weights for clients older than luminous; use mode upmap",
        );
    }
    if let Err(text) = balance::mode_allowed(c.state, &c.map(), &mode) {
        return refuse(errno::EPERM, text);
    }
    set_option(c, "mode", &mode)
}

fn switch(c: &mut Ctx<'_>, on: bool) -> Res<CommandOutcome> {
    if balance::options(c.state).active == on {
        return effect(BalancerChange::Wake);
    }
    set_option(c, "active", if on { "true" } else { "false" })
}

/// The pools of the list that exist, by name.
fn pool_ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let o = balance::options(c.state);
    let mut names: Vec<&str> = o.pools.iter().filter_map(|p| c.state.osdmap.pool_name(*p)).collect();
    if names.is_empty() {
        return plain("");
    }
    names.sort_unstable();
    plain(names.into_iter().map(J::from).collect::<J>().pretty())
}

/// The ids of pools. Error: EINVAL, with the names that no pool has.
fn ids(c: &mut Ctx<'_>, key: &str, what: &str) -> Res<BTreeSet<PoolId>> {
    let (names, map) = (c.args.list(key), c.map());
    let unknown: Vec<String> =
        names.iter().filter(|n| map.pool_by_name(n).is_none()).map(|n| format!("'{n}'")).collect();
    if !unknown.is_empty() {
        return invalid(format!("{what} [{}] not found", unknown.join(", ")));
    }
    Ok(names.iter().filter_map(|n| map.pool_by_name(n)).collect())
}

fn pools(c: &mut Ctx<'_>, add: bool) -> Res<CommandOutcome> {
    let named = ids(c, "pools", "pool(s)")?;
    let has = balance::options(c.state).pools;
    let there = |p: &PoolId| c.state.osdmap.pool(*p).is_some();
    let all: BTreeSet<PoolId> = if add { &has | &named } else { &has - &named };
    let text: Vec<String> = all.into_iter().filter(there).map(|p| p.0.to_string()).collect();
    set_option(c, "pool_ids", &text.join(","))
}

/// Judges a spread by the PGs' statistics.
fn judge(c: &Ctx<'_>, spread: &Spread, pools: &BTreeSet<PoolId>) -> Score {
    let (map, stats) = (&c.state.osdmap, &c.state.mgr.stats);
    score(map, spread, pools, |pg: PgId| {
        let Some(s) = stats.pg(pg) else { return (0.0, 0.0) };
        (s.stats.sum.num_objects.max(0) as f64, s.stats.sum.num_bytes.max(0) as f64)
    })
}

fn eval(c: &mut Ctx<'_>, verbose: bool) -> Res<CommandOutcome> {
    let state = c.state;
    let (head, map, pools) = match c.args.opt("option") {
        None => ("current cluster".to_owned(), state.osdmap.clone(), BTreeSet::new()),
        Some(name) => {
            if let Some(p) = state.mgr.balancer().plans().get(&name) {
                let map = balance::map_after(state, &p.plan).map_err(refused)?;
                (format!("plan \"{name}\""), map, p.pools.clone())
            } else if let Some(id) = state.osdmap.pool_by_name(&name) {
                (format!("pool \"{name}\""), state.osdmap.clone(), [id].into())
            } else {
                return invalid(format!("option \"{name}\" not a plan or a pool"));
            }
        }
    };
    let spread = balance::spread_now(state, &map).map_err(refused)?;
    let s = judge(c, &spread, &pools);
    let mut text = head;
    if verbose {
        text += "\n";
        for r in &s.roots {
            details(c, &mut text, r);
        }
    } else {
        text += " ";
    }
    _ = writeln!(text, "score {:.6} (lower is better)", s.score);
    let judged = map.pools.keys().filter(|p| pools.is_empty() || pools.contains(p));
    let reads = judged.filter_map(|p| Some((map.pool_name(*p)?, spread.read_score(&map, *p)?.score)));
    let reads: Vec<String> = reads.map(|(name, s)| format!("'{name}': {s:?}")).collect();
    if !reads.is_empty() {
        _ = writeln!(text, "read_balance_scores (lower is better) {{{}}}", reads.join(", "));
    }
    plain(text)
}

/// The figures of a root.
fn details(c: &Ctx<'_>, text: &mut String, r: &mgr::balance::RootScore) {
    let map = &c.state.osdmap;
    let pools: Vec<&str> = r.pools.iter().filter_map(|p| map.pool_name(*p)).collect();
    let root = map.crush.name_of(r.root).unwrap_or("?");
    _ = writeln!(text, "root {root} pools {}", pools.join(","));
    for (m, f) in Metric::ALL.into_iter().zip(&r.figures) {
        let Figures { total, avg, stddev, sum_weight, score, count } = f;
        let most = count.values().copied().fold(0.0, f64::max);
        let least = count.values().copied().fold(f64::MAX, f64::min);
        _ = writeln!(
            text,
            "  {}: total {total:.0} avg {avg:.2} min {least:.0} max {most:.0} stddev {stddev:.4} sum_weight \
             {sum_weight:.4} score {score:.6}",
            m.name()
        );
    }
    for (o, share) in &r.target {
        let of = |i: usize| r.figures.get(i).and_then(|f| f.count.get(o)).copied().unwrap_or(0.0);
        _ = writeln!(text, "  {o}: target {share:.6} pgs {:.0} objects {:.0} bytes {:.0}", of(0), of(1), of(2));
    }
}

fn optimize(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let o = balance::options(c.state);
    if o.active {
        return invalid("Balancer enabled, disable to optimize manually");
    }
    let name = c.args.str("plan")?;
    let pools = ids(c, "pools", "pools")?;
    if c.state.mgr.balancer().plans().len() >= PLANS_MAX && !c.state.mgr.balancer().plans().contains_key(&name) {
        return refuse(errno::EBUSY, format!("{PLANS_MAX} plans are kept already: drop some by 'balancer rm'"));
    }
    if c.state.osdmap.pools.is_empty() {
        return refuse(errno::ENOENT, "No pools available");
    }
    let made = balance::may_balance(c.state, &o).and_then(|()| {
        let mut spread = balance::spread_now(c.state, &c.state.osdmap)?;
        let plan = balance::choose(c.state, &o, &mut spread, &pools)?;
        let map = &c.state.osdmap;
        Ok(NamedPlan {
            epoch: map.epoch,
            crush_version: map.crush_version,
            mode: o.mode.clone(),
            pools: pools.clone(),
            plan,
        })
    });
    let (rc, rs, result) = match made {
        Ok(plan) => (0, String::new(), Ok((name, Box::new(plan)))),
        Err((rc, text)) => (rc, text.clone(), Err(text)),
    };
    let effects = vec![CommandEffect::Balancer(BalancerChange::Optimized(result))];
    Ok(CommandOutcome { rc, effects, ..CommandOutcome::done(rs) })
}

fn plan<'a>(c: &'a Ctx<'_>) -> Res<&'a NamedPlan> {
    let name = c.args.str("plan")?;
    let found = c.state.mgr.balancer().plans().get(&name);
    found.ok_or_else(|| Refused::new(errno::ENOENT, format!("plan {name} not found")))
}

fn show(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let p = plan(c)?;
    let mut lines = vec![
        format!("# starting osdmap epoch {}", p.epoch),
        format!("# starting crush version {}", p.crush_version),
        format!("# mode {}", p.mode),
    ];
    for (pg, items) in &p.plan.items {
        let pairs: Vec<String> = items.iter().map(|(a, b)| format!("{} {}", a.0, b.0)).collect();
        lines.push(if items.is_empty() {
            format!("ceph osd rm-pg-upmap-items {pg}")
        } else {
            format!("ceph osd pg-upmap-items {pg} {}", pairs.join(" "))
        });
    }
    for (pg, lead) in &p.plan.leads {
        lines.push(match lead.after {
            Some(o) => format!("ceph osd pg-upmap-primary {pg} {}", o.0),
            None => format!("ceph osd rm-pg-upmap-primary {pg}"),
        });
    }
    plain(lines.join("\n"))
}

fn dump(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let p = plan(c)?;
    let new = p.plan.items.iter().filter(|(_, i)| !i.is_empty()).map(|(pg, items)| {
        let pairs = items.iter().map(|(a, b)| obj! { "from": a.0, "to": b.0 }).collect::<J>();
        obj! { "pgid": pg.to_string(), "mappings": pairs }
    });
    let old = p.plan.items.iter().filter(|(_, i)| i.is_empty()).map(|(pg, _)| J::from(pg.to_string()));
    let leads = &p.plan.leads;
    let new_leads = leads.iter().filter_map(|(pg, l)| Some((pg, l.after?)));
    let new_leads = new_leads.map(|(pg, o)| obj! { "pgid": pg.to_string(), "primary_osd": o.0 });
    let old_leads = leads.iter().filter(|(_, l)| l.after.is_none()).map(|(pg, _)| J::from(pg.to_string()));
    let j = obj! {
        "epoch": u64::from(p.epoch.0 + 1),
        "fsid": c.state.fsid.to_string(),
        "new_pg_upmap_items": new.collect::<J>(),
        "new_pg_upmap_primaries": new_leads.collect::<J>(),
        "old_pg_upmap_items": old.collect::<J>(),
        "old_pg_upmap_primaries": old_leads.collect::<J>(),
    };
    plain(j.pretty())
}

fn ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    plain(c.state.mgr.balancer().plans().keys().map(|n| J::from(n.as_str())).collect::<J>().pretty())
}

fn execute(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    if balance::options(c.state).active {
        return invalid("Balancer enabled, disable to execute a plan");
    }
    let name = c.args.str("plan")?;
    let p = plan(c)?.plan.clone();
    if balance::carry_out(c.state, c.pending, &p) == 0 {
        return Err(refused(balance::changed_since()));
    }
    let effects = vec![CommandEffect::Balancer(BalancerChange::Drop(name))];
    Ok(CommandOutcome { effects, ..committed("")? })
}
