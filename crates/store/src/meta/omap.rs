//! Ordered keys of an object: inline in the onode while small, else in pages of their own.
//!
//! Pages hold `Arc`s of entries, so a clone copies pointers; the copy is written out when it is stored. A range delete
//! drops whole pages; there are no tombstones.

use super::Meta;
use super::page::Body;
use crate::codec::{Get, Malformed, Put};
use bytes::Bytes;
use std::sync::Arc;

/// Inline omaps grow up to this.
const INLINE_BYTES_MAX: usize = 2048;
/// A page is split above this many bytes...
const PAGE_BYTES_MAX: usize = 16 << 10;
/// ...or entries.
const PAGE_ENTRIES_MAX: usize = 256;

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
    pub(crate) fn len(&self) -> usize {
        self.buf.len()
    }
}

pub(crate) type Entries = Arc<Vec<KeyVal>>;

/// See the module.
#[derive(Debug)]
pub(crate) enum Omap {
    Inline(Vec<KeyVal>),
    /// Pages in key order; none is empty.
    Paged(Vec<u32>),
}

impl Default for Omap {
    fn default() -> Self {
        Self::Inline(Vec::new())
    }
}

fn encode_entries(e: &[KeyVal], w: &mut Vec<u8>) {
    w.var(e.len() as u64);
    for kv in e {
        w.var(u64::from(kv.klen));
        w.bytes(&kv.buf);
    }
}

fn decode_entries(r: &mut Get<'_>) -> Result<Vec<KeyVal>, Malformed> {
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

impl Omap {
    pub(crate) fn paged(&self) -> bool {
        matches!(self, Self::Paged(_))
    }
    pub(crate) fn inline_bytes(&self) -> u64 {
        match self {
            Self::Inline(e) => e.iter().map(|kv| kv.len() as u64 + 8).sum(),
            Self::Paged(_) => 0,
        }
    }
    pub(crate) fn encode_inline(&self, w: &mut Vec<u8>) {
        match self {
            Self::Inline(e) => encode_entries(e, w),
            Self::Paged(_) => w.var(0),
        }
    }
    pub(crate) fn decode_inline(r: &mut Get<'_>) -> Result<Self, Malformed> {
        Ok(Self::Inline(decode_entries(r)?))
    }
}

/// Keys and bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    keys: u64,
    bytes: u64,
}

impl Sum {
    fn of<'a>(it: impl IntoIterator<Item = &'a KeyVal>) -> Self {
        it.into_iter().fold(Self::default(), |s, kv| Self { keys: s.keys + 1, bytes: s.bytes + kv.len() as u64 })
    }
    fn add(&mut self, o: Self) {
        self.keys += o.keys;
        self.bytes += o.bytes;
    }
}

/// Stored form of an omap page.
pub(crate) fn encode_page(nid: u64, e: &[KeyVal], w: &mut Vec<u8>) {
    w.u64(nid);
    encode_entries(e, w);
}

pub(crate) fn decode_page(r: &mut Get<'_>) -> Result<(u64, Vec<KeyVal>), Malformed> {
    Ok((r.u64()?, decode_entries(r)?))
}

fn find(e: &[KeyVal], key: &[u8]) -> Result<usize, usize> {
    e.binary_search_by(|kv| kv.key().cmp(key))
}

impl Meta {
    fn omap_entries(&self, page: u32) -> &[KeyVal] {
        match self.pages.get(page as usize).map(|p| &p.body) {
            Some(Body::Omap { entries, .. }) => entries,
            _ => &[],
        }
    }

    /// Changes the entries of a page; its checkpoint image is safe before `f` runs.
    fn change_omap_page<T>(&mut self, page: u32, f: impl FnOnce(&mut Vec<KeyVal>) -> T) -> Option<T> {
        self.touch(page);
        match self.pages.get_mut(page as usize).map(|p| &mut p.body) {
            Some(Body::Omap { entries, .. }) => Some(f(Arc::make_mut(entries))),
            _ => None,
        }
    }

