//! Erasure-code profiles: set, shown, removed.
//!
//! A profile that a pool uses never changes, because the layout of the pool's shards depends on it. Ceph allows it
//! with `--force`.
//!
//! `shape` has the content of a profile: defaults, checks, and the shape of the pools that use it.

mod shape;

pub(in crate::command) use shape::{Profile, Shape, complete, stripe_width};

use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd, committed, done, invalid, refuse};
use crate::json::J;
use crate::state::ClusterState;
use base::{OsdId, errno};
use cluster::{OsdMap, PgPool};

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd(
        "osd erasure-code-profile set name:String{[A-Za-z0-9-_.]} profile:String*? force:Bool? yes_i_really_mean_it:Bool?",
        "osd",
        "rw",
        0,
        set,
        "make an erasure-code profile",
    ),
    cmd("osd erasure-code-profile get name:String{[A-Za-z0-9-_.]}", "osd", "r", 0, get, "show an erasure-code profile"),
    cmd(
        "osd erasure-code-profile rm name:String{[A-Za-z0-9-_.]}",
        "osd",
        "rw",
        0,
        rm,
        "remove an erasure-code profile",
    ),
    cmd("osd erasure-code-profile ls", "osd", "r", 0, ls, "list erasure-code profiles"),
];

/// Names of the pools that use a profile.
fn users<'a>(map: &'a OsdMap, name: &str) -> Vec<&'a str> {
    let uses = map.pools.iter().filter(|(_, p)| p.erasure_code_profile == name);
    uses.filter_map(|(id, _)| map.pool_name(*id)).collect()
}

/// A profile with all defaults filled in, and the shape of its pools. Error: ENOENT, or the refusal of the profile.
pub(in crate::command) fn find(map: &OsdMap, name: &str) -> Res<(Profile, Shape)> {
    let mut p = map.erasure_code_profiles.get(name).cloned().unwrap_or_default();
    if !p.contains_key("plugin") {
        let text = shape::text(&p);
        return invalid(format!(
            "cannot determine the erasure code plugin because there is no 'plugin' entry in the erasure_code_profile {text}"
        ));
    }
    let shape = complete(&mut p, true)?;
    Ok((p, shape))
}

/// The type of the OSD's object store, from its boot metadata.
fn object_store(state: &ClusterState, osd: OsdId) -> Option<&str> {
    state.osds.metadata.get(&osd)?.get("osd_objectstore").map(String::as_str)
}

/// Refuses an OSD of this program whose metadata names no erasure-code plugins: it is of a build that cannot store
/// shards, and names its store. Ceph's OSDs can.
pub(in crate::command) fn check_osd(state: &ClusterState, osd: OsdId) -> Res<()> {
    let knows = state.osds.metadata.get(&osd).is_some_and(|m| m.contains_key("erasure_code_plugins"));
    if object_store(state, osd) != Some("belemnite") || knows {
        return Ok(());
    }
    refuse(
        errno::EOPNOTSUPP,
        format!(
            "{osd} does not serve erasure-coded pools (its metadata has no 'erasure_code_plugins'): upgrade it first"
        ),
    )
}

/// Refuses overwrites if an OSD of the pool has a store that cannot roll them back.
pub(in crate::command) fn check_overwrites(state: &ClusterState, map: &OsdMap, pool: &PgPool) -> Res<()> {
    for (osd, _) in map.crush.rule_osd_shares(pool.crush_rule.into()).into_iter().filter(|(_, share)| *share > 0.0) {
        if let Some(store) = object_store(state, OsdId(osd)).filter(|s| !matches!(*s, "bluestore" | "belemnite")) {
            return invalid(format!(
                "pool must only be stored on bluestore for scrubbing to work: osd.{osd} uses {store}"
            ));
        }
    }
    Ok(())
}

fn set(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("name")?;
    if name.is_empty() {
        return invalid("erasure-code-profile name must not be empty");
    }
    let mut words = c.args.list("profile");
    // Clients that do not know the flag send it among the profile's words.
    let force = c.args.flag("force") || words.iter().any(|w| w == "--force");
    words.retain(|w| !matches!(w.as_str(), "--force" | "--yes-i-really-mean-it"));
    let map = c.map();
    let mut p =
        shape::parse(&words, &crate::state::config::mon_option(c.state, "osd_pool_default_erasure_code_profile"))?;
    shape::check_failure_domain(&p, &map.crush)?;
    complete(&mut p, force)?;
    if let Some(mut have) = map.erasure_code_profiles.get(&name).cloned() {
        // The default profile of a new cluster has no defaults filled in. An unsupported profile of an earlier build
        // stays as it is.
        let _unsupported = complete(&mut have, true).is_err();
        if have == p {
            return done("");
        }
        let users = users(&map, &name);
        if !users.is_empty() && force {
            return refuse(
                errno::EBUSY,
                format!(
                    "{} pool(s) are using the erasure code profile '{name}', and their shards are laid out by it: it can't be overridden; make another profile, and a pool with it",
                    users.join(" ")
                ),
            );
        }
        if !force {
            return refuse(
                errno::EPERM,
                format!(
                    "will not override erasure code profile {name} because the existing profile {} is different from the proposed profile {}",
                    shape::text(&have),
                    shape::text(&p)
                ),
            );
        }
    }
    let inc = c.inc();
    inc.old_erasure_code_profiles.retain(|n| *n != name);
    inc.new_erasure_code_profiles.insert(name, p);
    committed("")
}

fn get(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("name")?;
    let map = c.state.osdmap.clone();
    let Some(p) = map.erasure_code_profiles.get(&name) else {
        return refuse(errno::ENOENT, format!("unknown erasure code profile '{name}'"));
    };
    let tree = || J::Obj(p.iter().map(|(k, v)| (k.clone().into(), v.into())).collect());
    let text = || p.iter().map(|(k, v)| format!("{k}={v}\n")).collect::<String>();
    c.tree("profile", tree).line().text(text)
}

fn rm(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("name")?;
    let map = c.map();
    if !map.erasure_code_profiles.contains_key(&name) {
        return done(format!("erasure-code-profile {name} does not exist"));
    }
    let users = users(&map, &name);
    if !users.is_empty() {
        return refuse(
            errno::EBUSY,
            format!("{} pool(s) are using the erasure code profile '{name}'", users.join(" ")),
        );
    }
    let stored = c.state.osdmap.erasure_code_profiles.contains_key(&name);
    let inc = c.inc();
    inc.new_erasure_code_profiles.remove(&name);
    if stored {
        inc.old_erasure_code_profiles.push(name);
    }
    committed("")
}

fn ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = c.state.osdmap.clone();
    c.tree("profiles", || map.erasure_code_profiles.keys().collect::<J>()).line().line_each()
}
