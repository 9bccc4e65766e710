//! A PG of a pool that gets fewer PGs takes over what others had ([`crate::pg::resize::merge_source`] is their side).
//!
//! At the map that says so it asks each of those that are joined to it for what they leave. If this copy and the other one are
//! as they were when the PGs were found ready, their objects become one collection, the log keeps the request ids of both, and
//! peering goes on as in any new interval. A copy that missed something, here or there, knows nothing from then on: its
//! objects stay for comparing, and it is filled by backfill as an empty one would be.
//!
//! The log's records get new versions, those before the version `(epoch of the map, sum of both + 1)`, so that the newest one has
//! the same on all copies however long their logs are; no object has a newer version.
//!
//! Invariants:
//!  1. Collection, log, info, snapshot index change in one transaction. The collection's hash bits and the epoch of the
//!     info say afterwards that it was done.
//!  2. All copies that were ready come out with the same last version and the same records, as far as each goes back.

use crate::effect::Effect;
use crate::exec::{Step, Stop, split_bits};
use crate::info::PgInfo;
use crate::kin::{Heir, Kin};
use crate::limits::DELETE_BATCH;
use crate::log::{LogEntry, PgLog};
use crate::map::MapView;
use crate::object::own_objects;
use crate::pg::backend::ec::kept::Kept;
use crate::pg::ops::commit::Action;
use crate::pg::ops::plan::{Verdict, Work};
use crate::pg::peering::log_merge::set_missing;
use crate::pg::seldom::Part;
use crate::pg::{Pg, State};
use base::errno::{E2BIG, ENOSPC};
use base::{Epoch, Eversion, HObject, Now, PgId, ShardId, SpgId};
use bytes::Bytes;
use cluster::osdmap::interval::children;
use std::collections::{BTreeMap, BTreeSet};
use store::{Cid, ObjectStore, Oid, Op};

/// Instead of a shard's number in the name of a collection: where objects are put that are to be joined to a PG.
pub const BERTH: ShardId = ShardId(100);

/// Records that a join keeps on a full device.
const LOG_LEFT: usize = 250;

/// What a PG knows of those that are joined to it.
#[derive(Debug, Default)]
pub(in crate::pg) struct Joins {
    /// Who is joined by which map, for maps that were not handled yet.
    coming: BTreeMap<Epoch, Vec<SpgId>>,
    /// What they left; it may come before the map.
    heirs: BTreeMap<SpgId, Option<Box<Heir>>>,
    /// Who is joined by the map that is being handled.
    now: Vec<SpgId>,
    /// What was asked for was told.
    told: bool,
    /// Objects of theirs that did not read.
    damaged: BTreeSet<HObject>,
}

impl Part for Joins {
    const EMPTY: &'static Self = &Self {
        coming: BTreeMap::new(),
        heirs: BTreeMap::new(),
        now: Vec::new(),
        told: false,
        damaged: BTreeSet::new(),
    };

    fn is_empty(&self) -> bool {
        self.coming.is_empty() && self.heirs.is_empty() && self.now.is_empty() && !self.told && self.damaged.is_empty()
    }
}

impl Pg {
    /// PGs that are joined to this one by a map with so many. Asked before the machine gets that map.
    pub fn joins_at(&mut self, epoch: Epoch, pg_num: u32) {
        let spg = self.cfg.spg;
        let old = std::mem::replace(&mut self.pg_num_coming, pg_num);
        if pg_num == 0 || pg_num >= old || spg.pg.seed >= pg_num {
            return;
        }
        let sources: Vec<SpgId> =
            children(spg.pg.seed, pg_num, old).map(|seed| SpgId { pg: PgId { seed, ..spg.pg }, ..spg }).collect();
        if !sources.is_empty() {
            self.bits_coming = split_bits(spg.pg, pg_num);
            self.joins.coming.insert(epoch, sources);
        }
    }

    /// Tells how many PGs the pool has by the newest map it was told of.
    pub fn at_pg_num(&mut self, pg_num: u32) {
        self.pg_num_coming = pg_num;
    }

    /// Tells which map it had seen when it was written down.
    pub fn was_at(&mut self, epoch: Epoch) {
        self.stored_at = epoch;
    }

    /// True if what such a map does to PGs was done before it was loaded.
    #[must_use]
    pub fn has_seen(&self, epoch: Epoch) -> bool {
        epoch < self.stored_at
    }

