//! The central configuration: options by section and mask, their history, and the options in effect for an entity.
//!
//! | module | contents |
//! | --- | --- |
//! | `help` | `config help`, also about options that only a configuration file can set |
//! | `key` | the key-value store for daemons, modules and scripts |
//! | `secret` | values of options that are secrets |
//! | `show` | `config show`: the options of a running daemon, with the source of each, as the daemon reported them |

pub(super) mod help;
pub(super) mod key;
pub(super) mod secret;
mod show;

use super::language::text::{Left, Table};
use super::{Cmd, CommandOutcome, Ctx, Refused, Res, cmd, committed, flag as cf, invalid, option_table, plain, refuse};
use crate::json::J;
use crate::obj;
use crate::state::config::{Section, effective, parse_section};
use crate::state::{ClusterState, ConfigKey};
use base::{AuthName, EntityKind, errno};
use cluster::crush::DEFAULT_TYPES;
use cluster::option_texts;
use secret::{shown, shown_all};
use std::collections::BTreeMap;

/// Commands of this module.
pub(super) const COMMANDS: &[Cmd] = &[
    cmd(
        "config set who:String name:String value:String force:Bool?",
        "config",
        "rw",
        0,
        set,
        "set an option for some daemons or clients",
    ),
    cmd("config rm who:String name:String", "config", "rw", 0, rm, "remove an option"),
    cmd(
        "config get who:String key:String?",
        "config",
        "r",
        0,
        get,
        "show the options in effect for a daemon or client",
    ),
    cmd("config dump", "mon", "r", 0, dump, "show all options that are set"),
    cmd("config help key:String", "config", "r", 0, help::help, "describe an option"),
    cmd("config ls", "config", "r", 0, ls, "list the names of all options"),
    cmd(
        "config assimilate-conf",
        "config",
        "rw",
        0,
        assimilate,
        "import options from a configuration file given as input",
    ),
    cmd("config log num:Int?", "config", "r", 0, history, "show the last changes of the configuration"),
    cmd("config reset num:Int[0]", "config", "rw", 0, reset, "go back to an earlier version of the configuration"),
    cmd("config generate-minimal-conf", "config", "r", 0, minimal, "write the configuration file a client needs"),
    cmd(
        "config show who:String key:String?",
        "mgr",
        "r",
        cf::MGR,
        |c| show::show(c, false),
        "show the options of a running daemon",
    ),
    cmd(
        "config show-with-defaults who:String",
        "mgr",
        "r",
        cf::MGR,
        |c| show::show(c, true),
        "show the options of a running daemon, defaults too",
    ),
];

/// Changes that `config log` shows if the command gives no number.
const LOG_SHOWN: i64 = 10;
/// Longest configuration file to import, in bytes.
const CONF_MAX: usize = 1 << 20;
/// Longest value of an option, in bytes.
const VALUE_MAX: usize = 16 << 10;

fn mask_text(s: &Section<'_>) -> String {
    let mut v = Vec::new();
    if let Some((t, n)) = s.location {
        v.push(format!("{t}:{n}"));
    }
    if let Some(c) = s.class {
        v.push(format!("class:{c}"));
    }
    v.join("/")
}

fn level(name: &str) -> (&'static str, bool) {
    match option_table::find(name) {
        Some(o) => (o.level, o.runtime),
        // The table of options leaves out those of manager modules.
        None if name.starts_with("mgr/") => ("advanced", true),
        None => ("unknown", false),
    }
}

/// A section as users write it, without the blanks around its parts.
fn trimmed(who: &str) -> String {
    who.split('/').map(str::trim).collect::<Vec<_>>().join("/")
}

/// The section that the command names. Error: EINVAL if there is no such section.
fn target(c: &Ctx<'_>) -> Res<String> {
    let who = trimmed(&c.args.str("who")?);
    let bad = || Refused::new(errno::EINVAL, format!("unrecognized config target '{who}'"));
    let s = parse_section(&who).ok_or_else(bad)?;
    let base_ok = s.base == "global" || EntityKind::from_word(s.base).is_some() || AuthName::parse(s.base).is_some();
    let mask_ok = s
        .location
        .is_none_or(|(t, _)| c.state.osdmap.crush.type_id(t).is_some() || DEFAULT_TYPES.iter().any(|(_, n)| *n == t));
    if base_ok && mask_ok { Ok(who) } else { Err(bad()) }
}

