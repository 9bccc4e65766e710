//! File systems and their MDS daemons.
//!
//! | file | commands |
//! |---|---|
//! | this one | making, failing and removing file systems, their pools, features and mirrors |
//! | [`set`] | `fs set` |
//! | [`show`] | the FSMap as tree and as text |
//! | [`mds`] | daemons and ranks |
//! | [`subvolume`] | commands of the manager on the contents: `fs subvolumegroup`, `fs subvolume`, `fs clone` |
//! | [`snap_schedule`] | commands of the manager: `fs snap-schedule` |
//! | [`volume`] | commands of the manager: `fs volume`, `fs status` |
//!
//! A client whose monitor capability names file systems sees and changes only those.

pub(super) mod authorize;
pub(super) mod mds;
mod set;
pub(in crate::command) mod show;
pub(super) mod snap_schedule;
pub(super) mod subvolume;
pub(super) mod volume;

use super::pool::make::set_opt;
use super::{Cmd, CommandOutcome, Ctx, Refused, Res, cmd, committed, done, flag as cf, invalid, refuse};
use crate::json::J;
use crate::obj;
use crate::state::fs::edit::FsEdit;
use crate::state::fs::map;
use crate::state::log::Prio;
use base::{Epoch, PoolId, errno};
use cluster::OsdMap;
use cluster::pool::PoolOpt;
use wire::Decode;
use wire::types::{Filesystem, FsMap, MdsHealth, MdsMap, MirrorCluster, MirrorInfo, MirrorPeer, fs_flag};

/// Commands of this module.
pub(super) const COMMANDS: &[Cmd] = &[
    cmd("fs ls", "fs", "r", 0, ls, "list file systems"),
    cmd("fs dump epoch:Int[0]?", "mds", "r", 0, dump, "show the map of file systems"),
    cmd("fs get fs_name:String", "fs", "r", 0, get, "show a file system"),
    cmd("fs lsflags fs_name:String", "fs", "r", 0, lsflags, "list the flags of a file system"),
    cmd("fs feature ls", "mds", "r", 0, features, "list features of file system clients"),
    cmd(
        "fs new fs_name:String{[A-Za-z0-9-_.]} metadata:String data:String force:Bool? allow_dangerous_metadata_overlay:Bool? fscid:Int[0]? recover:Bool? yes_i_really_really_mean_it:Bool? set:String*?",
        "fs",
        "rw",
        0,
        new,
        "make a file system of two pools",
    ),
    cmd("fs rm fs_name:String yes_i_really_mean_it:Bool?", "fs", "rw", 0, rm, "remove a file system; its pools stay"),
    cmd("fs fail fs_name:String yes_i_really_mean_it:Bool?", "fs", "rw", 0, fail, "fail all ranks of a file system"),
    cmd(
        "fs reset fs_name:String yes_i_really_mean_it:Bool?",
        "fs",
        "rw",
        0,
        reset,
        "for disaster recovery only: go back to a single failed rank",
    ),
    cmd(
        "fs set fs_name:String var:Choices(max_mds|allow_dirfrags|allow_new_snaps|allow_standby_replay|bal_rank_mask|balance_automate|balancer|cluster_down|down|inline_data|joinable|max_file_size|max_xattr_size|min_compat_client|refuse_client_session|refuse_standby_for_another_fs|session_autoclose|session_timeout|standby_count_wanted) val:String yes_i_really_mean_it:Bool? yes_i_really_really_mean_it:Bool?",
        "mds",
        "rw",
        0,
        set::run,
        "set a parameter of a file system",
    ),
    cmd(
        "fs flag set flag_name:Choices(enable_multiple) val:String yes_i_really_mean_it:Bool?",
        "fs",
        "rw",
        0,
        flag_set,
        "set a flag of all file systems",
    ),
    cmd(
        "fs rename fs_name:String new_fs_name:String{[A-Za-z0-9-_.]} yes_i_really_mean_it:Bool?",
        "mds",
        "rw",
        0,
        rename,
        "rename a file system",
    ),
    cmd(
        "fs swap fs1_name:String fs1_id:Int[0] fs2_name:String fs2_id:Int[0] swap_fscids:Choices(yes|no) yes_i_really_mean_it:Bool?",
        "mds",
        "rw",
        0,
        swap,
        "exchange the names of two file systems, and their ids if requested",
    ),
    cmd("fs add_data_pool fs_name:String pool:String", "mds", "rw", 0, add_data_pool, "add a data pool"),
    cmd("fs rm_data_pool fs_name:String pool:String", "mds", "rw", 0, rm_data_pool, "remove a data pool"),
    cmd("fs set-default fs_name:String", "fs", "rw", 0, set_default, "set the file system of clients that name none"),
    cmd(
        "fs set_default fs_name:String",
        "fs",
        "rw",
        cf::DEPRECATED,
        set_default,
        "set the file system of clients that name none",
    ),
    cmd("fs compat show fs_name:String", "mds", "r", 0, compat_show, "show the on-disk features of a file system"),
    cmd(
        "fs compat fs_name:String subop:Choices(rm_compat|rm_incompat|add_compat|add_incompat) feature:Int feature_str:String?",
        "fs",
        "rw",
        0,
        compat,
        "change the on-disk features of a file system",
    ),
    cmd(
        "fs required_client_features fs_name:String subop:Choices(add|rm) val:String",
        "mds",
        "rw",
        0,
        required,
        "set which features clients must have",
    ),
    cmd("fs mirror enable fs_name:String", "mds", "rw", 0, mirror_enable, "enable the mirroring of a file system"),
    cmd("fs mirror disable fs_name:String", "mds", "rw", 0, mirror_disable, "disable the mirroring of a file system"),
    cmd(
        "fs mirror peer_add fs_name:String uuid:String remote_cluster_spec:String remote_fs_name:String",
        "mds",
        "rw",
        0,
        peer_add,
        "add a cluster that a file system is mirrored to",
    ),
    cmd(
        "fs mirror peer_remove fs_name:String uuid:String",
        "mds",
        "rw",
        0,
        peer_remove,
        "remove a cluster that a file system is mirrored to",
    ),
];

