//! The engine: an [`crate::ObjectStore`] on a device, sans I/O.
//!
//! A loop turn: calls of the interface, [`Store::handle_io`] for completions, then one [`Store::end_turn`], then
//! [`Store::poll_io`] until empty. `end_turn` closes the open frame: data writes, the frame, and one flush leave together.
//! Opening and formatting are sequential and take a [`device::Device`].
//!
//! Parts: `prepare` (what a transaction needs), `early` (data of large writes), `perform` (operations to changes), `suspend` (one that misses something), `read`, `log` (frames under way), `commit` (group commit and
//! completions), `requests` (for the device), `pages` (pages that plans miss), `fence` (where each kind of write may go), `checkpoint`, `open`, `replay` (the logs), `format`, `grow`, `rebuild` (what lost pages of metadata). Metadata is `crate::meta`.
//!
//! Invariants (letters as in docs/design/store-format.md):
//!  1. A transaction is acknowledged when its frame, all earlier frames and all data they name are durable, in order.
//!  2. A block is written once between its allocation and its release; nothing released before a checkpoint that no longer
//!     needs it is durable (e).
//!  3. No byte is returned that does not match its block's checksum.
//!  4. After a failed write nothing is acknowledged any more, and nothing further is written.
//!  5. No write leaves the parts of the device that are for its kind.

pub mod cache;
mod check;
mod checkpoint;
mod commit;
pub mod device;
mod early;
mod fence;
mod format;
mod grow;
mod log;
mod open;
mod pages;
mod perform;
mod prepare;
mod read;
mod rebuild;
mod replay;
mod requests;
mod suspend;

pub use device::Device;
pub use format::{FormatError, FormatOptions, format, grow, probe, relabel};
pub use grow::Growth;
pub use open::{OpenError, Replay, open, open_with};
use pages::Needs;
pub use rebuild::{Rebuilt, rebuild};
pub use replay::RingLog;
use requests::{Requests, Role};

use crate::api::{Event, Health, ObjectStat, ObjectStore, OmapPage, ReadError, Statfs, Tag};
use crate::key::{Cid, Oid};
use crate::layout::BLOCK;
use crate::meta::Meta;
use crate::meta::object::Lost;
use crate::meta::omap::Entry;
use crate::meta::tree::KIDS_MAX;
use crate::space::{Space, Stream};
use crate::superblock::Superblock;
use crate::txn::Transaction;
use base::Eversion;
use base::device::{IoCompletion, IoKind, IoRequest};
use base::errno::{self, Errno};
use bytes::Bytes;
use cache::BlockCache;
use checkpoint::Checkpoint;
use log::Log;
use read::Plan;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use suspend::Suspended;

/// How an engine is run. None of it is part of the format.
#[derive(Clone, Debug)]
pub struct Config {
    /// Reactors that share the device.
    pub reactors: u16,
    /// Bytes of metadata each reactor's store keeps in memory. Exceeded only by what single transactions need at once.
    pub meta_bytes: usize,
    /// Bytes of blocks kept for sub-block writes and re-reads.
    pub cache_bytes: usize,
    /// Writes of at least so many bytes in whole blocks are written before their transaction enters a frame.
    pub early_bytes: usize,
    /// Group commits in flight before the next frame waits and grows instead. It also waits behind one of several transactions, or of more than it has.
    pub commits_max: usize,
    /// Log bytes after which a checkpoint starts (half of what the log may have if that is less).
    pub checkpoint_log_bytes: u64,
    /// Log bytes that a restart may find, whatever the length of the ring: beyond it transactions wait for a checkpoint.
    pub log_bytes_max: u64,
    /// Steps ([`Replayed::steps`]) that a restart may find in the log, beyond which transactions wait for a checkpoint; it starts with half of them.
    /// A step takes 0.6 to 1.3 us.
    pub replay_steps_max: u64,
    /// Bytes of metadata a checkpoint encodes in one turn.
    pub checkpoint_turn_bytes: usize,
    /// Bytes of metadata a checkpoint has in flight at most.
    pub checkpoint_flight_bytes: usize,
    /// Tell the device about freed space, before it is given out again.
    pub discard: bool,
    /// Allocate the lowest free blocks every turn instead of walking on, so that freed blocks are written again soon: for
    /// tests of crashes.
    pub first_fit: bool,
    /// Kids of an inner page at most, from 2 on. Few make trees deep: for tests of that.
    pub kids_max: usize,
    /// Bring only what the first operation of a transaction needs, so that the others miss something: for tests of that.
    pub prepare_less: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            reactors: 1,
            meta_bytes: 256 << 20,
            cache_bytes: 8 << 20,
            early_bytes: 64 << 10,
            commits_max: 2,
            checkpoint_log_bytes: 256 << 20,
            log_bytes_max: 256 << 20,
            replay_steps_max: 4_000_000,
            checkpoint_turn_bytes: 256 << 10,
            checkpoint_flight_bytes: 2 << 20,
            discard: false,
            first_fit: false,
            kids_max: KIDS_MAX,
            prepare_less: false,
        }
    }
}

