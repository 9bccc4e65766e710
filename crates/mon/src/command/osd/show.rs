//! The OSD map as commands show it: the whole of it, single OSDs, and places of objects and PGs.

use super::dump::{addrvec, dump_text, dump_tree, flag_names, list, osd_text, osd_tree};
use crate::command::units::{age, short};
use crate::command::{Cmd, CommandOutcome, Ctx, Refused, Res, When, cmd, flag, plain, refuse};
use crate::json::J;
use crate::obj;
use base::{Epoch, OsdId, PgId, Utime, errno};
use bytes::Bytes;
use cluster::osdmap::map_flag;
use cluster::{OsdMap, release};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd("osd stat", "osd", "r", 0, stat, "count OSDs"),
    cmd("osd dump epoch:Int[0]?", "osd", "r", 0, dump, "show the OSD map"),
    cmd("osd info id:OsdName?", "osd", "r", 0, info, "show an OSD, or all, as in the map"),
    cmd("osd ls epoch:Int[0]?", "osd", "r", 0, ls, "list OSD ids"),
    cmd("osd getmap epoch:Int[0]?", "osd", "r", 0, getmap, "get the OSD map, encoded"),
    cmd("osd getcrushmap epoch:Int[0]?", "osd", "r", 0, getcrushmap, "get the CRUSH map, encoded"),
    cmd("osd getmaxosd", "osd", "r", 0, getmaxosd, "show the number of OSD slots"),
    cmd("osd find id:OsdName", "osd", "r", 0, find, "show where an OSD is"),
    cmd(
        "osd map pool:Poolname object:Objectname nspace:String?",
        "osd",
        "r",
        0,
        map_object,
        "show where an object is placed",
    ),
    cmd("osd last-stat-seq id:OsdName", "osd", "r", 0, last_stat_seq, "show the sequence of an OSD's last report"),
    cmd("osd lspools", "osd", "r", flag::DEPRECATED, lspools, "list pools with numbers"),
    cmd("osd utilization", "osd", "r", 0, utilization, "show how evenly PGs are spread"),
    cmd("osd numa-status", "osd", "r", 0, numa_status, "show the NUMA placement of OSDs"),
    cmd("osd get-require-min-compat-client", "osd", "r", 0, min_compat, "show the oldest client release required"),
    cmd("pg map pgid:Pgid", "pg", "r", 0, pg_map, "show the OSDs of a PG"),
];

/// Flags of the map that `osd stat` shows.
pub(in crate::command) fn important_flags(map: &OsdMap) -> String {
    flag_names(map.flags & !(map_flag::FRESH | map_flag::LEGACY_REQUIRE))
}

fn remapped(c: &Ctx<'_>) -> usize {
    c.state.mgr.stats.num_in(wire::types::pg_state::REMAPPED)
}

/// `3 osds: 3 up (since 4m), 3 in (since 4m)`.
pub(in crate::command) fn summary(c: &Ctx<'_>, map: &OsdMap) -> String {
    let (n, up, inn) = map.osd_counts();
    let since = |t: Utime| {
        if t == Utime::ZERO {
            return String::new();
        }
        let d = c.now.wall.to_unix().saturating_sub(t.to_unix());
        let text = if d.as_secs() == 0 { format!("{}s", short(d.as_secs_f64())) } else { age(d.as_secs()) };
        format!(" (since {text})")
    };
    let mut s = format!("{n} osds: {up} up{}, {inn} in{}", since(map.last_up_change), since(map.last_in_change));
    let r = remapped(c);
    if r > 0 {
        s += &format!("; {r} remapped pgs");
    }
    s
}

/// The OSD counts of [`summary`] as a tree.
pub(in crate::command) fn summary_tree(c: &Ctx<'_>, map: &OsdMap) -> J {
    let (n, up, inn) = map.osd_counts();
    obj! {
        "epoch": map.epoch.0,
        "num_osds": n,
        "num_up_osds": up,
        "osd_up_since": map.last_up_change.sec,
        "num_in_osds": inn,
        "osd_in_since": map.last_in_change.sec,
        "num_remapped_pgs": remapped(c),
    }
}

