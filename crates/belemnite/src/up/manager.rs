//! `up --mgr ceph`: Debian's `ceph-mgr` in the manager role, with its modules.
//!
//! The monitors' own role is off while it runs. What only a module of it can do works then: subvolumes (`volumes`), the dashboard, the
//! balancer, `cephfs-top` (`stats`).

use super::files::ask;
use super::foreign::Foreign;
use super::layout::Layout;
use super::plan::{MgrPlan, Plan};
use super::supervisor::Spec;
use super::{Args, Error, write_private};
use client::Client;
use serde_json::json;
use std::fs;
use std::path::Path;

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
    let dir = program.dir(l, &p.fsid);
    let name = format!("mgr.{ID}");
    let data = program.inside(&dir.join(&name));
    let at = |what: &str, path: &Path| format!("--{what}={}", path.display());
    program.spec(
        &name,
        vec![
            "-f".into(),
            "-i".into(),
            ID.into(),
            "-c".into(),
            program.inside(&dir.join("ceph.conf")).display().to_string(),
            at("keyring", &data.join("keyring")),
            at("mgr_data", &data),
            at("admin_socket", &program.inside(&dir.join("run")).join(format!("{name}.asok"))),
            format!("--public_addr={}", p.ip),
            "--pid_file=".into(),
            "--log_to_file=false".into(),
            "--log_to_stderr=true".into(),
        ],
    )
}

/// Makes the daemon's key and files.
pub(crate) async fn prepare(c: &Client, p: &Plan, l: &Layout, program: &Foreign) -> Result<(), Error> {
    let dir = program.dir(l, &p.fsid);
    fs::create_dir_all(dir.join("run"))?;
    if dir != l.dir {
        write_private(&dir.join("ceph.conf"), &p.conf(l))?;
    }
    let name = format!("mgr.{ID}");
    let caps = ["mon", "allow profile mgr", "osd", "allow *", "mds", "allow *"];
    let ring = ask(c, json!({ "prefix": "auth get-or-create", "entity": name, "caps": caps })).await?;
    let data = dir.join(&name);
    fs::create_dir_all(&data)?;
    write_private(&data.join("keyring"), &String::from_utf8_lossy(&ring))?;
    Ok(())
}

/// True once the daemon serves.
pub(crate) async fn is_active(c: &Client) -> Result<bool, Error> {
    let map = ask(c, json!({ "prefix": "mgr dump", "format": "json" })).await?;
    let map: serde_json::Value = serde_json::from_slice(&map)?;
    Ok(map["active_name"] == ID && map["available"] == true)
}
