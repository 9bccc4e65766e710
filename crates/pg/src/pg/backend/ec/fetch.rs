//! Reads between shards: the primary's questions and the shards' answers.
//!
//! The primary asks. A shard answers once it has applied all writes that were sent to it before the question, and
//! only for the version of the object in the question.
//!
//! Invariants:
//!  1. A question is repeated until it is answered, its plan or the interval ends, or the asked copy is gone
//!     ([`Pg::ask_others`]).
//!  2. Bytes of another version of the object are not accepted, unless the shard's bytes are the same in both versions.
//!     An answer to an earlier question of the same plan is not accepted either.
//!  3. A shard counts its object as lost only after an error of its own store, never because of an invalid question.
//!
//! Tests: `tests/coded.rs`.

use super::account::Page;
use super::read::{ShardReads, Wanted};
use crate::exec::{Step, Stop};
use crate::limits::{DESCRIBE_BYTES, DESCRIBE_OBJECTS, FAMILY_MAX};
use crate::object::{OI_ATTR, ObjectInfo};
use crate::peer::{Body, ReadItem};
use crate::pg::ops::plan::Stage;
use crate::pg::ops::plan::{Plan, Verdict};
use crate::pg::ops::work::RecoveryWork;
use crate::pg::ops::work::ShardWork;
use crate::pg::ops::work::Work;
use crate::pg::{Pg, Turn};
use crate::shards::PeerId;
use base::HObject;
use base::errno::{EINVAL, EIO, ESTALE, Errno};
use base::unreached;
use bytes::Bytes;
use std::collections::BTreeMap;
use store::{ObjectStore, Oid};
use wire::msg::PeerFeatures;

/// The open questions of one plan to other shards.
#[derive(Debug, Default)]
pub(in crate::pg) struct Asked {
    n: u32,
    open: BTreeMap<PeerId, ((Bytes, Bytes), Vec<Wanted>)>,
    /// The shard that was asked for the object's attributes and clones.
    describes: Option<PeerId>,
}

/// A question of the primary, at the shard that is asked.
#[derive(Clone, Debug)]
pub(in crate::pg) struct ShardAsk {
    pub to: PeerId,
    pub id: u64,
    pub n: u32,
    /// The shard answers after it has applied writes up to this number.
    pub seq: u64,
    pub family: Option<HObject>,
    /// The clone with which the wanted page of the description begins.
    pub from: Option<HObject>,
    pub items: Vec<ReadItem>,
}

impl Pg {
    /// Runs work of a shard for other shards.
    pub(in crate::pg) fn run_shard(&mut self, plan: &mut Plan, turn: &mut Turn<'_>) -> Verdict {
        let id = plan.id;
        match &plan.work {
            Work::Shard(ShardWork::Read(ask)) => self.run_shard_read(id, ask, turn),
            Work::Shard(ShardWork::DropUndo) => self.run_drop_undo(id, turn),
            _ => unreached("each part runs its own work"),
        }
    }

    /// The reader of shards for a plan on its object, with the ranges that the plan has read already.
    pub(in crate::pg) fn shard_reads(&self, plan: &mut Plan) -> Option<Box<ShardReads>> {
        let (coder, head) = (self.ec.coder.as_ref()?, plan.head.as_ref()?);
        let mut reads = plan.reads.take().unwrap_or_else(|| Box::new(ShardReads::new(coder.clone(), self.me())));
        reads.holders = self.shard_holders(head);
        if plan.bypass {
            reads.look_again();
        }
        if let Work::Recovery(RecoveryWork::Push(j)) = &plan.work {
            reads.last_resorts = self.last_shards(head);
            // The receiver of a push lacks the object.
            for all in [&mut reads.holders, &mut reads.last_resorts] {
                all.retain(|_, of| {
                    of.retain(|p| *p != j.to);
                    !of.is_empty()
                });
            }
            reads.resort_again();
        }
        Some(reads)
    }

    /// Keeps the ranges that a plan has read, for its next run.
    pub(in crate::pg) fn give_reads(&mut self, reads: Option<Box<ShardReads>>) {
        if reads.is_some() {
            self.ec.shard.reads = reads;
        }
    }

