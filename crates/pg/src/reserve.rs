//! Who may recover or backfill: the reservations of one OSD, over all its reactors.
//!
//! A PG that wants to recover first claims a place on its own OSD ([`Side::Local`]), then one on each other OSD that takes
//! part ([`Side::Remote`]); `pg/recovery/reserve.rs` is that part. Each side has `osd_max_backfills` places. Who has the highest
//! priority comes first, of equal ones who came first; a claim of higher priority takes the place of the lowest one.
//!
//! A claim is given back by dropping it, so that nothing that ends a PG's interval can forget it. Whose claim was granted or
//! taken away is named by [`Reserver::woken`] to its reactor.
//!
//! Invariants:
//!  1. Never more claims of a side are granted than it has places, but between a change of their number and the next event
//!     of those who lose theirs.
//!  2. No claim waits while its side has a free place.
//!
//! Facts: `osd_max_backfills`, `osd_recovery_max_active` and the retry intervals from Ceph's OSD configuration reference,
//! priorities from its description of recovery reservations.

use crate::keep::{Division, Keep, LogConfig};
use crate::limits::{BACKFILL_RANGE, OBJECT_CONTEXTS_MAX};
use base::SpgId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::Cid;

/// What operators may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryConfig {
    /// `osd_max_backfills`: PGs that recover or backfill at a time, led here; and as many again led elsewhere.
    pub max_backfills: u32,
    /// `osd_recovery_max_active`: objects under way that PGs led here pull or push.
    pub max_active: u32,
    /// `osd_recovery_retry_interval`: when recovery that a full OSD stopped is tried again.
    pub recovery_retry: Duration,
    /// `osd_backfill_retry_interval`: when a backfill that an OSD had no space for is tried again.
    pub backfill_retry: Duration,
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        let retry = Duration::from_secs(30);
        Self { max_backfills: 1, max_active: 10, recovery_retry: retry, backfill_retry: retry }
    }
}

/// Priorities, as Ceph gives them.
pub mod priority {
    /// Copies that only move.
    pub const BACKFILL: u8 = 100;
    /// Backfill of a PG with too few copies, or none of an object.
    pub const BACKFILL_DEGRADED: u8 = 140;
    /// Recovery by log.
    pub const RECOVERY: u8 = 180;
    /// Either, of a PG that cannot serve.
    pub const INACTIVE: u8 = 220;
    /// The highest that is not forced.
    pub const MAX: u8 = 253;
    /// An operator forced the backfill.
    pub const BACKFILL_FORCED: u8 = 254;
    /// An operator forced recovery.
    pub const RECOVERY_FORCED: u8 = 255;

    /// `base` with what a PG adds (how many copies it lacks, its pool's `recovery_priority`), not reaching the next base.
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

/// Whose claim it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The reactor of its machine.
    pub reactor: usize,
    /// The machine there ([`crate::PgConfig::index`]).
    pub index: u32,
    /// Its PG.
    pub spg: SpgId,
}

/// For what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The PG is led here.
    Local,
    /// Another OSD leads it, and this one takes part.
    Remote,
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It waits.
    Waiting,
    /// It has its place.
    Granted,
    /// Another one of higher priority got its place; it does not wait for another.
    Preempted,
}

/// One side: claims by number.
#[derive(Debug, Default)]
struct Queue {
    max: usize,
    waiting: BTreeSet<(Reverse<u8>, u64)>,
    granted: BTreeSet<(u8, Reverse<u64>)>,
}

impl Queue {
    /// Takes a claim out.
    fn remove(&mut self, id: u64, prio: u8) {
        self.waiting.remove(&(Reverse(prio), id));
        self.granted.remove(&(prio, Reverse(id)));
    }

    /// Gives places to who should have them; the claims whose phase that changed.
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
    /// Objects under way.
    active: u32,
    /// PGs that are no more, whose collections are still there.
    leavers: BTreeSet<SpgId>,
    /// Collections that no PG has any more.
    remains: BTreeSet<Cid>,
    /// Who would start another one.
    hungry: BTreeSet<Owner>,
    /// Who is to be told.
    woken: BTreeSet<Owner>,
    /// Reactors that know that they have somebody to be told.
    told: BTreeSet<usize>,
    /// What logs may keep.
    log: LogConfig,
}

