//! Keys and capabilities of entities.
//!
//! Keys of type `aes` are made by default, since every client understands them; `aes256k` on request.
//!
//! `lockbox` has keys of OSDs on dm-crypt, as `ceph-volume` leaves them at the monitors.

pub(super) mod lockbox;

use super::{Cmd, CommandOutcome, Ctx, Refused, Res, When, cmd, committed, done, flag as cf, invalid, refuse};
use crate::json::J;
use crate::obj;
use crate::state::AuthEntry;
use ::auth::{CryptoKey, KeyKind, Keyring};
use base::{AuthName, EntityKind, errno};
use cluster::caps::{MdsCaps, MgrCaps, MonCaps, OsdCaps};
use std::collections::BTreeMap;

/// Commands of this module.
pub(super) const COMMANDS: &[Cmd] = &[
    cmd("auth export entity:String?", "auth", "rx", 0, export, "write a keyring of an entity, or of all"),
    cmd("auth get entity:String", "auth", "rx", 0, get, "write a keyring of an entity"),
    cmd("auth get-key entity:String", "auth", "rx", 0, print_key, "show the key of an entity"),
    cmd("auth print-key entity:String", "auth", "rx", 0, print_key, "show the key of an entity"),
    cmd("auth print_key entity:String", "auth", "rx", 0, print_key, "show the key of an entity"),
    cmd("auth list", "auth", "rx", cf::DEPRECATED, ls, "list entities"),
    cmd("auth ls", "auth", "rx", 0, ls, "list entities"),
    cmd("auth import", "auth", "rwx", 0, import, "import entities from a keyring given as input"),
    cmd(
        "auth add entity:String caps:String*? key_type:String?",
        "auth",
        "rwx",
        0,
        add,
        "add an entity, with the key given as input or a new one",
    ),
    cmd(
        "auth get-or-create-key entity:String caps:String*? key_type:String?",
        "auth",
        "rwx",
        0,
        |c| get_or_create(c, true),
        "show the key of an entity, creating it if needed",
    ),
    cmd(
        "auth get-or-create entity:String caps:String*? key_type:String?",
        "auth",
        "rwx",
        0,
        |c| get_or_create(c, false),
        "write a keyring of an entity, creating its key if needed",
    ),
    cmd(
        "auth get-or-create-pending entity:String",
        "auth",
        "rwx",
        0,
        pending_make,
        "make a key that replaces the entity's once it is used",
    ),
    cmd("auth clear-pending entity:String", "auth", "rwx", 0, pending_clear, "drop the pending key of an entity"),
    cmd(
        "auth commit-pending entity:String",
        "auth",
        "rwx",
        0,
        pending_commit,
        "replace the key of an entity by its pending one",
    ),
    cmd("auth rotate entity:String key_type:String?", "auth", "rwx", 0, rotate, "give an entity a new key"),
    cmd("auth caps entity:String caps:String*", "auth", "rwx", 0, caps, "set the capabilities of an entity"),
    cmd("auth del entity:String", "auth", "rwx", cf::DEPRECATED, rm, "remove an entity"),
    cmd("auth rm entity:String", "auth", "rwx", 0, rm, "remove an entity"),
];

type Caps = BTreeMap<String, String>;

fn entity(c: &Ctx<'_>) -> Res<AuthName> {
    AuthName::parse(&c.args.str("entity")?).ok_or_else(|| Refused::new(errno::EINVAL, "bad entity name"))
}

fn found(c: &Ctx<'_>, n: &AuthName, missing: String) -> Res<AuthEntry> {
    c.pending.auth(c.state, n).cloned().ok_or_else(|| Refused::new(errno::ENOENT, missing))
}

fn key_kind(c: &Ctx<'_>) -> Res<KeyKind> {
    match c.args.opt("key_type") {
        None => Ok(KeyKind::Aes),
        Some(t) => KeyKind::from_word(&t).ok_or_else(|| Refused::new(errno::EINVAL, format!("unknown key type '{t}'"))),
    }
}

pub(super) fn new_key(c: &Ctx<'_>) -> Res<CryptoKey> {
    Ok(CryptoKey::generate(key_kind(c)?, c.now.wall, c.random))
}

