//! `up --fs`: a file system and Debian's `ceph-mds` for it.

use super::foreign::{Foreign, ask};
use super::layout::Layout;
use super::plan::{FsPlan, Plan};
use super::supervisor::Spec;
use super::{Args, Error, say};
use client::Client;
use serde_json::json;

/// Default name of the file system.
const DEFAULT_NAME: &str = "home";
/// Default number of daemons: an active one and a standby.
const DEFAULT_MDS: u32 = 2;
/// Most daemons.
const MAX_MDS: u32 = 26;

/// File system options: the arguments override those in the cluster's directory.
pub(crate) fn decide(a: &Args, have: Option<FsPlan>) -> Result<Option<FsPlan>, Error> {
    let wanted = a.fs.is_some() || a.mds.is_some();
    if !wanted && have.is_none() {
        return Ok(None);
    }
    // `--fs` without a name is the empty text.
    let given = a.fs.clone().filter(|n| !n.is_empty());
    let name = given.or_else(|| have.as_ref().map(|f| f.name.clone())).unwrap_or_else(|| DEFAULT_NAME.into());
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !name.chars().all(good) {
        return Err(format!("--fs {name}: a name of letters, digits and -_.").into());
    }
    if let Some(f) = have.as_ref().filter(|f| f.name != name) {
        return Err(
            format!("the cluster has the file system {}; make others with `ceph fs volume create`", f.name).into()
        );
    }
    let mds = a.mds.or_else(|| have.as_ref().map(|f| f.mds)).unwrap_or(DEFAULT_MDS);
    if mds == 0 || mds > MAX_MDS {
        return Err(format!("--mds {mds}: from 1 to {MAX_MDS} daemons").into());
    }
    let ceph_root = match &a.ceph_root {
        Some(d) => Some(super::layout::absolute(d)?),
        None => have.and_then(|f| f.ceph_root),
    };
    Ok(Some(FsPlan { name, mds, ceph_root }))
}

/// Finds the `ceph-mds` program.
pub(crate) fn find(f: &FsPlan) -> Result<Foreign, Error> {
    Ok(Foreign::find(f.ceph_root.as_deref(), "ceph-mds", "ceph-mds")?)
}

fn names(f: &FsPlan) -> impl Iterator<Item = char> {
    ('a'..='z').take(f.mds as usize)
}

/// Start commands of the daemons.
pub(crate) fn specs(p: &Plan, f: &FsPlan, l: &Layout, program: &Foreign) -> Vec<Spec> {
    names(f).map(|id| program.daemon("mds", &id.to_string(), p, l)).collect()
}

/// Makes the daemons' keys and files.
pub(crate) async fn prepare(c: &Client, p: &Plan, f: &FsPlan, l: &Layout, program: &Foreign) -> Result<(), Error> {
    program.prepare(p, l)?;
    let caps =
        ["mon", "allow profile mds", "osd", "allow rwx tag cephfs *=*", "mds", "allow", "mgr", "allow profile mds"];
    for id in names(f) {
        program.make_key(c, &format!("mds.{id}"), &caps, p, l).await?;
    }
    Ok(())
}

/// Makes the file system with its pools if it does not exist.
pub(crate) async fn make(c: &Client, f: &FsPlan) -> Result<(), Error> {
    let ls = ask(c, json!({ "prefix": "fs ls", "format": "json" })).await?;
    let ls: serde_json::Value = serde_json::from_slice(&ls)?;
    let there = ls.as_array().is_some_and(|v| v.iter().any(|x| x["name"] == f.name.as_str()));
    if !there {
        let (meta, data) = (format!("cephfs.{}.meta", f.name), format!("cephfs.{}.data", f.name));
        for pool in [&meta, &data] {
            ask(c, json!({ "prefix": "osd pool create", "pool": pool })).await?;
        }
        ask(c, json!({ "prefix": "fs new", "fs_name": f.name, "metadata": meta, "data": data })).await?;
        say(format_args!("file system {} made", f.name));
    }
    Ok(())
}

/// True once a daemon is active for rank 0 of the file system.
pub(crate) async fn is_active(c: &Client, f: &FsPlan) -> Result<bool, Error> {
    let map = ask(c, json!({ "prefix": "fs get", "fs_name": f.name, "format": "json" })).await?;
    let map: serde_json::Value = serde_json::from_slice(&map)?;
    let infos = map["mdsmap"]["info"].as_object();
    Ok(infos.is_some_and(|i| i.values().any(|d| d["rank"] == 0 && d["state"] == "up:active")))
}
