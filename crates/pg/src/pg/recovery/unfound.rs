//! Giving up unfound objects, on an operator's command (`pg PGID mark_unfound_lost revert|delete`).
//!
//! Each object gets a log record, so that a returning copy with the lost version learns that it is obsolete. The
//! record stands for a deletion (`delete`), or for the newest version that any copy has (`revert`; a deletion if
//! there is none). The members lack the object as well, and recovery brings it to them.
//!
//! Facts: refusals of the command and their texts from Ceph's troubleshooting guide and its OSDs' answers.
//!
//! Invariants:
//!  1. No object is given up before every OSD that may have it was asked, except those declared lost.
//!  2. An object stays missing until its record is durable on all members, and until a version from another copy has
//!     arrived. After a crash in between it is unfound again.
//!  3. An object that is found between the command and its record is not given up.
//!
//! Tests: `tests/lost.rs`.

use crate::effect::Effect;
use crate::exec::{Step, Stop};
use crate::log::{LogEntry, LogKind};
use crate::object::{OI_ATTR, ObjectInfo, SS_ATTR, SnapSet};
use crate::peer::{Body, encode_write};
use crate::pg::backend::Sent;
use crate::pg::journal::action::Action;
use crate::pg::journal::action::RecoveryAction;
use crate::pg::keys::index_keys;
use crate::pg::keys::{missing_key, set_missing};
use crate::pg::ops::plan::Stage;
use crate::pg::ops::plan::Verdict;
use crate::pg::ops::work::RecoveryWork;
use crate::pg::ops::work::Work;
use crate::pg::seldom::Part;
use crate::pg::{Pg, State, Turn};
use crate::shards::{PeerId, ShardSet};
use crate::stats::StatSum;
use base::OsdId;
use base::errno::{EAGAIN, EINVAL, EROFS, Errno};
use base::{Epoch, Eversion, HObject, Now, ReqId, Utime, unreached};
use std::collections::{BTreeMap, BTreeSet};
use store::{ObjectStore, Op, ReadError};
use wire::msg::PeerFeatures;

/// Objects in one question, and those that are deleted at once.
const ROUND: usize = 256;

/// Objects that are being given up in this interval.
#[derive(Debug, Default)]
pub(in crate::pg) struct Lost {
    /// Objects to be reverted whose versions were not asked for.
    todo: BTreeSet<HObject>,
    /// Objects to be deleted.
    delete: BTreeSet<HObject>,
    /// Objects of the current question, each with the newest version found and the copy that has it.
    round: BTreeMap<HObject, (Eversion, PeerId)>,
    /// Copies that have not answered the current question.
    waits: BTreeSet<PeerId>,
    /// Objects that are fetched from a copy in the version it has.
    pub from: BTreeMap<HObject, PeerId>,
}

impl Lost {
    /// Ends a deletion under way: the objects may be found.
    pub(super) fn forget_deletions(&mut self) {
        self.delete.clear();
    }
}

impl Part for Lost {
    const EMPTY: &'static Self = &Self {
        todo: BTreeSet::new(),
        delete: BTreeSet::new(),
        round: BTreeMap::new(),
        waits: BTreeSet::new(),
        from: BTreeMap::new(),
    };

    fn is_empty(&self) -> bool {
        let asks = !self.round.is_empty() || !self.waits.is_empty();
        self.todo.is_empty() && self.delete.is_empty() && !asks && self.from.is_empty()
    }
}

