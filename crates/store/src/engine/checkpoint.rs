//! Checkpoints: a durable image of the metadata at one log position, written in the background while frames go
//! on.
//!
//! A freeze between two frames takes constant time. After it, each turn encodes and writes some dirty pages:
//! leaves first, and each level before the one that points to it. A page that is about to change before its
//! turn is encoded first. Then follow the changed pages of the map of used blocks, a flush, the root in the
//! slots of its parity, and a flush. Only then are blocks released and the log's tail moves.
//!
//! Invariants:
//!  1. The root is written after a flush that covers every page, the map, and all data and frames before the freeze.
//!  2. At every moment a complete, durable checkpoint and all frames after it exist on the device.
//!
//! Tests: `tests/histories.rs` (1; planted bugs `StoreSkipRootFlush`, `StoreLatePage`), `tests/crash.rs` (2).

use super::{Role, Store};
use crate::layout::{BLOCK, BLOCK_LEN, COMPRESSION};
use crate::layout::{SHARDS, reactor_for};
use crate::meta::writeback::Stored;
use crate::superblock::Root;
use crate::wal::Position;
use base::device::IoKind;
use base::errno;
use base::planted::{Bug, acts};
use std::collections::VecDeque;

/// Most runs released in one turn; a long run counts as several.
const RELEASES_PER_TURN: u64 = 16384;
/// Number of blocks of a run that count as one run.
const RELEASE_BLOCKS: u64 = 4096;
/// Most runs entered into the map of used blocks in one turn; also most of its pages that get places.
const PLACES_PER_TURN: u64 = 4096;
/// Most discards in flight, and most blocks of one (256 MiB): devices take seconds for long ones, and a file system
/// keeps its file locked meanwhile.
const DISCARDS_MAX: u32 = 4;
const DISCARD_BLOCKS_MAX: u32 = 1 << 16;
/// Largest metadata write.
const WRITE_BYTES_MAX: usize = 256 << 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    /// Dirty pages are written.
    Pages,
    /// Changed pages of the map of used blocks get their places.
    Place,
    /// Changed pages of the map of used blocks are written.
    Used,
    /// Waits until all pages of trees and map in flight are written.
    Settle,
    /// Waits for the flush before the root.
    Flush,
    /// Waits for the root copies and the flush after them.
    Root,
    /// The store has failed.
    Dead,
}

/// State of the background work.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    phase: Phase,
    /// A checkpoint is to start as soon as possible.
    urgent: bool,
    /// Pages that were dirty at the freeze, by level.
    frozen: Vec<Vec<u32>>,
    /// Data blocks that came into use before the freeze.
    taken: Vec<(u64, u32)>,
    /// Log position and record number of the freeze.
    at: Position,
    lsn: u64,
    nid: u64,
    /// [`Meta::steps`](crate::meta::Meta::steps) at the freeze, and at the freeze of the newest durable
    /// checkpoint.
    replay_steps: u64,
    replay_steps_done: u64,
    /// Bytes of metadata in flight.
    flight: usize,
    /// Metadata writes in flight, and those that completed while an earlier one is in flight: number of the last
    /// piece, and whether the write has completed.
    writes: VecDeque<(u64, bool)>,
    /// Number of metadata writes begun so far.
    begun: u64,
    /// Root copies in flight.
    roots: u32,
    flushed: bool,
    /// Sequence number of the newest durable root.
    root_seq: u64,
    /// Newest root that was written.
    newest: Option<Root>,
    /// True while nothing may be released.
    hold: bool,
    releasing: Vec<(u64, u32)>,
    /// Blocks in `releasing` and in discards in flight.
    releasing_blocks: u64,
    /// Discards in flight.
    discards: u32,
    /// Steps of background work in the current turn.
    turn_work: u64,
}

impl Checkpoint {
    /// Lets a checkpoint start as soon as possible, if there is anything to write.
    pub(super) fn request(&mut self) {
        self.urgent = true;
    }

    /// As [`Checkpoint::request`], if `wanted`.
    pub(super) fn request_if(&mut self, wanted: bool) {
        self.urgent |= wanted;
    }

