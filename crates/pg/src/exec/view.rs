//! One object as an operation vector sees it: what the store holds, under what the vector has written so far.
//!
//! Writes are collected as store changes in order and, if anything may read them later in the vector, remembered for
//! reading back. Nothing reaches the store before the whole vector has succeeded.
//!
//! Invariants:
//!  1. Reading through the view equals reading after the collected changes were applied.
//!  2. Planning again after a `Wait` collects the same changes.

use crate::object::Intervals;
use base::errno::{ENODATA, ENOENT, ENOSPC, Errno};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use std::ops::Bound;
use store::{Cid, ObjectStore, Oid, Op, ReadError, Tag};

/// Why planning stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The store reads; plan again when it is ready.
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
                // A full store answers many clients so; the monitor's health check is what tells the operator.
                if errno != ENOSPC {
                    tracing::error!(%what, errno, "store read failed");
                }
                Self::Errno(errno)
            }
        }
    }
}

#[derive(Clone, Debug)]
enum DataChange {
    Write { off: u64, data: Bytes },
    Zero { off: u64, len: u64 },
    Truncate { size: u64 },
}

/// Omap entries read from the store at once while merging.
const OMAP_PAGE: usize = 256;
/// Bytes of them.
const OMAP_PAGE_BYTES: usize = 1 << 20;

/// See the module.
pub(crate) struct View<'a> {
    store: &'a mut dyn ObjectStore,
    tag: Tag,
    cid: Cid,
    /// What is written.
    target: Oid,
    /// What unwritten state is read from, `None` if there is nothing.
    base: Option<Oid>,
    /// Something later in the vector may read what was written.
    track: bool,
    data: Vec<DataChange>,
    attrs: BTreeMap<Bytes, Option<Bytes>>,
    omap: BTreeMap<Bytes, Option<Bytes>>,
    omap_removed: Vec<(Bytes, Bytes)>,
    omap_cleared: bool,
    header: Option<Bytes>,
    /// The collected changes.
    pub ops: Vec<Op>,
}

