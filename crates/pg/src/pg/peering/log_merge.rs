//! Merging the authoritative log into this copy's log.
//!
//! Invariants:
//!  1. Two logs that share a version share all earlier ones: the primary of an interval gives each version once,
//!     after its members' logs were made equal. So two logs differ only after their last common version.
//!  2. Entries beyond that in this copy's log were never acknowledged. Their objects count as missing and are
//!     recovered.
//!  3. Records, missing set and info change in one transaction. A long log is merged in several, each with the
//!     objects that its part makes missing. A copy that stops in between is just further behind.
//!
//! Tests: `tests/peering.rs`, `tests/replicated.rs`.

use crate::effect::Effect;
use crate::exec::{Step, Stop};
use crate::info::PgInfo;
use crate::log::{LogEntry, LogKind};
use crate::peer::Body;
use crate::pg::backend::ec::spare::Spared;
use crate::pg::backend::ec::undo;
use crate::pg::journal::action::Action;
use crate::pg::journal::action::Merge;
use crate::pg::journal::action::PeeringAction;
use crate::pg::keys::set_missing;
use crate::pg::ops::plan::Stage;
use crate::pg::ops::plan::Verdict;
use crate::pg::ops::work::PeeringWork;
use crate::pg::ops::work::Work;
use crate::pg::peering::Follower;
use crate::pg::{Pg, State, Turn};
use crate::shards::PeerId;
use crate::stats::StatSum;
use base::errno::{E2BIG, EIO};
use base::planted::{Bug, acts};
use base::{Epoch, Eversion, HObject, ShardId};
use bytes::Bytes;
use store::{ObjectStore, Op, Tag};

/// Most records merged in one transaction, and about the most bytes of them.
const PAGE: usize = 512;
const PAGE_BYTES: usize = 128 << 10;

/// The part that this copy's log and another one have in common, and the changes that undo the rest here.
#[derive(Default)]
struct Common {
    /// Index of the first record that this copy's log lacks.
    first_new: usize,
    /// Version to which this copy's log is rewound.
    rewind: Option<Eversion>,
    /// Changes that undo divergent entries.
    undo: Vec<Op>,
    /// Statistics of divergent entries.
    gone: StatSum,
    /// Objects of divergent entries that cannot be undone.
    missing: Vec<(HObject, Eversion)>,
}

impl Merge {
    /// The decoded records; `None` if one does not decode or versions do not grow.
    fn entries(&self) -> Option<Vec<(LogEntry, &Bytes)>> {
        let mut all: Vec<(LogEntry, &Bytes)> = Vec::with_capacity(self.records.len());
        for r in &self.records {
            let e = LogEntry::from_record(r).ok()?;
            if all.last().is_some_and(|(a, _)| a.version >= e.version) {
                return None;
            }
            all.push((e, r));
        }
        Some(all)
    }
}