    /// True if a checkpoint is to start as soon as possible.
    pub(super) fn is_requested(&self) -> bool {
        self.urgent
    }

    /// Takes the root with which the store was opened.
    pub(super) fn opened(&mut self, root: Root) {
        self.root_seq = root.seq;
        self.newest = Some(root);
    }

    /// Sets the number of the newest root that the next one must not overwrite.
    pub(super) fn set_root_seq(&mut self, seq: u64) {
        self.root_seq = seq;
    }

    /// Newest root that was written.
    pub(super) fn newest(&self) -> Option<&Root> {
        self.newest.as_ref()
    }

    /// Notes that a copy of the root is written.
    pub(super) fn root_copy_done(&mut self) {
        debug_assert!(self.roots > 0, "a root is written");
        self.roots -= 1;
    }

    /// Notes that the flush before or after the root has completed.
    pub(super) fn flush_done(&mut self) {
        self.flushed = true;
    }

    pub(super) fn releasing(&self) -> &[(u64, u32)] {
        &self.releasing
    }

    pub(super) fn active(&self) -> bool {
        self.will_end() || !self.releasing.is_empty() || self.discards > 0
    }

    /// True if a checkpoint is under way. What one that has ended releases does not count.
    pub(super) fn will_end(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Dead)
    }

    pub(super) fn root_under_way(&self) -> bool {
        self.phase == Phase::Root
    }

    pub(super) fn abandon(&mut self) {
        self.phase = Phase::Dead;
    }

    /// Blocks that a durable checkpoint has freed and that are not released yet.
    pub(super) fn to_release(&self) -> u64 {
        self.releasing_blocks
    }
}

impl Store {
    pub(super) fn checkpoint_due(&self) -> bool {
        if self.checkpoint.urgent {
            let dirty = self.meta.pages().dirty_mem() > 0 || self.meta.alloc().for_dirty() > 0;
            // The root may have to name a feature.
            let named = self.checkpoint.newest.as_ref().is_some_and(|r| r.features == self.sb.features);
            let news = self.sb.features.any() && !named;
            return self.log.ring().used > 0 || self.meta.alloc().freed_blocks() > 0 || dirty || news;
        }
        let log = self.cfg.checkpoint_log_bytes.min(self.log_max() / 2);
        let dirty = self.meta.pages().dirty_mem() >= self.cfg.meta_bytes / 2;
        let work = self.replay_steps() >= self.cfg.replay_steps_max / 2;
        self.log.ring().used * BLOCK >= log || work || dirty || self.much_is_coming()
    }

    /// Steps that a restart would replay, counted as in [`Replayed::steps`](super::Replayed::steps).
    #[must_use]
    pub fn replay_steps(&self) -> u64 {
        self.meta.steps() - self.checkpoint.replay_steps_done
    }

    pub(super) fn step_checkpoint(&mut self) {
        self.checkpoint.turn_work = 0;
        self.release_some();
        let released = self.checkpoint.releasing.is_empty() && self.checkpoint.discards == 0;
        let idle = self.checkpoint.phase == Phase::Idle && released;
        if idle && self.suspended.is_none() && self.checkpoint_due() {
            self.close_frame();
            self.freeze(self.log.ring().head);
        }
        if self.checkpoint.phase == Phase::Pages {
            self.store_some_pages();
        }
        if self.checkpoint.phase == Phase::Place {
            self.place_some_used();
        }
        if self.checkpoint.phase == Phase::Used {
            self.store_some_used();
            // Turns come with completions. With no request in flight, this turn has to go on until there is
            // one.
            while self.checkpoint.phase == Phase::Used && self.io.is_empty() {
                self.store_some_used();
            }
        }
        if self.checkpoint.phase == Phase::Settle && self.checkpoint.flight == 0 {
            self.checkpoint.flushed = acts(Bug::StoreSkipRootFlush);
            if !self.checkpoint.flushed {
                self.request(Role::CheckpointFlush, IoKind::Flush);
            }
            self.checkpoint.phase = Phase::Flush;
        }
        if self.checkpoint.phase == Phase::Flush && self.checkpoint.flushed {
            self.write_root();
        }
    }

