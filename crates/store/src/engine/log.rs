//! The log of one store while it is written: the open frame, frames in flight, and the position up to which the
//! log is durable.
//!
//! `commit` sends frames and handles their completions; `perform` fills the open frame.
//!
//! Invariants:
//!  1. `commits` are in the order of their frames and complete in that order, whatever order the device has.
//!  2. Data stays here until its commit is durable, so reads find what the device may not have yet.
//!
//! Tests: `tests/histories.rs` (1), `tests/model.rs` (2, `reads_find_data_before_it_is_durable`).

use super::prepare::RING_SLACK;
use crate::api::Tag;
use crate::layout::{BLOCK, BLOCK_LEN};
use crate::wal::{Kind, Position, Ring, frame_blocks};
use bytes::Bytes;
use std::collections::VecDeque;

/// Most transactions of a commit in flight beside which another commit may start.
const FEW: usize = 4;
/// Bytes of data from which the open frame need not wait for a commit of more than [`FEW`] transactions.
const MUCH: usize = 256 << 10;

/// Block runs with their data, by first block, ascending.
type Runs = Vec<(u64, Bytes)>;

/// A frame in flight.
#[derive(Debug)]
pub(super) struct Commit {
    seq: u64,
    /// Requests of the frame in flight.
    parts: usize,
    tags: Vec<Tag>,
    /// Its data.
    data: Runs,
}