/// Names of client features (`cephfs_features.cc`), by bit.
pub(super) const FEATURES: [&str; 24] = [
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "jewel",
    "kraken",
    "luminous",
    "mimic",
    "reply_encoding",
    "reclaim_client",
    "lazy_caps_wanted",
    "multi_reconnect",
    "deleg_ino",
    "metric_collect",
    "alternate_name",
    "notify_session_state",
    "op_getvxattr",
    "32bits_retry_fwd",
    "new_snaprealm_info",
    "has_owner_uidgid",
    "client_mds_auth_caps",
    "charmap",
    "blockdiff",
];

/// Most mirror peers of a file system.
const MAX_PEERS: usize = 100;

/// An editor of the pending FSMap, with the OSD map change that belongs to it.
pub(super) fn edit<'a>(c: &'a mut Ctx<'_>) -> FsEdit<'a> {
    FsEdit { state: c.state, pending: c.pending, now: c.now }
}

/// The FSMap, reduced to the file systems that the session may see.
pub(super) fn view(c: &Ctx<'_>) -> FsMap {
    let map = c.pending.fsmap.as_ref().unwrap_or(&c.state.fs.map);
    map.filtered(&c.session.principal.access.fs_names()).into_owned()
}

/// The file system that the command names, if the session may see it. Error: ENOENT.
fn seen(c: &Ctx<'_>) -> Res<Filesystem> {
    let name = c.args.str("fs_name")?;
    let missing = || Refused::new(errno::ENOENT, format!("filesystem '{name}' not found"));
    view(c).fs_by_name(&name).cloned().ok_or_else(missing)
}

/// True if the session may change the file system.
pub(super) fn may_change(c: &Ctx<'_>, name: &str) -> bool {
    let names = c.session.principal.access.fs_names();
    names.is_empty() || names.contains(&name)
}

/// The file system that the command is about to change, from the pending FSMap. Error: ENOENT or EPERM.
fn changed(c: &mut Ctx<'_>) -> Res<Filesystem> {
    let name = c.args.str("fs_name")?;
    let Some(fs) = edit(c).map().fs_by_name(&name).cloned() else {
        return refuse(errno::ENOENT, format!("Filesystem not found: '{name}'"));
    };
    if !may_change(c, &name) {
        return refuse(errno::EPERM, format!("Permission denied: '{name}'"));
    }
    Ok(fs)
}

/// Applies `f` to a file system of the pending FSMap.
fn modify(c: &mut Ctx<'_>, fscid: i32, f: impl FnOnce(&mut Filesystem)) {
    let mut e = edit(c);
    let now = e.wall();
    map::modify_fs(e.map_mut(), now, fscid, f);
}

/// Parses a boolean as Ceph's `parse_bool` does.
fn truth(text: &str) -> Res<bool> {
    match text {
        "1" | "true" | "yes" => Ok(true),
        "0" | "false" | "no" => Ok(false),
        _ => invalid("value must be false|no|0 or true|yes|1"),
    }
}

