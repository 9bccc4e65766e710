//! Commands of the modules `rbd_support` and `progress`: background work on images.
//!
//! The host carries them out with a client of the cluster (`mgr::host::images`); this file does the part that needs
//! no client. Work that needs all of librbd is refused; the operator runs the `rbd` command for it.

use crate::command::{
    Cmd, CommandOutcome, Ctx, HostJob, Refused, Res, cmd, committed, flag as cf, invalid, plain, refuse,
};
use crate::state::{ClusterState, ConfigKey};
use base::{errno, errno::Errno};
use std::collections::BTreeMap;

/// Name of the manager module, in capabilities.
pub(crate) const MODULE: &str = "rbd_support";
/// The pool of an image specification that names none.
const DEFAULT_POOL: &str = "rbd";

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd("progress", "mgr", "r", cf::MGR, progress, "show background work in progress"),
    cmd("progress json", "mgr", "r", cf::MGR, progress, "show background work in progress as JSON"),
    cmd("progress on", "mgr", "rw", cf::MGR, |c| switch(c, true), "show progress of recovery and background work"),
    cmd("progress off", "mgr", "rw", cf::MGR, |c| switch(c, false), "show no progress"),
    cmd("progress clear", "mgr", "rw", cf::MGR, host, "clear the list of background work"),
    cmd("rbd task list task_id:String?", "mgr", "r", cf::MGR, host, "list background image tasks"),
    cmd("rbd task cancel task_id:String", "mgr", "r", cf::MGR, host, "cancel a background task"),
    cmd("rbd task add flatten image_spec:String", "mgr", "w", cf::MGR, add, "flatten an image in the background"),
    cmd("rbd task add remove image_spec:String", "mgr", "w", cf::MGR, add, "remove an image in the background"),
    cmd(
        "rbd task add trash remove image_id_spec:String",
        "mgr",
        "w",
        cf::MGR,
        add,
        "remove an image from the trash in the background",
    ),
    cmd(
        "rbd task add migration execute image_spec:String",
        "mgr",
        "w",
        cf::MGR,
        add,
        "execute an image migration in the background",
    ),
    cmd(
        "rbd task add migration commit image_spec:String",
        "mgr",
        "w",
        cf::MGR,
        add,
        "commit an executed migration in the background",
    ),
    cmd(
        "rbd task add migration abort image_spec:String",
        "mgr",
        "w",
        cf::MGR,
        add,
        "abort a prepared migration in the background",
    ),
    cmd(
        "rbd perf image stats pool_spec:String? sort_by:Choices(write_ops|write_bytes|write_latency|read_ops|read_bytes|read_latency)?",
        "mgr",
        "r",
        cf::MGR,
        host,
        "show image I/O rates",
    ),
    cmd(
        "rbd perf image counters pool_spec:String? sort_by:Choices(write_ops|write_bytes|write_latency|read_ops|read_bytes|read_latency)?",
        "mgr",
        "r",
        cf::MGR,
        host,
        "show image I/O counters",
    ),
    cmd(
        "rbd mirror snapshot schedule add level_spec:String interval:String start_time:String?",
        "mgr",
        "w",
        cf::MGR,
        host,
        "add a mirror snapshot schedule",
    ),
    cmd(
        "rbd mirror snapshot schedule remove level_spec:String interval:String? start_time:String?",
        "mgr",
        "w",
        cf::MGR,
        host,
        "remove a mirror snapshot schedule",
    ),
    cmd(
        "rbd mirror snapshot schedule list level_spec:String?",
        "mgr",
        "r",
        cf::MGR,
        host,
        "list mirror snapshot schedules",
    ),
    cmd(
        "rbd mirror snapshot schedule status level_spec:String?",
        "mgr",
        "r",
        cf::MGR,
        host,
        "show mirror snapshot schedules",
    ),
    cmd(
        "rbd trash purge schedule add level_spec:String interval:String start_time:String?",
        "mgr",
        "w",
        cf::MGR,
        host,
        "add a trash purge schedule",
    ),
    cmd(
        "rbd trash purge schedule remove level_spec:String interval:String? start_time:String?",
        "mgr",
        "w",
        cf::MGR,
        host,
        "remove a trash purge schedule",
    ),
    cmd("rbd trash purge schedule list level_spec:String?", "mgr", "r", cf::MGR, host, "list trash purge schedules"),
    cmd("rbd trash purge schedule status level_spec:String?", "mgr", "r", cf::MGR, host, "show trash purge schedules"),
];

