//! Building the metadata from the pages of a checkpoint, and counting space when replay is done.

use super::map::BLOCKS_MAX;
use super::object::{Object, key_of};
use super::omap::{self, KeyVal, Omap};
use super::page::{Body, KIND_COLL, KIND_LOG, KIND_OBJECTS, KIND_OMAP, Page};
use super::pglog::{self, LogEntries};
use super::{Meta, Usage};
use crate::codec::{Get, Malformed};
use crate::key::Cid;
use crate::layout::Layout;
use crate::superblock::BlobPtr;
use base::Eversion;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A decoded page.
#[derive(Debug)]
pub(crate) enum Decoded {
    Coll {
        cid: Cid,
        bits: u32,
        info: Option<Bytes>,
        trimmed: Option<Eversion>,
    },
    /// Objects, and whether pages of omap belong to each.
    Objects {
        cid: Cid,
        objects: Vec<(Object, bool)>,
    },
    Omap {
        nid: u64,
        entries: Vec<KeyVal>,
    },
    Log {
        cid: Cid,
        entries: LogEntries,
    },
}

pub(crate) fn decode_page(buf: &[u8], layout: &Layout) -> Result<Decoded, Malformed> {
    let mut r = Get::new(buf);
    let page = match r.u8()? {
        KIND_COLL => {
            let cid = r.cid()?;
            let bits = r.u32()?;
            r.u16()?;
            let flags = r.u8()?;
            let info = if flags & 1 != 0 { Some(r.bytes()?) } else { None };
            let trimmed = if flags & 2 != 0 { Some(r.version()?) } else { None };
            Decoded::Coll { cid, bits, info, trimmed }
        }
        KIND_OBJECTS => {
            let cid = r.cid()?;
            let n = r.count(32)?;
            let objects = (0..n).map(|_| Object::decode(&mut r, 0, layout)).collect::<Result<_, _>>()?;
            Decoded::Objects { cid, objects }
        }
        KIND_OMAP => {
            let (nid, entries) = omap::decode_page(&mut r)?;
            Decoded::Omap { nid, entries }
        }
        KIND_LOG => Decoded::Log { cid: r.cid()?, entries: pglog::decode_entries(&mut r)? },
        _ => return r.bad(),
    };
    if r.rest() != 0 {
        return r.bad();
    }
    Ok(page)
}

/// Objects of a page, and whether pages of omap belong to each.
type Objects = Vec<(Object, bool)>;

/// Gathers pages in any order; [`Loader::finish`] puts them together.
#[derive(Default)]
pub(crate) struct Loader {
    objects: Vec<(BlobPtr, Cid, Objects)>,
    logs: Vec<(BlobPtr, Cid, LogEntries)>,
    omaps: Vec<(BlobPtr, u64, Vec<KeyVal>)>,
}

impl Loader {
    pub(crate) fn add(&mut self, m: &mut Meta, loc: BlobPtr, page: Decoded) -> Result<(), String> {
        match page {
            Decoded::Coll { cid, bits, info, trimmed } => {
                if m.coll(cid).is_some() {
                    return Err(format!("collection {cid:?} stored twice"));
                }
                let id = m.add_coll(cid, bits);
                let Some(c) = m.colls.get_mut(id as usize) else { return Ok(()) };
                c.info = info;
                c.log.trimmed = trimmed;
                if let Some(p) = m.pages.get_mut(c.page as usize) {
                    m.page_blocks += loc.blocks();
                    (p.born, p.dirty, p.loc) = (0, 0, loc);
                }
            }
            Decoded::Objects { cid, objects } => self.objects.push((loc, cid, objects)),
            Decoded::Omap { nid, entries } => self.omaps.push((loc, nid, entries)),
            Decoded::Log { cid, entries } => self.logs.push((loc, cid, entries)),
        }
        Ok(())
    }

