//! Makes what a cluster consists of: the monitor's state, stores of OSDs, keyrings, and entries in the OSD map.

use super::dir::{self, Change, write_private};
use super::layout::Layout;
use super::plan::{OsdPlan, Plan};
use super::{Error, keyring, say};
use crate::admin;
use base::size;
use client::Client;
use serde_json::json;
use std::fs;
use std::path::Path;

/// A place where stores are to be made, with what may be overwritten in it.
#[derive(Debug, Default)]
pub(crate) struct Permit {
    /// Overwrite devices that hold something else (`--force`).
    pub(crate) force: bool,
    /// A change that was interrupted: its unfinished stores may be overwritten.
    pub(crate) unfinished: Option<Change>,
    /// OSD whose store is given up, although it was served from.
    pub(crate) given_up: Option<u32>,
}

impl Permit {
    /// True if nothing was served from the store of this OSD, or it was given up.
    fn may_remove(&self, id: u32) -> bool {
        self.given_up == Some(id) || self.unfinished.as_ref().is_some_and(|c| c.makes.contains(&id))
    }

    /// True if the device holds the unfinished or given up store of this OSD.
    fn may_format(&self, o: &OsdPlan, device: &Path, before: Option<&OsdPlan>) -> bool {
        let unfinished = self.unfinished.as_ref().filter(|c| c.makes.contains(&o.id));
        let unfinished = unfinished.and_then(|c| c.plan.osds.iter().find(|x| x.id == o.id));
        let given_up = before.filter(|_| self.given_up == Some(o.id));
        let mine = admin::store_labels(device).ok();
        [unfinished, given_up].iter().flatten().any(|x| mine.as_ref().is_some_and(|m| m.uuid == x.uuid))
    }
}

/// Checks that no store of value is where the change makes one.
///
/// # Errors
/// A directory holds a store or keyring of an OSD that the description does not name.
pub(crate) fn check(c: &Change, l: &Layout, permit: &Permit) -> Result<(), Error> {
    for id in c.makes.iter().filter(|id| !c.creates && !permit.may_remove(**id)) {
        let dir = l.data(&format!("osd.{id}"));
        if let Some(f) = ["block", "keyring"].iter().map(|f| dir.join(f)).find(|f| f.symlink_metadata().is_ok()) {
            return Err(format!(
                "{} belongs to an OSD that cluster.json does not name; nothing was changed. If its OSD was purged: rm -r \
                 {}. If cluster.json is an old copy: `belemnite up --recover`",
                f.display(),
                dir.display()
            )
            .into());
        }
    }
    Ok(())
}

/// Makes the stores of a change, and makes its description that of the cluster.
///
/// # Errors
/// A store cannot be made, or a file not written. The note of the change stays, so that it can be repeated.
pub(crate) fn carry_out(c: &Change, before: Option<&Plan>, l: &Layout, permit: &Permit) -> Result<(), Error> {
    if c.creates {
        make_monitor(&c.plan, l)?;
    }
    write_conf(&c.plan, l)?;
    for o in c.plan.osds.iter().filter(|o| c.makes.contains(&o.id)) {
        let old = before.and_then(|p| p.osds.iter().find(|x| x.id == o.id));
        make_osd(&c.plan, o, old, l, permit)?;
    }
    c.finish(l)
}

/// Removes what an interrupted creation has made. It was never served from.
///
/// # Errors
/// A file cannot be removed.
pub(crate) fn clear(c: &Change, l: &Layout) -> Result<(), Error> {
    let mons = (0..c.plan.mons).map(super::plan::mon_name);
    let names = mons.flat_map(|m| [format!("mon.{m}"), format!("etcd.{m}")]);
    for name in names.chain(c.makes.iter().map(|id| format!("osd.{id}"))) {
        remove_dir(&l.data(&name))?;
    }
    Ok(())
}

pub(crate) fn remove_dir(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {e}", path.display()).into()),
        _ => Ok(()),
    }
}