    /// Index among `pages` of the page that holds or would hold `key`.
    fn omap_page_of(&self, pages: &[u32], key: &[u8]) -> usize {
        pages.partition_point(|p| self.omap_entries(*p).first().is_some_and(|e| e.key() <= key)).saturating_sub(1)
    }

    pub(crate) fn omap_get(&self, id: u32, key: &[u8]) -> Option<Bytes> {
        let e = match &self.objects.get(id as usize)?.omap {
            Omap::Inline(e) => e,
            Omap::Paged(pages) => self.omap_entries(*pages.get(self.omap_page_of(pages, key))?),
        };
        e.get(find(e, key).ok()?).map(KeyVal::value_bytes)
    }

    /// Calls `f` for entries from `from` on (`after`: behind it) until it returns false.
    pub(crate) fn omap_scan(&self, id: u32, from: &[u8], after: bool, mut f: impl FnMut(&KeyVal) -> bool) {
        let Some(o) = self.objects.get(id as usize) else { return };
        let skip = |e: &[KeyVal]| e.partition_point(|kv| if after { kv.key() <= from } else { kv.key() < from });
        match &o.omap {
            Omap::Inline(e) => {
                let _ = e.iter().skip(skip(e)).all(f);
            }
            Omap::Paged(pages) => {
                let first = self.omap_page_of(pages, from);
                for p in pages.iter().skip(first) {
                    let e = self.omap_entries(*p);
                    if !e.iter().skip(skip(e)).all(&mut f) {
                        return;
                    }
                }
            }
        }
    }

    fn count_omap(&mut self, coll: u32, add: Sum, sub: Sum) {
        if let Some(c) = self.colls.get_mut(coll as usize) {
            c.usage.omap = c.usage.omap + add.bytes - sub.bytes;
        }
        self.usage.omap = self.usage.omap + add.bytes - sub.bytes;
        self.omap_keys = self.omap_keys + add.keys - sub.keys;
    }

    /// Sets one key. The object's own page must have been touched.
    pub(crate) fn omap_set(&mut self, id: u32, key: &[u8], value: &[u8]) {
        let kv = KeyVal::new(key, value);
        let add = Sum::of([&kv]);
        let Some(o) = self.objects.get_mut(id as usize) else { return };
        let coll = o.coll;
        let put = |e: &mut Vec<KeyVal>, kv: KeyVal| match find(e, kv.key()) {
            Ok(i) => Sum::of([&std::mem::replace(&mut e[i], kv)]),
            Err(i) => {
                e.insert(i, kv);
                Sum::default()
            }
        };
        let sub = match &mut o.omap {
            Omap::Inline(e) => {
                let old = put(e, kv);
                if e.iter().map(KeyVal::len).sum::<usize>() > INLINE_BYTES_MAX {
                    let entries = std::mem::take(e);
                    let nid = o.nid;
                    let page = self.new_page(Body::Omap { nid, entries: Arc::new(entries) });
                    if let Some(o) = self.objects.get_mut(id as usize) {
                        o.omap = Omap::Paged(vec![page]);
                    }
                    self.split_omap(id, 0);
                }
                old
            }
            Omap::Paged(pages) => {
                let pages = std::mem::take(pages);
                let i = self.omap_page_of(&pages, key);
                let page = pages.get(i).copied();
                if let Some(o) = self.objects.get_mut(id as usize) {
                    o.omap = Omap::Paged(pages);
                }
                match page {
                    Some(p) => {
                        let old = self.change_omap_page(p, |e| put(e, kv)).unwrap_or_default();
                        self.split_omap(id, i);
                        old
                    }
                    None => {
                        // Every page was dropped before.
                        if let Some(o) = self.objects.get_mut(id as usize) {
                            o.omap = Omap::Inline(vec![kv]);
                        }
                        Sum::default()
                    }
                }
            }
        };
        self.count_omap(coll, add, sub);
    }

