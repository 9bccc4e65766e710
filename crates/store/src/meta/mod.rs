//! All metadata of one store: trees of pages, cached in memory within a budget, and how a change alters them.
//!
//! [`Meta::apply`] is the only way in: a live transaction and the replay of its record run the same code on the same
//! [`Change`]s, so what replay builds is what was there. A change finds every page it needs in memory, because
//! [`Meta::need_change`] or its like for transactions was asked before; a page that is not there after all stops the store
//! (`bad`) before anything wrong is written.
//!
//! Invariants:
//!  1. Reference counts alone decide when a block is free; a block of an object not marked as shared has one reference.
//!  2. A block whose last reference goes is kept in `freed` until a checkpoint that knows it is durable.
//!  3. A collection's `usage` equals the sums over its objects at every moment.

pub(crate) mod blocks;
pub(crate) mod change;
pub(crate) mod entries;
pub(crate) mod key;
pub(crate) mod leaf;
pub(crate) mod map;
pub(crate) mod need;
pub(crate) mod object;
pub(crate) mod objects;
pub(crate) mod omap;
pub(crate) mod page;
pub(crate) mod parts;
pub(crate) mod pglog;
pub(crate) mod refs;
pub(crate) mod salvage;
mod seps;
pub(crate) mod tree;
pub(crate) mod undo;
pub(crate) mod used;

use crate::codec::{Get, Malformed, Put};
use crate::key::{Cid, Oid};
use crate::layout::{BLOCK, Layout, SHARDS, reactor_for, shard_for};
use crate::space::{Space, Stream};
use crate::superblock::BlobPtr;
use bytes::Bytes;
use change::{Change, What};
use key::Key;
use map::Ptr;
use object::Object;
use page::{Body, Page, Stored};
use rustc_hash::FxHashMap;
use slab::Slab;
use smallvec::SmallVec;
use std::ops::RangeInclusive;
use std::sync::Arc;
use tree::{NONE, Seek, Shard, Staged};
use undo::Side;
use used::UsedMap;

/// Kept beside what is dirty.
const HEADROOM_BLOCKS: u64 = 64;
/// Blocks of a leaf with its like of a split, and of an inner page, as they count in what is kept.
const LEAF_BLOCKS: u64 = 6;
const INNER_BLOCKS: u64 = 6;

/// No sum of a collection is believed beyond this.
const USAGE_MAX: u64 = 1 << 60;
/// Numbers of objects and collections: the ring that gave them above, a count below.
pub(crate) const NID_RING_SHIFT: u32 = 48;

/// Sums over objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) objects: u64,
    pub(crate) stored: u64,
    pub(crate) omap: u64,
}

/// A range of bit-reversed hashes in a family's part of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Names the objects' part of the tree; collections split off another one share it.
    pub(crate) family: u64,
    pub(crate) range: RangeInclusive<u32>,
}

pub(crate) type Parts = SmallVec<[Part; 1]>;

/// A collection. All are in memory.
#[derive(Debug)]
pub(crate) struct Coll {
    pub(crate) cid: Cid,
    pub(crate) bits: u32,
    /// Names its record and its log.
    pub(crate) num: u64,
    /// Where its objects are, in the order of hashes; one part unless it took over what was made as another collection.
    pub(crate) parts: Parts,
    pub(crate) shard: u8,
    /// The page of this record.
    pub(crate) page: u32,
    pub(crate) info: Option<Vec<u8>>,
    /// Stored log entries up to here are void.
    pub(crate) trimmed: Option<base::Eversion>,
    pub(crate) usage: Usage,
    pub(crate) undo: undo::Undo,
}