impl<'a> View<'a> {
    /// A view that reads `base` and writes `target`.
    pub(crate) fn new(
        store: &'a mut dyn ObjectStore,
        tag: Tag,
        cid: Cid,
        target: Oid,
        base: Option<Oid>,
        track: bool,
    ) -> Self {
        Self {
            store,
            tag,
            cid,
            target,
            base,
            track,
            data: Vec::new(),
            attrs: BTreeMap::new(),
            omap: BTreeMap::new(),
            omap_removed: Vec::new(),
            omap_cleared: false,
            header: None,
            ops: Vec::new(),
        }
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

    // -- data --

    /// Data of `[off, off + len)` of an object of `size` bytes now.
    pub(crate) fn read(&mut self, off: u64, len: u64, size: u64) -> Step<Bytes> {
        let len = len.min(size.saturating_sub(off));
        if len == 0 {
            return Ok(Bytes::new());
        }
        let stored = match &self.base {
            Some(base) => self.store.read(self.tag, self.cid, base, off, len)?,
            None => Bytes::new(),
        };
        if self.data.is_empty() && stored.len() as u64 == len {
            return Ok(stored);
        }
        let mut buf = BytesMut::with_capacity(len as usize);
        buf.extend_from_slice(&stored);
        buf.resize(len as usize, 0);
        let end = off + len;
        for c in &self.data {
            let (from, to, src) = match c {
                DataChange::Write { off: o, data } => (*o, o.saturating_add(data.len() as u64), Some((*o, data))),
                DataChange::Zero { off: o, len } => (*o, o.saturating_add(*len), None),
                DataChange::Truncate { size } => (*size, u64::MAX, None),
            };
            let (lo, hi) = (from.max(off), to.min(end));
            if lo >= hi {
                continue;
            }
            let Some(dst) = buf.get_mut((lo - off) as usize..(hi - off) as usize) else { continue };
            match src.and_then(|(o, d)| d.get((lo - o) as usize..(hi - o) as usize)) {
                Some(s) => dst.copy_from_slice(s),
                None => dst.fill(0),
            }
        }
        Ok(buf.freeze())
    }

    /// Ranges within `[off, off + len)` that hold data.
    pub(crate) fn extents(&mut self, off: u64, len: u64, size: u64) -> Step<Intervals> {
        let len = len.min(size.saturating_sub(off));
        let mut set = Intervals::default();
        if len == 0 {
            return Ok(set);
        }
        if let Some(base) = &self.base {
            for (o, l) in self.store.extents(self.tag, self.cid, base, off, len)? {
                set.insert(o, l);
            }
        }
        for c in &self.data {
            match c {
                DataChange::Write { off, data } => set.insert(*off, data.len() as u64),
                DataChange::Zero { off, len } => set.remove(*off, *len),
                DataChange::Truncate { size } => set.remove(*size, u64::MAX - *size),
            }
        }
        Ok(set.intersection(&Intervals::one(off, len)))
    }

    fn change(&mut self, c: DataChange) {
        if self.track {
            self.data.push(c);
        }
    }

    /// Creates the object if absent.
    pub(crate) fn touch(&mut self) {
        self.ops.push(Op::Touch { cid: self.cid, oid: self.target.clone() });
    }

    /// Writes.
    pub(crate) fn write(&mut self, off: u64, data: Bytes) {
        self.change(DataChange::Write { off, data: data.clone() });
        self.ops.push(Op::Write { cid: self.cid, oid: self.target.clone(), off, data });
    }

    /// Zeroes a range within the object.
    pub(crate) fn zero(&mut self, off: u64, len: u64) {
        self.change(DataChange::Zero { off, len });
        self.ops.push(Op::Zero { cid: self.cid, oid: self.target.clone(), off, len });
    }

    /// Sets the size.
    pub(crate) fn truncate(&mut self, size: u64) {
        self.change(DataChange::Truncate { size });
        self.ops.push(Op::Truncate { cid: self.cid, oid: self.target.clone(), size });
    }

    fn reset(&mut self, base: Option<Oid>) {
        self.base = base;
        self.data.clear();
        self.attrs.clear();
        self.omap.clear();
        self.omap_removed.clear();
        self.omap_cleared = false;
        self.header = None;
    }

    /// Removes the object.
    pub(crate) fn remove(&mut self) {
        self.reset(None);
        self.ops.push(Op::Remove { cid: self.cid, oid: self.target.clone() });
    }

    /// Makes the object a copy of `src`, which the vector does not write.
    pub(crate) fn clone_from(&mut self, src: Oid) {
        self.ops.push(Op::Clone { cid: self.cid, src: src.clone(), dst: self.target.clone() });
        self.reset(Some(src));
    }

    // -- attributes, by stored name --

    /// An attribute, `ENODATA` if absent.
    pub(crate) fn attr(&mut self, name: &[u8]) -> Step<Bytes> {
        match self.attrs.get(name) {
            Some(Some(v)) => return Ok(v.clone()),
            Some(None) => return Err(ENODATA.into()),
            None => {}
        }
        match &self.base {
            Some(base) => self.store.attr(self.tag, self.cid, base, name)?.ok_or(ENODATA.into()),
            None => Err(ENODATA.into()),
        }
    }

    /// All attributes in name order.
    pub(crate) fn attrs(&mut self) -> Step<BTreeMap<Bytes, Bytes>> {
        let mut all = BTreeMap::new();
        if let Some(base) = &self.base {
            all.extend(self.store.attrs(self.tag, self.cid, base)?);
        }
        for (k, v) in &self.attrs {
            match v {
                Some(v) => all.insert(k.clone(), v.clone()),
                None => all.remove(k),
            };
        }
        Ok(all)
    }

    /// Sets an attribute.
    pub(crate) fn set_attr(&mut self, name: Bytes, value: Bytes) {
        if self.track {
            self.attrs.insert(name.clone(), Some(value.clone()));
        }
        // Attributes of consecutive operations travel as one change.
        if let Some(Op::SetAttrs { attrs, .. }) = self.ops.last_mut() {
            attrs.push((name, value));
            return;
        }
        self.ops.push(Op::SetAttrs { cid: self.cid, oid: self.target.clone(), attrs: vec![(name, value)] });
    }

    /// Removes an attribute.
    pub(crate) fn rm_attr(&mut self, name: Bytes) {
        if self.track {
            self.attrs.insert(name.clone(), None);
        }
        self.ops.push(Op::RmAttr { cid: self.cid, oid: self.target.clone(), name });
    }

    // -- omap --

    /// The header.
    pub(crate) fn omap_header(&mut self) -> Step<Bytes> {
        if let Some(h) = &self.header {
            return Ok(h.clone());
        }
        match (&self.base, self.omap_cleared) {
            (Some(base), false) => Ok(self.store.omap_header(self.tag, self.cid, base)?),
            _ => Ok(Bytes::new()),
        }
    }

    fn base_key_removed(&self, key: &[u8]) -> bool {
        self.omap_cleared || self.omap_removed.iter().any(|(a, b)| key >= &a[..] && key < &b[..])
    }

    /// One value.
    pub(crate) fn omap_get(&mut self, key: &[u8]) -> Step<Option<Bytes>> {
        if let Some(v) = self.omap.get(key) {
            return Ok(v.clone());
        }
        if self.base_key_removed(key) {
            return Ok(None);
        }
        match &self.base {
            Some(base) => Ok(self.store.omap_get(self.tag, self.cid, base, key)?),
            None => Ok(None),
        }
    }

    /// Entries with keys after `after` that begin with `prefix`, at most `max_entries` and about `max_bytes`, and
    /// whether more follow.
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
        let mut written: Vec<(Bytes, Option<Bytes>)> = {
            let lower = if exclusive { Bound::Excluded(&from[..]) } else { Bound::Included(&from[..]) };
            self.omap.range::<[u8], _>((lower, Bound::Unbounded)).map(|(k, v)| (k.clone(), v.clone())).collect()
        };
        written.reverse(); // taken from the end
        let mut base_more = self.base.is_some() && !self.omap_cleared;
        loop {
            let page = if base_more {
                let want = (max_entries - out.len()).saturating_add(1).min(OMAP_PAGE);
                let Some(base) = &self.base else { break };
                self.store.omap_range(self.tag, self.cid, base, &from, exclusive, want, OMAP_PAGE_BYTES)?
            } else {
                store::api::OmapPage::default()
            };
            base_more = page.more;
            if let Some((k, _)) = page.entries.last() {
                from = k.clone();
                exclusive = true;
            } else {
                base_more = false;
            }
            let mut entries = page.entries.into_iter().peekable();
            loop {
                // The next key of either side; written entries win over stored ones of the same key.
                let take_written = match (entries.peek(), written.last()) {
                    (Some((b, _)), Some((w, _))) => {
                        if w == b {
                            entries.next();
                            true
                        } else {
                            w < b
                        }
                    }
                    (None, Some(_)) => !base_more,
                    (Some(_), None) => false,
                    (None, None) => break,
                };
                let (k, v) = if take_written {
                    match written.pop() {
                        Some((k, Some(v))) => (k, v),
                        _ => continue,
                    }
                } else {
                    match entries.next() {
                        Some((k, _)) if self.base_key_removed(&k) => continue,
                        Some(e) => e,
                        None => break, // the next page decides
                    }
                };
                if !k.starts_with(prefix) {
                    return Ok((out, false));
                }
                if out.len() >= max_entries || bytes >= max_bytes {
                    return Ok((out, true));
                }
                bytes += k.len() + v.len();
                out.push((k, v));
            }
            if !base_more {
                break;
            }
        }
        Ok((out, false))
    }