impl Pg {
    /// Gives up all unfound objects: deletes them, or with `revert` goes back to the newest version on any copy.
    /// Returns the answer to the operator. A later command ends an earlier one. Errors, with the text for the operator:
    /// EINVAL to revert in an erasure-coded pool or before all sources were asked, EROFS on a replica, EAGAIN while the
    /// PG is not active.
    pub fn mark_unfound_lost(
        &mut self,
        revert: bool,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Result<String, (Errno, String)> {
        let turn = &mut Turn { now, store, out };
        // Older versions of shards can't be combined to an object. Ceph refuses this before anything else, too
        // (`PrimaryLogPG::do_command`).
        if revert && self.is_coded() {
            return Err((EINVAL, "mode must be 'delete' for ec pool".to_owned()));
        }
        if !self.is_primary() {
            return Err((EROFS, "not primary".to_owned()));
        }
        let all = self.unfound_objects();
        let unfound = all.len();
        if unfound == 0 {
            return Ok("pg has no unfound objects".to_owned());
        }
        if *self.life.state() != State::Active || self.life.is_stopping() {
            return Err((EAGAIN, "pg is not active".to_owned()));
        }
        if !self.all_sources_asked() {
            let text = format!("pg has {unfound} unfound objects but we haven't probed all sources, not marking lost");
            return Err((EINVAL, text));
        }
        tracing::warn!(pg = %self.env.spg(), unfound, revert, "giving up unfound objects at an operator's request");
        let text = format!("{} has {unfound} objects unfound and apparently lost marking", self.env.spg());
        turn.out.push(Effect::Log(crate::effect::LogLevel::Error, text));
        // The later command holds for what the earlier one has not given up yet.
        if let Some(l) = self.recovery.lost.used() {
            l.todo.clear();
            l.delete.clear();
        }
        if revert {
            self.recovery.lost.todo.extend(self.recovery.unfound.iter().cloned());
            self.next_round(turn);
        } else {
            self.recovery.lost.delete.extend(all.into_iter().map(|(head, _)| head));
            for _ in 0..ROUND {
                self.delete_next(turn);
            }
        }
        self.input(crate::Event::Tick, turn);
        Ok(format!("pg has {unfound} objects unfound and apparently lost marking"))
    }

    /// True if no copy has the object, or too few shards can be read. An object of which a source has told since the
    /// command is recovered instead.
    fn is_lost(&self, head: &HObject) -> bool {
        self.recovery.unfound.contains(head) || self.is_coded() && self.recovery.damage.hopeless.contains(head)
    }

    /// Deletes the next object that was given up, and that nobody has found since.
    fn delete_next(&mut self, turn: &mut Turn<'_>) {
        while let Some(head) = self.recovery.lost.used().and_then(|l| l.delete.pop_first()) {
            if self.is_lost(&head) {
                return self.start_work(Work::Recovery(RecoveryWork::Lose(head, None)), None, turn);
            }
        }
    }

    /// OSDs that may have unfound objects but can't be asked: members of past intervals that may have taken writes.
    pub(in crate::pg) fn unasked_sources(&self) -> Vec<OsdId> {
        let Some(map) = self.maps.newest() else { return Vec::new() };
        let mut all = BTreeSet::new();
        let me = self.me();
        // A copy that failed counts as down.
        let asks = |p: PeerId| p == me || map.osds.is_up(p.osd) && !self.peers.has_failed(p);
        for past in self.journal.info().past.iter().filter(|p| p.maybe_went_rw) {
            for p in ShardSet::new(&past.acting, self.is_coded()).iter().filter(|p| !asks(*p)) {
                let lost = map.osds.lost_at(p.osd);
                if lost != Epoch(u32::MAX) && lost <= past.first {
                    all.insert(p.osd);
                }
            }
        }
        all.into_iter().collect()
    }

    /// True if every OSD that may have unfound objects was asked or is lost.
    #[must_use]
    pub fn all_sources_asked(&self) -> bool {
        self.unasked_sources().is_empty()
    }

    /// OSDs that may have unfound objects, each with its state: probed or down.
    #[must_use]
    pub fn might_have_unfound(&self) -> Vec<(OsdId, &'static str)> {
        let probed = self.peers.known().keys().map(|p| (p.osd, "already probed"));
        let mut all: BTreeMap<OsdId, &'static str> = probed.collect();
        all.extend(self.unasked_sources().into_iter().map(|o| (o, "osd is down")));
        all.into_iter().collect()
    }

    /// Copies that may have an older version of an object.
    fn holders(&self) -> BTreeSet<PeerId> {
        let strays = self.peers.known().iter().filter(|(_, k)| k.is_some()).map(|(o, _)| *o);
        strays.chain(self.peers.members().keys().copied()).filter(|o| *o != self.me()).collect()
    }

    /// Asks all holders for their versions of the next objects.
    fn next_round(&mut self, turn: &mut Turn<'_>) {
        let holders = self.holders();
        let l = &mut self.recovery.lost;
        if !l.round.is_empty() || l.todo.is_empty() {
            return;
        }
        let me = PeerId { osd: self.env.whoami(), shard: self.env.spg().shard };
        while l.round.len() < ROUND
            && let Some(h) = l.todo.pop_first()
        {
            l.round.insert(h, (Eversion::default(), me));
        }
        l.waits = holders;
        l.waits.insert(me);
        let heads: Vec<HObject> = l.round.keys().cloned().collect();
        for (o, b) in self.unanswered_lost() {
            self.send_to(o, &b);
        }
        self.start_work(Work::Recovery(RecoveryWork::Have { to: self.me(), heads }), None, turn);
    }

    /// Questions without an answer, to be repeated.
    pub(in crate::pg) fn unanswered_lost(&self) -> Vec<(PeerId, Body)> {
        let l = &self.recovery.lost;
        let ask = |o: &PeerId| (*o, Body::Have { heads: l.round.keys().cloned().collect() });
        l.waits.iter().filter(|o| **o != self.me()).map(ask).collect()
    }

    /// True if a question is unanswered.
    pub(in crate::pg) fn asks_for_lost(&self) -> bool {
        !self.recovery.lost.waits.is_empty()
    }

    /// Stops waiting for copies on OSDs that are down in the new map.
    pub(in crate::pg) fn check_lost(&mut self, turn: &mut Turn<'_>) {
        let Some(map) = self.maps.newest() else { return unreached("a map is being handled") };
        let l = &mut self.recovery.lost;
        if l.waits.is_empty() {
            return;
        }
        l.waits.retain(|o| map.osds.is_up(o.osd));
        self.round_done(turn);
    }

    /// Reports the versions of objects in this store.
    pub(in crate::pg) fn run_have(&mut self, id: u64, to: PeerId, heads: &[HObject], turn: &mut Turn<'_>) -> Verdict {
        let mut versions = Vec::with_capacity(heads.len());
        for h in heads {
            match self.version_here(id, h, turn.store) {
                Ok(v) => versions.push((h.clone(), v)),
                Err(Stop::Wait) => return Verdict::Park(Stage::Reading),
                Err(Stop::Errno(errno)) => {
                    tracing::warn!(pg = %self.env.spg(), object = %h, errno, "can't read an unfound object to report its version; reported as absent");
                    versions.push((h.clone(), Eversion::default()));
                }
            }
        }
        if to == self.me() {
            self.take_versions(to, versions, turn);
        } else {
            self.send_to(to, &Body::Versions { versions });
        }
        Verdict::Done
    }

    /// The newest version of an object and its clones; zero if there is none.
    fn version_here(&self, id: u64, head: &HObject, store: &mut dyn ObjectStore) -> Step<Eversion> {
        let mut newest = Eversion::default();
        for oid in self.family(id, head, store)? {
            if let Some(a) = store.attr(self.tag(id), self.env.cid(), &oid, OI_ATTR)? {
                newest = newest.max(ObjectInfo::from_attr(&a).map(|i| i.version).unwrap_or_default());
            }
        }
        Ok(newest)
    }

    pub(in crate::pg) fn take_versions(
        &mut self,
        from: PeerId,
        versions: Vec<(HObject, Eversion)>,
        turn: &mut Turn<'_>,
    ) {
        let me = self.me();
        let l = &mut self.recovery.lost;
        if !l.waits.contains(&from) || versions.len() != l.round.len() {
            return;
        }
        l.waits.remove(&from);
        // A version that the log does not have belongs to a write that was undone; its client may repeat the write.
        let log = self.journal.log();
        let rank = |v: Eversion| (v > Eversion::default() && (v <= log.tail || log.has(v)), v);
        for (h, v) in versions {
            // Of equal versions the local one is preferred: it needs no transfer.
            if let Some(best) = l.round.get_mut(&h)
                && (rank(v) > rank(best.0) || v == best.0 && from == me)
            {
                *best = (v, from);
            }
        }
        self.round_done(turn);
    }

    fn round_done(&mut self, turn: &mut Turn<'_>) {
        if !self.recovery.lost.waits.is_empty() || self.recovery.lost.round.is_empty() {
            return;
        }
        for (head, (v, from)) in std::mem::take(&mut self.recovery.lost.round) {
            let to = (v > Eversion::default()).then_some(from);
            if self.is_lost(&head) {
                self.start_work(Work::Recovery(RecoveryWork::Lose(head, to)), None, turn);
            }
        }
        self.next_round(turn);
    }

    pub(in crate::pg) fn run_lose(
        &mut self,
        id: u64,
        head: &HObject,
        keep: Option<PeerId>,
        turn: &mut Turn<'_>,
    ) -> Verdict {
        match self.lose_for_good(id, head, keep, turn.store) {
            Ok(true) => Verdict::Submitted,
            Ok(false) => {
                // It waited for the store, and was found meanwhile.
                if keep.is_none() && *self.life.state() == State::Active {
                    self.delete_next(turn);
                }
                Verdict::Done
            }
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }

    /// Logs the loss of an object; `keep`: the copy with the version to revert to, `None` to delete.
    fn lose_for_good(
        &mut self,
        id: u64,
        head: &HObject,
        keep: Option<PeerId>,
        store: &mut dyn ObjectStore,
    ) -> Step<bool> {
        let hopeless = self.is_coded() && self.recovery.damage.hopeless.contains(head);
        if *self.life.state() != State::Active || !self.is_lost(head) {
            return Ok(false);
        }
        let prior = self.version_wanted(head);
        let tag = self.tag(id);
        let version = self.next_version();
        let elsewhere = keep.filter(|o| *o != self.me());
        let (mut ops, mut delta) = (Vec::new(), StatSum { estimated: 1, ..StatSum::default() });
        if keep.is_none() {
            delta.num_objects = -1;
            ops = self.removal(id, head, store)?;
        }
        let (cid, oid) = (self.env.cid(), self.meta_missing());
        ops.push(match elsewhere {
            Some(_) => set_missing(cid, oid, [(head, &version)]),
            None => Op::OmapRmKeys { cid, oid, keys: vec![missing_key(head)] },
        });
        let entry = LogEntry {
            kind: if keep.is_some() { LogKind::Modify } else { LogKind::Delete },
            soid: head.clone(),
            version,
            prior_version: prior,
            user_version: version.version,
            reqid: ReqId::default(),
            mtime: Utime::ZERO,
            result: 0,
            returns: Vec::new(),
            snaps: Vec::new(),
            delta,
            undo: bytes::Bytes::new(),
            touch: None,
        };
        let records = [entry.to_record()];
        if self.is_coded() {
            self.send_deferred();
        }
        let bare = match self.peers.members().is_empty() {
            true => None,
            false => {
                let (seq, stable) = (self.peers.seq() + 1, self.stable_at_members());
                encode_write(seq, seq, stable, None, &records, &[], PeerFeatures::NONE)
            }
        };
        self.submit_with_log(tag, &mut ops, &[entry], &records, None, store)?;
        if let Some(bare) = bare {
            self.share_write(Some(head), Sent::Same(bare, None), None, &records, None);
        }
        self.journal.add_stats(&delta);
        if hopeless && let Some(d) = self.recovery.damage.used() {
            d.hopeless.remove(head);
        }
        self.note_loss(head, version, elsewhere);
        Ok(true)
    }

    /// The changes that remove an object with its clones.
    fn removal(&self, id: u64, head: &HObject, store: &mut dyn ObjectStore) -> Step<Vec<Op>> {
        let tag = self.tag(id);
        let mut ops = Vec::new();
        for oid in self.family(id, head, store)? {
            let snapset = match store.attr(tag, self.env.cid(), &oid, SS_ATTR) {
                Err(ReadError::Io { .. }) => None,
                r => r?,
            };
            if let Some(ss) = snapset.and_then(|a| SnapSet::from_attr(&a).ok()).filter(|s| !s.clones.is_empty()) {
                let keys = index_keys(head, &ss).collect();
                ops.push(Op::OmapRmKeys { cid: self.env.cid(), oid: self.meta(), keys });
            }
            ops.push(Op::Remove { cid: self.env.cid(), oid });
        }
        Ok(ops)
    }

    /// Takes up the logged loss of an object: it is missing at all members, and here if another copy has it.
    fn note_loss(&mut self, head: &HObject, version: Eversion, elsewhere: Option<PeerId>) {
        self.plans.forget_context(head);
        self.peers.all_lack(head, version);
        self.recovery.push_again(head);
        self.recovery.unfound.remove(head);
        self.recovery.pulls.remove(head);
        match elsewhere {
            Some(o) => {
                self.recovery.lacks([(head.clone(), version)]);
                self.recovery.lost.from.insert(head.clone(), o);
            }
            None => {
                self.recovery.pull_again(head);
                self.on_durable(Action::Recovery(RecoveryAction::Lost(self.life.generation(), Box::new(head.clone()))));
            }
        }
    }

    /// Handles the durability of the record: the local object is what the record says.
    pub(in crate::pg) fn lost_durable(&mut self, generation: u64, head: &HObject, turn: &mut Turn<'_>) {
        self.recovery.got(head);
        if generation == self.life.generation() && self.is_primary() {
            self.pulled(head, turn);
            self.delete_next(turn);
        }
    }
}
