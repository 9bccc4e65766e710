//! All metadata of one store, in memory, and how a change alters it.
//!
//! [`Meta::apply`] is the only way in: a live transaction and the replay of its record run the same code on the same
//! [`Change`]s, so what replay builds is what was there.
//!
//! Invariants:
//!  1. Reference counts alone decide when a block is free. `refs` counts references beyond the first.
//!  2. A block whose last reference goes is kept in `freed` until a checkpoint that knows it is durable.
//!  3. `usage` equals the sums over collections and objects at every moment.

pub(crate) mod change;
pub(crate) mod load;
pub(crate) mod map;
pub(crate) mod object;
pub(crate) mod omap;
pub(crate) mod page;
pub(crate) mod pglog;
pub(crate) mod refs;
pub(crate) mod tree;

use crate::codec::Put;
use crate::key::Cid;
use crate::layout::{BLK, Layout};
use crate::space::{Space, Stream};
use crate::superblock::BlobPtr;
use bytes::Bytes;
use change::Change;
use map::Ptr;
use object::{Key, Object};
use page::{Body, Page, Stored};
use pglog::PgLog;
use refs::Refs;
use rustc_hash::FxHashMap;
use slab::Slab;
use std::sync::Arc;

/// Sums over objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) objects: u64,
    pub(crate) stored: u64,
    pub(crate) omap: u64,
}

/// A collection.
#[derive(Debug)]
pub(crate) struct Coll {
    pub(crate) cid: Cid,
    pub(crate) bits: u32,
    /// The page of this record.
    pub(crate) page: u32,
    /// Object pages in order, each with the key of its first object.
    pub(crate) tree: Vec<(Key, u32)>,
    pub(crate) info: Option<Bytes>,
    pub(crate) log: PgLog,
    pub(crate) usage: Usage,
}

impl Coll {
    pub(crate) fn encode(&self, w: &mut Vec<u8>) {
        w.cid(self.cid);
        w.u32(self.bits);
        w.u16(crate::layout::shard_for(self.cid, crate::layout::SHARDS));
        w.u8(u8::from(self.info.is_some()) | u8::from(self.log.trimmed.is_some()) << 1);
        if let Some(i) = &self.info {
            w.bytes(i);
        }
        if let Some(t) = self.log.trimmed {
            w.version(t);
        }
    }
}

/// What the running checkpoint needs of the metadata.
#[derive(Debug, Default)]
pub(crate) struct Frozen {
    /// Pages below this slot are in the table.
    pub(crate) cursor: u32,
    /// Places of pages that were alive at the freeze and are gone.
    pub(crate) extra: Vec<BlobPtr>,
}

/// See the module.
pub(crate) struct Meta {
    pub(crate) layout: Layout,
    pub(crate) space: Arc<Space>,
    pub(crate) stream: Stream,
    pub(crate) colls: Slab<Coll>,
    pub(crate) by_cid: FxHashMap<Cid, u32>,
    pub(crate) objects: Slab<Object>,
    /// The object found last.
    last: u32,
    pub(crate) pages: Slab<Page>,
    /// Counts freezes, from 1.
    pub(crate) epoch: u32,
    /// Pages dirtied in this epoch.
    pub(crate) dirty: Vec<u32>,
    /// The running checkpoint, if any.
    pub(crate) ckpt: Option<Frozen>,
    /// Freed since the freeze: for the next checkpoint to release.
    pub(crate) freed: Vec<(u64, u32)>,
    /// Blocks in `freed`.
    pub(crate) freed_blocks: u64,
    /// Freed before the freeze: released when the running checkpoint is durable.
    pub(crate) release: Vec<(u64, u32)>,
    pub(crate) refs: Refs,
    /// Pages encoded and not yet handed to the device.
    pub(crate) out: Vec<Stored>,
    pub(crate) out_bytes: usize,
    scratch: Vec<u8>,
    /// Replaying: space is counted afterwards.
    pub(crate) replay: bool,
    /// Pages found no room: the reserve was wrong or the device lied about its size.
    pub(crate) out_of_space: bool,
    pub(crate) next_nid: u64,
    pub(crate) usage: Usage,
    pub(crate) omap_keys: u64,
    pub(crate) log_bytes: u64,
    /// Sum of the objects' weights.
    pub(crate) weight: u64,
    /// Blocks that hold metadata.
    pub(crate) page_blocks: u64,
    keep: u64,
}

