//! Pushes: an object is sent to another copy in parts of bounded size, one at a time.

use crate::effect::Lane;
use crate::exec::{Step, Stop};
use crate::limits::{
    PUSH_BYTES, PUSH_BYTES_BESIDE_CLIENTS, PUSH_OMAP_ENTRIES, PUSH_READ, PUSH_SMALL, PUSHES_MAX, PUSHES_SENT_MAX,
};
use crate::object::{OI_ATTR, ObjectInfo, SS_ATTR, SnapSet};
use crate::peer::{Body, Payload, encode_ops};
use crate::pg::backend::ec::account::Described;
use crate::pg::keys::index_keys;
use crate::pg::ops::plan::Stage;
use crate::pg::ops::plan::{Plan, Verdict};
use crate::pg::ops::work::RecoveryWork;
use crate::pg::ops::work::Work;
use crate::pg::peering::Member;
use crate::pg::{Pg, Turn};
use crate::reserve::Active;
use crate::shards::PeerId;
use base::errno::{E2BIG, EIO, Errno};
use base::unreached;
use base::{Eversion, HObject, SnapId};
use bytes::Bytes;
use store::{Cid, ObjectStore, Oid, Op, ReadError, Tag};
use wire::{Features, Writer};

/// Position in an object where the next part begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::pg) enum Cursor {
    Start,
    Data(u64),
    Omap(Option<Bytes>),
    /// After the clients' attribute of that name.
    Attrs(Option<Bytes>),
}

/// An object that is pushed to another copy.
#[derive(Debug)]
pub(in crate::pg) struct PushJob {
    pub to: PeerId,
    pub head: HObject,
    /// For a pull: the log version as of which the object is needed. This copy must have it.
    need: Option<Eversion>,
    /// A client waits for the object at the receiver.
    urgent: bool,
    /// The object and its clones in this store, once listed.
    objects: Option<Vec<Oid>>,
    /// For shards: a page of the object and its clones, as another shard described them.
    pub family: Option<Vec<Described>>,
    /// The clone with which the next page begins.
    pub more: Option<HObject>,
    pub at: usize,
    pub cursor: Cursor,
    n: u32,
    /// The part that is sent and not acknowledged.
    pub sent: Option<(Bytes, Bytes)>,
    pub last: bool,
    acked: bool,
    /// The push waits until the object's writes up to this number can't be undone any more.
    settles: Option<u64>,
    /// Omap entries that were read and are not in the counters.
    keys: u64,
    /// Counts the object in `osd_recovery_max_active`.
    active: Option<Active>,
}

impl PushJob {
    /// Goes back to before the first part.
    fn begin_anew(&mut self) {
        (self.objects, self.family, self.more, self.sent) = (None, None, None, None);
        (self.at, self.cursor, self.n, self.keys) = (0, Cursor::Start, 0, 0);
        (self.last, self.acked) = (false, false);
    }
}

/// A push in progress.
#[derive(Debug)]
pub(in crate::pg) struct Pushing {
    pub to: PeerId,
    pub head: HObject,
    /// All parts are sent and small; only the acknowledgement is outstanding.
    pub sent: bool,
}

impl Pg {
    pub(super) fn start_pushes(&mut self, may: bool, turn: &mut Turn<'_>) {
        let sent = self.pushes_sent(None);
        let free = PUSHES_MAX.saturating_sub(self.recovery.pushes.len() - sent);
        if sent >= PUSHES_SENT_MAX {
            return;
        }
        for _ in 0..free {
            let Some((to, head)) = self.next_push(may, turn.now) else { return };
            if !self.start_push(to, head, None, turn) {
                return;
            }
        }
    }

    /// Pushes of which only the acknowledgement is outstanding: all, or those to one member.
    pub(in crate::pg) fn pushes_sent(&self, to: Option<PeerId>) -> usize {
        self.recovery.pushes.values().filter(|p| p.sent && to.is_none_or(|o| o == p.to)).count()
    }

