//! Commands of the manager on file systems: `fs volume` makes and removes them with their pools, `fs status` shows
//! them. [`super::subvolume`] has the commands on what is in them.

use super::life::{make, take_down};
use super::{Ctx, Res, edit, invalid, may_change, pool_name, refuse, view};
use crate::command::language::args::{Args, Value};
use crate::command::language::text::{Column, Left, Table};
use crate::command::mgr::rbd::host;
use crate::command::units::bytes;
use crate::command::{Cmd, CommandOutcome, When, cmd, done, flag as cf, plain, pool};
use crate::json::J;
use crate::obj;
use crate::state::ClusterState;
use base::{PoolId, errno};
use mgr::stats::space;
use std::collections::BTreeMap;
use wire::types::{MdsInfo, MdsMap, mds_state};

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd("fs volume ls", "mgr", "r", cf::MGR, ls, "list file systems"),
    cmd(
        "fs volume create name:String{[A-Za-z0-9-_.]} placement:String? meta_pool:String? data_pool:String?",
        "mgr",
        "rw",
        cf::MGR,
        create,
        "make a file system and its pools",
    ),
    cmd(
        "fs volume rm vol_name:String yes-i-really-mean-it:String?",
        "mgr",
        "rw",
        cf::MGR,
        rm,
        "remove a file system and its pools",
    ),
    cmd(
        "fs volume info vol_name:String human_readable:Bool?",
        "mgr",
        "r",
        cf::MGR,
        info,
        "show the pools of a file system",
    ),
    cmd("fs status fs:String?", "mgr", "r", cf::MGR, status, "show the state of file systems"),
    cmd(
        "fs perf stats mds_rank:String? client_id:String? client_ip:String?",
        "mgr",
        "r",
        cf::MGR,
        host,
        "show the client metrics that MDS daemons report",
    ),
];

fn ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let names: J = view(c).filesystems.values().map(|f| obj! { "name": &f.mds_map.fs_name }).collect();
    plain(names.pretty())
}