impl Meta {
    pub(crate) fn new(layout: Layout, space: Arc<Space>) -> Self {
        Self {
            layout,
            space,
            stream: Stream::reusing(),
            colls: Slab::new(),
            by_cid: FxHashMap::default(),
            objects: Slab::new(),
            last: u32::MAX,
            pages: Slab::new(),
            epoch: 1,
            dirty: Vec::new(),
            ckpt: None,
            freed: Vec::new(),
            freed_blocks: 0,
            release: Vec::new(),
            refs: Refs::default(),
            out: Vec::new(),
            out_bytes: 0,
            scratch: Vec::new(),
            replay: true,
            out_of_space: false,
            next_nid: 1,
            usage: Usage::default(),
            omap_keys: 0,
            log_bytes: 0,
            weight: 0,
            page_blocks: 0,
            keep: 0,
        }
    }

    pub(crate) fn coll(&self, cid: Cid) -> Option<u32> {
        self.by_cid.get(&cid).copied()
    }

    pub(crate) fn cid_of(&self, coll: u32) -> Cid {
        self.colls.get(coll as usize).map_or(Cid::Meta, |c| c.cid)
    }

    /// Blocks a checkpoint of everything would need at most; that much stays free of data.
    pub(crate) fn update_keep(&mut self) {
        let bytes = self.weight + self.usage.omap + self.omap_keys * 8 + self.log_bytes + self.pages.len() as u64 * 96;
        let infos = self.colls.len() as u64 * 2;
        let keep = bytes / BLK + self.pages.len() as u64 + infos + 64;
        // Twice: while one checkpoint's pages wait for release the next one may be under way.
        self.space.change_keep(self.keep, 2 * keep);
        self.keep = 2 * keep;
    }

    /// Takes one reference off a block.
    pub(crate) fn unref(&mut self, phys: u64) {
        if self.replay || self.refs.dec(phys) {
            return;
        }
        self.freed_blocks += 1;
        free_block(&mut self.freed, phys);
    }

