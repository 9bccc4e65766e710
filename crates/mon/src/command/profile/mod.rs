//! Erasure-code profiles. They are kept, checked and shown; no pool can use one yet.

use super::json::J;
use super::units::strict_int;
use super::{Cmd, Ctx, Refused, Res, cmd, committed, done, invalid, plain, refuse};
use crate::core::cluster_state::CommandOutcome;
use base::errno;
use std::collections::BTreeMap;

/// Commands of this module.
pub(super) const COMMANDS: &[Cmd] = &[
    cmd(
        "osd erasure-code-profile set name:String{[A-Za-z0-9-_.]} profile:String*? force:Bool?",
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

type Profile = BTreeMap<String, String>;

fn text(p: &Profile) -> String {
    let v: Vec<String> = p.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{{{}}}", v.join(","))
}

/// Fills in what a profile leaves out, as the jerasure plugin does, and checks the numbers.
fn complete(p: &mut Profile) -> Res<()> {
    let plugin = p.entry("plugin".into()).or_insert_with(|| "jerasure".into()).clone();
    if !matches!(plugin.as_str(), "jerasure" | "isa") {
        return refuse(
            errno::EOPNOTSUPP,
            format!("erasure-code plugin '{plugin}' is not known here; profiles of jerasure and isa can be kept"),
        );
    }
    for (k, v) in [
        ("crush-device-class", ""),
        ("crush-failure-domain", "host"),
        ("crush-root", "default"),
        ("k", "2"),
        ("m", "2"),
    ] {
        p.entry(k.into()).or_insert_with(|| v.into());
    }
    p.entry("technique".into()).or_insert_with(|| "reed_sol_van".into());
    if plugin == "jerasure" {
        p.entry("jerasure-per-chunk-alignment".into()).or_insert_with(|| "false".into());
        p.entry("w".into()).or_insert_with(|| "8".into());
    }
    let number = |key: &str, min: i64| -> Res<()> {
        let v = p.get(key).map(String::as_str).unwrap_or_default();
        let n = strict_int(v)
            .map_err(|e| Refused::new(errno::EINVAL, format!("could not convert {key}={v} to int because {e}")))?;
        if n < min { invalid(format!("{key}={n} must be >= {min}")) } else { Ok(()) }
    };
    number("k", 2)?;
    number("m", 1)
}

fn set(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("name")?;
    if name.is_empty() {
        return invalid("erasure-code-profile name must not be empty");
    }
    let mut p = Profile::new();
    let mut force = c.args.flag("force");
    for w in c.args.list("profile") {
        if w == "--force" {
            force = true;
            continue;
        }
        let (k, v) = w.split_once('=').unwrap_or((&w, ""));
        if k.starts_with("ruleset-") {
            return invalid(format!(
                "property '{k}' is no longer supported; try 'crush-{}' instead",
                k.trim_start_matches("ruleset-")
            ));
        }
        p.insert(k.to_owned(), v.to_owned());
    }
    complete(&mut p)?;
    let map = c.map();
    if let Some(mut have) = map.erasure_code_profiles.get(&name).cloned() {
        // The profile of a fresh cluster is not filled in.
        if have == p {
            return done("");
        }
        if complete(&mut have).is_ok() && have == p {
            return done("");
        }
        if !force {
            return refuse(
                errno::EPERM,
                format!(
                    "will not override erasure code profile {name} because the existing profile {} is different from the proposed profile {}",
                    text(&have),
                    text(&p)
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
    if c.structured() {
        return c.show_line("profile", &J::Obj(p.iter().map(|(k, v)| (k.clone().into(), v.into())).collect()));
    }
    plain(p.iter().map(|(k, v)| format!("{k}={v}\n")).collect::<String>())
}

fn rm(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("name")?;
    let map = c.map();
    if !map.erasure_code_profiles.contains_key(&name) {
        return done(format!("erasure-code-profile {name} does not exist"));
    }
    let users: Vec<&str> = map
        .pools
        .iter()
        .filter(|(_, p)| p.erasure_code_profile == name)
        .filter_map(|(id, _)| map.pool_name(*id))
        .collect();
    if !users.is_empty() {
        return refuse(
            errno::EBUSY,
            format!("{} pool(s) are using the erasure code profile '{name}'", users.join(", ")),
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
    if c.structured() {
        return c.show_line("profiles", &map.erasure_code_profiles.keys().collect());
    }
    plain(map.erasure_code_profiles.keys().map(|n| format!("{n}\n")).collect::<String>())
}
