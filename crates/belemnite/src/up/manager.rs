//! `up --mgr ceph`: Debian's `ceph-mgr` in the manager role, with its modules.
//!
//! The monitors' own role is off while it runs. What only a module of it can do works then: subvolumes (`volumes`), the dashboard, the
//! balancer, `cephfs-top` (`stats`).

use super::foreign::{Foreign, ask};
use super::layout::Layout;
use super::plan::{MgrPlan, Plan};
use super::supervisor::Spec;
use super::{Args, Error};
use client::Client;
use serde_json::json;

/// Name of the daemon. Not that of a monitor: their built-in roles have those.
const ID: &str = "x";

/// What the arguments ask for, over what the directory holds.
pub(crate) fn decide(a: &Args, have: Option<MgrPlan>) -> Result<Option<MgrPlan>, Error> {
    let ceph = a.mgr.as_deref().map_or(have.is_some(), |m| m == "ceph");
    if !ceph {
        return Ok(None);
    }
    let ceph_root = match &a.ceph_root {
        Some(d) => Some(super::layout::absolute(d)?),
        None => have.and_then(|m| m.ceph_root),
    };
    Ok(Some(MgrPlan { ceph_root }))
}

/// The daemon's program.
pub(crate) fn find(m: &MgrPlan) -> Result<Foreign, Error> {
    Ok(Foreign::find(m.ceph_root.as_deref(), "ceph-mgr", "ceph-mgr ceph-mgr-modules-core")?)
}

/// How the daemon is started.
pub(crate) fn spec(p: &Plan, l: &Layout, program: &Foreign) -> Spec {
    program.daemon("mgr", ID, p, l)
}

/// Makes the daemon's key and files.
pub(crate) async fn prepare(c: &Client, p: &Plan, l: &Layout, program: &Foreign) -> Result<(), Error> {
    program.prepare(p, l)?;
    let caps = ["mon", "allow profile mgr", "osd", "allow *", "mds", "allow *"];
    program.make_key(c, &format!("mgr.{ID}"), &caps, p, l).await
}

/// True once the daemon serves.
pub(crate) async fn is_active(c: &Client) -> Result<bool, Error> {
    let map = ask(c, json!({ "prefix": "mgr dump", "format": "json" })).await?;
    let map: serde_json::Value = serde_json::from_slice(&map)?;
    Ok(map["active_name"] == ID && map["available"] == true)
}