    /// Starts a push. False if too many objects are being recovered.
    pub(in crate::pg) fn start_push(
        &mut self,
        to: PeerId,
        head: HObject,
        asked: Option<(Eversion, bool)>,
        turn: &mut Turn<'_>,
    ) -> bool {
        if self.recovery.pushes.values().any(|p| p.to == to && p.head == head) {
            return true;
        }
        // A pulled object is counted by the primary that asked for it.
        let Some(active) = self.start_object(asked.is_some() || self.recovery.urgent.contains(&head)) else {
            return false;
        };
        let job = PushJob {
            to,
            head: head.clone(),
            need: asked.map(|(need, _)| need),
            urgent: asked.is_some_and(|(_, urgent)| urgent),
            objects: None,
            family: None,
            more: None,
            at: 0,
            cursor: Cursor::Start,
            n: 0,
            sent: None,
            last: false,
            acked: false,
            settles: None,
            keys: 0,
            active,
        };
        let id = self.new_plan_id();
        self.recovery.pushes.insert(id, Pushing { to, head: head.clone(), sent: false });
        let plan = Plan::new(id, Work::Recovery(RecoveryWork::Push(Box::new(job))), Some(head), false);
        self.start(plan, turn);
        true
    }

    pub(in crate::pg) fn take_push_ack(&mut self, from: PeerId, id: u64, n: u32) {
        if let Some(j) = self.plans.push_of(id)
            && j.to == from
            && j.n == n
            && j.sent.is_some()
            && !j.acked
        {
            j.acked = true;
            self.plans.ready(id);
        }
    }

    /// Handles the receiver's answer that it can't use a part: the push begins anew, or ends because the object is not
    /// wanted there.
    pub(in crate::pg) fn push_refused(&mut self, from: PeerId, id: u64, n: u32, again: bool) {
        if let Some(j) = self.plans.push_of(id)
            && j.to == from
            && j.n == n
            && j.sent.is_some()
            && !j.acked
        {
            if again {
                tracing::info!(pg = %self.env.spg(), object = %j.head, to = %from, part = n, "the receiver lacks earlier parts of an object; sending it anew");
                j.begin_anew();
            } else if j.need.is_some() {
                (j.last, j.acked) = (true, true);
            } else {
                // Only a primary declines an object, one that it asked for.
                return;
            }
            if let Some(p) = self.recovery.pushes.get_mut(&id) {
                p.sent = false;
            }
            self.plans.ready(id);
        }
    }

    pub(in crate::pg) fn run_push(&mut self, plan: &mut Plan, turn: &mut Turn<'_>) -> Verdict {
        let id = plan.id;
        let Work::Recovery(RecoveryWork::Push(job)) = &mut plan.work else { return unreached("the plan pushes") };
        if job.sent.is_some() {
            if !job.acked {
                return Verdict::Park(Stage::Recovering);
            }
            job.sent = None;
            job.acked = false;
            job.n += 1;
            if job.last {
                self.push_done(id, job);
                return Verdict::Done;
            }
        }
        // Later writes of the object wait for the push.
        let (seq, hash) = (*job.settles.get_or_insert(self.peers.seq()), job.head.hash);
        if job.n == 0 && self.may_be_undone(seq, |u| u.hash == hash) {
            self.ec.await_settling(id);
            return Verdict::Park(Stage::Recovering);
        }
        // Large writes of recovery would delay those of clients at the disk.
        let urgent = job.urgent || self.recovery.urgent.contains(&job.head);
        let part =
            if urgent || self.env.pacer().is_alone(turn.now.mono) { PUSH_BYTES } else { PUSH_BYTES_BESIDE_CLIENTS };
        let next = match self.is_coded() {
            true => self
                .next_shard_part(id, job, part, turn.store)
                .and_then(|ops| self.encode_part(id, job, &ops).map(Some)),
            false => self.next_part(id, job, part, turn.store),
        };
        match next {
            Ok(Some(part)) => {
                // Data pinned for this part can be released.
                turn.store.release(self.tag(id));
                self.send_part(id, job, part);
                Verdict::Park(Stage::Recovering)
            }
            Ok(None) => {
                let (to, head) = (job.to, job.head.clone());
                self.recovery.drop_push(id);
                self.send_to(to, &Body::NoPull { head });
                Verdict::Done
            }
            Err(Stop::Wait) => Verdict::Park(Stage::Reading),
            Err(Stop::Errno(errno)) => {
                self.push_unreadable(id, job, errno, turn);
                Verdict::Done
            }
        }
    }

