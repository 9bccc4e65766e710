//! All metadata of one store: trees of pages, cached in memory within a budget, and the changes to them.
//!
//! All modifications go through [`Meta::apply`]. A live transaction and the replay of its record run the same
//! code on the same [`Change`](change::Change)s, so replay reproduces the state.
//!
//! | parts that know no other | contents |
//! | --- | --- |
//! | `table` | onodes in memory by slot, with a hint table from object hashes to slots |
//! | `colls`, `numbers` | records of collections; numbers of objects and collections, which are never reused |
//! | `cache`, `staging` | pages in memory by slot, and their eviction; pages that were read and are in no tree yet |
//! | `asking` | questions to the metadata, and their answers |
//! | `alloc` | allocation of metadata and data blocks, and the way in which a block becomes free |
//! | `writeback` | dirty pages by level, and encoded metadata in flight to the device |
//!
//! | the tree of a shard | contents |
//! | --- | --- |
//! | `key` | keys: one order for everything that a shard stores |
//! | `tree`, `inner`, `seps` | the tree and the places of its pages; pages of pointers; their separators |
//! | `page` | the unit in which metadata is stored, dirtied, cached and checkpointed |
//! | `scan` | ranges of the tree: what a question needs of them, walks, removal at once |
//! | `need` | pages that a change needs in memory |
//!
//! | by kind of row | contents |
//! | --- | --- |
//! | `objects`, `object` | objects of collections in hash order; one object, in memory and stored |
//! | `parts` | places of a collection's objects; splits and merges of collections by reference |
//! | `blocks`, `map`, `packed` | data of an object: its block map, one chunk of it, compressed extents |
//! | `refs`, `used` | reference counts of shared blocks; the map of used blocks in checkpoints |
//! | `omap`, `leaf` | omaps, in the onode or in leaves; the keys and values of one leaf |
//! | `pglog`, `entries` | log entries by version; those of one leaf |
//! | `undo`, `undo_record` | map entries that a log entry replaced, so that it can be undone; their stored form |
//!
//! | changes | contents |
//! | --- | --- |
//! | `change`, `apply` | changes in the form of the log, and their application, live or from the log |
//! | `salvage` | work on damaged metadata while a store is rebuilt |
//!
//! Invariants:
//!  1. Reference counts alone decide when a block is free; a block of an object not marked as shared has one reference.
//!  2. A collection's `usage` equals the sums over its objects at every moment.
//!
//! Tests: the check of `tests/model.rs` (1, 2), `tests/histories.rs` (1; planted bug `StoreForgetReference`).

pub(crate) mod alloc;
mod apply;
pub(crate) mod asking;
pub(crate) mod blocks;
pub(crate) mod cache;
pub(crate) mod change;
pub(crate) mod colls;
pub(crate) mod entries;
pub(crate) mod inner;
pub(crate) mod key;
pub(crate) mod leaf;
pub(crate) mod map;
pub(crate) mod need;
pub(crate) mod numbers;
pub(crate) mod object;
pub(crate) mod objects;
pub(crate) mod omap;
pub(crate) mod packed;
pub(crate) mod page;
pub(crate) mod parts;
pub(crate) mod pglog;
pub(crate) mod refs;
pub(crate) mod salvage;
pub(crate) mod scan;
mod seps;
pub(crate) mod staging;
pub(crate) mod table;
pub(crate) mod tree;
pub(crate) mod undo;
pub(crate) mod undo_record;
pub(crate) mod used;
pub(crate) mod writeback;

use crate::layout::{BLOCK, Layout, SHARDS};
use crate::space::Space;
use alloc::Alloc;
use asking::{Asking, Needs};
use cache::Cache;
use colls::Colls;
pub(crate) use colls::{Coll, Part, Parts, Usage};
use numbers::Numbers;
use rustc_hash::FxHashMap;
use staging::Staging;
use std::sync::Arc;
use table::Table;
use tree::Shard;
use writeback::Writeback;

/// Blocks that count in the headroom for a leaf with its split-off sibling; `INNER_BLOCKS` is the same for an
/// inner page.
const LEAF_BLOCKS: u64 = 6;
const INNER_BLOCKS: u64 = 6;

/// Metadata of one store; see the module.
pub(crate) struct Meta {
    layout: Layout,
    numbers: Numbers,
    colls: Colls,
    objects: Table,
    /// Roots of the trees, by shard.
    shards: Vec<Shard>,
    /// At least the highest level of them.
    levels: u8,
    pages: Cache,
    staging: Staging,
    alloc: Alloc,
    writeback: Writeback,
    asking: Asking,
    /// Last leaf of each log that is in memory.
    tails: FxHashMap<u64, u32>,
    /// Undo data of the transaction that is being applied.
    keeping: undo::Keeping,
    /// Pages that the running transaction emptied: slot and `uniq`.
    empty: Vec<(u32, u64)>,
    /// Description of an inconsistency, once one is found.
    bad: Option<String>,
    /// See [`Meta::steps`].
    steps: u64,
    /// See [`Meta::visits`].
    visits: u64,
    scratch: Vec<u8>,
    /// True during replay: a block is marked as used when a record refers to it.
    replay: bool,
    /// Set while metadata is rebuilt: missing data is skipped instead of being an error.
    salvage: Option<salvage::Salvage>,
    /// Most kids of an inner page.
    kids_max: usize,
    /// True if there may be compressed extents: the store's root says so.
    packs: bool,
    /// Blocks of extents that the running change maps, less those it unmaps.
    packed: packed::Packed,
}

