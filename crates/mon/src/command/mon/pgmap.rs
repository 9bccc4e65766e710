//! The statistics of PGs in `status` and in the commands that show only these: sums, rates, recovery.

use crate::command::units::{bytes, count, unsigned};
use crate::command::{CommandOutcome, Ctx, Res, plain};
use crate::json::J;
use crate::obj;
use base::PoolId;
use cluster::OsdMap;
use mgr::stats::{PgStats, Rate, space};
use wire::types::{ObjectStatSum, pg_state};

pub(super) fn recovery_lines(sum: &ObjectStatSum) -> Vec<String> {
    use crate::command::health::pg_share as share;
    let mut v = Vec::new();
    if sum.num_objects_degraded > 0 && sum.num_object_copies > 0 {
        v.push(share(sum.num_objects_degraded, sum.num_object_copies, "objects degraded"));
    }
    if sum.num_objects_misplaced > 0 && sum.num_object_copies > 0 {
        v.push(share(sum.num_objects_misplaced, sum.num_object_copies, "objects misplaced"));
    }
    if sum.num_objects_unfound > 0 && sum.num_objects > 0 {
        v.push(share(sum.num_objects_unfound, sum.num_objects, "objects unfound"));
    }
    v
}

/// `1.0 MiB/s rd, 2 MiB/s wr, 3 op/s rd, 4 op/s wr`.
pub(in crate::command) fn client_rate(r: &Rate) -> String {
    let mut v = Vec::new();
    if r.read_bytes > 0 {
        v.push(format!("{}/s rd", bytes(r.read_bytes)));
    }
    if r.write_bytes > 0 {
        v.push(format!("{}/s wr", bytes(r.write_bytes)));
    }
    if r.read_ops > 0 || r.write_ops > 0 {
        v.push(format!("{} op/s rd", count(r.read_ops)));
        v.push(format!("{} op/s wr", count(r.write_ops)));
    }
    v.join(", ")
}

pub(super) fn recovery_rate(r: &Rate) -> String {
    let mut v = vec![format!("{}/s", bytes(r.recovering_bytes))];
    if r.recovering_keys > 0 {
        v.push(format!("{} keys/s", count(r.recovering_keys)));
    }
    if r.recovering_objects > 0 {
        v.push(format!("{} objects/s", count(r.recovering_objects)));
    }
    v.join(", ")
}

fn put_client_rate(j: &mut J, r: &Rate) {
    if r.read_bytes > 0 {
        j.put("read_bytes_sec", r.read_bytes);
    }
    if r.write_bytes > 0 {
        j.put("write_bytes_sec", r.write_bytes);
    }
    if r.read_ops > 0 || r.write_ops > 0 {
        j.put("read_op_per_sec", r.read_ops).put("write_op_per_sec", r.write_ops);
    }
}

fn put_recovery_rate(j: &mut J, r: &Rate) {
    if r.recovery() {
        j.put("recovering_objects_per_sec", r.recovering_objects)
            .put("recovering_bytes_per_sec", r.recovering_bytes)
            .put("recovering_keys_per_sec", r.recovering_keys);
    }
}

fn put_recovery(j: &mut J, sum: &ObjectStatSum) {
    let ratio = |a: i64, b: i64| a as f64 / b as f64;
    if sum.num_objects_degraded > 0 && sum.num_object_copies > 0 {
        j.put("degraded_objects", sum.num_objects_degraded)
            .put("degraded_total", sum.num_object_copies)
            .put("degraded_ratio", ratio(sum.num_objects_degraded, sum.num_object_copies));
    }
    if sum.num_objects_misplaced > 0 && sum.num_object_copies > 0 {
        j.put("misplaced_objects", sum.num_objects_misplaced)
            .put("misplaced_total", sum.num_object_copies)
            .put("misplaced_ratio", ratio(sum.num_objects_misplaced, sum.num_object_copies));
    }
    if sum.num_objects_unfound > 0 && sum.num_objects > 0 {
        j.put("unfound_objects", sum.num_objects_unfound)
            .put("unfound_total", sum.num_objects)
            .put("unfound_ratio", ratio(sum.num_objects_unfound, sum.num_objects));
    }
}

pub(super) fn pgmap_tree(c: &Ctx<'_>) -> J {
    let (st, map) = (&c.state.mgr.stats, &*c.state.osdmap);
    let sum = &st.sum().stats.sum;
    let total = st.osd_sum().statfs;
    let states = st.states(map);
    let num_pg = st.num_pg(map);
    let mut by: Vec<(u64, i64)> = states.iter().map(|(b, n)| (*b, *n)).collect();
    by.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let mut j = obj! {
        "pgs_by_state": by.iter().map(|(b, n)| obj! { "state_name": pg_state::to_string(*b), "count": *n }).collect::<J>(),
        "num_pgs": num_pg,
        "num_pools": map.pools.len(),
        "num_objects": sum.num_objects,
        "data_bytes": sum.num_bytes,
        "bytes_used": space::used_raw(&total),
        "bytes_avail": total.available,
        "bytes_total": total.total,
    };
    let unknown = states.get(&0).copied().unwrap_or(0);
    let active: i64 = states.iter().filter(|(b, _)| *b & pg_state::ACTIVE != 0).map(|(_, n)| n).sum();
    if unknown > 0 {
        j.put("unknown_pgs_ratio", unknown as f64 / num_pg as f64);
    }
    if num_pg - active - unknown > 0 {
        j.put("inactive_pgs_ratio", (num_pg - active - unknown) as f64 / num_pg as f64);
    }
    put_recovery(&mut j, sum);
    let r = st.rate(None);
    put_recovery_rate(&mut j, &r);
    put_client_rate(&mut j, &r);
    j
}