impl Coll {
    /// Its record:
    ///
    /// | collection | form |
    /// | --- | --- |
    /// | name | cid |
    /// | hash bits | u32 |
    /// | family | u64 |
    /// | first hash | u32 |
    /// | last hash | u32 |
    /// | objects | var |
    /// | stored bytes | var |
    /// | omap bytes | var |
    /// | flags | u8 |
    /// | further parts | var if 4 |
    /// | · family | u64 |
    /// | · first hash | u32 |
    /// | · last hash | u32 |
    /// | info | bytes if 1 |
    /// | void up to | version if 2 |
    /// | undo records | var if 8 |
    /// | undo blocks | var if 8 |
    pub(crate) fn encode(&self, w: &mut Vec<u8>) {
        w.cid(self.cid);
        w.u32(self.bits);
        let mut parts = self.parts.iter();
        if let Some(p) = parts.next() {
            p.encode(w);
        }
        w.var(self.usage.objects);
        w.var(self.usage.stored);
        w.var(self.usage.omap);
        let more = self.parts.len() > 1;
        let keeps = self.undo != undo::Undo::default();
        w.u8(u8::from(self.info.is_some())
            | u8::from(self.trimmed.is_some()) << 1
            | u8::from(more) << 2
            | u8::from(keeps) << 3);
        if more {
            w.var(self.parts.len() as u64 - 1);
            parts.for_each(|p| p.encode(w));
        }
        if let Some(i) = &self.info {
            w.bytes(i);
        }
        if let Some(t) = self.trimmed {
            w.version(t);
        }
        if keeps {
            w.var(self.undo.records);
            w.var(self.undo.blocks);
        }
    }
}

/// Slots of collections by their names.
#[derive(Default)]
pub(crate) struct Cids {
    pgs: base::PgTable<rustc_hash::FxBuildHasher>,
    /// `Meta`, and shards of erasure-coded PGs.
    others: FxHashMap<Cid, u32>,
    /// The one looked up last: a transaction asks some twenty times, mostly for one.
    last: std::cell::Cell<Option<(Cid, u32)>>,
}

/// A collection that is a whole PG's.
fn whole_pg(cid: Cid) -> Option<base::PgId> {
    match cid {
        Cid::Pg(p) if p.shard == base::ShardId::NONE => Some(p.pg),
        _ => None,
    }
}

impl Cids {
    #[inline]
    pub(crate) fn get(&self, cid: Cid) -> Option<u32> {
        match self.last.get() {
            Some((last, id)) if last == cid => Some(id),
            _ => self.get_other(cid),
        }
    }

    fn get_other(&self, cid: Cid) -> Option<u32> {
        let id = whole_pg(cid).map_or_else(|| self.others.get(&cid).copied(), |pg| self.pgs.get(pg))?;
        self.last.set(Some((cid, id)));
        Some(id)
    }

    pub(crate) fn insert(&mut self, cid: Cid, id: u32) {
        self.last.set(None);
        match whole_pg(cid) {
            Some(pg) => self.pgs.insert(pg, id),
            None => drop(self.others.insert(cid, id)),
        }
    }

    pub(crate) fn remove(&mut self, cid: Cid) {
        self.last.set(None);
        match whole_pg(cid) {
            Some(pg) => self.pgs.remove(pg),
            None => self.others.remove(&cid),
        };
    }
}