    /// Handles the acknowledgement of the last part.
    fn push_done(&mut self, id: u64, job: &PushJob) {
        let (to, head) = (job.to, job.head.clone());
        self.recovery.drop_push(id);
        if job.need.is_none() {
            self.report.count_recovered_object();
            self.env.meter().replication.recovered.add(1);
        }
        // At once: the next plan on the object may write it, and that write must reach the member.
        self.peers.member_got(to, &head);
        self.recovery.pushed.push(head);
    }

    /// Sends a part.
    fn send_part(&mut self, id: u64, job: &mut PushJob, part: (Bytes, Bytes)) {
        job.sent = Some(part.clone());
        if job.last && part.1.len() <= PUSH_SMALL {
            // Lets another object begin meanwhile.
            job.active = None;
            if let Some(p) = self.recovery.pushes.get_mut(&id) {
                p.sent = true;
            }
        }
        self.env.meter().replication.pushed(part.1.len(), job.need.is_none());
        if job.need.is_none() {
            self.report.count_recovered(part.1.len() as u64, std::mem::take(&mut job.keys));
        }
        let (to, urgent) = (job.to, job.urgent || self.recovery.urgent.contains(&job.head));
        let lane = if urgent { Lane::Data } else { Lane::Background(self.recovery_class()) };
        if !self.is_sent_again(to) {
            self.send_on(lane, to, part);
        }
    }

    /// Ends a push whose object cannot be read here, or whose next part fits into no frame of the receiver.
    fn push_unreadable(&mut self, id: u64, job: &PushJob, errno: Errno, turn: &mut Turn<'_>) {
        let (to, head) = (job.to, job.head.clone());
        if errno != E2BIG {
            tracing::error!(pg = %self.env.spg(), object = %head, errno, "object is unreadable here and can't be pushed");
        }
        self.recovery.drop_push(id);
        if job.need.is_some() {
            self.send_to(to, &Body::NoPull { head: head.clone() });
            // An object that backfill has not filled yet counts as absent anyway.
            let filled = head <= self.journal.info().last_backfill;
            if filled && self.peers.is_member() && errno == EIO && !self.recovery.missing.contains_key(&head) {
                // The primary pushes the object here when it has it.
                let need = self.journal.info().last_update;
                self.recovery.lacks([(head.clone(), need)]);
                self.start_work(Work::Recovery(RecoveryWork::Missing(head, Some(need))), None, turn);
            }
        } else if errno == E2BIG {
            self.push_is_too_large(to, &head, turn.out);
        } else {
            self.push_failed(to, &head, errno, turn);
        }
    }

    /// Reads the next part; `None` if this copy does not have the object as needed.
    pub(super) fn next_part(
        &mut self,
        id: u64,
        job: &mut PushJob,
        part: usize,
        store: &mut dyn ObjectStore,
    ) -> Step<Option<(Bytes, Bytes)>> {
        let tag = self.tag(id);
        if let (Some(need), None) = (job.need, &job.objects)
            && !self.has_as_needed(tag, &job.head, need, store)?
        {
            return Ok(None);
        }
        let objects = match &job.objects {
            Some(o) => o.clone(),
            None => self.family(id, &job.head, store)?,
        };
        let (mut at, mut cursor) = (job.at, job.cursor.clone());
        let mut read = PartRead {
            tag,
            cid: self.env.cid(),
            meta: self.meta(),
            head: &job.head,
            max: part,
            keys: &mut job.keys,
            out: PartOps::default(),
        };
        while let Some(oid) = objects.get(at).filter(|_| read.out.bytes < part) {
            cursor = match cursor {
                Cursor::Start => read.start(oid, store)?,
                Cursor::Data(off) => read.data(oid, off, store)?,
                Cursor::Omap(from) => read.omap(oid, from.as_ref(), store)?,
                Cursor::Attrs(from) => read.attrs(oid, from.as_ref(), store)?,
            };
            if cursor == Cursor::Start {
                at += 1;
            }
        }
        let ops = read.out.ops;
        job.last = at >= objects.len();
        let part = self.encode_part(id, job, &ops)?;
        job.objects = Some(objects);
        job.at = at;
        job.cursor = cursor;
        Ok(Some(part))
    }

