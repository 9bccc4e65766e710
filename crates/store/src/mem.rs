//! [`MemStore`], a complete [`ObjectStore`] in memory: the executable specification of the interface.
//!
//! `MemStore` serves the tests of the layers above a store, and as the model that the engine is compared with. It is
//! deliberately simple: plain maps, no sharing. [`MemStore::with_waits`] makes reads and `prepare` answer
//! `Wait` at random (from a seed). [`MemStore::hold_durable`] holds `Durable` events until
//! [`MemStore::end_turn`]. So callers meet every order of events that the engine may produce.
//!
//! | module | contents |
//! | --- | --- |
//! | `check` | refusals of the in-memory store: the same as the engine's |
//! | `collection` | a collection of the in-memory store: its objects, its log, and the undo records of the log |
//! | `object` | an object of the in-memory store: its blocks, its attributes and its omap |

mod check;
mod collection;
mod object;

use crate::api::{BLOCK, Event, Health, ObjectStat, ObjectStore, OmapPage, ReadError, Statfs, Tag};
use crate::key::{Cid, Oid};
use crate::layout::{SHARDS, shard_for};
use crate::txn::{Op, Transaction};
use base::Eversion;
use base::errno::{self, Errno};
use base::rng::Rng;
use bytes::Bytes;
use collection::{Collection, Kept};
pub(crate) use object::Object;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Most times that one tag is made to wait.
pub const WAITS_PER_TAG_MAX: u32 = 3;

/// The store in memory; see the module.
#[derive(Clone, Debug)]
pub struct MemStore {
    // Shared until changed, so that a clone of the store (tests keep many states) is cheap.
    colls: BTreeMap<Cid, Arc<Collection>>,
    capacity: u64,
    keys_max: usize,
    waits: Option<Rng>,
    waited: BTreeMap<Tag, u32>,
    waiting: BTreeSet<Tag>,
    hold: bool,
    room: usize,
    no_room_for_logs: bool,
    held: VecDeque<Tag>,
    events: VecDeque<Event>,
    failed: Option<Errno>,
    /// Objects whose omap is unreadable.
    spoiled: BTreeSet<(Cid, Oid)>,
    /// Omap entries that reads have returned, for tests that count the work of a step.
    pub omap_rows: usize,
}

impl Default for MemStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemStore {
    /// An empty store without a size limit.
    #[must_use]
    pub fn new() -> Self {
        Self {
            colls: BTreeMap::new(),
            capacity: u64::MAX,
            keys_max: usize::MAX,
            waits: None,
            waited: BTreeMap::new(),
            waiting: BTreeSet::new(),
            hold: false,
            room: usize::MAX,
            no_room_for_logs: false,
            held: VecDeque::new(),
            events: VecDeque::new(),
            failed: None,
            spoiled: BTreeSet::new(),
            omap_rows: 0,
        }
    }

    /// Makes reads and `prepare` return `Wait` at random, at most [`WAITS_PER_TAG_MAX`] times for each tag.
    #[must_use]
    pub fn with_waits(mut self, seed: u64) -> Self {
        self.waits = Some(Rng::new(seed));
        self
    }

    /// Stops the random waits.
    #[must_use]
    pub fn without_waits(mut self) -> Self {
        self.waits = None;
        self
    }

    /// Sets the capacity. Transactions (writes or splits) that would map more bytes are refused with `ENOSPC`.
    #[must_use]
    pub fn with_capacity(mut self, bytes: u64) -> Self {
        self.capacity = bytes;
        self
    }

    /// Refuses transactions that set or remove more than `n` omap keys with `E2BIG`. The engine bounds their
    /// bytes instead.
    #[must_use]
    pub fn with_keys_max(mut self, n: usize) -> Self {
        self.keys_max = n;
        self
    }

    /// Refuses later transactions with more than `ops` operations for lack of space. Log operations do not
    /// count.
    pub fn set_room(&mut self, ops: usize) {
        self.room = ops;
    }

    /// Refuses later transactions for lack of space also if they only append to logs, or stops to do so.
    pub fn set_no_room_for_logs(&mut self, refuse: bool) {
        self.no_room_for_logs = refuse;
    }