    /// Starts a checkpoint: it contains everything up to `at` and nothing after it. Replay will start there.
    fn freeze(&mut self, at: Position) {
        let c = &mut self.checkpoint;
        c.urgent = false;
        c.at = at;
        c.lsn = self.log.lsn();
        c.nid = self.meta.numbers().next();
        c.replay_steps = self.meta.steps();
        c.frozen = self.meta.writeback_mut().freeze();
        c.taken = self.meta.alloc_mut().freeze();
        c.phase = Phase::Pages;
        if acts(Bug::StoreEarlyRelease) {
            for (first, n) in self.meta.alloc().to_release() {
                self.space.release(*first, *n);
            }
        }
    }

    fn store_some_pages(&mut self) {
        let before = self.meta.writeback().out_bytes();
        while self.checkpoint.flight + self.meta.writeback().out_bytes() < self.cfg.checkpoint_flight_bytes
            && self.meta.writeback().out_bytes() - before < self.cfg.checkpoint_turn_bytes
        {
            let mut levels = self.checkpoint.frozen.iter_mut().enumerate();
            let Some((level, ids)) = levels.find(|(_, ids)| !ids.is_empty()) else {
                self.checkpoint.phase = Phase::Place;
                let taken = std::mem::take(&mut self.checkpoint.taken);
                self.meta.alloc_mut().begin_used(taken);
                break;
            };
            let Some(id) = ids.pop() else { break };
            self.meta.writeback_mut().looked_at_one();
            // The slot of a leaf may have become an inner page. Its turn comes with its own level, when all
            // pages below are stored.
            if self.meta.pending(id) && self.meta.level(id) == Some(level) {
                self.meta.store_page(id);
            }
        }
        self.write_pages();
    }

    /// Submits encoded metadata; adjacent blocks go in one request.
    fn write_pages(&mut self) {
        let mut out = self.meta.writeback_mut().take_out();
        if self.meta.alloc().out_of_space() {
            // Some of the metadata found no place.
            return self.fail("no free blocks for the metadata of a checkpoint".into(), errno::ENOSPC);
        }
        let (mut first, mut bytes, mut bufs) = (0, 0, Vec::new());
        let mut last = 0;
        for Stored { number, runs, data } in out.drain(..) {
            let mut at = 0;
            for (b, n) in runs {
                let part = data.slice(at..at + n as usize * BLOCK_LEN);
                at += part.len();
                if !bufs.is_empty() && (b != first + bytes as u64 / BLOCK || bytes + part.len() > WRITE_BYTES_MAX) {
                    // A page in several pieces counts as written only with its last piece.
                    self.write_metadata(first, bytes, std::mem::take(&mut bufs), last);
                }
                if bufs.is_empty() {
                    (first, bytes) = (b, 0);
                }
                bytes += part.len();
                bufs.push(part);
            }
            last = number;
        }
        if !bufs.is_empty() {
            self.write_metadata(first, bytes, bufs, last);
        }
        self.meta.writeback_mut().give_back(out);
    }

    /// Writes metadata pieces up to number `upto`. Commits do not wait for them; the flush before the root is
    /// requested after their completion.
    fn write_metadata(&mut self, first: u64, bytes: usize, bufs: Vec<bytes::Bytes>, upto: u64) {
        self.checkpoint.flight += bytes;
        self.checkpoint.writes.push_back((upto, false));
        self.checkpoint.begun += 1;
        self.counters.page_blocks += bytes as u64 / BLOCK;
        let write = self.checkpoint.begun;
        let first = if acts(Bug::StoreStrayPage) { 0 } else { first };
        self.request(Role::Page { bytes, write }, IoKind::WriteAhead { off: first * BLOCK, bufs });
    }