    /// Splits page `i` of an object's omap until its parts are small enough.
    fn split_omap(&mut self, id: u32, i: usize) {
        let Some(o) = self.objects.get(id as usize) else { return };
        let nid = o.nid;
        let Omap::Paged(pages) = &o.omap else { return };
        let Some(&page) = pages.get(i) else { return };
        let e = self.omap_entries(page);
        let bytes: usize = e.iter().map(|kv| kv.len() + 8).sum();
        if e.len() < 2 || (e.len() <= PAGE_ENTRIES_MAX && bytes <= PAGE_BYTES_MAX) {
            return;
        }
        // Keys arriving in order fill pages if the split leaves the full part behind.
        let mut at = e.len() / 2;
        if i + 1 == pages.len() {
            at = e.len() * 7 / 8;
        }
        let at = at.clamp(1, e.len() - 1);
        let Some(upper) = self.change_omap_page(page, |e| e.split_off(at)) else { return };
        let new = self.new_page(Body::Omap { nid, entries: Arc::new(upper) });
        if let Some(Omap::Paged(pages)) = self.objects.get_mut(id as usize).map(|o| &mut o.omap) {
            pages.insert(i + 1, new);
        }
        self.split_omap(id, i + 1);
        self.split_omap(id, i);
    }

    /// Removes keys of `[first, last)`, or from `first` on if there is no `last`. The object's page must have been touched.
    pub(crate) fn omap_rm_range(&mut self, id: u32, first: &[u8], last: Option<&[u8]>) {
        if last.is_some_and(|l| l <= first) {
            return;
        }
        let Some(o) = self.objects.get_mut(id as usize) else { return };
        let coll = o.coll;
        let range = |e: &[KeyVal]| {
            let a = e.partition_point(|kv| kv.key() < first);
            let b = last.map_or(e.len(), |l| e.partition_point(|kv| kv.key() < l));
            a..b.max(a)
        };
        let mut gone = Sum::default();
        match &mut o.omap {
            Omap::Inline(e) => {
                let r = range(e);
                gone.add(Sum::of(&e.drain(r).collect::<Vec<_>>()));
            }
            Omap::Paged(pages) => {
                let mut pages = std::mem::take(pages);
                let mut i = self.omap_page_of(&pages, first);
                while let Some(&p) = pages.get(i) {
                    let e = self.omap_entries(p);
                    let r = range(e);
                    if last.is_some_and(|l| e.first().is_some_and(|kv| kv.key() >= l)) {
                        break;
                    }
                    if r.len() == e.len() {
                        gone.add(Sum::of(e));
                        self.free_page(p);
                        pages.remove(i);
                        continue;
                    }
                    if !r.is_empty() {
                        let part = self.change_omap_page(p, |e| Sum::of(&e.drain(r).collect::<Vec<_>>()));
                        gone.add(part.unwrap_or_default());
                    }
                    i += 1;
                }
                if let Some(o) = self.objects.get_mut(id as usize) {
                    o.omap = if pages.is_empty() { Omap::default() } else { Omap::Paged(pages) };
                }
            }
        }
        self.count_omap(coll, Sum::default(), gone);
    }

    /// Removes one key.
    pub(crate) fn omap_rm(&mut self, id: u32, key: &[u8]) {
        if self.omap_get(id, key).is_some() {
            let mut next = key.to_vec();
            next.push(0);
            self.omap_rm_range(id, key, Some(&next));
        }
    }

    /// A copy of an object's omap for a clone numbered `nid`.
    pub(crate) fn omap_copy(&mut self, id: u32, nid: u64, coll: u32) -> Omap {
        let (copy, bytes) = match self.objects.get(id as usize).map(|o| &o.omap) {
            None => (Omap::default(), Sum::default()),
            Some(Omap::Inline(e)) => (Omap::Inline(e.clone()), Sum::of(e)),
            Some(Omap::Paged(pages)) => {
                let pages = pages.clone();
                let mut bytes = Sum::default();
                let mut out = Vec::with_capacity(pages.len());
                for p in pages {
                    let Some(Body::Omap { entries, .. }) = self.pages.get(p as usize).map(|p| &p.body) else {
                        continue;
                    };
                    bytes.add(Sum::of(entries.iter()));
                    let entries = entries.clone();
                    out.push(self.new_page(Body::Omap { nid, entries }));
                }
                (Omap::Paged(out), bytes)
            }
        };
        self.count_omap(coll, bytes, Sum::default());
        copy
    }
}