    /// Sends the questions for the ranges that a plan wants.
    pub(in crate::pg) fn ask_shards(&mut self, plan: &Plan, reads: &mut ShardReads) {
        // A plan asks several times, and answers may come twice: each question has its own number.
        self.ec.shard.questions = self.ec.shard.questions.wrapping_add(1);
        let n = self.ec.shard.questions;
        self.ec.shard.asked.entry(plan.id).or_default().n = n;
        let mut by: BTreeMap<PeerId, Vec<Wanted>> = BTreeMap::new();
        for w in std::mem::take(&mut reads.wanted) {
            if let Some(p) = reads.source(&w.oid, w.shard) {
                by.entry(p).or_default().push(w);
            }
        }
        let family = plan.head.clone().filter(|_| std::mem::take(&mut reads.wants_family));
        let describes = family.as_ref().and_then(|head| self.describer(head, reads));
        if let Some(p) = describes {
            by.entry(p).or_default();
        }
        let mut open = BTreeMap::new();
        for (p, wanted) in by {
            let items = wanted.iter().map(|w| ReadItem {
                oid: w.oid.clone(),
                version: w.version,
                since: self.same_since(p, &w.oid, w.version),
                off: w.range.start,
                len: w.range.end - w.range.start,
            });
            let items: Vec<ReadItem> = items.collect();
            self.report.count_shard_reads(items.len());
            let family = family.clone().filter(|_| describes == Some(p));
            let seq = self.peers.members().get(&p).map_or(self.peers.seq(), |m| m.sent);
            // An OSD that knows no pages describes all, and what is known is left out of its answer.
            let pages = self.understands(p, PeerFeatures::PAGES);
            let from = reads.family_from.clone().filter(|_| family.is_some() && pages);
            let m = Body::ShardRead { id: plan.id, n, seq, family, from, items }.encode();
            open.insert(p, (m.clone(), wanted));
            self.send_encoded(p, m);
        }
        if open.is_empty() {
            // No shard can be asked; the plan finds that out when it runs again.
            self.ec.shard.asked.remove(&plan.id);
            self.plans.ready(plan.id);
        } else if let Some(asked) = self.ec.shard.asked.get_mut(&plan.id) {
            (asked.open, asked.describes) = (open, describes);
        }
    }

    /// The copy to ask for the attributes of an object and its clones: a member, or else the stray with the newest
    /// log. A stray whose log ends before the needed version has an older object; taking that would lose acknowledged
    /// writes. A copy of last resort is asked in the end; what it tells is judged as a whole before it is used.
    pub(in crate::pg) fn describer(&self, head: &HObject, reads: &ShardReads) -> Option<PeerId> {
        let need = self.recovery.missing().get(head).copied().unwrap_or_default();
        let member = |p: &PeerId| self.peers.members().get(p).is_some_and(|m| m.has(head));
        let stray = |p: &PeerId| {
            let known = self.peers.known().get(p).and_then(|k| k.as_ref());
            known.filter(|i| *head <= i.last_backfill).map(|i| i.last_update).filter(|v| *v >= need)
        };
        let holders = || reads.holders.values().flatten().copied();
        let all = || holders().filter(|p| *p != self.me() && !reads.cannot_tell.contains(p));
        let last = || all().find(|p| self.is_unfilled(*p, head));
        all().find(member).or_else(|| all().filter(|p| stray(p).is_some()).max_by_key(stray)).or_else(last)
    }

    /// Shard reads that are still unanswered, with the encoded message, to be sent again after a reset.
    pub(in crate::pg) fn unanswered_reads(&self) -> Vec<(PeerId, (Bytes, Bytes))> {
        self.ec.shard.asked.values().flat_map(|a| a.open.iter().map(|(p, (m, _))| (*p, m.clone()))).collect()
    }

    /// Drops the questions to copies that are gone: strays that were told to remove their copy, or whose OSD is down.
    /// Their plans run again and ask other copies.
    pub(in crate::pg) fn ask_others(&mut self) {
        let Some(shard) = self.ec.shard.used().filter(|s| !s.asked.is_empty()) else { return };
        let peers = &self.peers;
        let here = |p: &PeerId| peers.members().contains_key(p) || peers.known().get(p).is_some_and(Option::is_some);
        let plans = &mut self.plans;
        shard.asked.retain(|id, a| {
            a.open.retain(|p, _| here(p));
            a.describes = a.describes.filter(here);
            if a.open.is_empty() {
                plans.ready(*id);
            }
            !a.open.is_empty()
        });
    }

    /// A shard answers.
    pub(in crate::pg) fn take_shard_data(
        &mut self,
        from: PeerId,
        id: u64,
        n: u32,
        family: Option<Page>,
        found: Vec<Result<Bytes, Errno>>,
    ) {
        let Some(asked) = self.ec.shard.asked.get_mut(&id).filter(|a| a.n == n) else { return };
        let Some((_, wanted)) = asked.open.remove(&from) else { return };
        let describes = asked.describes == Some(from);
        let done = asked.open.is_empty();
        if done {
            self.ec.shard.asked.remove(&id);
        }
        let head = self.plans.get(id).and_then(|p| p.head.as_ref());
        let last_resort = describes && head.is_some_and(|h| self.is_unfilled(from, h));
        if let Some(reads) = self.plans.reads_of(id) {
            match family {
                None if describes => drop(reads.cannot_tell.insert(from)),
                None => {}
                Some(page) => reads.take_page(from, page, last_resort),
            }
            let all = wanted.iter().zip(found.into_iter().map(Some).chain(std::iter::repeat_with(|| None)));
            for (w, r) in all {
                match r {
                    Some(Ok(b)) if b.len() as u64 == w.range.end - w.range.start => reads.came(w, b),
                    _ => reads.failed(w, from),
                }
            }
        }
        if done && self.plans.get(id).is_some() {
            self.plans.ready(id);
        }
    }