fn stat(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = c.state.osdmap.clone();
    let tree = || summary_tree(c, &map);
    let text = || {
        let base = summary(c, &map);
        let (head, tail) = base.split_once("; ").map_or((base.as_str(), None), |(a, b)| (a, Some(b)));
        let mut s = format!("{head}; epoch: e{}", map.epoch);
        if let Some(t) = tail {
            s += &format!("; {t}");
        }
        s.push('\n');
        let flags = important_flags(&map);
        if !flags.is_empty() {
            s += &format!("flags {flags}\n");
        }
        s
    };
    c.tree("osdmap", tree).text(text)
}

/// The map that a command asks for.
pub(in crate::command) enum Wanted {
    /// The map is in memory.
    Map(Arc<OsdMap>),
    /// The map must be loaded first: the outcome makes the host load it and dispatch the command again.
    Later(CommandOutcome),
}

/// The encoded map of the wanted epoch, or the outcome that makes the host load it first.
pub(in crate::command) fn encoded(c: &mut Ctx<'_>) -> Res<Result<(Epoch, Bytes), CommandOutcome>> {
    let newest = c.state.osdmap.epoch;
    let want = match c.args.int("epoch") {
        None | Some(0) => newest,
        Some(n) => Epoch(u32::try_from(n).unwrap_or(u32::MAX)),
    };
    if want > newest || want < c.state.history.oldest {
        return refuse(errno::ENOENT, format!("there is no map for epoch {}", want.0));
    }
    match c.state.history.full(want) {
        Some(b) => Ok(Ok((want, b.clone()))),
        None if want == newest => Ok(Ok((want, crate::state::osdmap_blob(c.state)))),
        None => Ok(Err(CommandOutcome { when: When::NeedMap(want), ..CommandOutcome::done("") })),
    }
}

/// The map of the command's `epoch` argument, or the current one.
pub(in crate::command) fn wanted(c: &mut Ctx<'_>) -> Res<Wanted> {
    if matches!(c.args.int("epoch"), None | Some(0)) {
        return Ok(Wanted::Map(c.state.osdmap.clone()));
    }
    match encoded(c)? {
        Ok((_, b)) => {
            let map = OsdMap::decode_blob(&b).map_err(|e| {
                tracing::error!("a stored OSD map does not decode: {e}");
                Refused::new(errno::EIO, "")
            })?;
            Ok(Wanted::Map(Arc::new(map)))
        }
        Err(later) => Ok(Wanted::Later(later)),
    }
}

fn dump(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = match wanted(c)? {
        Wanted::Map(m) => m,
        Wanted::Later(o) => return Ok(o),
    };
    let tree = || dump_tree(c, &map);
    let text = || dump_text(&map) + "\n";
    c.tree("osdmap", tree).line().text(text)
}

fn info(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = c.state.osdmap.clone();
    if c.args.has("id") {
        let o = c.args.osd("id")?;
        if !map.exists(o) {
            return invalid_osd(o);
        }
        return c.tree("osd", || osd_tree(&map, o)).text(|| osd_text(&map, o) + "\n");
    }
    let tree = || map.osds().map(|o| osd_tree(&map, o)).collect::<J>();
    c.tree("osds", tree).text(|| map.osds().map(|o| osd_text(&map, o) + "\n").collect::<String>())
}

fn invalid_osd<T>(o: OsdId) -> Res<T> {
    refuse(errno::EINVAL, format!("{o} does not exist"))
}

fn ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = match wanted(c)? {
        Wanted::Map(m) => m,
        Wanted::Later(o) => return Ok(o),
    };
    c.tree("osds", || map.osds().map(|o| o.0).collect::<J>()).line().line_each()
}

fn getmap(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    Ok(match encoded(c)? {
        Ok((e, b)) => CommandOutcome { rs: format!("got osdmap epoch {e}"), ..CommandOutcome::output(b) },
        Err(later) => later,
    })
}

fn getcrushmap(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = match wanted(c)? {
        Wanted::Map(m) => m,
        Wanted::Later(o) => return Ok(o),
    };
    let mut w = wire::Writer::new(wire::Features::PACIFIC);
    w.put(&*map.crush);
    Ok(CommandOutcome { rs: map.crush_version.to_string(), ..CommandOutcome::output(w.into_bytes()) })
}

fn getmaxosd(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = c.state.osdmap.clone();
    let tree = || obj! { "epoch": map.epoch.0, "max_osd": map.max_osd };
    let text = || format!("max_osd = {} in epoch {}\n", map.max_osd, map.epoch);
    c.tree("getmaxosd", tree).text(text)
}