    /// Holds `Durable` events until `end_turn`.
    #[must_use]
    pub fn hold_durable(mut self) -> Self {
        self.hold = true;
        self
    }

    /// Releases the held `Durable` events.
    pub fn end_turn(&mut self) {
        while let Some(t) = self.held.pop_front() {
            self.events.push_back(Event::Durable(t, Ok(())));
        }
    }

    /// Makes every later transaction end with this errno, as on a failed device.
    pub fn fail(&mut self, errno: Errno) {
        self.failed = Some(errno);
        self.events.push_back(Event::Health(Health::Failed { what: "told to".into(), errno }));
    }

    /// Makes the omap of an object unreadable.
    pub fn spoil_omap(&mut self, cid: Cid, oid: &Oid) {
        self.spoiled.insert((cid, oid.clone()));
    }

    /// Removes an object as lost metadata would, for tests of scrub.
    pub fn lose(&mut self, cid: Cid, oid: &Oid) {
        if let Some(c) = self.colls.get_mut(&cid).map(Arc::make_mut) {
            c.objects.remove(oid);
        }
    }

    fn maybe_wait(&mut self, tag: Tag) -> Result<(), ReadError> {
        let Some(rng) = &mut self.waits else { return Ok(()) };
        let n = self.waited.entry(tag).or_insert(0);
        if *n < WAITS_PER_TAG_MAX && rng.chance(1, 3) {
            *n += 1;
            if self.waiting.insert(tag) {
                self.events.push_back(Event::Ready(tag));
            }
            return Err(ReadError::Wait);
        }
        Ok(())
    }

    fn object(&mut self, tag: Tag, cid: Cid, oid: &Oid) -> Result<&Object, ReadError> {
        self.maybe_wait(tag)?;
        self.colls.get(&cid).and_then(|c| c.objects.get(oid)).map(|o| &**o).ok_or(ReadError::NoObject)
    }

    fn collection(&mut self, tag: Tag, cid: Cid) -> Result<&Collection, ReadError> {
        self.maybe_wait(tag)?;
        self.colls.get(&cid).map(|c| &**c).ok_or(ReadError::NoObject)
    }

    fn mapped(&self) -> u64 {
        self.colls.values().flat_map(|c| c.objects.values()).map(|o| o.blocks.len() as u64 * BLOCK).sum()
    }
}

impl MemStore {
    fn split(&mut self, cid: Cid, dst: Cid, first: u32, bits: u32) {
        let Some(c) = self.colls.get_mut(&cid).map(Arc::make_mut) else { return };
        let all = std::mem::take(&mut c.objects);
        let (go, stay) = all.into_iter().partition(|(o, _)| o.hobj.bitwise_key() >= first);
        let (low, high) = c.cut(first);
        let shard = c.shard;
        (c.objects, c.bits, c.ranges) = (stay, bits, low);
        let mut new = Collection { objects: go, ..Collection::new(bits, shard, high) };
        for (version, kept) in std::mem::take(&mut c.kept) {
            let (go, stay) = kept.into_iter().partition(|k| k.hash >= first);
            c.keep(version, stay);
            new.keep(version, go);
        }
        self.colls.insert(dst, Arc::new(new));
    }

    fn merge(&mut self, cid: Cid, dst: Cid, first: u32, bits: u32) {
        let Some(from) = self.colls.remove(&cid) else { return };
        let Some(c) = self.colls.get_mut(&dst).map(Arc::make_mut) else { return };
        c.objects.extend(from.objects.iter().map(|(k, v)| (k.clone(), v.clone())));
        c.bits = bits;
        c.ranges = c.cut(first).0;
        c.ranges.extend(from.cut(first).1);
    }

    /// True if the collection may hold that object, or does not exist.
    #[must_use]
    pub fn fits(&self, cid: Cid, oid: &Oid) -> bool {
        self.colls.get(&cid).is_none_or(|c| c.fits(oid))
    }

    /// True if the collection has no objects and no undo records, or does not exist.
    #[must_use]
    pub fn is_empty(&self, cid: Cid) -> bool {
        self.colls.get(&cid).is_none_or(|c| c.objects.is_empty() && c.kept.is_empty())
    }

