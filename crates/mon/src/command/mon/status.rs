//! `status` (the text of `ceph -s`), quorum and monitor status, `report`.

use super::pgmap::{client_rate, iostat, pg_stat, pgmap_tree, pool_stats, recovery_lines, recovery_rate};
use super::quorum::{mon_status, quorum_age, quorum_ranks, quorum_status, time_sync};
use super::versions::{VERSION_SHORT, metadata};
use crate::command::health::Health;
use crate::command::units::{age, bytes, count, unsigned};
use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd, flag, osd};
use crate::json::J;
use crate::obj;
use base::Utime;
use mgr::stats::space;
use std::collections::BTreeSet;
use std::fmt::Write;
use wire::types::{Service, pg_state};

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
                    "addr": osd::dump::plain_addr(&d.addr),
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
        "osdmap": osd::dump::dump_tree(c, &map),
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
        .put("pool_sum", crate::command::pg::dump::pool_stat_tree(c.state.mgr.stats.sum()))
        .put("osd_sum", crate::command::pg::dump::osd_stat_tree(&c.state.mgr.stats.osd_sum()))
        .put("pool_stats", crate::command::pg::dump::pools_tree(c))
        .put("osd_stats", c.state.mgr.stats.osds().map(|(o, s)| obj! { "osd": o.0, "seq": s.seq }).collect::<J>())
        .put(
            "num_pg_by_state",
            states.iter().map(|(b, n)| obj! { "state": pg_state::to_string(*b), "num": *n }).collect::<J>(),
        )
        .put("servicemap", servicemap_tree(c));
    let out = c.show_line("report", &j)?;
    // The checksum excludes the line break at the end.
    let crc = base::crc::crc32c(u32::MAX, out.out.strip_suffix(b"\n").unwrap_or(&out.out));
    Ok(CommandOutcome { rs: format!("report {crc}"), ..out })
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
