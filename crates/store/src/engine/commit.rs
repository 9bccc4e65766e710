//! Group commit: records of transactions in the open frame, which is sent with its data and one flush per turn, and
//! acknowledged in order.

use super::perform::Applied;
use super::prepare::RING_SLACK;
use super::{Role, Store};
use crate::api::{Event, Tag};
use crate::layout::{BLOCK, BLOCK_LEN};
use crate::meta::map::VERSION_MASK;
use crate::space::Runs;
use base::device::IoKind;
use base::errno;
use base::planted::{Bug, acts};
use bytes::Bytes;

/// Largest data write.
pub(super) const WRITE_BYTES_MAX: usize = 1 << 20;
/// Most buffers of a data write, below the kernel's bound.
const WRITE_BUFS_MAX: usize = 256;

impl Store {
    /// Sends the open frame with its data and a flush. Does nothing if the frame is empty.
    pub(super) fn close_frame(&mut self) {
        if self.log.has_records() {
            self.send_frame();
        }
    }

    /// Writes an empty frame that records the newest frame as durable, if nothing was written since the last call, and
    /// lets a store at rest release its freed blocks. The host calls this about once a second. Without such a record,
    /// opening takes an unreadable newest frame for one that a crash cut off. Under load the next frame carries the record.
    pub fn confirm(&mut self) {
        let quiet = self.log.no_frame_since_last_call();
        // Prepared transactions hold all promised room, and their frame will carry the record.
        let open = self.log.has_records() || self.log.is_promised() || self.suspended.is_some();
        let busy = open || !self.log.is_at_rest() || self.failed().is_some();
        self.rest(quiet && !busy);
        let room = self.log.free() > RING_SLACK;
        if quiet && !busy && room && self.log.is_unconfirmed() && !acts(Bug::StoreForgetConfirm) {
            self.send_frame();
        }
    }

    fn send_frame(&mut self) {
        let Some((seq, at, frame)) = self.log.close() else {
            return self.fail("a log frame without room in the log".into(), errno::EIO);
        };
        self.counters.frames += 1;
        self.counters.log_bytes += frame.len() as u64;
        let data = self.log.take_pending();
        let parts = self.write_data(seq, &data) + 2;
        self.request(Role::Commit { seq }, IoKind::Write { off: at * BLOCK, bufs: vec![frame] });
        let skip = acts(Bug::StoreSkipFlush);
        if !skip {
            self.request(Role::Commit { seq }, IoKind::Flush);
        }
        self.counters.flushes += 1;
        let parts = parts - usize::from(skip);
        self.log.sent(seq, parts, data);
    }

    /// Adds data for these blocks to the open frame.
    pub(super) fn send(&mut self, runs: &Runs, data: Bytes) {
        if let [(first, _)] = runs[..] {
            return self.log.add_data(first, data);
        }
        let mut at = 0;
        for (first, k) in runs {
            let len = *k as usize * BLOCK_LEN;
            let part = data.slice(at..at + len);
            at += len;
            self.log.add_data(*first, part);
        }
    }

    /// Writes data; adjacent blocks go in one request. Returns the number of requests.
    fn write_data(&mut self, seq: u64, data: &[(u64, Bytes)]) -> usize {
        let mut requests = 0;
        let mut rest = data;
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
            self.request(Role::Data { seq, first }, IoKind::Write { off: first * BLOCK, bufs });
            requests += 1;
        }
        requests
    }

    pub(super) fn commit_part_done(&mut self, seq: u64) {
        let events = &mut self.events;
        self.log.part_done(seq, |t| events.push_back(Event::Durable(t, Ok(()))));
    }

    /// Begins the record of a transaction. Returns its place in the open frame, and the version of the blocks that it
    /// writes.
    pub(super) fn begin_record(&mut self) -> (usize, u32) {
        (self.log.begin_record(), (self.log.lsn() as u32) & VERSION_MASK)
    }

    /// Ends a transaction whose record begins at `at` in the payload of the open frame: checks it against the bytes that it
    /// was given, and gives back the reserved blocks that are `left`.
    pub(super) fn end_record(
        &mut self,
        tag: Tag,
        mut payload: Vec<u8>,
        at: usize,
        room: usize,
        left: u64,
        mut applied: Applied,
    ) {
        self.meta.stop_keeping();
        if let Some(what) = self.meta.take_damage() {
            applied = applied.and(Err(what));
        }
        self.meta.prune();
        self.meta.end_changes();
        let len = payload.len() - at;
        if len > room {
            applied =
                applied.and(Err(format!("its record of {len} bytes is longer than the {room} bytes reserved for it")));
        }
        if let Some(l) = payload.get_mut(at..at + 4) {
            l.copy_from_slice(&((len - 4) as u32).to_le_bytes());
        }
        self.log.end_record(tag, payload);
        self.changes += 1;
        self.space.unreserve(left);
        // The transactions of one turn may dirty much memory. Other prepared transactions repeat their lookups,
        // since `changes` has moved.
        if self.meta.pages().mem() > self.cfg.meta_bytes / 16 * 17 {
            self.evict();
        }
        if let Err(what) = applied {
            self.fail(format!("transaction could not be applied: {what}"), errno::EIO);
        }
    }
}