    /// Objects of a collection, in order.
    pub(crate) fn objects(&self, cid: Cid) -> impl Iterator<Item = (&Oid, &Object)> {
        self.colls.get(&cid).into_iter().flat_map(|c| c.objects.iter().map(|(k, o)| (k, &**o)))
    }

    /// Versions of a collection that have undo records.
    pub(crate) fn kept_versions(&self, cid: Cid) -> Vec<Eversion> {
        self.colls.get(&cid).map(|c| c.kept.keys().copied().collect()).unwrap_or_default()
    }

    /// Whether each version has undo data of each object.
    pub(crate) fn all_kept(&self, cid: Cid) -> Vec<(Oid, Eversion, bool)> {
        let Some(c) = self.colls.get(&cid) else { return Vec::new() };
        let of = |kept: &[Kept], o: &Object| kept.iter().any(|k| Arc::ptr_eq(&k.id, &o.id));
        let objects = |(v, kept): (&Eversion, &Vec<Kept>)| {
            c.objects.iter().map(|(oid, o)| (oid.clone(), *v, of(kept, o))).collect::<Vec<_>>()
        };
        c.kept.iter().flat_map(objects).collect()
    }

    fn apply(&mut self, op: Op) {
        let cid = op.cid();
        if let Op::MakeCollection { bits, .. } = op {
            self.colls.insert(cid, Arc::new(Collection::new(bits, shard_for(cid, SHARDS), vec![(0, u32::MAX)])));
            return;
        }
        if let Op::MakeBeside { beside, bits, .. } = op {
            let shard = self.colls.get(&beside).map_or(0, |c| c.shard);
            self.colls.insert(cid, Arc::new(Collection::new(bits, shard, vec![(0, u32::MAX)])));
            return;
        }
        match op {
            Op::RemoveCollection { .. } => {
                self.colls.remove(&cid);
                return;
            }
            Op::Split { dst, first, bits, .. } => return self.split(cid, dst, first, bits),
            Op::Merge { dst, first, bits, .. } => return self.merge(cid, dst, first, bits),
            _ => {}
        }
        let Some(c) = self.colls.get_mut(&cid).map(Arc::make_mut) else { return };
        c.apply(op);
    }

    /// Like [`MemStore::apply`], and adds the blocks that the operation replaces in a collection to `kept`.
    fn apply_keeping(&mut self, op: Op, cid: Cid, kept: &mut Vec<Kept>) {
        let ranged = if op.cid() == cid { self.replaces(&op) } else { None };
        let Some((oid, from, to, gone)) = ranged else { return self.apply(op) };
        let before = self.object_of(cid, &oid);
        self.apply(op);
        let Some(after) = self.object_of(cid, &oid) else { return };
        let size = before.as_ref().map_or(0, |o| o.size);
        let at = match kept.iter().position(|k| Arc::ptr_eq(&k.id, &after.id)) {
            Some(at) => at,
            None => {
                let (id, hash) = (after.id.clone(), oid.hobj.bitwise_key());
                kept.push(Kept { id, hash, size, blocks: Vec::new() });
                kept.len() - 1
            }
        };
        let blocks = if from < to { from / BLOCK..to.div_ceil(BLOCK) } else { 0..0 };
        for b in blocks {
            let was = before.as_ref().and_then(|o| o.blocks.get(&b).cloned());
            let whole = gone && b * BLOCK >= from && (b + 1) * BLOCK <= to;
            if whole || was.is_some() || after.blocks.contains_key(&b) {
                kept[at].blocks.push((b, was));
            }
        }
    }

    fn object_of(&self, cid: Cid, oid: &Oid) -> Option<Arc<Object>> {
        self.colls.get(&cid)?.objects.get(oid).cloned()
    }

