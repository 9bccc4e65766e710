//! `status` (the text of `ceph -s`), quorum and monitor status, `report`.

use super::versions::{VERSION_SHORT, metadata};
use crate::command::health::{Health, Severity};
use crate::command::units::{age, bytes, count, unsigned};
use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd, flag, osd, plain};
use crate::json::J;
use crate::obj;
use crate::state::clocks::{Difference, clock_drift_allowed};
use base::{PoolId, Utime};
use cluster::OsdMap;
use mgr::stats::{PgStats, Rate, space};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use wire::types::{ObjectStatSum, Service, pg_state};

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd("status", "mon", "r", 0, status, "show the status of the cluster"),
    cmd("quorum_status", "mon", "r", 0, quorum_status, "show the monitors in quorum"),
    cmd("mon_status", "mon", "r", flag::TELL, mon_status, "show the status of this monitor"),
    cmd("time-sync-status", "mon", "r", 0, time_sync, "show the monitors' clock differences"),
    cmd("report tags:String*?", "mon", "r", 0, report, "show the whole state of the monitor, for a bug report"),
    cmd("pg stat", "pg", "r", flag::MGR, pg_stat, "show PG states and space in one line"),
    cmd("iostat width:Int? print_header:Bool?", "mgr", "r", flag::MGR | flag::POLL, iostat, "show client I/O rates"),
    cmd("osd pool stats pool_name:Poolname?", "osd", "r", flag::MGR, pool_stats, "show I/O and recovery of pools"),
];

fn since(c: &Ctx<'_>, t: Utime) -> String {
    let d = c.now.wall.to_unix().saturating_sub(t.to_unix());
    if d.as_secs() == 0 { format!("{}s", crate::command::units::short(d.as_secs_f64())) } else { age(d.as_secs()) }
}

/// Seconds for which this monitor has been in quorum.
fn quorum_age(c: &Ctx<'_>) -> u64 {
    c.now.mono.since(c.state.started.mono).as_secs()
}

/// Ranks of the monitors in quorum.
fn quorum_ranks(c: &Ctx<'_>) -> J {
    c.state.quorum_ranks().into_iter().collect()
}

fn status(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let h = Health::new(c);
    let tree = || status_tree(c, &h);
    let text = || {
        let mut s = String::from("  cluster:\n");
        let r = write_status(c, &h, &mut s);
        debug_assert!(r.is_ok(), "writing to a String");
        s
    };
    c.tree("status", tree).text(text)
}

fn write_status(c: &Ctx<'_>, h: &Health, s: &mut String) -> std::fmt::Result {
    writeln!(s, "    id:     {}", c.state.fsid)?;
    writeln!(s, "    health: {}", h.status().word())?;
    for line in h.summaries() {
        writeln!(s, "            {line}")?;
    }
    if let Some(m) = h.muted_text() {
        writeln!(s, "            {m}")?;
    }
    let (names, all) = (c.state.quorum(), &c.state.monmap.ranks);
    let missing: Vec<&str> = all.iter().filter(|n| !names.contains(n)).map(String::as_str).collect();
    let out = if missing.is_empty() { String::new() } else { format!(", out of quorum: {}", missing.join(", ")) };
    let services: Vec<_> = c.state.mgr.services.services.iter().filter(|(name, _)| !has_own_line(name)).collect();
    let width = services.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max("mon".len());
    let pad = |n: &str| format!("{n}:{}", " ".repeat(width.saturating_sub(n.len())));
    writeln!(s, " \n  services:")?;
    let quorum = format!("quorum {} (age {}){out}", names.join(","), age(quorum_age(c)));
    writeln!(s, "    {} {} daemons, {quorum}", pad("mon"), all.len())?;
    let mgr = &c.state.mgrmap;
    write!(s, "    {} ", pad("mgr"))?;
    if mgr.active_name.is_empty() {
        write!(s, "no daemons active")?;
    } else {
        let state = if mgr.available { "active" } else { "active, starting" };
        write!(s, "{}({state}, since {})", mgr.active_name, since(c, mgr.active_change))?;
    }
    if !mgr.standbys.is_empty() {
        let list: Vec<&str> = mgr.standbys.values().map(|x| x.name.as_str()).collect();
        write!(s, ", standbys: {}", list.join(", "))?;
    }
    writeln!(s)?;
    if !c.state.fs.map.filesystems.is_empty() || !c.state.fs.map.standby_daemons.is_empty() {
        writeln!(s, "    {} {}", pad("mds"), crate::command::fs::show::daemon_summary(&c.state.fs.map))?;
    }
    write!(s, "    {} {}", pad("osd"), osd::show::summary(c, &c.state.osdmap))?;
    writeln!(s)?;
    let flags = osd::show::important_flags(&c.state.osdmap);
    if !flags.is_empty() {
        writeln!(s, "    {} flags {flags}", " ".repeat(width + 1))?;
    }
    for (name, svc) in services {
        writeln!(s, "    {} {}", pad(name), service_summary(svc))?;
    }
    writeln!(s, " \n  data:")?;
    write_data(c, s)?;
    write_io(c, s)?;
    if let Some(e) = c.state.mgr.stats.recovery().filter(|_| crate::command::mgr::rbd::shows_progress(c.state)) {
        writeln!(s, " \n  progress:\n    {}", e.text(c.now.wall))?;
    }
    writeln!(s, " ")
}

