//! Bytes that this process has summed, with the checksums of their blocks.
//!
//! The receiver of a message sums its data to verify it. The store and the sender of replicas take the checksums that
//! they need from there, instead of summing the same bytes again.
//!
//! Invariant: the checksums are those of the buffer that [`Summed`] holds, which nothing changes while it is held. A
//! slice is recognised by its address, so checksums are never taken for other bytes.
//!
//! Tests: below.

use crate::crc::{BLOCK, SEED, append, crc32c};
use bytes::Bytes;
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// Least bytes for which checksums of blocks are kept: one block.
pub const SUMMED_MIN: usize = BLOCK;

/// A buffer with the crc32c of each of its blocks from [`SEED`].
#[derive(PartialEq, Eq)]
pub struct Summed {
    bytes: Bytes,
    /// Checksums of the whole blocks, in order.
    blocks: SmallVec<[u32; 4]>,
    crc: u32,
}

impl Summed {
    /// Sums a buffer, in one pass.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        let chunks = bytes.chunks_exact(BLOCK);
        let tail = chunks.remainder();
        let blocks: SmallVec<[u32; 4]> = chunks.map(|c| crc32c(SEED, c)).collect();
        let crc = crc32c(join(&blocks), tail);
        Self { bytes, blocks, crc }
    }

    /// Sums a buffer of at least [`SUMMED_MIN`] bytes; `None` for a shorter one.
    #[must_use]
    pub fn if_large(bytes: &Bytes) -> Option<Arc<Self>> {
        (bytes.len() >= SUMMED_MIN).then(|| Arc::new(Self::new(bytes.clone())))
    }

    /// crc32c of the buffer from [`SEED`].
    #[must_use]
    pub fn crc(&self) -> u32 {
        self.crc
    }

    /// Offset of a slice of the buffer; `None` for other memory.
    fn offset_of(&self, part: &[u8]) -> Option<usize> {
        let at = (part.as_ptr() as usize).checked_sub(self.bytes.as_ptr() as usize)?;
        let end = at.checked_add(part.len())?;
        (!part.is_empty() && end <= self.bytes.len()).then_some(at)
    }

    /// True if `part` is a slice of the buffer.
    #[must_use]
    pub fn has(&self, part: &[u8]) -> bool {
        self.offset_of(part).is_some()
    }

    /// crc32c from [`SEED`] of each whole block of `part`. `None` if `part` is no slice of the buffer or does not begin
    /// with one of its blocks.
    #[must_use]
    pub fn blocks_of(&self, part: &[u8]) -> Option<&[u32]> {
        let at = self.offset_of(part).filter(|at| at.is_multiple_of(BLOCK))? / BLOCK;
        self.blocks.get(at..at + part.len() / BLOCK)
    }

    /// crc32c of `part` from [`SEED`], if it is a slice of the buffer that begins with one of its blocks. Sums less than
    /// a block.
    #[must_use]
    pub fn crc_of(&self, part: &[u8]) -> Option<u32> {
        if self.offset_of(part) == Some(0) && part.len() == self.bytes.len() {
            return Some(self.crc);
        }
        let tail = part.chunks_exact(BLOCK).remainder();
        self.blocks_of(part).map(|b| crc32c(join(b), tail))
    }
}

/// crc32c from [`SEED`] of blocks with these checksums.
fn join(blocks: &[u32]) -> u32 {
    blocks.iter().fold(SEED, |whole, c| append(whole, SEED, *c, BLOCK))
}

impl fmt::Debug for Summed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Summed({} bytes, crc {:08x})", self.bytes.len(), self.crc)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn checksums_of_random_parts_are_those_of_their_bytes() {
        let mut rng = Rng::new(5);
        for _ in 0..40 {
            let len = 1 + rng.below(20 * BLOCK as u64) as usize;
            let data = Bytes::from(rng.bytes(len));
            let s = Summed::new(data.clone());
            assert_eq!(s.crc(), crc32c(SEED, &data));
            for _ in 0..20 {
                let mut from = rng.below(len as u64) as usize;
                if rng.below(3) > 0 {
                    from -= from % BLOCK;
                }
                let part = data.slice(from..from + 1 + rng.below((len - from) as u64) as usize);
                assert!(s.has(&part));
                let blocks: Vec<u32> = part.chunks_exact(BLOCK).map(|c| crc32c(SEED, c)).collect();
                let aligned = from.is_multiple_of(BLOCK);
                assert_eq!(s.blocks_of(&part), aligned.then_some(&blocks[..]), "{from} of {len}");
                assert_eq!(s.crc_of(&part), aligned.then(|| crc32c(SEED, &part)));
            }
        }
    }

    #[test]
    fn other_memory_has_no_checksums_even_with_the_same_bytes() {
        let all = Bytes::from(Rng::new(6).bytes(6 * BLOCK));
        let s = Summed::new(all.slice(BLOCK..3 * BLOCK));
        let copy = Bytes::copy_from_slice(&all);
        let others =
            [all.slice(..BLOCK), all.slice(..2 * BLOCK), all.slice(2 * BLOCK..4 * BLOCK), all.slice(3 * BLOCK..)];
        for part in others.into_iter().chain([copy.slice(BLOCK..2 * BLOCK), all.slice(BLOCK..BLOCK), Bytes::new()]) {
            assert!(!s.has(&part));
            assert_eq!((s.blocks_of(&part), s.crc_of(&part)), (None, None));
        }
        assert!(s.blocks_of(&all.slice(2 * BLOCK..3 * BLOCK)).is_some());
    }
}