/// Runs another command's function with the given arguments.
fn with_args<T>(
    c: &mut Ctx<'_>,
    args: impl IntoIterator<Item = (&'static str, Value)>,
    f: impl FnOnce(&mut Ctx<'_>) -> Res<T>,
) -> Res<T> {
    let saved = std::mem::replace(&mut c.args, Args::new(args.into_iter().collect()));
    let r = f(c);
    c.args = saved;
    r
}

fn create(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("name")?;
    if !may_change(c, &name) {
        return refuse(errno::EPERM, format!("Permission denied: '{name}'"));
    }
    let created = "Volume created successfully (no MDS daemons created)";
    let map = edit(c).map().clone();
    let given = (c.args.opt("meta_pool"), c.args.opt("data_pool"));
    let (meta, data) = match given {
        (Some(m), Some(d)) => (m, d),
        (Some(_), None) => return invalid("data pool name isn't passed"),
        (None, Some(_)) => return invalid("metadata pool name isn't passed"),
        (None, None) => {
            let (m, d) = (format!("cephfs.{name}.meta"), format!("cephfs.{name}.data"));
            // Checks here what `fs new` would refuse, before any pool is made.
            if map.fs_by_name(&name).is_none() && !map.filesystems.is_empty() && !map.enable_multiple {
                return invalid(
                    "Creation of multiple filesystems is disabled.  To enable this experimental feature, use 'ceph fs flag set enable_multiple true'",
                );
            }
            if let Some(fs) = map.fs_by_name(&name) {
                let osdmap = c.map();
                let same = pool_name(&osdmap, fs.mds_map.metadata_pool) == m
                    && fs.mds_map.data_pools.first().is_some_and(|p| pool_name(&osdmap, *p) == d);
                return if same {
                    done(created)
                } else {
                    invalid(format!("filesystem already exists with name '{name}'"))
                };
            }
            for (pool, bulk) in [(&m, false), (&d, true)] {
                let args = [("pool", Value::Text(pool.clone())), ("bulk", Value::Bool(bulk))];
                let o = with_args(c, args, pool::make::create)?;
                if o.when == When::Retry {
                    return Ok(o);
                }
            }
            (m, d)
        }
    };
    let mut o = with_args(c, [], |c| make(c, &name, &meta, &data))?;
    o.rs = created.to_owned();
    Ok(o)
}

fn rm(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("vol_name")?;
    if c.args.opt("yes-i-really-mean-it").as_deref() != Some("--yes-i-really-mean-it") {
        return refuse(
            errno::EPERM,
            format!(
                "WARNING: this will *PERMANENTLY DESTROY* all data stored in the filesystem '{name}'. If you are *ABSOLUTELY CERTAIN* that is what you want, re-issue the command followed by --yes-i-really-mean-it."
            ),
        );
    }
    if !c.state.options.pools.allow_delete {
        return refuse(
            errno::EPERM,
            "pool deletion is disabled; you must first set the mon_allow_pool_delete config option to true before volumes can be deleted",
        );
    }
    let Some(fs) = edit(c).map().fs_by_name(&name).cloned() else {
        return refuse(errno::ENOENT, format!("volume {name} doesn't exist"));
    };
    if !may_change(c, &name) {
        return refuse(errno::EPERM, format!("Permission denied: '{name}'"));
    }
    let map = c.map();
    let pools: Vec<String> = std::iter::once(&fs.mds_map.metadata_pool)
        .chain(&fs.mds_map.data_pools)
        .map(|p| pool_name(&map, *p))
        .filter(|n| !n.is_empty())
        .collect();
    // If one pool may not be removed, the command changes nothing.
    for pool in &pools {
        let id = map.pool_by_name(pool).unwrap_or(PoolId(-1));
        let kept = map.pool(id).is_some_and(|p| p.has_flag(cluster::pool::flag::NODELETE));
        if kept {
            let text = "pool deletion is disabled; you must unset nodelete flag for the pool first";
            return refuse(errno::EPERM, text);
        }
        if c.state.osdmap.pool(id).is_none() {
            return Ok(CommandOutcome::retry());
        }
    }
    take_down(c, &fs);
    super::life::erase(c, &fs);
    let mut effects = Vec::new();
    for pool in &pools {
        let name = Value::Text(pool.clone());
        let args = [("pool", name.clone()), ("pool2", name), ("yes_i_really_really_mean_it", Value::Bool(true))];
        effects.extend(with_args(c, args, pool::make::remove)?.effects);
    }
    let data: Vec<String> = pools.iter().skip(1).map(|p| format!("'{p}'")).collect();
    let out = format!(
        "metadata pool: {} data pool: [{}] removed.\nIf there are active snapshot schedules associated with this volume, you might see EIO errors in the mgr logs or at the snap-schedule command-line due to the missing volume. However, these errors are transient and will get auto-resolved.",
        pools.first().map(String::as_str).unwrap_or_default(),
        data.join(", ")
    );
    Ok(CommandOutcome { when: When::Committed, effects, ..CommandOutcome::output(out) })
}

/// Addresses of the monitors, as clients that mount a file system take them.
pub(crate) fn mon_addrs(state: &ClusterState) -> Vec<String> {
    let of = |m: &cluster::monmap::MonInfo| {
        let a = m.public_addrs.legacy().or_else(|| m.public_addrs.0.first())?;
        a.sock.map(|s| s.to_string())
    };
    state.monmap.mons.values().filter_map(of).collect()
}

/// Space of a pool in bytes: used, and available.
fn usage(c: &Ctx<'_>, id: PoolId) -> (u64, u64) {
    let map = &c.state.osdmap;
    let Some(p) = map.pool(id) else { return (0, 0) };
    let u = space::pool_usage(&c.state.mgr.stats, map, id, p);
    (u.used, u.max_avail)
}

fn info(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("vol_name")?;
    let human = c.args.flag("human_readable");
    let map = view(c);
    let Some(fs) = map.fs_by_name(&name) else {
        return refuse(errno::ENOENT, format!("FS '{name}' not found"));
    };
    let size = |n: u64| if human { J::from(bytes(n)) } else { J::from(n) };
    let pool = |id: &PoolId| {
        let (used, avail) = usage(c, *id);
        obj! { "avail": size(avail), "name": pool_name(&c.state.osdmap, *id), "used": size(used) }
    };
    let monitors: J = mon_addrs(c.state).iter().collect();
    let j = obj! {
        "mon_addrs": monitors,
        "pools": obj! {
            "data": fs.mds_map.data_pools.iter().map(pool).collect::<J>(),
            "metadata": vec![pool(&fs.mds_map.metadata_pool)],
        },
    };
    plain(j.pretty())
}

/// The counters of an MDS that `fs status` shows; MDS daemons report them to the manager.
#[derive(Default)]
struct Counters {
    clients: u64,
    dns: u64,
    inos: u64,
    dirs: u64,
    caps: u64,
    requests: u64,
    replayed: u64,
}

fn counters(c: &Ctx<'_>, name: &str) -> Counters {
    let daemon = format!("mds.{name}");
    let get = |path: &str| c.state.mgr.counters().value(&daemon, path);
    let rate = |path: &str| c.state.mgr.counters().rate(&daemon, path).unwrap_or(0);
    Counters {
        clients: get("mds_sessions.session_count"),
        dns: get("mds_mem.dn"),
        inos: get("mds_mem.ino"),
        dirs: get("mds_mem.dir"),
        caps: get("mds_mem.cap"),
        requests: rate("mds_server.handle_client_request"),
        replayed: rate("mds_log.replayed"),
    }
}

/// One row of the table of ranks.
struct Row {
    rank: String,
    state: String,
    daemon: Option<(String, Counters)>,
    follows: bool,
}

fn rows(c: &Ctx<'_>, m: &MdsMap) -> Vec<Row> {
    let word = |i: &MdsInfo| {
        let s = mds_state::name(i.state).split_once(':').map_or("", |(_, s)| s);
        format!("{s}{}", if i.is_laggy() { "(laggy)" } else { "" })
    };
    let mut v: Vec<Row> = Vec::new();
    for rank in &m.ranks_in {
        v.push(match m.holder(*rank) {
            Some(i) => Row {
                rank: rank.to_string(),
                state: word(i),
                daemon: Some((i.name.clone(), counters(c, &i.name))),
                follows: false,
            },
            None => Row { rank: rank.to_string(), state: "failed".into(), daemon: None, follows: false },
        });
    }
    for i in m.mds_info.values().filter(|i| i.is_follower()) {
        v.push(Row {
            rank: format!("{}-s", i.rank),
            state: "standby-replay".into(),
            daemon: Some((i.name.clone(), counters(c, &i.name))),
            follows: true,
        });
    }
    v
}

fn status(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = view(c);
    let only = c.args.opt("fs");
    if let Some(name) = &only
        && map.fs_by_name(name).is_none()
    {
        return invalid(format!("Invalid filesystem: {name}"));
    }
    let shown: Vec<&MdsMap> = map
        .filesystems
        .values()
        .map(|f| &f.mds_map)
        .filter(|m| only.as_ref().is_none_or(|n| *n == m.fs_name))
        .collect();
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let held = shown.iter().flat_map(|m| m.mds_info.values());
    for i in held.chain(map.standby_daemons.values()) {
        let v = c.state.fs.metadata.get(&i.global_id).and_then(|m| m.get("ceph_version"));
        versions.entry(v.cloned().unwrap_or_else(|| "unknown".into())).or_default().push(i.name.clone());
    }
    let tree = || status_tree(c, &shown, &map, &versions);
    c.tree("fs_status", tree).text(|| status_text(c, &shown, &map, &versions))
}

/// Columns of the table of ranks; a failed rank has only its name.
fn rank_columns() -> [Column<Row>; 8] {
    fn of(r: &Row, cell: impl Fn(&str, &Counters) -> String) -> String {
        r.daemon.as_ref().map(|(name, k)| cell(name, k)).unwrap_or_default()
    }
    fn activity(r: &Row, k: &Counters) -> String {
        match r.state.as_str() {
            "active" => format!("Reqs: {} /s", k.requests),
            _ if r.follows => format!("Evts: {} /s", k.replayed),
            _ => String::new(),
        }
    }
    [
        Column::left("RANK", |r: &Row| r.rank.clone()),
        Column::left("STATE", |r: &Row| r.state.clone()),
        Column::left("MDS", |r| of(r, |name, _| name.to_owned())),
        Column::left("ACTIVITY", |r| of(r, |_, k| activity(r, k))),
        Column::left("DNS", |r| of(r, |_, k| k.dns.to_string())),
        Column::left("INOS", |r| of(r, |_, k| k.inos.to_string())),
        Column::left("DIRS", |r| of(r, |_, k| k.dirs.to_string())),
        Column::left("CAPS", |r| of(r, |_, k| k.caps.to_string())),
    ]
}

fn status_text(
    c: &Ctx<'_>,
    shown: &[&MdsMap],
    map: &wire::types::FsMap,
    versions: &BTreeMap<String, Vec<String>>,
) -> String {
    let mut out = String::new();
    for m in shown {
        let ranks = rows(c, m);
        let clients = ranks.iter().find_map(|r| r.daemon.as_ref().map(|(_, k)| k.clients)).unwrap_or(0);
        out += &format!("{} - {clients} clients\n{}\n", m.fs_name, "=".repeat(m.fs_name.len()));
        if !ranks.is_empty() {
            out += &Table::of(&rank_columns(), &ranks).render();
        }
        let mut t = Table::new(&["POOL", "TYPE", "USED", "AVAIL"].map(|n| (n, Left, Left)));
        for id in std::iter::once(&m.metadata_pool).chain(&m.data_pools) {
            let (used, avail) = usage(c, *id);
            let kind = if *id == m.metadata_pool { "metadata" } else { "data" };
            t.row([pool_name(&c.state.osdmap, *id), kind.to_owned(), bytes(used), bytes(avail)]);
        }
        out += &t.render();
    }
    if !map.standby_daemons.is_empty() {
        let mut t = Table::new(&[("STANDBY MDS", Left, Left)]);
        for i in map.standby_daemons.values() {
            t.row([i.name.clone()]);
        }
        out += &t.render();
    }
    let only_one = versions.len() == 1;
    for (v, names) in versions {
        out += &if only_one { format!("MDS version: {v}\n") } else { format!("{v}: {}\n", names.join(", ")) };
    }
    out
}

fn status_tree(
    c: &Ctx<'_>,
    shown: &[&MdsMap],
    map: &wire::types::FsMap,
    versions: &BTreeMap<String, Vec<String>>,
) -> J {
    let (mut clients, mut daemons, mut pools) = (Vec::new(), Vec::new(), Vec::new());
    for m in shown {
        let ranks = rows(c, m);
        let n = ranks.iter().find_map(|r| r.daemon.as_ref().map(|(_, k)| k.clients)).unwrap_or(0);
        clients.push(obj! { "clients": n, "fs": &m.fs_name });
        for r in ranks {
            let rank = r.rank.parse::<i64>().map_or_else(|_| J::from(r.rank.clone()), J::from);
            let Some((name, k)) = r.daemon else {
                daemons.push(obj! { "rank": rank, "state": r.state });
                continue;
            };
            let mut j = obj! { "caps": k.caps, "dirs": k.dirs, "dns": k.dns };
            if r.follows {
                j.put("events", k.replayed);
            }
            j.put("inos", k.inos).put("name", name).put("rank", rank);
            if !r.follows {
                j.put("rate", k.requests);
            }
            j.put("state", r.state);
            daemons.push(j);
        }
        for id in std::iter::once(&m.metadata_pool).chain(&m.data_pools) {
            let (used, avail) = usage(c, *id);
            pools.push(obj! {
                "avail": avail,
                "id": id.0,
                "name": pool_name(&c.state.osdmap, *id),
                "type": if *id == m.metadata_pool { "metadata" } else { "data" },
                "used": used,
            });
        }
    }
    daemons.extend(map.standby_daemons.values().map(|i| obj! { "name": &i.name, "state": "standby" }));
    let version = |(v, d): (&String, &Vec<String>)| obj! { "daemon": d.iter().collect::<J>(), "version": v };
    obj! {
        "clients": clients,
        "mds_version": versions.iter().map(version).collect::<J>(),
        "mdsmap": daemons,
        "pools": pools,
    }
}
