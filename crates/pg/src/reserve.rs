//! Reservations of recovery and backfill on one OSD, shared by its reactors.
//!
//! Before it recovers, a PG claims a place on its own OSD ([`Side::Local`]), then one on each other OSD that takes
//! part ([`Side::Remote`]); see `pg/recovery/reserve.rs`. Each side has `osd_max_backfills` places. The claim of the
//! highest priority comes first, and of equal ones the oldest. A claim of higher priority preempts the granted one of
//! the lowest.
//!
//! Dropping a claim gives its place back, so an interval can't end with a place left behind. [`Reserver::woken`]
//! tells a reactor which claims were granted or preempted.
//!
//! Invariants:
//!  1. A side never has more granted claims than places. The exception is a change of that number, until the
//!     preempted PGs get their next event.
//!  2. No claim waits while its side has a free place.
//!
//! Facts: `osd_max_backfills`, `osd_recovery_max_active` and the retry intervals from Ceph's OSD configuration
//! reference, priorities from its description of recovery reservations.
//!
//! Tests: `src/reserve/tests.rs` (`random_claims_keep_the_invariants`).

use crate::keep::{Division, Keep, LogConfig};
use crate::limits::{BACKFILL_RANGE, DELETE_BATCH, OBJECT_CONTEXTS_MAX};
use crate::moving::staging_cid;
use base::SpgId;
use base::unreached;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::Cid;
use store::removal::Bounds;

/// Settings of operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryConfig {
    /// `osd_max_backfills`: PGs with their primary here that recover or backfill at a time, and as many with their
    /// primary elsewhere.
    pub max_backfills: u32,
    /// `osd_recovery_max_active`: objects that the PGs with their primary here pull or push at a time.
    pub max_active: u32,
    /// `osd_recovery_retry_interval`: delay before recovery that a full OSD stopped is tried again.
    pub recovery_retry: Duration,
    /// `osd_backfill_retry_interval`: delay before a backfill without space is tried again.
    pub backfill_retry: Duration,
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        let retry = Duration::from_secs(30);
        Self { max_backfills: 1, max_active: 10, recovery_retry: retry, backfill_retry: retry }
    }
}

/// Priorities of reservations; the values are Ceph's.
pub mod priority {
    /// Backfill of a PG with enough copies.
    pub const BACKFILL: u8 = 100;
    /// Backfill of a degraded PG.
    pub const BACKFILL_DEGRADED: u8 = 140;
    /// Recovery by log.
    pub const RECOVERY: u8 = 180;
    /// Recovery or backfill of a PG that cannot serve.
    pub const INACTIVE: u8 = 220;
    /// The highest priority without force.
    pub const MAX: u8 = 253;
    /// Backfill forced by an operator.
    pub const BACKFILL_FORCED: u8 = 254;
    /// Recovery forced by an operator.
    pub const RECOVERY_FORCED: u8 = 255;

    /// `base` plus the PG's own part (missing copies, the pool's `recovery_priority`), below the next base.
    #[must_use]
    pub fn within(base: u8, add: i64) -> u8 {
        let most = match base {
            BACKFILL => BACKFILL_DEGRADED - 1,
            BACKFILL_DEGRADED => RECOVERY - 1,
            RECOVERY => INACTIVE - 1,
            _ => MAX,
        };
        u8::try_from((i64::from(base) + add).clamp(0, most.into())).unwrap_or(most)
    }
}

/// The PG machine that holds a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Reactor of the machine.
    pub reactor: usize,
    /// Index of the machine on its reactor ([`crate::PgConfig::index`]).
    pub index: u32,
    /// The PG.
    pub spg: SpgId,
}

/// The role of this OSD in the recovery that a claim is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The primary is on this OSD.
    Local,
    /// The primary is on another OSD, and this OSD takes part.
    Remote,
}

/// State of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The claim waits for a place.
    Waiting,
    /// The claim has a place.
    Granted,
    /// A claim of higher priority took the place; this one does not wait for another.
    Preempted,
}

