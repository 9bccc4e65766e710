//! Trimming: removal of clones that only removed snapshots needed, in bounded steps, snapshot by snapshot.
//!
//! The snapshot index (omap of the PG's own object) lists the clones of each snapshot. The transaction that makes a
//! clone adds its keys, and the one that trims it removes them. So trimming can stop and go on at any point.

use crate::effect::{Effect, LogLevel};
use crate::exec::{Step, Stop, View, index_clone, trim_clone};
use crate::limits::{SNAP_INDEX_BATCH, TRIM_BATCH, TRIM_BATCH_COST};
use crate::log::{LogEntry, LogKind};
use crate::map::map_flags;
use crate::object::Intervals;
use crate::pace::Class;
use crate::pg::ops::plan::{Plan, Verdict, Work};
use crate::pg::seldom::Part;
use crate::pg::{Pg, State};
use base::errno::{ENOENT, ENOSPC};
use base::{HObject, Now, ReqId, Utime};
use bytes::Bytes;
use std::rc::Rc;
use store::{ObjectStore, Oid, Op};

/// Progress of trimming.
#[derive(Debug, Default)]
pub(in crate::pg) struct Trim {
    /// Removed snapshots that are not purged here.
    pub todo: Intervals,
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
    const EMPTY: &'static Self = &Self { todo: Intervals::new(), busy: 0, after: 0, found: Vec::new(), snap: 0 };

    fn is_empty(&self) -> bool {
        // The last transaction has been durable for long.
        self.todo.is_empty() && self.busy == 0 && self.found.is_empty()
    }
}

impl Trim {
    /// Drops the steps in flight.
    pub(in crate::pg) fn restart(&mut self) {
        self.busy = 0;
        self.found.clear();
    }
}

impl Pg {
    /// Drops purged snapshots that the map no longer lists, and computes the snapshots to be trimmed.
    pub(in crate::pg) fn refresh_trim(&mut self) {
        let Some(pool) = self.pool().cloned() else { return };
        if !self.info.purged_snaps.is_empty() {
            let kept = self.info.purged_snaps.intersection(&pool.removed_snaps);
            if kept != self.info.purged_snaps {
                self.info.purged_snaps = kept;
                self.info_dirty = true;
            }
        }
        if !(pool.removed_snaps.is_empty() && self.trim.todo.is_empty()) {
            self.trim.todo.clone_from(&pool.removed_snaps);
            self.trim.todo.subtract(&self.info.purged_snaps);
        }
    }

    /// True while a step of trimming is in flight.
    pub(in crate::pg) fn is_trimming(&self) -> bool {
        self.trim.busy > 0
    }

    /// Starts the next step, if none is in flight.
    pub(in crate::pg) fn pump_trim(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        while let Some(&(snap, _)) = self.trim.todo.as_slice().first() {
            let rests = self.state != State::Active
                || !self.peers.clean
                || self.stopping
                || self.trim.busy > 0
                || self.holds_still()
                || self.durable < self.trim.after;
            if rests || self.map.as_ref().is_none_or(|m| m.flags & map_flags::NOSNAPTRIM != 0) {
                return;
            }
            if !self.pacer.take(Class::BestEffort, TRIM_BATCH_COST, self.cfg.index, now.mono) {
                return;
            }
            if self.trim.found.is_empty() {
                self.trim.snap = snap;
                self.trim.busy = 1;
                self.start_work(Work::TrimScan, None, now, store, out);
            } else {
                let n = self.trim.found.len().min(TRIM_BATCH);
                let batch: Vec<HObject> = self.trim.found.drain(..n).collect();
                self.trim.busy = batch.len();
                for clone in batch {
                    let head = clone.head();
                    let plan = Plan::new(self.new_plan_id(), Work::TrimClone(clone), Some(head), true);
                    self.start(plan, now, store, out);
                }
            }
        }
    }