    /// Handles a completed metadata write: pages on the device may leave memory.
    pub(super) fn pages_written(&mut self, bytes: usize, write: u64) {
        let c = &mut self.checkpoint;
        c.flight -= bytes;
        let first = c.begun + 1 - c.writes.len() as u64;
        if let Some(w) = write.checked_sub(first).and_then(|i| c.writes.get_mut(i as usize)) {
            w.1 = true;
        }
        while let Some((upto, true)) = c.writes.front() {
            self.meta.writeback_mut().written(*upto);
            c.writes.pop_front();
        }
    }

    fn place_some_used(&mut self) {
        let left = self.meta.alloc_mut().place_used(PLACES_PER_TURN);
        self.count_work(PLACES_PER_TURN - left.unwrap_or(0));
        if self.meta.alloc().out_of_space() {
            return self.fail("no free blocks for a checkpoint's map of used blocks".into(), errno::ENOSPC);
        }
        if left.is_some() {
            self.checkpoint.phase = Phase::Used;
        }
    }

    /// Counts steps of background work in this turn.
    fn count_work(&mut self, n: u64) {
        self.checkpoint.turn_work += n;
        self.counters.turn_steps_max = self.counters.turn_steps_max.max(self.checkpoint.turn_work);
    }

    /// True if the checkpoint can go on although no request is in flight whose completion would bring the next
    /// turn. The owner of the store then ends another turn soon.
    #[must_use]
    pub fn wants_turn(&self) -> bool {
        let c = &self.checkpoint;
        let goes_on = c.phase == Phase::Place || !(c.releasing.is_empty() || c.hold);
        goes_on && self.io.is_empty() && self.failed().is_none()
    }

    fn store_some_used(&mut self) {
        let pages = (self.cfg.checkpoint_turn_bytes / BLOCK_LEN).max(1);
        if self.checkpoint.flight >= self.cfg.checkpoint_flight_bytes {
            return;
        }
        let more = self.meta.store_used(pages);
        self.write_pages();
        if !more && self.failed().is_none() {
            self.checkpoint.phase = Phase::Settle;
        }
    }

    fn write_root(&mut self) {
        let used = self.meta.alloc().used().roots();
        if used.len() > crate::meta::used::INDEX_MAX {
            self.fail("the map of used blocks does not fit its root".into(), errno::EFBIG);
            return;
        }
        let mine = |s: &u16| reactor_for(*s, self.cfg.reactors) == self.log.ring().index;
        let trees = (0..SHARDS).filter(mine).filter_map(|s| {
            let (loc, level) = &self.meta.roots().get(usize::from(s))?.stored;
            (loc.len > 0).then(|| (s as u8, *level, loc.clone()))
        });
        let c = &self.checkpoint;
        let root = Root {
            seq: c.root_seq + 1,
            layout_epoch: self.log.ring().layout_epoch,
            ring: self.log.ring().index,
            next_nid: c.nid,
            next_lsn: c.lsn,
            log_pos: c.at.pos,
            log_seq: c.at.seq,
            log_chain: c.at.chain,
            page_blocks: self.meta.alloc().page_blocks_frozen(),
            trees: trees.collect(),
            used,
            features: self.sb.features,
        };
        let places = self.root_places(&root);
        let bufs = places.iter().map(|(copy, at)| Some((*at, root.encode(&self.sb.uuid, *copy)?)));
        let Some(bufs) = bufs.collect::<Option<Vec<_>>>() else {
            self.fail("a checkpoint's root does not fit its slot".into(), errno::EFBIG);
            return;
        };
        for (at, buf) in bufs {
            self.checkpoint.roots += 1;
            self.request(Role::Root, IoKind::Write { off: at * BLOCK, bufs: vec![buf] });
        }
        self.checkpoint.newest = Some(root);
        self.checkpoint.flushed = false;
        self.request(Role::CheckpointFlush, IoKind::Flush);
        self.checkpoint.phase = Phase::Root;
    }

    pub(super) fn finish_if_done(&mut self) {
        if self.checkpoint.phase == Phase::Root && self.checkpoint.flushed && self.checkpoint.roots == 0 {
            self.finish_checkpoint();
        }
    }

