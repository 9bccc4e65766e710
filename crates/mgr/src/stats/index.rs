//! An index of PGs for queries about many of them, kept up to date by each report, so that no query looks at every PG.
//!
//! Invariants:
//!  1. After each change the index holds what a recount over all PGs would give.
//!  2. A report costs a number of entries that depends on the PG's copies only.
//!
//! Tests: `src/stats/tests.rs` (1, `sums_equal_a_recount_after_random_reports`; 2,
//! `no_question_of_each_second_looks_at_quiet_pgs`).

use std::collections::{BTreeMap, BTreeSet};

use base::{Epoch, OsdId, PgId, PoolId, Utime};
use wire::types::{PgStat, pg_state as s};

/// States that somebody may have to act on; a PG that is active and in none of them is quiet.
pub const NOTABLE: u64 = s::DOWN
    | s::RECOVERY_UNFOUND
    | s::BACKFILL_UNFOUND
    | s::DEGRADED
    | s::INCONSISTENT
    | s::PEERING
    | s::REPAIR
    | s::INCOMPLETE
    | s::STALE
    | s::BACKFILL_TOOFULL
    | s::UNDERSIZED
    | s::RECOVERY_TOOFULL
    | s::SNAPTRIM_ERROR;

/// Seconds of a bucket of scrub times.
const BUCKET: u32 = 3600;

/// Number of PGs by the role of an OSD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// PGs in whose acting set the OSD is.
    pub acting: i32,
    /// PGs in whose up set the OSD is.
    pub up: i32,
    /// PGs in whose up set, and not in whose acting set, the OSD is.
    pub up_not_acting: i32,
    /// PGs whose acting primary the OSD is.
    pub primary: i32,
}

/// PGs that are not quiet and whose alerts are the same: their notable states, and since when (in seconds) they have
/// been without being active, peered, fresh and of full size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    state: u64,
    since: [u32; 4],
}

impl Group {
    fn of(st: &PgStat) -> Option<Self> {
        let state = st.state() & (NOTABLE | s::ACTIVE);
        if state == s::ACTIVE {
            return None;
        }
        let when = |bad: bool, t: Utime| if bad { t.sec } else { 0 };
        let since = [
            when(state & s::ACTIVE == 0, st.last_active),
            when(state & s::PEERING != 0, st.last_peered),
            when(state & s::STALE != 0, st.last_unstale),
            when(state & s::UNDERSIZED != 0, st.last_fullsized),
        ];
        Some(Self { state, since })
    }
}

/// Kind of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scrub {
    /// Compares metadata.
    Shallow,
    /// Compares data.
    Deep,
}

/// The index over the statistics of all PGs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    groups: BTreeMap<Group, BTreeSet<PgId>>,
    pub(super) loads: BTreeMap<OsdId, Load>,
    by_primary: BTreeMap<OsdId, BTreeSet<PgId>>,
    /// PGs with unfound objects.
    pub(super) unfound: BTreeSet<PgId>,
    /// Number of PGs by the epoch in which they were last clean.
    clean_at: BTreeMap<Epoch, u32>,
    /// PGs by pool and hour of their last shallow and deep scrub.
    scrubbed: [BTreeMap<(PoolId, u32), BTreeSet<PgId>>; 2],
    /// Number of PGs whose peering an OSD blocks.
    pub(super) blocked: BTreeMap<OsdId, u64>,
    /// A bit for each seed of a pool that has reported.
    reported: BTreeMap<PoolId, Vec<u64>>,
}

/// The epoch in which a PG was last clean. One that is clean is so as of its report, as in Ceph
/// (`pg_stat_t::get_effective_last_epoch_clean`).
fn clean_at(st: &PgStat) -> Epoch {
    let clean = st.state() & (s::CLEAN | s::STALE) == s::CLEAN;
    if clean { st.reported_epoch } else { st.last_epoch_clean }
}

fn add<K: Ord>(to: &mut BTreeMap<K, BTreeSet<PgId>>, key: K, id: PgId) {
    to.entry(key).or_default().insert(id);
}

fn remove<K: Ord>(from: &mut BTreeMap<K, BTreeSet<PgId>>, key: &K, id: PgId) {
    if let Some(all) = from.get_mut(key) {
        all.remove(&id);
        if all.is_empty() {
            from.remove(key);
        }
    }
}

impl Index {
    /// Adds a PG that is not in the index.
    pub(super) fn put(&mut self, id: PgId, st: &PgStat) {
        if let Some(g) = Group::of(st) {
            add(&mut self.groups, g, id);
        }
        self.load(st, 1);
        add(&mut self.by_primary, st.acting_primary, id);
        if st.stats.sum.num_objects_unfound > 0 {
            self.unfound.insert(id);
        }
        *self.clean_at.entry(clean_at(st)).or_default() += 1;
        for (of, at) in self.scrubbed.iter_mut().zip([st.last_scrub_stamp, st.last_deep_scrub_stamp]) {
            add(of, (id.pool, at.sec / BUCKET), id);
        }
        for o in &st.blocked_by {
            *self.blocked.entry(*o).or_default() += 1;
        }
        self.mark(id, true);
    }