    pub(crate) fn finish(mut self, m: &mut Meta) -> Result<(), String> {
        let mut owners: FxHashMap<u64, u32> = FxHashMap::default();
        self.objects.sort_by(|a, b| {
            let first = |x: &Objects| x.first().map(|o| o.0.oid.clone());
            (a.1, first(&a.2)).cmp(&(b.1, first(&b.2)))
        });
        for (loc, cid, objects) in self.objects {
            let coll = m.coll(cid).ok_or_else(|| format!("objects of absent collection {cid:?}"))?;
            let page = add_page(m, loc, Body::Objects { coll, ids: Vec::new() });
            let mut ids = Vec::with_capacity(objects.len());
            for (mut o, paged) in objects {
                (o.coll, o.page) = (coll, page);
                let key = key_of(&o.oid);
                m.weight += o.weight();
                let omap = match &o.omap {
                    Omap::Inline(e) => (e.len() as u64, e.iter().map(|kv| kv.len() as u64).sum()),
                    Omap::Paged(_) => (0, 0),
                };
                let u = Usage { objects: 1, stored: o.stored(), omap: omap.1 };
                m.omap_keys += omap.0;
                add_usage(m, coll, u);
                let (nid, oid) = (o.nid, o.oid.clone());
                m.saw_nid(nid);
                let id = m.objects.insert(o) as u32;
                if paged && owners.insert(nid, id).is_some() {
                    return Err(format!("two objects are numbered {nid}: {}", oid.hobj));
                }
                ids.push((key, id));
            }
            let prev = m.colls.get(coll as usize).and_then(|c| c.tree.last()).and_then(|t| {
                match &m.pages.get(t.1 as usize)?.body {
                    Body::Objects { ids, .. } => ids.last().copied(),
                    _ => None,
                }
            });
            let oid = |e: &(super::object::Key, u32)| m.objects.get(e.1 as usize).map(|o| &o.oid);
            if !prev.iter().chain(&ids).is_sorted_by(|a, b| oid(a) < oid(b)) {
                return Err(format!("objects of {cid:?} out of order"));
            }
            let Some(first) = ids.first().map(|i| i.0) else { return Err(format!("empty object page of {cid:?}")) };
            if let Some(Body::Objects { ids: slot, .. }) = m.pages.get_mut(page as usize).map(|p| &mut p.body) {
                *slot = ids;
            }
            if let Some(c) = m.colls.get_mut(coll as usize) {
                c.tree.push((first, page));
            }
        }
        self.logs.sort_by(|a, b| (a.1, a.2.front().map(|e| e.0)).cmp(&(b.1, b.2.front().map(|e| e.0))));
        for (loc, cid, mut entries) in self.logs {
            let coll = m.coll(cid).ok_or_else(|| format!("log of absent collection {cid:?}"))?;
            let trimmed = m.colls.get(coll as usize).and_then(|c| c.log.trimmed);
            while trimmed.is_some_and(|t| entries.front().is_some_and(|e| e.0 <= t)) {
                entries.pop_front();
            }
            m.log_bytes += entries.iter().map(|e| e.1.len() as u64 + 20).sum::<u64>();
            let empty = entries.is_empty();
            let page = add_page(m, loc, Body::Log { coll, entries });
            if empty {
                m.free_page(page);
            } else if let Some(c) = m.colls.get_mut(coll as usize) {
                c.log.pages.push_back(page);
            }
        }
        self.omaps.sort_by(|a, b| (a.1, a.2.first().map(KeyVal::key)).cmp(&(b.1, b.2.first().map(KeyVal::key))));
        for (loc, nid, entries) in self.omaps {
            let id = *owners.get(&nid).ok_or_else(|| format!("omap of absent object {nid}"))?;
            let bytes = entries.iter().map(|kv| kv.len() as u64).sum();
            let keys = entries.len() as u64;
            if keys == 0 {
                return Err(format!("empty omap page of object {nid}"));
            }
            let page = add_page(m, loc, Body::Omap { nid, entries: Arc::new(entries) });
            let Some(o) = m.objects.get_mut(id as usize) else { continue };
            match &mut o.omap {
                Omap::Paged(p) => p.push(page),
                inline => *inline = Omap::Paged(vec![page]),
            }
            let coll = o.coll;
            m.omap_keys += keys;
            add_usage(m, coll, Usage { omap: bytes, ..Usage::default() });
        }
        m.dirty.clear();
        Ok(())
    }
}

fn add_page(m: &mut Meta, loc: BlobPtr, body: Body) -> u32 {
    m.page_blocks += loc.blocks();
    m.pages.insert(Page { born: 0, dirty: 0, loc, body }) as u32
}

fn add_usage(m: &mut Meta, coll: u32, u: Usage) {
    let add = |x: &mut Usage| {
        x.objects += u.objects;
        x.stored += u.stored;
        x.omap += u.omap;
    };
    add(&mut m.usage);
    if let Some(c) = m.colls.get_mut(coll as usize) {
        add(&mut c.usage);
    }
}

