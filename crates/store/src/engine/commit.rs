//! Group commit: one frame, its data and one flush per turn; acknowledgement in order.

use super::prepare::RING_SLACK;
use super::{Role, Store};
use crate::api::{Event, Tag};
use crate::layout::{BLOCK, BLOCK_LEN};
use crate::wal::Kind;
use base::device::IoKind;
use base::errno;
use base::planted::{Bug, acts};
use bytes::Bytes;

/// Largest data write.
pub(super) const WRITE_BYTES_MAX: usize = 1 << 20;
/// Most buffers of a data write, below the kernel's bound.
const WRITE_BUFS_MAX: usize = 256;

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

impl Store {
    /// The open frame may go: few are under way, and none but the one before it that has few transactions, and no more than this one.
    /// Else commits would take turns under load, a large one of what came during another and a small one of what came in a
    /// turn, and a frame costs as much as several transactions. Beside large data, or beside a lone transaction, waiting is what costs.
    pub(super) fn may_commit(&self) -> bool {
        let Some(c) = self.commits.back() else { return true };
        let data = || self.pending.iter().map(|p| p.1.len()).sum::<usize>();
        self.commits.len() < self.cfg.commits_max
            && self.tags.len() >= c.tags.len()
            && (c.tags.len() <= FEW || data() >= MUCH)
    }

    /// Sends the open frame with its data and a flush. Nothing happens if it is empty.
    pub(super) fn close_frame(&mut self) {
        if self.records > 0 {
            self.newest_frame = self.ring.head.seq;
            self.send_frame();
        }
    }

    /// To be called about once a second: writes down that the newest frame is durable, once nothing was written since the last call. Opening
    /// takes a frame of which nothing says so for one that a crash cut off if it, or its data, can't be read. Under load the next
    /// frame says it; here it is an empty one.
    pub fn confirm(&mut self) {
        let quiet = std::mem::replace(&mut self.last_head, self.ring.head.seq) == self.ring.head.seq;
        // What is prepared was promised all room there is; its frame will say it.
        let open = self.records > 0 || self.log_promised > 0 || self.suspended.is_some();
        let busy = open || !self.commits.is_empty() || self.failed().is_some();
        let room = self.ring.free() > RING_SLACK;
        if quiet && !busy && room && self.newest_frame > self.confirmed && !acts(Bug::StoreForgetConfirm) {
            self.send_frame();
        }
    }

    fn send_frame(&mut self) {
        let first_lsn = self.lsn - u64::from(self.records);
        let closed = self.ring.close(Kind::Commit, &self.payload, self.records, first_lsn, self.durable_upto);
        self.confirmed = self.confirmed.max(self.durable_upto);
        self.payload.clear();
        self.records = 0;
        let Some((at, frame)) = closed else {
            return self.fail("a log frame without room in the log".into(), errno::EIO);
        };
        let seq = self.ring.head.seq - 1;
        self.counters.frames += 1;
        self.counters.log_bytes += frame.len() as u64;
        let mut pending = std::mem::take(&mut self.pending);
        let parts = self.write_data(seq, &mut pending) + 2;
        pending.clear();
        self.pending = pending;
        self.request(Role::Commit { seq }, IoKind::Write { off: at * BLOCK, bufs: vec![frame] });
        let skip = acts(Bug::StoreSkipFlush);
        if !skip {
            self.request(Role::Commit { seq }, IoKind::Flush);
        }
        self.counters.flushes += 1;
        let parts = parts - usize::from(skip);
        self.commits.push_back(Commit { seq, parts, tags: std::mem::take(&mut self.tags) });
    }

    /// Writes data, adjacent blocks in one request; how many requests.
    fn write_data(&mut self, seq: u64, pending: &mut [(u64, Bytes)]) -> usize {
        // Allocation ascends but where a stream changed its group.
        pending.sort_unstable_by_key(|p| p.0);
        let mut requests = 0;
        let mut rest = &pending[..];
        while let Some((first, _)) = rest.first() {
            let (first, mut bytes, mut n) = (*first, 0, 0);
            while let Some((b, d)) = rest.get(n) {
                let follows = *b == first + bytes as u64 / BLOCK;
                if n > 0 && (!follows || n >= WRITE_BUFS_MAX || bytes + d.len() > WRITE_BYTES_MAX) {
                    break;
                }
                bytes += d.len();
                n += 1;
            }
            let bufs = rest[..n].iter().map(|p| p.1.clone()).collect();
            rest = &rest[n..];
            let blocks = bytes as u64 / BLOCK;
            self.counters.data_blocks += blocks;
            self.counters.data_writes += 1;
            self.request(Role::Data { seq, first, n: blocks }, IoKind::Write { off: first * BLOCK, bufs });
            requests += 1;
        }
        requests
    }

    /// The device has these blocks now.
    pub(super) fn data_done(&mut self, first: u64, n: u64) {
        while let Some((&at, _)) = self.inflight.range(first..first + n).next() {
            self.inflight.remove(&at);
        }
    }

    pub(super) fn commit_part_done(&mut self, seq: u64) {
        if let Some(c) = self.commits.iter_mut().find(|c| c.seq == seq) {
            c.parts -= 1;
        }
        while self.commits.front().is_some_and(|c| c.parts == 0) {
            if let Some(c) = self.commits.pop_front() {
                self.durable_upto = c.seq;
                self.events.extend(c.tags.into_iter().map(|t| Event::Durable(t, Ok(()))));
            }
        }
    }

    /// Bytes of a block that is on its way to the device.
    pub(super) fn in_flight(&self, phys: u64) -> Option<Bytes> {
        let (first, data) = self.inflight.range(..=phys).next_back()?;
        let at = ((phys - first) * BLOCK) as usize;
        (at < data.len()).then(|| data.slice(at..at + BLOCK_LEN))
    }
}