/// Log of one store; see the module.
pub(super) struct Log {
    ring: Ring,
    lsn: u64,
    /// Payload and number of records of the open frame.
    payload: Vec<u8>,
    records: u32,
    tags: Vec<Tag>,
    /// Data of the open frame, and its bytes.
    pending: Runs,
    pending_bytes: usize,
    commits: VecDeque<Commit>,
    /// Data of commits that a failed store has given up.
    left: Vec<Runs>,
    /// Number of transactions that were prepared and applied at once.
    overwrites: u64,
    /// Empty lists of a commit that was durable, for their memory.
    spare: (Vec<Tag>, Runs),
    durable_upto: u64,
    /// `newest_frame` is the newest frame with records. `confirmed` is the newest one recorded as durable by a
    /// later frame or a root.
    newest_frame: u64,
    confirmed: u64,
    /// Number of the next frame at the last call of [`Log::no_frame_since_last_call`].
    last_head: u64,
    /// Log bytes promised to prepared transactions, and the number of these.
    promised: usize,
    promises: u64,
    /// Part of the ring that the host fills (first block and end); no frame is written there.
    filling: Option<(u64, u64)>,
    /// Block of the ring up to which it is known to have file blocks, in the first round after opening.
    filled_to: u64,
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
            pending_bytes: 0,
            commits: VecDeque::new(),
            left: Vec::new(),
            overwrites: 0,
            spare: Default::default(),
            newest_frame: 0,
            confirmed: 0,
            last_head: 0,
            promised: 0,
            promises: 0,
        }
    }

    /// The ring, and the position in it.
    #[inline]
    pub(super) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Number of the next record.
    pub(super) fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Counts an overwrite.
    pub(super) fn count_overwrite(&mut self) {
        self.overwrites += 1;
    }

    /// Number of overwrites.
    pub(super) fn overwrites(&self) -> u64 {
        self.overwrites
    }

    /// True if the open frame has records.
    pub(super) fn has_records(&self) -> bool {
        self.records > 0
    }

    /// True if the open frame has no records, and no frame is in flight.
    pub(super) fn is_at_rest(&self) -> bool {
        self.records == 0 && self.commits.is_empty()
    }

    /// True if room in the log is promised to a transaction.
    pub(super) fn is_promised(&self) -> bool {
        self.promised > 0
    }

    /// True if no frame was closed since the last call.
    pub(super) fn no_frame_since_last_call(&mut self) -> bool {
        std::mem::replace(&mut self.last_head, self.ring.head.seq) == self.ring.head.seq
    }

    /// True if no later frame and no root records the newest frame with records as durable.
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.newest_frame > self.confirmed
    }

    /// True if a record of `bytes` fits the open frame.
    pub(super) fn fits(&self, bytes: usize) -> bool {
        self.payload.len() + bytes <= self.ring.payload_max()
    }

    /// Begins a record, whose length is filled in at its end. Returns its place in the payload.
    pub(super) fn begin_record(&mut self) -> usize {
        let at = self.payload.len();
        self.payload.extend_from_slice(&[0; 4]);
        at
    }

    /// Takes the payload of the open frame, to write to it.
    pub(super) fn take_payload(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.payload)
    }

    /// Gives the payload back, with part of a record.
    pub(super) fn put_payload(&mut self, payload: Vec<u8>) {
        self.payload = payload;
    }

    /// Gives the payload back with the record of a transaction at its end.
    pub(super) fn end_record(&mut self, tag: Tag, payload: Vec<u8>) {
        self.payload = payload;
        self.lsn += 1;
        self.records += 1;
        self.tags.push(tag);
    }

    /// Adds a block run with its data to the open frame.
    pub(super) fn add_data(&mut self, first: u64, data: Bytes) {
        self.pending_bytes += data.len();
        // Allocation ascends, except where a stream changes its group.
        if self.pending.last().is_none_or(|l| l.0 < first) {
            return self.pending.push((first, data));
        }
        let at = self.pending.partition_point(|p| p.0 < first);
        self.pending.insert(at, (first, data));
    }

    /// Closes the open frame. Returns its number, device block and bytes; `None` if the log has no room for it.
    pub(super) fn close(&mut self) -> Option<(u64, u64, Bytes)> {
        if self.records > 0 {
            self.newest_frame = self.ring.head.seq;
        }
        let first_lsn = self.lsn - u64::from(self.records);
        // The host would overwrite a frame in the part that it fills.
        let room = self.free() >= frame_blocks(self.payload.len());
        let closed = room
            .then(|| self.ring.close(Kind::Commit, &self.payload, self.records, first_lsn, self.durable_upto))
            .flatten();
        self.confirmed = self.confirmed.max(self.durable_upto);
        self.payload.clear();
        self.records = 0;
        closed.map(|(at, frame)| (self.ring.head.seq - 1, at, frame))
    }

    /// Takes the data of the frame that was closed; [`Log::sent`] gets it.
    pub(super) fn take_pending(&mut self) -> Runs {
        self.pending_bytes = 0;
        std::mem::replace(&mut self.pending, std::mem::take(&mut self.spare.1))
    }

    /// Closes an empty frame that ends the log that replay found. Returns device block and bytes; `None` if the log has
    /// no room for it.
    pub(super) fn seal(&mut self, kind: Kind) -> Option<(u64, Bytes)> {
        self.ring.close(kind, &[], 0, self.lsn, self.durable_upto)
    }

    /// Notes that the frame of [`Log::seal`] and all before it are durable.
    pub(super) fn sealed(&mut self) {
        self.durable_upto = self.ring.head.seq - 1;
        self.confirmed = self.durable_upto;
    }

    /// Moves the ring to a new division of the log area.
    pub(super) fn set_layout(&mut self, epoch: u32) {
        self.ring.layout_epoch = epoch;
    }

    /// Moves the tail to the freeze of a durable checkpoint.
    pub(super) fn trim(&mut self, at: Position) {
        self.ring.trim(at);
        self.confirmed = self.confirmed.max(at.seq.saturating_sub(1));
    }

    /// Drops what is not durable, since the store has failed. Returns its transactions, oldest first. Data in flight
    /// stays readable, since memory still refers to it.
    pub(super) fn abandon(&mut self) -> Vec<Tag> {
        self.payload.clear();
        self.records = 0;
        let mut tags = Vec::new();
        for c in std::mem::take(&mut self.commits) {
            tags.extend(c.tags);
            self.left.push(c.data);
        }
        let pending = self.take_pending();
        self.left.push(pending);
        tags.append(&mut self.tags);
        tags
    }

    /// Frees memory beyond `kept` bytes of payload.
    pub(super) fn shrink(&mut self, kept: usize) {
        self.spare = Default::default();
        self.payload.shrink_to(kept);
    }

    /// True if the open frame may be sent: no commit is in flight; or fewer than `commits_max` are, and the newest
    /// of them has no more transactions than the open frame, and at most [`FEW`] unless the open frame has
    /// [`MUCH`] data.
    ///
    /// Without these conditions, large and small commits would alternate under load, and a frame costs as much as
    /// several transactions. A frame with much data does not wait, because the device would idle meanwhile.
    pub(super) fn may_commit(&self, commits_max: usize) -> bool {
        let Some(c) = self.commits.back() else { return true };
        let much = self.pending_bytes >= MUCH;
        self.commits.len() < commits_max && self.tags.len() >= c.tags.len() && (c.tags.len() <= FEW || much)
    }

    /// Blocks in which frames may be written.
    pub(super) fn free(&self) -> u64 {
        let free = self.ring.free();
        self.filling.map_or(free, |(first, _)| free.min(first.saturating_sub(self.ring.head.pos)))
    }

    /// True if the host fills a part of the ring.
    pub(super) fn is_filling(&self) -> bool {
        self.filling.is_some()
    }

    /// Takes a part of the ring that the host shall fill: first block and end; see [`Log::to_fill`].
    pub(super) fn begin_fill(&mut self, ahead: u64, chunk: u64) -> Option<(u64, u64)> {
        let part = self.to_fill(ahead, chunk)?;
        self.filling = Some(part);
        Some(part)
    }

    /// Notes that the host has filled the part that it was given. False if it was given none.
    pub(super) fn end_fill(&mut self) -> bool {
        let Some((_, end)) = self.filling.take() else { return false };
        self.filled_to = end;
        true
    }

    /// Notes that the host has filled `blocks` blocks ahead of the head.
    pub(super) fn filled_ahead(&mut self, blocks: u64) {
        self.filled_to = self.ring.head.pos + blocks;
    }

    /// Block of the ring up to which it is known to have file blocks.
    #[cfg(test)]
    pub(super) fn filled_to(&self) -> u64 {
        self.filled_to
    }

    /// Next part of the ring that the host may fill, if the head is coming close to it: at most `chunk` blocks, not
    /// in use, and behind the room for all prepared transactions. Only on the first way to the ring's end after
    /// opening are there holes.
    fn to_fill(&self, ahead: u64, chunk: u64) -> Option<(u64, u64)> {
        let (first, end) = (self.filled_to, (self.filled_to + chunk).min(self.ring.blocks));
        let way = first.checked_sub(self.ring.head.pos)?;
        let unused = self.ring.free() >= way + end - first;
        (first < end && way < ahead && way >= self.need(self.promised, self.promises) && unused).then_some((first, end))
    }

    /// Blocks that the open frame and `promised` more bytes of `plans` transactions may take. A frame may leave a gap
    /// of its own length at the ring's end, and each of the transactions may get a frame of its own.
    fn need(&self, promised: usize, plans: u64) -> u64 {
        2 * frame_blocks(self.payload.len() + promised) + plans + RING_SLACK
    }

    /// Bytes and number of the promises if a transaction that was promised `own` bytes gets `bytes`.
    fn promised_with(&self, own: usize, bytes: usize) -> (usize, u64) {
        (self.promised - own + bytes, self.promises + u64::from(own == 0))
    }

    /// True if the open frame has room for all promises, if a transaction that was promised `own` bytes gets `bytes`.
    pub(super) fn may_promise(&self, own: usize, bytes: usize) -> bool {
        self.fits(self.promised_with(own, bytes).0)
    }

    /// Blocks that the log needs then; see [`Log::need`].
    pub(super) fn need_with(&self, own: usize, bytes: usize) -> u64 {
        let (promised, promises) = self.promised_with(own, bytes);
        self.need(promised, promises)
    }

    /// Changes the log bytes promised to a transaction.
    pub(super) fn promise(&mut self, old: usize, new: usize) {
        self.promised = self.promised - old + new;
        self.promises = self.promises - u64::from(old > 0) + u64::from(new > 0);
    }

    /// Registers the open frame as sent under number `seq`, with `parts` requests and this data.
    pub(super) fn sent(&mut self, seq: u64, parts: usize, data: Runs) {
        let tags = std::mem::replace(&mut self.tags, std::mem::take(&mut self.spare.0));
        self.commits.push_back(Commit { seq, parts, tags, data });
    }

    /// Handles a completed request of a frame. Calls `durable` for each transaction that is durable now.
    pub(super) fn part_done(&mut self, seq: u64, mut durable: impl FnMut(Tag)) {
        if let Some(c) = self.commits.iter_mut().find(|c| c.seq == seq) {
            c.parts -= 1;
        }
        while self.commits.front().is_some_and(|c| c.parts == 0) {
            if let Some(mut c) = self.commits.pop_front() {
                self.durable_upto = c.seq;
                c.tags.drain(..).for_each(&mut durable);
                c.data.clear();
                self.spare = (c.tags, c.data);
            }
        }
    }

    /// Lists of data that may not be on the device yet, newest first.
    fn data(&self) -> impl Iterator<Item = &Runs> {
        std::iter::once(&self.pending).chain(self.commits.iter().rev().map(|c| &c.data)).chain(&self.left)
    }

    /// True if all data is on the device.
    fn has_no_data(&self) -> bool {
        self.pending.is_empty() && self.commits.is_empty() && self.left.is_empty()
    }

    /// True if data in flight to the device overlaps these blocks.
    pub(super) fn overlaps(&self, first: u64, n: u64) -> bool {
        !self.has_no_data()
            && self.data().any(|runs| {
                let at = runs.partition_point(|r| r.0 < first);
                runs.get(at).is_some_and(|r| r.0 < first + n) || block_of(runs, first).is_some()
            })
    }

    /// Bytes of a block in flight to the device.
    #[inline]
    pub(super) fn in_flight(&self, phys: u64) -> Option<Bytes> {
        if self.has_no_data() {
            return None;
        }
        self.data().find_map(|runs| block_of(runs, phys))
    }
}

/// Bytes of a block in one of these runs.
fn block_of(runs: &Runs, phys: u64) -> Option<Bytes> {
    let at = runs.partition_point(|r| r.0 <= phys).checked_sub(1)?;
    let (first, data) = runs.get(at)?;
    let at = ((phys - first) * BLOCK) as usize;
    (at < data.len()).then(|| data.slice(at..at + BLOCK_LEN))
}
