//! Trimming: removal of clones that only removed snapshots needed, in bounded steps, snapshot by snapshot. Each step asks
//! [`crate::pace`] for its share; its size is in [`crate::limits`].
//!
//! The snapshot index (omap of the PG's own object) lists the clones of each snapshot. The transaction that makes a
//! clone adds its keys, and the one that trims it removes them. So trimming can stop and go on at any point, and the
//! index alone tells which removed snapshots are purged: a primary looks it through once in each interval, a step for
//! each snapshot that has clones. What a PG holds and does for a map does not grow with the removed snapshots.

use crate::effect::{Effect, LogLevel};
use crate::exec::{Step, Stop, View, index_clone, trim_clone};
use crate::limits::{PURGED_RANGES_MAX, SNAP_INDEX_BATCH, TRIM_BATCH, TRIM_BATCH_COST, TRIM_LATE_MAX, TRIM_LOOKS};
use crate::log::{LogEntry, LogKind};
use crate::map::{PoolView, map_flags};
use crate::object::Intervals;
use crate::pace::Class;
use crate::pg::ops::plan::{Plan, Verdict};
use crate::pg::ops::work::TrimWork;
use crate::pg::ops::work::Work;
use crate::pg::seldom::Part;
use crate::pg::{Pg, State, Turn};
use base::errno::{EIO, ENOENT, ENOSPC, Errno};
use base::unreached;
use base::{HObject, ReqId, Utime};
use bytes::Bytes;
use cluster::IntervalSet;
use std::rc::Rc;
use store::{ObjectStore, Oid, Op};

/// Progress of trimming.
#[derive(Debug, Default)]
pub(in crate::pg) struct Trim {
    /// Removed snapshots that the newest map lists. PGs and maps share the set.
    queue: Option<IntervalSet>,
    /// Snapshots of the queue below this one are purged here, except the `late` ones. A snapshot is purged when the
    /// snapshot index names none of its clones.
    cursor: u64,
    /// Snapshots below the cursor that were removed after it had passed them; at most [`TRIM_LATE_MAX`] ranges.
    late: Intervals,
    /// The next snapshot to be purged.
    next: Option<u64>,
    /// Number of changes of the above.
    version: u64,
    /// Steps in flight: one scan, or several clones.
    busy: usize,
    /// Transaction of the last step; the next one starts when it is durable, whatever clients do meanwhile.
    after: u64,
    /// Clones that a scan found and that are not started.
    found: Vec<HObject>,
    /// The snapshot of these clones.
    snap: u64,
}

impl Part for Trim {
    const EMPTY: &'static Self = &Self {
        queue: None,
        cursor: 0,
        late: Intervals::new(),
        next: None,
        version: 0,
        busy: 0,
        after: 0,
        found: Vec::new(),
        snap: 0,
    };

    fn is_empty(&self) -> bool {
        // The last transaction has been durable for long.
        self.queue.is_none() && self.busy == 0 && self.found.is_empty()
    }
}

impl Trim {
    /// Drops the steps in flight, and starts over: another copy may have led the PG.
    pub(in crate::pg) fn restart(&mut self) {
        self.busy = 0;
        self.found.clear();
        self.rewind(0);
    }

    /// True if all snapshots of the queue are purged here.
    pub(in crate::pg) fn is_done(&self) -> bool {
        self.next.is_none()
    }

    /// Number of snapshots that are to be purged.
    pub(in crate::pg) fn left(&self) -> u64 {
        if self.is_done() {
            return 0;
        }
        self.late.bytes() + self.queue.as_ref().map_or(0, |q| q.size_from(self.cursor))
    }

    /// The lowest purged snapshots of the queue, at most [`PURGED_RANGES_MAX`] ranges. The monitor takes snapshots
    /// that all PGs have purged off the queue; then a PG reports further ones.
    pub(in crate::pg) fn purged(&self) -> Vec<(u64, u64)> {
        let Some(q) = &self.queue else { return Vec::new() };
        let first = q.within(0, self.cursor).take(PURGED_RANGES_MAX);
        if self.late.is_empty() {
            return first.collect();
        }
        let mut first = Intervals::of_ranges(first.collect());
        first.subtract(&self.late);
        first.as_slice().iter().take(PURGED_RANGES_MAX).copied().collect()
    }

    fn rewind(&mut self, to: u64) {
        self.cursor = to;
        self.late = Intervals::new();
        self.find_next();
    }

    /// A number that changes with what [`Trim::purged`] returns.
    pub(in crate::pg) fn version(&self) -> u64 {
        self.version
    }

    fn find_next(&mut self) {
        self.version += 1;
        let late = self.late.as_slice().first().map(|r| r.0);
        self.next = late.or_else(|| self.queue.as_ref()?.first_from(self.cursor));
    }