impl Pg {
    pub(in crate::pg) fn run_merge(&mut self, id: u64, m: &Merge, turn: &mut Turn<'_>) -> Verdict {
        let Some(theirs) = m.entries() else {
            tracing::error!(pg = %self.env.spg(), from = %m.from, "the log that a peer sent does not decode or is out of order");
            return self.reject_log(m, turn);
        };
        match self.merge(id, m, &theirs, turn.store) {
            Ok(None) if m.undo => {
                self.peers.merging = false;
                self.on_durable(Action::Peering(PeeringAction::Rewound(m.from)));
                Verdict::Submitted
            }
            Ok(None) => {
                self.peers.merging = false;
                if m.les.is_some() {
                    self.life.enter(State::ReplicaActive);
                    turn.out.push(Effect::Members);
                    self.peers.follower = Some(Follower::new());
                    self.on_durable(Action::Peering(PeeringAction::MemberReady(m.from)));
                } else {
                    let targets = self.life.take_targets();
                    self.log_ready(targets, turn);
                }
                Verdict::Submitted
            }
            Ok(Some(rest)) => {
                self.on_durable(Action::Peering(PeeringAction::MergedPart(self.life.generation(), rest)));
                Verdict::Submitted
            }
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }

    /// Merges as many records as a transaction may hold; returns the rest.
    fn merge(
        &mut self,
        id: u64,
        m: &Merge,
        theirs: &[(LogEntry, &Bytes)],
        store: &mut dyn ObjectStore,
    ) -> Step<Option<Box<Merge>>> {
        let (mut page, mut spares) = (PAGE, true);
        loop {
            match self.merge_page(id, m, theirs, page, spares, store) {
                // The store's log on a small device has small frames.
                Err(Stop::Errno(E2BIG)) if page > 1 => page /= 2,
                // If the attributes can't be set, the objects are recovered instead. A shard that is not a member stays
                // behind.
                Err(Stop::Errno(EIO)) if spares && self.is_coded() => spares = false,
                r => return r,
            }
        }
    }

    /// Handles an invalid log. If the primary sent it, this copy fails; otherwise the sender counts as failed.
    fn reject_log(&mut self, m: &Merge, turn: &mut Turn<'_>) -> Verdict {
        self.peers.merging = false;
        if m.les.is_some() {
            self.fail(EIO, turn.out);
        } else {
            self.take_failed(m.from, EIO, turn);
        }
        Verdict::Done
    }

    /// Handles the durability of a part of the merge.
    pub(in crate::pg) fn merged_part(&mut self, rest: Box<Merge>, turn: &mut Turn<'_>) {
        if !self.life.is_stopping() {
            self.start_work(Work::Peering(PeeringWork::Merge(rest)), None, turn);
        }
    }

    /// Merges at most `page` records; returns the rest. If `spares` is set, entries that spare this shard only set
    /// attributes; otherwise they count as touching it.
    #[allow(clippy::too_many_arguments, reason = "how much is merged, and how")]
    fn merge_page(
        &mut self,
        id: u64,
        m: &Merge,
        theirs: &[(LogEntry, &Bytes)],
        page: usize,
        spares: bool,
        store: &mut dyn ObjectStore,
    ) -> Step<Option<Box<Merge>>> {
        let tag = self.tag(id);
        let mut info = self.journal.info().clone();
        let common = if m.reset {
            info.log_tail = m.since;
            info.last_backfill = HObject::min();
            // The entries that would undo or forget these objects are dropped with the log.
            Common { rewind: Some(Eversion::default()), undo: self.forget_aside(), ..Common::default() }
        } else {
            self.common(tag, m, theirs, store)?
        };
        let Common { first_new, rewind, undo, gone, mut missing } = common;
        let upto = self.page_end(m, theirs, first_new, page, spares);
        let rest = m.records.get(upto..).filter(|r| !r.is_empty() && !m.undo);
        // The statistics of `m.info` count all records; this copy's statistics count only the records merged so far.
        let later = self.sum_of(theirs.get(upto..).unwrap_or_default());
        let theirs = theirs.get(..upto).unwrap_or(theirs);
        let rest = rest.zip(theirs.last()).map(|(records, (last, _))| {
            let (since, records) = (last.version, records.to_vec());
            Box::new(Merge { since, reset: false, info: m.info.clone(), records, ..*m })
        });

        let mut ops = undo;
        if let Some(to) = rewind {
            ops.push(Op::LogRewind { cid: self.env.cid(), to });
        }
        let new = theirs.get(first_new..).unwrap_or_default();
        ops.extend(self.new_ops(new, spares, &info, &mut missing));
        if m.reset {
            ops.push(Op::OmapClear { cid: self.env.cid(), oid: self.meta_missing() });
        }
        missing.retain(|(h, _)| *h <= info.last_backfill);
        if !missing.is_empty() {
            ops.push(set_missing(self.env.cid(), self.meta_missing(), missing.iter().map(|(h, v)| (h, v))));
        }

        if m.undo {
            info.last_update = rewind.unwrap_or(info.last_update);
            info.stats.take_back(&gone);
            new.iter().for_each(|(e, _)| info.replay(e, self.is_mine(&e.soid)));
            info.epoch = self.epoch();
        } else {
            self.take_info(&mut info, m, rest.as_deref(), &later);
        }
        self.commit_with_info(tag, info, ops, store)?;
        if m.reset {
            self.journal.set_log(crate::log::PgLog::behind(m.since));
            self.recovery.lacks_nothing();
        } else if let Some(to) = rewind {
            self.journal.rewind_log(to);
        }
        if let Some(to) = rewind {
            self.rewind_undo(to);
        }
        self.journal.extend_log(new.iter().map(|(e, _)| e.dup()));
        self.recovery.lacks(missing);
        Ok(rest)
    }

    /// Statistics of the entries about objects of this PG.
    fn sum_of(&self, entries: &[(LogEntry, &Bytes)]) -> StatSum {
        let mut sum = StatSum::default();
        for (e, _) in entries.iter().filter(|(e, _)| self.is_mine(&e.soid)) {
            sum.add(&e.delta);
        }
        sum
    }

    /// Compares this copy's log with another one. Entries beyond the last common version are undone.
    fn common(&self, tag: Tag, m: &Merge, theirs: &[(LogEntry, &Bytes)], store: &mut dyn ObjectStore) -> Step<Common> {
        let mut out = Common::default();
        // Records that were trimmed here are common.
        let since = m.since.max(self.journal.log().tail);
        let skip = theirs.partition_point(|(e, _)| e.version <= since);
        let own = store.log_entries(tag, self.env.cid(), since)?;
        let common = own.iter().zip(theirs.iter().skip(skip)).take_while(|((v, _), (e, _))| *v == e.version).count();
        out.first_new = skip + common;
        let base = common.checked_sub(1).and_then(|n| own.get(n)).map_or(since, |(v, _)| *v);
        let mut divergent = Vec::new();
        for (_, record) in own.iter().skip(common) {
            out.rewind = Some(base);
            let e = LogEntry::from_record(record).map_err(|_| Stop::Errno(EIO))?;
            tracing::info!(pg = %self.env.spg(), version = %e.version, object = %e.soid, "own log record is divergent");
            // Statistics of objects that a split gave to another PG were given away with them.
            if self.is_mine(&e.soid) {
                out.gone.add(&e.delta);
            }
            if e.kind != LogKind::Error && self.is_mine(&e.soid) && !acts(Bug::KeepDivergent) {
                divergent.push(e);
            }
        }
        // Newest first: each restores the state before it.
        for e in divergent.iter().rev() {
            if !self.undo_entry(e, &mut out.undo) {
                out.missing.push((e.soid.head(), base));
            }
        }
        Ok(out)
    }

    /// Number of their records that are merged after this page.
    fn page_end(&self, m: &Merge, theirs: &[(LogEntry, &Bytes)], first_new: usize, page: usize, spares: bool) -> usize {
        // A shard that is not a member takes over only entries that spare it.
        let shard = self.env.spg().shard;
        let alone = |(e, _): &&(LogEntry, &Bytes)| spares && self.leaves_alone(e, shard);
        let page = if m.undo { theirs.iter().skip(first_new).take(page).take_while(alone).count() } else { page };
        let mut bytes = 0;
        let new = theirs.iter().skip(first_new).take(page).take_while(|(_, r)| {
            let before = bytes;
            bytes += r.len();
            before < PAGE_BYTES
        });
        first_new + new.count()
    }

    /// Appends entries to the log. Their objects become missing, except those of which they change only attributes
    /// here.
    fn new_ops(
        &self,
        new: &[(LogEntry, &Bytes)],
        spares: bool,
        info: &PgInfo,
        missing: &mut Vec<(HObject, Eversion)>,
    ) -> Vec<Op> {
        let shard = self.env.spg().shard;
        let mut ops = Vec::with_capacity(new.len());
        let mut spared = Spared::default();
        for (e, r) in new {
            ops.push(Op::LogAppend { cid: self.env.cid(), version: e.version, entry: Bytes::copy_from_slice(r) });
            if e.kind == LogKind::Error || !self.is_mine(&e.soid) {
                continue;
            }
            let head = e.soid.head();
            match e.spares(shard).filter(|_| spares) {
                Some(t) if self.has_before(&head, missing, info) => spared.set(&e.soid, &t.attrs),
                _ => missing.push((head, e.version)),
            }
        }
        ops.extend(spared.ops(self.env.cid()));
        ops
    }

    /// Brings the info to the state after the merge of a part; `later` has the statistics of the records that follow.
    fn take_info(&self, info: &mut PgInfo, m: &Merge, rest: Option<&Merge>, later: &StatSum) {
        info.last_update = rest.map_or(m.info.last_update, |r| r.since);
        info.last_user_version = m.info.last_user_version;
        info.stats = m.info.stats;
        info.stats.take_back(later);
        info.created_stamp = m.info.created_stamp;
        info.merge_history(&m.info.history);
        info.epoch = self.epoch();
        if let Some(les) = m.les.filter(|_| rest.is_none()) {
            info.past.clone_from(&m.info.past);
            if les.0 > 0 {
                info.last_epoch_started = les;
            }
            info.served = true;
        }
    }

    /// True if the entry changes no bytes of `shard`, so that a shard with all earlier entries may take it over.
    pub(in crate::pg) fn leaves_alone(&self, e: &LogEntry, shard: ShardId) -> bool {
        e.kind == LogKind::Error || !self.is_mine(&e.soid) || e.spares(shard).is_some()
    }

    /// True if this copy has the object in the version before the next entry of a log that is taken over. `missing`:
    /// the objects that earlier entries of that log made missing.
    fn has_before(&self, head: &HObject, missing: &[(HObject, Eversion)], info: &PgInfo) -> bool {
        *head <= info.last_backfill
            && !self.recovery.missing().contains_key(head)
            && !missing.iter().any(|(h, _)| h == head)
    }

    /// Undoes an entry that this shard has and others lack. Returns true if that restores the object. Otherwise the
    /// object's content here is void, and only the data set aside is removed.
    fn undo_entry(&self, e: &LogEntry, ops: &mut Vec<Op>) -> bool {
        let Some(coder) = self.ec.coder() else { return false };
        if e.undo.is_empty() {
            // A clone's entry has no undo data: the last entry of its transaction undoes all.
            return e.kind == LogKind::Clone && e.version > self.journal.info().undo_floor;
        }
        let (Ok(all), Ok(shard)) = (undo::decode(&e.undo), usize::try_from(self.env.spg().shard.0)) else {
            return false;
        };
        let head = e.soid.head();
        // An object that is missing or not backfilled may have only the record.
        let applied = head <= self.journal.info().last_backfill && !self.recovery.missing().contains_key(&head);
        if !applied || e.version <= self.journal.info().undo_floor {
            ops.extend(undo::forget(&all, e.version, self.env.cid()));
            return false;
        }
        ops.extend(undo::ops(&all, e.version, self.env.cid(), &self.meta(), &coder.layout, shard));
        true
    }

    /// Answers a primary that wants this log.
    #[allow(clippy::too_many_arguments, reason = "the parts of a question")]
    pub(in crate::pg) fn run_send_log(
        &mut self,
        id: u64,
        to: PeerId,
        last_update: Eversion,
        les: Epoch,
        upto: Eversion,
        turn: &mut Turn<'_>,
    ) -> Verdict {
        let since = self.common_with(last_update, les).min(upto);
        match self.log_as_of(id, since, upto, turn.store) {
            Ok((info, records)) => {
                self.send_to(to, &Body::Log { since, info: Box::new(info), records });
                Verdict::Done
            }
            Err(Stop::Wait) => Verdict::Park(Stage::Reading),
            Err(Stop::Errno(errno)) => {
                self.fail(errno, turn.out);
                Verdict::Done
            }
        }
    }

    /// The records of this log after `since` and up to `upto`, with the info as of `upto`.
    fn log_as_of(
        &self,
        id: u64,
        since: Eversion,
        upto: Eversion,
        store: &mut dyn ObjectStore,
    ) -> Step<(PgInfo, Vec<Bytes>)> {
        let mut info = self.journal.info().clone();
        let mut records = Vec::new();
        for (v, r) in store.log_entries(self.tag(id), self.env.cid(), since)? {
            if v <= upto {
                records.push(r);
                continue;
            }
            let e = self.own_entry(&r)?;
            // Statistics of objects that a split gave to another PG were given away with them.
            if self.is_mine(&e.soid) {
                info.stats.take_back(&e.delta);
            }
        }
        info.last_update = info.last_update.min(upto);
        Ok((info, records))
    }

    /// A version up to which this log and one that ends at `last_update` are surely the same. Its holder last took part
    /// in an interval that started in epoch `les`; what is older than that was made equal then.
    pub(in crate::pg) fn common_with(&self, last_update: Eversion, les: Epoch) -> Eversion {
        // After a split the newest record may belong to another PG.
        let has = last_update == self.journal.info().last_update || self.journal.log().has(last_update);
        if has { last_update } else { self.journal.log().last_before(les) }
    }

    /// Answers `Activate` when it is durable, with the objects that this member lacks and what its log takes at once.
    /// True until the log that made this copy a member is durable.
    pub(in crate::pg) fn is_becoming_member(&self) -> bool {
        self.journal.actions().any(|a| matches!(a, Action::Peering(PeeringAction::MemberReady(_))))
    }

    pub(in crate::pg) fn send_activated(&mut self, to: PeerId, store: &dyn ObjectStore) {
        let missing = self.recovery.missing().iter().map(|(h, v)| (h.clone(), *v)).collect();
        self.send_to(to, &Body::Activated { missing, frame: store.frame_max() as u64 });
    }
}
