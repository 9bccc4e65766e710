//! Statistics of PGs, pools and OSDs from the OSDs' reports to the manager role (Ceph's `PGMap`). `mon::core::mgr`
//! passes the reports on.
//!
//! Volatile: a restarted process starts empty and is filled within one report period. No decision about data depends on
//! it. It answers operators and clients (`status`, `df`, `pg dump`, STATFS, GETPOOLSTATS) and raises health warnings.
//!
//! | module | contents |
//! | --- | --- |
//! | `autoscale` | recommended number of PGs of each pool (Ceph's `pg_autoscaler`) |
//! | `counters` | performance counters that daemons report: OSDs, MDS daemons, gateways, mirrors |
//! | `index` | an index of PGs, kept up to date by each report, so that no query looks at every PG |
//! | `options` | options of running daemons, as they report them: for `config show` |
//! | `pgs` | queries about single PGs that the index answers |
//! | `progress` | recovery: the fraction of degraded or misplaced copies restored, and the remaining time |
//! | `rate` | rates: differences of sums over the last samples |
//! | `space` | used and available space, by CRUSH rule, device class and pool |
//!
//! Invariants:
//!  1. `pool(p)` and `sum()` equal the sums over all PGs held; each report updates them.
//!  2. Of two reports of a PG the one with the greater (epoch, sequence) counts; an older one is ignored.
//!  3. Space is that of OSDs that exist and are in.
//!  4. What is asked for each second, by each map or by `status` and `health` is answered from the index and the sums,
//!     without a look at each PG.
//!
//! Tests: `src/stats/tests.rs`.

pub mod autoscale;
pub mod counters;
mod index;
pub mod options;
mod pgs;
mod progress;
mod rate;
pub mod space;

pub use index::{Load, NOTABLE, Scrub};
pub use progress::RecoveryEvent;
pub use rate::{Rate, Rates, Recovered};

use base::ledger::Cause;
use base::{Epoch, Mono, Now, OsdId, PgId, PoolId, Utime};
use cluster::{IntervalSet, OsdMap};
use index::Index;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use wire::types::{OsdStat, PgCount, PgMapDigest, PgStat, PoolStat, StoreStatfs, pg_state};

/// Most PGs in one report; more are a protocol error.
pub const REPORT_PGS_MAX: usize = 1 << 20;

/// Health metrics an OSD reports beside its PGs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DaemonHealth {
    /// Slow operations.
    pub slow_ops: u32,
    /// Age of the oldest slow operation in seconds.
    pub slow_oldest: u32,
    /// PGs whose creation is pending.
    pub pending_creating: u64,
    /// The cause for which the slow operations wait, if the OSD tells it.
    pub slow_cause: Option<Cause>,
    /// The OSD they wait for, if it is another one.
    pub slow_behind: Option<OsdId>,
}

/// The newest report of an OSD, also of one that is out.
#[derive(Clone, Copy, Debug)]
struct LastReport {
    at: Mono,
    /// The OSD's `up_from` at the report: a report of an earlier run says nothing about the present one.
    up_from: Epoch,
    num_pgs: u32,
}

/// All statistics of PGs, pools and OSDs.
#[derive(Debug, Default)]
pub struct PgStats {
    /// Counter that increases with each report.
    pub version: u64,
    /// Time of the last report.
    pub stamp: Utime,
    pgs: BTreeMap<PgId, PgStat>,
    osds: BTreeMap<OsdId, OsdStat>,
    /// Health metrics from the manager sessions of OSDs.
    pub health: BTreeMap<OsdId, DaemonHealth>,
    last_report: BTreeMap<OsdId, LastReport>,
    statfs: BTreeMap<(PoolId, OsdId), StoreStatfs>,
    pools: BTreeMap<PoolId, PoolStat>,
    num_by_pool: BTreeMap<PoolId, i64>,
    sum: PoolStat,
    by_state: BTreeMap<u64, i64>,
    index: Index,
    /// Number of PGs that queries looked at.
    walked: Cell<u64>,
    /// Whether each OSD was down at the last map, and since when it is up.
    synced: Vec<(OsdId, bool, Epoch)>,
    /// PGs with a report since whose primary is down or was started again.
    late: BTreeSet<PgId>,
    /// Number of PGs that new maps were compared with.
    looked_at: u64,
    rates: Rates,
    recovery: Option<RecoveryEvent>,
    /// Sums of a separate manager; while it is active, daemons report to it.
    foreign: Option<Box<Foreign>>,
}