/// Capabilities as pairs of service and text, each checked by the service's own parser.
fn parse_caps(c: &Ctx<'_>, name: &AuthName) -> Res<Caps> {
    let list = c.args.list("caps");
    if !list.len().is_multiple_of(2) {
        return invalid("bad capabilities request; odd number of arguments");
    }
    let pairs = list.chunks_exact(2).filter_map(|p| if let [s, t] = p { Some((s, t)) } else { None });
    checked_caps(pairs, name)
}

/// Most bytes of an entity's name, and of its capabilities.
const NAME_MAX: usize = 1024;
const CAPS_MAX: usize = 64 << 10;

/// Checks that capabilities can be parsed and are not too long.
fn checked_caps<'a>(list: impl Iterator<Item = (&'a String, &'a String)>, name: &AuthName) -> Res<Caps> {
    let mut out = Caps::new();
    let mut bytes = 0;
    if name.id.len() > NAME_MAX {
        return invalid(format!("the name of an entity has at most {NAME_MAX} bytes"));
    }
    for (service, text) in list {
        bytes += text.len();
        if bytes > CAPS_MAX {
            return refuse(errno::E2BIG, format!("the capabilities of {name} have more than {CAPS_MAX} bytes"));
        }
        let bad = |at: &str| {
            let at = match service.as_str() {
                "mon" | "mgr" if at.is_empty() => "end".to_owned(),
                _ => format!("'{at}'"),
            };
            Refused::new(errno::EINVAL, format!("{service} capability parse failed, stopped at {at} of '{text}'"))
        };
        match service.as_str() {
            "mon" | "osd" | "mgr" if text.trim_ascii().is_empty() => return Err(bad("")),
            "mon" => MonCaps::parse(text, name).map(|_| ()).map_err(|e| bad(&e.rest))?,
            "osd" => OsdCaps::parse(text).map(|_| ()).map_err(|e| bad(&e.rest))?,
            "mgr" => MgrCaps::parse(text).map(|_| ()).map_err(|e| match e.unknown_profile() {
                Some(p) => {
                    let why = format!("unrecognized profile '{p}'");
                    Refused::new(errno::EINVAL, format!("mgr capability parse failed during profile evaluation: {why}"))
                }
                None => bad(&e.rest),
            })?,
            "mds" => MdsCaps::parse(text).map(|_| ()).map_err(|e| bad(&e.rest))?,
            s => return invalid(format!("unknown cap type '{s}'")),
        }
        out.insert(service.clone(), text.clone());
    }
    Ok(out)
}

fn caps_tree(caps: &Caps) -> J {
    J::Obj(caps.iter().map(|(k, v)| (k.clone().into(), v.into())).collect())
}

fn entry_tree(n: &AuthName, e: &AuthEntry) -> J {
    let mut j = obj! { "entity": n.to_string(), "key": e.key.to_base64() };
    if let Some(k) = &e.pending_key {
        j.put("pending_key", k.to_base64());
    }
    j.put("caps", caps_tree(&e.caps));
    j
}

/// Escapes quotes as the keyring format requires.
fn quoted(t: &str) -> String {
    format!("\"{}\"", t.replace('\\', "\\\\").replace('"', "\\\""))
}

fn entry_text(n: &AuthName, e: &AuthEntry) -> String {
    let mut s = format!("[{n}]\n\tkey = {}\n", e.key.to_base64());
    if let Some(k) = &e.pending_key {
        s += &format!("\tpending key = {}\n", k.to_base64());
    }
    for (service, text) in &e.caps {
        s += &format!("\tcaps {service} = {}\n", quoted(text));
    }
    s
}

fn entries(list: &[(AuthName, AuthEntry)]) -> J {
    list.iter().map(|(n, e)| entry_tree(n, e)).collect()
}

/// Answers with entries as a keyring.
pub(super) fn keyring(c: &Ctx<'_>, list: &[(AuthName, AuthEntry)]) -> Res<CommandOutcome> {
    let text = || list.iter().map(|(n, e)| entry_text(n, e)).collect::<String>();
    c.tree("auth", || entries(list)).elements("auth_entities").text(text)
}

fn everything(c: &Ctx<'_>) -> Vec<(AuthName, AuthEntry)> {
    c.state.auth.iter().map(|(n, e)| (n.clone(), e.clone())).collect()
}