impl Meta {
    /// Replay is done: marks every block that is referenced and counts references beyond the first. `extra` are blobs
    /// that belong to the checkpoint beside its pages.
    pub(crate) fn count_space(&mut self, extra: &[BlobPtr]) -> Result<(), String> {
        for (_, o) in &self.objects {
            for (_, p, _) in o.map.iter(0, BLOCKS_MAX) {
                if !self.space.mark(p.phys()) {
                    self.refs.inc(p.phys());
                }
            }
        }
        // Pages that replay dropped are still part of the durable checkpoint: in use until the next one.
        let freed: Vec<(u64, u32)> = self.freed.clone();
        let pages = self.pages.iter().flat_map(|(_, p)| p.loc.runs.iter());
        for (first, n) in pages.chain(extra.iter().flat_map(|e| e.runs.iter())).chain(&freed) {
            for b in *first..first + u64::from(*n) {
                if !self.space.mark(b) {
                    return Err(format!("metadata block {b} is used twice"));
                }
            }
        }
        self.replay = false;
        self.update_keep();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::change::{self, Change, Encoder, What};
    use super::*;
    use crate::key::Oid;
    use crate::space::Space;
    use base::rng::Rng;
    use base::{HObject, PgId};

    fn oid(n: u64) -> Oid {
        HObject { oid: format!("o{n}").into(), hash: n as u32 * 31, ..HObject::min() }.into()
    }

    fn meta() -> Meta {
        let layout = Layout::of(64 << 20).unwrap();
        Meta::new(layout, Arc::new(Space::new(layout.space_start, layout.space_end)))
    }

    /// Changes that make every kind of page.
    fn changes() -> Vec<Change> {
        let cid = Cid::Pg(PgId::new(1, 2).into());
        let first = Layout::of(64 << 20).unwrap().space_start;
        let b = |n: usize| Bytes::from(vec![n as u8; n]);
        let mut out = vec![Change::MakeCollection { cid, bits: 2 }, Change::Info { cid, info: b(50) }];
        for n in 0..20u64 {
            out.push(Change::Create { cid, oid: oid(n), nid: n + 1 });
            let of = |what| Change::OfObject { cid, oid: oid(n), what };
            let runs = smallvec::smallvec![(first + n * 8, 3)];
            out.push(of(What::Map { block: n, runs, crcs: smallvec::smallvec![1, 2, 3], version: 7, size: 90_000 }));
            out.push(of(What::SetAttrs { attrs: vec![(b(3), b(20))] }));
            let entries = (0..n * 3).map(|k| (Bytes::from(format!("k{k:04}")), b(90))).collect();
            out.push(of(What::OmapSet { entries }));
            out.push(Change::LogAppend { cid, version: Eversion::new(1, n + 1), entry: b(30) });
        }
        out.push(Change::Clone { cid, src: oid(19), dst: oid(40), nid: 99 });
        out.push(Change::LogTrim { cid, to: Eversion::new(1, 3) });
        out
    }

    #[test]
    fn pages_come_back_and_damaged_ones_never_panic() {
        let mut m = meta();
        for c in changes() {
            m.apply(c).unwrap();
        }
        m.epoch += 1;
        for id in 0..m.pages.capacity() as u32 {
            m.settle(id);
        }
        let pages: Vec<(BlobPtr, Bytes)> =
            m.pages.iter().map(|(_, p)| p.loc.clone()).zip(m.out.iter().map(|s| s.data.clone())).collect();
        let load = |pages: &[(BlobPtr, Bytes)]| -> Result<Meta, String> {
            let (mut m, mut l) = (meta(), Loader::default());
            for (loc, data) in pages {
                let data = data.get(..loc.len as usize).unwrap_or_default();
                let page = decode_page(data, &m.layout).map_err(|e| e.to_string())?;
                l.add(&mut m, loc.clone(), page)?;
            }
            l.finish(&mut m)?;
            m.count_space(&[])?;
            Ok(m)
        };
        let back = load(&pages).unwrap();
        assert_eq!((back.usage, back.weight, back.omap_keys), (m.usage, m.weight, m.omap_keys));
        let mut rng = Rng::new(1);
        let mut opened = 0;
        for _ in 0..600 {
            let mut bad = pages.clone();
            for _ in 0..1 + rng.below(3) {
                let i = rng.below(bad.len() as u64) as usize;
                let mut d = bad[i].1.to_vec();
                let at = rng.below(u64::from(bad[i].0.len)) as usize;
                d[at] = rng.next_u64() as u8;
                bad[i].1 = d.into();
            }
            // What decodes and fits together must also stand changes.
            if let Ok(mut m) = load(&bad) {
                opened += 1;
                for c in changes() {
                    let _ = m.apply(c);
                }
            }
        }
        assert!(opened > 20, "most damage hits values that can't be told from right ones");
    }

    #[test]
    fn damaged_records_never_panic() {
        let mut w = Vec::new();
        let mut e = Encoder::new(&mut w);
        for c in changes() {
            e.put(&c);
        }
        let mut rng = Rng::new(2);
        for _ in 0..500 {
            let mut d = w.clone();
            for _ in 0..1 + rng.below(3) {
                let at = rng.below(d.len() as u64) as usize;
                d[at] = rng.next_u64() as u8;
            }
            let mut m = meta();
            for c in change::decode(&d, &m.layout).into_iter().flatten() {
                let _ = m.apply(c);
            }
        }
    }
}