/// True if an MDS reports MDS_TRIM or MDS_CACHE_OVERSIZED: its rank would recover slowly after a failover.
pub(super) fn is_behind(health: Option<&MdsHealth>) -> bool {
    const TRIM: u16 = 1;
    const CACHE_OVERSIZED: u16 = 11;
    health.is_some_and(|h| h.metrics.iter().any(|m| m.kind == TRIM || m.kind == CACHE_OVERSIZED))
}

/// The status line that refuses to fail an MDS for which [`is_behind`] is true.
pub(super) const BEHIND: &str = "MDS has one of two health warnings which could extend recovery: MDS_TRIM or MDS_CACHE_OVERSIZED. MDS failover is not recommended since it might cause unexpected file system unavailability. If you wish to proceed, pass --yes-i-really-mean-it";

fn pool_name(map: &OsdMap, id: PoolId) -> String {
    map.pool_name(id).unwrap_or_default().to_owned()
}

fn ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (fsmap, osdmap) = (view(c), std::sync::Arc::clone(&c.state.osdmap));
    let tree = || {
        let one = |f: &Filesystem| {
            let m = &f.mds_map;
            obj! {
                "name": &m.fs_name,
                "metadata_pool": pool_name(&osdmap, m.metadata_pool),
                "metadata_pool_id": m.metadata_pool.0,
                "data_pool_ids": m.data_pools.iter().map(|p| p.0).collect::<J>(),
                "data_pools": m.data_pools.iter().map(|p| pool_name(&osdmap, *p)).collect::<J>(),
            }
        };
        fsmap.filesystems.values().map(one).collect::<J>()
    };
    let text = || {
        let mut out = String::new();
        for m in fsmap.filesystems.values().map(|f| &f.mds_map) {
            let data: String = m.data_pools.iter().map(|p| pool_name(&osdmap, *p) + " ").collect();
            out += &format!(
                "name: {}, metadata pool: {}, data pools: [{data}]\n",
                m.fs_name,
                pool_name(&osdmap, m.metadata_pool)
            );
        }
        if fsmap.filesystems.is_empty() {
            out += "No filesystems enabled\n";
        }
        out
    };
    c.tree("filesystems", tree).line().text(text)
}

fn dump(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let newest = c.state.fs.map.epoch;
    let map = match c.args.int("epoch").filter(|n| *n > 0) {
        None => view(c),
        Some(n) if n == i64::from(newest.0) => view(c),
        Some(n) => {
            let blob = u32::try_from(n).ok().and_then(|n| c.state.fs.epochs.get(&Epoch(n)));
            let Some(map) = blob.and_then(|b| FsMap::from_bytes(b).ok()) else {
                return refuse(errno::ENOENT, "");
            };
            map.filtered(&c.session.principal.access.fs_names()).into_owned()
        }
    };
    let out = c.tree("fsmap", || show::tree(&map)).text(|| show::text(&map))?;
    Ok(CommandOutcome { rs: format!("dumped fsmap epoch {}", map.epoch), ..out })
}

fn get(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = seen(c)?;
    c.tree("filesystem", || show::fs_tree(&fs)).line().text(|| show::fs_text(&fs))
}

fn lsflags(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = seen(c)?;
    let tree = || show::flags_tree(&fs.mds_map);
    let text = || show::flags_text(&fs.mds_map);
    c.tree("flags_state", tree).line().text(text)
}

fn features(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let tree = || FEATURES.iter().enumerate().map(|(i, n)| obj! { "index": i, "name": *n }).collect::<J>();
    let text = || FEATURES.iter().enumerate().map(|(i, n)| format!("{i} {n}\n")).collect::<String>();
    c.tree("features", tree).text(text)
}

/// The use of a pool in a file system.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Metadata,
    DefaultData,
    MoreData,
}