fn export(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (rs, out) = if c.args.opt("entity").is_some_and(|e| !e.is_empty()) {
        let n = entity(c)?;
        let e = found(c, &n, "no key for auth(key=AAAAAAAAAAAAAAAA)".to_owned())?;
        (format!("export auth(key={})", e.key.to_base64()), keyring(c, &[(n, e)])?)
    } else {
        ("exported master keyring".to_owned(), keyring(c, &everything(c))?)
    };
    Ok(CommandOutcome { rs, ..out })
}

fn get(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let n = entity(c)?;
    let e = found(c, &n, format!("failed to find {n} in keyring"))?;
    let rs = format!("exported keyring for {n}");
    Ok(CommandOutcome { rs, ..keyring(c, &[(n, e)])? })
}

fn print_key(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let n = entity(c)?;
    let e = found(c, &n, format!("don't have {n}"))?;
    let key = e.key.to_base64();
    c.tree("auth", || obj! { "key": &key }).text(|| key.clone())
}

fn ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let all = everything(c);
    let text = || {
        if all.is_empty() {
            return done("no installed auth entries!\n");
        }
        let mut s = String::new();
        for (n, e) in &all {
            s += &format!("{n}\n\tkey: {}\n", e.key.to_base64());
            for (service, text) in &e.caps {
                s += &format!("\tcaps: [{service}] {text}\n");
            }
        }
        Ok(CommandOutcome { rs: "installed auth entries:\n".into(), ..CommandOutcome::output(s) })
    };
    c.tree("auth", || obj! { "auth_dump": entries(&all) }).text(text)
}

fn input_keyring(c: &Ctx<'_>) -> Res<Keyring> {
    let bad = || Refused::new(errno::EINVAL, "error decoding keyring cannot parse buffer: Malformed input");
    let text = std::str::from_utf8(c.input).map_err(|_| bad())?;
    Keyring::parse(text).map_err(|_| bad())
}

fn import(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    if c.input.is_empty() {
        return invalid("auth import: no data supplied");
    }
    let ring = input_keyring(c)?;
    if ring.iter().any(|(_, e)| e.caps.is_empty()) {
        return invalid("auth import: no caps supplied");
    }
    let mut entries = Vec::new();
    for (n, e) in ring.iter() {
        let caps = checked_caps(e.caps.iter(), n)?;
        entries.push((n.clone(), AuthEntry { key: e.key.clone(), pending_key: None, caps }));
    }
    entries.into_iter().for_each(|(n, e)| c.pending.set_auth(n, Some(e)));
    committed("imported keyring")
}

fn add(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let n = entity(c)?;
    let mut caps = parse_caps(c, &n)?;
    let mut given = None;
    if !c.input.is_empty() {
        let ring = input_keyring(c)?;
        let Some(e) = ring.get(&n) else {
            return invalid(format!("key for {n} not found in provided keyring"));
        };
        if !caps.is_empty() && !e.caps.is_empty() && caps != e.caps {
            return invalid("caps cannot be specified both in keyring and in command");
        }
        if caps.is_empty() {
            caps = e.caps.clone();
        }
        given = Some(e.key.clone());
    }
    if let Some(have) = c.pending.auth(c.state, &n) {
        if given.as_ref().is_some_and(|k| *k != have.key) {
            return refuse(errno::EEXIST, format!("entity {n} exists but key does not match"));
        }
        if have.caps.len() != caps.len() {
            return invalid(format!("entity {n} exists but caps do not match"));
        }
        for (service, text) in &caps {
            if have.caps.get(service) != Some(text) {
                return invalid(format!("entity {n} exists but cap {service} does not match"));
            }
        }
        return if c.state.auth.contains_key(&n) { done("") } else { committed("") };
    }
    let key = match given {
        Some(k) => k,
        None => new_key(c)?,
    };
    c.pending.set_auth(n.clone(), Some(AuthEntry { key, pending_key: None, caps }));
    committed(format!("added key for {n}"))
}