fn option_name(c: &Ctx<'_>) -> Res<String> {
    // Users write option names with spaces and dashes too.
    Ok(c.args.str("name")?.replace([' ', '-'], "_"))
}

fn set(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let raw = c.args.str("name")?;
    let name = if raw.starts_with("mgr/") { raw } else { option_name(c)? };
    let (value, force) = (c.args.str("value")?, c.args.flag("force"));
    if value.len() > VALUE_MAX {
        return refuse(errno::E2BIG, "value too long");
    }
    let value = match option_table::find(&name) {
        Some(o) => {
            let v =
                o.normalize(&value).map_err(|e| Refused::new(errno::EINVAL, format!("error parsing value: {e}")))?;
            if o.is_local() {
                return invalid(format!("{name} is special and cannot be stored by the mon"));
            }
            v
        }
        None if name.starts_with("mgr/") => value,
        None => match option_texts::file_option(&name) {
            Some(o) => return invalid(help::only_in_file(o)),
            None if force => value,
            None => return invalid(format!("unrecognized config option '{name}'")),
        },
    };
    let who = target(c)?;
    let note = unused(c.state, &who, &name);
    let key = ConfigKey { who, name };
    if c.pending.config(c.state, &key) == Some(value.as_str()) && c.state.config.values.get(&key) == Some(&value) {
        return super::done(note);
    }
    c.pending.set_config(key, Some(value));
    committed(note)
}

/// Prefixes of options that only monitors, managers and OSDs have.
const OF_DAEMONS: [&str; 13] = [
    "bdev_",
    "bluefs_",
    "bluestore_",
    "filestore_",
    "journal_",
    "kstore_",
    "leveldb_",
    "memstore_",
    "mgr_",
    "mon_",
    "osd_",
    "paxos_",
    "rocksdb_",
];

/// A note for the operator that no daemon of this program in the section reads the option; else empty. The option is
/// stored all the same, because daemons of Ceph may run in the same cluster.
fn unused(state: &ClusterState, who: &str, name: &str) -> String {
    let base = parse_section(who).map_or(who, |s| s.base).split('.').next().unwrap_or_default();
    let ours = match base {
        "global" => OF_DAEMONS.iter().any(|p| name.starts_with(p)),
        "mgr" => !state.options.external_mgr,
        base => matches!(base, "mon" | "osd"),
    };
    if !ours || cluster::used_options::is_used(name) {
        return String::new();
    }
    let instead = option_texts::instead_of(name).map_or_else(String::new, |text| format!("; {text}"));
    format!("{name} is stored, but without effect on the monitors, the manager and the OSDs of this program{instead}")
}

fn rm(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let who = target(c)?;
    let raw = c.args.str("name")?;
    let name = if raw.starts_with("mgr/") { raw } else { option_name(c)? };
    let key = ConfigKey { who, name };
    if c.pending.config(c.state, &key).is_none() {
        return super::done("");
    }
    c.pending.set_config(key, None);
    committed("")
}

fn entity(who: &str) -> Option<AuthName> {
    AuthName::parse(who).or_else(|| Some(AuthName { kind: EntityKind::from_word(who)?, id: String::new() }))
}

/// One line of a table of options.
fn row(indent: usize, key: &ConfigKey, value: &str) -> [String; 6] {
    let s = parse_section(&key.who).unwrap_or(Section { base: &key.who, location: None, class: None });
    let (level, runtime) = level(&key.name);
    [
        format!("{}{}", " ".repeat(indent), s.base),
        mask_text(&s),
        level.into(),
        key.name.clone(),
        value.to_owned(),
        if runtime { String::new() } else { "*".into() },
    ]
}

fn table() -> Table {
    Table::new(&["WHO", "MASK", "LEVEL", "OPTION", "VALUE", "RO"].map(|h| (h, Left, Left)))
}

