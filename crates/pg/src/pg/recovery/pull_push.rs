//! Recovery by log: objects with what was written while a copy was away go over whole, head and clones together.
//!
//! The primary first pulls what it lacks itself, then pushes what members lack. Objects that clients wait for go first.
//! An object travels in parts of bounded size, one part on its way at a time; the first part replaces all there was. A
//! crash in between leaves the object in the receiver's missing set, so nobody reads a part of an object.
//!
//! Invariants:
//!  1. An object missing anywhere among the members is not written; one missing here is not read. Plans for it wait in
//!     order and start when it is there.
//!  2. An object does not change while it is read for a push: the push holds it as a reader.

use crate::effect::{Effect, Lane};
use crate::exec::{Step, Stop, index_key};
use crate::limits::{
    PULLS_MAX, PUSH_BYTES, PUSH_BYTES_BESIDE_CLIENTS, PUSH_OMAP_ENTRIES, PUSH_READ, PUSH_SMALL, PUSHES_MAX,
    PUSHES_SENT_MAX,
};
use crate::log::{LogEntry, LogKind};
use crate::map::map_flags;
use crate::object::{SS_ATTR, SnapSet};
use crate::pace::Class;
use crate::peer::{Body, encode_ops};
use crate::pg::backend::ec::read::Described;
use crate::pg::ops::plan::{Plan, Verdict, Work};
use crate::pg::peering::session::Member;
use crate::pg::recovery::reserve::Kind;
use crate::pg::report::Stage;
use crate::pg::{Pg, State};
use crate::reserve::Active;
use crate::shards::PeerId;
use base::errno::EIO;
use base::{Eversion, HObject, Now, SnapId};
use bytes::Bytes;
use std::collections::BTreeSet;
use store::{ObjectStore, Oid, Op};
use wire::{Features, Writer};

/// An object the primary asked for.
#[derive(Debug, Default)]
pub(in crate::pg) struct PullJob {
    pub need: Eversion,
    /// Who was asked.
    pub source: Option<PeerId>,
    /// Who does not have it.
    pub refused: BTreeSet<PeerId>,
    /// The transfer that is being applied, by its sender and number, and whether its last part has been submitted.
    pub taken: Option<(PeerId, u64, bool)>,
    /// Counted among the objects under way.
    active: Option<Active>,
}

impl PullJob {
    /// Who was asked can't give it.
    pub(in crate::pg) fn ask_another(&mut self) {
        self.refused.extend(self.source.take());
        self.active = None;
    }
}

/// Where in an object the next part begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::pg) enum Cursor {
    Start,
    Data(u64),
    Omap(Option<Bytes>),
}

/// A transfer to somebody.
#[derive(Debug)]
pub(in crate::pg) struct PushJob {
    pub to: PeerId,
    pub head: HObject,
    /// Asked for as of this log position; the copy here must be that.
    need: Option<Eversion>,
    /// Somebody there waits for it.
    urgent: bool,
    /// What there is of the object, once listed.
    objects: Option<Vec<Oid>>,
    /// The same of an object that shards have.
    pub family: Option<Vec<Described>>,
    pub at: usize,
    pub cursor: Cursor,
    n: u32,
    /// The part on its way.
    pub sent: Option<(Bytes, Bytes)>,
    pub last: bool,
    acked: bool,
    /// Omap entries read and not counted yet.
    keys: u64,
    /// Counted among the objects under way.
    active: Option<Active>,
}

/// A transfer that is under way.
#[derive(Debug)]
pub(in crate::pg) struct Pushing {
    pub to: PeerId,
    pub head: HObject,
    /// All of it is sent, and it was little: only the answer is missing.
    pub sent: bool,
}

impl Pg {
    /// Nothing is missing anywhere and nobody is being filled.
    pub(in crate::pg) fn is_recovered(&self) -> bool {
        self.missing.is_empty() && self.peers.members.values().all(|m| m.missing.is_empty() && m.backfill.is_none())
    }