/// Refuses a pool that cannot be part of a file system.
fn check_pool(map: &OsdMap, id: PoolId, what: Use, force: bool, overlay: bool) -> Res<()> {
    let Some(p) = map.pool(id) else {
        return refuse(errno::ENOENT, format!("pool id '{}' does not exist", id.0));
    };
    let name = pool_name(map, id);
    if p.is_pool_snaps_mode() {
        let text = format!("pool({}) already has mon-managed snaps; can't attach pool to fs", id.0);
        return refuse(errno::EOPNOTSUPP, text);
    }
    if !overlay && !force && !p.application_metadata.is_empty() {
        let Some(app) = p.application_metadata.get(APP) else {
            return invalid(format!("RADOS pool '{name}' has another non-CephFS application enabled."));
        };
        if let Some((kind, fs)) = app.get_key_value("data").or_else(|| app.get_key_value("metadata")) {
            return invalid(format!(
                "RADOS pool '{name}' is already used by filesystem '{fs}' as a '{kind}' pool for application '{APP}'"
            ));
        }
    }
    if p.is_erasure() {
        let ec = format!("pool '{name}' (id '{}') is an erasure-coded pool", id.0);
        if what == Use::Metadata {
            return invalid(format!("{ec}.  Use of erasure-coded pools for CephFS metadata is not permitted"));
        }
        if what == Use::DefaultData && !force {
            return invalid(format!(
                "{ec}. Use of an EC pool for the default data pool is discouraged; see the online CephFS documentation for more information. Use --force to override."
            ));
        }
        if !p.has_flag(cluster::pool::flag::EC_OVERWRITES) {
            return invalid(format!("{ec}, with no overwrite support"));
        }
    }
    Ok(())
}

/// The application that pools of file systems are marked with.
const APP: &str = "cephfs";

/// Marks a pool as part of a file system.
fn enable_app(c: &mut Ctx<'_>, pool: PoolId, key: &str, fs: &str) {
    if let Some(p) = c.pending.pool_mut(c.state, pool) {
        p.application_metadata.entry(APP.to_owned()).or_default().insert(key.to_owned(), fs.to_owned());
    }
}

fn new(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs_name = c.args.str("fs_name")?;
    let (metadata, data) = (c.args.str("metadata")?, c.args.str("data")?);
    make(c, &fs_name, &metadata, &data)
}

/// Makes a file system of a metadata pool and a data pool.
fn make(c: &mut Ctx<'_>, fs_name: &str, metadata_name: &str, data_name: &str) -> Res<CommandOutcome> {
    let osdmap = c.map();
    let pool = |name: &str| {
        let missing = || Refused::new(errno::ENOENT, format!("pool '{name}' does not exist"));
        osdmap.pool_by_name(name).ok_or_else(missing)
    };
    let (metadata, data) = (pool(metadata_name)?, pool(data_name)?);
    if fs_name.is_empty() {
        return invalid("Filesystem name may not be empty");
    }
    if !may_change(c, fs_name) {
        return refuse(errno::EPERM, format!("Permission denied: '{fs_name}'"));
    }
    let map = edit(c).map().clone();
    if let Some(fs) = map.fs_by_name(fs_name) {
        return if fs.mds_map.data_pools.first() == Some(&data) && fs.mds_map.metadata_pool == metadata {
            done(format!("filesystem '{fs_name}' already exists"))
        } else {
            invalid(format!("filesystem already exists with name '{fs_name}'"))
        };
    }
    let names = (fs_name, metadata_name);
    let overlay = c.args.flag("allow_dangerous_metadata_overlay");
    check_new(c, &map, names, (metadata, data), overlay)?;
    let force = c.args.flag("force");
    let fscid = wanted_id(c, &map, force)?;
    let options = new_options(c)?;
    check_pool(&osdmap, data, Use::DefaultData, force, overlay)?;
    check_pool(&osdmap, metadata, Use::Metadata, force, overlay)?;
    if metadata == data {
        return invalid(format!("pool '{data_name}' cannot be both metadata and data pool"));
    }
    let recover = c.args.flag("recover");
    let now = c.now.wall;
    let mut fs = map::new_fs(edit(c).map(), now, fs_name, metadata, data, recover);
    let mut notes = String::new();
    for pair in options.get(1..).unwrap_or_default().chunks_exact(2) {
        let [var, val] = pair else { continue };
        notes += "; ";
        notes += &set::apply(c, &mut fs, var, val)?.text;
    }
    let max_mds = fs.mds_map.max_mds;
    fs.mds_map.epoch = edit(c).map_mut().epoch;
    let id = map::add_fs(edit(c).map_mut(), fs, fscid);
    enable_app(c, data, "data", fs_name);
    enable_app(c, metadata, "metadata", fs_name);
    if let Some(p) = c.pending.pool_mut(c.state, metadata) {
        set_opt(p, "recovery_priority", PoolOpt::Int(5));
        set_opt(p, "pg_num_min", PoolOpt::Int(16));
        set_opt(p, "pg_autoscale_bias", PoolOpt::Float(4.0));
    }
    if !recover {
        let mut e = edit(c);
        for rank in 0..max_mds {
            let Some(next) = e.map().replacement(id, rank) else { break };
            let (gid, who) = (next.global_id, next.human_name());
            e.log(Prio::INFO, format!("{who} assigned to filesystem {fs_name} as rank {rank}"));
            e.promote(gid, id, rank);
        }
    }
    committed(format!("new fs with metadata pool {} and data pool {}{notes}", metadata.0, data.0))
}