/// A separate manager's digest.
#[derive(Debug)]
struct Foreign {
    digest: PgMapDigest,
    pools: BTreeMap<PoolId, PoolStat>,
    avail: BTreeMap<i32, i64>,
}

impl PgStats {
    /// Handles an OSD's report.
    pub fn report<'a>(
        &mut self,
        osd: OsdId,
        stat: &OsdStat,
        pgs: impl IntoIterator<Item = (&'a PgId, &'a PgStat)>,
        pool_statfs: impl IntoIterator<Item = (PoolId, StoreStatfs)>,
        map: &OsdMap,
        now: Now,
    ) {
        self.version += 1;
        self.stamp = now.wall;
        let last = LastReport { at: now.mono, up_from: map.info(osd).up_from, num_pgs: stat.num_pgs };
        self.last_report.insert(osd, last);
        if map.is_in(osd) {
            self.osds.insert(osd, stat.clone());
        }
        for (id, st) in pgs.into_iter().take(REPORT_PGS_MAX) {
            // Ignore PGs of a removed pool or beyond `pg_num`: no later map would remove them.
            if map.pool(id.pool).is_none_or(|p| id.seed >= p.pg_num) {
                continue;
            }
            let newer = self.pgs.get(id).is_none_or(|old| {
                (st.reported_epoch, st.reported_seq) > (old.reported_epoch, old.reported_seq)
                    || old.state() & pg_state::STALE != 0
            });
            if newer {
                if is_old(map, st) {
                    self.late.insert(*id);
                }
                self.put(*id, st.clone());
            }
        }
        for (pool, fs) in pool_statfs {
            if map.pool(pool).is_some() {
                self.put_statfs(pool, osd, Some(fs));
            }
        }
    }

    /// Takes a separate manager's sums, which then answer every query they can.
    pub fn take_digest(&mut self, digest: PgMapDigest, now: Now) {
        self.version += 1;
        self.stamp = now.wall;
        let pools = digest.pg_pool_sum.iter().map(|(p, s)| (PoolId(i64::from(*p)), s.clone())).collect();
        let avail = digest.avail_space_by_rule.iter().copied().collect();
        self.foreign = Some(Box::new(Foreign { digest, pools, avail }));
    }

    /// Drops the sums of a separate manager that is gone.
    pub fn drop_digest(&mut self) {
        self.foreign = None;
    }

    /// Snapshots that every PG of `pool` has purged; `None` until all PGs have reported.
    #[must_use]
    pub fn purged_snaps(&self, pool: PoolId, pg_num: u32) -> Option<IntervalSet> {
        let set = |v: &[(u64, u64)]| {
            let mut s = IntervalSet::new();
            v.iter().for_each(|(start, len)| s.insert(*start, *len));
            s
        };
        if let Some(f) = &self.foreign {
            return f.digest.purged_snaps.iter().find(|(p, _)| *p == pool).map(|(_, v)| set(v));
        }
        if !self.is_complete(pool, pg_num) {
            return None;
        }
        let mut all: Option<IntervalSet> = None;
        for (_, st) in self.pgs_of(pool) {
            let one = set(&st.purged_snaps);
            let both = all.map_or_else(|| one.clone(), |a| intersection(&a, &one));
            if both.is_empty() {
                return Some(both);
            }
            all = Some(both);
        }
        all
    }

    /// Available bytes of a CRUSH rule, if a separate manager reported them.
    #[must_use]
    pub fn foreign_avail(&self, rule: i32) -> Option<i64> {
        self.foreign.as_ref().and_then(|f| f.avail.get(&rule).copied())
    }

    /// Space by device class, if a separate manager reported it.
    #[must_use]
    pub fn foreign_classes(&self) -> Option<BTreeMap<String, OsdStat>> {
        self.foreign.as_ref().map(|f| f.digest.osd_sum_by_class.iter().cloned().collect())
    }

    /// Handles a new map: removes PGs and OSDs that it no longer has, and marks PGs stale whose primary is down.
    pub fn sync(&mut self, map: &OsdMap, now: Now) {
        let gone: Vec<PoolId> = self.num_by_pool.keys().chain(self.pools.keys()).copied().collect();
        for p in BTreeSet::from_iter(gone) {
            if map.pool(p).is_none() {
                self.forget_pool(p);
            }
        }
        let beyond: Vec<PgId> = map
            .pools
            .iter()
            .flat_map(|(id, p)| {
                let (first, last) = (PgId { pool: *id, seed: p.pg_num }, PgId { pool: *id, seed: u32::MAX });
                self.pgs.range(first..=last).map(|(pg, _)| *pg)
            })
            .collect();
        beyond.into_iter().for_each(|id| self.take(id));
        let dead: Vec<OsdId> = self.osds.keys().filter(|o| map.is_out(**o)).copied().collect();
        for o in dead {
            self.osds.remove(&o);
        }
        let lost: Vec<OsdId> = self.last_report.keys().filter(|o| !map.exists(**o)).copied().collect();
        for o in lost {
            self.last_report.remove(&o);
            self.health.remove(&o);
            let keys: Vec<(PoolId, OsdId)> = self.statfs.keys().filter(|(_, x)| *x == o).copied().collect();
            for (p, _) in keys {
                self.put_statfs(p, o, None);
            }
        }
        let down: Vec<OsdId> = self.health.keys().filter(|o| map.is_down(**o)).copied().collect();
        for o in down {
            self.health.remove(&o);
        }
        // Only PGs of changed OSDs are looked at, and those with a report that was old when it came.
        let osds: Vec<_> = map.osds().map(|o| (o, map.is_down(o), map.info(o).up_from)).collect();
        let mut look = std::mem::take(&mut self.late);
        if osds != self.synced {
            let (old, new) = (BTreeSet::from_iter(self.synced.iter()), BTreeSet::from_iter(osds.iter()));
            for (o, ..) in old.symmetric_difference(&new) {
                look.extend(self.index.of_primary(*o));
            }
            self.synced = osds;
        }
        self.looked_at += look.len() as u64;
        let is_stale = |id: &PgId| self.pgs.get(id).is_some_and(|s| s.state() & pg_state::STALE == 0 && is_old(map, s));
        let stale: Vec<PgId> = look.into_iter().filter(is_stale).collect();
        for id in stale {
            if let Some(mut s) = self.pgs.get(&id).cloned() {
                s.set_state(s.state() | pg_state::STALE);
                s.last_unstale = s.last_fresh;
                s.last_change = now.wall;
                self.put(id, s);
            }
        }
    }

    /// Takes a sample for the rates; called every few seconds.
    pub fn tick(&mut self, now: Now) {
        self.rates.sample(now.mono, &self.sum, &self.pools, self.pgs.len());
        let sum = &self.sum.stats.sum;
        let left = sum.num_objects_degraded.saturating_add(sum.num_objects_misplaced);
        self.recovery = progress::next(self.recovery, left, now.wall);
    }

    /// The current recovery event, if any copies are degraded or misplaced.
    #[must_use]
    pub fn recovery(&self) -> Option<RecoveryEvent> {
        self.recovery
    }

    /// Forgets a removed pool.
    pub fn forget_pool(&mut self, pool: PoolId) {
        let ids: Vec<PgId> = self.pgs_of(pool).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.take(id));
        let keys: Vec<(PoolId, OsdId)> =
            self.statfs.range((pool, OsdId(i32::MIN))..=(pool, OsdId(i32::MAX))).map(|(k, _)| *k).collect();
        for (p, o) in keys {
            self.put_statfs(p, o, None);
        }
        self.pools.remove(&pool);
        self.num_by_pool.remove(&pool);
    }

    fn put(&mut self, id: PgId, st: PgStat) {
        self.take(id);
        self.sum.add_pg(&st);
        self.pools.entry(id.pool).or_default().add_pg(&st);
        *self.num_by_pool.entry(id.pool).or_default() += 1;
        *self.by_state.entry(st.state()).or_default() += 1;
        self.index.put(id, &st);
        self.pgs.insert(id, st);
    }

    fn take(&mut self, id: PgId) {
        let Some(old) = self.pgs.remove(&id) else { return };
        self.index.take(id, &old);
        sub_pg(&mut self.sum, &old);
        if let Some(p) = self.pools.get_mut(&id.pool) {
            sub_pg(p, &old);
        }
        if let Some(n) = self.num_by_pool.get_mut(&id.pool) {
            *n -= 1;
        }
        if let Some(n) = self.by_state.get_mut(&old.state()) {
            *n -= 1;
            if *n <= 0 {
                self.by_state.remove(&old.state());
            }
        }
    }

    fn put_statfs(&mut self, pool: PoolId, osd: OsdId, fs: Option<StoreStatfs>) {
        let old = match fs {
            Some(f) => self.statfs.insert((pool, osd), f),
            None => self.statfs.remove(&(pool, osd)),
        };
        let p = self.pools.entry(pool).or_default();
        if let Some(o) = old {
            p.store_stats.sub(&o);
            p.num_store_stats -= 1;
            self.sum.store_stats.sub(&o);
            self.sum.num_store_stats -= 1;
        }
        if let Some(f) = fs {
            p.store_stats.add(&f);
            p.num_store_stats += 1;
            self.sum.store_stats.add(&f);
            self.sum.num_store_stats += 1;
        }
    }

    /// Statistics of all PGs that have reported.
    pub fn pgs(&self) -> impl Iterator<Item = (&PgId, &PgStat)> {
        self.pgs.iter().inspect(|_| self.walk())
    }

    fn walk(&self) {
        self.walked.set(self.walked.get() + 1);
    }

    /// Number of PGs that queries have looked at, one after the other, since the process began.
    #[must_use]
    pub fn walked(&self) -> u64 {
        self.walked.get()
    }

    /// Number of PGs that new maps were compared with so far; a map in which no OSD changes is compared with none.
    #[must_use]
    pub fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// Number of PGs that have reported.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pgs.len()
    }

    /// True if no PG has reported.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pgs.is_empty()
    }

    /// Statistics of the PGs of a pool.
    pub fn pgs_of(&self, pool: PoolId) -> impl Iterator<Item = (&PgId, &PgStat)> {
        self.pgs.range(PgId { pool, seed: 0 }..=PgId { pool, seed: u32::MAX }).inspect(|_| self.walk())
    }

    /// Statistics of a PG.
    #[must_use]
    pub fn pg(&self, id: PgId) -> Option<&PgStat> {
        self.pgs.get(&id)
    }

    /// PGs whose acting primary is this OSD.
    pub fn pgs_led_by(&self, o: OsdId) -> impl Iterator<Item = PgId> {
        self.index.of_primary(o)
    }

    /// Statistics of all OSDs that have reported.
    pub fn osds(&self) -> impl DoubleEndedIterator<Item = (&OsdId, &OsdStat)> {
        self.osds.iter()
    }

    /// Statistics of an OSD.
    #[must_use]
    pub fn osd(&self, id: OsdId) -> Option<&OsdStat> {
        self.osds.get(&id)
    }

    /// Time of an OSD's last report.
    #[must_use]
    pub fn last_report(&self, id: OsdId) -> Option<Mono> {
        self.last_report.get(&id).map(|r| r.at)
    }

    /// Number of PGs that an OSD holds by its newest report, also if the OSD is out. `None` if the OSD is down or has
    /// not reported since it came up.
    #[must_use]
    pub fn held_pgs(&self, id: OsdId, map: &OsdMap) -> Option<u32> {
        let last = self.last_report.get(&id)?;
        (map.is_up(id) && last.up_from == map.info(id).up_from).then_some(last.num_pgs)
    }

    /// Sums of a pool; zero if nothing was reported yet.
    #[must_use]
    pub fn pool(&self, id: PoolId) -> PoolStat {
        let pools = self.foreign.as_ref().map_or(&self.pools, |f| &f.pools);
        pools.get(&id).cloned().unwrap_or_default()
    }

    /// True if the sums of a pool are complete: each of its `pg_num` PGs has reported, or a separate manager sums up.
    #[must_use]
    pub fn is_complete(&self, id: PoolId, pg_num: u32) -> bool {
        self.foreign.is_some() || self.num_by_pool.get(&id).is_some_and(|n| *n >= i64::from(pg_num))
    }

    /// Sums of all PGs.
    #[must_use]
    pub fn sum(&self) -> &PoolStat {
        self.foreign.as_ref().map_or(&self.sum, |f| &f.digest.pg_sum)
    }

    /// Sums of all OSDs.
    #[must_use]
    pub fn osd_sum(&self) -> OsdStat {
        if let Some(f) = &self.foreign {
            return f.digest.osd_sum.clone();
        }
        sum_osds(self.osds.values())
    }

    /// Space of each pool on each OSD, if the stores report it.
    pub fn pool_statfs(&self) -> impl Iterator<Item = (&(PoolId, OsdId), &StoreStatfs)> {
        self.statfs.iter()
    }

    /// Change of the sums over the rate window, and the window's length in seconds.
    #[must_use]
    pub fn delta(&self) -> (PoolStat, f64) {
        self.rates.delta()
    }

    /// Rates of a pool, or of the cluster for `None`.
    #[must_use]
    pub fn rate(&self, pool: Option<PoolId>) -> Rate {
        self.rates.rate(pool)
    }

    /// The measured rate of the last recovery; `None` if there was none of some size since the start.
    #[must_use]
    pub fn recovered(&self) -> Option<Recovered> {
        self.rates.recovered()
    }

    /// Number of PGs in the map.
    #[must_use]
    pub fn num_pg(&self, map: &OsdMap) -> i64 {
        map.pools.values().map(|p| i64::from(p.pg_num)).sum()
    }

    /// Number of PGs by state; PGs that never reported count as state 0 ("unknown").
    #[must_use]
    pub fn states(&self, map: &OsdMap) -> BTreeMap<u64, i64> {
        if let Some(f) = &self.foreign {
            return f.digest.num_pg_by_state.iter().map(|(s, n)| (*s, i64::from(*n))).collect();
        }
        let mut out = self.by_state.clone();
        let missing = self.num_pg(map) - self.pgs.len() as i64;
        if missing > 0 {
            *out.entry(0).or_default() += missing;
        }
        out
    }

    /// PGs by role of each OSD.
    #[must_use]
    pub fn by_osd(&self) -> BTreeMap<OsdId, PgCount> {
        if let Some(f) = &self.foreign {
            return f.digest.num_pg_by_osd.iter().cloned().collect();
        }
        let count = |l: &Load| PgCount { acting: l.acting, up_not_acting: l.up_not_acting, primary: l.primary };
        self.index.loads.iter().map(|(o, l)| (*o, count(l))).collect()
    }

    /// Oldest epoch in which every PG of the map was clean; `None` until all PGs have reported. No PG needs older maps.
    #[must_use]
    pub fn min_last_epoch_clean(&self, map: &OsdMap) -> Option<Epoch> {
        if self.foreign.is_some() {
            // A digest lacks this number; the OSDs' beacons have it.
            return Some(map.epoch);
        }
        if (self.pgs.len() as i64) < self.num_pg(map) {
            return None;
        }
        self.index.oldest_clean()
    }

    /// The digest that a manager sends to its monitor, and the source of clients' statistics.
    #[must_use]
    pub fn digest(&self, map: &OsdMap) -> PgMapDigest {
        if let Some(f) = &self.foreign {
            return f.digest.clone();
        }
        let states = self.states(map);
        let mut seqs: Vec<u64> = Vec::new();
        for (o, s) in &self.osds {
            if let Ok(i) = usize::try_from(o.0)
                && i < map.osd_state.len()
            {
                if seqs.len() <= i {
                    seqs.resize(i + 1, 0);
                }
                if let Some(slot) = seqs.get_mut(i) {
                    *slot = s.seq;
                }
            }
        }
        let by_class = space::by_class(self, map);
        PgMapDigest {
            num_pg: self.num_pg(map),
            num_pg_active: states.iter().filter(|(s, _)| *s & pg_state::ACTIVE != 0).map(|(_, n)| n).sum(),
            num_pg_unknown: states.get(&0).copied().unwrap_or(0),
            num_osd: map.osds().count() as i64,
            pg_pool_sum: self.pools.iter().map(|(p, s)| (p.0 as i32, s.clone())).collect(),
            pg_sum: self.sum.clone(),
            osd_sum: self.osd_sum(),
            num_pg_by_state: states.iter().map(|(s, n)| (*s, *n as i32)).collect(),
            num_pg_by_osd: self.by_osd().into_iter().collect(),
            num_pg_by_pool: map.pools.iter().map(|(id, p)| (*id, i64::from(p.pg_num))).collect(),
            osd_last_seq: seqs,
            avail_space_by_rule: space::avail_by_rule(self, map).into_iter().collect(),
            osd_sum_by_class: by_class.into_iter().collect(),
            ..PgMapDigest::default()
        }
    }
}