fn find(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let o = c.args.osd("id")?;
    let map = c.state.osdmap.clone();
    if !map.exists(o) {
        return refuse(errno::ENOENT, format!("{o} does not exist"));
    }
    let meta = c.state.osds.metadata.get(&o);
    let mut j = obj! { "osd": o.0, "addrs": addrvec(map.client_addr(o)), "osd_fsid": map.uuid(o).to_string() };
    for (key, name) in [
        ("hostname", "host"),
        ("pod_name", "pod_name"),
        ("pod_namespace", "pod_namespace"),
        ("container_name", "container_name"),
    ] {
        if let Some(v) = meta.and_then(|m| m.get(key)) {
            j.put(name, v);
        }
    }
    let loc: BTreeMap<String, String> = map.crush.full_location(o.0).into_iter().collect();
    j.put("crush_location", J::Obj(loc.into_iter().map(|(k, v)| (k.into(), v.into())).collect()));
    c.show("osd_location", &j)
}

fn with_primary(v: &[OsdId], primary: OsdId) -> String {
    format!("({}, p{})", crate::command::pg::dump::set_text(v), primary.0)
}

fn map_object(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (pool, object) = (c.args.str("pool")?, c.args.str("object")?);
    let nspace = c.args.str_or("nspace", "");
    let map = c.state.osdmap.clone();
    let Some(id) = map.pool_by_name(&pool) else {
        return refuse(errno::ENOENT, format!("pool {pool} does not exist"));
    };
    let Some(raw) = map.object_to_raw_pg(id, object.as_bytes(), &[], nspace.as_bytes(), None) else {
        return refuse(errno::ENOENT, format!("pool {pool} does not exist"));
    };
    let Some(p) = map.pool(id) else { return refuse(errno::ENOENT, format!("pool {pool} does not exist")) };
    let pg = PgId { pool: id, seed: p.raw_pg_to_pg(raw.seed) };
    let place = map.pg_to_up_acting(pg);
    let full = if nspace.is_empty() { object } else { format!("{nspace}/{object}") };
    let tree = || {
        let osds = |v: &[OsdId]| v.iter().map(|o| o.0).collect::<J>();
        obj! {
            "epoch": map.epoch.0,
            "pool": &pool,
            "pool_id": id.0,
            "objname": &full,
            "raw_pgid": raw.to_string(),
            "pgid": pg.to_string(),
            "up": osds(&place.up),
            "up_primary": place.up_primary.0,
            "acting": osds(&place.acting),
            "acting_primary": place.acting_primary.0,
        }
    };
    let text = || {
        format!(
            "osdmap e{} pool '{pool}' ({}) object '{full}' -> pg {raw} ({pg}) -> up {} acting {}\n",
            map.epoch,
            id.0,
            with_primary(&place.up, place.up_primary),
            with_primary(&place.acting, place.acting_primary)
        )
    };
    c.tree("osd_map", tree).text(text)
}

fn pg_map(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let raw = c.args.pgid("pgid")?;
    let map = c.state.osdmap.clone();
    let Some(p) = map.pool(raw.pool) else {
        return refuse(errno::ENOENT, format!("pg '{raw}' does not exist"));
    };
    let pg = PgId { pool: raw.pool, seed: p.raw_pg_to_pg(raw.seed) };
    let place = map.pg_to_up_acting(pg);
    let tree = || {
        let osds = |v: &[OsdId]| v.iter().map(|o| o.0).collect::<J>();
        obj! {
            "epoch": map.epoch.0,
            "raw_pgid": raw.to_string(),
            "pgid": pg.to_string(),
            "up": osds(&place.up),
            "acting": osds(&place.acting),
        }
    };
    let text =
        || format!("osdmap e{} pg {raw} ({pg}) -> up {} acting {}\n", map.epoch, list(&place.up), list(&place.acting));
    c.tree("pg_map", tree).text(text)
}

fn last_stat_seq(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let o = c.args.osd("id")?;
    plain(format!("{}\n", c.state.mgr.stats.osd(o).map_or(0, |s| s.seq)))
}

fn lspools(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = c.state.osdmap.clone();
    let tree = || map.pool_names.iter().map(|(id, n)| obj! { "poolnum": id.0, "poolname": n }).collect::<J>();
    let text = || map.pool_names.iter().map(|(id, n)| format!("{} {n}\n", id.0)).collect::<String>();
    c.tree("pools", tree).line().text(text)
}