/// Refuses a new file system that must not be: its pools are taken or filled, or there is one already.
fn check_new(
    c: &Ctx<'_>,
    map: &FsMap,
    (fs_name, metadata_name): (&str, &str),
    (metadata, data): (PoolId, PoolId),
    overlay: bool,
) -> Res<()> {
    if !c.args.flag("force") && c.state.mgr.stats.pool(metadata).stats.sum.num_objects > 0 {
        return invalid(format!("pool '{metadata_name}' already contains some objects. Use an empty pool instead."));
    }
    if !map.filesystems.is_empty() && !map.enable_multiple {
        return invalid(
            "Creation of multiple filesystems is disabled.  To enable this experimental feature, use 'ceph fs flag set enable_multiple true'",
        );
    }
    let taken = |m: &MdsMap| m.data_pools.contains(&data) || m.metadata_pool == metadata;
    if !overlay && map.filesystems.values().any(|f| taken(&f.mds_map)) {
        return invalid(format!(
            "Filesystem '{fs_name}' is already using one of the specified RADOS pools. This should ONLY be done in emergencies and after careful reading of the documentation. Pass --allow-dangerous-metadata-overlay to permit this."
        ));
    }
    Ok(())
}

/// The id that the command gives to the new file system.
fn wanted_id(c: &Ctx<'_>, map: &FsMap, force: bool) -> Res<Option<i32>> {
    match c.args.int("fscid") {
        None => Ok(None),
        Some(_) if !force => invalid("Pass --force to create a file system with a specific ID"),
        Some(id) => match i32::try_from(id) {
            Ok(id) if map.filesystems.contains_key(&id) => invalid(format!("filesystem already exists with id '{id}'")),
            Ok(id) if (1..i32::MAX).contains(&id) => Ok(Some(id)),
            _ => invalid(format!("filesystem id '{id}' is out of range")),
        },
    }
}

/// The parameters that the command sets: the word `set`, then pairs of names and values.
fn new_options(c: &Ctx<'_>) -> Res<Vec<String>> {
    let options = c.args.list("set");
    if let Some(first) = options.first() {
        if first != "set" {
            return invalid("invalid command");
        }
        if options.len() < 2 || options.len().is_multiple_of(2) {
            return invalid(format!("incomplete list of key-val pairs provided {}", options.len() - 1));
        }
    }
    Ok(options)
}

/// Fails all ranks of a file system and keeps other daemons from joining.
fn take_down(c: &mut Ctx<'_>, fs: &Filesystem) {
    modify(c, fs.fscid, |f| f.mds_map.set_flag(fs_flag::NOT_JOINABLE, true));
    let mut e = edit(c);
    for gid in fs.mds_map.mds_info.keys() {
        e.fail(*gid);
    }
}

fn fail(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = changed(c)?;
    let behind = fs.mds_map.mds_info.keys().any(|g| is_behind(c.state.fs.health.get(g)));
    if behind && !c.args.flag("yes_i_really_mean_it") {
        return refuse(errno::EPERM, BEHIND);
    }
    take_down(c, &fs);
    committed(format!(
        "{} marked not joinable; MDS cannot join the cluster. All MDS ranks marked failed.",
        fs.mds_map.fs_name
    ))
}

fn rm(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("fs_name")?;
    if edit(c).map().fs_by_name(&name).is_none() {
        return done(format!("filesystem '{name}' does not exist"));
    }
    let fs = changed(c)?;
    if !fs.mds_map.up.is_empty() {
        return invalid("all MDS daemons must be inactive/failed before removing filesystem. See `ceph fs fail`.");
    }
    if !c.args.flag("yes_i_really_mean_it") {
        return refuse(
            errno::EPERM,
            "this is a DESTRUCTIVE operation and will make data in your filesystem permanently inaccessible.  Add --yes-i-really-mean-it if you are sure you wish to continue.",
        );
    }
    erase(c, &fs);
    committed("")
}

/// Removes a file system whose ranks have no daemon.
fn erase(c: &mut Ctx<'_>, fs: &Filesystem) {
    let mut e = edit(c);
    for gid in fs.mds_map.mds_info.keys() {
        e.fail(*gid);
    }
    let now = e.wall();
    map::remove_fs(e.map_mut(), now, fs.fscid);
}

