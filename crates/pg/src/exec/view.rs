//! One object in the view of an operation vector: its state in the store, and the changes collected so far.
//!
//! Data, attributes and omap are read as they were before the vector, whatever its earlier operations write. Clients
//! of Ceph rely on that: radosgw removes and creates an object, then compares the version it had. Existence, size and
//! the rest of the object info follow the vector; they are in [`super::OpCtx`].
//!
//! Invariants:
//!  1. Changes reach the store only after the whole vector has succeeded, so all reads see the state before it.
//!  2. Planning again after a `Wait` collects the same changes.
//!
//! Tests: `tests/semantics.rs` (`a_vector_reads_the_state_before_it`), `tests/model.rs`.

use crate::object::Intervals;
use crate::pg::ShardReads;
use base::Summed;
use base::errno::{EIO, ENODATA, ENOENT, ENOSPC, Errno};
use base::sizes::{BODY_TARGET, VECTOR_BYTES_MAX, VECTOR_ENTRIES_MAX, VECTOR_METADATA_MAX, VECTOR_PAYLOAD_MAX};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Cid, ObjectStore, Oid, Op, ReadError, Tag};

/// Reason for which planning stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A read is in flight; the vector is planned again when it is done.
    Wait,
    /// The operation fails.
    Errno(Errno),
}

/// Result of a planning step.
pub(crate) type Step<T> = Result<T, Stop>;

impl From<Errno> for Stop {
    fn from(e: Errno) -> Self {
        Self::Errno(e)
    }
}

impl From<ReadError> for Stop {
    fn from(e: ReadError) -> Self {
        match e {
            ReadError::Wait => Self::Wait,
            ReadError::NoObject => Self::Errno(ENOENT),
            ReadError::Io { what, errno } => {
                // A full store fails many clients' operations; the monitor's health check reports it.
                if errno != ENOSPC {
                    tracing::error!(%what, errno, "store read failed");
                }
                Self::Errno(errno)
            }
        }
    }
}

/// Most omap entries per store read.
const OMAP_PAGE: usize = 256;
/// Most omap bytes per store read.
const OMAP_PAGE_BYTES: usize = 1 << 20;

/// Capacity for the changes of most vectors, including attributes, log and info.
const OPS: usize = 6;

/// Sizes of the collected changes, by the table of sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Bytes of object data.
    pub payload: usize,
    /// Bytes of attributes and omap: names, keys, values, headers.
    pub metadata: usize,
    /// Number of attributes and omap keys.
    pub entries: usize,
}

impl Sums {
    /// True if a vector may have changes of these sizes.
    #[must_use]
    pub(crate) fn is_legal(self) -> bool {
        self.payload <= VECTOR_PAYLOAD_MAX
            && self.metadata <= VECTOR_METADATA_MAX
            && self.entries <= VECTOR_ENTRIES_MAX
            && self.payload + self.metadata.saturating_sub(BODY_TARGET) <= VECTOR_BYTES_MAX
    }
}

/// True if a vector may write `bytes` of object data alone.
#[must_use]
pub(crate) fn takes_payload(bytes: usize) -> bool {
    Sums { payload: bytes, ..Sums::default() }.is_legal()
}

/// The changes collected at some point.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    ops: usize,
    /// Entries of the last change, which later ones may join.
    last: usize,
    sums: Sums,
    cleared: u32,
}

/// One object in the view of a vector; see the module.
pub(crate) struct View<'a> {
    store: &'a mut dyn ObjectStore,
    tag: Tag,
    cid: Cid,
    /// The object that is written.
    target: Oid,
    /// The object that is read; `None` if there is none.
    base: Option<Oid>,
    /// The collected changes.
    pub ops: Vec<Op>,
    /// Their sizes.
    pub sums: Sums,
    /// Number of times that collected changes were dropped.
    cleared: u32,
    /// A read of the object failed with `EIO`.
    pub damaged: bool,
    /// In an erasure-coded pool: the reader of shards, and the size of the object that is read.
    shards: Option<(&'a mut ShardReads, u64)>,
    /// Checksums of the request's data.
    request: Option<Arc<Summed>>,
}

