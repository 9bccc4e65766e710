//! Data of large writes, written before their transaction is submitted.
//!
//! `prepare` allocates the whole blocks of a large write, writes them, and answers `Wait` until they are
//! written. The record enters a frame afterwards, and that frame's flush makes both durable. So small writes in
//! the same frame never wait for megabytes of data. Nothing refers to the blocks until then, so a crash leaves
//! them free.
//!
//! Invariant: a repeated plan may have other operations. Early data is used only for a write of the same bytes
//! to the same place, and released if there is none.
//!
//! Tests: `tests/repeated.rs`.

use super::commit::WRITE_BYTES_MAX;
use super::pack::Packs;
use super::prepare::needs_edges;
use super::{Role, Store};
use crate::api::{Event, ReadError, Tag};
use crate::key::{Cid, Oid};
use crate::layout::{BLOCK, BLOCK_LEN};
use crate::space::Runs;
use crate::txn::Op;
use base::buf::aligned;
use base::device::IoKind;
use bytes::Bytes;

/// Early data of one write.
#[derive(Debug)]
pub(super) struct Early {
    cid: Cid,
    oid: Oid,
    off: u64,
    /// All bytes of the write, edges included.
    data: Bytes,
    pub(super) runs: Runs,
}

impl Early {
    /// True if the early data belongs to a write of these bytes to this place.
    pub(super) fn is(&self, cid: Cid, oid: &Oid, off: u64, data: &Bytes) -> bool {
        let place = self.off == off && self.data.len() == data.len() && self.cid == cid && self.oid == *oid;
        place && (data.as_ptr() == self.data.as_ptr() || *data == self.data)
    }
}

/// Whole blocks of a write: the first, and one past the last.
pub(super) fn whole(off: u64, len: u64) -> (u64, u64) {
    (off.div_ceil(BLOCK), (off + len) / BLOCK)
}

impl Store {
    /// Writes the large data of a transaction, in blocks reserved for it.
    pub(super) fn write_early(&mut self, tag: Tag, ops: &[Op], packs: &Packs) -> Result<(), ReadError> {
        let p = self.tag_state(tag);
        if p.early.is_empty() {
            let last_edge = ops.iter().rposition(needs_edges);
            for (at, op) in ops.iter().enumerate() {
                let Op::Write { cid, oid, off, data, .. } = op else { continue };
                // Early data is not found by later operations that need its content. Of two equal writes, the
                // first would take the early data of both.
                let same = |o: &Op| match o {
                    Op::Write { cid: c, oid: i, off: f, data: d, .. } => {
                        (f, d.len(), c, i) == (off, data.len(), cid, oid)
                    }
                    _ => false,
                };
                let (b0, b1) = whole(*off, data.len() as u64);
                if b1 <= b0 || (b1 - b0) * BLOCK < self.cfg.early_bytes as u64 || last_edge > Some(at) {
                    continue;
                }
                let packed = packs.iter().any(|p| p.0 + at + 1 == ops.len());
                if packed || ops.iter().take(at).any(same) {
                    continue;
                }
                let from = (b0 * BLOCK - off) as usize;
                let part = data.slice(from..from + ((b1 - b0) * BLOCK) as usize);
                let runs = self.start_early(tag, part);
                let early = Early { cid: *cid, oid: oid.clone(), off: *off, data: data.clone(), runs };
                self.tag_state(tag).early.push(early);
            }
        }
        if self.tag_state(tag).writing > 0 { Err(ReadError::Wait) } else { Ok(()) }
    }

    /// Releases early data of a plan whose operations have changed.
    pub(super) fn check_early(&mut self, tag: Tag, ops: &[Op], allowed: bool) -> Result<(), ReadError> {
        let Some(p) = self.tags.get_mut(tag).filter(|p| !p.early.is_empty()) else { return Ok(()) };
        if p.writing > 0 {
            return Err(ReadError::Wait);
        }
        let plan = p.id;
        let last_edge = ops.iter().rposition(needs_edges);
        let mut gone = Vec::new();
        for mut e in std::mem::take(&mut p.early) {
            let found = ops.iter().enumerate().find_map(|(at, op)| match op {
                Op::Write { cid, oid, off, data, .. } if e.is(*cid, oid, *off, data) => Some((at, data)),
                _ => None,
            });
            match found.filter(|(at, _)| allowed && last_edge <= Some(*at)) {
                // The same bytes may be in another buffer now. Keeping that one makes the next comparison
                // cheap.
                Some((_, data)) => {
                    e.data = data.clone();
                    p.early.push(e);
                }
                None => gone.push(e),
            }
        }
        self.drop_early(tag, plan, gone);
        Ok(())
    }

    fn start_early(&mut self, tag: Tag, data: Bytes) -> Runs {
        let data = aligned(data);
        let mut runs = Runs::new();
        let got = self.space.take(self.streams.large(), data.len() as u64 / BLOCK, &mut runs);
        let p = self.tag_state(tag);
        let plan = p.id;
        p.reserved = p.reserved.saturating_sub(got);
        let mut at = 0;
        for (first, n) in &runs {
            let mut first = *first;
            let end = at + *n as usize * BLOCK_LEN;
            while at < end {
                let part = data.slice(at..end.min(at + WRITE_BYTES_MAX));
                let blocks = (part.len() / BLOCK_LEN) as u32;
                at += part.len();
                self.tag_state(tag).writing += 1;
                self.counters.data_blocks += u64::from(blocks);
                self.counters.data_writes += 1;
                let role = Role::Early { tag, plan, first, n: blocks };
                self.request(role, IoKind::WriteAhead { off: first * BLOCK, bufs: vec![part] });
                first += u64::from(blocks);
            }
        }
        runs
    }

    /// Handles the completion of an early write.
    pub(super) fn early_done(&mut self, tag: Tag, plan: u64, first: u64, n: u32) {
        let Some(p) = self.tags.get_mut(tag).filter(|p| p.id == plan) else {
            // The plan has ended, and with this completion no write to the blocks is in flight.
            self.space.release(first, n);
            return;
        };
        p.writing -= 1;
        if p.writing == 0 && p.outstanding == 0 {
            self.events.push_back(Event::Ready(tag));
        }
    }

    /// Releases the early data of a plan that was not submitted. Blocks with a write in flight are released
    /// with its completion.
    pub(super) fn drop_early(&mut self, tag: Tag, plan: u64, early: Vec<Early>) {
        let under_way: Vec<(u64, u32)> = self
            .io
            .roles()
            .filter_map(|r| match r {
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
