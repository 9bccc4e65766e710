//! The engine: an [`crate::ObjectStore`] on a device, sans I/O.
//!
//! A loop turn: calls of the interface, [`Store::handle_io`] for completions, then one [`Store::end_turn`], then
//! [`Store::poll_io`] until empty. `end_turn` closes the open frame: data writes, the frame, and one flush leave together.
//! Opening and formatting are sequential and take a [`device::Device`].
//!
//! Parts: `prepare` (needs of a transaction), `early` (data of large writes), `perform` (operations to
//! changes), `suspend` (a transaction that misses a page), `read`, `log` (frames in flight), `commit` (group
//! commit and completions), `requests` (device requests), `room` (free blocks), `pages` (pages that plans miss), `fence` (places for
//! each kind of write), `fill` (file blocks in advance), `checkpoint`, `open`, `replay` (the logs), `format`,
//! `grow`, `rebuild` (repair after lost metadata pages). Metadata is in `crate::meta`.
//!
//! Invariants (letters as in docs/design/store-format.md):
//!  1. A transaction is acknowledged when its frame, all earlier frames and all data they name are durable, in order.
//!  2. A block is written once between its allocation and its release. It is released only after a checkpoint
//!     that no longer needs it is durable (e).
//!  3. No byte is returned that does not match its block's checksum.
//!  4. After a failed write nothing is acknowledged and nothing is written.
//!  5. No write leaves the parts of the device that belong to its kind.

pub mod cache;
mod check;
mod checkpoint;
mod commit;
pub mod device;
mod early;
mod fence;
mod fill;
mod format;
mod grow;
mod log;
mod open;
mod pack;
mod pages;
mod perform;
mod prepare;
mod read;
mod rebuild;
mod replay;
mod requests;
mod room;
mod runs;
mod suspend;

pub use device::Device;
pub use format::{FormatError, FormatOptions, format, grow, probe, relabel};
pub use grow::Growth;
pub use open::{OpenError, Replay, open, open_read_only, open_with};
use pages::Needs;
pub use rebuild::{Rebuilt, rebuild};
pub use replay::RingLog;
use requests::{Requests, Role};

use crate::api::{Event, Health, ObjectStat, ObjectStore, OmapPage, ReadError, Statfs, Tag};
use crate::compress::{Compression, Packer};
use crate::key::{Cid, Oid};
use crate::layout::BLOCK;
use crate::meta::Meta;
use crate::meta::object::Lost;
use crate::meta::omap::Entry;
use crate::meta::tree::{Ahead, KIDS_MAX};
use crate::space::{Space, Stream};
use crate::superblock::Superblock;
use crate::txn::Transaction;
use base::device::{IoCompletion, IoKind, IoRequest};
use base::errno::{self, Errno};
use base::{Eversion, PoolId};
use bytes::Bytes;
use cache::BlockCache;
use checkpoint::Checkpoint;
use log::Log;
use read::Plan;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use suspend::Suspended;

/// Run-time configuration of an engine, independent of the format.
#[derive(Clone, Debug)]
pub struct Config {
    /// Reactors that share the device.
    pub reactors: u16,
    /// Budget in bytes for the metadata of each reactor's store. Single transactions may exceed it.
    pub meta_bytes: usize,
    /// Bytes of blocks cached for sub-block writes and re-reads.
    pub cache_bytes: usize,
    /// Bytes more of data that was read; see [`Store::set_data_bytes`].
    pub data_bytes: usize,
    /// Least bytes of whole blocks that a write needs to be written before its transaction enters a frame.
    pub early_bytes: usize,
    /// Most group commits in flight; above it the open frame waits and grows. The frame also waits while the newest
    /// commit in flight has more transactions than the frame, or more than four.
    pub commits_max: usize,
    /// Log bytes after which a checkpoint starts, at most half of the log's limit.
    pub checkpoint_log_bytes: u64,
    /// Most log bytes that a restart may have to replay, whatever the length of the ring. Beyond it
    /// transactions wait for a checkpoint.
    pub log_bytes_max: u64,
    /// Most steps ([`Replayed::steps`]) that a restart may have to replay. Beyond it transactions wait for a
    /// checkpoint, which starts at half of them. A step takes 0.6 to 1.3 us.
    pub replay_steps_max: u64,
    /// Bytes of metadata that a checkpoint encodes in one turn.
    pub checkpoint_turn_bytes: usize,
    /// Most bytes of metadata that a checkpoint has in flight.
    pub checkpoint_flight_bytes: usize,
    /// Discard freed blocks before they are allocated again.
    pub discard: bool,
    /// Ask the host to allocate file blocks before small data is written there ([`Store::poll_fill`]). For
    /// devices that are files.
    pub fill: bool,
    /// Allocate the lowest free blocks in every turn, so that freed blocks are soon overwritten. For crash
    /// tests.
    pub first_fit: bool,
    /// Most kids of an inner page, at least 2. A small number makes deep trees, for tests.
    pub kids_max: usize,
    /// Prepare only the first operation of a transaction, so that the others miss pages. For tests.
    pub prepare_less: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            reactors: 1,
            meta_bytes: 256 << 20,
            cache_bytes: 8 << 20,
            data_bytes: 0,
            early_bytes: 64 << 10,
            commits_max: 2,
            checkpoint_log_bytes: 256 << 20,
            log_bytes_max: 256 << 20,
            replay_steps_max: 4_000_000,
            checkpoint_turn_bytes: 256 << 10,
            checkpoint_flight_bytes: 2 << 20,
            discard: false,
            fill: false,
            first_fit: false,
            kids_max: KIDS_MAX,
            prepare_less: false,
        }
    }
}

