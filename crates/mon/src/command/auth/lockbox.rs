//! Keys of OSDs on dm-crypt, as `ceph-volume` leaves them at the monitors: `dm-crypt/osd/UUID/luks` among the config
//! keys, and an entity `client.osd-lockbox.UUID` that may read it and nothing else.

use crate::command::{Ctx, Refused, Res, refuse};
use crate::state::AuthEntry;
use base::id::Uuid;
use base::{AuthName, EntityKind, errno};
use bytes::Bytes;
use serde_json::Value;
use std::collections::BTreeMap;

/// Longest key of dm-crypt in bytes; that of a config key's value.
const KEY_MAX: usize = 64 << 10;

/// Secrets of an OSD on dm-crypt.
pub(in crate::command) struct Lockbox {
    /// Key of the entity that may read the other one.
    key: ::auth::CryptoKey,
    /// Key of dm-crypt.
    luks: Bytes,
}

fn entity(u: Uuid) -> AuthName {
    AuthName { kind: EntityKind::CLIENT, id: format!("osd-lockbox.{u}") }
}

fn prefix(u: Uuid) -> String {
    format!("dm-crypt/osd/{u}/")
}

/// The secrets in the input of `osd new`, if there are any.
pub(in crate::command) fn of(input: &Value) -> Res<Option<Lockbox>> {
    let get = |k: &str| input.get(k).and_then(Value::as_str);
    let bad = |what: &str| Err(Refused::new(errno::EINVAL, what));
    match (get("cephx_lockbox_secret"), get("dmcrypt_key")) {
        (None, None) => Ok(None),
        _ if get("cephx_secret").is_none() => bad("requires a cephx secret."),
        (Some(key), Some(luks)) => {
            let Ok(key) = ::auth::CryptoKey::from_base64(key) else { return bad("invalid cephx lockbox secret.") };
            if luks.is_empty() || luks.len() > KEY_MAX {
                return bad("the dm-crypt key is empty or too long");
            }
            Ok(Some(Lockbox { key, luks: Bytes::copy_from_slice(luks.as_bytes()) }))
        }
        _ => bad("requires both a cephx lockbox secret and a dm-crypt key."),
    }
}

/// True if the secrets are new, false if they are there already. Error: others are there.
pub(in crate::command) fn check(c: &Ctx<'_>, u: Uuid, l: &Lockbox) -> Res<bool> {
    let name = entity(u);
    let have = c.pending.auth(c.state, &name);
    if have.is_some_and(|e| e.key != l.key) {
        return refuse(errno::EEXIST, format!("entity {name} exists but key does not match"));
    }
    let luks = c.pending.kv(c.state, &(prefix(u) + "luks"));
    if luks.is_some_and(|v| *v != l.luks) {
        return refuse(errno::EEXIST, "dm-crypt key already exists and does not match");
    }
    Ok(have.is_none() || luks.is_none())
}

/// Keeps the secrets of an OSD.
pub(in crate::command) fn put(c: &mut Ctx<'_>, u: Uuid, l: Lockbox) {
    let key = prefix(u) + "luks";
    let cap = format!("allow command \"config-key get\" with key=\"{key}\"");
    let caps = BTreeMap::from([("mon".to_owned(), cap)]);
    c.pending.set_auth(entity(u), Some(AuthEntry { key: l.key, pending_key: None, caps }));
    c.pending.set_kv(key, Some(l.luks));
}

/// Removes the secrets of an OSD: without them its data cannot be read.
pub(in crate::command) fn remove(c: &mut Ctx<'_>, u: Uuid) {
    let (name, prefix) = (entity(u), prefix(u));
    if c.pending.auth(c.state, &name).is_some() {
        c.pending.set_auth(name, None);
    }
    let of = |k: &&String| k.starts_with(&prefix);
    let stored = c.state.kv.range(prefix.clone()..).map(|(k, _)| k).take_while(of);
    let new = c.pending.kv.range(prefix.clone()..).map(|(k, _)| k).take_while(of);
    let keys: Vec<String> = stored.chain(new).cloned().collect();
    for k in keys {
        c.pending.set_kv(k, None);
    }
}