/// See the module.
pub(crate) struct Meta {
    pub(crate) layout: Layout,
    pub(crate) space: Arc<Space>,
    pub(crate) stream: Stream,
    pub(crate) colls: Slab<Coll>,
    pub(crate) by_cid: Cids,
    /// Collections of each family.
    pub(crate) families: FxHashMap<u64, Vec<u32>>,
    pub(crate) objects: Slab<Object>,
    /// Slots of objects found lately, by hash; what one holds now has to be looked at.
    hints: Vec<u32>,
    /// Slots and blocks of the operations foreseen last, the newest first.
    foreseen: [(u32, u64); objects::FORESEEN],
    pub(crate) shards: Vec<Shard>,
    pub(crate) pages: Slab<Page>,
    uniq: u64,
    /// Bytes of memory all pages take.
    pub(crate) mem: usize,
    /// Of those, of pages that differ from what is stored.
    pub(crate) dirty_bytes: usize,
    /// Where the cache's hand stands.
    hand: usize,
    /// Last leaf of each log, while it is in memory.
    tails: FxHashMap<u64, u32>,
    /// Pages found missing since this was last emptied.
    pub(crate) want: Vec<BlobPtr>,
    /// Pages read and not yet put to their places, by first block.
    pub(crate) staged: FxHashMap<u64, Staged>,
    /// Bytes in `staged`.
    pub(crate) staged_bytes: usize,
    /// Pages put to their places since this was last emptied: slot and `uniq`.
    pub(crate) attached: Vec<(u32, u64)>,
    /// What is asked for is for changes that may mark objects as shared.
    will_share: bool,
    /// References of an object marked as shared will change.
    pub(crate) met_shared: bool,
    /// What was asked for contains keys of an omap that is in leaves, or may come to be.
    pub(crate) met_leaves: bool,
    /// What the transaction that is being applied replaces is kept.
    keeping: undo::Keeping,
    /// Pages that became empty in this transaction: slot and `uniq`.
    empty: Vec<(u32, u64)>,
    /// Something stored does not hold together.
    pub(crate) bad: Option<String>,
    /// Pages that left memory.
    pub(crate) evictions: u64,
    /// Chunks of block maps of which the changes alone were stored.
    pub(crate) late_chunks: u64,
    /// What applying all changes again would take, in steps: changes, keys and references, and [`PAGE_STEPS`](page::PAGE_STEPS) for each page that
    /// became dirty and will have to be brought. A few bytes of log may take a thousand of them.
    pub(crate) work: u64,
    /// Counts freezes, from 1.
    pub(crate) epoch: u32,
    /// Pages dirtied in this epoch, by level.
    pub(crate) dirty: Vec<Vec<u32>>,
    /// Pages the running checkpoint has yet to look at.
    pub(crate) frozen: u64,
    /// Blocks of metadata that what was asked for touches beside a few pages for each operation.
    pub(crate) touches: u64,
    /// Which blocks are in use, as checkpoints store it.
    pub(crate) used: UsedMap,
    /// Data blocks that came into use since the freeze.
    pub(crate) taken: Vec<(u64, u32)>,
    /// Blocks of what the running checkpoint stored.
    pub(crate) stored_runs: Vec<(u64, u32)>,
    /// Freed since the freeze: for the next checkpoint to release.
    pub(crate) freed: Vec<(u64, u32)>,
    /// Blocks in `freed`.
    pub(crate) freed_blocks: u64,
    /// Of those, blocks that held metadata.
    pub(crate) freed_meta: i64,
    /// Freed before the freeze: released when the running checkpoint is durable.
    pub(crate) release: Vec<(u64, u32)>,
    /// Pages encoded and not yet handed to the device.
    pub(crate) out: Vec<Stored>,
    pub(crate) out_bytes: usize,
    /// Pieces that were ever in `out`, and how many of them are on the device, with all before them.
    pub(crate) stored: u64,
    pub(crate) written: u64,
    scratch: Vec<u8>,
    /// Replaying: blocks are marked as used when a record names them.
    pub(crate) replay: bool,
    /// What is gone is gone without: metadata is being rebuilt.
    pub(crate) salvage: Option<salvage::Salvage>,
    /// Pages found no room: the reserve was wrong or the device lied about its size.
    pub(crate) out_of_space: bool,
    pub(crate) next_nid: u64,
    /// Ring number in the upper bits of numbers given out.
    pub(crate) nid_base: u64,
    /// Which reactor this is, of how many.
    pub(crate) reactor: u16,
    pub(crate) reactors: u16,
    /// Blocks that hold metadata. Of one store it may be below zero after shards moved between rings; the sum over all is exact.
    pub(crate) page_blocks: i64,
    /// Kids of an inner page at most.
    pub(crate) kids_max: usize,
    headroom: u64,
    /// `page_blocks` as the device's sum has it.
    counted_blocks: i64,
}