/// Claims of one side, by priority and number.
#[derive(Debug, Default)]
struct Queue {
    max: usize,
    waiting: BTreeSet<(Reverse<u8>, u64)>,
    granted: BTreeSet<(u8, Reverse<u64>)>,
}

impl Queue {
    /// Removes a claim.
    fn remove(&mut self, id: u64, prio: u8) {
        self.waiting.remove(&(Reverse(prio), id));
        self.granted.remove(&(prio, Reverse(id)));
    }

    /// Grants and preempts claims by priority; returns those whose phase changed.
    fn fill(&mut self) -> Vec<(u64, Phase)> {
        let mut changed = Vec::new();
        while self.granted.len() > self.max {
            changed.extend(self.granted.pop_first().map(|(_, Reverse(id))| (id, Phase::Preempted)));
        }
        while let Some(&(Reverse(prio), id)) = self.waiting.first() {
            if self.granted.len() >= self.max {
                match self.granted.first() {
                    Some(&(low, Reverse(other))) if low < prio => {
                        self.granted.pop_first();
                        changed.push((other, Phase::Preempted));
                    }
                    _ => break,
                }
            }
            self.waiting.pop_first();
            self.granted.insert((prio, Reverse(id)));
            changed.push((id, Phase::Granted));
        }
        changed
    }
}

#[derive(Debug)]
struct Entry {
    side: Side,
    owner: Owner,
    prio: u8,
    phase: Phase,
}

#[derive(Debug, Default)]
struct Claims {
    next: u64,
    all: BTreeMap<u64, Entry>,
    sides: [Queue; 2],
    /// Objects that are being recovered.
    active: u32,
    /// PGs that no longer exist but whose collections are still being removed.
    leavers: BTreeSet<SpgId>,
    /// Collections that belong to no PG and are being removed.
    remains: BTreeSet<Cid>,
    /// Machines that wait to recover another object.
    hungry: BTreeSet<Owner>,
    /// Machines that the next `woken` of their reactor names.
    woken: BTreeSet<Owner>,
    /// Reactors that were told to call `woken`.
    told: BTreeSet<usize>,
    /// Settings of the logs' lengths.
    log: LogConfig,
}

impl Claims {
    fn fill(&mut self, side: Side) {
        let Some(q) = self.sides.get_mut(side as usize) else { return unreached("there is a queue for each side") };
        for (id, phase) in q.fill() {
            if let Some(e) = self.all.get_mut(&id) {
                e.phase = phase;
                self.woken.insert(e.owner);
            }
        }
    }

    fn feed_hungry(&mut self) {
        self.woken.append(&mut self.hungry);
    }
}

/// A claim, for `dump_recovery_reservations`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimDump {
    /// The side.
    pub side: Side,
    /// The PG that holds the claim.
    pub spg: SpgId,
    /// Its priority.
    pub prio: u8,
    /// True if the claim has a place.
    pub granted: bool,
}

/// Reservations and limits that all PGs of an OSD share; see the module.
#[derive(Debug)]
pub struct Reserver {
    claims: Mutex<Claims>,
    /// Reactors whose machines are to be woken, a bit each (those beyond 63 share the last).
    news: AtomicU64,
    max_active: AtomicU32,
    recovery_retry: AtomicU64,
    backfill_retry: AtomicU64,
    division: Division,
    /// Objects per backfill range, and cached object contexts per PG.
    sizes: [AtomicU32; 2],
    /// Bounds of a step of a PG's removal: objects, bytes of data, omap keys.
    removal: [AtomicU64; 3],
}

impl Default for Reserver {
    fn default() -> Self {
        Self::new(&RecoveryConfig::default())
    }
}

