//! Frames of the write-ahead log, and the ring that holds them.
//!
//! A frame holds the records of one group commit and starts at a block boundary. Frames never wrap: one that
//! does not fit before the ring's end starts at the ring's beginning. This module does not interpret records. A
//! record is one transaction, encoded by `meta::change`.
//!
//! Invariants:
//!  1. Each header has the checksum of the header before it (`prev`) and of its own payload. So a frame counts
//!     only as the continuation of exactly the log it was written after.
//!  2. `durable_upto` never exceeds what had completed, flush included, when the frame was closed.
//!  3. No two frames are equal. So the seal that opening writes over a torn frame never equals that frame, and
//!     frames that were cut off behind it can't continue the log again.
//!
//! Tests: below (1, `frames_chain_and_wrap`), `tests/histories.rs` (2, 3; planted bugs `StoreSkipFlush`,
//! `StoreSealAsCommit`).

use crate::codec::{Get, Put};
use crate::layout::BLOCK;
use base::Uuid;
use base::buf::AlignedBuf;
use base::crc::{SEED, crc32c};
use bytes::Bytes;

pub(crate) const MAGIC: u32 = 0x4657_4c42;
/// Bytes of a frame's header.
pub(crate) const HEADER: usize = 64;

/// Most bytes of a frame, which the transaction of the largest message needs. After a break in the log, opening
/// searches that far for later frames.
pub(crate) const FRAME_BYTES_MAX: u64 = base::sizes::FRAME_MAX as u64;
/// Largest plausible record number.
const LSN_MAX: u64 = 1 << 62;

/// Writer of a frame, as its header states. Without it, two frames without records could be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Frame of a running store.
    Commit = 0,
    /// Frame of an opening store, after everything it found.
    Seal = 1,
}

/// Header of a frame:
///
/// | frame header | form |
/// | --- | --- |
/// | magic | u32 |
/// | ring | u16 |
/// | kind | u16 |
/// | layout epoch | u32 |
/// | prev | u32 |
/// | number | u64 |
/// | durable_upto | u64 |
/// | payload length | u32 |
/// | payload crc | u32 |
/// | uuid | u64 |
/// | first record number | u64 |
/// | records | u32 |
/// | header crc | u32 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) ring: u16,
    pub(crate) layout_epoch: u32,
    pub(crate) prev: u32,
    pub(crate) seq: u64,
    pub(crate) durable_upto: u64,
    pub(crate) len: u32,
    pub(crate) payload_crc: u32,
    pub(crate) uuid: u64,
    /// Number of the first record.
    pub(crate) lsn: u64,
    pub(crate) records: u32,
    /// Checksum of this header: the next frame's `prev`.
    pub(crate) crc: u32,
}

impl Header {
    pub(crate) fn blocks(&self) -> u64 {
        frame_blocks(self.len as usize)
    }

    pub(crate) fn decode(buf: &[u8]) -> Option<Self> {
        let head = buf.get(..HEADER)?;
        let mut r = Get::new(head);
        if r.u32().ok()? != MAGIC {
            return None;
        }
        let ring = r.u16().ok()?;
        r.u16().ok()?;
        let (layout_epoch, prev) = (r.u32().ok()?, r.u32().ok()?);
        let (seq, durable_upto) = (r.u64().ok()?, r.u64().ok()?);
        let (len, payload_crc) = (r.u32().ok()?, r.u32().ok()?);
        let (uuid, lsn, records) = (r.u64().ok()?, r.u64().ok()?, r.u32().ok()?);
        let crc = r.u32().ok()?;
        (crc32c(SEED, head.get(..HEADER - 4)?) == crc && lsn <= LSN_MAX).then_some(Self {
            ring,
            layout_epoch,
            prev,
            seq,
            durable_upto,
            len,
            payload_crc,
            uuid,
            lsn,
            records,
            crc,
        })
    }
}

/// Blocks of a frame with `payload` bytes.
pub(crate) fn frame_blocks(payload: usize) -> u64 {
    ((HEADER + payload) as u64).div_ceil(BLOCK)
}

/// Most payload bytes of a frame in a ring of `ring` blocks, at any position: at most a quarter of the ring.
pub(crate) fn payload_max(ring: u64) -> usize {
    ((ring / 4) * BLOCK).min(FRAME_BYTES_MAX) as usize - HEADER
}

/// First bytes of the store's uuid, for frames.
pub(crate) fn short_uuid(u: &Uuid) -> u64 {
    let mut b = [0; 8];
    b.copy_from_slice(&u.0[..8]);
    u64::from_le_bytes(b)
}

/// Position in a log, in blocks from the ring's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) pos: u64,
    /// Sequence number of the frame at the position.
    pub(crate) seq: u64,
    /// Checksum of the header of the frame before.
    pub(crate) chain: u32,
}