/// Least log bytes of one reactor.
pub const LOG_BYTES_MIN: u64 = 16 << 20;
/// Least replay steps of a log: as many as 16 MiB of overwrites need, some of them in pages of their own.
pub const REPLAY_STEPS_MIN: u64 = 500_000;
/// Number of logs that are replayed in parallel in the time of one, each on its core.
const LOGS_SIDE_BY_SIDE: u64 = 4;
/// Payload bytes that an idle store keeps allocated.
const PAYLOAD_KEPT: usize = 16 << 10;
/// Least memory in bytes of one reactor's store, for metadata and for blocks.
const MEMORY_MIN: (usize, usize) = (4 << 20, 1 << 20);

impl Config {
    /// Configuration for `reactors` on `cores` with `bytes` of memory in total, one sixteenth for data and the rest for
    /// metadata, and `data` bytes more for data. If reactors outnumber cores, or are many, they also share the log limits, since their
    /// logs are replayed in parallel from one device.
    #[must_use]
    pub fn for_memory(reactors: u16, cores: usize, bytes: u64, data: u64) -> Self {
        let each = usize::try_from(bytes / u64::from(reactors.max(1))).unwrap_or(usize::MAX);
        let n = u64::from(reactors.max(1));
        let share = |of: u64| of * n.min(cores.max(1) as u64).min(LOGS_SIDE_BY_SIDE) / n;
        let (log, steps) = (share(Self::default().log_bytes_max), share(Self::default().replay_steps_max));
        let cache_bytes = (each / 16).max(MEMORY_MIN.1);
        let meta_bytes = each.saturating_sub(cache_bytes).max(MEMORY_MIN.0);
        let data_bytes = usize::try_from(data / n).unwrap_or(usize::MAX);
        let (log_bytes_max, replay_steps_max) = (log.max(LOG_BYTES_MIN), steps.max(REPLAY_STEPS_MIN));
        Self { reactors, meta_bytes, cache_bytes, data_bytes, log_bytes_max, replay_steps_max, ..Self::default() }
    }
}

/// Counts of pieces of data that were to be compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packing {
    /// Extents written compressed.
    pub packed: u64,
    /// Pieces that did not become small enough.
    pub unpackable: u64,
}

/// Counters for metrics. All of them only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transactions submitted.
    pub txns: u64,
    /// Frames written.
    pub frames: u64,
    /// Bytes of frames written.
    pub log_bytes: u64,
    /// Data blocks written.
    pub data_blocks: u64,
    /// Data write requests.
    pub data_writes: u64,
    /// Read requests.
    pub reads: u64,
    /// Flush requests.
    pub flushes: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Metadata blocks written.
    pub page_blocks: u64,
    /// Block maps of which a checkpoint stored only the changes.
    pub late_chunks: u64,
    /// Read requests for metadata pages.
    pub page_reads: u64,
    /// Metadata pages evicted from memory.
    pub evictions: u64,
    /// Metadata pages that could not be read or were inconsistent.
    pub bad_pages: u64,
    /// Blocks whose checksum did not match.
    pub bad_blocks: u64,
    /// Blocks of reads that were answered from memory.
    pub cached_blocks: u64,
    /// Times a transaction waited for log or space.
    pub stalls: u64,
    /// Times a transaction missed a page or block while it was applied.
    pub suspensions: u64,
    /// Most steps of one turn besides metadata pages: runs entered into the map of used blocks, its pages given
    /// places, runs released.
    pub turn_steps_max: u64,
    /// Kids of inner pages of the trees that were looked at to bring or drop ranges of leaves.
    pub visits: u64,
    /// Words of the free-space bitmap and groups of blocks examined to find free blocks.
    pub searched: u64,
}