fn bit(reactor: usize) -> u64 {
    1 << reactor.min(63)
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl Reserver {
    /// A reserver with these settings.
    #[must_use]
    pub fn new(c: &RecoveryConfig) -> Self {
        let r = Self {
            claims: Mutex::default(),
            news: AtomicU64::new(0),
            max_active: AtomicU32::new(0),
            recovery_retry: AtomicU64::new(0),
            backfill_retry: AtomicU64::new(0),
            division: Division::default(),
            sizes: [AtomicU32::new(BACKFILL_RANGE as u32), AtomicU32::new(OBJECT_CONTEXTS_MAX as u32)],
            removal: Default::default(),
        };
        r.set_removal(&Bounds { objects: DELETE_BATCH, ..Bounds::default() });
        r.set(c);
        r.set_log(&LogConfig::default());
        r
    }

    /// Sets how many log records PGs keep.
    pub fn set_log(&self, c: &LogConfig) {
        let mut all = self.lock();
        all.log = *c;
        self.division.change(0, c);
    }

    /// Sets the objects per backfill range, and the object contexts that PGs created from here on may cache
    /// (defaults: [`BACKFILL_RANGE`], [`OBJECT_CONTEXTS_MAX`]).
    pub fn set_sizes(&self, range: u32, contexts: u32) {
        for (to, n) in self.sizes.iter().zip([range, contexts]) {
            to.store(n.max(1), Ordering::Relaxed);
        }
    }

    /// Objects per backfill range.
    #[must_use]
    pub(crate) fn backfill_range(&self) -> usize {
        self.sizes[0].load(Ordering::Relaxed) as usize
    }

    /// Object contexts that a PG may cache.
    #[must_use]
    pub(crate) fn contexts(&self) -> usize {
        self.sizes[1].load(Ordering::Relaxed) as usize
    }

    /// Sets the bounds of a step of a PG's removal (default: [`DELETE_BATCH`] objects, and [`Bounds::default`] for the
    /// rest).
    pub fn set_removal(&self, b: &Bounds) {
        for (to, n) in self.removal.iter().zip([b.objects as u64, b.data, b.keys as u64]) {
            to.store(n, Ordering::Relaxed);
        }
    }

    /// Bounds of a step of a PG's removal.
    #[must_use]
    pub(crate) fn removal(&self) -> Bounds {
        let [objects, data, keys] = [0, 1, 2].map(|i| self.removal[i].load(Ordering::Relaxed));
        Bounds { objects: objects as usize, data, keys: keys as usize }
    }

    /// Length of each PG's log.
    #[must_use]
    pub(crate) fn keep(&self) -> Keep {
        self.division.keep()
    }

    /// Counts a PG in the division of log records, until the returned value is dropped.
    pub(crate) fn count(self: Arc<Self>) -> Counted {
        self.division.change(1, &self.lock().log);
        Counted(self)
    }

    /// Applies settings: with fewer places, the claims of lowest priority lose theirs.
    pub fn set(&self, c: &RecoveryConfig) {
        self.max_active.store(c.max_active.max(1), Ordering::Relaxed);
        self.recovery_retry.store(nanos(c.recovery_retry), Ordering::Relaxed);
        self.backfill_retry.store(nanos(c.backfill_retry), Ordering::Relaxed);
        self.change(|claims| {
            for side in [Side::Local, Side::Remote] {
                if let Some(q) = claims.sides.get_mut(side as usize) {
                    q.max = c.max_backfills as usize;
                }
                claims.fill(side);
            }
            claims.feed_hungry();
        });
    }

    /// Delays before a retry after an OSD was full: recovery, backfill.
    #[must_use]
    pub fn retry_intervals(&self) -> (Duration, Duration) {
        let get = |a: &AtomicU64| Duration::from_nanos(a.load(Ordering::Relaxed));
        (get(&self.recovery_retry), get(&self.backfill_retry))
    }

    /// True if [`Reserver::woken`] has machines of that reactor.
    #[must_use]
    pub fn has_news(&self, reactor: usize) -> bool {
        self.news.load(Ordering::Acquire) & bit(reactor) != 0
    }

    /// True if [`Reserver::woken`] has machines of any reactor.
    #[must_use]
    pub fn has_any_news(&self) -> bool {
        self.news.load(Ordering::Acquire) != 0
    }

    /// Reactors other than `reactor` that must be told to call [`Reserver::woken`]; each is named once.
    #[must_use]
    pub fn others_with_news(&self, reactor: usize) -> Vec<usize> {
        let mut c = self.lock();
        let c = &mut *c;
        let all: BTreeSet<usize> = c.woken.iter().map(|o| o.reactor).filter(|r| *r != reactor).collect();
        all.into_iter().filter(|r| c.told.insert(*r)).collect()
    }

    /// Machines of that reactor whose claims were granted or preempted, or that may recover another object. The host
    /// gives them an [`crate::Event::Tick`].
    #[must_use]
    pub fn woken(&self, reactor: usize) -> Vec<u32> {
        let mut out = Vec::new();
        self.change(|c| {
            c.told.remove(&reactor);
            c.woken.retain(|o| {
                let here = o.reactor == reactor;
                if here {
                    out.push(o.index);
                }
                !here
            });
        });
        out
    }

    /// The value of `osd_max_backfills` in force.
    #[must_use]
    pub fn max_backfills(&self) -> usize {
        self.lock().sides.first().map_or(0, |q| q.max)
    }

    /// All claims, granted ones first, then by priority.
    #[must_use]
    pub fn dump(&self) -> Vec<ClaimDump> {
        let mut all: Vec<ClaimDump> = self
            .lock()
            .all
            .values()
            .filter(|e| e.phase != Phase::Preempted)
            .map(|e| ClaimDump { side: e.side, spg: e.owner.spg, prio: e.prio, granted: e.phase == Phase::Granted })
            .collect();
        all.sort_by_key(|c| (!c.granted, Reverse(c.prio)));
        all
    }

    /// Claims a place on one side.
    #[must_use]
    pub fn claim(self: &Arc<Self>, side: Side, owner: Owner, prio: u8) -> Claim {
        let mut id = 0;
        self.change(|c| {
            c.next += 1;
            id = c.next;
            c.all.insert(id, Entry { side, owner, prio, phase: Phase::Waiting });
            if let Some(q) = c.sides.get_mut(side as usize) {
                q.waiting.insert((Reverse(prio), id));
            }
            c.fill(side);
            // The caller reads the phase at once and need not be woken.
            c.woken.remove(&owner);
        });
        Claim { reserver: Arc::clone(self), id }
    }

    /// Counts an object that is being recovered, until the returned value is dropped. `None` if too many are; `owner`
    /// is then woken when one ends.
    pub(crate) fn start(self: &Arc<Self>, owner: Owner) -> Option<Active> {
        let max = self.max_active.load(Ordering::Relaxed);
        let mut c = self.lock();
        if c.active >= max {
            c.hungry.insert(owner);
            return None;
        }
        c.active += 1;
        Some(Active(Arc::clone(self)))
    }

    /// Notes that a PG's collection is still being removed, until the returned value is dropped. A new PG of that
    /// name waits.
    pub(crate) fn leave(self: &Arc<Self>, spg: SpgId) -> Leaver {
        self.lock().leavers.insert(spg);
        Leaver(Arc::clone(self), spg)
    }

    /// True if a PG of that name is still being removed on any reactor.
    #[must_use]
    pub fn is_being_removed(&self, spg: SpgId) -> bool {
        self.lock().leavers.contains(&spg)
    }

    /// Notes that a moved PG's former collection is being removed, until the returned value is dropped.
    pub(crate) fn sweep(self: &Arc<Self>, cid: Cid) -> Remains {
        self.lock().remains.insert(cid);
        Remains(Arc::clone(self), cid)
    }

    /// Notes that the collection of that name is about to be removed ([`crate::Sweep`]), so that no new one is made
    /// under it.
    pub fn announce_removal(&self, cid: Cid) {
        self.lock().remains.insert(cid);
    }

    /// True if a collection of that name is being removed on any reactor.
    #[must_use]
    pub fn is_collection_being_removed(&self, cid: Cid) -> bool {
        self.lock().remains.contains(&cid)
    }

    /// A free name for the collection of a copy of a PG that is not `taken`. The first name may belong to a collection
    /// that is still being removed.
    #[must_use]
    pub fn free_name(&self, spg: SpgId, taken: impl Fn(Cid) -> bool) -> Option<Cid> {
        let own = Cid::Pg(spg);
        [own, staging_cid(own)].into_iter().find(|c| !self.is_collection_being_removed(*c) && !taken(*c))
    }

    fn lock(&self) -> MutexGuard<'_, Claims> {
        // After a panic of another thread the claims are still consistent: each change is made in one step under the
        // lock.
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, f: impl FnOnce(&mut Claims)) {
        let mut c = self.lock();
        f(&mut c);
        let news = c.woken.iter().fold(0, |n, o| n | bit(o.reactor));
        self.news.store(news, Ordering::Release);
    }
}

