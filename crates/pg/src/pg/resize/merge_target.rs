//! The target of a merge: a PG that takes over the content of others when `pg_num` shrinks
//! ([`crate::pg::resize::merge_source`] is the other side).
//!
//! At the map of the merge the target asks each source for its state. If both copies are in the version that was
//! agreed, their objects become one collection, the log keeps the reqids of both, and peering goes on as in any new
//! interval. If one of the copies missed a write, the result counts as empty: its objects stay for comparison, and
//! backfill fills it.
//!
//! The records get new versions, ending with `(epoch of the map, sum of both + 1)`. So the newest record has the same
//! version on all copies, however long their logs are. No object has a newer version.
//!
//! Invariants:
//!  1. Collection, log, info and snapshot index change in one transaction. Afterwards the collection's hash bits and
//!     the epoch of the info show that the merge is done.
//!  2. All copies in the agreed version end with the same last version and the same records, as far as each log
//!     reaches.
//!
//! Tests: `tests/merge.rs`.

use crate::effect::Effect;
use crate::exec::{Step, Stop, split_bits};
use crate::info::PgInfo;
use crate::limits::DELETE_BATCH;
use crate::log::{LogEntry, PgLog};
use crate::map::MapView;
use crate::merge_msg::{MergeMsg, SourceState};
use crate::object::own_objects;
use crate::pg::journal::action::Action;
use crate::pg::journal::action::ResizeAction;
use crate::pg::keys::set_missing;
use crate::pg::ops::plan::Verdict;
use crate::pg::ops::work::ResizeWork;
use crate::pg::ops::work::Work;
use crate::pg::seldom::Part;
use crate::pg::{Pg, State, Turn};
use base::errno::{E2BIG, ENOSPC};
use base::{Epoch, Eversion, HObject, PgId, ShardId, SpgId};
use bytes::Bytes;
use cluster::osdmap::interval::children;
use std::collections::{BTreeMap, BTreeSet};
use store::{Cid, ObjectStore, Oid, Op, Tag};

/// Shard number in the name of the collection that receives the objects of merge sources, in a replicated PG.
const INTAKE: ShardId = ShardId(100);

/// The same in an erasure-coded PG: this is added to the shard number. An OSD may have two shards of a PG, and each has
/// its own merge sources.
const INTAKE_OF_SHARD: i8 = 102;

/// True if a collection with this shard number receives the objects of merge sources. The OSD ignores it at start; the
/// repeated merge empties it.
#[must_use]
pub fn is_intake(shard: ShardId) -> bool {
    shard == INTAKE || shard.0 >= INTAKE_OF_SHARD
}

/// Records that a merge keeps at least, even on a full device.
const LOG_LEFT: usize = 250;

/// State of the merges into this PG.
#[derive(Debug, Default)]
pub(in crate::pg) struct Merges {
    /// Sources by the epoch of their merge, for maps that were not processed.
    coming: BTreeMap<Epoch, Vec<SpgId>>,
    /// States of sources; they may come before the map.
    states: BTreeMap<SpgId, Option<Box<SourceState>>>,
    /// Sources of the merge that is being done.
    now: Vec<SpgId>,
    /// All sources of the current merge have answered.
    told: bool,
    /// Objects that the sources could not read.
    damaged: BTreeSet<HObject>,
}

impl Part for Merges {
    const EMPTY: &'static Self = &Self {
        coming: BTreeMap::new(),
        states: BTreeMap::new(),
        now: Vec::new(),
        told: false,
        damaged: BTreeSet::new(),
    };

    fn is_empty(&self) -> bool {
        self.coming.is_empty() && self.states.is_empty() && self.now.is_empty() && !self.told && self.damaged.is_empty()
    }
}