/// Least log of one reactor.
pub const LOG_BYTES_MIN: u64 = 16 << 20;
/// Least steps of its replay that a log may have: what 16 MiB of overwrites take, some of them in pages of their own.
pub const REPLAY_STEPS_MIN: u64 = 500_000;
/// So many logs are taken to be replayed in the time of one, each by a core.
const LOGS_SIDE_BY_SIDE: u64 = 4;
/// Room of the open frame that an idle store keeps.
const PAYLOAD_KEPT: usize = 16 << 10;
/// Least memory of one reactor's store for metadata and for blocks.
const MEMORY_MIN: (usize, usize) = (4 << 20, 1 << 20);

impl Config {
    /// For so many reactors on so many cores with `bytes` of memory together: one sixteenth for blocks, the rest for metadata. They share
    /// what the log may have, too, if they are more than cores, or many: their logs are replayed side by side, but from one device.
    #[must_use]
    pub fn for_memory(reactors: u16, cores: usize, bytes: u64) -> Self {
        let each = usize::try_from(bytes / u64::from(reactors.max(1))).unwrap_or(usize::MAX);
        let n = u64::from(reactors.max(1));
        let share = |of: u64| of * n.min(cores.max(1) as u64).min(LOGS_SIDE_BY_SIDE) / n;
        let (log, steps) = (share(Self::default().log_bytes_max), share(Self::default().replay_steps_max));
        let cache_bytes = (each / 16).max(MEMORY_MIN.1);
        let meta_bytes = each.saturating_sub(cache_bytes).max(MEMORY_MIN.0);
        let (log_bytes_max, replay_steps_max) = (log.max(LOG_BYTES_MIN), steps.max(REPLAY_STEPS_MIN));
        Self { reactors, meta_bytes, cache_bytes, log_bytes_max, replay_steps_max, ..Self::default() }
    }
}

/// Counters for metrics; all only grow.
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
    /// Chunks of block maps of which checkpoints stored the changes alone.
    pub late_chunks: u64,
    /// Requests for pages of metadata.
    pub page_reads: u64,
    /// Pages of metadata that left memory.
    pub evictions: u64,
    /// Pages of metadata that could not be read or did not hold together.
    pub bad_pages: u64,
    /// Blocks whose checksum did not match.
    pub bad_blocks: u64,
    /// Times a transaction had to wait for log or space.
    pub stalls: u64,
    /// Times a transaction missed something while it was applied.
    pub suspensions: u64,
    /// Most steps of one turn beside pages of metadata: runs entered into the map of used blocks, pages of it given places, runs released.
    pub turn_steps_max: u64,
    /// Words of the bitmap of free space and groups of blocks looked at to find free ones.
    pub searched: u64,
}

/// See the module.
pub struct Store {
    cfg: Config,
    sb: Superblock,
    space: Arc<Space>,
    meta: Meta,
    /// Where small writes go, and large ones.
    small: Stream,
    large: Stream,
    /// Frames, and what is in them and not durable yet.
    log: Log,
    /// Requests for the device.
    io: Requests,
    events: VecDeque<Event>,
    plans: FxHashMap<Tag, Plan>,
    plan_gen: u64,
    /// Pages of metadata that plans miss.
    needs: Needs,
    cache: BlockCache,
    checkpoint: Checkpoint,
    /// Plans that wait for a checkpoint to make room.
    parked: Vec<Tag>,
    /// Counts whatever may change which pages are in memory or needed.
    changes: u64,
    /// Blocks reserved for metadata that was dirtied in this turn, until it is counted.
    meta_held: u64,
    suspended: Option<Box<Suspended>>,
    growing: Option<grow::Growing>,
    health: Health,
    counters: Counters,
    replayed: Replayed,
}

/// What opening a store took from its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Bytes of frames.
    pub bytes: u64,
    /// Transactions.
    pub txns: u64,
    /// What it took: changes, keys and references one each, pages that became dirty so many as reading them may take. What time a log takes
    /// goes with these more than with its bytes: the record of a clone is short and counts each of its blocks.
    pub steps: u64,
}

impl Store {
    /// Events that wait to be polled.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    /// The next request for the device.
    pub fn poll_io(&mut self) -> Option<IoRequest> {
        self.io.next()
    }

    /// True if requests wait to be polled.
    #[must_use]
    pub fn has_io(&self) -> bool {
        !self.io.queue.is_empty()
    }