/// True for a service of the map whose daemons the status shows in another line: daemons of Ceph's manager and metadata
/// server are in the service map, too.
fn has_own_line(service: &str) -> bool {
    matches!(service, "osd" | "client" | "mon" | "mds" | "mgr")
}

/// A service in one line, in the form of Ceph since 16: the number of daemons, named by their `daemon_type`, and the
/// numbers of hosts and zones.
fn service_summary(svc: &Service) -> String {
    if !svc.summary.is_empty() {
        return svc.summary.clone();
    }
    let n = svc.daemons.len();
    if n == 0 {
        return "no daemons active".into();
    }
    let values = |key: &str| svc.daemons.values().filter_map(|d| d.metadata.get(key)).collect::<BTreeSet<_>>().len();
    let kind = svc.daemons.values().rev().find_map(|d| d.metadata.get("daemon_type")).map_or("daemon", String::as_str);
    let groups: Vec<String> = [("host", "hostname"), ("zone", "zone_id")]
        .into_iter()
        .map(|(what, key)| (what, values(key)))
        .filter(|(_, n)| *n > 0)
        .map(|(what, n)| format!("{n} {what}s"))
        .collect();
    let plural = if n == 1 { "" } else { "s" };
    let groups = if groups.is_empty() { String::new() } else { format!(" ({})", groups.join(", ")) };
    format!("{n} {kind}{plural} active{groups}")
}

fn write_data(c: &Ctx<'_>, s: &mut String) -> std::fmt::Result {
    let (st, map) = (&c.state.mgr.stats, &*c.state.osdmap);
    let sum = &st.sum().stats.sum;
    let total = st.osd_sum();
    let num_pg = st.num_pg(map);
    if let Some(volumes) = crate::command::fs::show::fs_summary(&c.state.fs.map) {
        writeln!(s, "    volumes: {volumes}")?;
    }
    writeln!(s, "    pools:   {} pools, {num_pg} pgs", map.pools.len())?;
    writeln!(s, "    objects: {} objects, {}", count(unsigned(sum.num_objects)), bytes(unsigned(sum.num_bytes)))?;
    writeln!(
        s,
        "    usage:   {} used, {} / {} avail",
        bytes(space::used_raw(&total.statfs)),
        bytes(unsigned(total.statfs.available)),
        bytes(unsigned(total.statfs.total))
    )?;
    let mut lines: Vec<String> = Vec::new();
    let states = st.states(map);
    let unknown = states.get(&0).copied().unwrap_or(0);
    let active: i64 = states.iter().filter(|(b, _)| *b & pg_state::ACTIVE != 0).map(|(_, n)| n).sum();
    let pct = |n: i64| format!("{:.3}", 100.0 * n as f64 / num_pg.max(1) as f64);
    if unknown > 0 {
        lines.push(format!("{}% pgs unknown", pct(unknown)));
    }
    if num_pg - active - unknown > 0 {
        lines.push(format!("{}% pgs not active", pct(num_pg - active - unknown)));
    }
    lines.extend(recovery_lines(sum));
    let mut by: Vec<(u64, i64)> = states.into_iter().collect();
    by.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let width = by.iter().map(|(_, n)| n.to_string().len()).max().unwrap_or(1);
    lines.extend(by.iter().map(|(b, n)| format!("{n:<width$} {}", pg_state::to_string(*b))));
    if lines.is_empty() {
        lines.push(String::new());
    }
    for (i, l) in lines.iter().enumerate() {
        writeln!(s, "{}{l}", if i == 0 { "    pgs:     " } else { "             " })?;
    }
    Ok(())
}