    /// True if its objects are another PG's by the newest map it has handled.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.state == State::Leaving
    }

    /// True if it is not yet at the map that says that its objects are another PG's.
    #[must_use]
    pub fn has_yet_to_leave(&self) -> bool {
        use State::{Deleted, Deleting, Failed, Leaving, Stopped};
        !matches!(self.state, Leaving | Deleting | Deleted | Stopped | Failed(_))
    }

    /// A message of a PG of this OSD.
    pub(in crate::pg) fn handle_kin(
        &mut self,
        from: SpgId,
        kin: Kin,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) {
        match (&self.state, kin) {
            (State::Leaving, kin) => self.kin_of_leaver(kin, now, store, out),
            (State::Deleting | State::Deleted | State::Stopped | State::Failed(_), kin) => {
                out.extend(answer_for_none(from, &kin));
            }
            (_, Kin::Heir(h)) => {
                self.joins.heirs.insert(from, h);
                self.check_heirs(now, store, out);
            }
            (State::Joining, Kin::Cargo { ops, damaged, last }) => {
                self.joins.damaged.extend(damaged);
                self.start_work(Work::Stow(ops, last), None, now, store, out);
            }
            _ => {}
        }
    }

    /// Takes from the maps that wait the joins of one; true if there are any.
    pub(in crate::pg) fn await_heirs(&mut self, map: &MapView) -> bool {
        let Some(j) = self.joins.used() else { return false };
        let mut later = j.coming.split_off(&Epoch(map.epoch.0 + 1));
        let due = j.coming.remove(&map.epoch);
        std::mem::swap(&mut j.coming, &mut later);
        j.now = due.unwrap_or_default();
        !j.now.is_empty()
    }

    /// Stops what is under way; the interval ends with this map.
    pub(in crate::pg) fn start_join(
        &mut self,
        map: MapView,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) {
        tracing::info!(pg = %self.cfg.spg, epoch = %map.epoch, with = ?self.joins.now, "joining");
        self.close_collection(State::Joining, self.is_primary() && !self.stopping, now, out);
        self.joins.told = false;
        self.joins.damaged.clear();
        let epoch = map.epoch;
        self.early_maps.insert(0, map);
        out.extend(self.joins.now.iter().map(|to| Effect::Kin { to: *to, kin: Kin::Await(epoch) }));
        self.check_heirs(now, store, out);
    }

    /// Goes on when all have told; whom nobody waits for is told to go.
    fn check_heirs(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        if self.state == State::Joining && !self.joins.told {
            self.joins.told = self.joins.now.iter().all(|s| self.joins.heirs.contains_key(s));
            if self.joins.told {
                let work = match self.good_heir() {
                    Some((_, heir)) if store.beside(self.cid, heir.cid) => Work::Join(Some(heir.cid)),
                    _ => Work::Berth,
                };
                self.start_work(work, None, now, store, out);
            }
        }
        self.dismiss_heirs(out);
    }

    fn dismiss_heirs(&mut self, out: &mut Vec<Effect>) {
        if self.is_early() {
            return;
        }
        let epoch = self.epoch();
        self.joins.heirs.retain(|from, h| {
            let wanted = h.as_ref().is_some_and(|h| h.epoch > epoch);
            if !wanted && h.is_some() {
                let at = h.as_ref().map_or(epoch, |h| h.epoch);
                out.push(Effect::Kin { to: *from, kin: Kin::Joined { at, taken: false } });
            }
            wanted
        });
    }

    /// What is joined, if it and this copy are what the pool knows of them.
    pub(in crate::pg) fn good_heir(&self) -> Option<(SpgId, &Heir)> {
        let meta = self.early_maps.first()?.pool.as_ref()?.last_merge;
        let [from] = self.joins.now[..] else { return None };
        let heir = self.joins.heirs.get(&from)?.as_deref()?;
        let here = self.info.is_complete()
            && self.missing.is_empty()
            && self.info.served
            && meta.source == from.pg.seed
            && meta.target_version == self.info.last_update;
        (heir.good && here).then_some((from, heir))
    }

    /// What is behind so many keys of its index is taken over.
    pub(in crate::pg) fn heir_index_taken(&mut self, source: SpgId, left: usize) {
        if let Some(Some(h)) = self.joins.heirs.get_mut(&source) {
            h.index.truncate(left);
        }
    }

    /// The map that is being handled.
    fn joining_at(&self) -> Epoch {
        self.early_maps.first().map_or(self.epoch(), |m| m.epoch)
    }

    /// Where the objects of those that are joined go meanwhile, or an empty collection that gives this one their hashes.
    fn berth(&self) -> Cid {
        Cid::Pg(SpgId { shard: BERTH, ..self.cfg.spg })
    }

    /// Makes that collection, empty.
    pub(in crate::pg) fn run_berth(&mut self, id: u64, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) -> Verdict {
        let (tag, berth) = (self.tag(id), self.berth());
        let there = store.collections().iter().any(|(c, _)| *c == berth);
        let ops = if there {
            let min = Oid { generation: 0, ..Oid::new(HObject::min()) };
            match store.list(tag, berth, &min, None, DELETE_BATCH) {
                Ok((v, _)) if v.is_empty() => vec![Op::RemoveCollection { cid: berth }],
                Ok((v, _)) => v.into_iter().map(|oid| Op::Remove { cid: berth, oid }).collect(),
                Err(e) => return self.step_failed(e.into(), out),
            }
        } else {
            vec![Op::MakeBeside { cid: berth, beside: self.cid, bits: self.bits }]
        };
        let then = if there { Action::Berth } else { Action::Berthed };
        match self.commit_entries(tag, ops, &mut [], store) {
            Ok(()) => {
                self.on_durable(then);
                Verdict::Submitted
            }
            Err(stop) => self.step_failed(stop, out),
        }
    }

    /// A step of taking over is durable.
    pub(in crate::pg) fn berth_acts(
        &mut self,
        a: Action,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) {
        if let Action::Joined(at, from) = &a {
            out.extend(from.iter().map(|to| Effect::Kin { to: *to, kin: Kin::Joined { at: *at, taken: false } }));
        }
        if self.state != State::Joining || self.stopping {
            return;
        }
        match a {
            Action::Berth => self.start_work(Work::Berth, None, now, store, out),
            Action::Berthed if self.good_heir().is_none() => {
                self.start_work(Work::Join(Some(self.berth())), None, now, store, out);
            }
            Action::Stowed { left, last } if !left.is_empty() => {
                self.start_work(Work::Stow(left, last), None, now, store, out);
            }
            Action::Stowed { last: true, .. } => {
                self.start_work(Work::Join(Some(self.berth())), None, now, store, out);
            }
            Action::Berthed | Action::Stowed { .. } => {
                let at = self.joining_at();
                out.extend(self.joins.now.iter().map(|to| Effect::Kin { to: *to, kin: Kin::Next(at) }));
            }
            _ => {}
        }
    }

    /// Puts a part of the objects away: as much of it as there is room for at once.
    pub(in crate::pg) fn run_stow(
        &mut self,
        id: u64,
        ops: &[Op],
        last: bool,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Verdict {
        let to = self.berth();
        let part = |n| ops.iter().take(n).filter_map(|o| moved(o, to)).collect();
        match self.commit_first(self.tag(id), ops.len(), part, store) {
            Ok(n) => {
                let left = ops.get(n..).unwrap_or_default().to_vec();
                self.on_durable(Action::Stowed { left, last });
                Verdict::Submitted
            }
            Err(stop) => self.step_failed(stop, out),
        }
    }

    pub(in crate::pg) fn run_join(
        &mut self,
        id: u64,
        from: Option<Cid>,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Verdict {
        let Some(from) = from else { return Verdict::Done };
        match self.take_over_index(id, from, store) {
            Ok(false) => {}
            Ok(true) => return Verdict::Submitted,
            Err(stop) => return self.step_failed(stop, out),
        }
        match self.join(id, from, store) {
            Ok(()) => {
                let (at, sources) = (self.joining_at(), std::mem::take(&mut self.joins.now));
                for s in &sources {
                    self.joins.heirs.remove(s);
                }
                if from == self.berth() {
                    self.on_durable(Action::Joined(at, sources));
                } else {
                    out.extend(sources.iter().map(|to| Effect::Kin { to: *to, kin: Kin::Joined { at, taken: true } }));
                }
                self.state = State::Stray;
                self.take_early_maps(now, store, out);
                self.dismiss_heirs(out);
                Verdict::Submitted
            }
            Err(stop) => self.step_failed(stop, out),
        }
    }

    fn join(&mut self, id: u64, from: Cid, store: &mut dyn ObjectStore) -> Step<()> {
        let tag = self.tag(id);
        let Some((epoch, pg_num)) = self.early_maps.first().and_then(|m| Some((m.epoch, m.pool.as_ref()?.pg_num)))
        else {
            return Ok(());
        };
        let bits = split_bits(self.cfg.spg.pg, pg_num);
        let first = self.joins.now.iter().map(|s| s.pg.seed.reverse_bits()).min().unwrap_or(u32::MAX);
        let merge = Op::Merge { cid: from, dst: self.cid, first, bits };
        let cid = self.cid;
        for h in self.joins.heirs.values().flatten() {
            for (o, until) in h.granted.iter() {
                self.granted.raise(*o, *until);
            }
        }
        let Some((source, heir)) = self.good_heir() else {
            tracing::info!(pg = %self.cfg.spg, version = %self.info.last_update, "this copy missed something before PGs were joined, it will be filled anew");
            let mut info = PgInfo { history: self.info.history.clone(), ..PgInfo::default() };
            // What it knew to have started was one of the PGs alone, since they were found equal; copies that are whole need not have
            // heard of it, and are no less good.
            (info.history.last_epoch_started, info.history.last_interval_started) = (Epoch(0), Epoch(0));
            info.past.clone_from(&self.info.past);
            info.interval.clone_from(&self.info.interval);
            info.created_stamp = self.info.created_stamp;
            info.reported_seq = self.info.reported_seq;
            info.last_backfill = HObject::min();
            info.epoch = epoch;
            let clear = Op::OmapClear { cid, oid: self.meta_missing() };
            let mut ops = self.forget_aside();
            ops.extend([clear, merge, Op::LogRewind { cid, to: Eversion::default() }]);
            self.commit_with_info(tag, info, ops, store)?;
            if let Some(s) = self.shard.used() {
                s.kept = Kept::default();
            }
            self.log = PgLog::default();
            self.missing.clear();
            self.bits = bits;
            return Ok(());
        };
        let entries = interleaved(self.own_records(id, store)?, heir.records.iter().cloned())
            .into_iter()
            .map(|(_, r)| self.own_entry(&r))
            .collect::<Result<Vec<_>, _>>()?;
        let (mine, theirs) = (self.info.last_update, heir.info.last_update);
        let newest = mine.version.saturating_add(theirs.version).saturating_add(1);
        let n = entries.len() as u64;
        let entries: Vec<LogEntry> = (1..)
            .zip(entries)
            .map(|(i, e)| {
                let version = Eversion { epoch, version: newest.saturating_sub(n - i) };
                // All copies had it: it is not undone any more.
                LogEntry { version, undo: Bytes::new(), touch: None, ..e }
            })
            .collect();
        let info = self.joined_info(epoch, newest, &heir.info);
        let mut before = self.forget_aside();
        if !heir.index.is_empty() {
            before.push(Op::OmapSet { cid, oid: self.meta(), entries: heir.index.clone() });
        }
        if from == heir.cid {
            let (meta, missing) = own_objects(source);
            before.extend([meta, missing].map(|oid| Op::Remove { cid: from, oid }));
        }
        before.push(merge);
        before.push(Op::LogRewind { cid, to: Eversion::default() });
        // Who has the joined log up to its end has them as they are to be.
        let missing: BTreeMap<HObject, Eversion> =
            self.joins.damaged.iter().map(|h| (h.clone(), info.last_update)).collect();
        if !missing.is_empty() {
            before.push(set_missing(cid, self.meta_missing(), &missing));
        }
        // A log that is too long for one transaction, or for what the device has left to set aside for it, is cut: request ids
        // of long ago are forgotten. Those of late are not: clients may send again; the join waits.
        let mut skip = 0;
        loop {
            let kept = entries.get(skip..).unwrap_or_default();
            let mut log = PgLog::behind(Eversion { epoch, version: newest - kept.len() as u64 });
            let mut info = info.clone();
            info.log_tail = log.tail;
            let mut ops = before.clone();
            for e in kept {
                ops.push(Op::LogAppend { cid, version: e.version, entry: e.to_record() });
                log.push(e.dup());
            }
            log.head = info.last_update;
            match self.commit_with_info(tag, info, ops, store) {
                Err(Stop::Errno(E2BIG)) if skip < entries.len() => skip += kept.len().div_ceil(2),
                Err(Stop::Errno(ENOSPC)) if kept.len() > LOG_LEFT => {
                    skip += kept.len().div_ceil(2).min(kept.len() - LOG_LEFT);
                }
                Err(e) => return Err(e),
                Ok(()) => {
                    if let Some(s) = self.shard.used() {
                        s.kept = Kept::default();
                    }
                    self.log = log;
                    self.missing = missing;
                    self.bits = bits;
                    return Ok(());
                }
            }
        }
    }

    /// Records of this copy's log about its own objects.
    pub(in crate::pg) fn own_records(&self, id: u64, store: &mut dyn ObjectStore) -> Step<Vec<(Eversion, Bytes)>> {
        let all = store.log_entries(self.tag(id), self.cid, Eversion::default())?;
        if !self.is_coded() {
            return Ok(all);
        }
        let mut own = Vec::with_capacity(all.len());
        for (v, r) in all {
            if self.is_mine(&self.own_entry(&r)?.soid) {
                own.push((v, r));
            }
        }
        Ok(own)
    }

    /// What is to be said of both together.
    fn joined_info(&self, epoch: Epoch, newest: u64, theirs: &PgInfo) -> PgInfo {
        let mut info = self.info.clone();
        info.last_update = Eversion { epoch, version: newest };
        if self.is_coded() {
            info.undo_floor = info.last_update;
        }
        info.last_user_version = info.last_user_version.max(theirs.last_user_version);
        info.stats.add(&theirs.stats);
        info.stats.estimated = info.stats.estimated.max(theirs.stats.estimated);
        info.purged_snaps = info.purged_snaps.intersection(&theirs.purged_snaps);
        info.epoch = epoch;
        let (h, t) = (&mut info.history, &theirs.history);
        h.last_epoch_started = h.last_epoch_started.max(t.last_epoch_started);
        // Both copies have all that the last intervals of their PGs had, whichever of them started later.
        info.last_epoch_started = info.last_epoch_started.max(theirs.last_epoch_started).max(h.last_epoch_started);
        h.last_interval_started = h.last_interval_started.max(t.last_interval_started);
        h.last_epoch_clean = h.last_epoch_clean.max(t.last_epoch_clean);
        h.last_interval_clean = h.last_interval_clean.max(t.last_interval_clean);
        // Scrubbed is what both were.
        if t.last_scrub_stamp < h.last_scrub_stamp {
            (h.last_scrub, h.last_scrub_stamp) = (t.last_scrub, t.last_scrub_stamp);
        }
        if t.last_deep_scrub_stamp < h.last_deep_scrub_stamp {
            (h.last_deep_scrub, h.last_deep_scrub_stamp) = (t.last_deep_scrub, t.last_deep_scrub_stamp);
        }
        h.last_clean_scrub_stamp = h.last_clean_scrub_stamp.min(t.last_clean_scrub_stamp);
        info
    }

    /// Says that this PG may be joined with the other one: it serves nothing and all copies are equal.
    pub(in crate::pg) fn tell_ready(&mut self) {
        if self.state == State::Quiesced && self.peers.clean && self.is_settled() && !self.stopping {
            let h = &self.info.history;
            self.outbox.push(Effect::ReadyToMerge {
                version: self.info.last_update,
                last_epoch_started: h.last_epoch_started,
                last_epoch_clean: h.last_epoch_clean,
            });
        }
    }
}

/// Both logs as one, oldest first: by turns from the newest record of each. Versions say nothing of when a PG's records were
/// made beside those of another PG; those forgotten first are the oldest of both.
fn interleaved<T>(
    a: impl IntoIterator<Item = T, IntoIter: DoubleEndedIterator>,
    b: impl IntoIterator<Item = T, IntoIter: DoubleEndedIterator>,
) -> Vec<T> {
    let (mut a, mut b) = (a.into_iter().rev(), b.into_iter().rev());
    let mut all = Vec::new();
    loop {
        let (x, y) = (a.next(), b.next());
        if x.is_none() && y.is_none() {
            break;
        }
        all.extend(x.into_iter().chain(y));
    }
    all.reverse();
    all
}

/// What is said for a PG that is not here, if anything.
#[must_use]
pub fn answer_for_none(to: SpgId, kin: &Kin) -> Option<Effect> {
    let kin = match kin {
        Kin::Await(_) => Kin::Heir(None),
        Kin::Heir(Some(h)) => Kin::Joined { at: h.epoch, taken: false },
        _ => return None,
    };
    Some(Effect::Kin { to, kin })
}

/// The same change in another collection, of those that cargo is made of.
fn moved(op: &Op, to: Cid) -> Option<Op> {
    let mut op = op.clone();
    match &mut op {
        Op::Touch { cid, .. }
        | Op::Truncate { cid, .. }
        | Op::Write { cid, .. }
        | Op::OmapSetHeader { cid, .. }
        | Op::OmapSet { cid, .. }
        | Op::SetAttrs { cid, .. } => *cid = to,
        _ => return None,
    }
    Some(op)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cargo_is_made_of_is_put_away() {
        let cid = Cid::Pg(PgId::new(1, 5).into());
        let oid = Oid::new(HObject::min());
        let to = Cid::Pg(SpgId { pg: PgId::new(1, 1), shard: BERTH });
        let touch = moved(&Op::Touch { cid, oid: oid.clone() }, to).unwrap();
        assert_eq!(touch.cid(), to);
        assert!(moved(&Op::PgInfo { cid, info: Bytes::new() }, to).is_none());
        assert!(moved(&Op::Remove { cid, oid }, to).is_none());
    }
}
