//! Omaps: inline in the onode while small, else in leaves of the tree.
//!
//! Deleting a range drops whole leaves by their pointers, unread; there are no tombstones.

use super::Meta;
use super::key::{self, Key};
use super::leaf::Leaf;
use super::page::{Body, Sum};
use super::scan::{Ahead, Leaves, Span};
use super::tree::{NONE, Seek};
use crate::codec::{Get, Malformed, Put};
use crate::txn::Op;
use base::planted::{Bug, acts};
use bytes::Bytes;
use std::ops::Range;

/// Largest inline omap, in bytes of keys and values.
pub(crate) const INLINE_BYTES_MAX: usize = 2048;
/// Largest [`Leaf::size`] before a leaf is split.
pub(crate) const PAGE_BYTES_MAX: usize = 12 << 10;
/// Bytes of memory of an onode's entry besides key and value.
const ENTRY_BYTES: usize = 64;
/// Upper bound on the bytes of an omap on any device.
const BYTES_MAX: u64 = 1 << 52;

/// Key and value in one allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyVal {
    buf: Bytes,
    klen: u32,
}

impl KeyVal {
    pub(crate) fn new(k: &[u8], v: &[u8]) -> Self {
        let mut b = Vec::with_capacity(k.len() + v.len());
        b.extend_from_slice(k);
        b.extend_from_slice(v);
        Self { buf: b.into(), klen: k.len() as u32 }
    }
    pub(crate) fn key(&self) -> &[u8] {
        self.buf.get(..self.klen as usize).unwrap_or_default()
    }
    pub(crate) fn key_bytes(&self) -> Bytes {
        self.buf.slice(..self.klen as usize)
    }
    pub(crate) fn value_bytes(&self) -> Bytes {
        self.buf.slice(self.klen as usize..)
    }
    pub(super) fn pair(&self) -> (&[u8], &[u8]) {
        self.buf.split_at_checked(self.klen as usize).unwrap_or_default()
    }
    fn len(&self) -> usize {
        self.buf.len()
    }
    /// Estimate of its memory in bytes.
    pub(crate) fn mem(&self) -> usize {
        self.buf.len() + ENTRY_BYTES
    }
}

/// An entry during a scan: of an onode or of a leaf.
pub(crate) enum Entry<'a> {
    Onode(&'a KeyVal),
    Leaf(&'a [u8], &'a [u8]),
}

impl Entry<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Onode(kv) => kv.len(),
            Self::Leaf(k, v) => k.len() + v.len(),
        }
    }

    /// Copies of key and value.
    pub(crate) fn pair(&self) -> (Bytes, Bytes) {
        let of = |kv: &KeyVal| (kv.key_bytes(), kv.value_bytes());
        match self {
            Self::Onode(kv) => of(kv),
            Self::Leaf(k, v) => of(&KeyVal::new(k, v)),
        }
    }
}

/// Omap of an object; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Omap {
    Inline(Vec<KeyVal>),
    /// In leaves: number of keys, and bytes of keys and values.
    Paged {
        keys: u64,
        bytes: u64,
    },
}

impl Default for Omap {
    fn default() -> Self {
        Self::Inline(Vec::new())
    }
}

pub(crate) fn encode_entries(e: &[KeyVal], w: &mut Vec<u8>) {
    w.var(e.len() as u64);
    for kv in e {
        w.var(u64::from(kv.klen));
        w.bytes(&kv.buf);
    }
}

pub(crate) fn decode_entries(r: &mut Get<'_>) -> Result<Vec<KeyVal>, Malformed> {
    let n = r.count(2)?;
    let mut out = Vec::with_capacity(n);
    for _ in 0..n {
        let (klen, buf) = (r.var()?, r.bytes()?);
        if klen > buf.len() as u64 {
            return r.bad();
        }
        out.push(KeyVal { buf, klen: klen as u32 });
    }
    if !out.is_sorted_by(|a, b| a.key() < b.key()) {
        return r.bad();
    }
    Ok(out)
}

fn sum(e: &[KeyVal]) -> Sum {
    Sum { n: e.len() as u64, bytes: e.iter().map(|kv| kv.len() as u64).sum(), omap: 0 }
}