    /// True if this copy has the object as of version `need` of the log.
    fn has_as_needed(&mut self, tag: Tag, head: &HObject, need: Eversion, store: &mut dyn ObjectStore) -> Step<bool> {
        if need == Eversion::default() {
            // A reverted object is sent in whatever version is here.
            return Ok(true);
        }
        if *head > self.journal.info().last_backfill {
            return self.is_left_at(tag, head, need, store);
        }
        let right = !self.recovery.missing.contains_key(head)
            && (self.peers.is_member() || self.journal.info().last_update >= need);
        if !right || self.peers.is_member() {
            return Ok(right);
        }
        // Entries of this log beyond `need` may be divergent.
        Ok(!self.is_changed_after(tag, head, need, store)?)
    }

    /// True if this copy, which has not been filled up to the object, still has it from before as of version `need`. The
    /// log that told so is gone. But no version is given twice, and all that changes an object leaves its version in the
    /// head, or in the snapdir if there is no head.
    fn is_left_at(&self, tag: Tag, head: &HObject, need: Eversion, store: &mut dyn ObjectStore) -> Step<bool> {
        let cid = self.env.cid();
        let (mut of, mut version) = (head.clone(), whole_version(tag, cid, head, store)?);
        if version.is_none() {
            of = head.at_snap(SnapId::SNAPDIR);
            version = whole_version(tag, cid, &of, store)?;
        }
        let snaps = store.attr(tag, cid, &Oid::new(of), SS_ATTR)?;
        let Ok(snaps) = snaps.map_or(Ok(SnapSet::default()), |a| SnapSet::from_attr(&a)) else {
            return Ok(false);
        };
        for clone in &snaps.clones {
            if whole_version(tag, cid, &head.at_snap(SnapId(clone.id)), store)?.is_none() {
                return Ok(false);
            }
        }
        Ok(version == Some(need))
    }

    /// Encodes the message with a part of an object.
    pub(super) fn encode_part(&self, id: u64, job: &PushJob, ops: &[Op]) -> Step<(Bytes, Bytes)> {
        let frame = self.peers.members().get(&job.to).map_or(u64::MAX, Member::frame);
        if ops.iter().any(|op| least_frame(op) as u64 > frame) {
            return Err(E2BIG.into());
        }
        let mut w = Writer::with_capacity(Features::PACIFIC, 512);
        let mut data = Payload::new(self.features(job.to));
        w.u8(crate::peer::PUSH);
        w.u64(id);
        w.u32(job.n);
        w.bool(job.last);
        w.bool(!job.urgent && !self.recovery.urgent.contains(&job.head));
        w.put(&job.head);
        encode_ops(ops, &mut w, &mut data).ok_or(EIO)?;
        Ok((w.into_bytes(), data.join()))
    }

    /// The unfound objects, with the needed versions. In an erasure-coded PG these include objects whose local shard
    /// exists, if too few other shards are left to rebuild a member's.
    #[must_use]
    pub fn unfound_objects(&self) -> Vec<(HObject, Eversion)> {
        let hopeless = self.recovery.damage.hopeless.iter().filter(|_| self.is_coded());
        self.recovery.unfound.iter().chain(hopeless).map(|h| (h.clone(), self.version_wanted(h))).collect()
    }
}

/// The version of a head or clone; `None` if it is absent, or if a removal or a push that was cut off has left a part.
fn whole_version(tag: Tag, cid: Cid, h: &HObject, store: &mut dyn ObjectStore) -> Step<Option<Eversion>> {
    let oid = Oid::new(h.clone());
    let size = match store.stat(tag, cid, &oid) {
        Err(ReadError::NoObject) => return Ok(None),
        r => r?.size,
    };
    let info = store.attr(tag, cid, &oid, OI_ATTR)?.and_then(|a| ObjectInfo::from_attr(&a).ok());
    Ok(info.filter(|i| i.size == size).map(|i| i.version))
}

/// The changes of one part of a push.
#[derive(Debug, Default)]
pub(super) struct PartOps {
    pub(super) ops: Vec<Op>,
    /// Bytes of data, keys and attributes in these.
    pub(super) bytes: usize,
}