/// The object store of one reactor; see the module.
pub struct Store {
    cfg: Config,
    sb: Superblock,
    space: Arc<Space>,
    meta: Meta,
    /// Allocation streams for small and for large writes.
    small: Stream,
    large: Stream,
    filling: fill::Filling,
    /// Frames, and their contents that are not durable yet.
    log: Log,
    /// Requests to the device.
    io: Requests,
    events: VecDeque<Event>,
    plans: FxHashMap<Tag, Plan>,
    plan_gen: u64,
    /// Metadata pages that plans miss.
    needs: Needs,
    cache: BlockCache,
    checkpoint: Checkpoint,
    /// Plans that wait for a checkpoint to make room.
    parked: Vec<Tag>,
    room: room::Room,
    /// Counts events that may change which pages are in memory or needed.
    changes: u64,
    /// Blocks reserved for metadata that this turn made dirty, until the turn's end counts it.
    meta_held: u64,
    suspended: Option<Box<Suspended>>,
    growing: Option<grow::Growing>,
    /// How pools are compressed; few have settings.
    compression: Vec<(PoolId, Compression)>,
    packer: Box<Packer>,
    health: Health,
    counters: Counters,
    packing: Packing,
    replayed: Replayed,
}

/// Amount of log that opening a store replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Bytes of the frames.
    pub bytes: u64,
    /// Number of transactions.
    pub txns: u64,
    /// Cost of the replay: one step per change, key and reference, and for each page that became dirty as many
    /// as reading it may take. Replay time depends on these more than on bytes: the record of a clone is short
    /// but counts each of its blocks.
    pub steps: u64,
}

impl Store {
    /// Events that wait to be polled.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    /// Next request for the device.
    pub fn poll_io(&mut self) -> Option<IoRequest> {
        self.io.next()
    }

    /// True if requests wait to be polled.
    #[must_use]
    pub fn has_io(&self) -> bool {
        !self.io.queue.is_empty()
    }