    /// A plan on `head` must wait for recovery.
    pub(in crate::pg) fn must_recover(&self, head: &HObject, excl: bool) -> bool {
        self.missing.contains_key(head)
            || self.peers.waiting.contains_key(head)
            || excl && self.peers.members.values().any(|m| m.missing.contains_key(head))
    }

    /// Keeps a plan until an object is recovered, which is now urgent.
    pub(in crate::pg) fn wait_for_recovery(&mut self, mut plan: Box<Plan>, head: HObject) {
        plan.stage = Stage::Recovering;
        if !self.peers.urgent.contains(&head) {
            self.peers.urgent.push_back(head.clone());
        }
        // In the order of arrival: one that was queued for its object's lock comes before those that came later and met the recovery.
        let queue = self.peers.waiting.entry(head).or_default();
        let at = queue.partition_point(|p| p.id < plan.id);
        queue.insert(at, plan);
    }

    /// Nobody who was asked has an object. Listings that wait for it do without.
    pub(in crate::pg) fn note_unfound(&mut self, head: HObject) {
        if self.peers.waiting.contains_key(&head) {
            self.pushed.push(head.clone());
        }
        self.peers.unfound.insert(head);
    }

    /// Lets plans go on whose object may be recovered now.
    pub(in crate::pg) fn recovered(
        &mut self,
        head: &HObject,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) {
        let Some(queue) = self.peers.waiting.remove(head) else { return };
        self.peers.urgent.retain(|h| h != head);
        for plan in queue {
            // One that still must wait queues again, and those after it.
            self.start(plan, now, store, out);
        }
    }

    /// Starts what may be started.
    pub(in crate::pg) fn pump_recovery(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        if !matches!(self.state, State::Active | State::Peered | State::Quiesced) || self.stopping {
            return;
        }
        let lacking = self.peers.members.values().any(|m| !m.missing.is_empty());
        if self.is_recovered() {
            self.unreserve();
            self.forced = 0;
            return self.check_clean(now, store, out);
        }
        if self.is_stuck() || self.is_backfill_stuck() {
            return self.unreserve();
        }
        let by_log = !self.missing.is_empty() || lacking;
        let may = if self.is_forbidden(by_log) {
            // What clients wait for goes on.
            self.unreserve();
            false
        } else {
            self.may_recover(if by_log { Kind::Recovery } else { Kind::Backfill }, now)
        };
        if !self.missing.is_empty() {
            if self.is_coded() {
                self.start_rebuilds(may, now, store, out);
            } else {
                self.start_pulls(may);
            }
            if !self.peers.damage.wanted.is_empty() {
                self.give_up(now, store, out);
            }
        }
        if lacking {
            self.start_pushes(may, now, store, out);
        }
        if may && !by_log {
            self.pump_backfill(now, store, out);
            if self.is_recovered() {
                self.unreserve();
                self.check_clean(now, store, out);
            }
        }
    }

    /// Copies that only move can wait.
    pub(in crate::pg) fn recovery_class(&self) -> Class {
        let full = self.map.as_ref().is_some_and(|m| {
            let copies = m.mapping.acting(self.is_coded()).len();
            m.pool.as_ref().is_some_and(|p| copies >= p.size as usize)
        });
        let whole = self.missing.is_empty()
            && self
                .peers
                .members
                .iter()
                .all(|(o, m)| m.missing.is_empty() && (m.backfill.is_none() || !self.others.contains(&o.osd)));
        if full && whole { Class::BestEffort } else { Class::Recovery }
    }

    /// Flags of the map forbid what is next: recovery of what logs name, or backfill.
    fn is_forbidden(&self, by_log: bool) -> bool {
        let Some(map) = &self.map else { return false };
        if by_log {
            return map.flags & map_flags::NORECOVER != 0;
        }
        let degraded = self.acting_set().len() < self.info.interval.size as usize;
        map.flags & map_flags::NOBACKFILL != 0 || map.flags & map_flags::NOREBALANCE != 0 && !degraded
    }