impl Claims {
    fn fill(&mut self, side: Side) {
        let Some(q) = self.sides.get_mut(side as usize) else { return };
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

/// A claim as an operator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimDump {
    /// Which side.
    pub side: Side,
    /// Whose.
    pub spg: SpgId,
    /// Its priority.
    pub prio: u8,
    /// Has it.
    pub granted: bool,
}

/// See the module. One per OSD.
#[derive(Debug)]
pub struct Reserver {
    claims: Mutex<Claims>,
    /// Reactors with somebody to be told, a bit each (those beyond 63 share the last).
    news: AtomicU64,
    max_active: AtomicU32,
    recovery_retry: AtomicU64,
    backfill_retry: AtomicU64,
    division: Division,
    /// Objects of a range of backfill, and object contexts of a PG.
    sizes: [AtomicU32; 2],
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
    /// With these settings.
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
        };
        r.set(c);
        r.set_log(&LogConfig::default());
        r
    }

    /// Takes up how many log records PGs keep.
    pub fn set_log(&self, c: &LogConfig) {
        let mut all = self.lock();
        all.log = *c;
        self.division.change(0, c);
    }

    /// Sets how many objects a range of backfill has, and how many object contexts a PG keeps whose machine is equipped from now on
    /// ([`BACKFILL_RANGE`], [`OBJECT_CONTEXTS_MAX`]).
    pub fn set_sizes(&self, range: u32, contexts: u32) {
        for (to, n) in self.sizes.iter().zip([range, contexts]) {
            to.store(n.max(1), Ordering::Relaxed);
        }
    }

    /// Objects of a range of backfill.
    #[must_use]
    pub(crate) fn backfill_range(&self) -> usize {
        self.sizes[0].load(Ordering::Relaxed) as usize
    }

    /// Object contexts of a PG.
    #[must_use]
    pub(crate) fn contexts(&self) -> usize {
        self.sizes[1].load(Ordering::Relaxed) as usize
    }

    /// What the log of each PG keeps now.
    #[must_use]
    pub(crate) fn keep(&self) -> Keep {
        self.division.keep()
    }

    /// A PG more, until it is dropped.
    pub(crate) fn count(self: Arc<Self>) -> Counted {
        self.division.change(1, &self.lock().log);
        Counted(self)
    }

    /// Takes up settings: with fewer places the claims of lowest priority lose theirs.
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

    /// When to try again after an OSD was full: recovery, backfill.
    #[must_use]
    pub fn retry_intervals(&self) -> (Duration, Duration) {
        let get = |a: &AtomicU64| Duration::from_nanos(a.load(Ordering::Relaxed));
        (get(&self.recovery_retry), get(&self.backfill_retry))
    }

    /// True if [`Reserver::woken`] has somebody for that reactor.
    #[must_use]
    pub fn has_news(&self, reactor: usize) -> bool {
        self.news.load(Ordering::Acquire) & bit(reactor) != 0
    }

    /// True if it has somebody for any reactor.
    #[must_use]
    pub fn has_any_news(&self) -> bool {
        self.news.load(Ordering::Acquire) != 0
    }

    /// Reactors other than that one that have somebody to be told and do not know it; each is named once.
    #[must_use]
    pub fn others_with_news(&self, reactor: usize) -> Vec<usize> {
        let mut c = self.lock();
        let c = &mut *c;
        let all: BTreeSet<usize> = c.woken.iter().map(|o| o.reactor).filter(|r| *r != reactor).collect();
        all.into_iter().filter(|r| c.told.insert(*r)).collect()
    }

    /// Machines of that reactor whose claims were granted or taken away, or that may start another object: give them an
    /// [`crate::Event::Tick`].
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

    /// `osd_max_backfills` as it is in force.
    #[must_use]
    pub fn max_backfills(&self) -> usize {
        self.lock().sides.first().map_or(0, |q| q.max)
    }

    /// All claims, for an operator: those granted first, then by priority.
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

    /// Claims a place.
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
            // Whoever claims looks at the outcome at once.
            c.woken.remove(&owner);
        });
        Claim { reserver: Arc::clone(self), id }
    }

    /// Counts an object that is now under way until it is dropped; if there are too many, `owner` is woken when that changes.
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

    /// Notes that a PG is no more whose collection is still there, until it is dropped: a new one of that name has to wait.
    pub(crate) fn leave(self: &Arc<Self>, spg: SpgId) -> Leaver {
        self.lock().leavers.insert(spg);
        Leaver(Arc::clone(self), spg)
    }

    /// True if a PG of that name is still being removed, on whichever reactor.
    #[must_use]
    pub fn is_left(&self, spg: SpgId) -> bool {
        self.lock().leavers.contains(&spg)
    }

    /// Notes that what a PG left when it moved is being removed, until it is dropped.
    pub(crate) fn sweep(self: &Arc<Self>, cid: Cid) -> Remains {
        self.lock().remains.insert(cid);
        Remains(Arc::clone(self), cid)
    }

    /// Notes that what is there under that name will be removed ([`crate::Sweep`]), before anything else is made.
    pub fn doom(&self, cid: Cid) {
        self.lock().remains.insert(cid);
    }

    /// True if what a PG left is being removed under that name, on whichever reactor.
    #[must_use]
    pub fn is_swept(&self, cid: Cid) -> bool {
        self.lock().remains.contains(&cid)
    }

    fn lock(&self) -> MutexGuard<'_, Claims> {
        // What a panic of another thread left is still whole: each change is made in one go.
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, f: impl FnOnce(&mut Claims)) {
        let mut c = self.lock();
        f(&mut c);
        let news = c.woken.iter().fold(0, |n, o| n | bit(o.reactor));
        self.news.store(news, Ordering::Release);
    }
}

/// A claim, until it is dropped.
#[derive(Debug)]
pub struct Claim {
    reserver: Arc<Reserver>,
    id: u64,
}

impl Claim {
    /// What became of it.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.reserver.lock().all.get(&self.id).map_or(Phase::Preempted, |e| e.phase)
    }

    /// Changes its priority; it keeps its turn among equals.
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

/// What PGs of an OSD share, with this one counted among them.
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

/// A PG that is no more, as long as its collection is there.
#[derive(Debug)]
pub(crate) struct Leaver(Arc<Reserver>, SpgId);

impl Drop for Leaver {
    fn drop(&mut self) {
        self.0.lock().leavers.remove(&self.1);
    }
}

/// A collection that no PG has any more, as long as it is there.
#[derive(Debug)]
pub(crate) struct Remains(Arc<Reserver>, Cid);

impl Drop for Remains {
    fn drop(&mut self) {
        self.0.lock().remains.remove(&self.1);
    }
}

/// An object under way.
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