    /// Applies one change. An error means the record is nonsense, which a checksum should have told: the caller stops.
    pub(crate) fn apply(&mut self, change: Change) -> Result<(), &'static str> {
        let cid = change.cid();
        if let Change::MakeCollection { bits, .. } = change {
            if self.by_cid.contains_key(&cid) {
                return Err("collection made twice");
            }
            self.add_coll(cid, bits);
            return Ok(());
        }
        let coll = self.coll(cid).ok_or("change in an absent collection")?;
        match change {
            Change::MakeCollection { .. } => {}
            Change::RemoveCollection { .. } => self.remove_coll(coll)?,
            Change::LogAppend { version, entry, .. } => self.log_append(coll, version, &entry),
            Change::LogTrim { to, .. } => self.log_trim(coll, to),
            Change::LogRewind { to, .. } => self.log_rewind(coll, to),
            Change::Info { info, .. } => {
                let Some(page) = self.colls.get(coll as usize).map(|c| c.page) else { return Ok(()) };
                self.touch(page);
                if let Some(c) = self.colls.get_mut(coll as usize) {
                    c.info = Some(Bytes::copy_from_slice(&info));
                }
            }
            Change::Create { oid, nid, .. } => {
                if self.find(coll, &oid).is_some() {
                    return Err("object created twice");
                }
                self.saw_nid(nid);
                self.insert_object(Object::new(oid.owned(), coll, nid));
            }
            Change::Clone { src, dst, nid, .. } => self.clone_object(coll, &src, dst, nid)?,
            Change::Rename { src, dst, .. } => {
                let id = self.find(coll, &src).ok_or("rename of an absent object")?;
                if let Some(old) = self.find(coll, &dst) {
                    self.remove_object(old);
                }
                self.rename_object(id, dst.owned());
            }
            Change::Remove { oid, .. } => {
                if let Some(id) = self.find(coll, &oid) {
                    self.remove_object(id);
                }
            }
            Change::Share { src, dst, block, n, size, .. } => {
                let s = self.find(coll, &src).ok_or("share from an absent object")?;
                let d = self.find(coll, &dst).ok_or("share to an absent object")?;
                self.share(s, d, block, n, size);
            }
            Change::OfObject { oid, what, .. } => {
                let id = self.find(coll, &oid).ok_or("change of an absent object")?;
                self.apply_object(id, what);
            }
        }
        Ok(())
    }

    /// The lower bits count, the upper ones tell the ring that gave the number.
    pub(crate) fn saw_nid(&mut self, nid: u64) {
        self.next_nid = self.next_nid.max((nid & !(0xff << 56)) + 1);
    }

    pub(crate) fn add_coll(&mut self, cid: Cid, bits: u32) -> u32 {
        let coll =
            Coll { cid, bits, page: 0, tree: Vec::new(), info: None, log: PgLog::default(), usage: Usage::default() };
        let id = self.colls.insert(coll) as u32;
        let page = self.new_page(Body::Coll { coll: id });
        if let Some(c) = self.colls.get_mut(id as usize) {
            c.page = page;
        }
        self.by_cid.insert(cid, id);
        id
    }

    fn remove_coll(&mut self, coll: u32) -> Result<(), &'static str> {
        let Some(c) = self.colls.get(coll as usize) else { return Ok(()) };
        if !c.tree.is_empty() {
            return Err("removal of a collection that holds objects");
        }
        let (cid, page) = (c.cid, c.page);
        let far = base::Eversion { epoch: base::Epoch(u32::MAX), version: u64::MAX };
        self.log_trim(coll, far);
        self.free_page(page);
        self.colls.try_remove(coll as usize);
        self.by_cid.remove(&cid);
        Ok(())
    }

    fn clone_object(
        &mut self,
        coll: u32,
        src: &crate::key::Oid,
        dst: crate::key::Oid,
        nid: u64,
    ) -> Result<(), &'static str> {
        if let Some(old) = self.find(coll, &dst) {
            self.remove_object(old);
        }
        let s = self.find(coll, src).ok_or("clone of an absent object")?;
        let omap = self.omap_copy(s, nid, coll);
        let Some(o) = self.objects.get(s as usize) else { return Ok(()) };
        let mut new = Object::new(dst.owned(), coll, nid);
        new.birth = o.birth;
        new.size = o.size;
        new.map = o.map.clone();
        new.attrs = o.attrs.clone();
        new.omap_header = o.omap_header.clone();
        new.omap = omap;
        new.hint = o.hint;
        if !self.replay {
            for (_, p, _) in new.map.iter(0, map::BLOCKS_MAX) {
                self.refs.inc(p.phys());
            }
        }
        self.saw_nid(nid);
        self.insert_object(new);
        Ok(())
    }

    /// Makes a range of blocks of `d` the same as those of `s`, by reference.
    fn share(&mut self, s: u32, d: u32, block: u64, n: u64, size: u64) {
        let Some(o) = self.objects.get(s as usize) else { return };
        let blocks: Vec<(u64, Ptr, u32)> = o.map.iter(block, n).collect();
        if !self.replay {
            for (_, p, _) in &blocks {
                self.refs.inc(p.phys());
            }
        }
        self.apply_object(d, change::What::Unmap { block, n, size });
        self.edit(d, |m, o| {
            for (b, p, k) in blocks {
                let old = o.map.set(b, p, k);
                debug_assert!(old.is_hole(), "unmapped above");
                let _ = m;
            }
        });
    }

    /// Runs `f` on an object and keeps the sums right. `f` also gets the list of freed blocks' receiver.
    fn edit(&mut self, id: u32, f: impl FnOnce(&mut Freeing<'_>, &mut Object)) {
        self.touch_object(id);
        let Some(o) = self.objects.get_mut(id as usize) else { return };
        let (stored, weight) = (o.stored(), o.weight());
        let mut fr = Freeing {
            refs: &mut self.refs,
            freed: &mut self.freed,
            blocks: &mut self.freed_blocks,
            replay: self.replay,
        };
        f(&mut fr, o);
        self.weight = self.weight + o.weight() - weight;
        let now = o.stored();
        self.usage.stored = self.usage.stored + now - stored;
        if let Some(c) = self.colls.get_mut(o.coll as usize) {
            c.usage.stored = c.usage.stored + now - stored;
        }
    }

    /// Applies a change to an object that was found. As [`Meta::apply`] does it.
    pub(crate) fn apply_object(&mut self, id: u32, what: change::What) {
        use change::What;
        match what {
            What::Map { mut block, runs, crcs, version, size } => self.edit(id, |f, o| {
                o.size = size;
                let mut crcs = crcs.iter();
                for (first, n) in runs {
                    for phys in first..first + u64::from(n) {
                        let Some(crc) = crcs.next() else { return };
                        let old = o.map.set(block, Ptr::new(phys, version), *crc);
                        if !old.is_hole() {
                            f.unref(old.phys());
                        }
                        block += 1;
                    }
                }
            }),
            What::Unmap { block, n, size } => self.edit(id, |f, o| {
                o.map.clear(block, n, |p| f.unref(p));
                o.size = size;
            }),
            What::SetAttrs { attrs } => self.edit(id, |_, o| {
                for (k, v) in &attrs {
                    o.set_attr(k, v);
                }
            }),
            What::RmAttr { name } => self.edit(id, |_, o| o.attrs.retain(|a| a.0 != name)),
            What::RmAttrs => self.edit(id, |_, o| o.attrs.clear()),
            What::OmapSet { entries } => self.edit_omap(id, |m| {
                for (k, v) in &entries {
                    m.omap_set(id, k, v);
                }
            }),
            What::OmapRmKeys { keys } => self.edit_omap(id, |m| {
                for k in &keys {
                    m.omap_rm(id, k);
                }
            }),
            What::OmapRmRange { first, last } => self.edit_omap(id, |m| m.omap_rm_range(id, &first, Some(&last))),
            What::OmapClear => {
                self.edit_omap(id, |m| m.omap_rm_range(id, &[], None));
                self.edit(id, |_, o| o.omap_header = Bytes::new());
            }
            What::OmapHeader { header } => self.edit(id, |_, o| o.omap_header = Bytes::copy_from_slice(&header)),
            What::Hint { size, write, flags } => self.edit(id, |_, o| o.hint = Some((size, write, flags))),
        }
    }

    fn edit_omap(&mut self, id: u32, f: impl FnOnce(&mut Self)) {
        self.touch_object(id);
        let weight = |m: &Self| m.objects.get(id as usize).map_or(0, |o| o.omap.inline_bytes());
        let before = weight(self);
        f(self);
        self.weight = self.weight + weight(self) - before;
    }
}

/// Where blocks go that an object no longer refers to.
struct Freeing<'a> {
    refs: &'a mut Refs,
    freed: &'a mut Vec<(u64, u32)>,
    blocks: &'a mut u64,
    replay: bool,
}

impl Freeing<'_> {
    fn unref(&mut self, phys: u64) {
        if !self.replay && !self.refs.dec(phys) {
            *self.blocks += 1;
            free_block(self.freed, phys);
        }
    }
}

fn free_block(freed: &mut Vec<(u64, u32)>, phys: u64) {
    match freed.last_mut() {
        Some(l) if l.0 + u64::from(l.1) == phys && l.1 < u32::MAX => l.1 += 1,
        _ => freed.push((phys, 1)),
    }
}
