//! The life of a file system: made, failed, reset, renamed, swapped, removed.

use super::pools::{Use, check_pool, enable_app, mark_pools};
use super::{BEHIND, changed, edit, is_behind, may_change, modify, set};
use crate::command::pool::make::set_opt;
use crate::command::{CommandOutcome, Ctx, Refused, Res, committed, done, invalid, refuse};
use crate::state::fs::map;
use crate::state::log::Prio;
use base::{PoolId, errno};
use cluster::pool::PoolOpt;
use wire::types::{Filesystem, FsMap, MdsMap, fs_flag};

pub(super) fn new(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs_name = c.args.str("fs_name")?;
    let (metadata, data) = (c.args.str("metadata")?, c.args.str("data")?);
    make(c, &fs_name, &metadata, &data)
}

/// Makes a file system of a metadata pool and a data pool.
pub(super) fn make(c: &mut Ctx<'_>, fs_name: &str, metadata_name: &str, data_name: &str) -> Res<CommandOutcome> {
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
pub(super) fn take_down(c: &mut Ctx<'_>, fs: &Filesystem) {
    modify(c, fs.fscid, |f| f.mds_map.set_flag(fs_flag::NOT_JOINABLE, true));
    let mut e = edit(c);
    for gid in fs.mds_map.mds_info.keys() {
        e.fail(*gid);
    }
}

pub(super) fn fail(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
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

pub(super) fn rm(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
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
pub(super) fn erase(c: &mut Ctx<'_>, fs: &Filesystem) {
    let mut e = edit(c);
    for gid in fs.mds_map.mds_info.keys() {
        e.fail(*gid);
    }
    let now = e.wall();
    map::remove_fs(e.map_mut(), now, fs.fscid);
}

pub(super) fn reset(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
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

pub(super) fn rename(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
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

pub(super) fn swap(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
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
    if a.fscid == b.fscid {
        return invalid(format!("'{n1}' is both file systems of the command; name two different ones"));
    }
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