fn reset(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = changed(c)?;
    if !fs.mds_map.up.is_empty() {
        return invalid(
            "all MDS daemons must be inactive before resetting filesystem: set the cluster_down flag and use `ceph mds fail` to make this so",
        );
    }
    if !c.args.flag("yes_i_really_mean_it") {
        return refuse(
            errno::EPERM,
            "this is a potentially destructive operation, only for use by experts in disaster recovery.  Add --yes-i-really-mean-it if you are sure you wish to continue.",
        );
    }
    let mut e = edit(c);
    for gid in fs.mds_map.mds_info.keys() {
        e.fail(*gid);
    }
    let now = e.wall();
    map::reset_fs(e.map_mut(), now, fs.fscid);
    committed("")
}

fn flag_set(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let text = c.args.str("val")?;
    let on = truth(&text).map_err(|e| Refused::new(e.rc, format!("{}Invalid boolean value '{text}'", e.rs)))?;
    let mut e = edit(c);
    let m = e.map_mut();
    m.enable_multiple = on;
    m.ever_enabled_multiple |= on;
    committed("")
}

/// Writes another file system name into the application metadata of its pools.
fn mark_pools(c: &mut Ctx<'_>, m: &MdsMap, name: &str) {
    for p in &m.data_pools {
        enable_app(c, *p, "data", name);
    }
    enable_app(c, m.metadata_pool, "metadata", name);
}

fn rename(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (name, wanted) = (c.args.str("fs_name")?, c.args.str("new_fs_name")?);
    let map = edit(c).map().clone();
    if map.fs_by_name(&name).is_none() {
        return if map.fs_by_name(&wanted).is_some() {
            done(format!("File system may already have been renamed. Desired file system '{wanted}' exists."))
        } else {
            refuse(errno::ENOENT, format!("File system '{name}' does not exist"))
        };
    }
    let fs = changed(c)?;
    if map.fs_by_name(&wanted).is_some() {
        return invalid(format!("Desired file system name '{wanted}' already in use"));
    }
    if fs.mirror_info.mirrored {
        return refuse(
            errno::EPERM,
            format!(
                "Mirroring is enabled on file system '{name}'. Disable mirroring on the file system after ensuring it's OK to do so, and then retry to rename."
            ),
        );
    }
    if !c.args.flag("yes_i_really_mean_it") {
        return refuse(
            errno::EPERM,
            "this is a potentially disruptive operation, clients' cephx credentials need reauthorized to access the file system and its pools with the new name. Add --yes-i-really-mean-it if you are sure you wish to continue.",
        );
    }
    offline(&fs, "renaming a CephFS, it", "renaming the CephFS")?;
    mark_pools(c, &fs.mds_map, &wanted);
    modify(c, fs.fscid, |f| f.mds_map.fs_name = wanted);
    committed(
        "File system is renamed. cephx credentials authorized to old file system name need to be reauthorized to new file system name.",
    )
}

/// Refuses to rename a file system that daemons or clients use.
fn offline(fs: &Filesystem, before: &str, before_flag: &str) -> Res<()> {
    let name = &fs.mds_map.fs_name;
    if !fs.mds_map.up.is_empty() {
        return refuse(
            errno::EPERM,
            format!("CephFS '{name}' is not offline. Before {before} must be marked as down. See `ceph fs fail`."),
        );
    }
    if !fs.mds_map.has_flag(fs_flag::REFUSE_CLIENT_SESSION) {
        return refuse(
            errno::EPERM,
            format!(
                "CephFS '{name}' doesn't refuse clients. Before {before_flag}, flag 'refuse_client_session' must be set. See `ceph fs set`."
            ),
        );
    }
    Ok(())
}