impl Omap {
    pub(crate) fn paged(&self) -> bool {
        matches!(self, Self::Paged { .. })
    }
    /// Bytes of keys and values.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Inline(e) => sum(e).bytes,
            Self::Paged { bytes, .. } => *bytes,
        }
    }
    /// Bytes of memory in the onode.
    pub(crate) fn inline_bytes(&self) -> usize {
        match self {
            Self::Inline(e) => e.iter().map(KeyVal::mem).sum(),
            Self::Paged { .. } => 0,
        }
    }
    pub(crate) fn encode(&self, w: &mut Vec<u8>) {
        match self {
            Self::Inline(e) => encode_entries(e, w),
            Self::Paged { keys, bytes } => {
                w.var(*keys);
                w.var(*bytes);
            }
        }
    }
    pub(crate) fn decode(r: &mut Get<'_>, paged: bool) -> Result<Self, Malformed> {
        if !paged {
            return Ok(Self::Inline(decode_entries(r)?));
        }
        let (keys, bytes) = (r.var()?, r.var()?);
        if keys.max(bytes) > BYTES_MAX {
            return r.bad();
        }
        Ok(Self::Paged { keys, bytes })
    }
}

fn find(e: &[KeyVal], key: &[u8]) -> Result<usize, usize> {
    e.binary_search_by(|kv| kv.key().cmp(key))
}

/// Range of an onode's entries with keys in `[first, last)`.
fn within(e: &[KeyVal], first: &[u8], last: Option<&[u8]>) -> Range<usize> {
    let a = e.partition_point(|kv| kv.key() < first);
    let b = last.map_or(e.len(), |l| e.partition_point(|kv| kv.key() < l));
    a..b.max(a)
}

fn span<'a>(nid: u64, first: &'a [u8], last: Option<&'a [u8]>) -> Span<'a> {
    let from = if first.is_empty() { Key::plain(key::hi(key::OMAP, nid), 0) } else { Key::omap(nid, first) };
    Span { first: from, end: last.map(|l| Key::omap(nid, l)) }
}

impl Meta {
    pub(super) fn omap_leaf(&self, page: u32) -> Option<&Leaf> {
        match self.pages.get(page as usize).map(|p| &p.body) {
            Some(Body::Omap { leaf }) => Some(leaf),
            _ => None,
        }
    }

    /// Changes the entries of a leaf.
    fn change_leaf<T>(&mut self, page: u32, f: impl FnOnce(&mut Leaf) -> T) -> Option<T> {
        self.touch(page);
        let Some(Body::Omap { leaf }) = self.pages.get_mut(page as usize).map(|p| &mut p.body) else { return None };
        let before = leaf.mem() as isize;
        let out = f(leaf);
        let after = leaf.mem() as isize;
        self.pages.grow(page, after - before);
        Some(out)
    }

    /// Number and shard of an object whose omap is in leaves.
    fn paged_omap(&self, id: u32) -> Option<(u64, u8)> {
        let o = self.objects.get(id as usize)?;
        o.omap.paged().then(|| (o.nid, self.shard_of(id)))
    }

    /// True if the object's omap is in the onode, and stays there after the operations that set its keys.
    pub(crate) fn stays_inline(&self, id: u32, ops: &[Op]) -> bool {
        let Some(Omap::Inline(e)) = self.objects.get(id as usize).map(|o| &o.omap) else { return false };
        let mut bytes = sum(e).bytes as usize;
        for op in ops {
            match op {
                Op::OmapSet { entries, .. } => bytes += entries.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>(),
                Op::Remove { .. } | Op::Rename { .. } | Op::Clone { .. } | Op::RemoveCollection { .. } => return false,
                _ => {}
            }
        }
        bytes <= INLINE_BYTES_MAX
    }

    /// Brings the leaf of a key. For an inline omap, the place of its first leaf.
    pub(crate) fn need_omap_key(&mut self, id: u32, k: &[u8]) -> bool {
        let Some(nid) = self.objects.get(id as usize).map(|o| o.nid) else { return true };
        let shard = self.shard_of(id);
        !matches!(self.seek(shard, &Key::omap(nid, k)), Seek::Missing)
    }

