//! The engine: an [`crate::ObjectStore`] on a device, sans I/O.
//!
//! A loop turn: calls of the interface, [`Store::handle_io`] for completions, then one [`Store::end_turn`], then
//! [`Store::poll_io`] until empty. `end_turn` closes the open frame: data writes, the frame, and one flush leave together.
//! Opening and formatting are sequential and take a [`device::Device`].
//!
//! | a transaction's way | contents |
//! | --- | --- |
//! | `interface`, `config` | the engine as an `ObjectStore`; its settings and counters |
//! | `tags` | what the reads and the prepared transaction of each tag have brought and reserved |
//! | `prepare` | requirements of a transaction before it may be applied: blocks in memory, space, room in the log |
//! | `sources` | places of bytes that an operation needs, before the transaction |
//! | `early` | data of large writes, written before their transaction is submitted |
//! | `overwrite` | the transaction of most writes, prepared and applied at once |
//! | `perform`, `suspend` | operations become changes, in the open frame and in memory; those that miss a page wait |
//! | `log`, `commit` | frames in flight and the durable position; group commit, acknowledged in order |
//!
//! | blocks and requests | contents |
//! | --- | --- |
//! | `read` | reading: from memory if the data is in flight or was read before, else from the device |
//! | `cache`, `runs` | data in memory for sub-block writes and repeated reads; blocks that large reads brought |
//! | `pages` | loading of metadata pages that plans miss |
//! | `room`, `streams` | free blocks for transactions, and when a checkpoint is taken to free more (`meta::alloc` has a block's way); the places that writes take |
//! | `pack` | compressed extents: which writes make them, how they are read and cut |
//! | `fill` | file blocks that a sparse file gets before they are written |
//! | `requests` | requests to the device: their purpose, and which are in flight |
//! | `write_guard` | a check of every write against the places for its kind |
//! | `device` | running a store on a blocking device, for opening, tools and tests |
//!
//! | the store as a whole | contents |
//! | --- | --- |
//! | `format`, `grow` | making an empty store; growing an open one |
//! | `open`, `replay` | opening: superblock, roots, newest checkpoints; then the logs |
//! | `checkpoint` | a durable image of the metadata at one log position, written in the background |
//! | `check`, `rebuild` | comparison with the trees that all else follows from; repair after lost metadata pages |
//!
//! Metadata is in `crate::meta`.
//!
//! Invariants (letters as in docs/design/store-format.md):
//!  1. A transaction is acknowledged when its frame, all earlier frames and all data they name are durable, in order.
//!  2. A block is written once between its allocation and its release. It is released only after a checkpoint
//!     that no longer needs it is durable (e).
//!  3. No byte is returned that does not match its block's checksum.
//!  4. After a failed write nothing is acknowledged and nothing is written.
//!  5. No write leaves the parts of the device that belong to its kind.
//!
//! Tests: `tests/histories.rs` (1, 2; planted bugs `StoreSkipFlush`, `StoreEarlyRelease`), `tests/faults.rs` (3, 4),
//! `write_guard` (5).

pub mod cache;
mod check;
mod checkpoint;
mod commit;
mod config;
pub mod device;
mod early;
mod fill;
mod format;
mod grow;
mod interface;
mod log;
mod open;
mod overwrite;
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
mod sources;
mod streams;
mod suspend;
mod tags;
mod write_guard;

pub use config::{Config, Counters, LOG_BYTES_MIN, Packing, REPLAY_STEPS_MIN, Replayed};
pub use device::Device;
pub use format::{FormatError, FormatOptions, format, grow, probe, relabel};
pub use grow::Growth;
pub use open::{OpenError, Replay, open, open_read_only, open_with};
use pages::Needs;
pub use rebuild::{Rebuilt, rebuild};
pub use replay::RingLog;
use requests::{Requests, Role};

use crate::api::{Event, Health, ReadError, Tag};
use crate::key::{Cid, Oid};
use crate::layout::BLOCK;
use crate::meta::Meta;
use crate::meta::object::Lost;
use crate::space::Space;
use crate::superblock::Superblock;
use base::device::{IoCompletion, IoKind, IoRequest};
use base::errno::{self, Errno};
use cache::BlockCache;
use checkpoint::Checkpoint;
use log::Log;
use pack::Compressor;
use std::collections::VecDeque;
use std::sync::Arc;
use streams::Streams;
use suspend::Suspended;
use tags::Tags;

/// Payload bytes that an idle store keeps allocated.
const PAYLOAD_KEPT: usize = 16 << 10;

