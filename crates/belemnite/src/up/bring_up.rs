//! Commands to the monitor before daemons start: new OSDs, keys, and the file system.

use super::cluster::Programs;
use super::layout::Layout;
use super::plan::Plan;
use super::{Error, dir, files, gateway, make, manager};
use client::Client;

/// Waits for the monitor, registers OSDs that it was not told of, and prepares the other daemons. Returns the OSDs that
/// the map does not have any more.
pub(super) async fn bring_up(p: &mut Plan, l: &Layout, programs: &Programs) -> Result<Vec<u32>, Error> {
    let c: Client = make::connect(l).await?;
    let gone = make::register(&c, p, l).await?;
    if take_up_keys(&c, p, l, programs).await? {
        dir::store(p, l)?;
    }
    if let Some(f) = &p.fs {
        files::make(&c, f).await?;
    }
    Ok(gone)
}

/// Makes keys for Ceph's daemons that have none at the monitor, and writes the monitor's keys to their keyrings. The
/// gateway's key goes to the description; true if it is another one than before.
pub(super) async fn take_up_keys(c: &Client, p: &mut Plan, l: &Layout, programs: &Programs) -> Result<bool, Error> {
    let changed = match &mut p.s3 {
        Some(s) => gateway::register(c, s).await?,
        None => false,
    };
    if let Some(program) = &programs.mgr {
        manager::prepare(c, p, l, program).await?;
    }
    if let Some((f, program)) = p.fs.as_ref().zip(programs.mds.as_ref()) {
        files::prepare(c, p, f, l, program).await?;
    }
    Ok(changed)
}
