//! Access of auth ids to subvolumes: their keys at the monitor, and the files in which Ceph's manager keeps track.
//!
//! `/volumes/$ID.meta` has the subvolumes of an id, `/volumes/_GROUP:NAME.meta` the ids of a subvolume. A change is
//! marked in both before the monitor is asked, so that one that was interrupted is done again.

use super::fs::{Fs, text};
use super::subvolume::{Op, Subvolume};
use super::{Out, Vol, pretty};
use crate::volumes::{BASE, Fail, is_name, meta::SIZE_MAX};
use base::EntityKind;
use base::errno::{EINVAL, EIO, ENODATA, ENOENT, EOPNOTSUPP, EPERM};
use bytes::Bytes;
use client::host::{Client, CommandReply};
use serde_json::{Map, Value, json};

/// Version of the files, which is also the oldest that reads those of ids.
const VERSION: u64 = 6;
/// Oldest version that reads the files of subvolumes.
const SUBVOLUME_COMPAT: u64 = 1;

fn file_of(s: &Subvolume) -> String {
    format!("{BASE}/_{}:{}.meta", s.group.given().unwrap_or_default(), s.name)
}

fn file_of_id(id: &str) -> Result<String, Fail> {
    if !is_name(id) || id.chars().any(|c| c.is_control() || c == ',' || c == '"') {
        return Err((EINVAL, format!("invalid auth ID: {id}")));
    }
    Ok(format!("{BASE}/${id}.meta"))
}

/// Makes the file of a new subvolume, empty.
pub(super) async fn make_file(fs: &Fs, s: &Subvolume) -> Result<(), Fail> {
    let path = file_of(s);
    match fs.stat(path.as_bytes()).await {
        Err(ENOENT) => fs.make_file(path.as_bytes(), 0o755).await.map(|_| ()).map_err(|e| text("open", &path, e)),
        r => r.map(|_| ()).map_err(|e| text("stat", &path, e)),
    }
}

/// Removes the file of a subvolume.
pub(super) async fn remove_file(fs: &Fs, s: &Subvolume) -> Result<(), Fail> {
    let path = file_of(s);
    match fs.unlink(path.as_bytes()).await {
        Ok(()) | Err(ENOENT) => Ok(()),
        Err(e) => Err(text("unlink", &path, e)),
    }
}

async fn read(fs: &Fs, path: &str) -> Result<Option<Map<String, Value>>, Fail> {
    let data = match fs.read_file(path, SIZE_MAX).await {
        Err(ENOENT) => return Ok(None),
        r => r.map_err(|e| text("read", path, e))?,
    };
    if data.is_empty() {
        return Ok(None);
    }
    let bad = || (EIO, format!("{path} is not understood"));
    let Ok(Value::Object(m)) = serde_json::from_slice(&data) else { return Err(bad()) };
    if m.get("compat_version").and_then(Value::as_u64).is_none_or(|v| v > VERSION) {
        return Err(bad());
    }
    Ok(Some(m))
}

async fn write(fs: &Fs, path: &str, mut m: Map<String, Value>, compat: u64) -> Result<(), Fail> {
    m.insert("compat_version".into(), json!(compat));
    m.insert("version".into(), json!(VERSION));
    let data = net::admin_socket::to_line(&Value::Object(m));
    fs.write_file(path, data.into(), 0o755).await.map_err(|e| text("write", path, e))
}

async fn ask(c: &Client, command: &Value) -> Result<CommandReply, Fail> {
    c.mon_command(&command.to_string(), Bytes::new()).await.map_err(|e| (EIO, e.to_string()))
}

/// Capabilities and key of an entity; `None` if it does not exist.
async fn entity(c: &Client, name: &str) -> Result<Option<Value>, Fail> {
    let r = ask(c, &json!({ "prefix": "auth get", "entity": name, "format": "json" })).await?;
    match r.rc {
        0 => {
            let all: Vec<Value> = serde_json::from_slice(&r.out).map_err(|e| (EIO, e.to_string()))?;
            Ok(all.into_iter().next())
        }
        ENOENT => Ok(None),
        rc => Err((rc, r.status)),
    }
}