    /// Follows the queue of a newer map, in the time of what changed.
    fn follow(&mut self, pool: &PoolView) {
        let queue = &pool.removed_snaps;
        let now = (!queue.is_empty()).then(|| queue.clone());
        let (Some(before), Some(now)) = (std::mem::replace(&mut self.queue, now), &self.queue) else {
            return self.rewind(0);
        };
        if now.is_version_of(&before) {
            return;
        }
        let cursor = self.cursor;
        if !self.late.is_empty() {
            let still = self.late.as_slice().iter().flat_map(|(s, l)| now.within(*s, s.saturating_add(*l)));
            self.late = Intervals::of_ranges(still.collect());
        }
        let added = pool.snaps_removed_since(&before);
        let late = added.iter().map(|(s, l)| (*s, (*l).min(cursor.saturating_sub(*s)))).filter(|r| r.1 > 0);
        let late = Intervals::of_ranges(late.chain(self.late.as_slice().iter().copied()).collect());
        match late.as_slice() {
            [(first, _), ..] if late.as_slice().len() > TRIM_LATE_MAX => self.rewind(*first),
            _ => {
                self.late = late;
                self.find_next();
            }
        }
    }

    /// Notes that the index names no clone of the snapshots from `snap`, the next one, up to and without `to`; `None`:
    /// of all later ones.
    fn passed(&mut self, snap: u64, to: Option<u64>) {
        if self.late.contains(snap) {
            self.late.remove(snap, to.map_or(u64::MAX, |to| to - snap));
        } else {
            self.cursor = to.or_else(|| self.queue.as_ref().map(IntervalSet::end)).unwrap_or(0);
        }
        self.find_next();
    }
}

impl Pg {
    /// Runs work of trimming.
    pub(in crate::pg) fn run_trim(&mut self, plan: &mut Plan, turn: &mut Turn<'_>) -> Verdict {
        let id = plan.id;
        match &plan.work {
            Work::Trim(TrimWork::Scan) => self.run_trim_scan(id, turn),
            Work::Trim(TrimWork::Clone(clone)) => self.run_trim_clone(id, &clone.clone(), turn),
            _ => unreached("each part runs its own work"),
        }
    }

    /// Takes over the snapshots to be trimmed from a newer map.
    pub(in crate::pg) fn refresh_trim(&mut self) {
        let Some(pool) = self.pool().cloned() else { return };
        if !pool.removed_snaps.is_empty() || self.trim.used().is_some() {
            self.trim.follow(&pool);
        }
    }

    /// True while a step of trimming is in flight.
    pub(in crate::pg) fn is_trimming(&self) -> bool {
        self.trim.busy > 0
    }

    /// Starts the next step, if none is in flight.
    pub(in crate::pg) fn pump_trim(&mut self, turn: &mut Turn<'_>) {
        while !(self.trim.is_done() && self.trim.found.is_empty()) {
            let waits = *self.life.state() != State::Active
                || !self.peers.is_clean()
                || self.life.is_stopping()
                || self.trim.busy > 0
                || self.holds_still()
                || self.journal.durable() < self.trim.after;
            if waits || self.maps.newest().is_none_or(|m| m.flags & map_flags::NOSNAPTRIM != 0) {
                return;
            }
            if !self.env.pacer().take(Class::BestEffort, TRIM_BATCH_COST, self.env.index(), turn.now.mono) {
                return;
            }
            if self.trim.found.is_empty() {
                self.trim.busy = 1;
                self.start_work(Work::Trim(TrimWork::Scan), None, turn);
            } else {
                let n = self.trim.found.len().min(TRIM_BATCH);
                let batch: Vec<HObject> = self.trim.found.drain(..n).collect();
                self.trim.busy = batch.len();
                for clone in batch {
                    let head = clone.head();
                    let plan = Plan::new(self.new_plan_id(), Work::Trim(TrimWork::Clone(clone)), Some(head), true);
                    self.start(plan, turn);
                }
            }
        }
    }

    pub(in crate::pg) fn run_trim_scan(&mut self, id: u64, turn: &mut Turn<'_>) -> Verdict {
        match self.trim_scan(id, turn.store) {
            Ok(submitted) => {
                self.trim.busy = 0;
                if submitted {
                    self.trim.after = self.journal.submitted();
                    return Verdict::Submitted;
                }
                Verdict::Done
            }
            Err(stop @ (Stop::Wait | Stop::Errno(ENOSPC))) => self.step_failed(stop, turn.out),
            Err(Stop::Errno(errno)) => {
                self.pause_trim("the snapshot index", errno, turn.out);
                Verdict::Done
            }
        }
    }