/// Writes `ceph.conf`, keeping the operator's own options.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write_conf(p: &Plan, l: &Layout) -> Result<(), Error> {
    let have = fs::read_to_string(l.conf()).unwrap_or_default();
    Ok(write_private(&l.conf(), &p.conf_beside(l, &have)).map_err(|e| format!("{}: {e}", l.conf().display()))?)
}

/// Caps of the administrator.
pub(crate) const ADMIN_CAPS: [(&str, &str); 4] =
    [("mds", "allow *"), ("mgr", "allow *"), ("mon", "allow *"), ("osd", "allow *")];

/// Makes the monitor's store with its initial keys.
fn make_monitor(p: &Plan, l: &Layout) -> Result<(), Error> {
    let admin = admin::new_key()?;
    let mon = admin::new_key()?;
    write_private(&l.admin_keyring(), &keyring("client.admin", &admin, &ADMIN_CAPS))?;
    let data = l.data("mon.a");
    fs::create_dir_all(&data)?;
    write_private(&data.join("keyring"), &keyring("mon.", &mon, &[("mon", "allow *")]))?;
    admin::mon_mkfs(p, l)
}

/// Makes an OSD's store and keyring; `old` is the OSD whose place it takes. [`register`] tells the monitor.
fn make_osd(p: &Plan, o: &OsdPlan, old: Option<&OsdPlan>, l: &Layout, permit: &Permit) -> Result<(), Error> {
    let name = format!("osd.{}", o.id);
    let data = l.data(&name);
    if permit.may_remove(o.id) {
        remove_dir(&data)?;
    }
    fs::create_dir_all(&data)?;
    write_private(&data.join("keyring"), &keyring(&name, &o.key, &[]))?;
    let force = match &o.device {
        Some(d) => {
            if !d.exists() {
                return Err(format!("--device {}: there is no such device", d.display()).into());
            }
            say(format_args!("{name}: preparing {}", d.display()));
            permit.force || permit.may_format(o, d, old)
        }
        None => {
            say(format_args!("{name}: preparing a file of {}", size::show(o.size)));
            false
        }
    };
    admin::osd_mkfs(p, o, l, force)
}

/// An OSD as the monitor's map shows it.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) id: u64,
    pub(crate) uuid: String,
    /// `ceph osd destroy` was run: the id waits for another store.
    pub(crate) destroyed: bool,
}

/// The OSDs in the monitor's map.
///
/// # Errors
/// The monitor does not answer, or refuses.
pub(crate) async fn shown_osds(c: &Client) -> Result<Vec<Shown>, Error> {
    let out = super::foreign::ask(c, json!({"prefix": "osd dump", "format": "json"})).await?;
    let v: serde_json::Value = serde_json::from_slice(&out)?;
    let one = |o: &serde_json::Value| {
        let destroyed = o["state"].as_array().is_some_and(|s| s.iter().any(|w| w == "destroyed"));
        Some(Shown { id: o["osd"].as_u64()?, uuid: o["uuid"].as_str()?.to_owned(), destroyed })
    };
    Ok(v["osds"].as_array().map(|a| a.iter().filter_map(one).collect()).unwrap_or_default())
}

/// Registers OSDs that were made and never registered, takes up keys that were rotated, and notes both in the
/// description. Returns the ids of OSDs that the map does not have (any more); these are not to run.
///
/// # Errors
/// The monitor does not answer or refuses, or a file cannot be written.
pub(crate) async fn register(c: &Client, p: &mut Plan, l: &Layout) -> Result<Vec<u32>, Error> {
    let shown = shown_osds(c).await?;
    let cephx = p.auth == "cephx";
    let mut gone = Vec::new();
    let mut changed = false;
    for o in &mut p.osds {
        let there = shown.iter().any(|s| s.id == u64::from(o.id) && s.uuid == o.uuid && !s.destroyed);
        if !there && o.registered {
            gone.push(o.id);
            continue;
        }
        if !there {
            let secret = json!({ "cephx_secret": o.key }).to_string();
            let cmd = json!({"prefix": "osd new", "uuid": o.uuid, "id": o.id});
            let r = c.mon_command(&cmd.to_string(), secret.into_bytes().into()).await?;
            if r.rc < 0 {
                return Err(format!("osd.{} could not be registered: {}", o.id, r.status).into());
            }
        } else if cephx && let Some(key) = key_of(c, &format!("osd.{}", o.id)).await? {
            changed |= take_up_key(o, key, l)?;
        }
        changed |= !o.registered;
        o.registered = true;
    }
    if changed {
        dir::store(p, l)?;
    }
    Ok(gone)
}