fn recovery_lines(sum: &ObjectStatSum) -> Vec<String> {
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

fn recovery_rate(r: &Rate) -> String {
    let mut v = vec![format!("{}/s", bytes(r.recovering_bytes))];
    if r.recovering_keys > 0 {
        v.push(format!("{} keys/s", count(r.recovering_keys)));
    }
    if r.recovering_objects > 0 {
        v.push(format!("{} objects/s", count(r.recovering_objects)));
    }
    v.join(", ")
}

fn write_io(c: &Ctx<'_>, s: &mut String) -> std::fmt::Result {
    let r = c.state.mgr.stats.rate(None);
    if !r.client_io() && !r.recovery() {
        return Ok(());
    }
    writeln!(s, " \n  io:")?;
    if r.client_io() {
        writeln!(s, "    client:   {}", client_rate(&r))?;
    }
    if r.recovery() {
        writeln!(s, "    recovery: {}", recovery_rate(&r))?;
    }
    Ok(())
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

fn pgmap_tree(c: &Ctx<'_>) -> J {
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

/// The service map as a tree.
pub(in crate::command) fn servicemap_tree(c: &Ctx<'_>) -> J {
    let m = &c.state.mgr.services;
    let strings = |m: &std::collections::BTreeMap<String, String>| {
        J::Obj(m.iter().map(|(k, v)| (k.clone().into(), v.into())).collect())
    };
    let mut services = J::object();
    for (name, s) in &m.services {
        let mut daemons = obj! { "summary": &s.summary };
        for (id, d) in &s.daemons {
            daemons.put(
                id.clone(),
                obj! {
                    "start_epoch": d.start_epoch.0,
                    "start_stamp": d.start_stamp.iso(),
                    "gid": d.gid,
                    "addr": osd::show::plain_addr(&d.addr),
                    "metadata": strings(&d.metadata),
                    "task_status": strings(&d.task_status),
                },
            );
        }
        services.put(name.clone(), obj! { "daemons": daemons });
    }
    obj! { "epoch": m.epoch.0, "modified": m.modified.iso(), "services": services }
}

fn progress_tree(c: &Ctx<'_>) -> J {
    let mut j = J::object();
    if let Some(e) = c.state.mgr.stats.recovery().filter(|_| crate::command::mgr::rbd::shows_progress(c.state)) {
        // There is one event at a time; its start time names it.
        let event = obj! { "message": e.text(c.now.wall), "progress": e.progress(), "add_to_ceph_s": true };
        j.put(format!("recovery-{}", e.started.sec), event);
    }
    j
}

fn status_tree(c: &Ctx<'_>, h: &Health) -> J {
    let mgr = &c.state.mgrmap;
    let services = J::Obj(mgr.services.iter().map(|(k, v)| (k.clone().into(), v.into())).collect());
    obj! {
        "fsid": c.state.fsid.to_string(),
        "health": h.tree(false),
        "election_epoch": c.state.election_epoch(),
        "quorum": quorum_ranks(c),
        "quorum_names": c.state.quorum(),
        "quorum_age": quorum_age(c),
        "monmap": obj! {
            "epoch": c.state.monmap.epoch.0,
            "min_mon_release_name": cluster::release::name(c.state.monmap.min_mon_release),
            "num_mons": c.state.monmap.mons.len(),
        },
        "osdmap": osd::show::summary_tree(c, &c.state.osdmap),
        "pgmap": pgmap_tree(c),
        "fsmap": crate::command::fs::show::status_tree(&c.state.fs.map),
        "mgrmap": obj! {
            "available": mgr.available,
            "num_standbys": mgr.standbys.len(),
            "modules": mgr.modules.clone(),
            "services": services,
        },
        "servicemap": servicemap_tree(c),
        "progress_events": progress_tree(c),
    }
}

fn quorum_tree(c: &Ctx<'_>) -> J {
    obj! {
        "election_epoch": c.state.election_epoch(),
        "quorum": quorum_ranks(c),
        "quorum_names": c.state.quorum(),
        "quorum_leader_name": c.state.leader(),
        "quorum_age": quorum_age(c),
        "features": obj! {
            "quorum_con": wire::Features::PACIFIC.0.to_string(),
            "quorum_mon": super::feature_names(c.state.monmap.persistent_features),
        },
        "monmap": super::monmap_tree(&c.state.monmap),
    }
}

fn quorum_status(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let j = quorum_tree(c);
    // Without a format Ceph answers on one line, which users of the CLI parse.
    c.tree("quorum_status", || &j).line().text(|| j.compact() + "\n")
}

fn mon_status(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let names = c.state.quorum();
    // The client may be connected to a monitor other than the leader; the answer is about that one.
    let name = c.session.by.as_ref().unwrap_or(&c.state.mon_name);
    let rank = c.state.monmap.rank_of(name).unwrap_or(0);
    let leads = c.state.leader() == *name;
    let outside: J = c.state.monmap.ranks.iter().filter(|n| !names.contains(n)).cloned().collect();
    let j = obj! {
        "name": name,
        "rank": rank,
        "state": if leads { "leader" } else { "peon" },
        "election_epoch": c.state.election_epoch(),
        "quorum": quorum_ranks(c),
        "quorum_age": quorum_age(c),
        "features": obj! {
            "required_con": "0",
            "required_mon": super::feature_names(c.state.monmap.persistent_features),
            "quorum_con": wire::Features::PACIFIC.0.to_string(),
            "quorum_mon": super::feature_names(c.state.monmap.persistent_features),
        },
        "outside_quorum": outside,
        "extra_probe_peers": Vec::<J>::new(),
        "sync_provider": Vec::<J>::new(),
        "monmap": super::monmap_tree(&c.state.monmap),
        "feature_map": J::object(),
        "stretch_mode": false,
    };
    c.show("mon_status", &j)
}

fn time_sync(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let mut j = J::object();
    let clocks = &c.state.mons.clocks;
    if c.state.mons.up.is_some() {
        let allowed = clock_drift_allowed(c.state);
        let own = (&c.state.mon_name, &Difference { skew: 0.0, latency: 0.0 });
        let mut all: BTreeMap<_, _> = clocks.differences().iter().collect();
        all.insert(own.0, own.1);
        let mut of = J::object();
        for (name, d) in all {
            let skewed = d.skew.abs() > allowed;
            let health = if skewed { Severity::Warn } else { Severity::Ok };
            let mut one = obj! { "skew": d.skew, "latency": d.latency, "health": health.word() };
            if skewed {
                one.put("details", d.text(allowed));
            }
            of.put(name.clone(), one);
        }
        j.put("time_skew_status", of);
    }
    // A single monitor compares its clock with no other. Ceph counts start and end of a round as two, hence the
    // factor.
    let timechecks =
        obj! { "epoch": c.state.election_epoch(), "round": clocks.rounds() * 2, "round_status": "finished" };
    j.put("timechecks", timechecks);
    c.show_line_if_asked("time_sync", &j)
}

fn report(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let h = Health::new(c);
    let map = c.state.osdmap.clone();
    let states = c.state.mgr.stats.states(&map);
    let mut j = obj! {
        "cluster_fingerprint": c.state.fsid.to_string(),
        "version": VERSION_SHORT,
        "commit": concat!("belemnite ", env!("CARGO_PKG_VERSION")),
        "timestamp": c.now.wall.iso(),
        "tag": c.args.list("tags").join(" "),
        "health": h.tree(true),
        // Older monmaps are not kept.
        "monmap_first_committed": c.state.monmap.epoch.0,
        "monmap_last_committed": c.state.monmap.epoch.0,
        "monmap": super::monmap_tree(&c.state.monmap),
        "quorum": quorum_ranks(c),
        "osdmap": osd::show::dump_tree(c, &map),
    };
    let osds: J = metadata(c, "osd")
        .into_iter()
        .map(|(id, m)| {
            let mut o = obj! { "id": id.parse::<i64>().unwrap_or(-1) };
            o.merge(J::Obj(m.into_iter().map(|(k, v)| (k.into(), v.into())).collect()));
            o
        })
        .collect();
    j.put("osd_metadata", osds)
        .put(
            "osdmap_clean_epochs",
            obj! { "min_last_epoch_clean": c.state.mgr.stats.min_last_epoch_clean(&map).unwrap_or_default().0 },
        )
        .put("osdmap_first_committed", c.state.history.oldest.0)
        .put("osdmap_last_committed", c.state.history.newest.0)
        .put("crushmap", crate::command::crush::show::dump_tree(&map.crush))
        .put("fsmap", crate::command::fs::show::tree(&c.state.fs.map))
        .put("mdsmap_first_committed", c.state.fs.epochs.first_key_value().map_or(c.state.fs.map.epoch, |(e, _)| *e).0)
        .put("mdsmap_last_committed", c.state.fs.map.epoch.0)
        .put("auth", obj! { "num_secrets": c.state.auth.len() })
        .put("num_pg", c.state.mgr.stats.num_pg(&map))
        .put("num_pg_active", states.iter().filter(|(b, _)| *b & pg_state::ACTIVE != 0).map(|(_, n)| *n).sum::<i64>())
        .put("num_pg_unknown", states.get(&0).copied().unwrap_or(0))
        .put("num_osd", map.osds().count())
        .put("pool_sum", crate::command::pg::show::pool_stat_tree(c.state.mgr.stats.sum()))
        .put("osd_sum", crate::command::pg::show::osd_stat_tree(&c.state.mgr.stats.osd_sum()))
        .put("servicemap", servicemap_tree(c));
    let out = c.show_line("report", &j)?;
    // The checksum excludes the line break at the end.
    let crc = base::crc::crc32c(u32::MAX, out.out.strip_suffix(b"\n").unwrap_or(&out.out));
    Ok(CommandOutcome { rs: format!("report {crc}"), ..out })
}

fn pg_stat(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
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

fn iostat(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
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

fn pool_stats(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::ServiceDaemon;

    /// `LibRadosService.StatusFormat` of `ceph_test_rados_api_service` expects these lines, also of a daemon without
    /// metadata.
    #[test]
    fn a_service_is_counted_by_hosts_and_zones() {
        let mut svc = Service::default();
        assert_eq!(service_summary(&svc), "no daemons active");
        for i in 0..16 {
            let metadata =
                [("daemon_type", "portal".into()), ("hostname", "a".into()), ("zone_id", format!("zone {}", i % 3))];
            let metadata = metadata.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
            svc.daemons.insert(format!("rbd/image{i}"), ServiceDaemon { metadata, ..ServiceDaemon::default() });
        }
        assert_eq!(service_summary(&svc), "16 portals active (1 hosts, 3 zones)");
        let one = Service { daemons: [("x".to_owned(), ServiceDaemon::default())].into(), ..Service::default() };
        assert_eq!(service_summary(&one), "1 daemon active");
        assert_eq!(service_summary(&Service { summary: "all well".into(), ..one }), "all well");
    }
}