impl Pg {
    /// Notes the sources of the merge into this PG that a map with `pg_num` does. The host calls this before it hands
    /// in the map.
    pub fn merges_at(&mut self, epoch: Epoch, pg_num: u32) {
        let spg = self.env.spg();
        let old = std::mem::replace(&mut self.resize.pg_num_coming, pg_num);
        if pg_num == 0 || pg_num >= old || spg.pg.seed >= pg_num {
            return;
        }
        let sources: Vec<SpgId> =
            children(spg.pg.seed, pg_num, old).map(|seed| SpgId { pg: PgId { seed, ..spg.pg }, ..spg }).collect();
        if !sources.is_empty() {
            self.resize.bits_coming = split_bits(spg.pg, pg_num);
            self.resize.merges.coming.insert(epoch, sources);
        }
    }

    /// Sets `pg_num` of the newest map that the host has announced.
    pub fn set_coming_pg_num(&mut self, pg_num: u32) {
        self.resize.pg_num_coming = pg_num;
    }

    /// Sets the epoch of the stored info, at load.
    pub fn set_stored_epoch(&mut self, epoch: Epoch) {
        self.resize.stored_at = epoch;
    }

    /// True if the map of that epoch was processed before the PG was loaded.
    #[must_use]
    pub fn has_processed(&self, epoch: Epoch) -> bool {
        epoch < self.resize.stored_at
    }