/// Ring of one reactor. A record: the running store changes it through its log only.
#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) start: u64,
    pub(crate) blocks: u64,
    pub(crate) index: u16,
    pub(crate) layout_epoch: u32,
    pub(crate) uuid: u64,
    /// Position of the next frame.
    pub(crate) head: Position,
    /// Position from which replay would start.
    pub(crate) tail: u64,
    /// Blocks between tail and head, including gaps at the end.
    pub(crate) used: u64,
}

impl Ring {
    /// Most payload bytes of a frame.
    pub(crate) fn payload_max(&self) -> usize {
        payload_max(self.blocks)
    }

    /// Blocks that may still be used.
    pub(crate) fn free(&self) -> u64 {
        // A damaged root may have a tail that makes `used` too large.
        self.blocks.saturating_sub(self.used)
    }

    /// Builds the frame and moves the head behind it. Returns device block and bytes; `None` if the frame would
    /// overwrite the log still needed.
    pub(crate) fn close(
        &mut self,
        kind: Kind,
        payload: &[u8],
        records: u32,
        lsn: u64,
        durable_upto: u64,
    ) -> Option<(u64, Bytes)> {
        let n = frame_blocks(payload.len());
        let fits = self.head.pos + n <= self.blocks;
        let (at, gap) = if fits { (self.head.pos, 0) } else { (0, self.blocks.saturating_sub(self.head.pos)) };
        if gap + n > self.free() {
            return None;
        }
        self.used += gap + n;
        let mut buf = AlignedBuf::dirty((n * BLOCK) as usize);
        let mut h = Vec::with_capacity(HEADER);
        h.u32(MAGIC);
        h.u16(self.index);
        h.u16(kind as u16);
        h.u32(self.layout_epoch);
        h.u32(self.head.chain);
        h.u64(self.head.seq);
        h.u64(durable_upto);
        h.u32(payload.len() as u32);
        h.u32(crc32c(SEED, payload));
        h.u64(self.uuid);
        h.u64(lsn);
        h.u32(records);
        let crc = crc32c(SEED, &h);
        h.u32(crc);
        let (head, rest) = buf.split_at_mut(HEADER);
        head.copy_from_slice(&h);
        let (body, tail) = rest.split_at_mut(payload.len());
        body.copy_from_slice(payload);
        tail.fill(0);
        self.head = Position { pos: at + n, seq: self.head.seq + 1, chain: crc };
        Some((self.start + at, buf.freeze()))
    }

    /// Moves the tail to `p`, whose checkpoint is durable, so that the log before it may be overwritten.
    pub(crate) fn trim(&mut self, p: Position) {
        let span = |from: u64, to: u64| if to >= from { to - from } else { self.blocks - from + to };
        let whole = p.seq != self.head.seq && p.pos == self.head.pos;
        self.tail = p.pos;
        self.used = if whole { self.blocks } else { span(p.pos, self.head.pos) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_log_takes_what_the_table_of_sizes_says() {
        use crate::layout::{DEVICE_BYTES_MIN, Layout, RINGS_MAX};
        let (_, blocks) = Layout::of(DEVICE_BYTES_MIN).unwrap().ring(0, RINGS_MAX);
        assert!(payload_max(blocks) - crate::txn::RECORD_BYTES >= base::sizes::FRAME_MIN);
    }

    #[test]
    fn frames_chain_and_wrap() {
        let mut ring = Ring {
            start: 100,
            blocks: 16,
            index: 1,
            layout_epoch: 2,
            uuid: 3,
            head: Position { pos: 0, seq: 1, chain: 9 },
            tail: 0,
            used: 0,
        };
        let mut prev = 9;
        for i in 0..5u64 {
            let (at, b) = ring.close(Kind::Commit, &vec![7; 9000], 1, i, i).unwrap();
            assert_eq!(at, 100 + i * 3);
            let h = Header::decode(&b).unwrap();
            assert_eq!((h.prev, h.seq, h.blocks(), h.durable_upto), (prev, i + 1, 3, i));
            prev = h.crc;
        }
        assert_eq!(ring.free(), 1);
        let before = ring.head;
        assert_eq!(ring.close(Kind::Commit, &[7; 9000], 1, 5, 5), None, "over the tail");
        assert_eq!((ring.head, ring.used), (before, 15));
        ring.trim(Position { pos: 12, seq: 5, chain: 0 });
        assert_eq!(ring.used, 3);
        let (at, _) = ring.close(Kind::Commit, &[1; 9000], 1, 9, 9).unwrap();
        assert_eq!((at, ring.used), (100, 3 + 1 + 3));
        let mut b = ring.close(Kind::Commit, &[1], 1, 9, 9).unwrap().1.to_vec();
        b[20] ^= 1;
        assert_eq!(Header::decode(&b), None);
    }
}