/// Most PGs that `osd utilization` places itself.
const PLACED_MAX: usize = 4096;

fn utilization(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = c.state.osdmap.clone();
    let mut pgs: BTreeMap<OsdId, u64> = BTreeMap::new();
    // PGs that reported are where they say; placing each of a million PGs takes longer than a turn may.
    let silent = c.state.mgr.stats.silent_pgs(&map, PLACED_MAX);
    if silent.len() == PLACED_MAX {
        return refuse(errno::EAGAIN, "placement groups have not reported to the manager yet; try again");
    }
    for (o, load) in c.state.mgr.stats.loads() {
        pgs.insert(*o, u64::try_from(load.up).unwrap_or(0));
    }
    for o in silent.into_iter().flat_map(|pg| map.pg_to_up_acting(pg).up).filter(|o| *o != OsdId::NONE) {
        *pgs.entry(o).or_default() += 1;
    }
    let inn: Vec<OsdId> = map.osds().filter(|o| map.is_in(*o)).collect();
    if inn.is_empty() {
        return plain("");
    }
    let n = inn.len() as f64;
    let get = |o: &OsdId| pgs.get(o).copied().unwrap_or(0) as f64;
    let total: f64 = inn.iter().map(get).sum();
    let avg = total / n;
    let dev = (inn.iter().map(|o| (avg - get(o)).powi(2)).sum::<f64>() / n).sqrt();
    let expected = (avg * (1.0 - 1.0 / n)).sqrt();
    let min = inn.iter().min_by(|a, b| get(a).total_cmp(&get(b))).copied().unwrap_or_default();
    let max = inn.iter().rev().max_by(|a, b| get(a).total_cmp(&get(b))).copied().unwrap_or_default();
    let tree = || {
        obj! {
            "avg_pgs": avg, "std_dev": dev, "expected_baseline_std_dev": expected,
            "min_osd": min.0, "min_osd_pgs": get(&min) as u64, "max_osd": max.0, "max_osd_pgs": get(&max) as u64,
        }
    };
    let text = || {
        let mut s = format!("avg {}\nstddev {} (expected baseline {})\n", short(avg), short(dev), short(expected));
        if total > 0.0 {
            s += &format!("min {min} with {} pgs ({} * mean)\n", get(&min), short(get(&min) / avg));
            s += &format!("max {max} with {} pgs ({} * mean)\n", get(&max), short(get(&max) / avg));
        }
        s
    };
    c.tree("utilization", tree).text(text)
}

fn numa_status(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    use crate::command::language::text::{Column, Table};
    type Row = (OsdId, String, [Option<String>; 4]);
    fn word(r: &Row, i: usize) -> String {
        r.2.get(i).cloned().flatten().unwrap_or_else(|| "-".to_owned())
    }
    const KEYS: [&str; 4] = ["network_numa_node", "objectstore_numa_node", "numa_node", "numa_node_cpus"];
    const COLUMNS: &[Column<Row>] = &[
        Column::number("OSD", |r: &Row| r.0.0.to_string()),
        Column::left("HOST", |r: &Row| r.1.clone()),
        Column::right("NETWORK", |r: &Row| word(r, 0)),
        Column::right("STORAGE", |r: &Row| word(r, 1)),
        Column::right("AFFINITY", |r: &Row| word(r, 2)),
        Column::left("CPUS", |r: &Row| word(r, 3)),
    ];
    let row = |o: OsdId| {
        let of = |k: &str| c.state.osds.metadata.get(&o).and_then(|m| m.get(k)).cloned().filter(|v| !v.is_empty());
        (o, of("hostname").unwrap_or_default(), KEYS.map(of))
    };
    let rows: Vec<Row> = c.state.osdmap.osds().map(row).collect();
    let tree = || {
        let one = |r: &Row| {
            let mut j = obj! { "osd": r.0.0, "host": &r.1 };
            for (key, value) in KEYS.iter().zip(&r.2) {
                if let Some(v) = value {
                    let n = v.parse::<i64>().ok().filter(|_| *key != "numa_node_cpus");
                    j.put(*key, n.map_or_else(|| J::from(v.as_str()), J::from));
                }
            }
            j
        };
        rows.iter().map(one).collect::<J>()
    };
    c.tree("numa", tree).text(|| Table::of(COLUMNS, &rows).render())
}

fn min_compat(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    plain(format!("{}\n", release::name(c.state.osdmap.require_min_compat_client)))
}