    /// True if this PG is a merge source that is handing over its content.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        *self.life.state() == State::Leaving
    }

    /// True if the PG has not processed the map that merges it into another one.
    #[must_use]
    pub fn has_yet_to_leave(&self) -> bool {
        use State::{Deleted, Deleting, Failed, Leaving, Stopped};
        !matches!(self.life.state(), Leaving | Deleting { .. } | Deleted | Stopped | Failed(_))
    }

    /// Handles a message from another PG of this OSD.
    pub(in crate::pg) fn handle_merge(&mut self, from: SpgId, msg: MergeMsg, turn: &mut Turn<'_>) {
        match (self.life.state(), msg) {
            (State::Leaving, msg) => self.handle_as_leaver(msg, turn),
            (State::Deleting { .. } | State::Deleted | State::Stopped | State::Failed(_), msg) => {
                turn.out.extend(answer_for_none(from, &msg));
            }
            (_, MergeMsg::State(h)) => {
                self.resize.merges.states.insert(from, h);
                self.check_merge_sources(turn);
            }
            (State::Merging, MergeMsg::Objects { ops, damaged, last }) => {
                self.resize.merges.damaged.extend(damaged);
                self.start_work(Work::Resize(ResizeWork::StoreObjects(ops, last)), None, turn);
            }
            _ => {}
        }
    }

    /// Selects the merges of this map; true if there are any.
    pub(in crate::pg) fn await_sources(&mut self, map: &MapView) -> bool {
        let Some(j) = self.resize.merges.used() else { return false };
        let mut later = j.coming.split_off(&Epoch(map.epoch.0 + 1));
        let due = j.coming.remove(&map.epoch);
        std::mem::swap(&mut j.coming, &mut later);
        j.now = due.unwrap_or_default();
        !j.now.is_empty()
    }

    /// Ends the interval at the map of the merge, and asks the sources for their state.
    pub(in crate::pg) fn start_pg_merge(&mut self, map: MapView, turn: &mut Turn<'_>) {
        tracing::info!(pg = %self.env.spg(), epoch = %map.epoch, with = ?self.resize.merges.now, "merging PGs into this one");
        self.close_collection(State::Merging, self.is_primary() && !self.life.is_stopping(), turn);
        self.resize.merges.told = false;
        self.resize.merges.damaged.clear();
        let epoch = map.epoch;
        self.maps.put_first(map);
        turn.out.extend(self.resize.merges.now.iter().map(|to| Effect::Merge { to: *to, msg: MergeMsg::Await(epoch) }));
        self.check_merge_sources(turn);
    }

    /// Goes on when all sources have answered; dismisses sources that are not needed.
    fn check_merge_sources(&mut self, turn: &mut Turn<'_>) {
        if *self.life.state() == State::Merging && !self.resize.merges.told {
            self.resize.merges.told = self.resize.merges.now.iter().all(|s| self.resize.merges.states.contains_key(s));
            if self.resize.merges.told {
                let work = match self.good_source() {
                    Some((_, state)) if turn.store.beside(self.env.cid(), state.cid) => {
                        Work::Resize(ResizeWork::MergeFrom(Some(state.cid)))
                    }
                    _ => Work::Resize(ResizeWork::Intake),
                };
                self.start_work(work, None, turn);
            }
        }
        self.dismiss_sources(turn.out);
    }

    fn dismiss_sources(&mut self, out: &mut Vec<Effect>) {
        if self.is_early() {
            return;
        }
        let epoch = self.epoch();
        self.resize.merges.states.retain(|from, h| {
            let wanted = h.as_ref().is_some_and(|h| h.epoch > epoch);
            if !wanted && h.is_some() {
                let at = h.as_ref().map_or(epoch, |h| h.epoch);
                out.push(Effect::Merge { to: *from, msg: MergeMsg::Merged { at, taken: false } });
            }
            wanted
        });
    }

    /// The source and its state, if both copies are in the version agreed for the merge.
    pub(in crate::pg) fn good_source(&self) -> Option<(SpgId, &SourceState)> {
        let meta = self.maps.first_postponed()?.pool.as_ref()?.last_merge;
        let [from] = self.resize.merges.now[..] else { return None };
        let state = self.resize.merges.states.get(&from)?.as_deref()?;
        let here = self.journal.info().is_complete()
            && self.recovery.missing().is_empty()
            && self.journal.info().served
            && meta.source == from.pg.seed
            && meta.target_version == self.journal.info().last_update;
        (state.good && here).then_some((from, state))
    }

    /// Notes that keys of the source's index from `left` on are taken over.
    pub(in crate::pg) fn source_index_taken(&mut self, source: SpgId, left: usize) {
        if let Some(Some(h)) = self.resize.merges.states.get_mut(&source) {
            h.index.truncate(left);
        }
    }

    /// Epoch of the merge.
    fn merging_at(&self) -> Epoch {
        self.maps.first_postponed().map_or(self.epoch(), |m| m.epoch)
    }

    /// The collection for the sources' objects, in the target's shard of the store; it may stay empty.
    fn intake(&self) -> Cid {
        let shard = match self.env.spg().shard {
            ShardId::NONE => INTAKE,
            ShardId(s) => ShardId(INTAKE_OF_SHARD.saturating_add(s)),
        };
        Cid::Pg(SpgId { shard, ..self.env.spg() })
    }

    /// Creates that collection, after removing the leftover of an earlier attempt.
    pub(in crate::pg) fn run_intake(&mut self, id: u64, turn: &mut Turn<'_>) -> Verdict {
        let (tag, intake) = (self.tag(id), self.intake());
        let there = turn.store.collections().iter().any(|(c, _)| *c == intake);
        let ops = if there {
            let min = Oid::new(HObject::min()).at_generation(0);
            match turn.store.list(tag, intake, &min, None, DELETE_BATCH) {
                Ok((v, _)) if v.is_empty() => vec![Op::RemoveCollection { cid: intake }],
                Ok((v, _)) => v.into_iter().map(|oid| Op::Remove { cid: intake, oid }).collect(),
                Err(e) => return self.step_failed(e.into(), turn.out),
            }
        } else {
            vec![Op::MakeBeside { cid: intake, beside: self.env.cid(), bits: self.resize.bits }]
        };
        let then = if there { Action::Resize(ResizeAction::Intake) } else { Action::Resize(ResizeAction::IntakeReady) };
        match self.commit_entries(tag, ops, &mut [], turn.store) {
            Ok(()) => {
                self.on_durable(then);
                Verdict::Submitted
            }
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }

    /// Handles the durability of a step of the merge.
    pub(in crate::pg) fn merge_acts(&mut self, a: ResizeAction, turn: &mut Turn<'_>) {
        if let ResizeAction::PgsMerged(at, from) = &a {
            turn.out.extend(
                from.iter().map(|to| Effect::Merge { to: *to, msg: MergeMsg::Merged { at: *at, taken: false } }),
            );
        }
        if *self.life.state() != State::Merging || self.life.is_stopping() {
            return;
        }
        match a {
            ResizeAction::Intake => self.start_work(Work::Resize(ResizeWork::Intake), None, turn),
            ResizeAction::IntakeReady if self.good_source().is_none() => {
                self.start_work(Work::Resize(ResizeWork::MergeFrom(Some(self.intake()))), None, turn);
            }
            ResizeAction::ObjectsStored { left, last } if !left.is_empty() => {
                self.start_work(Work::Resize(ResizeWork::StoreObjects(left, last)), None, turn);
            }
            ResizeAction::ObjectsStored { last: true, .. } => {
                self.start_work(Work::Resize(ResizeWork::MergeFrom(Some(self.intake()))), None, turn);
            }
            ResizeAction::IntakeReady | ResizeAction::ObjectsStored { .. } => {
                let at = self.merging_at();
                turn.out
                    .extend(self.resize.merges.now.iter().map(|to| Effect::Merge { to: *to, msg: MergeMsg::Next(at) }));
            }
            _ => {}
        }
    }

    /// Stores a part of the sources' objects, as much as there is room for at once.
    pub(in crate::pg) fn run_store_objects(&mut self, id: u64, ops: &[Op], last: bool, turn: &mut Turn<'_>) -> Verdict {
        let to = self.intake();
        let part = |n| ops.iter().take(n).filter_map(|o| moved(o, to)).collect();
        match self.commit_first(self.tag(id), ops.len(), part, turn.store) {
            Ok(n) => {
                let left = ops.get(n..).unwrap_or_default().to_vec();
                self.on_durable(Action::Resize(ResizeAction::ObjectsStored { left, last }));
                Verdict::Submitted
            }
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }

    pub(in crate::pg) fn run_merge_from(&mut self, id: u64, from: Option<Cid>, turn: &mut Turn<'_>) -> Verdict {
        let Some(from) = from else { return Verdict::Done };
        match self.take_over_index(id, from, turn.store) {
            Ok(false) => {}
            Ok(true) => return Verdict::Submitted,
            Err(stop) => return self.step_failed(stop, turn.out),
        }
        match self.merge_pgs(id, from, turn.store) {
            Ok(()) => {
                let (at, sources) = (self.merging_at(), std::mem::take(&mut self.resize.merges.now));
                for s in &sources {
                    self.resize.merges.states.remove(s);
                }
                if from == self.intake() {
                    self.on_durable(Action::Resize(ResizeAction::PgsMerged(at, sources)));
                } else {
                    turn.out.extend(
                        sources.iter().map(|to| Effect::Merge { to: *to, msg: MergeMsg::Merged { at, taken: true } }),
                    );
                }
                self.life.enter(State::Stray);
                self.take_early_maps(turn);
                self.dismiss_sources(turn.out);
                Verdict::Submitted
            }
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }

    fn merge_pgs(&mut self, id: u64, from: Cid, store: &mut dyn ObjectStore) -> Step<()> {
        let tag = self.tag(id);
        let Some((epoch, pg_num)) = self.maps.first_postponed().and_then(|m| Some((m.epoch, m.pool.as_ref()?.pg_num)))
        else {
            return Ok(());
        };
        let bits = split_bits(self.env.spg().pg, pg_num);
        let first = self.resize.merges.now.iter().map(|s| s.pg.seed.reverse_bits()).min().unwrap_or(u32::MAX);
        let merge = Op::Merge { cid: from, dst: self.env.cid(), first, bits };
        let cid = self.env.cid();
        self.take_grants();
        let Some((source, state)) = self.good_source() else {
            self.merge_unequal(tag, epoch, merge, store)?;
            self.resize.bits = bits;
            return Ok(());
        };
        let (mine, theirs) = (self.journal.info().last_update, state.info.last_update);
        let newest = mine.version.saturating_add(theirs.version).saturating_add(1);
        let records = interleaved(self.own_records(id, store)?, state.records.iter().cloned());
        let entries = self.renumbered(records, epoch, newest)?;
        let info = self.merged_info(epoch, newest, &state.info);
        let mut before = self.forget_aside();
        if !state.index.is_empty() {
            before.push(Op::OmapSet { cid, oid: self.meta(), entries: state.index.clone() });
        }
        if from == state.cid {
            let (meta, missing) = own_objects(source);
            before.extend([meta, missing].map(|oid| Op::Remove { cid: from, oid }));
        }
        before.push(merge);
        before.push(Op::LogRewind { cid, to: Eversion::default() });
        // A copy whose log reaches the end of the merged log has the right versions.
        let missing: BTreeMap<HObject, Eversion> =
            self.resize.merges.damaged.iter().map(|h| (h.clone(), info.last_update)).collect();
        if !missing.is_empty() {
            before.push(set_missing(cid, self.meta_missing(), &missing));
        }
        // A log that is too long for one transaction, or for the space that the device can reserve, is cut: the
        // oldest reqids are dropped. The newest [`LOG_LEFT`] stay, since their clients may resend; without room for
        // them the merge waits.
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
                    self.ec.forget_undo();
                    self.journal.set_log(log);
                    self.recovery.set_missing(missing);
                    self.resize.bits = bits;
                    return Ok(());
                }
            }
        }
    }

    /// Takes over the leases that the sources know of.
    fn take_grants(&mut self) {
        for h in self.resize.merges.states.values().flatten() {
            for (o, until) in h.granted.iter() {
                self.peers.may_serve(*o, *until);
            }
        }
    }

    /// Merges PGs of which one copy is not as agreed: the result counts as empty, and backfill fills it.
    fn merge_unequal(&mut self, tag: Tag, epoch: Epoch, merge: Op, store: &mut dyn ObjectStore) -> Step<()> {
        let cid = self.env.cid();
        tracing::info!(pg = %self.env.spg(), version = %self.journal.info().last_update, "this copy or the merged one differs from the version agreed for the merge; backfill will fill it");
        let mut info = PgInfo { history: self.journal.info().history.clone(), ..PgInfo::default() };
        // The intervals known as started were of one of the PGs alone, after both were found equal. A complete
        // copy may not know of them, and is as good.
        (info.history.last_epoch_started, info.history.last_interval_started) = (Epoch(0), Epoch(0));
        info.past.clone_from(&self.journal.info().past);
        info.interval.clone_from(&self.journal.info().interval);
        info.created_stamp = self.journal.info().created_stamp;
        info.reported_seq = self.journal.info().reported_seq;
        info.last_backfill = HObject::min();
        info.epoch = epoch;
        let clear = Op::OmapClear { cid, oid: self.meta_missing() };
        let mut ops = self.forget_aside();
        ops.extend([clear, merge, Op::LogRewind { cid, to: Eversion::default() }]);
        self.commit_with_info(tag, info, ops, store)?;
        self.ec.forget_undo();
        self.journal.set_log(PgLog::default());
        self.recovery.lacks_nothing();
        Ok(())
    }

    /// The entries of both logs, with versions of the merged one, of which `newest` comes after the last.
    fn renumbered(&self, records: Vec<(Eversion, Bytes)>, epoch: Epoch, newest: u64) -> Step<Vec<LogEntry>> {
        let entries = records.into_iter().map(|(_, r)| self.own_entry(&r)).collect::<Result<Vec<_>, _>>()?;
        let n = entries.len() as u64;
        Ok((1..)
            .zip(entries)
            .map(|(i, e)| {
                let version = Eversion { epoch, version: newest.saturating_sub(n - i) };
                // All copies have the entry, so it is never undone.
                LogEntry { version, undo: Bytes::new(), touch: None, ..e }
            })
            .collect())
    }

    /// Records of this copy's log about its own objects.
    pub(in crate::pg) fn own_records(&self, id: u64, store: &mut dyn ObjectStore) -> Step<Vec<(Eversion, Bytes)>> {
        let all = store.log_entries(self.tag(id), self.env.cid(), Eversion::default())?;
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

    /// The info of the merged PG.
    fn merged_info(&self, epoch: Epoch, newest: u64, theirs: &PgInfo) -> PgInfo {
        let mut info = self.journal.info().clone();
        info.last_update = Eversion { epoch, version: newest };
        if self.is_coded() {
            info.undo_floor = info.last_update;
        }
        info.last_user_version = info.last_user_version.max(theirs.last_user_version);
        info.stats.add(&theirs.stats);
        info.stats.estimated = info.stats.estimated.max(theirs.stats.estimated);
        info.epoch = epoch;
        let (h, t) = (&mut info.history, &theirs.history);
        h.last_epoch_started = h.last_epoch_started.max(t.last_epoch_started);
        // Both copies have all writes of their PG's last interval, whichever of the two started later.
        info.last_epoch_started = info.last_epoch_started.max(theirs.last_epoch_started).max(h.last_epoch_started);
        h.last_interval_started = h.last_interval_started.max(t.last_interval_started);
        h.last_epoch_clean = h.last_epoch_clean.max(t.last_epoch_clean);
        h.last_interval_clean = h.last_interval_clean.max(t.last_interval_clean);
        // The merged PG counts as scrubbed at the earlier stamp.
        if t.last_scrub_stamp < h.last_scrub_stamp {
            (h.last_scrub, h.last_scrub_stamp) = (t.last_scrub, t.last_scrub_stamp);
        }
        if t.last_deep_scrub_stamp < h.last_deep_scrub_stamp {
            (h.last_deep_scrub, h.last_deep_scrub_stamp) = (t.last_deep_scrub, t.last_deep_scrub_stamp);
        }
        h.last_clean_scrub_stamp = h.last_clean_scrub_stamp.min(t.last_clean_scrub_stamp);
        info
    }

    /// Reports that this PG is ready to merge: it serves nothing, and all copies are equal.
    pub(in crate::pg) fn notify_ready(&mut self) {
        // Copies of the two PGs that stay where CRUSH has no place for them may be on different OSDs.
        let placed = self.journal.info().interval.mapping.up == self.journal.info().interval.mapping.acting;
        if *self.life.state() == State::Quiesced
            && self.peers.is_clean()
            && placed
            && self.is_settled()
            && !self.life.is_stopping()
        {
            let h = &self.journal.info().history;
            self.mail.post(Effect::ReadyToMerge {
                version: self.journal.info().last_update,
                last_epoch_started: h.last_epoch_started,
                last_epoch_clean: h.last_epoch_clean,
            });
        }
    }
}