fn get(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let who = trimmed(&c.args.str("who")?);
    let Some(name) = entity(&who) else { return invalid(format!("unrecognized entity '{who}'")) };
    let all = shown_all(c, effective(c.state, &name));
    if let Some(key) = c.args.opt("key").filter(|k| !k.is_empty()) {
        let key = if key.starts_with("mgr/") { key } else { key.replace([' ', '-'], "_") };
        if key == "fsid" {
            return plain(format!("{}\n", c.state.fsid));
        }
        if let Some((_, v)) = all.get(&key) {
            return plain(format!("{v}\n"));
        }
        let daemon = name.kind != EntityKind::CLIENT;
        return match option_table::find(&key) {
            Some(o) => plain(format!("{}\n", o.default_for(daemon))),
            None => refuse(errno::ENOENT, format!("unrecognized key '{key}'")),
        };
    }
    let tree = || {
        let j = all
            .iter()
            .map(|(n, (k, v))| {
                let s = parse_section(&k.who).unwrap_or(Section { base: &k.who, location: None, class: None });
                let mut mask = J::object();
                if let Some((t, l)) = s.location {
                    mask.put("location_type", t).put("location_value", l);
                }
                if let Some(c) = s.class {
                    mask.put("device_class", c);
                }
                let e = obj! { "value": v, "section": s.base, "mask": mask, "can_update_at_runtime": level(n).1 };
                (n.clone().into(), e)
            })
            .collect();
        J::Obj(j)
    };
    let text = || {
        let mut t = table();
        for (k, v) in all.values() {
            t.row(row(0, k, v));
        }
        t.render()
    };
    c.tree("config", tree).text(text)
}

/// All options that are set, in the order of `config dump`, each with the indentation of its section.
fn sections(state: &ClusterState) -> Vec<(usize, ConfigKey, String)> {
    const KINDS: [&str; 5] = ["mon", "mgr", "osd", "mds", "client"];
    let mut v: Vec<_> = state
        .config
        .values
        .iter()
        .map(|(k, value)| {
            let s = parse_section(&k.who).unwrap_or(Section { base: &k.who, location: None, class: None });
            let (kind, id) = s.base.split_once('.').unwrap_or((s.base, ""));
            let depth = if s.base == "global" { 0 } else { 1 + usize::from(!id.is_empty()) };
            let rank = if depth == 0 { 0 } else { 1 + KINDS.iter().position(|w| *w == kind).unwrap_or(KINDS.len()) };
            ((rank, id.to_owned(), k.name.clone(), mask_text(&s)), depth * 2, k.clone(), value.clone())
        })
        .collect();
    v.sort_by(|a, b| a.0.cmp(&b.0));
    v.into_iter().map(|(_, d, k, value)| (d, k, value)).collect()
}

fn dump(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let all: Vec<_> = sections(c.state).into_iter().map(|(n, k, v)| (n, shown(c, &k.name, &v).to_owned(), k)).collect();
    let tree = || {
        all.iter()
            .map(|(_, v, k)| {
                let s = parse_section(&k.who).unwrap_or(Section { base: &k.who, location: None, class: None });
                let (level, runtime) = level(&k.name);
                let mut j = obj! {
                    "section": s.base, "name": &k.name, "value": v, "level": level,
                    "can_update_at_runtime": runtime, "mask": mask_text(&s),
                };
                if let Some((t, l)) = s.location {
                    j.put("location_type", t).put("location_value", l);
                }
                if let Some(c) = s.class {
                    j.put("device_class", c);
                }
                j
            })
            .collect::<J>()
    };
    let text = || {
        let mut t = table();
        for (indent, v, k) in &all {
            t.row(row(*indent, k, v));
        }
        t.render()
    };
    c.tree("config", tree).text(text)
}

fn ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    c.tree("options", || option_table::all().map(|o| o.name).collect::<J>()).line_each()
}