/// Writes an OSD's key to its keyring and description if it is another one; true if the description changed.
pub(crate) fn take_up_key(o: &mut OsdPlan, key: String, l: &Layout) -> Result<bool, Error> {
    let name = format!("osd.{}", o.id);
    let path = l.data(&name).join("keyring");
    let have = admin::key_from(&path, &name).ok().map(|k| k.to_base64());
    if have.as_ref() != Some(&key) {
        write_private(&path, &keyring(&name, &key, &[])).map_err(|e| format!("{}: {e}", path.display()))?;
        if have.is_some() {
            say(format_args!("{name}: took up its new key"));
        }
    }
    let changed = o.key != key;
    o.key = key;
    Ok(changed)
}

/// The key of an entity; `None` if the monitor has none.
///
/// # Errors
/// The monitor does not answer, or refuses for another reason.
pub(crate) async fn key_of(c: &Client, name: &str) -> Result<Option<String>, Error> {
    let cmd = json!({"prefix": "auth get-key", "entity": name}).to_string();
    let r = c.mon_command(&cmd, Default::default()).await?;
    match r.rc {
        base::errno::ENOENT => Ok(None),
        rc if rc < 0 => Err(format!("auth get-key {name}: {}", r.status).into()),
        _ => Ok(Some(String::from_utf8_lossy(&r.out).trim().to_owned()).filter(|k| !k.is_empty())),
    }
}

/// Makes the administrator's key, with the caps that it has in a new cluster.
async fn make_admin(by: &Client) -> Result<String, Error> {
    let caps: Vec<&str> = ADMIN_CAPS.iter().flat_map(|(service, caps)| [*service, *caps]).collect();
    let cmd = json!({"prefix": "auth get-or-create-key", "entity": "client.admin", "caps": caps});
    let r = by.mon_command(&cmd.to_string(), Default::default()).await?;
    if r.rc < 0 {
        return Err(format!("auth get-or-create-key client.admin: {}", r.status).into());
    }
    Ok(String::from_utf8_lossy(&r.out).trim().to_owned())
}

/// Connects as the administrator. If the keyring is missing or its key was rotated, fetches the key with the monitors'
/// key; if the monitors have none, makes one: `up` needs it.
///
/// # Errors
/// No monitor answers, or neither key is accepted.
pub(crate) async fn connect(l: &Layout) -> Result<Client, Error> {
    let refused = match admin::connect(&l.conf(), "admin", None).await {
        Ok(c) => return Ok(c),
        Err(e) => e,
    };
    let missing = !l.admin_keyring().exists();
    if !missing && !matches!(refused.downcast_ref(), Some(client::ClientError::Auth(_))) {
        return Err(refused);
    }
    let Ok(by) = Client::connect(admin::options_as_monitor(&l.conf(), &l.data("mon.a").join("keyring"))?).await else {
        return Err(refused);
    };
    let (key, what) = match key_of(&by, "client.admin").await? {
        Some(key) if missing => (key, "wrote its keyring, which was missing"),
        Some(key) => (key, "took up its new key"),
        None => (make_admin(&by).await?, "the monitors had no key of it; made a new one"),
    };
    write_private(&l.admin_keyring(), &keyring("client.admin", &key, &ADMIN_CAPS))?;
    say(format_args!("client.admin: {what}"));
    admin::connect(&l.conf(), "admin", None).await
}