/// A claim on a place; dropping it gives the place back.
#[derive(Debug)]
pub struct Claim {
    reserver: Arc<Reserver>,
    id: u64,
}

impl Claim {
    /// State of the claim.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.reserver.lock().all.get(&self.id).map_or(Phase::Preempted, |e| e.phase)
    }

    /// Changes the claim's priority; it keeps its age among equals.
    pub fn set_priority(&self, prio: u8) {
        let mut side = None;
        let mut c = self.reserver.lock();
        let c = &mut *c;
        if let Some(e) = c.all.get_mut(&self.id).filter(|e| e.prio != prio) {
            if let Some(q) = c.sides.get_mut(e.side as usize) {
                q.remove(self.id, e.prio);
                match e.phase {
                    Phase::Waiting => drop(q.waiting.insert((Reverse(prio), self.id))),
                    Phase::Granted => drop(q.granted.insert((prio, Reverse(self.id)))),
                    Phase::Preempted => {}
                }
            }
            e.prio = prio;
            side = Some(e.side);
        }
        if let Some(side) = side {
            c.fill(side);
            let news = c.woken.iter().fold(0, |n, o| n | bit(o.reactor));
            self.reserver.news.store(news, Ordering::Release);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.reserver.change(|c| {
            if let Some(e) = c.all.remove(&self.id) {
                if let Some(q) = c.sides.get_mut(e.side as usize) {
                    q.remove(self.id, e.prio);
                }
                c.fill(e.side);
            }
        });
    }
}

