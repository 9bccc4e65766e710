//! MDS daemons and ranks.

use super::{BEHIND, Ctx, Refused, Res, edit, invalid, is_behind, map, may_change, refuse, show, truth, view};
use crate::command::{Cmd, CommandOutcome, cmd, committed, done, flag as cf};
use crate::json::J;
use crate::obj;
use crate::state::log::Prio;
use base::errno;
use std::collections::BTreeSet;
use wire::types::{FsMap, mds_state};

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd("mds stat", "mds", "r", cf::HIDDEN, stat, "show the state of metadata servers"),
    cmd("mds metadata who:String?", "mds", "r", 0, metadata, "show the metadata that metadata servers report"),
    cmd("mds ok-to-stop ids:String*", "mds", "r", 0, ok_to_stop, "check whether metadata servers can stop"),
    cmd(
        "mds fail role_or_gid:String yes_i_really_mean_it:Bool?",
        "mds",
        "rw",
        0,
        fail,
        "fail a metadata server: a standby takes its rank",
    ),
    cmd("mds repaired role:String", "mds", "rw", 0, repaired, "mark a damaged rank as repaired"),
    cmd("mds rm gid:Int[0]", "mds", "rw", 0, rm, "remove an inactive metadata server from the map"),
    cmd(
        "mds rmfailed role:String yes_i_really_mean_it:Bool?",
        "mds",
        "rw",
        cf::HIDDEN,
        rmfailed,
        "remove a rank from the failed ranks",
    ),
    cmd(
        "mds freeze role_or_gid:String val:String",
        "mds",
        "rw",
        cf::HIDDEN,
        freeze,
        "freeze a metadata server: it keeps its rank even if it is silent",
    ),
    cmd("mds compat show", "mds", "r", cf::DEPRECATED, compat_show, "show the on-disk features of a new file system"),
    cmd(
        "mds compat rm_compat feature:Int[0]",
        "mds",
        "rw",
        cf::DEPRECATED,
        |c| compat_rm(c, "compat"),
        "remove a compatible feature of new file systems",
    ),
    cmd(
        "mds compat rm_incompat feature:Int[0]",
        "mds",
        "rw",
        cf::DEPRECATED,
        |c| compat_rm(c, "incompat"),
        "remove an incompatible feature of new file systems",
    ),
    cmd("mds last-seen id:String", "mds", "r", 0, last_seen, "show when a metadata server was last seen"),
];

/// A rank written as `RANK`, `NAME:RANK` or `ID:RANK`.
fn role(map: &FsMap, text: &str) -> Res<(i32, i32)> {
    let (fs, rank) = match text.split_once(':') {
        None => {
            let fs = map.filesystems.get(&map.legacy_client_fscid);
            (fs.ok_or_else(|| Refused::new(errno::ENOENT, "No filesystem selected"))?, text)
        }
        Some((name, rank)) => {
            let by_id = name.parse().ok().and_then(|id: i32| map.filesystems.get(&id));
            let fs = by_id.or_else(|| map.fs_by_name(name));
            (fs.ok_or_else(|| Refused::new(errno::ENOENT, "Invalid filesystem"))?, rank)
        }
    };
    let n: i32 = match rank.parse() {
        Ok(n) if n >= 0 => n,
        _ => return invalid(format!("Invalid rank '{rank}'")),
    };
    if !fs.mds_map.ranks_in.contains(&n) {
        return refuse(errno::ENOENT, format!("Rank '{n}' not found"));
    }
    Ok((fs.fscid, n))
}

/// A daemon by the rank it holds, its global id or its name.
fn daemon(map: &FsMap, text: &str) -> Option<u64> {
    if let Ok((fscid, rank)) = role(map, text)
        && let Some(i) = map.filesystems.get(&fscid).and_then(|f| f.mds_map.holder(rank))
    {
        return Some(i.global_id);
    }
    match text.parse::<u64>() {
        Ok(gid) => map.daemon(gid).map(|i| i.global_id),
        Err(_) => map.daemon_by_name(text).map(|i| i.global_id),
    }
}

fn no_such(text: &str) -> String {
    format!("MDS named '{text}' does not exist, or is not up")
}