impl Meta {
    /// Of one reactor of so many, without any trees.
    pub(crate) fn new(layout: Layout, space: Arc<Space>, reactor: u16, reactors: u16) -> Self {
        Self {
            layout,
            space,
            stream: Stream::reusing(),
            colls: Slab::new(),
            by_cid: Cids::default(),
            families: FxHashMap::default(),
            objects: Slab::new(),
            hints: vec![u32::MAX; objects::HINTS_MIN],
            foreseen: [(u32::MAX, 0); objects::FORESEEN],
            shards: vec![Shard::default(); usize::from(SHARDS)],
            pages: Slab::new(),
            uniq: 0,
            mem: 0,
            dirty_bytes: 0,
            hand: 0,
            tails: FxHashMap::default(),
            want: Vec::new(),
            staged: FxHashMap::default(),
            staged_bytes: 0,
            attached: Vec::new(),
            will_share: false,
            met_shared: false,
            met_leaves: false,
            keeping: undo::Keeping::default(),
            empty: Vec::new(),
            bad: None,
            evictions: 0,
            late_chunks: 0,
            work: 0,
            epoch: 1,
            dirty: Vec::new(),
            frozen: 0,
            touches: 0,
            used: UsedMap::default(),
            taken: Vec::new(),
            stored_runs: Vec::new(),
            freed: Vec::new(),
            freed_blocks: 0,
            freed_meta: 0,
            release: Vec::new(),
            out: Vec::new(),
            out_bytes: 0,
            stored: 0,
            written: 0,
            scratch: Vec::new(),
            replay: true,
            salvage: None,
            out_of_space: false,
            next_nid: 1,
            nid_base: u64::from(reactor) << NID_RING_SHIFT,
            reactor,
            reactors,
            page_blocks: 0,
            kids_max: tree::KIDS_MAX,
            headroom: 0,
            counted_blocks: 0,
        }
    }

    pub(crate) fn coll(&self, cid: Cid) -> Option<u32> {
        self.by_cid.get(cid)
    }

    pub(crate) fn cid_of(&self, coll: u32) -> Cid {
        self.colls.get(coll as usize).map_or(Cid::Meta, |c| c.cid)
    }

    /// Sums over all collections.
    pub(crate) fn usage(&self) -> Usage {
        self.colls.iter().fold(Usage::default(), |s, (_, c)| Usage {
            objects: s.objects.saturating_add(c.usage.objects),
            stored: s.stored.saturating_add(c.usage.stored),
            omap: s.omap.saturating_add(c.usage.omap),
        })
    }

    /// Changes a collection's sums.
    pub(crate) fn count_usage(&mut self, coll: u32, f: impl FnOnce(&mut Usage)) {
        let Some(c) = self.colls.get(coll as usize) else { return };
        let (mut u, page) = (c.usage, c.page);
        f(&mut u);
        if u == c.usage {
            return;
        }
        self.touch(page);
        if let Some(c) = self.colls.get_mut(coll as usize) {
            c.usage = u;
        }
    }

    /// Brings up to date what is kept free for checkpoints: what the running one and the next one will write at most.
    pub(crate) fn update_headroom(&mut self) {
        self.space.change_metadata(self.page_blocks - self.counted_blocks);
        self.counted_blocks = self.page_blocks;
        let pages = self.frozen + self.dirty.iter().map(|d| d.len() as u64).sum::<u64>();
        let dirty = self.dirty_bytes as u64 / BLOCK + pages;
        // Twice: a page may have to be written by both.
        let headroom = 2 * (dirty + self.used.blocks_max()) + HEADROOM_BLOCKS;
        self.space.change_headroom(self.headroom, headroom);
        self.headroom = headroom;
    }

    /// What would be kept if everything were stored.
    pub(crate) fn headroom_least(&self) -> u64 {
        2 * self.used.blocks_max() + HEADROOM_BLOCKS
    }

    /// What is kept now.
    pub(crate) fn headroom(&self) -> u64 {
        self.headroom
    }