    /// An operator wants this PG recovered before others, or in its turn again.
    pub(in crate::pg) fn force(&mut self, options: u8) {
        const CANCEL: u8 = 4;
        let bits = options & 3;
        if options & CANCEL != 0 {
            self.forced &= !bits;
        } else if !self.is_recovered() {
            self.forced |= bits;
        }
    }

    /// All that is left to recover nobody has.
    fn is_stuck(&self) -> bool {
        let p = &self.peers;
        let gone = |h: &HObject| self.missing.contains_key(h) || p.damage.hopeless.contains(h);
        let mut lacked = p.members.values().flat_map(|m| m.missing.keys());
        let stuck = p.pushes.is_empty() && p.unfound.len() >= self.missing.len() && lacked.all(gone);
        // Without anything missing, backfill may go on.
        stuck && (!self.missing.is_empty() || p.members.values().any(|m| !m.missing.is_empty()))
    }

    /// Rebuilds what this shard lacks from the others.
    fn start_rebuilds(&mut self, may: bool, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        let urgent = self.peers.urgent.iter().filter(|h| self.missing.contains_key(*h)).cloned();
        let order: Vec<HObject> = urgent
            .chain(self.missing.keys().filter(|_| may).cloned())
            .filter(|h| {
                self.may_pull(h)
                    && !self.peers.unfound.contains(h)
                    && self.peers.pulls.get(h).is_none_or(|p| p.source.is_none())
            })
            .take(PULLS_MAX)
            .collect();
        let me = self.me();
        for head in order {
            let active = self.peers.pulls.values().filter(|p| p.source.is_some()).count();
            let Some(need) = self.missing.get(&head).copied().filter(|_| active < PULLS_MAX) else { continue };
            if !self.can_rebuild(&head) {
                tracing::warn!(pg = %self.cfg.spg, object = %head, version = %need, "object is unfound: too few shards have it");
                self.note_unfound(head);
                continue;
            }
            let p = self.peers.pulls.entry(head.clone()).or_default();
            (p.need, p.source) = (need, Some(me));
            if !self.start_push(me, head.clone(), None, now, store, out) {
                self.peers.pulls.remove(&head);
                return;
            }
        }
    }

    fn start_pulls(&mut self, may: bool) {
        let urgent = self.peers.urgent.iter().filter(|h| self.missing.contains_key(*h)).cloned();
        let order: Vec<HObject> = urgent
            .chain(self.missing.keys().filter(|_| may).cloned())
            .filter(|h| {
                self.may_pull(h)
                    && !self.peers.unfound.contains(h)
                    && self.peers.pulls.get(h).is_none_or(|p| p.source.is_none())
            })
            .take(PULLS_MAX)
            .collect();
        for head in order {
            let active = self.peers.pulls.values().filter(|p| p.source.is_some()).count();
            if active >= PULLS_MAX {
                return;
            }
            let Some(need) = self.missing.get(&head).copied() else { continue };
            let urgent = self.peers.urgent.contains(&head);
            let Some(place) = self.start_object(urgent) else { return };
            let p = self.peers.pulls.entry(head.clone()).or_default();
            if p.source.is_some() {
                continue;
            }
            p.need = need;
            let refused = std::mem::take(&mut p.refused);
            let given_up = self.peers.lost.from.get(&head).copied();
            let source = match given_up {
                Some(o) => Some(o).filter(|o| !refused.contains(o)),
                None => self.sources(&head, need).find(|o| !refused.contains(o)),
            };
            // What there is.
            let need = if given_up.is_some() { Eversion::default() } else { need };
            let Some(p) = self.peers.pulls.get_mut(&head) else { continue };
            p.refused = refused;
            p.source = source;
            p.active = place.filter(|_| source.is_some());
            match source {
                Some(o) => {
                    self.tell(o, &Body::Pull { head, need, urgent });
                }
                None => {
                    self.peers.lost.from.remove(&head);
                    tracing::warn!(pg = %self.cfg.spg, object = %head, version = %need, "object is unfound");
                    self.note_unfound(head);
                }
            }
        }
    }