fn cap(e: &Value, service: &str) -> String {
    e.get("caps").and_then(|c| c.get(service)).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn tokens(caps: &str) -> Vec<String> {
    caps.split(',').map(|t| t.trim().to_owned()).filter(|t| !t.is_empty()).collect()
}

/// The capabilities of an access level: for the MDS and for OSDs.
struct Grant {
    mds: String,
    osd: String,
}

fn grant(level: &str, path: &str, pool: &str, nspace: &str) -> Grant {
    let nspace = if nspace.is_empty() { String::new() } else { format!(" namespace={nspace}") };
    Grant { mds: format!("allow {level} path={path}"), osd: format!("allow {level} pool={pool}{nspace}") }
}

async fn grants(v: &Vol<'_>, s: &Subvolume) -> Result<[Grant; 2], Fail> {
    let path = s.path();
    let i = v.fs.stat(path.as_bytes()).await.map_err(|e| text("stat", &path, e))?;
    let pool = super::fs::pool_of(&i).and_then(|p| v.fs.backend.pool_name(p));
    let pool = pool.ok_or_else(|| text("getxattr", &path, ENODATA))?;
    Ok(["r", "rw"].map(|level| grant(level, &path, &pool, &i.pool_ns)))
}

/// True if an entity has no capabilities but those that access to subvolumes gives, so that its key opens nothing that
/// the sender could not give to a new id. `is_data` tells whether a pool has data of file systems.
fn is_of_subvolumes(e: &Value, is_data: impl Fn(&str) -> bool) -> bool {
    let level = |t: &str| t.strip_prefix("allow rw ").or_else(|| t.strip_prefix("allow r ")).map(str::to_owned);
    let path = |t: &String| {
        let path = level(t).and_then(|t| t.strip_prefix("path=").map(str::to_owned));
        path.is_some_and(|p| {
            let below = p.strip_prefix(BASE).is_some_and(|p| p.starts_with('/'));
            below && !p.contains([' ', '"', '\'']) && p.split('/').all(|n| n != "..")
        })
    };
    let pool = |t: &String| {
        let t = level(t).unwrap_or_default();
        let (pool, nspace) = t.split_once(' ').unwrap_or((&t, "namespace="));
        let nspace = nspace.strip_prefix("namespace=");
        pool.strip_prefix("pool=").is_some_and(&is_data) && nspace.is_some_and(|n| !n.contains([' ', '"', '\'']))
    };
    e.get("caps").and_then(Value::as_object).into_iter().flatten().all(|(service, caps)| {
        let caps = caps.as_str().unwrap_or_default();
        match service.as_str() {
            "mds" => tokens(caps).iter().all(path),
            "osd" => tokens(caps).iter().all(pool),
            "mon" => caps == "allow r",
            _ => false,
        }
    })
}

/// Capabilities for `auth caps`: those of other services, and new ones for MDS and OSDs. The right to read the maps goes
/// with the last access.
fn updated(e: &Value, mds: &[String], osd: &[String], allow: bool) -> Vec<String> {
    let mut out = Vec::new();
    let (mut mon, ends) = (false, !allow && mds.is_empty() && osd.is_empty());
    for (k, c) in e.get("caps").and_then(Value::as_object).into_iter().flatten() {
        let c = c.as_str().unwrap_or_default();
        if k == "mds" || k == "osd" || (k == "mon" && ends && c == "allow r") {
            continue;
        }
        mon |= k == "mon";
        out.extend([k.clone(), c.to_owned()]);
    }
    for (k, t) in [("mds", mds), ("osd", osd)] {
        if !t.is_empty() {
            out.extend([k.to_owned(), t.join(",")]);
        }
    }
    if allow && !mon {
        out.extend(["mon".to_owned(), "allow r".to_owned()]);
    }
    out
}

async fn set_caps(c: &Client, name: &str, caps: &[String]) -> Result<(), Fail> {
    let command = if caps.is_empty() {
        json!({ "prefix": "auth rm", "entity": name })
    } else {
        json!({ "prefix": "auth caps", "entity": name, "caps": caps })
    };
    let r = ask(c, &command).await?;
    if r.rc < 0 { Err((r.rc, r.status)) } else { Ok(()) }
}

/// Gives an entity access; its key.
async fn allow(c: &Client, name: &str, want: &Grant, other: &Grant) -> Result<String, Fail> {
    let Some(e) = entity(c, name).await? else {
        let caps = ["mds", want.mds.as_str(), "osd", want.osd.as_str(), "mon", "allow r"];
        let r =
            ask(c, &json!({ "prefix": "auth get-or-create", "entity": name, "caps": caps, "format": "json" })).await?;
        if r.rc < 0 {
            return Err((r.rc, r.status));
        }
        let made = entity(c, name).await?.unwrap_or_default();
        return Ok(made.get("key").and_then(Value::as_str).unwrap_or_default().to_owned());
    };
    let (mut mds, mut osd) = (tokens(&cap(&e, "mds")), tokens(&cap(&e, "osd")));
    if !mds.contains(&want.mds) {
        if mds.contains(&other.mds) {
            mds.retain(|t| *t != other.mds);
            if let Some(at) = osd.iter().position(|t| *t == other.osd) {
                osd.remove(at);
            }
        }
        mds.push(want.mds.clone());
        osd.push(want.osd.clone());
    }
    set_caps(c, name, &updated(&e, &mds, &osd, true)).await?;
    Ok(e.get("key").and_then(Value::as_str).unwrap_or_default().to_owned())
}

/// Takes access from an entity, and the entity itself if nothing is left.
async fn deny(c: &Client, name: &str, had: &[Grant; 2]) -> Result<(), Fail> {
    let Some(e) = entity(c, name).await? else { return Ok(()) };
    let (mut mds, mut osd) = (tokens(&cap(&e, "mds")), tokens(&cap(&e, "osd")));
    if let Some(g) = had.iter().find(|g| mds.contains(&g.mds)) {
        mds.retain(|t| *t != g.mds);
        if let Some(at) = osd.iter().position(|t| *t == g.osd) {
            osd.remove(at);
        }
    }
    set_caps(c, name, &updated(&e, &mds, &osd, false)).await
}

fn key_of(s: &Subvolume) -> String {
    format!("{}/{}", s.group.given().unwrap_or("None"), s.name)
}

fn part<'a>(m: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let v = m.entry(key).or_insert_with(|| Value::Object(Map::new()));
    if !v.is_object() {
        *v = Value::Object(Map::new());
    }
    match v {
        Value::Object(o) => o,
        // Made an object above.
        _ => unreachable!("an object"),
    }
}

