//! The log of one store as it is written: the open frame, the frames on their way, and how far the log is durable.
//!
//! `commit` sends frames and takes their completions, `perform` fills the open one.
//!
//! Invariants:
//!  1. `commits` are in the order of their frames; they end in that order, whatever order the device has.
//!  2. What is in `pending` is in `inflight`, too: data is found here until the device has it.

use crate::api::Tag;
use crate::layout::{BLOCK, BLOCK_LEN};
use crate::wal::Ring;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// Transactions of a commit beside which another may go.
const FEW: usize = 4;
/// Bytes of data with which a commit goes beside any that has no more transactions: the device has to be kept busy.
const MUCH: usize = 256 << 10;

/// A frame on its way.
#[derive(Debug)]
pub(super) struct Commit {
    seq: u64,
    /// Requests not yet completed.
    parts: usize,
    pub(super) tags: Vec<Tag>,
}

/// See the module.
pub(super) struct Log {
    pub(super) ring: Ring,
    pub(super) lsn: u64,
    /// The open frame.
    pub(super) payload: Vec<u8>,
    pub(super) records: u32,
    pub(super) tags: Vec<Tag>,
    /// Data blocks of the open frame, as written.
    pub(super) pending: Vec<(u64, Bytes)>,
    /// Data not yet known to be on the device, pending included: first block → bytes.
    pub(super) inflight: BTreeMap<u64, Bytes>,
    pub(super) commits: VecDeque<Commit>,
    pub(super) durable_upto: u64,
    /// The newest frame that has records, and the newest one of which it is written that it is durable, in a frame behind it or by a root.
    pub(super) newest_frame: u64,
    pub(super) confirmed: u64,
    /// The next frame's number when it was last asked for a confirmation.
    pub(super) last_head: u64,
    /// Bytes of log promised to prepared transactions.
    pub(super) promised: usize,
}

impl Log {
    /// A log that goes on at the head of `ring` with record `lsn`.
    pub(super) fn new(ring: Ring, lsn: u64) -> Self {
        Self {
            durable_upto: ring.head.seq - 1,
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
        }
    }

    /// The open frame may go: few are under way, and none but the one before it that has few transactions, and no more than this one.
    /// Else commits would take turns under load, a large one of what came during another and a small one of what came in a
    /// turn, and a frame costs as much as several transactions. Beside large data, or beside a lone transaction, waiting is what costs.
    pub(super) fn may_commit(&self, commits_max: usize) -> bool {
        let Some(c) = self.commits.back() else { return true };
        let data = || self.pending.iter().map(|p| p.1.len()).sum::<usize>();
        self.commits.len() < commits_max && self.tags.len() >= c.tags.len() && (c.tags.len() <= FEW || data() >= MUCH)
    }

    /// The open frame was sent as number `seq`, with so many requests.
    pub(super) fn sent(&mut self, seq: u64, parts: usize) {
        self.commits.push_back(Commit { seq, parts, tags: std::mem::take(&mut self.tags) });
    }

    /// A request of a frame is done; tells whose transactions are durable by it.
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

    /// The device has these blocks now.
    pub(super) fn data_done(&mut self, first: u64, n: u64) {
        while let Some((&at, _)) = self.inflight.range(first..first + n).next() {
            self.inflight.remove(&at);
        }
    }

    /// Bytes of a block that is on its way to the device.
    pub(super) fn in_flight(&self, phys: u64) -> Option<Bytes> {
        let (first, data) = self.inflight.range(..=phys).next_back()?;
        let at = ((phys - first) * BLOCK) as usize;
        (at < data.len()).then(|| data.slice(at..at + BLOCK_LEN))
    }
}