    /// True if nothing is in flight, nothing waits for `end_turn`, and no checkpoint is under way or asked for. A failed
    /// store is idle once its requests have completed.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let at_rest = self.log.records == 0 && self.log.commits.is_empty();
        let busy = self.checkpoint.active() || (self.checkpoint.urgent && self.checkpoint_due());
        self.io.under_way.is_empty() && self.io.queue.is_empty() && (self.failed().is_some() || (at_rest && !busy))
    }

    /// What the device is.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.sb
    }

    /// Condition.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// What the log of a collection keeps to undo its entries: records, and bytes of data.
    #[must_use]
    pub fn kept_usage(&self, cid: Cid) -> (u64, u64) {
        let u = self.meta.coll(cid).map_or_else(Default::default, |c| self.meta.undo_of(c));
        (u.records, u.blocks.saturating_mul(BLOCK))
    }

    /// Counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Frees memory that is kept for work to come, this thread's buffers included: for one that has little to do.
    pub fn release_memory(&mut self) {
        self.log.payload.shrink_to(PAYLOAD_KEPT);
        base::buf::release();
    }

    /// Starts a checkpoint with the next turn, for a quick restart after a clean stop.
    pub fn request_checkpoint(&mut self) {
        self.checkpoint.urgent = true;
    }

    /// Bytes a restart would replay.
    #[must_use]
    pub fn replay_bytes(&self) -> u64 {
        self.log.ring.used * BLOCK
    }

    /// What opening took from the log. Whoever has a clock tells by its steps how much log a restart can replay in time.
    #[must_use]
    pub fn replayed(&self) -> Replayed {
        self.replayed
    }

    /// Changes [`Config::replay_steps_max`].
    pub fn set_replay_steps_max(&mut self, steps: u64) {
        self.cfg.replay_steps_max = steps;
    }

    /// Bytes of log that may be in use: what was set, at most all of the ring.
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

    /// Turns the store into a failed one: whoever waits for durability gets the errno.
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
        // In-flight data stays readable: memory still refers to it.
        self.log.pending.clear();
        self.checkpoint.abandon();
        self.abandon_growing();
    }

    /// Takes the outcome of a request.
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
                // Whoever waits for it is told when it asks again.
                self.early_done(tag, plan, first, n);
            }
            return;
        }
        match role {
            Role::Read { .. } | Role::Load { .. } => {}
            // A device that can't is no reason to keep the blocks.
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
        // Here and not at the turn's end: whoever waits for room is told with the events of these completions.
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
        self.step_checkpoint();
        self.let_in_if_at_rest();
        self.evict();
        self.counters.evictions = self.meta.pages.evictions();
        self.counters.late_chunks = self.meta.writeback.late_chunks;
        self.counters.searched = self.small.looked + self.large.looked + self.meta.alloc.stream.looked;
    }

    /// Where the log will be written next: offset and length in bytes, at most `max` and up to the ring's end or what must be kept.
    #[must_use]
    pub fn log_ahead(&self, max: u64) -> (u64, u64) {
        let r = &self.log.ring;
        let n = r.free().min(r.blocks - r.head.pos).min(max / BLOCK);
        ((r.start + r.head.pos) * BLOCK, n * BLOCK)
    }

    /// Bytes of memory that metadata takes, with what is being read. A checkpoint's buffers come on top
    /// ([`Config::checkpoint_flight_bytes`]).
    #[must_use]
    pub fn meta_memory(&self) -> usize {
        self.meta.pages.mem() + self.meta.staging.bytes() + self.needs.loading_bytes
    }

    fn evict(&mut self) {
        self.meta.evict(self.cfg.meta_bytes.saturating_sub(self.needs.loading_bytes + self.meta.staging.bytes()));
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

    /// As [`Store::object`], for reading what a map holds, or an omap: an error if part of that was lost.
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

    fn read(&mut self, tag: Tag, cid: Cid, oid: &Oid, off: u64, len: u64) -> Result<Bytes, ReadError> {
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
        self.with_meta(tag, |m| {
            let mut page = OmapPage::default();
            let mut bytes = 0;
            m.omap_scan(id, from, after, |e: Entry<'_>| {
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
        self.with_meta(tag, |m| m.list(coll, start, end, max))
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

    fn foresee(&mut self, hash: u32, off: u64) {
        self.meta.foresee(hash, off / BLOCK);
    }

    fn release(&mut self, tag: Tag) {
        self.end_plan(tag);
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn statfs(&self) -> Statfs {
        let (total, avail) = (self.space.total() * BLOCK, self.space.available() * BLOCK);
        let metadata = (self.meta.alloc.page_blocks().max(0) as u64 + self.log.ring.blocks) * BLOCK;
        let used = total - self.space.unreserved() * BLOCK;
        let usage = self.meta.usage();
        Statfs {
            total,
            available: avail,
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
