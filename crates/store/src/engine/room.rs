//! Free blocks for transactions, and how blocks without references become free.
//!
//! A block without references is free again after a checkpoint of its store. All stores of a device together know how
//! many such blocks there are (`Space::coming`): they count as available, and no transaction is refused while they
//! would do. Three events make a store take a checkpoint for them:
//!
//! - much is coming, and this store has at least its share of it;
//! - a transaction at any store waits for room;
//! - the store is at rest: the host's regular calls of [`Store::confirm`] found no new frame.
//!
//! Invariants:
//!  1. A transaction that waits for space is tried again whenever a store has released blocks. After [`WAITS_MAX`] times
//!     one that would grow no longer waits for other stores, whose clients may take the blocks each time.
//!  2. A failed store has no part in `Space::coming`.
//!
//! Tests: `tests/space.rs` (1, `no_store_is_full_while_another_one_has_blocks_to_release`; 2,
//! `blocks_of_a_failed_store_are_not_waited_for`).

use super::Store;
use super::perform::Run;
use super::prepare::{Effect, refuse};
use crate::api::{Event, Health, ReadError, Tag};
use crate::space::{Runs, push_run};
use base::errno;

/// Most times that a transaction waits for blocks to become free.
const WAITS_MAX: u32 = 16;
/// Calls of [`Store::confirm`] without a new frame after which a store is at rest.
const REST_CALLS: u32 = 2;
/// Blocks for which a store at rest takes a checkpoint (64 MiB), and the fewest of an almost full device.
const REST_BLOCKS: u64 = 1 << 14;
const REST_BLOCKS_MIN: u64 = 1 << 8;
/// Parts of the device by which blocks to come are judged: usually, and the part below which a device with less spare
/// blocks than `ALMOST_FULL` parts is not asked for a checkpoint.
const MUCH: u64 = 64;
const MUCH_IF_ALMOST_FULL: u64 = 512;
const ALMOST_FULL: u64 = 16;
/// Fewest blocks that are much on an almost full device (16 MiB), so that its checkpoints are few.
const MUCH_BLOCKS_MIN: u64 = 1 << 12;

impl Store {
    /// Reserves space for the data and for the metadata that the transaction makes dirty.
    pub(super) fn room_on_device(&mut self, tag: Tag, blocks: u64, keep: u64, effect: Effect) -> Result<(), ReadError> {
        let (data, for_meta) = self.tags.get(tag).map_or((0, 0), |p| {
            let early = p.early.iter().flat_map(|e| &e.runs);
            let given: u64 = p.pool.iter().chain(early).map(|r| u64::from(r.1)).sum();
            (p.reserved + given, p.for_meta)
        });
        let (data, keep) = (blocks.saturating_sub(data), keep.saturating_sub(for_meta));
        let more = data + keep;
        // Blocks released after this moment wake the plan.
        let releases = self.space.releases();
        let leave = match effect {
            Effect::Grows => self.space.for_removals(),
            Effect::Minor => self.space.for_removals() / 2,
            Effect::Own => self.space.for_removals() / 4,
            Effect::MakesRoom => 0,
        };
        if more > 0 {
            if !self.space.reserve_leaving(more, leave) && !self.reserve_exactly(more, leave) {
                if self.may_wait(tag, more + leave, effect) {
                    self.tag_state(tag).waits_for_space += 1;
                    self.space.press();
                    return Err(self.park_since(tag, releases));
                }
                self.set_health(Health::Full);
                let (free, kept) = (self.space.unreserved(), self.meta.alloc().headroom());
                let what = format!("{data} blocks and {keep} of metadata wanted, {free} free, {} kept", kept + leave);
                return Err(refuse(errno::ENOSPC, what));
            }
            let p = self.tag_state(tag);
            p.reserved += data;
            p.for_meta += keep;
        }
        if self.health == Health::Full && self.space.available() > self.space.total() / 64 {
            self.set_health(Health::Ok);
        }
        Ok(())
    }

    /// Tries to reserve again, after releasing and counting everything possible.
    fn reserve_exactly(&mut self, n: u64, leave: u64) -> bool {
        self.settle_headroom();
        self.release_up_to(u64::MAX);
        self.space.reserve_leaving(n, leave)
    }

    /// Counts the dirty pages, and gives back the blocks that were reserved for them.
    pub(super) fn settle_headroom(&mut self) {
        self.meta.update_headroom();
        self.space.unreserve(std::mem::take(&mut self.room.held));
    }

    /// Wakes the parked plans after a checkpoint has made room.
    pub(super) fn unpark(&mut self) {
        self.events.extend(self.room.take_waiting().into_iter().map(Event::Ready));
    }

    /// Blocks that this store's checkpoints will release.
    fn own_coming(&self) -> u64 {
        self.meta.alloc().leaving_blocks() + self.checkpoint.to_release()
    }

    /// True if `n` blocks become free once everything is stored: blocks without references, the headroom for dirty
    /// pages, and blocks that the host fills. Those of other stores count for [`WAITS_MAX`] times.
    fn may_wait(&mut self, tag: Tag, n: u64, effect: Effect) -> bool {
        self.share_coming();
        let spare = self.space.spare();
        if spare + self.own_coming() + self.meta.alloc().for_dirty() + self.with_host() >= n {
            return true;
        }
        let waits = self.tags.get(tag).map_or(0, |p| p.waits_for_space);
        let again = waits < WAITS_MAX || matches!(effect, Effect::Own | Effect::MakesRoom);
        again && spare + self.space.coming() + self.space.for_dirty() + self.space.lent() >= n
    }