    /// Brings the needs of setting keys.
    pub(crate) fn need_omap_set(&mut self, id: u32, entries: &[(Bytes, Bytes)]) -> bool {
        let Some(o) = self.objects.get(id as usize) else { return true };
        let (nid, inline) = (o.nid, !o.omap.paged());
        let mut ok = match inline {
            // The onode's entries move to leaves together with the new ones.
            true => self.need(self.shard_of(id), &span(nid, &[], None), Leaves::None),
            false => self.need_omap_key(id, &[]),
        };
        for (k, _) in entries {
            ok &= self.need_omap_key(id, k);
        }
        ok
    }

    /// Brings leaves of a range of keys. Removing the range needs only the leaves at its ends.
    pub(crate) fn need_omap_range(&mut self, id: u32, first: &[u8], last: Option<&[u8]>, leaves: Leaves) -> bool {
        match self.paged_omap(id) {
            Some((nid, shard)) => self.need(shard, &span(nid, first, last), leaves),
            None => true,
        }
    }

    /// Value of a key, if it exists. `None` if its leaf is missing.
    pub(crate) fn omap_get(&mut self, id: u32, k: &[u8]) -> Option<Option<Bytes>> {
        let Some((nid, shard)) = self.paged_omap(id) else {
            let Some(Omap::Inline(e)) = self.objects.get(id as usize).map(|o| &o.omap) else { return Some(None) };
            return Some(find(e, k).ok().and_then(|i| e.get(i)).map(KeyVal::value_bytes));
        };
        match self.seek(shard, &Key::omap(nid, k)) {
            Seek::Missing => None,
            Seek::Absent { .. } => Some(None),
            Seek::Leaf(p) => {
                let l = self.omap_leaf(p)?;
                Some(l.find(k).ok().map(|i| Bytes::copy_from_slice(l.get(i).1)))
            }
        }
    }

