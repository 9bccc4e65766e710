//! Reports of a reactor to the manager, about its PGs and its store.

use super::Pgs;
use crate::core::mgr::{SlowBy, Stats};
use base::ledger::Cause;
use base::{Epoch, Now, PoolId};
use pg::State;
use std::collections::BTreeMap;
use std::time::Duration;
use store::ObjectStore;
use wire::types::{StoreStatfs, pg_state};

/// Age at which operations are reported as slow (`osd_op_complaint_time`).
const COMPLAIN_AFTER: Duration = Duration::from_secs(30);

impl Pgs {
    /// Statistics for the manager, and the lowest `last_epoch_clean` of the PGs led here. Without `all`, only
    /// PGs that have changed and a few others are included: a report of a thousand PGs is 1 MB and mostly
    /// repeats the last.
    pub fn stats(&mut self, all: bool, now: Now, store: &dyn ObjectStore) -> (Stats, Epoch) {
        let mut s = Stats::default();
        self.periodic.begin_report();
        let mut lec = Epoch(u32::MAX);
        let mut slow = BTreeMap::new();
        for (n, p) in (0u32..).zip(self.pgs.values_mut().filter(|p| *p.state() != State::Arriving)) {
            s.num_pgs += 1;
            for o in p.dump_ops(now.mono).iter().filter(|o| o.age >= COMPLAIN_AFTER) {
                s.slow_ops += 1;
                let behind = (o.cause == Cause::Replica).then(|| p.behind()).flatten();
                *slow.entry((o.cause, behind)).or_default() += o.age;
                s.oldest_slow_s = s.oldest_slow_s.max(u32::try_from(o.age.as_secs()).unwrap_or(u32::MAX));
            }
            let (_, bytes, omap) = store.collection_usage(p.cid());
            let pool = s.pools.entry(p.spg().pg.pool).or_default();
            pool.data_stored += bytes as i64;
            pool.allocated += bytes as i64;
            pool.omap_allocated += omap as i64;
            if p.is_primary() {
                let mut st = p.report(now);
                let news = p.is_news(&mut st);
                let clean = st.state() & pg_state::CLEAN != 0;
                lec = lec.min(if clean { st.reported_epoch } else { st.last_epoch_clean });
                s.snap_trim_queue_len += st.snaptrimq_len as i32;
                if all || news || self.periodic.repeats(n) {
                    st.purged_snaps = p.purged_snaps();
                    s.pgs.insert(p.spg().pg, st);
                }
            }
        }
        s.slow_by = SlowBy::most(slow);
        let packed = compressed(&mut s.pools, store);
        let f = store.statfs();
        s.statfs = StoreStatfs {
            total: f.total as i64,
            available: f.available as i64,
            allocated: f.allocated as i64,
            data_stored: f.stored as i64,
            omap_allocated: f.omap as i64,
            // Used space that is neither data nor omap. The log's fixed area is not part of the total.
            internal_metadata: (f.total as i64 - f.available as i64 - f.allocated as i64 - f.omap as i64).max(0),
            ..packed
        };
        (s, lec)
    }
}

/// Enters compressed data in the space of pools. Returns the sums.
fn compressed(pools: &mut BTreeMap<PoolId, StoreStatfs>, store: &dyn ObjectStore) -> StoreStatfs {
    let mut all = StoreStatfs::default();
    for (pool, original, stored) in store.compressed() {
        let one = StoreStatfs {
            data_compressed: stored as i64,
            data_compressed_allocated: stored as i64,
            data_compressed_original: original as i64,
            ..Default::default()
        };
        all.add(&one);
        if let Some(p) = pools.get_mut(&pool) {
            p.add(&one);
            p.allocated -= original as i64 - stored as i64;
        }
    }
    all
}