/// Hands the command to the host.
pub(in crate::command) fn host(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let args = c.args.texts();
    Ok(CommandOutcome::host(HostJob { prefix: c.prefix, args, session: c.session.clone() }))
}

/// Option of the module `progress`.
const PROGRESS: &str = "mgr/progress/enabled";

/// True unless an operator has switched the display of progress off.
pub(in crate::command) fn shows_progress(state: &ClusterState) -> bool {
    let key = ConfigKey { who: "mgr".into(), name: PROGRESS.into() };
    !state.config.values.get(&key).is_some_and(|v| matches!(v.as_str(), "false" | "False" | "0"))
}

fn progress(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    if shows_progress(c.state) {
        return host(c);
    }
    let json = c.prefix == "progress json";
    plain(if json { "{\n    \"completed\": [],\n    \"events\": []\n}\n" } else { "Nothing in progress\n" })
}

fn switch(c: &mut Ctx<'_>, on: bool) -> Res<CommandOutcome> {
    let word = if on { "enabled" } else { "disabled" };
    if shows_progress(c.state) == on {
        return plain(format!("progress already {word}!\n"));
    }
    let key = ConfigKey { who: "mgr".into(), name: PROGRESS.into() };
    c.pending.set_config(key, Some(if on { "true" } else { "false" }.to_owned()));
    committed(format!("progress {word}"))
}

/// Checks the image specification and the sender's right to the pool, then hands the command to the host.
fn add(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let trash = c.prefix.ends_with("trash remove");
    let spec = c.args.str(if trash { "image_id_spec" } else { "image_spec" })?;
    let Some((pool, nspace, image)) = parse_spec(&spec) else {
        return invalid(format!("Invalid image{} spec: {spec}", if trash { " id" } else { "" }));
    };
    may(c, pool, nspace).map_err(|rc| Refused::new(rc, "access denied"))?;
    if c.map().pool_by_name(pool).is_none() {
        let text = format!("[errno 2] RADOS object not found (error opening pool '{pool}')");
        return refuse(errno::ENOENT, text);
    }
    let args = [("pool", pool), ("namespace", nspace), ("image", image)];
    let args = args.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    Ok(CommandOutcome::host(HostJob { prefix: c.prefix, args, session: c.session.clone() }))
}

fn may(c: &Ctx<'_>, pool: &str, nspace: &str) -> Result<(), Errno> {
    let args: BTreeMap<String, String> =
        [("pool".to_owned(), pool.to_owned()), ("namespace".to_owned(), nspace.to_owned())].into();
    if c.session.principal.allows_module(MODULE, "", &args, cluster::caps::Need::W) {
        Ok(())
    } else {
        Err(errno::EACCES)
    }
}

/// Pool, namespace and image of `[pool/[namespace/]]image`.
fn parse_spec(spec: &str) -> Option<(&str, &str, &str)> {
    let parts: Vec<&str> = spec.split('/').collect();
    let (pool, nspace, image) = match parts[..] {
        [image] => (DEFAULT_POOL, "", image),
        [pool, image] => (pool, "", image),
        [pool, nspace, image] => (pool, nspace, image),
        _ => return None,
    };
    (!pool.is_empty() && !image.is_empty() && !image.contains('@')).then_some((pool, nspace, image))
}

#[cfg(test)]
mod tests {
    use super::parse_spec;

    #[test]
    fn specifications() {
        assert_eq!(parse_spec("a"), Some(("rbd", "", "a")));
        assert_eq!(parse_spec("p/a"), Some(("p", "", "a")));
        assert_eq!(parse_spec("p/n/a"), Some(("p", "n", "a")));
        assert_eq!(parse_spec("p//a"), Some(("p", "", "a")));
        for bad in ["", "/", "p/", "/a", "a/b/c/d", "a@s", "p/a@s"] {
            assert_eq!(parse_spec(bad), None, "{bad}");
        }
    }
}