/// Reads a part of a push from the store. Each method reads on from one cursor, and returns the next one.
struct PartRead<'a> {
    tag: Tag,
    cid: Cid,
    /// The PG's own object, with the snapshot index.
    meta: Oid,
    head: &'a HObject,
    /// Bytes at which the part ends.
    max: usize,
    /// Counter of the omap entries read.
    keys: &'a mut u64,
    out: PartOps,
}

impl PartRead<'_> {
    fn start(&mut self, oid: &Oid, store: &mut dyn ObjectStore) -> Step<Cursor> {
        let size = store.stat(self.tag, self.cid, oid)?.size;
        self.out.bytes += 64;
        self.out.ops.push(Op::Touch { cid: self.cid, oid: oid.clone() });
        self.out.ops.push(Op::Truncate { cid: self.cid, oid: oid.clone(), size });
        Ok(Cursor::Data(0))
    }

    fn data(&mut self, oid: &Oid, off: u64, store: &mut dyn ObjectStore) -> Step<Cursor> {
        let (tag, cid) = (self.tag, self.cid);
        let size = store.stat(tag, cid, oid)?.size;
        let len = PUSH_READ.min(self.max as u64).min(size.saturating_sub(off));
        for (o, l) in store.extents(tag, cid, oid, off, len)? {
            let l = l.min(size.saturating_sub(o));
            let data = store.read(tag, cid, oid, o, l)?;
            self.out.bytes += data.len();
            if !data.is_empty() {
                self.out.ops.push(Op::Write { cid, oid: oid.clone(), off: o, data, sums: None });
            }
        }
        Ok(if off + len < size { Cursor::Data(off + len) } else { Cursor::Omap(None) })
    }

    fn omap(&mut self, oid: &Oid, from: Option<&Bytes>, store: &mut dyn ObjectStore) -> Step<Cursor> {
        let (tag, cid) = (self.tag, self.cid);
        if from.is_none() {
            let header = store.omap_header(tag, cid, oid)?;
            if !header.is_empty() {
                self.out.bytes += header.len();
                self.out.ops.push(Op::OmapSetHeader { cid, oid: oid.clone(), header });
            }
        }
        let (key, after) = from.map_or((&b""[..], false), |k| (&k[..], true));
        let page = store.omap_range(tag, cid, oid, key, after, PUSH_OMAP_ENTRIES, self.max)?;
        self.out.bytes += page.entries.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
        let last = page.entries.last().map(|(k, _)| k.clone());
        if !page.entries.is_empty() {
            *self.keys += page.entries.len() as u64;
            self.out.ops.push(Op::OmapSet { cid, oid: oid.clone(), entries: page.entries });
        }
        Ok(if page.more && last.is_some() { Cursor::Omap(last) } else { Cursor::Attrs(None) })
    }

    /// After the last attributes the cursor is at the start of the next object.
    fn attrs(&mut self, oid: &Oid, from: Option<&Bytes>, store: &mut dyn ObjectStore) -> Step<Cursor> {
        let cid = self.cid;
        let all = store.attrs(self.tag, cid, oid)?;
        let mut page = AttrPage::new(all, from, self.max, self.out.bytes == 0);
        self.out.bytes += page.bytes;
        if let Some(last) = page.more {
            if !page.attrs.is_empty() {
                self.out.ops.push(Op::SetAttrs { cid, oid: oid.clone(), attrs: page.attrs });
            }
            // The next attribute has a part of its own.
            self.out.bytes = self.out.bytes.max(self.max);
            return Ok(Cursor::Attrs(last));
        }
        // The own attributes come last, so that an incomplete object has no object info.
        let ss = page.own.iter().find(|(k, _)| k == SS_ATTR);
        let ss = ss.and_then(|(_, v)| SnapSet::from_attr(v).ok()).filter(|s| !s.clones.is_empty());
        if let Some(ss) = ss {
            let entries: Vec<_> = index_keys(self.head, &ss).map(|k| (k, Bytes::new())).collect();
            self.out.bytes += entries.iter().map(|(k, _)| k.len()).sum::<usize>();
            self.out.ops.push(Op::OmapSet { cid, oid: self.meta.clone(), entries });
        }
        page.attrs.append(&mut page.own);
        self.out.ops.push(Op::SetAttrs { cid, oid: oid.clone(), attrs: page.attrs });
        Ok(Cursor::Start)
    }
}