/// Marks an access level in the file of a subvolume.
async fn note(v: &Vol<'_>, s: &Subvolume, id: &str, level: &str, dirty: bool) -> Result<(), Fail> {
    let path = file_of(s);
    let mut m = read(&v.fs, &path).await?.unwrap_or_default();
    part(&mut m, "auths").insert(id.to_owned(), json!({ "access_level": level, "dirty": dirty }));
    write(&v.fs, &path, m, SUBVOLUME_COMPAT).await
}

/// `fs subvolume authorize`.
pub(super) async fn authorize(v: &Vol<'_>) -> Out {
    let s = v.open(Op::Allow).await?;
    let (id, level) = (v.arg("auth_id"), v.opt("access_level").unwrap_or("rw"));
    let tenant = v.opt("tenant_id").filter(|t| !t.is_empty());
    if level != "r" && level != "rw" {
        return Err((EINVAL, format!("invalid access level '{level}'")));
    }
    let (path, name, key) = (file_of_id(id)?, format!("client.{id}"), key_of(&s));
    let c = v.client().await?;
    let had = entity(&c, &name).await?;
    if tenant.is_some() && had.as_ref().is_some_and(|e| !is_of_subvolumes(e, |pool| v.is_data_pool(pool))) {
        let why = format!(
            "auth ID: {id} has capabilities besides those for subvolumes, so its key is not handed out; without \
             --tenant_id and with --allow-existing-id it is given access without its key being shown"
        );
        return Err((EPERM, why));
    }
    let mut m = match read(&v.fs, &path).await? {
        None => {
            if !v.flag("allow_existing_id") && had.is_some() {
                let why = format!("auth ID: {id} exists and not created by mgr plugin. Not allowed to modify");
                return Err((EPERM, why));
            }
            let mut m = Map::new();
            m.insert("tenant_id".into(), json!(tenant));
            m
        }
        Some(mut m) => {
            if let Some(old) = m.remove("volumes") {
                m.insert("subvolumes".into(), old);
            }
            if m.get("tenant_id").and_then(Value::as_str) != tenant {
                return Err((EPERM, format!("auth ID: {id} is already in use")));
            }
            m
        }
    };
    m.insert("dirty".into(), json!(true));
    part(&mut m, "subvolumes").insert(key.clone(), json!({ "access_level": level, "dirty": true }));
    write(&v.fs, &path, m.clone(), VERSION).await?;
    note(v, &s, id, level, true).await?;
    let [r, rw] = grants(v, &s).await?;
    let (want, other) = if level == "r" { (r, rw) } else { (rw, r) };
    let secret = allow(&c, &name, &want, &other).await?;
    note(v, &s, id, level, false).await?;
    m.insert("dirty".into(), json!(false));
    part(&mut m, "subvolumes").insert(key, json!({ "access_level": level, "dirty": false }));
    write(&v.fs, &path, m, VERSION).await?;
    // A caller without a tenant does not get the key.
    Ok(if tenant.is_some() { secret } else { String::new() })
}