/// Refuses the command if the session may not change the file system. A daemon without a rank belongs to no file
/// system, so every session may change it.
fn permitted(c: &Ctx<'_>, fscid: i32) -> Res<()> {
    let map = c.pending.fsmap.as_ref().unwrap_or(&c.state.fs.map);
    match map.filesystems.get(&fscid) {
        Some(f) if !may_change(c, &f.mds_map.fs_name) => refuse(errno::EPERM, "Permission denied."),
        _ => Ok(()),
    }
}

fn stat(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = view(c);
    let oldest = c.state.fs.epochs.first_key_value().map_or(c.state.fs.map.epoch, |(e, _)| *e);
    let tree = || {
        obj! {
            "fsmap": show::tree(&map),
            "mdsmap_first_committed": oldest.0,
            "mdsmap_last_committed": c.state.fs.map.epoch.0,
        }
    };
    c.tree("mds_stat", tree).text(|| show::summary(&map) + "\n")
}

fn told(c: &Ctx<'_>, gid: u64) -> Option<J> {
    let m = c.state.fs.metadata.get(&gid)?;
    Some(J::Obj(m.iter().map(|(k, v)| (k.clone().into(), v.into())).collect()))
}

fn metadata(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = view(c);
    let Some(who) = c.args.opt("who") else {
        let one = |i: &wire::types::MdsInfo| {
            let mut j = obj! { "name": &i.name };
            if let Some(m) = told(c, i.global_id) {
                j.merge(m);
            }
            j
        };
        return c.show("mds_metadata", &map.daemons().map(one).collect());
    };
    match daemon(&map, &who) {
        None => Ok(CommandOutcome { rc: errno::EINVAL, rs: no_such(&who), ..c.show("mds_metadata", &J::object())? }),
        Some(gid) => match told(c, gid) {
            Some(m) => c.show("mds_metadata", &m),
            None => refuse(errno::ENOENT, ""),
        },
    }
}

fn ok_to_stop(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = view(c);
    let ids = c.args.list("ids");
    if map.filesystems.values().any(|f| f.mds_map.is_degraded()) {
        return refuse(errno::EBUSY, "one or more filesystems is currently degraded");
    }
    let stopping: BTreeSet<u64> = ids.iter().filter_map(|i| daemon(&map, i)).collect();
    let (mut active, mut standby) = (BTreeSet::new(), BTreeSet::new());
    for gid in &stopping {
        let Some(info) = map.daemon(*gid) else { continue };
        match map.fs_of(*gid) {
            None => {
                standby.insert(*gid);
            }
            Some(fs) if info.is_follower() => _ = fs,
            Some(fs) => {
                if fs.mds_map.follower(info.rank).is_none_or(|f| stopping.contains(&f.global_id)) {
                    active.insert(*gid);
                }
            }
        }
    }
    if map.standby_daemons.len().saturating_sub(standby.len()) < active.len() {
        let list = |s: &BTreeSet<u64>| s.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        return refuse(
            errno::EBUSY,
            format!(
                "insufficent standby MDS daemons to stop active gids {} and/or standby gids {}",
                list(&active),
                list(&standby)
            ),
        );
    }
    done(format!("should be safe to stop [{}]", ids.join(",")))
}

fn fail(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let who = c.args.str("role_or_gid")?;
    let map = edit(c).map().clone();
    let Some(gid) = daemon(&map, &who) else {
        let mut text = String::new();
        if who.parse::<u64>().is_err() {
            text += &no_such(&who);
        }
        return done(format!("{text}MDS named '{who}' does not exist, is not up or you lack the permission to see."));
    };
    if let Some(fs) = map.fs_of(gid) {
        permitted(c, fs.fscid)?;
    }
    if !c.args.flag("yes_i_really_mean_it") && is_behind(c.state.fs.health.get(&gid)) {
        return refuse(errno::EPERM, BEHIND);
    }
    let name = map.daemon(gid).map(wire::types::MdsInfo::human_name).unwrap_or_default();
    let by = c.session.principal.who.name.to_string();
    let mut e = edit(c);
    e.fail(gid);
    e.log(Prio::INFO, format!("{name} marked failed by {by}"));
    committed(format!("failed mds gid {gid}"))
}