    /// Who has an object as of a log position: members, then strays.
    fn sources(&self, head: &HObject, need: Eversion) -> impl Iterator<Item = PeerId> {
        let members = self.peers.members.iter().filter(move |(_, m)| has(m, head)).map(|(o, _)| *o);
        let strays = self.peers.known.iter().filter(move |(o, k)| {
            !self.peers.members.contains_key(o)
                && k.as_ref().is_some_and(|i| *head <= i.last_backfill && i.last_update >= need)
        });
        members.chain(strays.map(|(o, _)| *o))
    }

    /// Somebody else has the object as it is to be.
    pub(in crate::pg) fn has_source(&self, head: &HObject) -> bool {
        if self.is_coded() {
            let me = self.me();
            let k = self.shards_needed().unwrap_or(usize::MAX);
            return self.shard_holders(head).values().filter(|of| of.iter().any(|p| *p != me)).count() >= k;
        }
        self.sources(head, self.info.last_update).next().is_some()
    }

    pub(in crate::pg) fn no_pull(&mut self, from: PeerId, head: &HObject) {
        if let Some(p) = self.peers.pulls.get_mut(head)
            && p.source == Some(from)
        {
            p.refused.insert(from);
            p.source = None;
            p.active = None;
            let need = p.need;
            self.member_lacks(from, head, need);
        }
    }

    /// Asks others for what was asked of OSDs that are down now.
    pub(in crate::pg) fn check_sources(&mut self) {
        let Some(map) = &self.map else { return };
        self.peers.known.retain(|o, _| map.osds.is_up(o.osd));
        for p in self.peers.pulls.values_mut() {
            if p.source.is_some_and(|o| !map.osds.is_up(o.osd)) {
                p.ask_another();
            }
        }
        self.ask_others();
    }

    /// An object is here.
    pub(in crate::pg) fn pulled(
        &mut self,
        head: &HObject,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) {
        self.counters.recovered_objects += 1;
        self.peers.pulls.remove(head);
        self.peers.unfound.remove(head);
        self.peers.lost.from.remove(head);
        self.peers.damage.wanted.remove(head);
        self.recovered(head, now, store, out);
        if self.missing.is_empty() {
            // Listings waited for all.
            self.retry_held(now, store, out);
        }
    }

    fn start_pushes(&mut self, may: bool, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        let sent = self.pushes_sent(None);
        let free = PUSHES_MAX.saturating_sub(self.peers.pushes.len() - sent);
        if free == 0 || sent >= PUSHES_SENT_MAX {
            return;
        }
        let mut start = Vec::new();
        let busy: BTreeSet<(PeerId, &HObject)> = self.peers.pushes.values().map(|p| (p.to, &p.head)).collect();
        for (o, m) in self.peers.members.iter() {
            let urgent = self.peers.urgent.iter().filter(|h| m.missing.contains_key(*h));
            let all = urgent.chain(m.missing.keys().filter(|_| may));
            let mut mine = Vec::new();
            for h in all {
                if mine.len() >= free {
                    break;
                }
                let hopeless = self.peers.damage.hopeless.contains(h);
                if !self.missing.contains_key(h)
                    && !hopeless
                    && !busy.contains(&(*o, h))
                    && !mine.contains(&(*o, h.clone()))
                {
                    mine.push((*o, h.clone()));
                }
            }
            start.extend(mine);
        }
        start.truncate(free);
        for (o, h) in start {
            if !self.start_push(o, h, None, now, store, out) {
                return;
            }
        }
    }