    /// Blocks by which a transaction of so many operations and bytes raises what is kept at most: for each operation a leaf
    /// and the way to it, and what `need_ops` counted.
    pub(crate) fn headroom_for(&self, ops: usize, bytes: usize) -> u64 {
        let levels = self.shards.iter().map(|s| u64::from(s.level)).max().unwrap_or(1);
        2 * (ops as u64 * (LEAF_BLOCKS + INNER_BLOCKS * levels) + 2 * (bytes as u64).div_ceil(BLOCK) + self.touches)
    }

    /// Applies one change. An error means the record is nonsense, which a checksum should have told: the caller stops.
    pub(crate) fn apply(&mut self, change: Change) -> Result<(), &'static str> {
        // Changes of objects are counted below.
        self.work += u64::from(!matches!(change, Change::OfObject { .. }));
        let cid = change.cid();
        if let Change::MakeCollection { bits, num, shard, .. } = change {
            if self.by_cid.get(cid).is_some() {
                return Err("collection made twice");
            }
            self.saw_nid(num);
            let parts = smallvec::smallvec![Part { family: num, range: 0..=u32::MAX }];
            return self.make_coll_at(cid, bits, num, shard, parts).map(|_| ());
        }
        if let Change::MakeBeside { beside, bits, num, .. } = change {
            if self.by_cid.get(cid).is_some() {
                return Err("collection made twice");
            }
            self.saw_nid(num);
            let beside = self.coll(beside).and_then(|c| self.colls.get(c as usize));
            let shard = beside.ok_or("a collection made beside an absent one")?.shard;
            let parts = smallvec::smallvec![Part { family: num, range: 0..=u32::MAX }];
            return self.make_coll_at(cid, bits, num, shard, parts).map(|_| ());
        }
        let coll = self.coll(cid).ok_or("change in an absent collection")?;
        match change {
            Change::MakeCollection { .. } | Change::MakeBeside { .. } => {}
            Change::RemoveCollection { .. } => self.remove_coll(coll)?,
            Change::Split { dst, first, bits, num, .. } => {
                if self.by_cid.get(dst).is_some() {
                    return Err("collection split off twice");
                }
                self.saw_nid(num);
                self.split_coll(coll, dst, first, bits, num)?;
            }
            Change::Merge { dst, first, bits, .. } => {
                let dst = self.coll(dst).ok_or("merge into an absent collection")?;
                self.merge_coll(coll, dst, first, bits)?;
            }
            Change::LogAppend { version, entry, .. } => self.log_append(coll, version, &entry),
            Change::LogTrim { to, .. } => {
                self.log_trim(coll, to);
                self.drop_records(coll, Side::UpTo(to));
            }
            Change::LogRewind { to, .. } => {
                self.log_rewind(coll, to);
                self.drop_records(coll, Side::After(to));
            }
            Change::DropKept { to, .. } => self.drop_records(coll, Side::UpTo(to)),
            Change::Keep { version, .. } => self.start_keeping(coll, version),
            Change::Undo { oid, version, size, .. } => {
                let id = self.find(coll, &oid).ok_or("an absent object is to be what it was")?;
                if !self.undo(id, version) {
                    self.lost_what_was_kept(id, size)?;
                }
            }
            Change::Info { info, .. } => {
                let Some(page) = self.colls.get(coll as usize).map(|c| c.page) else { return Ok(()) };
                self.touch(page);
                if let Some(c) = self.colls.get_mut(coll as usize) {
                    // In the room it has: it is written with nearly every transaction.
                    let old = c.info.get_or_insert_default();
                    let more = info.len() as isize - old.len() as isize;
                    old.clear();
                    old.extend_from_slice(&info);
                    self.grow(page, more);
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
                if let Some(old) = self.find(coll, &dst) {
                    self.remove_object(old);
                }
                let id = self.find(coll, &src).ok_or("rename of an absent object")?;
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
        self.next_nid = self.next_nid.max((nid & ((1 << NID_RING_SHIFT) - 1)) + 1);
    }

    /// The next number for an object or a collection.
    pub(crate) fn new_nid(&self) -> u64 {
        self.nid_base | self.next_nid
    }

    fn add_coll(&mut self, c: Coll) -> u32 {
        let cid = c.cid;
        let id = self.colls.insert(c) as u32;
        self.by_cid.insert(cid, id);
        self.join_families(id);
        id
    }

    /// The shard for a new collection: that of its name if this reactor serves it. A PG that was split off another one elsewhere is on
    /// that one's reactor on all OSDs, also where it is made without; there it goes to the shard of the reactor that comes next.
    pub(crate) fn home(&self, cid: Cid) -> u8 {
        let (named, n) = (shard_for(cid, SHARDS), self.reactors);
        let away = (self.reactor + n - reactor_for(named, n)) % n;
        let shard = if named + away < SHARDS { named + away } else { self.reactor };
        shard as u8
    }

    /// Makes a collection's record.
    fn make_coll_at(&mut self, cid: Cid, bits: u32, num: u64, shard: u8, parts: Parts) -> Result<u32, &'static str> {
        let key = Key::plain(key::hi(key::COLL, num), 0);
        let Seek::Absent { inner, at, .. } = self.seek(shard, &key) else {
            self.missed();
            return Err("a collection's record has no place");
        };
        let coll = self.add_coll(Coll {
            cid,
            bits,
            num,
            parts,
            shard,
            page: NONE,
            info: None,
            trimmed: None,
            usage: Usage::default(),
            undo: undo::Undo::default(),
        });
        let page = self.insert_exact(inner, at, &key, Body::Coll { coll }, 0);
        if let Some(c) = self.colls.get_mut(coll as usize) {
            c.page = page;
        }
        Ok(coll)
    }

    /// Decodes a collection's record.
    fn load_coll(&mut self, r: &mut Get<'_>, hi: u64, shard: u8) -> Result<u32, Malformed> {
        let cid = r.cid()?;
        let bits = r.u32()?;
        let mut parts: Parts = smallvec::smallvec![Part::decode(r)?];
        let usage = Usage { objects: r.var()?, stored: r.var()?, omap: r.var()? };
        let flags = r.u8()?;
        if flags & 4 != 0 {
            for _ in 0..r.count(16)? {
                parts.push(Part::decode(r)?);
            }
        }
        let info = if flags & 1 != 0 { Some(Vec::from(r.bytes()?)) } else { None };
        let trimmed = if flags & 2 != 0 { Some(r.version()?) } else { None };
        if self.by_cid.get(cid).is_some() || !self.may_add_parts(&parts) {
            return r.bad();
        }
        let num = key::group_of(hi);
        let undo = if flags & 8 != 0 { undo::Undo { records: r.var()?, blocks: r.var()? } } else { Default::default() };
        // They are counted on from.
        let counts = [usage.objects, usage.stored, usage.omap, undo.records, undo.blocks];
        if counts.iter().any(|n| *n > USAGE_MAX) {
            return r.bad();
        }
        Ok(self.add_coll(Coll { cid, bits, num, parts, shard, page: NONE, info, trimmed, usage, undo }))
    }

    /// Brings the records of all collections of a shard.
    pub(crate) fn need_colls(&mut self, shard: u8) -> bool {
        // Collections are groups of one record each: their leaves are the first ones of the tree.
        let Some(root) = self.root(shard) else { return false };
        self.need_coll_leaves(root)
    }

    fn need_coll_leaves(&mut self, page: u32) -> bool {
        let Some(p) = self.pages.get(page as usize) else { return false };
        let level = p.level;
        let Body::Inner(n) = &p.body else { return true };
        let is_coll = |hi: u64| key::kind_of(hi) <= key::COLL;
        let upto = n.seps.while_hi(is_coll).max(usize::from(level > 1 && !n.kids.is_empty()));
        let mut ok = true;
        for at in 0..upto {
            match self.kid(page, at) {
                Some(k) if level > 1 => ok &= self.need_coll_leaves(k),
                Some(_) => {}
                None => ok = false,
            }
        }
        ok
    }

    fn remove_coll(&mut self, coll: u32) -> Result<(), &'static str> {
        let Some(c) = self.colls.get(coll as usize) else { return Ok(()) };
        if c.usage.objects > 0 || c.undo.records > 0 {
            return Err("removal of a collection that holds objects or what its log keeps");
        }
        let (cid, page) = (c.cid, c.page);
        self.log_drop(coll);
        self.remove_leaf(page);
        self.leave_families(coll);
        self.colls.try_remove(coll as usize);
        self.by_cid.remove(cid);
        Ok(())
    }