    /// Handles a question of the primary.
    pub(in crate::pg) fn take_shard_read(&mut self, ask: ShardAsk) {
        // A repetition replaces the waiting question.
        self.ec.shard.reading.retain(|a| (a.to, a.id) != (ask.to, ask.id));
        self.ec.shard.reading.push_back(ask);
    }

    /// Answers the questions whose preceding writes are applied.
    pub(in crate::pg) fn pump_reading(&mut self, turn: &mut Turn<'_>) {
        let mut later = std::collections::VecDeque::new();
        for ask in std::mem::take(&mut self.ec.shard.reading) {
            if self.peers.is_member() && !self.has_applied(ask.seq) {
                later.push_back(ask);
            } else {
                self.start_work(Work::Shard(ShardWork::Read(Box::new(ask))), None, turn);
            }
        }
        later.append(&mut self.ec.shard.reading);
        self.ec.shard.reading = later;
    }

    pub(in crate::pg) fn run_shard_read(&mut self, id: u64, ask: &ShardAsk, turn: &mut Turn<'_>) -> Verdict {
        let mut found = Vec::with_capacity(ask.items.len());
        for item in &ask.items {
            match self.read_item(id, item, turn.store) {
                Ok(b) => found.push(Ok(b)),
                Err(Stop::Wait) => return Verdict::Park(Stage::Reading),
                Err(Stop::Errno(errno)) => {
                    tracing::warn!(pg = %self.env.spg(), object = %item.oid, errno, "can't answer a shard read");
                    if errno == EIO {
                        self.lose_found(&item.oid.head(), turn);
                    }
                    found.push(Err(errno));
                }
            }
        }
        let pages = self.understands(ask.to, PeerFeatures::PAGES);
        let family = match &ask.family {
            None => None,
            // This shard has nothing of the object, or an older version. Where it has not been filled, the version that
            // it has may be the needed one.
            Some(head) if self.recovery.missing().contains_key(head) => None,
            Some(head) => match self.describe(id, head, ask.from.as_ref(), pages, turn.store) {
                Ok(f) => Some(f),
                Err(Stop::Wait) => return Verdict::Park(Stage::Reading),
                Err(Stop::Errno(errno)) => {
                    tracing::warn!(pg = %self.env.spg(), object = %head, errno, "can't read an object's attributes for a rebuild");
                    None
                }
            },
        };
        let (family, more) = family.map_or((None, None), |p: Page| (Some(p.of), p.more));
        self.send_to(ask.to, &Body::ShardData { id: ask.id, n: ask.n, family, more, found });
        Verdict::Done
    }

    fn read_item(&self, id: u64, item: &ReadItem, store: &mut dyn ObjectStore) -> Step<Bytes> {
        let (tag, oid) = (self.tag(id), Oid::new(item.oid.clone()));
        if self.recovery.missing().contains_key(&item.oid.head()) {
            return Err(ESTALE.into());
        }
        let a = store.attr(tag, self.env.cid(), &oid, OI_ATTR)?.ok_or(EIO)?;
        let oi = ObjectInfo::from_attr(&a).map_err(|_| EIO)?;
        if oi.version > item.version || oi.version < item.since {
            return Err(ESTALE.into());
        }
        // A range beyond the shard's end is an error of the question, not of the shard.
        let (Some(coder), Ok(shard)) = (&self.ec.coder, usize::try_from(self.env.spg().shard.0)) else {
            return Err(EINVAL.into());
        };
        let len = coder.layout.shard_len(oi.size, shard);
        if item.off.checked_add(item.len).is_none_or(|end| end > len) {
            return Err(EINVAL.into());
        }
        let b = store.read(tag, self.env.cid(), &oid, item.off, item.len)?;
        // A shard shorter than its object's size implies is damaged.
        if b.len() as u64 == item.len { Ok(b) } else { Err(EIO.into()) }
    }

    /// The object and its clones in this store with their attributes, from clone `from` on: all, or a page.
    pub(in crate::pg) fn describe(
        &self,
        id: u64,
        head: &HObject,
        from: Option<&HObject>,
        pages: bool,
        store: &mut dyn ObjectStore,
    ) -> Step<Page> {
        let (mut page, mut bytes) = (Page::default(), 0);
        let most = if pages { DESCRIBE_OBJECTS } else { FAMILY_MAX };
        for oid in self.family_from(id, head, from, most + 1, store)? {
            if pages && (page.of.len() >= most || bytes >= DESCRIBE_BYTES) {
                page.more = Some(oid.hobj.clone());
                break;
            }
            let attrs = store.attrs(self.tag(id), self.env.cid(), &oid)?;
            bytes += attrs.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
            page.of.push((oid.hobj.clone(), attrs));
        }
        Ok(page)
    }
}