/// The object store of one reactor; see the module.
pub struct Store {
    cfg: Config,
    sb: Superblock,
    space: Arc<Space>,
    meta: Meta,
    streams: Streams,
    filling: fill::Filling,
    /// Frames, and their contents that are not durable yet.
    log: Log,
    /// Requests to the device.
    io: Requests,
    events: VecDeque<Event>,
    tags: Tags,
    /// Metadata pages that plans miss.
    needs: Needs,
    cache: BlockCache,
    checkpoint: Checkpoint,
    room: room::Room,
    /// Counts events that may change which pages are in memory or needed.
    changes: u64,
    suspended: Option<Box<Suspended>>,
    growing: Option<grow::Growing>,
    compressor: Compressor,
    health: Health,
    counters: Counters,
    replayed: Replayed,
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
        self.io.has_queued()
    }

    /// True if nothing is in flight, nothing waits for `end_turn`, and no checkpoint runs or is requested. A
    /// failed store is idle once its requests have completed.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let at_rest = self.log.is_at_rest();
        let busy = self.checkpoint.active() || (self.checkpoint.is_requested() && self.checkpoint_due());
        self.io.is_empty() && !self.io.has_queued() && (self.failed().is_some() || (at_rest && !busy))
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
        Counters { visits: self.meta.visits(), ..self.counters }
    }

    /// Transactions that were prepared and applied at once, since the store was opened.
    #[must_use]
    pub fn overwrites(&self) -> u64 {
        self.log.overwrites()
    }

    /// Pieces of data that were to be compressed, as counted since the store was opened.
    #[must_use]
    pub fn packing(&self) -> Packing {
        self.compressor.counts()
    }

    /// Frees memory that is kept for later use, including this thread's buffers. For an idle thread.
    pub fn release_memory(&mut self) {
        self.log.shrink(PAYLOAD_KEPT);
        base::buf::release();
    }

    /// Sets the answer of [`is_short`](crate::ObjectStore::is_short).
    pub fn set_short(&mut self, short: bool) {
        self.room.set_short(short);
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
        self.checkpoint.request();
        self.checkpoint.will_end() || self.checkpoint_due()
    }

    /// Log bytes that a restart would replay.
    #[must_use]
    pub fn replay_bytes(&self) -> u64 {
        self.log.ring().used * BLOCK
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
        self.cfg.log_bytes_max.min(self.log.ring().blocks * BLOCK)
    }

    fn request(&mut self, role: Role, kind: IoKind) {
        if write_guard::changes(&kind) && !self.is_allowed(&role, &kind) {
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
        let behind = self.abandon_suspended();
        for t in self.log.abandon().into_iter().chain(behind) {
            self.events.push_back(Event::Durable(t, Err(errno)));
        }
        let queued = self.needs.take_waiting();
        self.events.extend(self.room.take_waiting().into_iter().chain(queued).map(Event::Ready));
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
            Role::Data { seq, .. } | Role::Commit { seq } => self.commit_part_done(seq),
            Role::Page { bytes, write } => self.pages_written(bytes, write),
            Role::Root => self.checkpoint.root_copy_done(),
            Role::CheckpointFlush => self.checkpoint.flush_done(),
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
        self.compressor.end_turn();
        if let Some(block) = self.space.freed_twice() {
            return self.fail(format!("block {block} was freed while it was free"), errno::EIO);
        }
        if self.cfg.first_fit {
            self.streams.rewind(&self.space);
            self.meta.alloc_mut().rewind();
        }
        if self.log.has_records() && self.suspended.is_none() {
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
        self.counters.evictions = self.meta.pages().evictions();
        self.counters.delta_chunks = self.meta.writeback().delta_chunks();
        self.counters.searched = self.streams.looked() + self.meta.alloc().looked();
    }

    /// Next place of the log: offset and length in bytes, at most `max`, and up to the ring's end or the part
    /// still needed.
    #[must_use]
    pub fn log_ahead(&self, max: u64) -> (u64, u64) {
        let r = self.log.ring();
        let n = r.free().min(r.blocks - r.head.pos).min(max / BLOCK);
        ((r.start + r.head.pos) * BLOCK, n * BLOCK)
    }

    /// Bytes of memory for metadata, including pages being read, the map of used blocks and a share of the bitmap. Buffers of a checkpoint are extra
    /// ([`Config::checkpoint_flight_bytes`]).
    #[must_use]
    pub fn meta_memory(&self) -> usize {
        self.meta.pages().mem() + self.meta.staging().bytes() + self.needs.loading_bytes() + self.maps_memory()
    }

    /// Bytes of memory of the map of used blocks, with a share of the bitmap of free blocks.
    fn maps_memory(&self) -> usize {
        self.meta.alloc().used().mem() + self.space.mem() / usize::from(self.cfg.reactors.max(1))
    }

    fn evict(&mut self) {
        // Pages keep half of the memory on devices with large maps.
        let maps = self.maps_memory().min(self.cfg.meta_bytes / 2);
        let others = self.needs.loading_bytes() + self.meta.staging().bytes() + maps;
        self.meta.evict(self.cfg.meta_bytes.saturating_sub(others));
    }

    fn object(&mut self, tag: Tag, cid: Cid, oid: &Oid) -> Result<u32, ReadError> {
        self.in_order(tag)?;
        let coll = self.meta.coll(cid).ok_or(ReadError::NoObject)?;
        if let Some(id) = self.tags.get(tag).and_then(|p| p.object)
            && self.meta.is_object(id, coll, oid)
        {
            return Ok(id);
        }
        self.with_meta(tag, |m| m.look(coll, oid))?.ok_or(ReadError::NoObject)
    }

    /// Like [`Store::object`], for reading a map or an omap. Fails if part of it was lost.
    fn whole_object(&mut self, tag: Tag, cid: Cid, oid: &Oid, lost: fn(Lost) -> bool) -> Result<u32, ReadError> {
        let id = self.object(tag, cid, oid)?;
        match self.meta.objects().get(id as usize) {
            Some(o) if lost(o.lost) => Err(self.damaged_object(id)),
            _ => Ok(id),
        }
    }

    fn obj(&mut self, tag: Tag, cid: Cid, oid: &Oid) -> Result<&crate::meta::object::Object, ReadError> {
        let id = self.object(tag, cid, oid)?;
        self.meta.objects().get(id as usize).ok_or(ReadError::NoObject)
    }
}