/// `fs subvolume deauthorize`.
pub(super) async fn deauthorize(v: &Vol<'_>) -> Out {
    let s = v.open(Op::Deny).await?;
    let id = v.arg("auth_id");
    let (path, key) = (file_of_id(id)?, key_of(&s));
    let missing = || (ENOENT, format!("auth ID: {id} doesn't exist"));
    let mut m = read(&v.fs, &path).await?.ok_or_else(missing)?;
    if let Some(old) = m.remove("volumes") {
        m.insert("subvolumes".into(), old);
    }
    let gone = async |fs: &Fs| fs.unlink(path.as_bytes()).await.map_err(|e| text("unlink", &path, e));
    let known = part(&mut m, "subvolumes");
    if known.is_empty() {
        return gone(&v.fs).await.map(|()| String::new());
    }
    let Some(Value::Object(mine)) = known.get_mut(&key) else { return Ok(String::new()) };
    mine.insert("dirty".into(), json!(true));
    m.insert("dirty".into(), json!(true));
    write(&v.fs, &path, m.clone(), VERSION).await?;
    let of = file_of(&s);
    let mut sm = read(&v.fs, &of).await?.unwrap_or_default();
    if let Some(Value::Object(a)) = part(&mut sm, "auths").get_mut(id) {
        a.insert("dirty".into(), json!(true));
        write(&v.fs, &of, sm.clone(), SUBVOLUME_COMPAT).await?;
        deny(&v.client().await?, &format!("client.{id}"), &grants(v, &s).await?).await?;
        part(&mut sm, "auths").shift_remove(id);
        write(&v.fs, &of, sm, SUBVOLUME_COMPAT).await?;
    }
    part(&mut m, "subvolumes").shift_remove(&key);
    if part(&mut m, "subvolumes").is_empty() {
        return gone(&v.fs).await.map(|()| String::new());
    }
    m.insert("dirty".into(), json!(false));
    write(&v.fs, &path, m, VERSION).await.map(|()| String::new())
}