impl<'a> View<'a> {
    /// A view that reads `base` and writes `target`.
    pub(crate) fn new(store: &'a mut dyn ObjectStore, tag: Tag, cid: Cid, target: Oid, base: Option<Oid>) -> Self {
        Self {
            store,
            tag,
            cid,
            target,
            base,
            ops: Vec::new(),
            sums: Sums::default(),
            cleared: 0,
            damaged: false,
            shards: None,
            request: None,
        }
    }

    /// Writes slices of a request's data, whose checksums are known.
    pub(crate) fn of_request(mut self, sums: Option<Arc<Summed>>) -> Self {
        self.request = sums;
        self
    }

    /// Reads data through `reads`, from shards; the object that is read has `size` bytes.
    pub(crate) fn of_shards(mut self, reads: Option<&'a mut ShardReads>, size: u64) -> Self {
        self.shards = reads.map(|r| (r, size));
        self
    }

    fn push(&mut self, op: Op) {
        if self.ops.is_empty() {
            self.ops.reserve(OPS);
        }
        self.ops.push(op);
    }

    /// Counts `entries` of metadata with these bytes.
    fn count(&mut self, entries: usize, bytes: usize) {
        self.sums.entries += entries;
        self.sums.metadata += bytes;
    }

    /// The present changes.
    pub(super) fn mark(&self) -> Mark {
        let last = match self.ops.last() {
            Some(Op::SetAttrs { attrs: v, .. } | Op::OmapSet { entries: v, .. }) => v.len(),
            Some(Op::OmapRmKeys { keys, .. }) => keys.len(),
            _ => 0,
        };
        Mark { ops: self.ops.len(), last, sums: self.sums, cleared: self.cleared }
    }

    /// Drops the changes after `m`; false if earlier ones are gone, too.
    pub(super) fn rewind(&mut self, m: &Mark) -> bool {
        if self.cleared != m.cleared {
            return false;
        }
        self.ops.truncate(m.ops);
        match self.ops.last_mut() {
            Some(Op::SetAttrs { attrs: v, .. } | Op::OmapSet { entries: v, .. }) => v.truncate(m.last),
            Some(Op::OmapRmKeys { keys, .. }) => keys.truncate(m.last),
            _ => {}
        }
        self.sums = m.sums;
        true
    }

    /// True if `bytes` more of object data would be legal.
    #[must_use]
    pub(super) fn takes_payload(&self, bytes: usize) -> bool {
        Sums { payload: self.sums.payload.saturating_add(bytes), ..self.sums }.is_legal()
    }

    /// The store, for reads of other objects.
    pub(crate) fn store(&mut self) -> (&mut dyn ObjectStore, Tag, Cid) {
        (&mut *self.store, self.tag, self.cid)
    }

    /// The object that is written.
    #[must_use]
    pub(crate) fn target(&self) -> &Oid {
        &self.target
    }

    /// Converts a store result, and notes if the object can't be read.
    fn seen<T>(&mut self, r: Result<T, ReadError>) -> Step<T> {
        self.damaged |= matches!(r, Err(ReadError::Io { errno: EIO, .. }));
        Ok(r?)
    }

    // -- data --

    /// Data in `[off, off + len)`, cut at `size`, the object's size in the vector so far. The bytes are those before
    /// the vector, so they may be fewer. An empty range does not touch the store.
    ///
    /// # Errors
    ///
    /// `ENOENT` if there was no object.
    pub(crate) fn read(&mut self, off: u64, len: u64, size: u64) -> Step<Bytes> {
        self.read_summed(off, len, size).map(|(b, _)| b)
    }

    /// Like [`Self::read`], with the crc32c of the data where the store knows it.
    pub(crate) fn read_summed(&mut self, off: u64, len: u64, size: u64) -> Step<(Bytes, Option<u32>)> {
        let len = len.min(size.saturating_sub(off));
        if len == 0 {
            return Ok((Bytes::new(), None));
        }
        let base = self.base.as_ref().ok_or(ENOENT)?;
        if let Some((reads, had)) = &mut self.shards {
            let r = reads.object(self.tag, self.cid, base, *had, off..off + len, self.store);
            return r.map(|b| (b, None));
        }
        let r = self.store.read_summed(self.tag, self.cid, base, off, len);
        self.seen(r)
    }