fn repaired(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let text = c.args.str("role")?;
    let map = view(c);
    let (fscid, rank) = role(&map, &text)?;
    permitted(c, fscid)?;
    let mut e = edit(c);
    if !e.map().filesystems.get(&fscid).is_some_and(|f| f.mds_map.damaged.contains(&rank)) {
        return done("nothing to do: rank is not damaged");
    }
    let now = e.wall();
    map::repaired(e.map_mut(), now, fscid, rank);
    committed(format!("repaired: restoring rank {fscid}:{rank}"))
}

fn rm(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let n = c.args.int("gid").unwrap_or(-1);
    let gid = n as u64;
    let map = edit(c).map().clone();
    let Some(info) = map.daemon(gid) else {
        return done(format!("mds gid {n} does not exist"));
    };
    if let Some(fs) = map.fs_of(gid) {
        permitted(c, fs.fscid)?;
    }
    if info.state > 0 {
        return refuse(errno::EBUSY, format!("cannot remove active mds.{} rank {}", info.name, info.rank));
    }
    edit(c).fail(gid);
    committed(format!("removed mds gid {gid}"))
}

fn rmfailed(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    if !c.args.flag("yes_i_really_mean_it") {
        return refuse(
            errno::EPERM,
            "WARNING: this can make your filesystem inaccessible! Add --yes-i-really-mean-it if you are sure you wish to continue.",
        );
    }
    let text = c.args.str("role")?;
    let map = view(c);
    let (fscid, rank) =
        role(&map, &text).map_err(|e| Refused::new(errno::EINVAL, format!("{}invalid role '{text}'", e.rs)))?;
    permitted(c, fscid)?;
    super::modify(c, fscid, |f| {
        f.mds_map.failed.remove(&rank);
    });
    committed(format!("removed failed mds.{fscid}:{rank}"))
}

fn freeze(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let who = c.args.str("role_or_gid")?;
    let map = edit(c).map().clone();
    let Some(gid) = daemon(&map, &who) else { return invalid(no_such(&who)) };
    if let Some(fs) = map.fs_of(gid) {
        permitted(c, fs.fscid)?;
    }
    let on = truth(&c.args.str("val")?)?;
    let mut e = edit(c);
    let now = e.wall();
    map::modify_daemon(e.map_mut(), now, gid, |i| i.set_frozen(on));
    committed(format!("{} mds.{gid}", if on { "freezing" } else { "unfreezing" }))
}

fn compat_show(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let compat = edit(c).map().default_compat.clone();
    c.tree("mds_compat", || show::compat_tree(&compat)).text(|| show::compat_text(&compat))
}

fn compat_rm(c: &mut Ctx<'_>, kind: &str) -> Res<CommandOutcome> {
    let n = c.args.int("feature").unwrap_or(0) as u64;
    let mut compat = edit(c).map().default_compat.clone();
    let set = if kind == "compat" { &mut compat.compat } else { &mut compat.incompat };
    if !set.contains(n) {
        return done(format!("{kind} feature {n} not present in {}", show::compat_text(&compat)));
    }
    set.remove(n);
    edit(c).map_mut().default_compat = compat;
    committed(format!("removing {kind} feature {n}"))
}

fn last_seen(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    use wire::Decode;
    let id = c.args.str("id")?;
    let mut since = 0;
    for (epoch, blob) in c.state.fs.epochs.iter().rev() {
        let Ok(map) = FsMap::from_bytes(blob) else { continue };
        if let Some(i) = map.daemon_by_name(&id) {
            let ago = || format!("{since}s");
            let state = mds_state::name(i.state);
            let info = obj! { "gid": i.global_id, "name": &i.name, "rank": i.rank, "state": state };
            let tree = || obj! { "info": info, "last-seen": ago(), "epoch": epoch.0 };
            return c.tree("mds last-seen", tree).text(ago);
        }
        since = c.now.wall.sec.saturating_sub(map.btime.unwrap_or_default().sec);
    }
    refuse(errno::ENOENT, format!("mds {id} not found in recent FSMaps"))
}