fn get_or_create(c: &mut Ctx<'_>, key_only: bool) -> Res<CommandOutcome> {
    let n = entity(c)?;
    let caps = parse_caps(c, &n)?;
    let mut changed = false;
    let e = match c.pending.auth(c.state, &n) {
        Some(e) => {
            // As in Ceph, the existing key must have the requested capabilities; it may have others.
            for (service, text) in &caps {
                if e.caps.get(service) != Some(text) {
                    return invalid(format!("key for {n} exists but cap {service} does not match"));
                }
            }
            e.clone()
        }
        None => {
            let e = AuthEntry { key: new_key(c)?, pending_key: None, caps: caps.clone() };
            c.pending.set_auth(n.clone(), Some(e.clone()));
            changed = true;
            e
        }
    };
    let waits = changed || !c.state.auth.contains_key(&n);
    let key = || e.key.to_base64();
    let out = if key_only {
        c.tree("auth", || obj! { "key": key() }).text(|| key() + "\n")?
    } else {
        // This keyring leaves out capabilities in plain form: it is meant for the entity's own host.
        let text = || entry_text(&n, &AuthEntry { caps: Caps::new(), ..e.clone() });
        c.tree("auth", || entries(&[(n.clone(), e.clone())])).elements("auth_entities").text(text)?
    };
    Ok(if waits { CommandOutcome { when: When::Committed, ..out } } else { out })
}

fn change(c: &mut Ctx<'_>, n: &AuthName, e: AuthEntry) {
    c.pending.set_auth(n.clone(), Some(e));
}

fn answer(c: &Ctx<'_>, n: AuthName, e: AuthEntry) -> Res<CommandOutcome> {
    Ok(CommandOutcome { when: When::Committed, ..keyring(c, &[(n, e)])? })
}

fn pending_make(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let n = entity(c)?;
    let mut e = found(c, &n, format!("entity {n} does not exist"))?;
    if e.pending_key.is_none() {
        e.pending_key = Some(new_key(c)?);
        change(c, &n, e.clone());
    }
    answer(c, n, e)
}

fn pending_clear(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let n = entity(c)?;
    let mut e = found(c, &n, format!("entity {n} does not exist"))?;
    if e.pending_key.take().is_none() {
        return done("no pending key");
    }
    change(c, &n, e);
    committed("canceled pending key")
}

fn pending_commit(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let n = entity(c)?;
    let mut e = found(c, &n, format!("entity {n} does not exist"))?;
    let Some(k) = e.pending_key.take() else { return done("no pending key") };
    e.key = k;
    change(c, &n, e);
    committed("committed pending key")
}

fn rotate(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let n = entity(c)?;
    let mut e = found(c, &n, format!("entity {n} does not exist"))?;
    e.key = new_key(c)?;
    e.pending_key = None;
    change(c, &n, e.clone());
    let rs = cut_off(c, &n);
    Ok(CommandOutcome { rs, ..answer(c, n, e)? })
}

/// Text about sessions that end with the old key of an entity, and what it needs now; empty without sessions. Its clients
/// and the alerts would tell it later, and not the reason.
fn cut_off(c: &Ctx<'_>, n: &AuthName) -> String {
    let cut = c.state.sessions.values().filter(|s| s.name == *n).count();
    if cut == 0 || *n == c.session.principal.who.name {
        return String::new();
    }
    let then = match n.kind {
        EntityKind::OSD => "; an OSD of this program takes it from there within seconds, one of Ceph when it starts",
        EntityKind::CLIENT if !n.id.starts_with("rgw.") => "; programs that run take it when they start",
        _ => ", and restart it",
    };
    let s = if cut == 1 { " of it is" } else { "s of it are" };
    format!(
        "{cut} session{s} closed, since the old key is not valid any more: write the new key to the keyring of {n}{then}"
    )
}

fn caps(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let n = entity(c)?;
    let mut e = found(c, &n, format!("couldn't find entry {n}"))?;
    e.caps = parse_caps(c, &n)?;
    change(c, &n, e);
    committed(format!("updated caps for {n}"))
}

fn rm(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let n = entity(c)?;
    if c.pending.auth(c.state, &n).is_none() {
        return done(format!("entity {n} does not exist"));
    }
    if n == c.session.principal.who.name {
        tracing::warn!(entity = %n, "an entity removes its own key");
    }
    c.pending.set_auth(n, None);
    committed("updated")
}