    /// Transfers of which only the answer is missing, of all or to one member.
    pub(in crate::pg) fn pushes_sent(&self, to: Option<PeerId>) -> usize {
        self.peers.pushes.values().filter(|p| p.sent && to.is_none_or(|o| o == p.to)).count()
    }

    /// Starts a transfer. False if too many objects are under way already.
    pub(in crate::pg) fn start_push(
        &mut self,
        to: PeerId,
        head: HObject,
        asked: Option<(Eversion, bool)>,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> bool {
        if self.peers.pushes.values().any(|p| p.to == to && p.head == head) {
            return true;
        }
        // Who asks for an object counts it.
        let Some(active) = self.start_object(asked.is_some() || self.peers.urgent.contains(&head)) else {
            return false;
        };
        let job = PushJob {
            to,
            head: head.clone(),
            need: asked.map(|(need, _)| need),
            urgent: asked.is_some_and(|(_, urgent)| urgent),
            objects: None,
            family: None,
            at: 0,
            cursor: Cursor::Start,
            n: 0,
            sent: None,
            last: false,
            acked: false,
            keys: 0,
            active,
        };
        let id = self.new_plan_id();
        self.peers.pushes.insert(id, Pushing { to, head: head.clone(), sent: false });
        let plan = Plan::new(id, Work::Push(Box::new(job)), Some(head), false);
        self.start(plan, now, store, out);
        true
    }

    pub(in crate::pg) fn take_push_ack(&mut self, from: PeerId, id: u64, n: u32) {
        if let Some(Work::Push(j)) = self.plans.get_mut(&id).map(|p| &mut p.work)
            && j.to == from
            && j.n == n
            && j.sent.is_some()
            && !j.acked
        {
            j.acked = true;
            self.runnable.push_back(id);
        }
    }

    pub(in crate::pg) fn run_push(
        &mut self,
        plan: &mut Plan,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Verdict {
        let id = plan.id;
        let Work::Push(job) = &mut plan.work else { return Verdict::Done };
        if job.sent.is_some() {
            if !job.acked {
                return Verdict::Park(Stage::Recovering);
            }
            job.sent = None;
            job.acked = false;
            job.n += 1;
            if job.last {
                let (to, head) = (job.to, job.head.clone());
                self.peers.pushes.remove(&id);
                if job.need.is_none() {
                    self.counters.recovered_objects += 1;
                }
                // At once: who waits for the object's lock writes it next, and that must reach the member.
                if let Some(m) = self.peers.members.get_mut(&to) {
                    m.missing.remove(&head);
                    if let Some(b) = &mut m.backfill {
                        b.pushed(&head);
                    }
                }
                self.pushed.push(head);
                return Verdict::Done;
            }
        }
        // Large writes of recovery would stand before those of clients at the disk.
        let urgent = job.urgent || self.peers.urgent.contains(&job.head);
        let part = if urgent || self.pacer.is_alone(now.mono) { PUSH_BYTES } else { PUSH_BYTES_BESIDE_CLIENTS };
        let next = match self.is_coded() {
            true => {
                self.next_shard_part(id, job, part, store).and_then(|ops| self.encode_part(id, job, &ops).map(Some))
            }
            false => self.next_part(id, job, part, store),
        };
        match next {
            Ok(Some(part)) => {
                // What was pinned for this part may go.
                store.release(self.tag(id));
                job.sent = Some(part.clone());
                if job.last && part.1.len() <= PUSH_SMALL {
                    // Others may begin meanwhile.
                    job.active = None;
                    if let Some(p) = self.peers.pushes.get_mut(&id) {
                        p.sent = true;
                    }
                }
                if job.need.is_none() {
                    self.counters.recovered_bytes += part.1.len() as u64;
                    self.counters.recovered_keys += std::mem::take(&mut job.keys);
                }
                let (to, urgent) = (job.to, job.urgent || self.peers.urgent.contains(&job.head));
                let lane = if urgent { Lane::Data } else { Lane::Background(self.recovery_class()) };
                self.tell_on(lane, to, part);
                Verdict::Park(Stage::Recovering)
            }
            Ok(None) => {
                let (to, head) = (job.to, job.head.clone());
                self.peers.pushes.remove(&id);
                self.tell(to, &Body::NoPull { head });
                Verdict::Done
            }
            Err(Stop::Wait) => Verdict::Park(Stage::Reading),
            Err(Stop::Errno(errno)) => {
                let (to, head) = (job.to, job.head.clone());
                tracing::error!(pg = %self.cfg.spg, object = %head, errno, "object does not read, it cannot be pushed");
                self.peers.pushes.remove(&id);
                if job.need.is_some() {
                    self.tell(to, &Body::NoPull { head: head.clone() });
                    if self.peers.member && errno == EIO && !self.missing.contains_key(&head) {
                        // The primary sends it when it has it.
                        let need = self.info.last_update;
                        self.missing.insert(head.clone(), need);
                        self.start_work(Work::Missing(head, Some(need)), None, now, store, out);
                    }
                    return Verdict::Done;
                }
                self.push_failed(to, &head, errno, now, store, out);
                Verdict::Done
            }
        }
    }

    /// Reads the next part; `None` if this copy is not what was asked for.
    fn next_part(
        &self,
        id: u64,
        job: &mut PushJob,
        part: usize,
        store: &mut dyn ObjectStore,
    ) -> Step<Option<(Bytes, Bytes)>> {
        let tag = self.tag(id);
        if let (Some(need), None) = (job.need, &job.objects) {
            let mut right = !self.missing.contains_key(&job.head)
                && job.head <= self.info.last_backfill
                && (self.peers.member || self.info.last_update >= need);
            if need == Eversion::default() {
                // What is here, however old: nobody has better.
                right = true;
            } else if right && !self.peers.member {
                // What this log has beyond may not be what others have.
                let newer = store.log_entries(tag, self.cid, need)?;
                right = !newer.iter().any(|(_, r)| {
                    // Records of failures stand for no change.
                    LogEntry::from_record(r).is_ok_and(|e| e.kind != LogKind::Error && e.soid.head() == job.head)
                });
            }
            if !right {
                return Ok(None);
            }
        }
        let objects = match &job.objects {
            Some(o) => o.clone(),
            None => self.family(id, &job.head, store)?,
        };
        let (mut at, mut cursor) = (job.at, job.cursor.clone());
        let (mut ops, mut bytes) = (Vec::new(), 0usize);
        while let Some(oid) = objects.get(at) {
            if bytes >= part {
                break;
            }
            cursor = match cursor {
                Cursor::Start => {
                    let size = store.stat(tag, self.cid, oid)?.size;
                    bytes += 64;
                    ops.push(Op::Touch { cid: self.cid, oid: oid.clone() });
                    ops.push(Op::Truncate { cid: self.cid, oid: oid.clone(), size });
                    Cursor::Data(0)
                }
                Cursor::Data(off) => {
                    let size = store.stat(tag, self.cid, oid)?.size;
                    let len = PUSH_READ.min(part as u64).min(size.saturating_sub(off));
                    for (o, l) in store.extents(tag, self.cid, oid, off, len)? {
                        let l = l.min(size.saturating_sub(o));
                        let data = store.read(tag, self.cid, oid, o, l)?;
                        bytes += data.len();
                        if !data.is_empty() {
                            ops.push(Op::Write { cid: self.cid, oid: oid.clone(), off: o, data });
                        }
                    }
                    if off + len < size { Cursor::Data(off + len) } else { Cursor::Omap(None) }
                }
                Cursor::Omap(from) => {
                    if from.is_none() {
                        let header = store.omap_header(tag, self.cid, oid)?;
                        if !header.is_empty() {
                            bytes += header.len();
                            ops.push(Op::OmapSetHeader { cid: self.cid, oid: oid.clone(), header });
                        }
                    }
                    let (key, after) = from.as_ref().map_or((&b""[..], false), |k| (&k[..], true));
                    let page = store.omap_range(tag, self.cid, oid, key, after, PUSH_OMAP_ENTRIES, part)?;
                    bytes += page.entries.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
                    let last = page.entries.last().map(|(k, _)| k.clone());
                    if !page.entries.is_empty() {
                        job.keys += page.entries.len() as u64;
                        ops.push(Op::OmapSet { cid: self.cid, oid: oid.clone(), entries: page.entries });
                    }
                    if page.more && last.is_some() {
                        Cursor::Omap(last)
                    } else {
                        // Attributes last: what has no object info is no whole object.
                        let attrs = store.attrs(tag, self.cid, oid)?;
                        bytes += attrs.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
                        let ss = attrs.iter().find(|(k, _)| k == SS_ATTR).and_then(|(_, v)| SnapSet::from_attr(v).ok());
                        if let Some(ss) = ss.filter(|s| !s.clones.is_empty()) {
                            let entries: Vec<_> = index_keys(&job.head, &ss).map(|k| (k, Bytes::new())).collect();
                            bytes += entries.iter().map(|(k, _)| k.len()).sum::<usize>();
                            ops.push(Op::OmapSet { cid: self.cid, oid: self.meta(), entries });
                        }
                        ops.push(Op::SetAttrs { cid: self.cid, oid: oid.clone(), attrs });
                        at += 1;
                        Cursor::Start
                    }
                }
            };
        }
        job.last = at >= objects.len();
        let part = self.encode_part(id, job, &ops)?;
        job.objects = Some(objects);
        job.at = at;
        job.cursor = cursor;
        Ok(Some(part))
    }

    /// The message with a part of an object.
    fn encode_part(&self, id: u64, job: &PushJob, ops: &[Op]) -> Step<(Bytes, Bytes)> {
        let mut w = Writer::with_capacity(Features::PACIFIC, 512);
        let mut data = Vec::new();
        w.u8(crate::peer::PUSH);
        w.u64(id);
        w.u32(job.n);
        w.bool(job.last);
        w.bool(!job.urgent && !self.peers.urgent.contains(&job.head));
        w.put(&job.head);
        encode_ops(ops, &mut w, &mut data).ok_or(EIO)?;
        Ok((w.into_bytes(), crate::peer::join(data)))
    }

    /// Lets plans go on that waited for pushes that are done.
    pub(in crate::pg) fn finish_pushes(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        for head in std::mem::take(&mut self.pushed) {
            self.recovered(&head, now, store, out);
        }
    }

    /// Objects that nobody who was asked has: with the version that is wanted.
    #[must_use]
    pub fn unfound_objects(&self) -> Vec<(HObject, Eversion)> {
        self.peers.unfound.iter().map(|h| (h.clone(), self.missing.get(h).copied().unwrap_or_default())).collect()
    }

    /// What clients wait for that nobody has.
    pub(in crate::pg) fn unfound(&self) -> usize {
        self.peers.unfound.len() + self.peers.damage.hopeless.len()
    }
}

/// Keys of an object's clones in the snapshot index: they follow from its snapset.
pub(in crate::pg) fn index_keys<'a>(head: &'a HObject, ss: &'a SnapSet) -> impl Iterator<Item = Bytes> + 'a {
    ss.clones.iter().flat_map(move |c| {
        let clone = head.at_snap(SnapId(c.id));
        c.snaps.iter().map(move |s| index_key(*s, &clone))
    })
}

/// A member has an object as it is to be.
pub(in crate::pg) fn has(m: &Member, head: &HObject) -> bool {
    !m.missing.contains_key(head) && m.backfill.as_ref().is_none_or(|b| head <= b.upto())
}