    /// Sets entries.
    pub(crate) fn omap_set(&mut self, entries: Vec<(Bytes, Bytes)>) {
        if self.track {
            for (k, v) in &entries {
                self.omap.insert(k.clone(), Some(v.clone()));
            }
        }
        self.ops.push(Op::OmapSet { cid: self.cid, oid: self.target.clone(), entries });
    }

    /// Removes keys.
    pub(crate) fn omap_rm(&mut self, keys: Vec<Bytes>) {
        if self.track {
            for k in &keys {
                self.omap.insert(k.clone(), None);
            }
        }
        self.ops.push(Op::OmapRmKeys { cid: self.cid, oid: self.target.clone(), keys });
    }

    /// Removes keys in `[first, last)`.
    pub(crate) fn omap_rm_range(&mut self, first: Bytes, last: Bytes) {
        if first >= last {
            return;
        }
        if self.track {
            for (_, v) in self.omap.range_mut::<[u8], _>((Bound::Included(&first[..]), Bound::Excluded(&last[..]))) {
                *v = None;
            }
            self.omap_removed.push((first.clone(), last.clone()));
        }
        self.ops.push(Op::OmapRmRange { cid: self.cid, oid: self.target.clone(), first, last });
    }

    /// Removes all keys and the header.
    pub(crate) fn omap_clear(&mut self) {
        self.omap.clear();
        self.omap_removed.clear();
        self.omap_cleared = true;
        self.header = Some(Bytes::new());
        self.ops.push(Op::OmapClear { cid: self.cid, oid: self.target.clone() });
    }

    /// Sets the header.
    pub(crate) fn omap_set_header(&mut self, header: Bytes) {
        if self.track {
            self.header = Some(header.clone());
        }
        self.ops.push(Op::OmapSetHeader { cid: self.cid, oid: self.target.clone(), header });
    }
}