    /// Calls `f` for entries from `from` on (with `after`: after it), until `f` returns false or for at most
    /// [`Ahead::entries`]. `None` if a leaf is missing.
    pub(crate) fn omap_scan(
        &mut self,
        id: u32,
        from: &[u8],
        after: bool,
        ahead: Ahead,
        mut f: impl FnMut(Entry<'_>) -> bool,
    ) -> Option<()> {
        let below = |k: &[u8]| if after { k <= from } else { k < from };
        let Some((nid, shard)) = self.paged_omap(id) else {
            if let Some(Omap::Inline(e)) = self.objects.get(id as usize).map(|o| &o.omap) {
                let _ = e.iter().skip_while(|kv| below(kv.key())).map(Entry::Onode).all(f);
            }
            return Some(());
        };
        self.scan_some(shard, &span(nid, from, None), Some(ahead), |m, page| {
            let Some(l) = m.omap_leaf(page) else { return true };
            l.iter_from(l.upto(below)).map(|(k, v)| Entry::Leaf(k, v)).all(&mut f)
        })
    }

    pub(super) fn count_omap(&mut self, id: u32, add: Sum, sub: Sum) {
        let Some(o) = self.objects.get_mut(id as usize) else { return };
        if let Omap::Paged { keys, bytes } = &mut o.omap {
            *keys = (*keys + add.n).saturating_sub(sub.n);
            *bytes = (*bytes + add.bytes).saturating_sub(sub.bytes);
        }
        let coll = o.coll;
        self.count_usage(coll, |u| u.omap = (u.omap + add.bytes).saturating_sub(sub.bytes));
    }

    /// Sets one key. The object's own page must have been touched.
    pub(crate) fn omap_set(&mut self, id: u32, k: &[u8], value: &[u8]) {
        self.steps += 1;
        let add = Sum { n: 1, bytes: (k.len() + value.len()) as u64, omap: 0 };
        let Some(o) = self.objects.get_mut(id as usize) else { return };
        if let Omap::Inline(e) = &mut o.omap {
            let kv = KeyVal::new(k, value);
            let old = match find(e, k) {
                Ok(i) => sum(&[std::mem::replace(&mut e[i], kv)]),
                Err(i) => {
                    e.insert(i, kv);
                    Sum::default()
                }
            };
            let all = sum(e);
            self.count_omap(id, add, old);
            if all.bytes > INLINE_BYTES_MAX as u64 {
                self.page_omap(id);
            }
            return;
        }
        let Some((nid, shard)) = self.paged_omap(id) else { return };
        if let Some(old) = self.put_key(shard, nid, k, value) {
            self.count_omap(id, add, old);
        }
    }

    /// Sets one key in the leaves. Returns the sums of the entry it replaces; `None` if a page is missing.
    pub(super) fn put_key(&mut self, shard: u8, nid: u64, k: &[u8], value: &[u8]) -> Option<Sum> {
        let key = Key::omap(nid, k);
        match self.seek(shard, &key) {
            Seek::Missing => {
                self.missed();
                None
            }
            Seek::Absent { inner, at, bound } => {
                let leaf = Leaf::of(std::iter::once((k, value)));
                let mem = leaf.mem();
                self.insert_first_leaf(inner, at, bound, &key, Body::Omap { leaf }, mem);
                Some(Sum::default())
            }
            Seek::Leaf(p) => {
                let old = self.change_leaf(p, |l| l.set(k, value)).unwrap_or_default();
                self.split_omap(p);
                Some(old)
            }
        }
    }

    /// Moves an inline omap into leaves.
    fn page_omap(&mut self, id: u32) {
        let shard = self.shard_of(id);
        let Some(o) = self.objects.get_mut(id as usize) else { return };
        let Omap::Inline(e) = &mut o.omap else { return };
        let entries = std::mem::take(e);
        let all = sum(&entries);
        o.omap = Omap::Paged { keys: all.n, bytes: all.bytes };
        let nid = o.nid;
        let first = Key::plain(key::hi(key::OMAP, nid), 0);
        if acts(Bug::StoreOmapAsOne)
            && let Seek::Absent { inner, at, bound } = self.seek(shard, &first)
        {
            let leaf = Leaf::of(entries.iter().map(KeyVal::pair));
            let mem = leaf.mem();
            self.insert_first_leaf(inner, at, bound, &first, Body::Omap { leaf }, mem);
            return;
        }
        // Inserted one by one: leaves of an earlier omap may have left an inner page that begins amid these
        // keys.
        for kv in &entries {
            let (k, v) = kv.pair();
            if self.put_key(shard, nid, k, v).is_none() {
                return;
            }
        }
    }

    /// Splits a leaf until its parts are small enough.
    fn split_omap(&mut self, page: u32) {
        let Some(l) = self.omap_leaf(page) else { return };
        let n = l.len();
        if n < 2 || l.size() <= PAGE_BYTES_MAX {
            return;
        }
        let Some(hi) = self.pages.get(page as usize).map(|p| p.hi) else { return };
        // Keys that arrive in order fill leaves if the split leaves a full part behind.
        let at = if self.last_of_group(page) { n * 7 / 8 } else { n / 2 };
        let at = at.clamp(1, n - 1);
        let Some((left, upper)) = self.change_leaf(page, |l| {
            let upper = l.split_off(at);
            (key::omap_lo(l.key(at - 1)), upper)
        }) else {
            return;
        };
        let sep = Key::omap(key::group_of(hi), upper.key(0)).sep_after(left);
        let mem = upper.mem();
        let new = self.insert_leaf_after(page, sep, Body::Omap { leaf: upper }, mem);
        self.split_omap(new);
        self.split_omap(page);
    }

    /// Removes the keys of `[first, last)`, or from `first` on without `last`. The object's page must have been
    /// touched.
    pub(crate) fn omap_rm_range(&mut self, id: u32, first: &[u8], last: Option<&[u8]>) {
        if last.is_some_and(|l| l <= first) {
            return;
        }
        let Some((nid, shard)) = self.paged_omap(id) else {
            let mut gone = Sum::default();
            if let Some(Omap::Inline(e)) = self.objects.get_mut(id as usize).map(|o| &mut o.omap) {
                let r = within(e, first, last);
                gone = sum(&e.drain(r).collect::<Vec<_>>());
            }
            return self.count_omap(id, Sum::default(), gone);
        };
        let span = span(nid, first, last);
        // A completely cleared omap is inline again.
        let all = first.is_empty() && last.is_none();
        let stand_in: fn() -> Body = || Body::Omap { leaf: Leaf::default() };
        let mut gone = self.drop_covered(shard, &span, (!all).then_some(stand_in));
        // Only the leaves at the range's ends are left.
        let mut ends = Vec::new();
        if self
            .scan(shard, &span, |_, p| {
                ends.push(p);
                true
            })
            .is_none()
        {
            return self.missed();
        }
        for p in ends {
            let Some(l) = self.omap_leaf(p) else { continue };
            let from = l.upto(|k| k < first);
            let to = last.map_or(l.len(), |last| l.upto(|k| k < last)).max(from);
            if from < to {
                gone.add(self.cut_leaf(p, from..to));
            }
        }
        self.lose_keys(id, gone);
    }

    /// Removes entries of a leaf. Returns their sums.
    pub(super) fn cut_leaf(&mut self, p: u32, r: Range<usize>) -> Sum {
        let gone = self.change_leaf(p, |l| l.remove(r)).unwrap_or_default();
        if self.omap_leaf(p).is_some_and(Leaf::is_empty) {
            self.note_empty(p);
        }
        gone
    }

    /// Subtracts removed keys. An omap without keys is inline again.
    fn lose_keys(&mut self, id: u32, gone: Sum) {
        self.count_omap(id, Sum::default(), gone);
        if let Some(o) = self.objects.get_mut(id as usize)
            && let Omap::Paged { keys: 0, .. } = o.omap
        {
            o.omap = Omap::default();
        }
    }

    /// Removes one key. Only its leaf is needed.
    pub(crate) fn omap_rm(&mut self, id: u32, k: &[u8]) {
        self.steps += 1;
        let Some((nid, shard)) = self.paged_omap(id) else {
            let mut gone = Sum::default();
            if let Some(Omap::Inline(e)) = self.objects.get_mut(id as usize).map(|o| &mut o.omap)
                && let Ok(i) = find(e, k)
            {
                gone = sum(&[e.remove(i)]);
            }
            return self.count_omap(id, Sum::default(), gone);
        };
        match self.seek(shard, &Key::omap(nid, k)) {
            Seek::Missing => self.missed(),
            Seek::Absent { .. } => {}
            Seek::Leaf(p) => {
                if let Some(Ok(i)) = self.omap_leaf(p).map(|l| l.find(k)) {
                    let gone = self.cut_leaf(p, i..i + 1);
                    self.lose_keys(id, gone);
                }
            }
        }
    }

    /// Copies the omap of `src` to the object in slot `dst`.
    pub(crate) fn omap_copy(&mut self, src: u32, dst: u32) {
        let Some(omap) = self.objects.get(src as usize).map(|o| o.omap.clone()) else { return };
        let bytes = omap.bytes();
        let Some(coll) = self.objects.get(dst as usize).map(|o| o.coll) else { return };
        self.count_usage(coll, |u| u.omap += bytes);
        let paged = omap.paged();
        let (shard, nid) = (self.shard_of(dst), self.objects.get(dst as usize).map_or(0, |o| o.nid));
        if let Some(o) = self.objects.get_mut(dst as usize) {
            o.omap = omap;
        }
        if !paged {
            return;
        }
        let from = self.objects.get(src as usize).map_or(0, |o| o.nid);
        let mut leaves: Vec<Leaf> = Vec::new();
        let done = self.scan(shard, &span(from, &[], None), |m, p| {
            leaves.extend(m.omap_leaf(p).cloned());
            true
        });
        if done.is_none() {
            return self.missed();
        }
        let mut last = NONE;
        let mut left = 0;
        for leaf in leaves.into_iter().filter(|l| !l.is_empty()) {
            let (mem, first) = (leaf.mem(), leaf.key(0).to_vec());
            let end = key::omap_lo(leaf.key(leaf.len() - 1));
            let key = Key::omap(nid, &first);
            if last == NONE {
                match self.seek(shard, &key) {
                    Seek::Absent { inner, at, bound } => {
                        last = self.insert_first_leaf(inner, at, bound, &key, Body::Omap { leaf }, mem);
                    }
                    _ => return self.missed(),
                }
            } else {
                last = self.insert_leaf_after(last, key.sep_after(left), Body::Omap { leaf }, mem);
            }
            left = end;
        }
    }
}
