//! Snapshots that an MDS removed: they are queued for removal in the file system's pools.

use std::collections::BTreeMap;

use base::PoolId;
use cluster::caps::Need;
use cluster::pool::flag;
use wire::WireMessage;
use wire::msg::MRemoveSnaps;

use crate::core::MonCore;
use crate::core::propose::waiter::Waiter;
use crate::state::ConnKey;

/// Largest snapshot id (`CEPH_MAXSNAP`).
const MAX_SNAP: u64 = u64::MAX - 2;
/// Most snapshots taken from one message; an MDS sends the rest again.
const MAX_SNAPS: usize = 100_000;

impl MonCore {
    /// Queues the snapshots, and answers with the same list once that is durable. Snapshots of a removed pool, or
    /// that are already queued, are only acknowledged.
    pub(in crate::core) fn remove_snaps(&mut self, c: ConnKey, m: MRemoveSnaps) {
        let Some(s) = self.sender(c) else { return };
        if !s.principal().allows_command("osd", "osd pool rmsnap", &BTreeMap::new(), Need::RW) {
            tracing::warn!("mon: {} lacks caps to remove snapshots", self.who(c));
            return;
        }
        if m.snaps.values().map(Vec::len).sum::<usize>() > MAX_SNAPS {
            return self.close(c, "too many snapshots in one message".into());
        }
        let features = s.features();
        for (pool, snaps) in &m.snaps {
            let pool = PoolId(i64::from(*pool));
            let map = self.pending.map(&self.state);
            let Some(p) = map.pool(pool) else { continue };
            if p.is_pool_snaps_mode() {
                tracing::warn!("mon: ignoring an MDS's snapshots in pool {}, which has pool snapshots", pool.0);
                continue;
            }
            let fresh: Vec<u64> = snaps
                .iter()
                .filter(|s| (1..=MAX_SNAP).contains(&s.0) && !self.is_removed_snap(pool, **s))
                .map(|s| s.0)
                .collect();
            let Some(newest) = fresh.iter().max().copied() else { continue };
            let epoch = self.pending.inc_mut(&self.state).epoch;
            let Some(p) = self.pending.pool_mut(&self.state, pool) else { continue };
            p.flags |= flag::SELFMANAGED_SNAPS;
            p.snap_seq.0 = p.snap_seq.0.max(newest);
            p.snap_epoch = epoch;
            let queue = self.pending.inc_mut(&self.state).new_removed_snaps.entry(pool).or_default();
            for s in fresh {
                if !queue.contains(s) {
                    queue.insert(s, 1);
                }
            }
        }
        let answer = MRemoveSnaps { snaps: m.snaps, ..MRemoveSnaps::default() }.to_message(features);
        self.answers.wait(Waiter::Send(c, answer));
    }
}