    /// True if nothing is in flight, nothing waits for `end_turn`, and no checkpoint runs or is requested. A
    /// failed store is idle once its requests have completed.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let at_rest = self.log.records == 0 && self.log.commits.is_empty();
        let busy = self.checkpoint.active() || (self.checkpoint.urgent && self.checkpoint_due());
        self.io.under_way.is_empty() && self.io.queue.is_empty() && (self.failed().is_some() || (at_rest && !busy))
    }

    /// Superblock of the device.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.sb
    }

    /// Condition of the store.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Undo records of a collection, and the bytes of data they keep.
    #[must_use]
    pub fn kept_usage(&self, cid: Cid) -> (u64, u64) {
        let u = self.meta.coll(cid).map_or_else(Default::default, |c| self.meta.undo_of(c));
        (u.records, u.blocks.saturating_mul(BLOCK))
    }

    /// Counters of this store.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { visits: self.meta.visits, ..self.counters }
    }

    /// Pieces of data that were to be compressed, as counted since the store was opened.
    #[must_use]
    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// Frees memory that is kept for later use, including this thread's buffers. For an idle thread.
    pub fn release_memory(&mut self) {
        self.log.payload.shrink_to(PAYLOAD_KEPT);
        base::buf::release();
    }

    /// Sets the answer of [`ObjectStore::is_short`].
    pub fn set_short(&mut self, short: bool) {
        self.room.short = short;
    }

    /// Changes the bytes for data, of all reactors together, that [`Config::for_memory`] was given.
    pub fn set_data_bytes(&mut self, data: u64) {
        self.cfg.data_bytes = usize::try_from(data / u64::from(self.cfg.reactors.max(1))).unwrap_or(usize::MAX);
        self.cache.set_max(self.cfg.cache_bytes.saturating_add(self.cfg.data_bytes));
    }

    /// Frees some of the data that exceeds a smaller budget: a bounded part of it at a time.
    pub fn shrink_data(&mut self) {
        self.cache.shrink();
    }

    /// Bytes of data in memory.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        self.cache.bytes()
    }

    /// Changes [`Config::discard`].
    pub fn set_discard(&mut self, discard: bool) {
        self.cfg.discard = discard;
    }

    /// Requests a checkpoint with the next turn, for a quick restart after a clean stop. False if there is nothing to
    /// write: none will come before the next change.
    pub fn request_checkpoint(&mut self) -> bool {
        self.checkpoint.urgent = true;
        self.checkpoint.will_end() || self.checkpoint_due()
    }

    /// Log bytes that a restart would replay.
    #[must_use]
    pub fn replay_bytes(&self) -> u64 {
        self.log.ring.used * BLOCK
    }

    /// Amount of log that opening replayed. Its steps and the time taken tell the host how much log a restart
    /// can replay.
    #[must_use]
    pub fn replayed(&self) -> Replayed {
        self.replayed
    }

    /// Changes [`Config::replay_steps_max`].
    pub fn set_replay_steps_max(&mut self, steps: u64) {
        self.cfg.replay_steps_max = steps;
    }

    /// Most log bytes in use: the configured limit, at most the whole ring.
    fn log_max(&self) -> u64 {
        self.cfg.log_bytes_max.min(self.log.ring.blocks * BLOCK)
    }

    fn request(&mut self, role: Role, kind: IoKind) {
        if fence::changes(&kind) && !self.within_fence(&role, &kind) {
            return;
        }
        self.io.ask(role, kind);
    }

    fn set_health(&mut self, h: Health) {
        // A failed store stays failed.
        if self.health != h && !matches!(self.health, Health::Failed { .. }) {
            self.health = h.clone();
            self.events.push_back(Event::Health(h));
        }
    }

    fn failed(&self) -> Option<Errno> {
        match &self.health {
            Health::Failed { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// Turns the store into a failed one. Callers that wait for durability get the errno.
    fn fail(&mut self, what: String, errno: Errno) {
        if self.failed().is_some() {
            return;
        }
        tracing::error!(what, errno = errno::name(errno), "object store failed; no write will be acknowledged");
        self.set_health(Health::Failed { what, errno });
        let open = std::mem::take(&mut self.log.tags);
        let commits = std::mem::take(&mut self.log.commits);
        let behind = self.abandon_suspended();
        for t in commits.into_iter().flat_map(|c| c.tags).chain(open).chain(behind) {
            self.events.push_back(Event::Durable(t, Err(errno)));
        }
        let crowd = std::mem::take(&mut self.needs.crowd).into_iter().map(|c| c.0);
        self.events.extend(std::mem::take(&mut self.parked).into_iter().chain(crowd).map(Event::Ready));
        self.log.payload.clear();
        self.log.records = 0;
        // Data in flight stays readable, since memory still refers to it.
        self.log.pending.clear();
        self.checkpoint.abandon();
        self.share_coming();
        self.space.note_release();
        self.abandon_growing();
    }

    /// Handles the completion of a request.
    pub fn handle_io(&mut self, c: IoCompletion) {
        let Some(role) = self.io.done(c.id) else {
            return tracing::warn!(id = c.id.0, "completion of an unknown request");
        };
        match role {
            Role::Read { tag, plan, first, n } => {
                self.read_done(tag, plan, first, n, c.result);
                return self.resume();
            }
            Role::Load { load, part } => {
                self.load_done(load, part, c.result);
                return self.resume();
            }
            _ => {}
        }
        if let (Err(e), false) = (&c.result, matches!(role, Role::Discard { .. })) {
            let what = match &role {
                Role::Data { first, .. } | Role::Early { first, .. } => format!("write of data at block {first}"),
                Role::Commit { seq } => format!("write or flush of log frame {seq}"),
                _ => "write or flush of a checkpoint".into(),
            };
            self.fail(what, *e);
            if let Role::Early { tag, plan, first, n } = role {
                // The waiting caller learns of the error when it repeats its plan.
                self.early_done(tag, plan, first, n);
            }
            return;
        }
        match role {
            Role::Read { .. } | Role::Load { .. } => {}
            // Blocks become free even if the device can't discard them.
            Role::Discard { first, n } => self.discarded(first, n),
            Role::Early { tag, plan, first, n } => self.early_done(tag, plan, first, n),
            Role::Data { seq, first, n } => {
                self.log.data_done(first, n);
                self.commit_part_done(seq);
            }
            Role::Commit { seq } => self.commit_part_done(seq),
            Role::Page { bytes, write } => self.pages_written(bytes, write),
            Role::Root => self.checkpoint.roots -= 1,
            Role::CheckpointFlush => self.checkpoint.flushed = true,
            Role::Growth => self.growth_part_done(),
        }
        // Done here and not at the turn's end, so that callers waiting for room are told with the events of
        // these completions.
        self.finish_if_done();
    }

    /// Ends the loop turn: closes the open frame if a commit slot is free and moves the checkpoint on.
    pub fn end_turn(&mut self) {
        if self.failed().is_some() {
            return;
        }
        if let Some(block) = self.space.freed_twice() {
            return self.fail(format!("block {block} was freed while it was free"), errno::EIO);
        }
        if self.cfg.first_fit {
            self.space.rewind(&mut self.small);
            self.space.rewind(&mut self.large);
            self.space.rewind(&mut self.meta.alloc.stream);
        }
        if self.log.records > 0 && self.suspended.is_none() {
            self.settle_headroom();
        }
        self.changes += 1;
        if self.log.may_commit(self.cfg.commits_max) && self.suspended.is_none() {
            self.close_frame();
        }
        self.share_coming();
        self.heed_others();
        self.step_checkpoint();
        self.let_in_if_at_rest();
        self.evict();
        self.counters.evictions = self.meta.pages.evictions();
        self.counters.late_chunks = self.meta.writeback.late_chunks;
        self.counters.searched = self.small.looked + self.large.looked + self.meta.alloc.stream.looked;
    }

    /// Next place of the log: offset and length in bytes, at most `max`, and up to the ring's end or the part
    /// still needed.
    #[must_use]
    pub fn log_ahead(&self, max: u64) -> (u64, u64) {
        let r = &self.log.ring;
        let n = r.free().min(r.blocks - r.head.pos).min(max / BLOCK);
        ((r.start + r.head.pos) * BLOCK, n * BLOCK)
    }

    /// Bytes of memory for metadata, including pages being read, the map of used blocks and a share of the bitmap. Buffers of a checkpoint are extra
    /// ([`Config::checkpoint_flight_bytes`]).
    #[must_use]
    pub fn meta_memory(&self) -> usize {
        self.meta.pages.mem() + self.meta.staging.bytes() + self.needs.loading_bytes + self.maps_memory()
    }

    /// Bytes of memory of the map of used blocks, with a share of the bitmap of free blocks.
    fn maps_memory(&self) -> usize {
        self.meta.alloc.used.mem() + self.space.mem() / usize::from(self.cfg.reactors.max(1))
    }

    fn evict(&mut self) {
        // Pages keep half of the memory on devices with large maps.
        let maps = self.maps_memory().min(self.cfg.meta_bytes / 2);
        let others = self.needs.loading_bytes + self.meta.staging.bytes() + maps;
        self.meta.evict(self.cfg.meta_bytes.saturating_sub(others));
    }

    fn object(&mut self, tag: Tag, cid: Cid, oid: &Oid) -> Result<u32, ReadError> {
        self.in_order(tag)?;
        let coll = self.meta.coll(cid).ok_or(ReadError::NoObject)?;
        if let Some(id) = self.plans.get(&tag).and_then(|p| p.object)
            && self.meta.is_object(id, coll, oid)
        {
            return Ok(id);
        }
        self.with_meta(tag, |m| m.look(coll, oid))?.ok_or(ReadError::NoObject)
    }

    /// Like [`Store::object`], for reading a map or an omap. Fails if part of it was lost.
    fn whole_object(&mut self, tag: Tag, cid: Cid, oid: &Oid, lost: fn(Lost) -> bool) -> Result<u32, ReadError> {
        let id = self.object(tag, cid, oid)?;
        match self.meta.objects.get(id as usize) {
            Some(o) if lost(o.lost) => Err(self.damaged_object(id)),
            _ => Ok(id),
        }
    }

    fn obj(&mut self, tag: Tag, cid: Cid, oid: &Oid) -> Result<&crate::meta::object::Object, ReadError> {
        let id = self.object(tag, cid, oid)?;
        self.meta.objects.get(id as usize).ok_or(ReadError::NoObject)
    }
}

impl ObjectStore for Store {
    fn collections(&self) -> Vec<(Cid, u32)> {
        let mut v: Vec<_> = self.meta.colls.iter().map(|(_, c)| (c.cid, c.bits)).collect();
        v.sort_unstable();
        v
    }

    fn stat(&mut self, tag: Tag, cid: Cid, oid: &Oid) -> Result<ObjectStat, ReadError> {
        let o = self.obj(tag, cid, oid)?;
        Ok(ObjectStat { size: o.size, allocated: o.mapped * BLOCK, omap: o.omap.bytes() })
    }

    fn read_device(&mut self, tag: Tag, cid: Cid, oid: &Oid, off: u64, len: u64) -> Result<Bytes, ReadError> {
        self.plan(tag).from_device = true;
        self.read(tag, cid, oid, off, len)
    }

    fn read(&mut self, tag: Tag, cid: Cid, oid: &Oid, off: u64, len: u64) -> Result<Bytes, ReadError> {
        self.read_summed(tag, cid, oid, off, len).map(|(b, _)| b)
    }

    fn read_summed(
        &mut self,
        tag: Tag,
        cid: Cid,
        oid: &Oid,
        off: u64,
        len: u64,
    ) -> Result<(Bytes, Option<u32>), ReadError> {
        let id = self.whole_object(tag, cid, oid, |l| l.map)?;
        let got = self.read_object(tag, id, off, len);
        if matches!(got, Err(ReadError::Wait))
            && let Some(p) = self.plans.get_mut(&tag)
        {
            p.object = Some(id);
        }
        got
    }

    fn extents(&mut self, tag: Tag, cid: Cid, oid: &Oid, off: u64, len: u64) -> Result<Vec<(u64, u64)>, ReadError> {
        let id = self.whole_object(tag, cid, oid, |l| l.map)?;
        let size = self.meta.objects.get(id as usize).map_or(0, |o| o.size);
        let end = off.saturating_add(len).min(size);
        let mut out: Vec<(u64, u64)> = Vec::new();
        if off >= end {
            return Ok(out);
        }
        let (b0, b1) = (off / BLOCK, (end - 1) / BLOCK + 1);
        self.with_meta(tag, |m| m.need_map(id, b0, b1, false).then_some(()))?;
        self.meta.map_each(id, b0, b1, |b, _, _| {
            let (from, to) = ((b * BLOCK).max(off), ((b + 1) * BLOCK).min(end));
            match out.last_mut() {
                Some(l) if l.0 + l.1 == from => l.1 += to - from,
                _ => out.push((from, to - from)),
            }
        });
        Ok(out)
    }

    fn attr(&mut self, tag: Tag, cid: Cid, oid: &Oid, name: &[u8]) -> Result<Option<Bytes>, ReadError> {
        Ok(self.obj(tag, cid, oid)?.attr(name).cloned())
    }

    fn attrs(&mut self, tag: Tag, cid: Cid, oid: &Oid) -> Result<Vec<(Bytes, Bytes)>, ReadError> {
        Ok(self.obj(tag, cid, oid)?.attrs.clone())
    }

    fn omap_header(&mut self, tag: Tag, cid: Cid, oid: &Oid) -> Result<Bytes, ReadError> {
        Ok(self.obj(tag, cid, oid)?.omap_header.clone())
    }

    fn omap_get(&mut self, tag: Tag, cid: Cid, oid: &Oid, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        let id = self.whole_object(tag, cid, oid, |l| l.omap)?;
        self.with_meta(tag, |m| m.omap_get(id, key))
    }

    fn omap_range(
        &mut self,
        tag: Tag,
        cid: Cid,
        oid: &Oid,
        from: &[u8],
        after: bool,
        max_entries: usize,
        max_bytes: usize,
    ) -> Result<OmapPage, ReadError> {
        let id = self.whole_object(tag, cid, oid, |l| l.omap)?;
        // One additional entry shows whether more follow.
        let ahead = Ahead { entries: (max_entries as u64).saturating_add(1), leaves: self.leaves_ahead(tag) };
        self.with_meta(tag, |m| {
            let mut page = OmapPage::default();
            let mut bytes = 0;
            m.omap_scan(id, from, after, ahead, |e: Entry<'_>| {
                if page.entries.len() >= max_entries || (bytes >= max_bytes && !page.entries.is_empty()) {
                    page.more = true;
                    return false;
                }
                bytes += e.len();
                page.entries.push(e.pair());
                true
            })?;
            Some(page)
        })
    }

    fn list(
        &mut self,
        tag: Tag,
        cid: Cid,
        start: &Oid,
        end: Option<&Oid>,
        max: usize,
    ) -> Result<(Vec<Oid>, Option<Oid>), ReadError> {
        self.in_order(tag)?;
        let coll = self.meta.coll(cid).ok_or(ReadError::NoObject)?;
        self.with_meta(tag, |m| m.list(coll, start, end.map(|e| &**e), max))
    }

    fn log_entries(&mut self, tag: Tag, cid: Cid, after: Eversion) -> Result<Vec<(Eversion, Bytes)>, ReadError> {
        self.in_order(tag)?;
        let coll = self.meta.coll(cid).ok_or(ReadError::NoObject)?;
        self.with_meta(tag, |m| m.log_after(coll, after))
    }

    fn kept(&mut self, tag: Tag, cid: Cid, oid: &Oid, version: Eversion) -> Result<bool, ReadError> {
        let id = self.object(tag, cid, oid)?;
        Ok(self.with_meta(tag, |m| m.size_kept(id, version))?.is_some())
    }

    fn pg_info(&mut self, tag: Tag, cid: Cid) -> Result<Option<Bytes>, ReadError> {
        self.in_order(tag)?;
        let coll = self.meta.coll(cid).ok_or(ReadError::NoObject)?;
        Ok(self.meta.colls.get(coll as usize).and_then(|c| c.info.as_deref()).map(Bytes::copy_from_slice))
    }

    fn prepare(&mut self, tag: Tag, txn: &Transaction) -> Result<(), ReadError> {
        self.in_order(tag)?;
        self.prepare_txn(tag, txn, false)
    }

    fn prepare_own(&mut self, tag: Tag, txn: &Transaction) -> Result<(), ReadError> {
        self.in_order(tag)?;
        self.prepare_txn(tag, txn, true)
    }

    fn submit(&mut self, tag: Tag, txn: Transaction) {
        self.perform_txn(tag, txn);
    }

    fn set_compression(&mut self, pool: PoolId, how: Option<Compression>) {
        self.compress_pool(pool, how);
    }

    fn compressed(&self) -> Vec<(PoolId, u64, u64)> {
        let bytes = |n: i64| n.max(0) as u64 * BLOCK;
        let pools = self.meta.packed_pools().into_iter();
        pools.filter_map(|(pool, p)| Some((pool?, bytes(p.original), bytes(p.stored)))).collect()
    }

    fn foresee(&mut self, hash: u32, off: u64) {
        self.meta.foresee(hash, off / BLOCK);
    }

    fn release(&mut self, tag: Tag) {
        self.end_plan(tag);
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn frame_max(&self) -> usize {
        // A record of its own in the frame.
        self.log.ring.payload_max().saturating_sub(crate::txn::RECORD_BYTES)
    }

    fn is_short(&self) -> bool {
        self.room.short
    }

    fn statfs(&self) -> Statfs {
        // What the next checkpoints release is available, and so is what the host fills.
        let coming = (self.space.lent() + self.space.coming()) * BLOCK;
        let total = self.space.total() * BLOCK;
        let metadata = (self.meta.alloc.page_blocks().max(0) as u64 + self.log.ring.blocks) * BLOCK;
        let used = total.saturating_sub(self.space.unreserved() * BLOCK + coming);
        let usage = self.meta.usage();
        Statfs {
            total,
            available: self.space.available() * BLOCK + coming,
            allocated: used.saturating_sub(self.space.metadata() * BLOCK),
            stored: usage.stored,
            omap: usage.omap,
            metadata,
        }
    }

    fn beside(&self, a: Cid, b: Cid) -> bool {
        let shard = |c| self.meta.coll(c).and_then(|c| self.meta.colls.get(c as usize)).map(|c| c.shard);
        shard(a).is_some_and(|s| shard(b) == Some(s))
    }

    fn collection_usage(&self, cid: Cid) -> (u64, u64, u64) {
        let u = self.meta.coll(cid).and_then(|c| self.meta.colls.get(c as usize)).map(|c| c.usage);
        u.map_or((0, 0, 0), |u| (u.objects, u.stored, u.omap))
    }
}
