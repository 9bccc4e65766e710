//! File systems and metadata servers: none yet, and these commands say so.

use super::json::J;
use super::{Cmd, Ctx, Res, cmd, done, flag as cf, plain, refuse};
use crate::core::cluster_state::CommandOutcome;
use crate::obj;
use base::errno;

/// Commands of this module.
pub(super) const COMMANDS: &[Cmd] = &[
    cmd("fs ls", "fs", "r", 0, ls, "list file systems"),
    cmd("fs dump epoch:Int[0]?", "mds", "r", 0, dump, "show the map of file systems"),
    cmd("fs get fs_name:String", "fs", "r", 0, get, "show a file system"),
    cmd("fs feature ls", "mds", "r", 0, features, "list features of file system clients"),
    cmd("fs status fs:String?", "mgr", "r", cf::MGR, status, "show the state of file systems"),
    cmd(
        "fs new fs_name:String{[A-Za-z0-9-_.]} metadata:String data:String force:Bool? allow_dangerous_metadata_overlay:Bool?",
        "fs",
        "rw",
        0,
        new,
        "make a file system (not supported)",
    ),
    cmd("fs rm fs_name:String yes_i_really_mean_it:Bool?", "fs", "rw", 0, rm, "remove a file system"),
    cmd(
        "fs flag set flag_name:Choices(enable_multiple) val:String yes_i_really_mean_it:Bool?",
        "fs",
        "rw",
        0,
        |_| done(""),
        "set a flag of all file systems",
    ),
    cmd("mds stat", "mds", "r", cf::HIDDEN, mds_stat, "show the state of metadata servers"),
    cmd("mds metadata who:String?", "mds", "r", 0, mds_metadata, "show what metadata servers told about themselves"),
    cmd("mds fail role_or_gid:String", "mds", "rw", 0, mds_fail, "take the role from a metadata server"),
    cmd("mds ok-to-stop ids:String*", "mds", "r", 0, mds_ok_to_stop, "check whether metadata servers can stop"),
];

/// On-disk features a metadata server of Pacific starts with.
const INCOMPAT: [(u32, &str); 9] = [
    (1, "base v0.20"),
    (2, "client writeable ranges"),
    (3, "default file layouts on dirs"),
    (4, "dir inode in separate object"),
    (5, "mds uses versioned encoding"),
    (6, "dirfrag is stored in omap"),
    (8, "no anchor table"),
    (9, "file layout v2"),
    (10, "snaprealm v2"),
];

const FEATURES: [&str; 19] = [
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
];

/// The (empty) map of file systems.
pub(super) fn fsmap_tree(c: &Ctx<'_>) -> J {
    let incompat = INCOMPAT.iter().map(|(n, t)| (format!("feature_{n}").into(), J::from(*t))).collect();
    obj! {
        "epoch": c.state.fsmap_epoch.0,
        "default_fscid": -1,
        "compat": obj! { "compat": J::object(), "ro_compat": J::object(), "incompat": J::Obj(incompat) },
        "feature_flags": obj! { "enable_multiple": true, "ever_enabled_multiple": true },
        "standbys": Vec::<J>::new(),
        "filesystems": Vec::<J>::new(),
    }
}

fn ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    if c.structured() { c.show_line("filesystems", &J::Arr(Vec::new())) } else { plain("No filesystems enabled\n") }
}

fn dump(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let e = c.state.fsmap_epoch;
    if let Some(n) = c.args.int("epoch").filter(|n| *n > 0 && *n != i64::from(e.0)) {
        return refuse(errno::ENOENT, format!("there is no map for epoch {n}"));
    }
    let out = if c.structured() {
        c.render("fsmap", &fsmap_tree(c))
    } else {
        let f: Vec<String> = INCOMPAT.iter().map(|(n, t)| format!("{n}={t}")).collect();
        format!(
            "e{e}\nenable_multiple, ever_enabled_multiple: 1,1\ndefault compat: compat={{}},rocompat={{}},incompat={{{}}}\nlegacy client fscid: -1\n \nNo filesystems configured\n",
            f.join(",")
        )
    };
    Ok(CommandOutcome { rs: format!("dumped fsmap epoch {e}"), ..CommandOutcome::output(out) })
}

fn get(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    refuse(errno::ENOENT, format!("filesystem '{}' not found", c.args.str("fs_name")?))
}

fn features(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    if c.structured() {
        let j: J = FEATURES.iter().enumerate().map(|(i, n)| obj! { "index": i, "name": *n }).collect();
        return c.show("features", &j);
    }
    plain(FEATURES.iter().enumerate().map(|(i, n)| format!("{i} {n}\n")).collect::<String>())
}

fn status(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    if let Some(f) = c.args.opt("fs") {
        return refuse(errno::EINVAL, format!("Filesystem not found: {f}"));
    }
    if c.structured() { c.show("fs_status", &J::object()) } else { plain("") }
}

fn new(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    for key in ["metadata", "data"] {
        let pool = c.args.str(key)?;
        if c.state.osdmap.pool_by_name(&pool).is_none() {
            return refuse(errno::ENOENT, format!("pool '{pool}' does not exist"));
        }
    }
    refuse(errno::EOPNOTSUPP, "file systems are not supported yet")
}

fn rm(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    done(format!("filesystem '{}' does not exist", c.args.str("fs_name")?))
}

fn mds_stat(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    if !c.structured() {
        return plain("\n");
    }
    let e = c.state.fsmap_epoch.0;
    c.show("mds_stat", &obj! { "fsmap": fsmap_tree(c), "mdsmap_first_committed": 1, "mdsmap_last_committed": e })
}

fn mds_metadata(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    match c.args.opt("who") {
        Some(w) => Ok(CommandOutcome {
            out: J::object().pretty().into(),
            ..CommandOutcome::fail(errno::EINVAL, format!("MDS named '{w}' does not exist, or is not up"))
        }),
        None => c.show("mds_metadata", &J::Arr(Vec::new())),
    }
}

fn mds_fail(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let w = c.args.str("role_or_gid")?;
    done(format!("MDS named '{w}' does not exist, is not up or you lack the permission to see."))
}

fn mds_ok_to_stop(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    done(format!("should be safe to stop [{}]", c.args.list("ids").join(",")))
}