/// True if the report is from a primary that is down, or from before the primary's last start.
fn is_old(map: &OsdMap, s: &PgStat) -> bool {
    map.is_down(s.acting_primary) || s.reported_epoch < map.info(s.acting_primary).up_from
}

/// Intersection of two interval sets.
#[must_use]
pub fn intersection(a: &IntervalSet, b: &IntervalSet) -> IntervalSet {
    let mut only_a = a.clone();
    only_a.subtract(b);
    let mut both = a.clone();
    both.subtract(&only_a);
    both
}

fn sub_pg(p: &mut PoolStat, s: &PgStat) {
    p.stats.sum.sub(&s.stats.sum);
    p.log_size -= s.log_size;
    p.ondisk_log_size -= s.ondisk_log_size;
    p.up -= s.up.len() as i32;
    p.acting -= s.acting.len() as i32;
}

/// Sums OSD statistics as Ceph does.
pub fn sum_osds<'a>(it: impl Iterator<Item = &'a OsdStat>) -> OsdStat {
    let mut t = OsdStat::default();
    for s in it {
        t.kb += s.kb;
        t.kb_used += s.kb_used;
        t.kb_used_data += s.kb_used_data;
        t.kb_used_omap += s.kb_used_omap;
        t.kb_used_meta += s.kb_used_meta;
        t.kb_avail += s.kb_avail;
        t.snap_trim_queue_len += s.snap_trim_queue_len;
        t.num_snap_trimming += s.num_snap_trimming;
        t.statfs.add(&s.statfs);
        t.num_pgs += s.num_pgs;
        t.num_shards_repaired += s.num_shards_repaired;
        t.num_osds += s.num_osds;
        t.num_per_pool_osds += s.num_per_pool_osds;
        t.num_per_pool_omap_osds += s.num_per_pool_omap_osds;
    }
    t
}

#[cfg(test)]
mod tests;