    fn finish_checkpoint(&mut self) {
        let c = &mut self.checkpoint;
        c.root_seq += 1;
        (c.releasing, c.releasing_blocks) = self.meta.alloc_mut().take_release();
        if self.cfg.discard {
            // Runs are popped from the end, so adjacent runs ascend.
            c.releasing.sort_unstable_by(|a, b| b.cmp(a));
        }
        if acts(Bug::StoreEarlyRelease) {
            // With this bug the blocks of the freeze are free already.
            (c.releasing, c.releasing_blocks) = Default::default();
        }
        c.phase = Phase::Idle;
        let at = c.at;
        let nothing = c.releasing.is_empty();
        self.log.trim(at);
        if self.checkpoint.newest.as_ref().is_some_and(|r| r.features.incompat & COMPRESSION != 0) {
            self.meta.set_packs(true);
        }
        self.checkpoint.replay_steps_done = self.checkpoint.replay_steps;
        self.counters.checkpoints += 1;
        if nothing {
            self.room_was_made();
        }
        self.release_some();
        self.meta.update_headroom();
        self.step_growing();
    }

    fn release_some(&mut self) {
        self.release_up_to(RELEASES_PER_TURN);
    }

    /// Releases what durable checkpoints freed. Returns true if there was anything.
    pub(super) fn release_up_to(&mut self, mut budget: u64) -> bool {
        if self.checkpoint.releasing.is_empty() || self.checkpoint.hold {
            return false;
        }
        while budget > 0 && self.checkpoint.discards < DISCARDS_MAX {
            let Some((first, mut n)) = self.checkpoint.releasing.pop() else { break };
            let most = budget.saturating_mul(RELEASE_BLOCKS);
            if u64::from(n) > most {
                self.checkpoint.releasing.push((first + most, n - most as u32));
                n = most as u32;
            }
            let cost = u64::from(n).div_ceil(RELEASE_BLOCKS);
            budget = budget.saturating_sub(cost);
            self.count_work(cost);
            if !self.cfg.discard {
                self.release_run(first, n);
                continue;
            }
            // Blocks that were written together are usually freed together.
            let joins =
                |l: &(u64, u32), n: u32| l.0 == first + u64::from(n) && n.saturating_add(l.1) <= DISCARD_BLOCKS_MAX;
            while let Some((f, k)) = self.checkpoint.releasing.last().copied().filter(|l| joins(l, n)) {
                debug_assert!(f > first);
                n += k;
                self.checkpoint.releasing.pop();
            }
            if let Some(rest) = n.checked_sub(DISCARD_BLOCKS_MAX).filter(|r| *r > 0) {
                self.checkpoint.releasing.push((first + u64::from(DISCARD_BLOCKS_MAX), rest));
                n = DISCARD_BLOCKS_MAX;
            }
            self.checkpoint.discards += 1;
            self.request(Role::Discard { first, n }, IoKind::Discard { off: first * BLOCK, len: u64::from(n) * BLOCK });
        }
        self.all_released();
        true
    }

    fn release_run(&mut self, first: u64, n: u32) {
        self.space.release(first, n);
        self.checkpoint.releasing_blocks = self.checkpoint.releasing_blocks.saturating_sub(u64::from(n));
    }

    pub(super) fn discarded(&mut self, first: u64, n: u32) {
        self.release_run(first, n);
        self.checkpoint.discards -= 1;
        self.all_released();
    }

    fn all_released(&mut self) {
        self.share_coming();
        if self.checkpoint.releasing.is_empty() && self.checkpoint.discards == 0 {
            self.room_was_made();
        }
    }