    /// Stops trimming until the next interval, instead of failing in a loop. Clients are served as before. The caller
    /// leaves `busy` as it is.
    fn pause_trim(&self, what: &str, errno: Errno, out: &mut Vec<Effect>) {
        let (spg, me, name) = (self.env.spg(), self.env.whoami(), base::errno::name(errno));
        let text = format!(
            "{spg}: {what} on {me} is unreadable ({name}): trimming pauses until another OSD is primary; mark {me} out"
        );
        tracing::error!("{text}");
        out.push(Effect::Log(LogLevel::Error, text));
    }

    /// Looks for the next clones to be trimmed, and passes the snapshots that have none. Returns true if it submitted a
    /// transaction.
    fn trim_scan(&mut self, id: u64, store: &mut dyn ObjectStore) -> Step<bool> {
        let tag = self.tag(id);
        for _ in 0..TRIM_LOOKS {
            let Some(snap) = self.trim.next else { break };
            let from = snap.to_be_bytes();
            let page =
                match store.omap_range(tag, self.env.cid(), &self.meta(), &from, false, SNAP_INDEX_BATCH, 1 << 20) {
                    Ok(p) => p,
                    Err(store::ReadError::NoObject) => Default::default(),
                    Err(e) => return Err(e.into()),
                };
            let keys: Vec<Bytes> = page.entries.into_iter().map(|(k, _)| k).collect();
            let of = |k: &Bytes| k.first_chunk().map(|snap| u64::from_be_bytes(*snap));
            let first = keys.first().map(of);
            if first != Some(Some(snap)) && first != Some(None) {
                self.trim.passed(snap, first.flatten());
                continue;
            }
            let mut broken = Vec::new();
            for k in keys.into_iter().take_while(|k| of(k).is_none_or(|s| s == snap)) {
                match index_clone(&k) {
                    Some(c) => self.trim.found.push(c),
                    None => broken.push(k),
                }
            }
            self.trim.snap = snap;
            if broken.is_empty() {
                return Ok(false);
            }
            tracing::error!(pg = %self.env.spg(), keys = broken.len(), "snapshot index keys do not decode, dropping them");
            let op = Op::OmapRmKeys { cid: self.env.cid(), oid: self.meta(), keys: broken };
            if let Err(stop) = self.commit_entries(tag, vec![op], &mut [], store) {
                self.trim.found.clear();
                return Err(stop);
            }
            return Ok(true);
        }
        Ok(false)
    }

    pub(in crate::pg) fn run_trim_clone(&mut self, id: u64, clone: &HObject, turn: &mut Turn<'_>) -> Verdict {
        match self.trim_one(id, clone, turn) {
            Ok(()) => {
                self.trim.busy = self.trim.busy.saturating_sub(1);
                self.trim.after = self.journal.submitted();
                Verdict::Submitted
            }
            // Other copies give the object; the plan runs again when it is here.
            Err(Stop::Errno(EIO)) if self.can_heal(&clone.head()) => Verdict::Damaged(clone.head()),
            Err(Stop::Errno(EIO)) => {
                self.pause_trim(&format!("the object {}", clone.head()), EIO, turn.out);
                Verdict::Done
            }
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }

    fn trim_one(&mut self, id: u64, clone: &HObject, turn: &mut Turn<'_>) -> Step<()> {
        let head = clone.head();
        let tag = self.tag(id);
        let before = self.context(id, &head, turn)?;
        let pool = self.pool().cloned().ok_or(ENOENT)?;
        let oid = Oid::new(head.clone());
        let version = self.next_version();
        let planned = {
            let mut view = View::new(turn.store, tag, self.env.cid(), oid, None);
            trim_clone(&mut view, &self.meta(), &before, clone, self.trim.snap, &pool.removed_snaps, version)?
        };
        let Some(t) = planned else {
            // The index names a clone that does not exist, or that stands for other snapshots.
            let key = crate::exec::index_key(self.trim.snap, clone);
            let op = Op::OmapRmKeys { cid: self.env.cid(), oid: self.meta(), keys: vec![key] };
            return self.commit_entries(tag, vec![op], &mut [], turn.store);
        };
        let entry = LogEntry {
            kind: if t.removed { LogKind::Delete } else { LogKind::Modify },
            soid: clone.clone(),
            version,
            prior_version: before.oi.version,
            user_version: 0,
            reqid: ReqId::default(),
            mtime: Utime::ZERO,
            result: 0,
            returns: Vec::new(),
            snaps: t.snaps,
            delta: t.delta,
            undo: Bytes::new(),
            touch: None,
        };
        self.commit_entries(tag, t.ops, &mut [entry], turn.store)?;
        self.journal.add_stats(&t.delta);
        self.scrub_sees(&head, &t.delta);
        let mut after = t.after;
        after.last_write = self.journal.submitted();
        self.plans.cache.put(&head, Rc::new(after));
        Ok(())
    }
}