/// `fs subvolume authorized_list`.
pub(super) async fn list(v: &Vol<'_>) -> Out {
    let s = v.open(Op::AuthList).await?;
    let m = read(&v.fs, &file_of(&s)).await?.unwrap_or_default();
    let all = m.get("auths").and_then(Value::as_object).into_iter().flatten();
    let clean = all.filter(|(_, a)| a.get("dirty") == Some(&json!(false)));
    let shown: Vec<Value> = clean.map(|(id, a)| json!({ id.as_str(): a.get("access_level") })).collect();
    Ok(pretty(&json!(shown)))
}

/// `fs subvolume evict`: ends the sessions of an id that mounted the subvolume, at all ranks.
pub(super) async fn evict(v: &Vol<'_>) -> Out {
    let s = v.open(Op::Evict).await?;
    let id = v.arg("auth_id");
    file_of_id(id)?;
    let filters = [format!("auth_name={id}"), format!("client_metadata.root={}", s.path())];
    let command = json!({ "prefix": "session evict", "filters": filters, "format": "json" }).to_string();
    let c = v.client().await?;
    let fs = v.service.monitor.file_system(v.arg("vol_name")).ok_or((EOPNOTSUPP, "no file system".to_owned()))?;
    for r in fs.ranks {
        let answer = c.tell(EntityKind::MDS, r.addr, &command).await;
        let why = match answer {
            Ok(a) if a.rc == 0 => continue,
            Ok(a) => a.status,
            Err(e) => e.to_string(),
        };
        let filters = filters.join(", ");
        return Err((EINVAL, format!("Failed to evict client with {filters} from mds {}/{}: {why}", r.rank, r.gid)));
    }
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(caps: &Value) -> Value {
        json!({ "entity": "client.x", "key": "secret", "caps": caps })
    }

    #[test]
    fn a_key_that_opens_more_than_subvolumes_is_not_handed_out() {
        let is = |caps: Value| is_of_subvolumes(&with(&caps), |pool| pool == "data");
        assert!(is(json!({})));
        assert!(is(json!({
            "mds": "allow rw path=/volumes/g/s/u, allow r path=/volumes/_nogroup/t/u",
            "osd": "allow rw pool=data namespace=fsvolumens_s,allow r pool=data",
            "mon": "allow r",
        })));
        for caps in [
            json!({ "mds": "allow *", "mgr": "allow *", "mon": "allow *", "osd": "allow *" }),
            json!({ "mon": "allow rw" }),
            json!({ "mgr": "allow r" }),
            json!({ "mds": "allow rw" }),
            json!({ "mds": "allow rw path=/volumes" }),
            json!({ "mds": "allow rw path=/volumes/../home" }),
            json!({ "mds": "allow rwp path=/volumes/g/s/u" }),
            json!({ "mds": "allow rw path=/volumes/g/s/u, allow rw path=/home" }),
            json!({ "osd": "allow rw pool=secret" }),
            json!({ "osd": "allow rwx pool=data" }),
            json!({ "osd": "allow rw tag cephfs data=home" }),
            json!({ "osd": "profile rbd pool=data" }),
            json!({ "osd": "allow rw" }),
        ] {
            assert!(!is(caps.clone()), "{caps}");
        }
    }

    #[test]
    fn the_maps_stay_readable_while_there_is_access() {
        let e = with(&json!({ "mds": "allow rw path=/volumes/g/b", "osd": "allow rw pool=data", "mon": "allow r" }));
        let (mds, osd) = (["allow rw path=/volumes/g/b".to_owned()], ["allow rw pool=data".to_owned()]);
        let words = |caps: Vec<String>| caps.join("|");
        assert_eq!(
            words(updated(&e, &mds, &osd, false)),
            "mon|allow r|mds|allow rw path=/volumes/g/b|osd|allow rw pool=data"
        );
        assert_eq!(updated(&e, &[], &[], false), [""; 0], "nothing is left: the entity is removed");
    }
}