/// A PG's handle to the shared reservations. It counts the PG in the division of log records while it lives.
#[derive(Debug)]
pub(crate) struct Counted(Arc<Reserver>);

impl Default for Counted {
    fn default() -> Self {
        Arc::<Reserver>::default().count()
    }
}

impl std::ops::Deref for Counted {
    type Target = Arc<Reserver>;

    fn deref(&self) -> &Arc<Reserver> {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.division.change(-1, &self.0.lock().log);
    }
}

/// Marks a PG whose collection is still being removed, while it lives.
#[derive(Debug)]
pub(crate) struct Leaver(Arc<Reserver>, SpgId);

impl Drop for Leaver {
    fn drop(&mut self) {
        self.0.lock().leavers.remove(&self.1);
    }
}

/// Marks a collection that is being removed, while it lives.
#[derive(Debug)]
pub(crate) struct Remains(Arc<Reserver>, Cid);

impl Drop for Remains {
    fn drop(&mut self) {
        self.0.lock().remains.remove(&self.1);
    }
}

/// An object that is being recovered, counted while this lives.
#[derive(Debug)]
pub(crate) struct Active(Arc<Reserver>);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.change(|c| {
            c.active = c.active.saturating_sub(1);
            c.feed_hungry();
        });
    }
}

#[cfg(test)]
mod tests;
