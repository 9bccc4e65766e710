//! `up --mgr ceph`: Debian's `ceph-mgr` in the manager role, with its modules.
//!
//! While it runs, the monitors' built-in manager role is off. It provides what needs a module: the
//! dashboard, snapshot schedules (`snap_schedule`).

use super::foreign::{Foreign, ask};
use super::layout::Layout;
use super::plan::{MgrPlan, Plan};
use super::supervisor::Spec;
use super::{Args, Error};
use client::Client;
use serde_json::json;

/// Id of the daemon; differs from the monitors' ids, which their built-in roles use.
const ID: &str = "x";

/// Manager options: the arguments override those in the cluster's directory.
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

/// Finds the `ceph-mgr` program.
pub(crate) fn find(m: &MgrPlan) -> Result<Foreign, Error> {
    Ok(Foreign::find(m.ceph_root.as_deref(), "ceph-mgr", "ceph-mgr ceph-mgr-modules-core")?)
}

/// Start command of the daemon.
pub(crate) fn spec(p: &Plan, l: &Layout, program: &Foreign) -> Spec {
    program.daemon("mgr", ID, p, l)
}

/// Makes the daemon's key and files.
pub(crate) async fn prepare(c: &Client, p: &Plan, l: &Layout, program: &Foreign) -> Result<(), Error> {
    program.prepare(p, l)?;
    let caps = ["mon", "allow profile mgr", "osd", "allow *", "mds", "allow *"];
    program.make_key(c, &format!("mgr.{ID}"), &caps, p, l).await
}

/// True once the daemon is the active manager.
pub(crate) async fn is_active(c: &Client) -> Result<bool, Error> {
    let map = ask(c, json!({ "prefix": "mgr dump", "format": "json" })).await?;
    let map: serde_json::Value = serde_json::from_slice(&map)?;
    Ok(map["active_name"] == ID && map["available"] == true)
}