fn assimilate(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    if c.input.len() > CONF_MAX {
        return refuse(errno::E2BIG, format!("a configuration file has at most {CONF_MAX} bytes"));
    }
    let text = String::from_utf8_lossy(c.input).into_owned();
    let mut section = String::from("global");
    let mut rest: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut taken = false;
    for line in text.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || line.starts_with(';') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = name.trim().to_owned();
            continue;
        }
        let Some((k, v)) = line.split_once('=') else {
            return invalid(format!("failed to parse the line '{line}'"));
        };
        let (k, v) = (k.trim().replace([' ', '-'], "_"), v.trim().to_owned());
        let short = v.len() <= VALUE_MAX && section.len() <= VALUE_MAX / 16;
        let option = option_table::find(&k).filter(|o| short && !o.is_local());
        let usable = option.and_then(|o| o.normalize(&v).ok());
        let place = section == "global" || entity(&section).is_some();
        match usable.filter(|_| place) {
            Some(v) => {
                let key = ConfigKey { who: section.clone(), name: k };
                // Values that the database already has take precedence, as in Ceph.
                if c.pending.config(c.state, &key).is_none() {
                    c.pending.set_config(key, Some(v));
                    taken = true;
                }
            }
            None => {
                rest.entry(section.clone()).or_default().insert(k, v);
            }
        }
    }
    let mut s = String::new();
    for (section, kv) in rest {
        s += &format!("\n[{section}]\n");
        for (k, v) in kv {
            s += &format!("\t{k} = {v}\n");
        }
    }
    let out = CommandOutcome::output(s);
    if !taken {
        return Ok(out);
    }
    c.pending.set_config_reason("assimilate-conf".into());
    Ok(CommandOutcome { when: super::When::Committed, ..out })
}

fn history(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let n = c.args.int("num").filter(|n| *n > 0).unwrap_or(LOG_SHOWN);
    let n = usize::try_from(n).unwrap_or(0);
    let name = |k: &ConfigKey| format!("{}/{}", k.who, k.name);
    let tree = || {
        c.state
            .config
            .history
            .iter()
            .rev()
            .take(n)
            .map(|h| {
                let changes: J = h
                    .diff
                    .iter()
                    .map(|(k, old, new)| {
                        let mut j = obj! { "name": name(k) };
                        if let Some(o) = old {
                            j.put("previous_value", shown(c, &k.name, o));
                        }
                        if let Some(n) = new {
                            j.put("new_value", shown(c, &k.name, n));
                        }
                        j
                    })
                    .collect();
                obj! { "version": h.version, "timestamp": h.stamp.iso(), "name": &h.name, "changes": changes }
            })
            .collect::<J>()
    };
    let text = || {
        let mut s = String::new();
        for h in c.state.config.history.iter().rev().take(n) {
            s += &format!("--- {} --- {} ---", h.version, h.stamp.iso());
            if !h.name.is_empty() {
                s += &format!(" {} ---", h.name);
            }
            s.push('\n');
            for (k, old, new) in &h.diff {
                for (sign, v) in [("-", old), ("+", new)] {
                    if let Some(v) = v {
                        s += &format!("{sign} {} = {}\n", name(k), shown(c, &k.name, v));
                    }
                }
            }
        }
        s
    };
    c.tree("changesets", tree).text(text)
}

fn reset(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let to = c.args.int("num").and_then(|n| u64::try_from(n).ok());
    let db = &c.state.config;
    // The history must hold every change above the wanted version.
    let known = |to: u64| to < db.version && (to + 1..=db.version).all(|v| db.history.iter().any(|h| h.version == v));
    let to = match to {
        Some(n) if n == db.version => return super::done(""),
        Some(n) if known(n) => n,
        _ => {
            return invalid(
                "must specify a valid historical version to revert to; see 'ceph config log' for a list of avialable configuration historical versions",
            );
        }
    };
    if !c.pending.config.is_empty() {
        return Ok(CommandOutcome::retry());
    }
    let mut change: BTreeMap<ConfigKey, Option<String>> = BTreeMap::new();
    for h in db.history.iter().rev().take_while(|h| h.version > to) {
        for (k, old, _) in &h.diff {
            change.insert(k.clone(), old.clone());
        }
    }
    change.retain(|k, v| db.values.get(k) != v.as_ref());
    if change.is_empty() {
        return super::done("");
    }
    c.pending.replace_config(change, format!("reset to {to}"));
    committed("")
}

fn minimal(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let mons: Vec<String> = c.state.monmap.mons.values().map(|m| m.public_addrs.to_string()).collect();
    let id = c.state.fsid;
    plain(format!("# minimal ceph.conf for {id}\n[global]\n\tfsid = {id}\n\tmon_host = {}\n", mons.join(" ")))
}