    /// The object and byte range in which an operation replaces blocks, and whether it makes holes of the whole
    /// blocks in between.
    fn replaces(&self, op: &Op) -> Option<(Oid, u64, u64, bool)> {
        let size = |oid: &Oid| self.object_of(op.cid(), oid).map_or(0, |o| o.size);
        let r = match op {
            Op::Write { oid, off, data, .. } => (oid, *off, off + data.len() as u64, false),
            Op::Zero { oid, off, len, .. } => (oid, *off, off + len, true),
            Op::Truncate { oid, size: to, .. } => {
                let old = size(oid);
                (oid, *to, if *to < old { old.next_multiple_of(BLOCK) } else { *to }, true)
            }
            Op::CloneRange { src, dst, src_off, len, dst_off, .. } => {
                let end = src_off.saturating_add(*len).min(size(src));
                (dst, *dst_off, dst_off + end.saturating_sub(*src_off), true)
            }
            _ => return None,
        };
        let truncates = matches!(op, Op::Truncate { .. });
        (truncates || r.1 < r.2).then(|| (r.0.clone(), r.1, r.2, r.3))
    }
}

impl ObjectStore for MemStore {
    fn collections(&self) -> Vec<(Cid, u32)> {
        self.colls.iter().map(|(c, x)| (*c, x.bits)).collect()
    }

    fn stat(&mut self, tag: Tag, cid: Cid, oid: &Oid) -> Result<ObjectStat, ReadError> {
        Ok(self.object(tag, cid, oid)?.stat())
    }

    fn read(&mut self, tag: Tag, cid: Cid, oid: &Oid, off: u64, len: u64) -> Result<Bytes, ReadError> {
        Ok(self.object(tag, cid, oid)?.read(off, len).into())
    }

    fn extents(&mut self, tag: Tag, cid: Cid, oid: &Oid, off: u64, len: u64) -> Result<Vec<(u64, u64)>, ReadError> {
        Ok(self.object(tag, cid, oid)?.extents(off, len))
    }

    fn attr(&mut self, tag: Tag, cid: Cid, oid: &Oid, name: &[u8]) -> Result<Option<Bytes>, ReadError> {
        Ok(self.object(tag, cid, oid)?.attrs.get(name).cloned())
    }

    fn attrs(&mut self, tag: Tag, cid: Cid, oid: &Oid) -> Result<Vec<(Bytes, Bytes)>, ReadError> {
        Ok(self.object(tag, cid, oid)?.attrs.iter().map(|(k, v)| (k.clone(), v.clone())).collect())
    }

    fn omap_header(&mut self, tag: Tag, cid: Cid, oid: &Oid) -> Result<Bytes, ReadError> {
        Ok(self.object(tag, cid, oid)?.omap_header.clone())
    }

    fn omap_get(&mut self, tag: Tag, cid: Cid, oid: &Oid, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        Ok(self.object(tag, cid, oid)?.omap.get(key).cloned())
    }

    fn omap_range(
        &mut self,
        tag: Tag,
        cid: Cid,
        oid: &Oid,
        from: &[u8],
        after: bool,
        max_entries: usize,
        max_bytes: usize,
    ) -> Result<OmapPage, ReadError> {
        if !self.spoiled.is_empty() && self.spoiled.contains(&(cid, oid.clone())) {
            return Err(ReadError::Io { what: format!("omap of {oid:?}"), errno: base::errno::EIO });
        }
        let o = self.object(tag, cid, oid)?;
        let mut page = OmapPage::default();
        let mut bytes = 0;
        let start = if after { std::ops::Bound::Excluded(from) } else { std::ops::Bound::Included(from) };
        for (k, v) in o.omap.range::<[u8], _>((start, std::ops::Bound::Unbounded)) {
            if page.entries.len() >= max_entries || (bytes >= max_bytes && !page.entries.is_empty()) {
                page.more = true;
                break;
            }
            bytes += k.len() + v.len();
            page.entries.push((k.clone(), v.clone()));
        }
        self.omap_rows += page.entries.len();
        Ok(page)
    }

    fn list(
        &mut self,
        tag: Tag,
        cid: Cid,
        start: &Oid,
        end: Option<&Oid>,
        max: usize,
    ) -> Result<(Vec<Oid>, Option<Oid>), ReadError> {
        let c = self.collection(tag, cid)?;
        let mut out = Vec::new();
        for oid in c.objects.range(start.clone()..).map(|(k, _)| k) {
            if end.is_some_and(|e| oid >= e) {
                break;
            }
            if out.len() >= max {
                return Ok((out, Some(oid.clone())));
            }
            out.push(oid.clone());
        }
        Ok((out, None))
    }