pub(super) fn pg_stat(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (st, map) = (&c.state.mgr.stats, c.state.osdmap.clone());
    let (sum, total) = (&st.sum().stats.sum, st.osd_sum().statfs);
    let mut by: Vec<(u64, i64)> = st.states(&map).into_iter().collect();
    by.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let r = st.rate(None);
    let tree = || {
        let mut j = obj! {
            "num_pg_by_state": by.iter().map(|(b, n)| obj! { "name": pg_state::to_string(*b), "num": *n }).collect::<J>(),
            "num_pgs": st.num_pg(&map),
            "num_bytes": sum.num_bytes,
            "total_bytes": total.total,
            "total_avail_bytes": total.available,
            "total_used_bytes": space::used(&total),
            "total_used_raw_bytes": space::used_raw(&total),
        };
        put_client_rate(&mut j, &r);
        put_recovery(&mut j, sum);
        put_recovery_rate(&mut j, &r);
        obj! { "pg_ready": true, "pg_summary": j }
    };
    let text = || pgmap_text(st, &map) + "\n";
    c.tree("pg_stat", tree).text(text)
}

/// PG states, space and rates in one line.
pub(crate) fn pgmap_text(st: &PgStats, map: &OsdMap) -> String {
    let (sum, total) = (&st.sum().stats.sum, st.osd_sum().statfs);
    let mut by: Vec<(u64, i64)> = st.states(map).into_iter().collect();
    by.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let r = st.rate(None);
    let states: Vec<String> = by.iter().map(|(b, n)| format!("{n} {}", pg_state::to_string(*b))).collect();
    let mut s = format!(
        "{} pgs: {}; {} data, {} used, {} / {} avail",
        st.num_pg(map),
        states.join(", "),
        bytes(unsigned(sum.num_bytes)),
        bytes(space::used_raw(&total)),
        bytes(unsigned(total.available)),
        bytes(unsigned(total.total))
    );
    if r.client_io() {
        s += &format!("; {}", client_rate(&r));
    }
    for l in recovery_lines(sum) {
        s += &format!("; {l}");
    }
    if r.recovery() {
        s += &format!("; {} recovering", recovery_rate(&r));
    }
    s
}

pub(super) fn iostat(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let r = c.state.mgr.stats.rate(None);
    let width = c.args.int("width").and_then(|w| usize::try_from(w).ok()).unwrap_or(80).min(400);
    let column = (width / 6).max(2);
    let mut s = String::new();
    let line =
        |cells: [String; 6]| cells.iter().fold("|".to_owned(), |row, t| row + &format!("{t:>w$} |", w = column - 2));
    if c.args.flag("print_header") {
        let rule = format!("+{}\n", format!("{}+", "-".repeat(column - 1)).repeat(6));
        s += &rule;
        s += &line(["Read", "Write", "Total", "Read IOPS", "Write IOPS", "Total IOPS"].map(str::to_owned));
        s += "\n";
        s += &rule;
    }
    s += &line([
        format!("{}/s", bytes(r.read_bytes)),
        format!("{}/s", bytes(r.write_bytes)),
        format!("{}/s", bytes(r.read_bytes + r.write_bytes)),
        r.read_ops.to_string(),
        r.write_ops.to_string(),
        (r.read_ops + r.write_ops).to_string(),
    ]);
    plain(s + "\n")
}

pub(super) fn pool_stats(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = c.state.osdmap.clone();
    let ids: Vec<PoolId> = match c.args.opt("pool_name") {
        Some(_) => vec![c.pool_id("pool_name")?],
        None => map.pools.keys().copied().collect(),
    };
    let stats = &c.state.mgr.stats;
    let of = |id: &PoolId| (map.pool_name(*id).unwrap_or_default(), stats.rate(Some(*id)), stats.pool(*id).stats.sum);
    let tree = |id: &PoolId| {
        let (name, r, sum) = of(id);
        let (mut rec, mut rate, mut io) = (J::object(), J::object(), J::object());
        put_recovery(&mut rec, &sum);
        put_recovery_rate(&mut rate, &r);
        put_client_rate(&mut io, &r);
        obj! { "pool_name": name, "pool_id": id.0, "recovery": rec, "recovery_rate": rate, "client_io_rate": io }
    };
    let text = |id: &PoolId| {
        let (name, r, sum) = of(id);
        let mut lines: Vec<String> = recovery_lines(&sum);
        if r.recovery() {
            lines.push(format!("recovery io {}", recovery_rate(&r)));
        }
        if r.client_io() {
            lines.push(format!("client io {}", client_rate(&r)));
        }
        if lines.is_empty() {
            lines.push("nothing is going on".into());
        }
        let lines: String = lines.iter().map(|l| format!("  {l}\n")).collect();
        format!("pool {name} id {}\n{lines}\n", id.0)
    };
    let all = || if ids.is_empty() { "there are no pools!\n".into() } else { ids.iter().map(text).collect::<String>() };
    c.tree("pool_stats", || ids.iter().map(tree).collect::<J>()).text(all)
}
