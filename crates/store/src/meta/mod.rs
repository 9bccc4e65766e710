//! All metadata of one store: trees of pages, cached in memory within a budget, and how a change alters them.
//!
//! [`Meta::apply`] is the only way in: a live transaction and the replay of its record run the same code on the same
//! [`Change`](change::Change)s, so what replay builds is what was there.
//!
//! Parts that know nothing of each other: `numbers` (given to objects), `colls` (collections), `table` (onodes by slot), `cache` (pages by slot),
//! `staging` (pages read), `asking` (what questions come to), `alloc` (blocks), `writeback` (what is dirty and on its way). What joins them:
//! `tree` (where pages are), `page` (their content and stored form), by kind `objects`, `parts`, `omap`, `blocks` (where
//! the data of an object is), `refs` (how often a shared block is used), `pglog`, `undo`;
//! `need` (what changes need in memory) and `apply` (changes); `salvage` (going without what was lost).
//!
//! Invariants:
//!  1. Reference counts alone decide when a block is free; a block of an object not marked as shared has one reference.
//!  2. A collection's `usage` equals the sums over its objects at every moment.

pub(crate) mod alloc;
mod apply;
pub(crate) mod asking;
pub(crate) mod blocks;
pub(crate) mod cache;
pub(crate) mod change;
pub(crate) mod colls;
pub(crate) mod entries;
pub(crate) mod key;
pub(crate) mod leaf;
pub(crate) mod map;
pub(crate) mod need;
pub(crate) mod numbers;
pub(crate) mod object;
pub(crate) mod objects;
pub(crate) mod omap;
pub(crate) mod page;
pub(crate) mod parts;
pub(crate) mod pglog;
pub(crate) mod refs;
pub(crate) mod salvage;
mod seps;
pub(crate) mod staging;
pub(crate) mod table;
pub(crate) mod tree;
pub(crate) mod undo;
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

/// Blocks of a leaf with its like of a split, and of an inner page, as they count in the headroom.
const LEAF_BLOCKS: u64 = 6;
const INNER_BLOCKS: u64 = 6;

/// See the module.
pub(crate) struct Meta {
    pub(crate) layout: Layout,
    pub(crate) numbers: Numbers,
    pub(crate) colls: Colls,
    pub(crate) objects: Table,
    /// Roots of the trees.
    pub(crate) shards: Vec<Shard>,
    pub(crate) pages: Cache,
    pub(crate) staging: Staging,
    pub(crate) alloc: Alloc,
    pub(crate) writeback: Writeback,
    asking: Asking,
    /// Last leaf of each log, while it is in memory.
    tails: FxHashMap<u64, u32>,
    /// What the transaction that is being applied replaces is kept.
    keeping: undo::Keeping,
    /// Pages that became empty in this transaction: slot and `uniq`.
    empty: Vec<(u32, u64)>,
    /// Something stored does not hold together.
    bad: Option<String>,
    /// What applying all changes again would take, in steps: changes, keys and references, and [`PAGE_STEPS`](page::PAGE_STEPS) for each page that
    /// became dirty and will have to be brought. A few bytes of log may take a thousand of them.
    pub(crate) steps: u64,
    scratch: Vec<u8>,
    /// Replaying: blocks are marked as used when a record names them.
    pub(crate) replay: bool,
    /// What is gone is gone without: metadata is being rebuilt.
    pub(crate) salvage: Option<salvage::Salvage>,
    /// Kids of an inner page at most.
    pub(crate) kids_max: usize,
}

impl Meta {
    /// Of one reactor of so many, without any trees.
    pub(crate) fn new(layout: Layout, space: Arc<Space>, reactor: u16, reactors: u16) -> Self {
        Self {
            layout,
            numbers: Numbers::new(reactor, reactors),
            colls: Colls::default(),
            objects: Table::default(),
            shards: vec![Shard::default(); usize::from(SHARDS)],
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
            scratch: Vec::new(),
            replay: true,
            salvage: None,
            kids_max: tree::KIDS_MAX,
        }
    }

    /// Brings up to date what stays free for checkpoints.
    pub(crate) fn update_headroom(&mut self) {
        self.alloc.update_headroom(self.pages.dirty_mem(), self.writeback.pages());
    }

    /// Blocks by which a transaction of so many operations and bytes raises the headroom at most: for each operation a leaf
    /// and the way to it, and what it was found to need.
    pub(crate) fn headroom_for(&self, ops: usize, bytes: usize, needs: Needs) -> u64 {
        let levels = self.shards.iter().map(|s| u64::from(s.level)).max().unwrap_or(1);
        2 * (ops as u64 * (LEAF_BLOCKS + INNER_BLOCKS * levels) + 2 * (bytes as u64).div_ceil(BLOCK) + needs.touches)
    }

    /// Encodes up to `n` pages of the map of used blocks, then of its index; false when all are done.
    pub(crate) fn store_used(&mut self, n: usize) -> bool {
        self.alloc.used.store(n, &mut self.writeback)
    }
}