impl Meta {
    /// Metadata of one reactor of `reactors`, without any trees.
    pub(crate) fn new(layout: Layout, space: Arc<Space>, reactor: u16, reactors: u16) -> Self {
        Self {
            layout,
            numbers: Numbers::new(reactor, reactors),
            colls: Colls::default(),
            objects: Table::default(),
            shards: vec![Shard::default(); usize::from(SHARDS)],
            levels: Shard::default().level,
            pages: Cache::default(),
            staging: Staging::default(),
            alloc: Alloc::new(space),
            writeback: Writeback::default(),
            asking: Asking::default(),
            tails: FxHashMap::default(),
            keeping: undo::Keeping::default(),
            empty: Vec::new(),
            bad: None,
            steps: 0,
            visits: 0,
            scratch: Vec::new(),
            replay: true,
            salvage: None,
            kids_max: tree::KIDS_MAX,
            packs: false,
            packed: packed::Packed::default(),
        }
    }

    /// Layout of the device.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The device has grown.
    pub(crate) fn set_layout(&mut self, layout: Layout) {
        self.layout = layout;
    }

    pub(crate) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Gives the next object this number, or a higher one.
    pub(crate) fn continue_numbers(&mut self, next: u64) {
        self.numbers.go_on(next);
    }

    pub(crate) fn colls(&self) -> &Colls {
        &self.colls
    }

    pub(crate) fn objects(&self) -> &Table {
        &self.objects
    }

    /// An object by slot, for a repair.
    pub(crate) fn object_mut(&mut self, id: u32) -> Option<&mut object::Object> {
        self.objects.get_mut(id as usize)
    }

    /// Roots of the trees, by shard.
    pub(crate) fn roots(&self) -> &[Shard] {
        &self.shards
    }

    /// Sets the root of a shard's tree, for opening.
    pub(crate) fn set_root(&mut self, shard: u8, root: Shard) {
        self.levels = self.levels.max(root.level);
        if let Some(s) = self.shards.get_mut(usize::from(shard)) {
            *s = root;
        }
    }

    pub(crate) fn pages(&self) -> &Cache {
        &self.pages
    }

    /// A page by slot, to pin it.
    pub(crate) fn page_mut(&mut self, id: u32) -> Option<&mut page::Page> {
        self.pages.get_mut(id as usize)
    }

    /// A page that a question has put in place, to pin it, unless another one has its slot.
    pub(crate) fn same_page(&mut self, page: (u32, u64)) -> Option<&mut page::Page> {
        self.pages.same(page)
    }

    pub(crate) fn staging(&self) -> &Staging {
        &self.staging
    }

    pub(crate) fn staging_mut(&mut self) -> &mut Staging {
        &mut self.staging
    }

    pub(crate) fn alloc(&self) -> &Alloc {
        &self.alloc
    }

    pub(crate) fn alloc_mut(&mut self) -> &mut Alloc {
        &mut self.alloc
    }

    pub(crate) fn writeback(&self) -> &Writeback {
        &self.writeback
    }

    pub(crate) fn writeback_mut(&mut self) -> &mut Writeback {
        &mut self.writeback
    }

    /// Steps that applying all changes again would take: one per change, key and reference, and
    /// [`PAGE_STEPS`](page::PAGE_STEPS) for each page that became dirty and has to be brought. A few bytes of
    /// log may need a thousand steps.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// Kids of inner pages that were looked at to bring or drop ranges of leaves.
    pub(crate) fn visits(&self) -> u64 {
        self.visits
    }

    /// The logs are replayed: records that follow find their blocks marked as used.
    pub(crate) fn end_replay(&mut self) {
        self.replay = false;
    }

    /// True if there may be compressed extents.
    pub(crate) fn packs(&self) -> bool {
        self.packs
    }

    pub(crate) fn set_packs(&mut self, packs: bool) {
        self.packs = packs;
    }

    pub(crate) fn set_kids_max(&mut self, kids: usize) {
        self.kids_max = kids;
    }

    /// Metadata is rebuilt from now on: missing data is skipped instead of being an error.
    pub(crate) fn begin_salvage(&mut self) {
        self.salvage = Some(salvage::Salvage::default());
    }

    pub(crate) fn is_salvaged(&self) -> bool {
        self.salvage.is_some()
    }

    /// The losses of a rebuild, which ends.
    pub(crate) fn take_salvage(&mut self) -> Option<salvage::Salvage> {
        self.salvage.take()
    }

    /// Updates the headroom for checkpoints.
    pub(crate) fn update_headroom(&mut self) {
        self.alloc.update_headroom(self.pages.dirty_mem(), self.writeback.pages());
    }

    /// Most blocks by which a transaction of `ops` changes and `bytes` raises the headroom: for each change a
    /// leaf and the pages above it, and the needs that were found.
    pub(crate) fn headroom_for(&self, ops: usize, bytes: usize, needs: Needs) -> u64 {
        let levels = u64::from(self.levels);
        debug_assert!(self.shards.iter().all(|s| s.level <= self.levels), "no tree is higher than is known");
        2 * (ops as u64 * (LEAF_BLOCKS + INNER_BLOCKS * levels) + 2 * (bytes as u64).div_ceil(BLOCK) + needs.touches)
    }

    /// Encodes up to `n` pages of the map of used blocks, then of its index. Returns false when all are done.
    pub(crate) fn store_used(&mut self, n: usize) -> bool {
        self.alloc.store_used(n, &mut self.writeback)
    }
}
