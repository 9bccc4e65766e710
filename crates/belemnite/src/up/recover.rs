//! `up --recover`: makes the description of a cluster anew from what its directory holds.
//!
//! | part of the description | taken from |
//! | --- | --- |
//! | cluster id, address, port, monitors, authentication, copies | `ceph.conf`; without it the monitor's state and the arguments |
//! | OSDs: id, uuid, size, device | the stores in `osd.N` and on devices named by `ceph.conf` or `--device` |
//! | keys | the keyrings; those that are missing from the monitor's state |
//!
//! Nothing but the description and missing keyrings is written. What does not fit together is refused.

use super::dir::{self, write_private};
use super::layout::{self, Layout};
use super::plan::{self, MgrPlan, OsdPlan, Plan};
use super::{Args, Error, keyring, make, say};
use crate::admin;
use crate::conf::Conf;
use base::{AddrVec, EntityAddr};
use mon::host::archive::{Facts, Place, facts};
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

/// Makes the description.
///
/// # Errors
/// There is a readable description already; parts are missing, damaged, in use, or of different clusters.
pub(super) fn rebuild(a: &Args, l: &Layout) -> Result<(), Error> {
    if l.plan().exists() && fs::read(l.plan()).is_ok_and(|t| serde_json::from_slice::<Plan>(&t).is_ok()) {
        return Err(format!("{} is there and whole; there is nothing to recover", l.plan().display()).into());
    }
    let conf = if l.conf().exists() { Some(Conf::load(&l.conf())?) } else { None };
    let state = state(l)?;
    let mut p = head(a, l, conf.as_ref(), state.as_ref())?;
    p.osds = osds(a, l, conf.as_ref(), state.as_ref(), &p)?;
    if p.osds.is_empty() {
        return Err(format!("{}: no store of an OSD was found", l.dir.display()).into());
    }
    let n = p.osds.len() as u32;
    p.pool_size = a.pool_size.unwrap_or(p.pool_size).clamp(1, n.min(10));
    keyrings(&p, l, state.as_ref())?;
    dir::forget(l)?;
    dir::store(&p, l)?;
    let ids: Vec<String> = p.osds.iter().map(|o| o.id.to_string()).collect();
    say(format_args!(
        "{} was made anew: cluster {}, OSDs {}. A gateway or a file system of `up` is to be named again (--s3, --fs)",
        l.plan().display(),
        p.fsid,
        ids.join(", ")
    ));
    Ok(())
}

/// The monitor's state, if it is in the directory.
fn state(l: &Layout) -> Result<Option<Facts>, Error> {
    let dir = l.data("mon.a");
    if !dir.join(mon::host::STATE_FILE).exists() {
        return Ok(None);
    }
    // Reading the state runs a reactor, of which a thread can have only one.
    let read = std::thread::spawn(move || facts(&Place::Directory(dir))).join();
    Ok(Some(read.map_err(|_| "reading the monitor's state failed; see above")??))
}

/// The description without OSDs.
fn head(a: &Args, l: &Layout, conf: Option<&Conf>, state: Option<&Facts>) -> Result<Plan, Error> {
    let get = |k: &str| conf.and_then(|c| c.get("mon", "a", k));
    let all: Vec<AddrVec> = match (get("mon_host"), state) {
        (Some(text), _) => admin::mon_addrvecs(&text)?,
        (None, Some(s)) => s.mons.values().cloned().collect(),
        (None, None) => {
            return Err(format!(
                "neither ceph.conf nor a monitor's state is in {}; docs/operate/monitor-lost.md says what can be done",
                l.dir.display()
            )
            .into());
        }
    };
    let addrs: Vec<EntityAddr> = all.iter().filter_map(|a| a.msgr2().copied()).collect();
    let first = addrs.iter().filter_map(|a| a.sock).min_by_key(|s| s.port()).ok_or("no address of a monitor")?;
    let same = |what: &str, given: Option<String>, have: String| match given {
        Some(g) if g != have => Err(format!("--{what} {g}: the cluster has {have}")),
        _ => Ok(()),
    };
    same("ip", a.ip.map(|x: IpAddr| x.to_string()), first.ip().to_string())?;
    same("port", a.port.map(|x| x.to_string()), first.port().to_string())?;
    let fsid = match (get("fsid"), state) {
        (Some(f), Some(s)) if f.trim() != s.fsid.to_string() => {
            return Err(format!("ceph.conf names cluster {f}, the monitor's state is of {}", s.fsid).into());
        }
        (Some(f), _) => f.trim().to_owned(),
        (None, Some(s)) => s.fsid.to_string(),
        (None, None) => return Err("ceph.conf names no fsid".into()),
    };
    let number = |k: &str, d: u32| get(k).and_then(|v| v.trim().parse().ok()).unwrap_or(d);
    Ok(Plan {
        version: plan::VERSION,
        fsid,
        ip: first.ip(),
        port: first.port(),
        auth: get("auth_cluster_required").or_else(|| a.auth.clone()).unwrap_or_else(|| "cephx".into()),
        pool_size: number("osd_pool_default_size", 3),
        osds: Vec::new(),
        mons: addrs.len() as u32,
        msgr1: all.iter().any(|a| a.legacy().is_some()),
        s3: None,
        fs: None,
        mgr: get("mgr").filter(|m| m == "external").map(|_| MgrPlan { ceph_root: None }),
    })
}