    /// Ranges within `[off, off + len)` that hold data.
    pub(crate) fn extents(&mut self, off: u64, len: u64, size: u64) -> Step<Intervals> {
        let base = self.base.as_ref().ok_or(ENOENT)?;
        let len = len.min(size.saturating_sub(off));
        let mut set = Intervals::default();
        if let Some((_, had)) = &self.shards {
            // A shard does not know the holes of the object: it is one extent, as in Ceph.
            let len = len.min(had.saturating_sub(off));
            return Ok(if len > 0 { Intervals::one(off, len) } else { set });
        }
        if len > 0 {
            for (o, l) in self.store.extents(self.tag, self.cid, base, off, len)? {
                set.insert(o, l);
            }
        }
        Ok(set.intersection(&Intervals::one(off, len)))
    }

    /// Creates the object if absent.
    pub(crate) fn touch(&mut self) {
        self.push(Op::Touch { cid: self.cid, oid: self.target.clone() });
    }

    /// Writes `data` at `off`.
    pub(crate) fn write(&mut self, off: u64, data: Bytes) {
        self.sums.payload += data.len();
        let sums = self.request.as_ref().filter(|s| s.has(&data)).cloned();
        self.push(Op::Write { cid: self.cid, oid: self.target.clone(), off, data, sums });
    }

    /// Zeroes a range within the object.
    pub(crate) fn zero(&mut self, off: u64, len: u64) {
        self.push(Op::Zero { cid: self.cid, oid: self.target.clone(), off, len });
    }

    /// Sets the size.
    pub(crate) fn truncate(&mut self, size: u64) {
        self.push(Op::Truncate { cid: self.cid, oid: self.target.clone(), size });
    }

    /// Removes the object. If it did not exist before the vector, its collected changes are dropped.
    pub(crate) fn remove(&mut self) {
        if self.base.is_none() {
            self.ops.clear();
            (self.sums, self.cleared) = (Sums::default(), self.cleared + 1);
            return;
        }
        self.push(Op::Remove { cid: self.cid, oid: self.target.clone() });
    }

    /// Makes the object a clone of `src`, which the vector does not change.
    pub(crate) fn clone_from(&mut self, src: Oid) {
        self.push(Op::Clone { cid: self.cid, src, dst: self.target.clone() });
    }

    // -- attributes, by stored name --

    /// An attribute.
    ///
    /// # Errors
    ///
    /// `ENOENT` if there was no object, `ENODATA` if it lacks the attribute.
    pub(crate) fn attr(&mut self, name: &[u8]) -> Step<Bytes> {
        let base = self.base.as_ref().ok_or(ENOENT)?;
        let r = self.store.attr(self.tag, self.cid, base, name);
        self.seen(r)?.ok_or(ENODATA.into())
    }

    /// All attributes in name order.
    pub(crate) fn attrs(&mut self) -> Step<BTreeMap<Bytes, Bytes>> {
        let base = self.base.as_ref().ok_or(ENOENT)?;
        let r = self.store.attrs(self.tag, self.cid, base);
        Ok(self.seen(r)?.into_iter().collect())
    }

    /// Names of all attributes after the collected changes, with the lengths of their values.
    pub(crate) fn attrs_after(&mut self) -> Step<BTreeMap<Bytes, usize>> {
        let mut all: BTreeMap<Bytes, usize> = match self.base {
            Some(_) => self.attrs()?.into_iter().map(|(k, v)| (k, v.len())).collect(),
            None => BTreeMap::new(),
        };
        for op in &self.ops {
            match op {
                Op::SetAttrs { attrs, .. } => all.extend(attrs.iter().map(|(k, v)| (k.clone(), v.len()))),
                Op::RmAttr { name, .. } => {
                    all.remove(name);
                }
                Op::RmAttrs { .. } | Op::Remove { .. } => all.clear(),
                _ => {}
            }
        }
        Ok(all)
    }

    /// Sets an attribute.
    pub(crate) fn set_attr(&mut self, name: Bytes, value: Bytes) {
        self.count(1, name.len() + value.len());
        // Attributes set in succession become one change.
        if let Some(Op::SetAttrs { attrs, .. }) = self.ops.last_mut() {
            attrs.push((name, value));
            return;
        }
        self.push(Op::SetAttrs { cid: self.cid, oid: self.target.clone(), attrs: vec![(name, value)] });
    }