    /// Tells the other stores how many blocks this one will release.
    pub(super) fn share_coming(&mut self) {
        let now = if self.failed().is_some() { 0 } else { self.own_coming() };
        if now != self.room.shared {
            self.space.change_coming(self.room.shared, now);
            self.room.shared = now;
        }
    }

    /// True if a checkpoint is due because of the blocks that all stores will release, and this store has its share of
    /// them.
    pub(super) fn much_is_coming(&self) -> bool {
        let own = self.meta.alloc().freed_blocks();
        if own == 0 {
            return false;
        }
        let (total, spare, all) = (self.space.total(), self.space.spare(), self.space.coming().max(own));
        let much = total / MUCH;
        let least = if spare < total / ALMOST_FULL {
            (total / MUCH_IF_ALMOST_FULL).max(MUCH_BLOCKS_MIN).min(much)
        } else {
            much
        };
        all >= least.max(spare / 4) && own.saturating_mul(u64::from(self.cfg.reactors)) >= all
    }

    /// Notes whether the store is at rest. Such a store releases its blocks.
    pub(super) fn rest(&mut self, quiet: bool) {
        self.room.quiet = if quiet { self.room.quiet.saturating_add(1) } else { 0 };
        if self.room.quiet < REST_CALLS {
            return;
        }
        let (total, spare) = (self.space.total(), self.space.spare());
        let full = spare < total / ALMOST_FULL;
        let least = if full { (total >> 10).clamp(REST_BLOCKS_MIN, REST_BLOCKS) } else { REST_BLOCKS };
        self.checkpoint.request_if(self.meta.alloc().freed_blocks() + self.meta.alloc().for_dirty() >= least);
    }

    /// Heeds requests of other stores for checkpoints, and tries waiting transactions again after another store has
    /// released blocks.
    pub(super) fn heed_others(&mut self) {
        let presses = self.space.presses();
        if presses != self.room.presses {
            self.room.presses = presses;
            self.checkpoint.request_if(self.meta.alloc().freed_blocks() + self.meta.alloc().for_dirty() > 0);
        }
        if !self.room.waiting.is_empty() && self.space.releases() != self.room.releases {
            self.unpark();
        }
    }

    /// Makes the plan wait for a checkpoint to make room.
    pub(super) fn park(&mut self, tag: Tag) -> ReadError {
        self.checkpoint.request();
        self.park_since(tag, self.space.releases())
    }

    /// Makes the plan wait for blocks that any store releases after the first `releases` times.
    fn park_since(&mut self, tag: Tag, releases: u64) -> ReadError {
        self.counters.stalls += 1;
        self.room.releases = self.room.releases.min(releases);
        if self.room.waiting.is_empty() {
            self.room.releases = releases;
        }
        // Without a plan, the end of the request would go unnoticed.
        self.tag_state(tag);
        if !self.room.waits(tag) {
            self.room.waiting.push(tag);
        }
        ReadError::Wait
    }

    /// Wakes the parked plans of this store, and with its next turn those of the others, after blocks were released.
    pub(super) fn room_was_made(&mut self) {
        self.space.note_release();
        self.unpark();
    }

    /// Takes `n` blocks of those reserved for the transaction.
    pub(super) fn places(&mut self, run: &mut Run<'_>, n: u64) -> Result<Runs, String> {
        let mut runs = Runs::new();
        let mut need = n;
        while need > 0
            && let Some((first, k)) = run.pool.pop()
        {
            let used = need.min(u64::from(k)) as u32;
            push_run(&mut runs, first, used);
            if used < k {
                run.pool.push((first + u64::from(used), k - used));
            }
            need -= u64::from(used);
        }
        if need > 0 {
            if run.reserved < need {
                let more = need - run.reserved;
                if !self.space.reserve(more) {
                    return Err("no reserved space left".into());
                }
                run.reserved += more;
            }
            if self.space.take(self.streams.of_blocks(n), need, &mut runs) < need {
                return Err("reserved space is gone".into());
            }
            run.reserved -= need;
        }
        Ok(runs)
    }
}

/// A store's view of the space that it shares with others, and the plans that wait for room in it.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// This store's part of `Space::coming`.
    shared: u64,
    /// `Space::presses` at the last turn, and `Space::releases` when a plan began to wait.
    presses: u64,
    releases: u64,
    /// Calls of [`Store::confirm`] since the last frame.
    quiet: u32,
    /// The host wants no growing writes of clients.
    short: bool,
    /// Plans that wait for a checkpoint to make room.
    waiting: Vec<Tag>,
    /// Blocks reserved for metadata that this turn made dirty, until the turn's end counts it.
    held: u64,
}

impl Room {
    /// True if the host wants no growing writes of clients.
    pub(super) fn is_short(&self) -> bool {
        self.short
    }

    pub(super) fn set_short(&mut self, short: bool) {
        self.short = short;
    }

    /// Keeps blocks for metadata that was made dirty until the turn's end.
    pub(super) fn hold(&mut self, blocks: u64) {
        self.held += blocks;
    }

    /// Blocks kept for metadata that this turn made dirty.
    pub(super) fn for_dirty(&self) -> u64 {
        self.held
    }

    /// The plans that wait, which do so no longer.
    pub(super) fn take_waiting(&mut self) -> Vec<Tag> {
        std::mem::take(&mut self.waiting)
    }

    /// True if the plan waits for room.
    pub(super) fn waits(&self, tag: Tag) -> bool {
        self.waiting.contains(&tag)
    }

    /// Drops a plan that may wait.
    pub(super) fn forget(&mut self, tag: Tag) {
        if !self.waiting.is_empty() {
            self.waiting.retain(|t| *t != tag);
        }
    }
}
