//! Objects whose bytes here are not what was written: the store says so on reading them, and never shows wrong data.
//!
//! The primary takes such an object from another copy: it counts as missing here from then on, durably, so that a crash
//! half-way does not leave a part of it, and the operations that met it wait. If no other copy has it either, clients
//! get the error, and what must be copied elsewhere is unfound.
//!
//! Invariants:
//!  1. Another copy is asked only when it has every write this one has made of the object: all that was submitted before is
//!     durable everywhere, and nothing holds the object.
//!  2. An object that nobody can read is looked for once per interval; it is not looked for again by each operation.

use crate::effect::Effect;
use crate::exec::Step;
use crate::log::LogEntry;
use crate::peer::Body;
use crate::pg::ops::plan::{Plan, Verdict, Work};
use crate::pg::peering::log_merge::{Spared, missing_key, set_missing};
use crate::pg::seldom::Part;
use crate::pg::{Pg, State};
use crate::shards::PeerId;
use base::errno::EIO;
use base::{Eversion, HObject, Now};
use std::collections::{BTreeMap, BTreeSet};
use store::{ObjectStore, Op};

/// What is known in this interval of objects that don't read here.
#[derive(Debug, Default)]
pub(in crate::pg) struct Damage {
    /// Being taken from others, once everything up to that transaction is durable everywhere.
    pub wanted: BTreeMap<HObject, u64>,
    /// No other copy reads, either.
    pub hopeless: BTreeSet<HObject>,
}

impl Part for Damage {
    const EMPTY: &'static Self = &Self { wanted: BTreeMap::new(), hopeless: BTreeSet::new() };

    fn is_empty(&self) -> bool {
        self.wanted.is_empty() && self.hopeless.is_empty()
    }
}

impl Pg {
    /// True if an object that does not read here may be had from another copy.
    pub(in crate::pg) fn can_heal(&self, head: &HObject) -> bool {
        self.state == State::Active && !self.peers.damage.hopeless.contains(head) && self.has_source(head)
    }

    /// Some member lacks the object.
    pub(in crate::pg) fn is_lacked(&self, head: &HObject) -> bool {
        self.missing.contains_key(head) || self.peers.members.values().any(|m| m.missing.contains_key(head))
    }

    /// The object does not read here; `plan` met it and waits for another copy of it.
    pub(in crate::pg) fn heal(
        &mut self,
        plan: Box<Plan>,
        head: &HObject,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) {
        if !self.is_coded() {
            self.lose(head, now, store, out);
        }
        self.wait_for_recovery(plan, head.clone());
    }

    /// The object counts as missing here.
    pub(in crate::pg) fn lose(&mut self, head: &HObject, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        self.cache.remove(head);
        if self.missing.contains_key(head) {
            return;
        }
        tracing::error!(pg = %self.cfg.spg, object = %head, "object does not read here, another copy of it is asked for");
        // An upper bound of its version: who has all of the log up to there has the object as it is to be.
        let need = self.info.last_update;
        self.missing.insert(head.clone(), need);
        self.peers.damage.wanted.insert(head.clone(), self.submitted);
        self.peers.clean = false;
        self.start_work(Work::Missing(head.clone(), Some(need)), None, now, store, out);
    }

