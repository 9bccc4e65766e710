//! The log of one store while it is written: the open frame, frames in flight, and the position up to which the
//! log is durable.
//!
//! `commit` sends frames and handles their completions; `perform` fills the open frame.
//!
//! Invariants:
//!  1. `commits` are in the order of their frames and complete in that order, whatever order the device has.
//!  2. All blocks of `pending` are in `inflight` too, so reads find data here until the device has it.
//!
//! Tests: `tests/histories.rs` (1), `tests/model.rs` (2, `reads_find_data_before_it_is_durable`).

use super::prepare::RING_SLACK;
use crate::api::Tag;
use crate::layout::{BLOCK, BLOCK_LEN};
use crate::wal::{Ring, frame_blocks};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// Most transactions of a commit in flight beside which another commit may start.
const FEW: usize = 4;
/// Bytes of data from which the open frame need not wait for a commit of more than [`FEW`] transactions.
const MUCH: usize = 256 << 10;

/// A frame in flight.
#[derive(Debug)]
pub(super) struct Commit {
    seq: u64,
    /// Requests of the frame in flight.
    parts: usize,
    pub(super) tags: Vec<Tag>,
}

/// Log of one store; see the module.
pub(super) struct Log {
    pub(super) ring: Ring,
    pub(super) lsn: u64,
    /// Payload and number of records of the open frame.
    pub(super) payload: Vec<u8>,
    pub(super) records: u32,
    pub(super) tags: Vec<Tag>,
    /// Data blocks of the open frame, in the order of writing.
    pub(super) pending: Vec<(u64, Bytes)>,
    /// Data that may not be on the device yet, including `pending`: first block → bytes.
    pub(super) inflight: BTreeMap<u64, Bytes>,
    pub(super) commits: VecDeque<Commit>,
    pub(super) durable_upto: u64,
    /// `newest_frame` is the newest frame with records. `confirmed` is the newest one recorded as durable by a
    /// later frame or a root.
    pub(super) newest_frame: u64,
    pub(super) confirmed: u64,
    /// Number of the next frame at the last call of [`Store::confirm`](super::Store::confirm).
    pub(super) last_head: u64,
    /// Log bytes promised to prepared transactions, and the number of these.
    pub(super) promised: usize,
    pub(super) promises: u64,
    /// Part of the ring that the host fills (first block and end); no frame is written there.
    pub(super) filling: Option<(u64, u64)>,
    /// Block of the ring up to which it is known to have file blocks, in the first round after opening.
    pub(super) filled_to: u64,
}

impl Log {
    /// A log that continues at the head of `ring` with record `lsn`.
    pub(super) fn new(ring: Ring, lsn: u64) -> Self {
        Self {
            durable_upto: ring.head.seq - 1,
            filling: None,
            filled_to: ring.head.pos,
            ring,
            lsn,
            payload: Vec::new(),
            records: 0,
            tags: Vec::new(),
            pending: Vec::new(),
            inflight: BTreeMap::new(),
            commits: VecDeque::new(),
            newest_frame: 0,
            confirmed: 0,
            last_head: 0,
            promised: 0,
            promises: 0,
        }
    }

    /// True if the open frame may be sent: no commit is in flight; or fewer than `commits_max` are, and the newest
    /// of them has no more transactions than the open frame, and at most [`FEW`] unless the open frame has
    /// [`MUCH`] data.
    ///
    /// Without these conditions, large and small commits would alternate under load, and a frame costs as much as
    /// several transactions. A frame with much data does not wait, because the device would idle meanwhile.
    pub(super) fn may_commit(&self, commits_max: usize) -> bool {
        let Some(c) = self.commits.back() else { return true };
        let data = || self.pending.iter().map(|p| p.1.len()).sum::<usize>();
        self.commits.len() < commits_max && self.tags.len() >= c.tags.len() && (c.tags.len() <= FEW || data() >= MUCH)
    }

    /// Blocks in which frames may be written.
    pub(super) fn free(&self) -> u64 {
        let free = self.ring.free();
        self.filling.map_or(free, |(first, _)| free.min(first.saturating_sub(self.ring.head.pos)))
    }

    /// Next part of the ring that the host may fill, if the head is coming close to it: at most `chunk` blocks, not
    /// in use, and behind the room for all prepared transactions. Only on the first way to the ring's end after
    /// opening are there holes.
    pub(super) fn to_fill(&self, ahead: u64, chunk: u64) -> Option<(u64, u64)> {
        let (first, end) = (self.filled_to, (self.filled_to + chunk).min(self.ring.blocks));
        let way = first.checked_sub(self.ring.head.pos)?;
        let unused = self.ring.free() >= way + end - first;
        (first < end && way < ahead && way >= self.need(self.promised, self.promises) && unused).then_some((first, end))
    }

    /// Blocks that the open frame and `promised` more bytes of `plans` transactions may take. A frame may leave a gap
    /// of its own length at the ring's end, and each of the transactions may get a frame of its own.
    pub(super) fn need(&self, promised: usize, plans: u64) -> u64 {
        2 * frame_blocks(self.payload.len() + promised) + plans + RING_SLACK
    }

    /// Changes the log bytes promised to a transaction.
    pub(super) fn promise(&mut self, old: usize, new: usize) {
        self.promised = self.promised - old + new;
        self.promises = self.promises - u64::from(old > 0) + u64::from(new > 0);
    }

    /// Registers the open frame as sent under number `seq`, with `parts` requests.
    pub(super) fn sent(&mut self, seq: u64, parts: usize) {
        self.commits.push_back(Commit { seq, parts, tags: std::mem::take(&mut self.tags) });
    }

    /// Handles a completed request of a frame. Calls `durable` for each transaction that is durable now.
    pub(super) fn part_done(&mut self, seq: u64, mut durable: impl FnMut(Tag)) {
        if let Some(c) = self.commits.iter_mut().find(|c| c.seq == seq) {
            c.parts -= 1;
        }
        while self.commits.front().is_some_and(|c| c.parts == 0) {
            if let Some(c) = self.commits.pop_front() {
                self.durable_upto = c.seq;
                c.tags.into_iter().for_each(&mut durable);
            }
        }
    }

    /// Drops data blocks that the device has now.
    pub(super) fn data_done(&mut self, first: u64, n: u64) {
        while let Some((&at, _)) = self.inflight.range(first..first + n).next() {
            self.inflight.remove(&at);
        }
    }

    /// Bytes of a block in flight to the device.
    pub(super) fn in_flight(&self, phys: u64) -> Option<Bytes> {
        let (first, data) = self.inflight.range(..=phys).next_back()?;
        let at = ((phys - first) * BLOCK) as usize;
        (at < data.len()).then(|| data.slice(at..at + BLOCK_LEN))
    }
}
