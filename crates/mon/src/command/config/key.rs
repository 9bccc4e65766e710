//! The key-value store for daemons, modules and scripts.
//!
//! Stored values may be secrets: permissions for all services, as in `allow r`, do not open them. `allow *` does, and a
//! grant for the service or for a command, also in a profile (`cluster::caps::mon`, `allowed`).

use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd, committed, done, flag as cf, refuse, rehearse};
use crate::json::J;
use crate::obj;
use base::errno;
use bytes::Bytes;

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd("config-key get key:String", "config-key", "r", 0, get, "show the value of a key"),
    cmd("config-key set key:String val:String~?", "config-key", "rw", 0, set, "set a key to a value, or to the input"),
    cmd(
        "config-key put key:String val:String~?",
        "config-key",
        "rw",
        cf::DEPRECATED,
        set,
        "set a key to a value, or to the input",
    ),
    cmd("config-key del key:String", "config-key", "rw", cf::DEPRECATED, rm, "remove a key"),
    cmd("config-key rm key:String", "config-key", "rw", 0, rm, "remove a key"),
    cmd("config-key exists key:String", "config-key", "r", 0, exists, "tell whether a key exists"),
    cmd("config-key list", "config-key", "r", cf::DEPRECATED, ls, "list keys"),
    cmd("config-key ls", "config-key", "r", 0, ls, "list keys"),
    cmd("config-key dump key:String?", "config-key", "r", 0, dump, "show the keys with a prefix, and their values"),
];

/// Longest value in bytes (`mon_config_key_max_entry_size`).
const VALUE_MAX: usize = 64 << 10;
/// Longest key in bytes.
const KEY_MAX: usize = 1024;

fn get(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    match c.state.kv.get(&c.args.str("key")?) {
        Some(v) => Ok(CommandOutcome::output(v.clone())),
        // The status line is empty, because scripts read only the errno.
        None => Ok(CommandOutcome::fail(errno::ENOENT, "")),
    }
}

fn set(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let key = c.args.str("key")?;
    let val = c.args.opt("val").map_or_else(|| c.input.clone(), |v| Bytes::from(v.into_bytes()));
    if val.len() > VALUE_MAX {
        return refuse(
            errno::EFBIG,
            format!(
                "error: entry size limited to {VALUE_MAX} bytes. Use 'mon config key max entry size' to manually adjust"
            ),
        );
    }
    if key.is_empty() || key.len() > KEY_MAX {
        return refuse(errno::EINVAL, "the key is empty or too long");
    }
    if key == rehearse::steps::KEY {
        return refuse(errno::EPERM, "this key belongs to `belemnite rehearse --apply`");
    }
    c.pending.set_kv(key.clone(), Some(val));
    committed(format!("set {key}"))
}

fn rm(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let key = c.args.str("key")?;
    if c.pending.kv(c.state, &key).is_none() {
        return done("key deleted");
    }
    // One that cannot be read is of no use to anybody.
    if key == rehearse::steps::KEY && rehearse::steps::record_of(c.state).is_ok() {
        return refuse(errno::EPERM, "a change is open: use `belemnite rehearse commit` or `undo`");
    }
    c.pending.set_kv(key, None);
    committed("key deleted")
}

fn exists(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let key = c.args.str("key")?;
    if c.state.kv.contains_key(&key) {
        done(format!("key '{key}' exists"))
    } else {
        refuse(errno::ENOENT, format!("key '{key}' doesn't exist"))
    }
}

fn ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    c.show("keys", &c.state.kv.entries().keys().collect())
}

fn dump(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let prefix = c.args.str_or("key", "");
    let mut j: J = obj! {};
    for (k, v) in c.state.kv.range(prefix.clone()..).take_while(|(k, _)| k.starts_with(&prefix)) {
        let text = match std::str::from_utf8(v) {
            Ok(t) if !t.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t' | '\r')) => t.to_owned(),
            _ => format!("<<< binary blob of length {} >>>", v.len()),
        };
        j.put(k.clone(), text);
    }
    c.show("config-key store", &j)
}
