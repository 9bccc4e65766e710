//! `pg getmap`: the statistics in the binary form of Ceph's PG map, for programs that decode it.

use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd, flag as cf};
use crate::state::ClusterState;
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::{Features, Writer};

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] =
    &[cmd("pg getmap", "pg", "r", cf::MGR, getmap, "get the statistics of PGs, OSDs and pools, encoded")];

/// Version of the encoding (`PGMap::encode`), which is also the oldest that reads it.
const VERSION: u8 = 8;

fn getmap(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let rs = format!("got pgmap version {}", c.state.mgr.stats.version);
    Ok(CommandOutcome { rs, ..CommandOutcome::output(encoded(c.state, c.session.features)) })
}

fn encoded(state: &ClusterState, features: Features) -> Bytes {
    let (st, epoch) = (&state.mgr.stats, state.osdmap.epoch);
    let mut w = Writer::new(features);
    w.versioned(VERSION, VERSION, |w| {
        w.u64(st.version);
        w.put(&st.pgs().map(|(id, s)| (*id, s.clone())).collect::<BTreeMap<_, _>>());
        w.put(&st.osds().map(|(id, s)| (*id, s.clone())).collect::<BTreeMap<_, _>>());
        // The epochs of the map that the sums are about, and of the last search for stale PGs, which every turn does.
        w.put(&epoch);
        w.put(&epoch);
        w.put(&st.stamp);
        w.put(&st.pool_statfs().map(|((pool, osd), s)| ((pool.0, osd.0), *s)).collect::<BTreeMap<_, _>>());
    });
    w.into_bytes()
}
