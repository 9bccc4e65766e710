//! File systems and their MDS daemons.
//!
//! | file | commands |
//! |---|---|
//! | this one | the list of file systems, and what the other files share |
//! | [`authorize`] | `fs authorize`: a key for paths of a file system |
//! | [`life`] | making, failing, renaming and removing file systems |
//! | [`pools`] | pools of a file system |
//! | [`features`] | features of file systems |
//! | [`mirror`] | mirrors of file systems |
//! | [`set`] | `fs set` |
//! | [`show`] | the FSMap as tree and as text |
//! | [`mds`] | daemons and ranks |
//! | [`subvolume`] | commands of the manager on the contents: `fs subvolumegroup`, `fs subvolume`, `fs clone` |
//! | [`snap_schedule`] | commands of the manager: `fs snap-schedule` |
//! | [`volume`] | commands of the manager: `fs volume`, `fs status` |
//!
//! A client whose monitor capability names file systems sees and changes only those.

pub(super) mod authorize;
mod features;
mod life;
pub(super) mod mds;
mod mirror;
mod pools;
mod set;
pub(in crate::command) mod show;
pub(super) mod snap_schedule;
pub(super) mod subvolume;
pub(super) mod volume;

use super::{Cmd, CommandOutcome, Ctx, Refused, Res, cmd, committed, flag as cf, invalid, refuse};
use crate::json::J;
use crate::obj;
use crate::state::fs::edit::FsEdit;
use crate::state::fs::map;
use base::{Epoch, PoolId, errno};
use cluster::OsdMap;
use features::{compat, compat_show, features, required};
use life::{fail, new, rename, reset, rm, swap};
use mirror::{mirror_disable, mirror_enable, peer_add, peer_remove};
use pools::{add_data_pool, rm_data_pool, set_default};
use wire::Decode;
use wire::types::{Filesystem, FsMap, MdsHealth};

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

fn flag_set(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let text = c.args.str("val")?;
    let on = truth(&text).map_err(|e| Refused::new(e.rc, format!("{}Invalid boolean value '{text}'", e.rs)))?;
    let mut e = edit(c);
    let m = e.map_mut();
    m.enable_multiple = on;
    m.ever_enabled_multiple |= on;
    committed("")
}
