//! Pages: the unit in which metadata is stored, dirtied, and checkpointed.
//!
//! Every piece of metadata lives in one page; a page is written whole, to a new place, at most once per checkpoint.
//!
//! Invariants:
//!  1. Content changes only after [`Meta::touch`]; a page that the running checkpoint has yet to write is encoded first,
//!     as it was at the freeze (copy on write, one page at a time, so no turn pays for more than it changes).
//!  2. A stored page is never overwritten; its blocks are released when a checkpoint without it is durable.
//!  3. A checkpoint's table names exactly the pages alive at its freeze.

use super::Meta;
use super::object::Key;
use super::omap::{self, Entries};
use super::pglog::{self, LogEntries};
use crate::codec::Put;
use crate::layout::BLK;
use crate::space::Runs;
use crate::superblock::BlobPtr;
use base::buf::AlignedBuf;
use base::crc::{SEED, crc32c};
use bytes::Bytes;

pub(crate) const KIND_COLL: u8 = 1;
pub(crate) const KIND_OBJECTS: u8 = 2;
pub(crate) const KIND_OMAP: u8 = 3;
pub(crate) const KIND_LOG: u8 = 4;

/// An object page is split when its stored form exceeds this.
const OBJECTS_BYTES_MAX: usize = 32 << 10;
/// Size aimed at by the split.
const OBJECTS_BYTES_AIM: u64 = 16 << 10;

/// What a page holds.
#[derive(Debug)]
pub(crate) enum Body {
    /// A collection's own record.
    Coll { coll: u32 },
    /// Objects of a collection, in order.
    Objects { coll: u32, ids: Vec<(Key, u32)> },
    /// Omap of the object with this number.
    Omap { nid: u64, entries: Entries },
    /// PG log entries.
    Log { coll: u32, entries: LogEntries },
}

/// See the module. Epochs count freezes.
#[derive(Debug)]
pub(crate) struct Page {
    /// Epoch of creation.
    pub(crate) born: u32,
    /// Epoch of the oldest change that is not stored; 0 if there is none.
    pub(crate) dirty: u32,
    /// Where it is stored; no runs if nowhere yet.
    pub(crate) loc: BlobPtr,
    pub(crate) body: Body,
}

/// Metadata on its way to the device.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) runs: Runs,
    pub(crate) data: Bytes,
}

impl Meta {
    pub(crate) fn new_page(&mut self, body: Body) -> u32 {
        let page = Page { born: self.epoch, dirty: self.epoch, loc: BlobPtr::default(), body };
        let id = self.pages.insert(page) as u32;
        self.dirty.push(id);
        id
    }

    /// Announces a change of a page's content. Cheap if it is dirty already.
    #[inline]
    pub(crate) fn touch(&mut self, id: u32) {
        let Some(p) = self.pages.get(id as usize) else { return };
        if p.dirty == self.epoch {
            return;
        }
        self.touch_slow(id);
    }

    #[cold]
    fn touch_slow(&mut self, id: u32) {
        self.settle(id);
        if let Some(p) = self.pages.get_mut(id as usize) {
            p.dirty = self.epoch;
            self.dirty.push(id);
        }
    }

    /// Stores a page now if the running checkpoint has yet to write it.
    pub(crate) fn settle(&mut self, id: u32) {
        if self.pages.get(id as usize).is_some_and(|p| p.dirty != 0 && p.dirty < self.epoch) {
            self.store_page(id);
        }
    }

    /// Drops a page.
    pub(crate) fn free_page(&mut self, id: u32) {
        self.settle(id);
        let Some(p) = self.pages.try_remove(id as usize) else { return };
        if let Some(c) = &mut self.ckpt
            && p.born < self.epoch
            && id >= c.cursor
        {
            c.extra.push(p.loc.clone());
        }
        for (b, n) in p.loc.runs {
            self.page_blocks -= u64::from(n);
            self.freed_blocks += u64::from(n);
            self.freed.push((b, n));
        }
    }

    /// Encodes a page as it is now to a new place; its old place goes when the running checkpoint is durable.
    pub(crate) fn store_page(&mut self, id: u32) {
        let Some(p) = self.pages.get(id as usize) else { return };
        let mut w = std::mem::take(&mut self.scratch);
        w.clear();
        match &p.body {
            Body::Coll { coll } => {
                w.u8(KIND_COLL);
                if let Some(c) = self.colls.get(*coll as usize) {
                    c.encode(&mut w);
                }
            }
            Body::Objects { coll, ids } => {
                w.u8(KIND_OBJECTS);
                w.cid(self.cid_of(*coll));
                w.var(ids.len() as u64);
                for (_, o) in ids {
                    if let Some(o) = self.objects.get(*o as usize) {
                        o.encode(&mut w);
                    }
                }
            }
            Body::Omap { nid, entries } => {
                w.u8(KIND_OMAP);
                omap::encode_page(*nid, entries, &mut w);
            }
            Body::Log { coll, entries } => {
                w.u8(KIND_LOG);
                w.cid(self.cid_of(*coll));
                pglog::encode_entries(entries, &mut w);
            }
        }
        let split = w.len() > OBJECTS_BYTES_MAX && matches!(&p.body, Body::Objects { ids, .. } if ids.len() > 1);
        let loc = self.store_blob(&w);
        self.scratch = w;
        if let Some(p) = self.pages.get_mut(id as usize) {
            p.dirty = 0;
            let old = std::mem::replace(&mut p.loc, loc);
            for (b, n) in old.runs {
                self.page_blocks -= u64::from(n);
                self.release.push((b, n));
            }
        }
        if split {
            self.split_objects(id, OBJECTS_BYTES_AIM);
        }
    }

    /// Gives bytes a place and queues them for writing.
    pub(crate) fn store_blob(&mut self, data: &[u8]) -> BlobPtr {
        let blocks = (data.len() as u64).div_ceil(BLK);
        let mut runs = Runs::new();
        if !self.space.reserve(blocks, true) || self.space.take(&mut self.stream, blocks, &mut runs) < blocks {
            self.out_of_space = true;
        }
        self.page_blocks += blocks;
        let mut buf = AlignedBuf::zeroed((blocks * BLK) as usize);
        if let Some(b) = buf.get_mut(..data.len()) {
            b.copy_from_slice(data);
        }
        self.out_bytes += buf.len();
        self.out.push(Stored { runs: runs.clone(), data: buf.freeze() });
        BlobPtr { runs, len: data.len() as u32, crc: crc32c(SEED, data) }
    }
}
