//! Pool snapshots.

use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd, committed, done, invalid, refuse};
use base::{SnapId, errno};
use cluster::pool::{PoolSnap, flag};

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd("osd pool mksnap pool:Poolname snap:String", "osd", "rw", 0, make, "take a snapshot of a pool"),
    cmd("osd pool rmsnap pool:Poolname snap:String", "osd", "rw", 0, remove, "remove a snapshot of a pool"),
];

fn make(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let id = c.pool_id("pool")?;
    let (pool, snap) = (c.args.str("pool")?, c.args.str("snap")?);
    let map = c.map();
    let Some(p) = map.pool(id) else { return refuse(errno::ENOENT, "") };
    if p.is_unmanaged_snaps_mode() {
        return invalid(format!("pool {pool} is in unmanaged snaps mode"));
    }
    if p.snap_by_name(&snap).is_some() {
        return done(format!("pool {pool} snap {snap} already exists"));
    }
    if p.is_tier() {
        return invalid(format!("pool {pool} is a cache tier"));
    }
    let (stamp, epoch) = (c.now.wall, c.state.osdmap.epoch.next());
    if let Some(p) = c.pending.pool_mut(c.state, id) {
        let s = SnapId(p.snap_seq.0 + 1);
        p.snap_seq = s;
        p.snaps.insert(s.0, PoolSnap { snapid: s, stamp, name: snap.clone() });
        p.flags |= flag::POOL_SNAPS;
        p.snap_epoch = epoch;
    }
    committed(format!("created pool {pool} snap {snap}"))
}

fn remove(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let id = c.pool_id("pool")?;
    let (pool, snap) = (c.args.str("pool")?, c.args.str("snap")?);
    let map = c.map();
    let Some(p) = map.pool(id) else { return refuse(errno::ENOENT, "") };
    if p.is_unmanaged_snaps_mode() {
        return invalid(format!("pool {pool} is in unmanaged snaps mode"));
    }
    let Some(s) = p.snap_by_name(&snap).map(|s| s.snapid) else {
        return done(format!("pool {pool} snap {snap} does not exist"));
    };
    c.pending.remove_snap(c.state, id, s);
    committed(format!("removed pool {pool} snap {snap}"))
}