    /// Starts a checkpoint of everything for opening with another number of rings. Freed blocks, which the old
    /// division still refers to, are kept until a call with `false`.
    pub(super) fn checkpoint_and_hold(&mut self, hold: bool) {
        self.checkpoint.hold = hold;
        if hold {
            self.freeze(self.log.ring().head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Config, device::drive};
    use crate::layout::DEVICE_BYTES_MAX;
    use crate::meta::used::SPAN;
    use crate::testing::fresh;

    /// However large the device and the change of its map: a turn enters, places and releases a bounded number
    /// of runs, without searches.
    #[test]
    fn turns_of_a_checkpoint_are_bounded_on_16_tib() {
        let bytes = 16 << 40;
        assert!(bytes < DEVICE_BYTES_MAX);
        let (mut dev, mut s) = fresh(bytes, 1, &Config::default());
        // One block in every eighth page of the map, like blocks that are freed at random.
        let pages = bytes / BLOCK / SPAN;
        let blocks: Vec<u64> = (12..pages / 8).map(|n| n * 8 * SPAN - 77).collect();
        for b in &blocks {
            assert!(s.space.mark(*b));
            s.meta.alloc_mut().add_taken(&[(*b, 1)]);
        }
        let free = s.space.unreserved();
        for round in 0..2 {
            let before = s.counters();
            s.request_checkpoint();
            drive(&mut s, &mut dev);
            let now = s.counters();
            assert_eq!(now.checkpoints, before.checkpoints + 1, "round {round}");
            let (stored, n) = (now.page_blocks - before.page_blocks, blocks.len() as u64);
            assert!(stored >= n && stored < n + 2000, "{stored} blocks stored, {n} pages changed");
            assert!(now.turn_steps_max <= PLACES_PER_TURN + RELEASES_PER_TURN, "{now:?}");
            // Each block is found where the last one was, or in the next group; choosing a group examines
            // 16,384 of them.
            assert!(
                now.searched - before.searched < stored + 4 * 16_500,
                "{} looked at",
                now.searched - before.searched
            );
            if round == 0 {
                s.meta.alloc_mut().add_freed(&blocks.iter().map(|b| (*b, 1)).collect::<Vec<_>>());
            }
        }
        // Everything is free again except for the map itself.
        let map = s.meta.alloc().used().blocks().count() as u64;
        assert_eq!(s.space.unreserved(), free + blocks.len() as u64 - map);
        drop(s);
        let s = crate::engine::open(&mut dev, &Config::default()).unwrap().remove(0);
        assert_eq!(s.space.unreserved(), free + blocks.len() as u64 - map);
    }

    #[test]
    fn long_runs_are_released_over_several_turns() {
        let (mut dev, mut s) = fresh(1 << 40, 1, &Config::default());
        let n = 150_000_000;
        let all = s.space.unreserved();
        let mut runs = crate::space::Runs::new();
        assert!(s.space.reserve(n));
        assert_eq!(s.space.take(s.streams.large(), n, &mut runs), n);
        s.meta.alloc_mut().add_freed(&runs);
        s.meta.alloc_mut().add_taken(&runs);
        let first = s.counters().checkpoints;
        assert!(s.request_checkpoint());
        let (mut turns, mut second) = (0, None);
        while !s.is_idle() || s.has_io() {
            s.end_turn();
            turns += u32::from(s.wants_turn());
            while let Some(r) = s.poll_io() {
                let result = match r.kind {
                    IoKind::Write { off, bufs } | IoKind::WriteAhead { off, bufs } => {
                        base::device::Device::write(&mut dev, off, &bufs).map(|()| bytes::Bytes::new())
                    }
                    _ => Ok(bytes::Bytes::new()),
                };
                s.handle_io(base::device::IoCompletion { id: r.id, result });
            }
            // What is left to release is no checkpoint to come.
            if second.is_none() && s.counters().checkpoints > first && s.checkpoint.active() {
                second = Some((s.request_checkpoint(), s.counters().checkpoints));
            }
        }
        let (comes, so_far) = second.expect("the checkpoint ends before all is released");
        assert_eq!(s.counters().checkpoints > so_far, comes);
        assert!(turns >= 2, "released in {turns} turns");
        assert!(s.counters().turn_steps_max <= PLACES_PER_TURN + 2 * RELEASES_PER_TURN);
        assert_eq!(s.space.unreserved() + s.meta.alloc().used().blocks().count() as u64, all);
        assert_eq!(s.space.freed_twice(), None);
    }
}