/// The OSDs whose stores are found.
fn osds(a: &Args, l: &Layout, conf: Option<&Conf>, state: Option<&Facts>, p: &Plan) -> Result<Vec<OsdPlan>, Error> {
    let mut stores: Vec<(Option<u32>, PathBuf, bool)> = Vec::new();
    for e in fs::read_dir(&l.dir)?.flatten() {
        let name = e.file_name().to_string_lossy().into_owned();
        let Some(id) = name.strip_prefix("osd.").and_then(|n| n.parse::<u32>().ok()) else { continue };
        let device = conf.and_then(|c| c.get("osd", &id.to_string(), "osd_block_path")).map(PathBuf::from);
        match device {
            Some(d) => stores.push((Some(id), d, true)),
            None if e.path().join("block").exists() => stores.push((Some(id), e.path().join("block"), false)),
            None => say(format_args!("{name} has no store and is left out")),
        }
    }
    for d in &a.device {
        let d = layout::absolute(d)?;
        if !stores.iter().any(|(_, s, _)| *s == d) {
            stores.push((None, d, true));
        }
    }
    let mut out: BTreeMap<u32, OsdPlan> = BTreeMap::new();
    for (id, path, is_device) in stores {
        let found = admin::store_labels(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let shown = path.display();
        if found.fsid != p.fsid {
            return Err(format!("{shown} belongs to cluster {}, not {}", found.fsid, p.fsid).into());
        }
        if id.is_some_and(|id| id != found.whoami) {
            return Err(format!("{shown} is the store of osd.{}", found.whoami).into());
        }
        let id = found.whoami;
        let name = format!("osd.{id}");
        let ring = admin::key_from(&l.data(&name).join("keyring"), &name).map(|k| k.to_base64()).ok();
        let key = ring.or_else(|| state.and_then(|s| s.key(&name)));
        let key = match key {
            Some(k) => k,
            None if p.auth == "none" => admin::new_key()?,
            None => {
                return Err(format!("{name}: neither its keyring nor its key in the monitor's state is there").into());
            }
        };
        let device = is_device.then(|| path.clone());
        let size = if is_device { 0 } else { fs::metadata(&path)?.len() };
        let o = OsdPlan { id, uuid: found.uuid, key, device, size, registered: true };
        if out.insert(id, o).is_some() {
            return Err(format!("there are two stores of osd.{id}; {shown} is one of them").into());
        }
    }
    Ok(out.into_values().collect())
}

/// Writes keyrings that are missing, with keys of the monitor's state.
fn keyrings(p: &Plan, l: &Layout, state: Option<&Facts>) -> Result<(), Error> {
    let wanted = [
        (l.admin_keyring(), "client.admin", &make::ADMIN_CAPS[..]),
        (l.data("mon.a").join("keyring"), "mon.", &[("mon", "allow *")][..]),
    ];
    for (path, name, caps) in wanted {
        if admin::key_from(&path, name).is_ok() || p.auth == "none" {
            continue;
        }
        match state.and_then(|s| s.key(name)) {
            Some(key) => {
                write_private(&path, &keyring(name, &key, caps)).map_err(|e| format!("{}: {e}", path.display()))?;
                say(format_args!("{} was made anew", path.display()));
            }
            None => {
                say(format_args!("{} is missing, and the monitor's state is not there to tell the key", path.display()))
            }
        }
    }
    for o in &p.osds {
        let name = format!("osd.{}", o.id);
        let dir = l.data(&name);
        if admin::key_from(&dir.join("keyring"), &name).is_err() {
            fs::create_dir_all(&dir)?;
            write_private(&dir.join("keyring"), &keyring(&name, &o.key, &[]))?;
        }
    }
    Ok(())
}