fn swap(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    if !c.args.flag("yes_i_really_mean_it") {
        return refuse(
            errno::EPERM,
            "This is a potentially disruptive operation, client's cephx credentials may need to be reauthorized to access the file systems and its pools. Add --yes-i-really-mean-it if you are sure you wish to continue.",
        );
    }
    let (n1, n2) = (c.args.str("fs1_name")?, c.args.str("fs2_name")?);
    let (i1, i2) = (c.args.int("fs1_id").unwrap_or(-1), c.args.int("fs2_id").unwrap_or(-1));
    let map = edit(c).map().clone();
    let missing = |n: &str| format!("File system '{n}' doesn't exist on this Ceph cluster.");
    let (a, b) = match (map.fs_by_name(&n1), map.fs_by_name(&n2)) {
        (Some(a), Some(b)) => (a, b),
        (None, Some(_)) => return refuse(errno::ENOENT, missing(&n1)),
        (Some(_), None) => return refuse(errno::ENOENT, missing(&n2)),
        (None, None) => {
            let text = format!("Neither file system '{n1}' nor file system '{n2}' exists on this Ceph cluster.");
            return refuse(errno::ENOENT, text);
        }
    };
    for n in [&n1, &n2] {
        if !may_change(c, n) {
            return refuse(errno::EPERM, format!("Permission denied: '{n}'"));
        }
    }
    let (ida, idb) = (i64::from(a.fscid), i64::from(b.fscid));
    match (i1 == ida, i2 == idb) {
        (true, true) => {}
        (false, true) => return invalid(format!("FSCID provided for '{n1}' is incorrect.")),
        (true, false) => return invalid(format!("FSCID provided for '{n2}' is incorrect.")),
        (false, false) if i1 == idb && i2 == ida => {
            return done(
                "FSCIDs provided in command arguments are swapped; perhaps `ceph fs swap` has been run before.",
            );
        }
        (false, false) => return invalid("FSCIDs provided for both the CephFSs is incorrect."),
    }
    for f in [a, b] {
        if f.mirror_info.mirrored {
            let text = format!(
                "Mirroring is enabled on file system '{}'. Disable mirroring on the file system after ensuring it's OK to do so, and then re-try swapping.",
                f.mds_map.fs_name
            );
            return refuse(errno::EPERM, text);
        }
    }
    for f in [a, b] {
        offline(f, "swapping CephFS names, both CephFSs", "swapping CephFS names")?;
    }
    mark_pools(c, &a.mds_map, &n2);
    mark_pools(c, &b.mds_map, &n1);
    let (a, b) = (a.fscid, b.fscid);
    modify(c, a, |f| f.mds_map.fs_name = n2);
    modify(c, b, |f| f.mds_map.fs_name = n1);
    let ids = c.args.str_or("swap_fscids", "no") == "yes";
    if ids {
        let mut e = edit(c);
        let now = e.wall();
        map::swap_ids(e.map_mut(), now, a, b);
    }
    committed(format!(
        "File system names {}have been swapped; cephx credentials may need an upgrade.",
        if ids { "and FSCIDs " } else { "" }
    ))
}

/// A pool by name, or by number.
fn pool_arg(c: &mut Ctx<'_>) -> Res<PoolId> {
    let text = c.args.str("pool")?;
    let map = c.map();
    let by_name = map.pool_by_name(&text);
    let missing = || Refused::new(errno::ENOENT, format!("pool '{text}' does not exist"));
    by_name.or_else(|| text.parse().ok().map(PoolId)).ok_or_else(missing)
}

fn add_data_pool(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = changed(c)?;
    let pool = pool_arg(c)?;
    if fs.mds_map.data_pools.contains(&pool) {
        return done(format!("data pool {} is already on fs {}", pool.0, fs.mds_map.fs_name));
    }
    let map = c.map();
    check_pool(&map, pool, Use::MoreData, false, false)?;
    enable_app(c, pool, "data", &fs.mds_map.fs_name);
    modify(c, fs.fscid, |f| f.mds_map.data_pools.push(pool));
    committed(format!("added data pool {} to fsmap", pool.0))
}

fn rm_data_pool(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = changed(c)?;
    let pool = pool_arg(c)?;
    if pool.0 < 0 {
        return invalid(format!("invalid pool id '{}'", pool.0));
    }
    if fs.mds_map.data_pools.first() == Some(&pool) {
        return invalid("cannot remove default data pool");
    }
    if !fs.mds_map.data_pools.contains(&pool) {
        return done("");
    }
    modify(c, fs.fscid, |f| f.mds_map.data_pools.retain(|p| *p != pool));
    committed(format!("removed data pool {} from fsmap", pool.0))
}

fn set_default(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = changed(c)?;
    edit(c).map_mut().legacy_client_fscid = fs.fscid;
    committed("")
}

fn compat_show(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = seen(c)?;
    let compat = &fs.mds_map.compat;
    c.tree("mds_compat", || show::compat_tree(compat)).text(|| show::compat_text(compat))
}