    fn clone_object(&mut self, coll: u32, src: &Oid, dst: Oid, nid: u64) -> Result<(), &'static str> {
        if let Some(old) = self.find(coll, &dst) {
            self.remove_object(old);
        }
        let s = self.find(coll, src).ok_or("clone of an absent object")?;
        self.mark_shared(s);
        let Some(o) = self.objects.get(s as usize) else { return Ok(()) };
        let mut new = Object::new(dst.owned(), coll, nid);
        new.birth = o.birth;
        new.attrs = o.attrs.clone();
        new.omap_header = o.omap_header.clone();
        new.hint = o.hint;
        new.shared = true;
        new.lost = o.lost;
        self.saw_nid(nid);
        let d = self.insert_object(new);
        self.edit(d, |m| {
            m.omap_copy(s, d);
            m.map_copy(s, d, 0, map::BLOCKS_MAX);
            let Some((size, tail)) = m.objects.get(s as usize).map(|o| (o.size, o.tail)) else { return };
            if let Some(o) = m.objects.get_mut(d as usize) {
                (o.size, o.tail) = (size, tail);
            }
        });
        Ok(())
    }

    fn mark_shared(&mut self, id: u32) {
        if self.objects.get(id as usize).is_some_and(|o| !o.shared) {
            self.touch_object(id);
            if let Some(o) = self.objects.get_mut(id as usize) {
                o.shared = true;
            }
        }
    }

    /// Maps in `d` what `s` maps in `[block, end)`, by reference; `d` maps nothing there.
    fn map_copy(&mut self, s: u32, d: u32, block: u64, end: u64) {
        let mut blocks: Vec<(u64, Ptr, u32)> = Vec::new();
        self.map_each(s, block, end, |b, p, k| blocks.push((b, p, k)));
        let shard = self.shard_of(s);
        let mut rest = &blocks[..];
        while let Some((first, p, _)) = rest.first().copied() {
            let follows = |i: usize, b: &(u64, Ptr, u32)| {
                b.0 == first + i as u64 && b.1.phys() == p.phys() + i as u64 && b.1.version() == p.version()
            };
            let n = rest.iter().enumerate().take_while(|(i, b)| follows(*i, b)).count().max(1);
            let (run, later) = rest.split_at(n);
            rest = later;
            for b in run {
                self.ref_inc(shard, b.1.phys());
            }
            let crcs: SmallVec<[u32; 64]> = run.iter().map(|b| b.2).collect();
            self.map_blocks(d, first, &smallvec::smallvec![(p.phys(), n as u32)], &crcs, p.version(), false);
        }
    }

    /// Makes a range of blocks of `d` the same as those of `s`, by reference.
    fn share(&mut self, s: u32, d: u32, block: u64, n: u64, size: u64) {
        self.mark_shared(s);
        self.mark_shared(d);
        self.apply_object(d, What::Unmap { block, n, size });
        self.spread_damage(s, d);
        self.edit(d, |m| {
            m.map_copy(s, d, block, block.saturating_add(n));
            m.update_tail(d, size, block, block.saturating_add(n));
        });
    }

    /// Runs `f` on an object and keeps the sums right.
    pub(crate) fn edit(&mut self, id: u32, f: impl FnOnce(&mut Self)) {
        self.touch_object(id);
        let Some(o) = self.objects.get(id as usize) else { return };
        let (stored, weight, page, coll) = (o.stored(), o.weight(), o.page, o.coll);
        f(self);
        let Some(o) = self.objects.get(id as usize) else { return };
        let (now, heavy) = (o.stored(), o.weight());
        if heavy != weight {
            self.grow(page, heavy as isize - weight as isize);
            if heavy > weight {
                self.split_objects(page);
            }
        }
        if now != stored {
            self.count_usage(coll, |u| u.stored = (u.stored + now).saturating_sub(stored));
        }
    }

    /// Applies a change to an object that was found. As [`Meta::apply`] does it.
    pub(crate) fn apply_object(&mut self, id: u32, what: What) {
        self.work += 1;
        match what {
            What::Map { block, runs, crcs, version, size } => {
                for (first, n) in &runs {
                    if self.replay {
                        for b in *first..*first + u64::from(*n) {
                            // What a map of used blocks that could not be read said is not known.
                            if !self.space.mark(b) && self.salvage.is_none() {
                                self.damage(format!("a log record writes to block {b}, which is in use"));
                            }
                        }
                    }
                    match self.taken.last_mut() {
                        Some(l) if l.0 + u64::from(l.1) == *first => l.1 += n,
                        _ => self.taken.push((*first, *n)),
                    }
                }
                self.edit(id, |m| {
                    let n: u64 = runs.iter().map(|r| u64::from(r.1)).sum();
                    let Some(old) = m.set_size(id, size) else { return };
                    let kept = m.keep(id, block, block + n, old);
                    m.map_found(id, block, n, size);
                    m.map_blocks(id, block, &runs, &crcs, version, kept);
                    m.update_tail(id, old, block, block + n);
                });
            }
            What::Unmap { block, n, size } => self.edit(id, |m| {
                let end = block.saturating_add(n);
                let before = m.objects.get(id as usize).map_or(0, |o| o.size);
                let kept = m.keep(id, block, end, before);
                m.unmap_blocks(id, block, end, kept);
                let Some(old) = m.set_size(id, size) else { return };
                m.map_found(id, block, n, size);
                m.update_tail(id, old, block, end);
            }),
            What::SetAttrs { attrs } => self.edit(id, |m| {
                let Some(o) = m.objects.get_mut(id as usize) else { return };
                for (k, v) in &attrs {
                    o.set_attr(k, v);
                }
            }),
            What::RmAttr { name } => self.edit_plain(id, |o| o.attrs.retain(|a| a.0 != name)),
            What::RmAttrs => self.edit_plain(id, |o| o.attrs.clear()),
            What::OmapSet { entries } => self.edit(id, |m| {
                for (k, v) in &entries {
                    m.omap_set(id, k, v);
                }
            }),
            What::OmapRmKeys { keys } => self.edit(id, |m| {
                for k in &keys {
                    m.omap_rm(id, k);
                }
            }),
            What::OmapRmRange { first, last } => self.edit(id, |m| m.omap_rm_range(id, &first, Some(&last))),
            What::OmapClear => self.edit(id, |m| {
                m.omap_rm_range(id, &[], None);
                if let Some(o) = m.objects.get_mut(id as usize) {
                    o.omap_header = Bytes::new();
                    o.lost.omap = false;
                }
            }),
            What::OmapHeader { header } => self.edit_plain(id, |o| o.omap_header = Bytes::copy_from_slice(&header)),
            What::Hint { size, write, flags } => self.edit_plain(id, |o| o.hint = Some((size, write, flags))),
        }
    }

    fn edit_plain(&mut self, id: u32, f: impl FnOnce(&mut Object)) {
        self.edit(id, |m| {
            if let Some(o) = m.objects.get_mut(id as usize) {
                f(o);
            }
        });
    }

    /// Sets an object's size; the old one.
    fn set_size(&mut self, id: u32, size: u64) -> Option<u64> {
        let o = self.objects.get_mut(id as usize)?;
        Some(std::mem::replace(&mut o.size, size))
    }
}