/// Merges two logs, oldest record first, alternating from the newest record of each. Versions of different PGs can't
/// be compared by time. Alternating makes the oldest records of both the first to be trimmed.
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

/// The answer for a PG that this OSD does not have, if the message needs one.
#[must_use]
pub fn answer_for_none(to: SpgId, msg: &MergeMsg) -> Option<Effect> {
    let msg = match msg {
        MergeMsg::Await(_) => MergeMsg::State(None),
        MergeMsg::State(Some(h)) => MergeMsg::Merged { at: h.epoch, taken: false },
        _ => return None,
    };
    Some(Effect::Merge { to, msg })
}

/// The same operation on another collection; `None` for operations that are not part of an object's transfer.
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
    fn only_changes_of_objects_are_stored() {
        let cid = Cid::Pg(PgId::new(1, 5).into());
        let oid = Oid::new(HObject::min());
        let to = Cid::Pg(SpgId { pg: PgId::new(1, 1), shard: INTAKE });
        let touch = moved(&Op::Touch { cid, oid: oid.clone() }, to).unwrap();
        assert_eq!(touch.cid(), to);
        assert!(moved(&Op::PgInfo { cid, info: Bytes::new() }, to).is_none());
        assert!(moved(&Op::Remove { cid, oid }, to).is_none());
    }
}