/// Some of an object's attributes, for one part of a push.
#[derive(Debug, Default)]
pub(in crate::pg) struct AttrPage {
    /// Attributes of clients, in the order of their names.
    pub attrs: Vec<(Bytes, Bytes)>,
    /// Bytes of these.
    pub bytes: usize,
    /// Further attributes follow that of this name (`None`: of no name). Otherwise these are the last ones.
    pub more: Option<Option<Bytes>>,
    /// Snapset and object info, in this order.
    pub own: Vec<(Bytes, Bytes)>,
}

impl AttrPage {
    /// The attributes after that of name `from`, up to `max` bytes; `first`: at least one.
    pub(in crate::pg) fn new(all: Vec<(Bytes, Bytes)>, from: Option<&Bytes>, max: usize, first: bool) -> Self {
        let (mut own, mut rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|(k, _)| k == OI_ATTR || k == SS_ATTR);
        // The receiver may set attributes one by one. An object with info is complete, so the info comes last.
        own.sort_unstable_by_key(|(k, _)| k == OI_ATTR);
        rest.retain(|(k, _)| from.is_none_or(|f| k > f));
        rest.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let mut page = Self { own, ..Self::default() };
        for (k, v) in rest {
            let size = k.len() + v.len();
            let begins = first && page.attrs.is_empty();
            if page.bytes + size > max && !begins {
                page.more = Some(page.attrs.last().map(|(k, _)| k.clone()).or_else(|| from.cloned()));
                break;
            }
            page.bytes += size;
            page.attrs.push((k, v));
        }
        page
    }
}

/// Bytes of a log frame that the change takes if its values come one by one.
fn least_frame(op: &Op) -> usize {
    let largest = |all: &[(Bytes, Bytes)]| all.iter().map(|(k, v)| k.len() + v.len()).max().unwrap_or(0);
    match op {
        Op::SetAttrs { attrs: all, .. } | Op::OmapSet { entries: all, .. } => largest(all),
        Op::OmapSetHeader { header, .. } => header.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Epoch, PgId, PoolId};
    use store::Transaction;
    use store::mem::MemStore;

    /// A removal cuts the data of a head or clone, or takes its info away.
    #[test]
    fn a_part_of_an_object_has_no_version() {
        let head = HObject { pool: PoolId(3), oid: "a".into(), ..HObject::min() }.head();
        let clone = head.at_snap(SnapId(4));
        let cid = Cid::Pg(PgId { pool: PoolId(3), seed: 0 }.into());
        let version = Eversion { epoch: Epoch(2), version: 7 };
        let oi = ObjectInfo { version, size: 10, ..ObjectInfo::default() };
        let mut store = MemStore::new();
        let run = |store: &mut MemStore, ops| {
            store.submit(Tag(1), Transaction { ops });
            while store.poll_event().is_some() {}
        };
        run(&mut store, vec![Op::MakeCollection { cid, bits: 0 }]);
        for h in [&head, &clone] {
            let oid = Oid::new(h.clone());
            assert_eq!(whole_version(Tag(2), cid, h, &mut store).unwrap(), None, "absent");
            let data = Bytes::from_static(b"0123456789");
            let attrs = vec![(Bytes::from_static(OI_ATTR), oi.to_attr())];
            let write = Op::Write { cid, oid: oid.clone(), off: 0, data, sums: None };
            run(&mut store, vec![write, Op::SetAttrs { cid, oid: oid.clone(), attrs: attrs.clone() }]);
            assert_eq!(whole_version(Tag(2), cid, h, &mut store).unwrap(), Some(version));
            run(&mut store, vec![Op::Truncate { cid, oid: oid.clone(), size: 4 }]);
            assert_eq!(whole_version(Tag(2), cid, h, &mut store).unwrap(), None, "cut");
            run(
                &mut store,
                vec![
                    Op::Truncate { cid, oid: oid.clone(), size: 10 },
                    Op::RmAttr { cid, oid, name: Bytes::from_static(OI_ATTR) },
                ],
            );
            assert_eq!(whole_version(Tag(2), cid, h, &mut store).unwrap(), None, "without its info");
        }
    }
}
