//! Data of large writes, written before their transaction may be submitted.
//!
//! `prepare` gives the whole blocks of a large write their places and writes them; it answers `Wait` until they are there. The
//! record enters a frame afterwards, and the frame's flush makes both durable: what is acknowledged with small writes in one
//! frame never waits for megabytes of data. Nothing refers to the blocks before, so a crash leaves them free.

use super::commit::WRITE_BYTES_MAX;
use super::prepare::needs_edges;
use super::{Role, Store};
use crate::api::{Event, ReadError, Tag};
use crate::layout::BLK;
use crate::space::Runs;
use crate::txn::Op;
use base::buf::{AlignedBuf, PAGE};
use base::device::IoKind;
use bytes::Bytes;

/// Blocks of one write.
#[derive(Debug)]
pub(super) struct Early {
    /// Operations of the transaction from this one on.
    pub(super) left: usize,
    pub(super) runs: Runs,
}

/// Whole blocks of a write: first and one past the last.
pub(super) fn whole(off: u64, len: u64) -> (u64, u64) {
    (off.div_ceil(BLK), (off + len) / BLK)
}

impl Store {
    /// Writes what is large among a transaction's data, out of what is reserved for it.
    pub(super) fn write_early(&mut self, tag: Tag, ops: &[Op]) -> Result<(), ReadError> {
        let p = self.plan(tag);
        if p.early.is_empty() {
            for (at, op) in ops.iter().enumerate() {
                let Op::Write { off, data, .. } = op else { continue };
                // Later operations find the transaction's own data in memory only.
                if ops.iter().skip(at + 1).any(needs_edges) {
                    continue;
                }
                let (b0, b1) = whole(*off, data.len() as u64);
                if b1 <= b0 || (b1 - b0) * BLK < self.cfg.early_bytes as u64 {
                    continue;
                }
                let from = (b0 * BLK - off) as usize;
                let data = data.slice(from..from + ((b1 - b0) * BLK) as usize);
                self.start_early(tag, ops.len() - at, data);
            }
        }
        if self.plan(tag).writing > 0 { Err(ReadError::Wait) } else { Ok(()) }
    }

    fn start_early(&mut self, tag: Tag, left: usize, data: Bytes) {
        let data = if (data.as_ptr() as usize).is_multiple_of(PAGE) {
            data
        } else {
            let mut buf = AlignedBuf::dirty(data.len());
            buf.copy_from_slice(&data);
            buf.freeze()
        };
        let mut runs = Runs::new();
        let got = self.space.take(&mut self.large, data.len() as u64 / BLK, &mut runs);
        let p = self.plan(tag);
        let plan = p.id;
        p.reserved = p.reserved.saturating_sub(got);
        let mut at = 0;
        for (first, n) in &runs {
            let mut first = *first;
            let end = at + *n as usize * PAGE;
            while at < end {
                let part = data.slice(at..end.min(at + WRITE_BYTES_MAX));
                let blocks = (part.len() / PAGE) as u32;
                at += part.len();
                self.plan(tag).writing += 1;
                self.counters.data_blocks += u64::from(blocks);
                self.counters.data_writes += 1;
                let role = Role::Early { tag, plan, first, n: blocks };
                self.request(role, IoKind::WriteAhead { off: first * BLK, bufs: vec![part] });
                first += u64::from(blocks);
            }
        }
        self.plan(tag).early.push(Early { left, runs });
    }

    /// A part of it is on the device.
    pub(super) fn early_done(&mut self, tag: Tag, plan: u64, first: u64, n: u32) {
        let Some(p) = self.plans.get_mut(&tag).filter(|p| p.id == plan) else {
            // The plan ended before; now nobody writes there any more.
            self.space.release(first, n);
            return;
        };
        p.writing -= 1;
        if p.writing == 0 && p.outstanding == 0 {
            self.events.push_back(Event::Ready(tag));
        }
    }

    /// Gives back what a plan that was not submitted wrote; what is still being written comes back with its completion.
    pub(super) fn drop_early(&mut self, tag: Tag, plan: u64, early: Vec<Early>) {
        let under_way: Vec<(u64, u32)> = self
            .ios
            .iter()
            .filter_map(|(_, (_, r))| match r {
                Role::Early { tag: t, plan: p, first, n } if *t == tag && *p == plan => Some((*first, *n)),
                _ => None,
            })
            .collect();
        for (first, n) in early.into_iter().flat_map(|e| e.runs) {
            for b in first..first + u64::from(n) {
                if !under_way.iter().any(|(f, k)| (*f..*f + u64::from(*k)).contains(&b)) {
                    self.space.release(b, 1);
                }
            }
        }
    }
}