    pub(in crate::pg) fn run_trim_scan(
        &mut self,
        id: u64,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Verdict {
        match self.trim_scan(id, store) {
            Ok(submitted) => {
                self.trim.busy = 0;
                if submitted {
                    self.trim.after = self.submitted;
                    return Verdict::Submitted;
                }
                Verdict::Done
            }
            Err(stop @ (Stop::Wait | Stop::Errno(ENOSPC))) => self.step_failed(stop, out),
            Err(Stop::Errno(errno)) => {
                // Clients are served as before. `busy` stays set: trimming pauses until the next interval instead of
                // failing in a loop.
                let (spg, me, name) = (self.cfg.spg, self.cfg.whoami, base::errno::name(errno));
                let text = format!(
                    "{spg}: the snapshot index on {me} is unreadable ({name}): trimming pauses until another OSD is primary; mark {me} out"
                );
                tracing::error!("{text}");
                out.push(Effect::Log(LogLevel::Error, text));
                Verdict::Done
            }
        }
    }

    fn trim_scan(&mut self, id: u64, store: &mut dyn ObjectStore) -> Step<bool> {
        let tag = self.tag(id);
        let from = self.trim.snap.to_be_bytes();
        let page = match store.omap_range(tag, self.cid, &self.meta(), &from, false, SNAP_INDEX_BATCH, 1 << 20) {
            Ok(p) => p,
            Err(store::ReadError::NoObject) => Default::default(),
            Err(e) => return Err(e.into()),
        };
        let keys: Vec<Bytes> = page.entries.into_iter().map(|(k, _)| k).take_while(|k| k.starts_with(&from)).collect();
        if keys.is_empty() {
            self.info.purged_snaps.insert(self.trim.snap, 1);
            self.info_dirty = true;
            if let Err(s) = self.commit_entries(tag, Vec::new(), &mut [], store) {
                self.info.purged_snaps.remove(self.trim.snap, 1);
                return Err(s);
            }
            let snap = self.trim.snap;
            self.trim.todo.remove(snap, 1);
            tracing::debug!(pg = %self.cfg.spg, snap = self.trim.snap, "snapshot purged");
            return Ok(true);
        }
        let mut broken = Vec::new();
        for k in keys {
            match index_clone(&k) {
                Some(c) => self.trim.found.push(c),
                None => broken.push(k),
            }
        }
        if broken.is_empty() {
            return Ok(false);
        }
        tracing::error!(pg = %self.cfg.spg, keys = broken.len(), "snapshot index keys do not decode, dropping them");
        let op = Op::OmapRmKeys { cid: self.cid, oid: self.meta(), keys: broken };
        self.commit_entries(tag, vec![op], &mut [], store)?;
        Ok(true)
    }

    pub(in crate::pg) fn run_trim_clone(
        &mut self,
        id: u64,
        clone: &HObject,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Verdict {
        match self.trim_one(id, clone, now, store) {
            Ok(()) => {
                self.trim.busy = self.trim.busy.saturating_sub(1);
                self.trim.after = self.submitted;
                Verdict::Submitted
            }
            Err(stop) => self.step_failed(stop, out),
        }
    }

    fn trim_one(&mut self, id: u64, clone: &HObject, now: Now, store: &mut dyn ObjectStore) -> Step<()> {
        let head = clone.head();
        let tag = self.tag(id);
        let before = self.context(id, &head, now, store)?;
        let pool = self.pool().cloned().ok_or(ENOENT)?;
        let oid = Oid::new(head.clone());
        let planned = {
            let mut view = View::new(store, tag, self.cid, oid, None);
            trim_clone(&mut view, &self.meta(), &before, clone, &pool.removed_snaps)?
        };
        let Some(t) = planned else {
            // The index names a clone that does not exist.
            let key = crate::exec::index_key(self.trim.snap, clone);
            let op = Op::OmapRmKeys { cid: self.cid, oid: self.meta(), keys: vec![key] };
            return self.commit_entries(tag, vec![op], &mut [], store);
        };
        let entry = LogEntry {
            kind: if t.removed { LogKind::Delete } else { LogKind::Modify },
            soid: clone.clone(),
            version: self.next_version(),
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
        self.commit_entries(tag, t.ops, &mut [entry], store)?;
        self.info.stats.add(&t.delta);
        self.scrub_sees(&head, &t.delta);
        let mut after = t.after;
        after.last_write = self.submitted;
        self.cache.put(&head, Rc::new(after));
        Ok(())
    }
}