    /// Removes an attribute.
    pub(crate) fn rm_attr(&mut self, name: Bytes) {
        self.count(1, name.len());
        self.push(Op::RmAttr { cid: self.cid, oid: self.target.clone(), name });
    }

    // -- omap --

    /// True if there was an object before the vector.
    #[must_use]
    pub(crate) fn has_base(&self) -> bool {
        self.base.is_some()
    }

    /// The omap header; empty without object.
    pub(crate) fn omap_header(&mut self) -> Step<Bytes> {
        match &self.base {
            Some(base) => {
                let r = self.store.omap_header(self.tag, self.cid, base);
                self.seen(r)
            }
            None => Ok(Bytes::new()),
        }
    }

    /// The value of one omap key.
    pub(crate) fn omap_get(&mut self, key: &[u8]) -> Step<Option<Bytes>> {
        match &self.base {
            Some(base) => {
                let r = self.store.omap_get(self.tag, self.cid, base, key);
                self.seen(r)
            }
            None => Ok(None),
        }
    }

    /// Entries with keys after `after` that begin with `prefix`, and whether more follow. The page has at most
    /// `max_entries` and about `max_bytes`.
    pub(crate) fn omap_list(
        &mut self,
        after: &[u8],
        prefix: &[u8],
        max_entries: usize,
        max_bytes: usize,
    ) -> Step<(Vec<(Bytes, Bytes)>, bool)> {
        let (mut from, mut exclusive) = if prefix > after {
            (Bytes::copy_from_slice(prefix), false)
        } else {
            (Bytes::copy_from_slice(after), true)
        };
        let mut out: Vec<(Bytes, Bytes)> = Vec::new();
        let mut bytes = 0;
        let Some(base) = self.base.clone() else { return Ok((out, false)) };
        loop {
            // One entry more than wanted shows whether more follow.
            let want = (max_entries - out.len()).saturating_add(1).min(OMAP_PAGE);
            let page = self.store.omap_range(self.tag, self.cid, &base, &from, exclusive, want, OMAP_PAGE_BYTES);
            let page = self.seen(page)?;
            let Some((last, _)) = page.entries.last() else { return Ok((out, false)) };
            (from, exclusive) = (last.clone(), true);
            for (k, v) in page.entries {
                if !k.starts_with(prefix) {
                    return Ok((out, false));
                }
                if out.len() >= max_entries || bytes >= max_bytes {
                    return Ok((out, true));
                }
                bytes += k.len() + v.len();
                out.push((k, v));
            }
            if !page.more {
                return Ok((out, false));
            }
        }
    }

    /// Sets entries.
    pub(crate) fn omap_set(&mut self, mut entries: Vec<(Bytes, Bytes)>) {
        self.count(entries.len(), entries.iter().map(|(k, v)| k.len() + v.len()).sum());
        // A class may set thousands of entries one by one; they become one change.
        if let Some(Op::OmapSet { entries: all, .. }) = self.ops.last_mut() {
            all.append(&mut entries);
            return;
        }
        self.push(Op::OmapSet { cid: self.cid, oid: self.target.clone(), entries });
    }

    /// Removes keys.
    pub(crate) fn omap_rm(&mut self, mut keys: Vec<Bytes>) {
        self.count(keys.len(), keys.iter().map(Bytes::len).sum());
        if let Some(Op::OmapRmKeys { keys: all, .. }) = self.ops.last_mut() {
            all.append(&mut keys);
            return;
        }
        self.push(Op::OmapRmKeys { cid: self.cid, oid: self.target.clone(), keys });
    }

    /// Removes keys in `[first, last)`.
    pub(crate) fn omap_rm_range(&mut self, first: Bytes, last: Bytes) {
        if first >= last {
            return;
        }
        self.count(1, first.len() + last.len());
        self.push(Op::OmapRmRange { cid: self.cid, oid: self.target.clone(), first, last });
    }

    /// Removes all keys and the header.
    pub(crate) fn omap_clear(&mut self) {
        self.push(Op::OmapClear { cid: self.cid, oid: self.target.clone() });
    }

    /// Sets the header.
    pub(crate) fn omap_set_header(&mut self, header: Bytes) {
        self.count(1, header.len());
        self.push(Op::OmapSetHeader { cid: self.cid, oid: self.target.clone(), header });
    }
}