    fn log_entries(&mut self, tag: Tag, cid: Cid, after: Eversion) -> Result<Vec<(Eversion, Bytes)>, ReadError> {
        let c = self.collection(tag, cid)?;
        Ok(c.log.iter().filter(|(v, _)| **v > after).map(|(v, e)| (*v, e.clone())).collect())
    }

    fn kept(&mut self, tag: Tag, cid: Cid, oid: &Oid, version: Eversion) -> Result<bool, ReadError> {
        let id = self.object(tag, cid, oid)?.id.clone();
        let of = self.colls.get(&cid).and_then(|c| c.kept.get(&version));
        Ok(of.is_some_and(|kept| kept.iter().any(|k| Arc::ptr_eq(&k.id, &id))))
    }

    fn pg_info(&mut self, tag: Tag, cid: Cid) -> Result<Option<Bytes>, ReadError> {
        Ok(self.collection(tag, cid)?.info.clone())
    }

    fn prepare(&mut self, tag: Tag, txn: &Transaction) -> Result<(), ReadError> {
        self.check(txn).map_err(|errno| ReadError::Io { what: errno::name(errno).into(), errno })?;
        let records = |o: &&Op| !matches!(o, Op::LogAppend { .. });
        let logs = self.no_room_for_logs && txn.ops.len() > txn.ops.iter().filter(records).count();
        if logs || txn.ops.iter().filter(records).count() > self.room {
            return Err(ReadError::Io { what: "the store is full".into(), errno: errno::ENOSPC });
        }
        self.maybe_wait(tag)
    }

    fn submit(&mut self, tag: Tag, txn: Transaction) {
        self.release(tag);
        if let Err(e) = self.check(&txn) {
            self.events.push_back(Event::Durable(tag, Err(e)));
            return;
        }
        let mut keeping: Option<(Cid, Eversion, Vec<Kept>)> = None;
        for op in txn.ops {
            if let Op::Keep { cid, version } = op {
                keeping = Some((cid, version, Vec::new()));
            } else if let Some((cid, _, kept)) = &mut keeping {
                self.apply_keeping(op, *cid, kept);
            } else {
                self.apply(op);
            }
        }
        if let Some((cid, version, mut kept)) = keeping {
            kept.retain(|k| !k.blocks.is_empty());
            if let Some(c) = self.colls.get_mut(&cid).map(Arc::make_mut) {
                c.keep(version, kept);
            }
        }
        if self.hold {
            self.held.push_back(tag);
        } else {
            self.events.push_back(Event::Durable(tag, Ok(())));
        }
    }

    fn release(&mut self, tag: Tag) {
        self.waited.remove(&tag);
        if self.waiting.remove(&tag) {
            self.events.retain(|e| *e != Event::Ready(tag));
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        let e = self.events.pop_front()?;
        if let Event::Ready(t) = &e {
            self.waiting.remove(t);
        }
        Some(e)
    }

    fn statfs(&self) -> Statfs {
        let all = || self.colls.values().flat_map(|c| c.objects.values());
        let allocated = self.mapped();
        let total = if self.capacity == u64::MAX { 1 << 40 } else { self.capacity };
        Statfs {
            total,
            available: total.saturating_sub(allocated),
            allocated,
            stored: all().map(|o| o.stored()).sum(),
            omap: all().map(|o| o.omap_bytes()).sum(),
            metadata: 0,
        }
    }

    fn beside(&self, a: Cid, b: Cid) -> bool {
        self.colls.get(&a).zip(self.colls.get(&b)).is_some_and(|(a, b)| a.shard == b.shard)
    }

    fn collection_usage(&self, cid: Cid) -> (u64, u64, u64) {
        let Some(c) = self.colls.get(&cid) else { return (0, 0, 0) };
        let stored = c.objects.values().map(|o| o.stored()).sum();
        (c.objects.len() as u64, stored, c.objects.values().map(|o| o.omap_bytes()).sum())
    }
}

#[cfg(test)]
mod tests;