fn compat(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = changed(c)?;
    let subop = c.args.str("subop")?;
    let feature = c.args.int("feature").and_then(|n| u64::try_from(n).ok()).filter(|n| (1..64).contains(n));
    let Some(feature) = feature else { return invalid("Invalid feature") };
    if !fs.mds_map.up.is_empty() {
        return refuse(errno::EBUSY, "file system must be failed or down; use `ceph fs fail` to bring down");
    }
    let mut compat = fs.mds_map.compat.clone();
    let (kind, add) = (subop.trim_start_matches("add_").trim_start_matches("rm_"), subop.starts_with("add_"));
    let set = if kind == "compat" { &mut compat.compat } else { &mut compat.incompat };
    let text = if add {
        let Some(name) = c.args.opt("feature_str").filter(|s| !s.is_empty()) else {
            return invalid("adding a feature requires a feature string");
        };
        match set.names.get(&feature).filter(|_| set.contains(feature)) {
            Some(n) if *n == name => "feature already exists".to_owned(),
            Some(n) => return refuse(errno::EEXIST, format!("feature with differing name `{n}' exists")),
            None => {
                set.insert(feature, &name);
                format!("added {kind} feature F({feature}, \"{name}\")")
            }
        }
    } else if set.contains(feature) {
        set.remove(feature);
        format!("removed {kind} feature {feature}")
    } else {
        format!("already removed {kind} feature {feature}")
    };
    modify(c, fs.fscid, |f| f.mds_map.compat = compat);
    committed(text)
}

fn required(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = changed(c)?;
    let (subop, val) = (c.args.str("subop")?, c.args.str("val")?);
    let named = FEATURES.iter().position(|n| *n == val && val != "reserved");
    let bit = match named {
        Some(b) => b,
        None => match val.parse::<i64>() {
            Err(_) => return invalid(format!("Invalid feature name: {val}")),
            Ok(n) => match usize::try_from(n) {
                Ok(b) if b < FEATURES.len() => b,
                _ => return invalid(format!("Invalid feature id: {n}")),
            },
        },
    };
    let name = FEATURES.get(bit).copied().unwrap_or("unknown");
    let (add, had) = (subop == "add", fs.mds_map.requires_client(bit));
    if add == had {
        return done(format!("feature '{name}' is already {}", if add { "set" } else { "unset" }));
    }
    modify(c, fs.fscid, |f| f.mds_map.require_client(bit, add));
    committed(if add {
        format!("added feature '{name}' to required_client_features")
    } else {
        format!("removed feature '{name}' from required_client_features")
    })
}

fn mirror_enable(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = changed(c)?;
    if fs.mirror_info.mirrored {
        return done("");
    }
    modify(c, fs.fscid, |f| f.mirror_info.mirrored = true);
    committed("")
}

fn mirror_disable(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = changed(c)?;
    if !fs.mirror_info.mirrored {
        return done("");
    }
    modify(c, fs.fscid, |f| f.mirror_info = MirrorInfo::default());
    committed("")
}

fn peer_add(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = changed(c)?;
    if !fs.mirror_info.mirrored {
        return invalid(format!("Mirroring not enabled for filesystem '{}'", fs.mds_map.fs_name));
    }
    let uuid = c.args.str("uuid")?;
    let spec = c.args.str("remote_cluster_spec")?;
    let Some((client, cluster)) = spec.split_once('@') else {
        return invalid("invalid remote cluster spec -- should be <client>@<cluster>");
    };
    let remote = MirrorCluster {
        client_name: client.to_owned(),
        cluster_name: cluster.to_owned(),
        fs_name: c.args.str("remote_fs_name")?,
    };
    if fs.mirror_info.peers.iter().any(|p| p.uuid == uuid || p.remote == remote) {
        return done("peer already exists");
    }
    if fs.mirror_info.peers.len() >= MAX_PEERS {
        return invalid(format!("no more than {MAX_PEERS} peers"));
    }
    modify(c, fs.fscid, |f| {
        f.mirror_info.peers.push(MirrorPeer { uuid, remote });
        f.mirror_info.peers.sort_by(|a, b| a.uuid.cmp(&b.uuid));
    });
    committed("")
}

fn peer_remove(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = changed(c)?;
    if !fs.mirror_info.mirrored {
        return invalid(format!("Mirroring not enabled for filesystem '{}'", fs.mds_map.fs_name));
    }
    let uuid = c.args.str("uuid")?;
    if !fs.mirror_info.peers.iter().any(|p| p.uuid == uuid) {
        return done(format!("cannot find peer with uuid: {uuid}"));
    }
    modify(c, fs.fscid, |f| f.mirror_info.peers.retain(|p| p.uuid != uuid));
    committed("")
}