    /// Writes down that an object is missing, or that it is not.
    pub(in crate::pg) fn run_missing(
        &mut self,
        id: u64,
        head: &HObject,
        need: Option<Eversion>,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Verdict {
        let (cid, oid) = (self.cid, self.meta_missing());
        let op = match &need {
            Some(v) => set_missing(cid, oid, [(head, v)]),
            None => Op::OmapRmKeys { cid, oid, keys: vec![missing_key(head)] },
        };
        match self.commit_alone(self.tag(id), vec![op], store) {
            Ok(()) => Verdict::Submitted,
            Err(stop) => self.step_failed(stop, out),
        }
    }

    /// True if others may be asked for the object now: see the module.
    pub(in crate::pg) fn may_pull(&self, head: &HObject) -> bool {
        match self.peers.damage.wanted.get(head) {
            Some(after) => self.durable >= *after && !self.locks.contains_key(head),
            None => true,
        }
    }

    /// A write of an object that does not read here was submitted after all.
    pub(in crate::pg) fn wrote_damaged(&mut self, head: &HObject) {
        if let Some(after) = self.peers.damage.wanted.get_mut(head) {
            *after = self.submitted;
        }
    }

    /// Objects that don't read here and that nobody else has: who waits for them gets the error.
    pub(in crate::pg) fn give_up(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        let lost: Vec<HObject> =
            self.peers.unfound.iter().filter(|h| self.peers.damage.wanted.contains_key(*h)).cloned().collect();
        for head in lost {
            tracing::error!(pg = %self.cfg.spg, object = %head, "no copy of the object reads");
            self.peers.unfound.remove(&head);
            self.peers.pulls.remove(&head);
            self.peers.damage.wanted.remove(&head);
            self.peers.damage.hopeless.insert(head.clone());
            self.missing.remove(&head);
            self.start_work(Work::Missing(head.clone(), None), None, now, store, out);
            self.recovered(&head, now, store, out);
        }
    }

    /// A push met an object that does not read here: the one it was for gets it later.
    pub(in crate::pg) fn push_failed(
        &mut self,
        to: PeerId,
        head: &HObject,
        errno: base::errno::Errno,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) {
        if errno != EIO {
            return self.fail(errno, out);
        }
        if self.is_coded() {
            return self.rebuild_failed(to, head);
        }
        if let Some(b) = self.peers.members.get_mut(&to).and_then(|m| m.backfill.as_mut()) {
            b.put_back(head);
        }
        if !self.peers.damage.hopeless.contains(head) {
            self.lose(head, now, store, out);
        }
    }

    /// Too few shards of an object read for another one to be rebuilt: it is tried again when more is known.
    fn rebuild_failed(&mut self, to: PeerId, head: &HObject) {
        tracing::error!(pg = %self.cfg.spg, object = %head, shard = %to, "too few shards of the object read");
        if to == self.me() {
            self.peers.pulls.remove(head);
            self.note_unfound(head.clone());
            return;
        }
        if let Some(b) = self.peers.members.get_mut(&to).and_then(|m| m.backfill.as_mut()) {
            b.put_back(head);
        }
        self.peers.damage.hopeless.insert(head.clone());
    }

    /// A member could not apply writes, as what it had of their objects does not read: it has their records.
    pub(in crate::pg) fn members_lost(&mut self, from: PeerId, objects: Vec<(HObject, Eversion)>, now: Now) {
        let Some(m) = self.peers.members.get_mut(&from) else { return };
        for (head, need) in objects {
            tracing::warn!(pg = %self.cfg.spg, object = %head, %from, "object does not read on a member, it gets another copy");
            m.missing.insert(head, need);
        }
        self.peers.clean = false;
        self.stamps.changed(now);
    }

    /// An object was found not to read here, by no client: if another copy may be had, it is asked for.
    pub(in crate::pg) fn lose_found(
        &mut self,
        head: &HObject,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) {
        if self.can_heal(head) {
            return self.lose(head, now, store, out);
        }
        if self.state != State::ReplicaActive || self.missing.contains_key(head) {
            return;
        }
        tracing::error!(pg = %self.cfg.spg, object = %head, "object does not read here, the primary is asked for it");
        let need = self.info.last_update;
        self.missing.insert(head.clone(), need);
        self.start_work(Work::Missing(head.clone(), Some(need)), None, now, store, out);
        let to = self.primary();
        self.tell(to, &Body::Lacks { objects: vec![(head.clone(), need)] });
    }

    /// As a member: a write needs what does not read here. The record is kept, the object counts as missing, and the primary is
    /// told before it is told that the write is durable.
    pub(in crate::pg) fn lose_written(
        &mut self,
        tag: store::Tag,
        entries: &[LogEntry],
        records: &[bytes::Bytes],
        trim: Option<Eversion>,
        store: &mut dyn ObjectStore,
    ) -> Step<()> {
        let mut lost: BTreeMap<HObject, Eversion> = BTreeMap::new();
        let shard = self.cfg.spg.shard;
        for e in entries.iter().filter(|e| e.spares(shard).is_none()) {
            lost.insert(e.soid.head(), e.version);
        }
        // Of entries that spare this shard nothing is read.
        let mut spared = Spared::default();
        for e in entries {
            match (e.spares(shard), lost.get_mut(&e.soid.head())) {
                (_, Some(v)) => *v = (*v).max(e.version),
                (Some(t), None) => spared.set(&e.soid, &t.attrs),
                (None, None) => {}
            }
        }
        let mut ops = vec![set_missing(self.cid, self.meta_missing(), &lost)];
        ops.extend(spared.ops(self.cid));
        self.submit_with_log(tag, &mut ops, entries, records, trim, store)?;
        for (head, need) in &lost {
            tracing::error!(pg = %self.cfg.spg, object = %head, "object does not read here and can't be written, another copy of it is asked for");
            self.missing.insert(head.clone(), *need);
        }
        let to = self.primary();
        self.tell(to, &Body::Lacks { objects: lost.into_iter().collect() });
        Ok(())
    }

    /// A member does not have what it was thought to have: it gets it when it is here.
    pub(in crate::pg) fn member_lacks(&mut self, from: PeerId, head: &HObject, need: Eversion) {
        if let Some(m) = self.peers.members.get_mut(&from)
            && m.backfill.is_none()
        {
            m.missing.insert(head.clone(), need);
        }
    }
}