    /// Removes a PG, with the statistics that it was added with.
    pub(super) fn take(&mut self, id: PgId, st: &PgStat) {
        if let Some(g) = Group::of(st) {
            remove(&mut self.groups, &g, id);
        }
        self.load(st, -1);
        remove(&mut self.by_primary, &st.acting_primary, id);
        self.unfound.remove(&id);
        if let Some(n) = self.clean_at.get_mut(&clean_at(st)) {
            *n -= 1;
            if *n == 0 {
                self.clean_at.remove(&clean_at(st));
            }
        }
        for (of, at) in self.scrubbed.iter_mut().zip([st.last_scrub_stamp, st.last_deep_scrub_stamp]) {
            remove(of, &(id.pool, at.sec / BUCKET), id);
        }
        for o in &st.blocked_by {
            if let Some(n) = self.blocked.get_mut(o) {
                *n -= 1;
                if *n == 0 {
                    self.blocked.remove(o);
                }
            }
        }
        self.mark(id, false);
    }

    fn load(&mut self, st: &PgStat, by: i32) {
        let named = |o: &&OsdId| **o != OsdId::NONE;
        for o in st.acting.iter().filter(named) {
            self.change(*o, |l| l.acting += by);
        }
        for o in st.up.iter().filter(named) {
            let elsewhere = !st.acting.contains(o);
            self.change(*o, |l| {
                l.up += by;
                l.up_not_acting += if elsewhere { by } else { 0 };
            });
        }
        self.change(st.acting_primary, |l| l.primary += by);
    }

    fn change(&mut self, o: OsdId, how: impl FnOnce(&mut Load)) {
        let l = self.loads.entry(o).or_default();
        how(l);
        if *l == Load::default() {
            self.loads.remove(&o);
        }
    }

    /// Marks a PG as reported, or not. `seed` is less than the number of PGs of a pool of the map.
    fn mark(&mut self, id: PgId, reported: bool) {
        let bits = self.reported.entry(id.pool).or_default();
        let word = id.seed as usize / 64;
        if bits.len() <= word {
            bits.resize(word + 1, 0);
        }
        if let Some(w) = bits.get_mut(word) {
            *w = if reported { *w | 1 << (id.seed % 64) } else { *w & !(1 << (id.seed % 64)) };
        }
        while bits.last() == Some(&0) {
            bits.pop();
        }
        if bits.is_empty() {
            self.reported.remove(&id.pool);
        }
    }

    /// Seeds below `pg_num` of a pool that have not reported, in order.
    pub(super) fn silent(&self, pool: PoolId, pg_num: u32) -> impl Iterator<Item = u32> + '_ {
        let bits = self.reported.get(&pool).map_or(&[][..], Vec::as_slice);
        let words = (0..pg_num.div_ceil(64)).map(|n| (n * 64, bits.get(n as usize).copied().unwrap_or(0)));
        let open = words.filter(|(_, w)| *w != u64::MAX);
        open.flat_map(|(first, w)| (0..64).filter(move |b| w >> b & 1 == 0).map(move |b| first + b))
            .take_while(move |seed| *seed < pg_num)
    }

    /// PGs that are not quiet, in groups whose alerts are the same.
    pub(super) fn groups(&self) -> impl Iterator<Item = &BTreeSet<PgId>> {
        self.groups.values()
    }

    /// PGs by their acting primary.
    pub(super) fn of_primary(&self, o: OsdId) -> impl Iterator<Item = PgId> + '_ {
        self.by_primary.get(&o).into_iter().flatten().copied()
    }

    /// The oldest epoch in which a PG was last clean.
    pub(super) fn oldest_clean(&self) -> Option<Epoch> {
        self.clean_at.first_key_value().map(|(e, _)| *e)
    }

    /// PGs of a pool whose last scrub is before a time: sets of them, and a set that has also later ones.
    pub(super) fn scrubbed_before(
        &self,
        pool: PoolId,
        kind: Scrub,
        time: Utime,
    ) -> (impl Iterator<Item = &BTreeSet<PgId>>, Option<&BTreeSet<PgId>>) {
        let [shallow, deep] = &self.scrubbed;
        let all = if kind == Scrub::Deep { deep } else { shallow };
        let last = (pool, time.sec / BUCKET);
        (all.range((pool, 0)..last).map(|(_, ids)| ids), all.get(&last))
    }
}
