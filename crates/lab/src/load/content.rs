//! Verifiable block contents: each block has a header that identifies it, and its other bytes follow from the header.
//!
//! A block begins with magic, seed, number and generation; the bytes after them are random numbers seeded by the last
//! three. A checker needs nothing else to recognize a misplaced block, an old version, a torn write, or corruption.

use base::rng::Rng;
use std::collections::HashMap;

/// Length of the block header in bytes: magic, seed, number, generation.
const HEAD: usize = 32;
const MAGIC: u64 = 0x6c61_622d_626c_6f63;
/// Smallest verifiable block in bytes.
pub const BLOCK_MIN: u64 = 64;

/// Mismatch between a read block and the written one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// The read returned fewer bytes than were written.
    #[error("{have} bytes instead of {want}")]
    Short {
        /// Bytes read.
        have: usize,
        /// Bytes of a block.
        want: usize,
    },
    /// The block has no valid header.
    #[error("not a block of this generator")]
    Foreign,
    /// The block belongs to another run or place.
    #[error("found block {number} of seed {seed}, from another place or run")]
    Elsewhere {
        /// Seed in the header.
        seed: u64,
        /// Number in the header.
        number: u64,
    },
    /// The header is right, but a byte after it is wrong.
    #[error("byte {offset} of generation {generation} differs")]
    Differs {
        /// Offset of the first wrong byte.
        offset: usize,
        /// Generation in the header.
        generation: u64,
    },
    /// The block is intact, but its generation is too old or was never written.
    #[error("generation {have}, expected {oldest} to {newest}")]
    Generation {
        /// Generation read.
        have: u64,
        /// Generation acknowledged when the read began.
        oldest: u64,
        /// Newest generation sent before the read ended.
        newest: u64,
    },
}

fn body(seed: u64, number: u64, generation: u64) -> Rng {
    Rng::new(seed ^ number.rotate_left(24) ^ generation.rotate_left(48))
}

fn word(b: &[u8], i: usize) -> u64 {
    b.get(i * 8..i * 8 + 8).and_then(|x| x.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Fills `out` with the contents of a block.
pub fn fill(out: &mut [u8], seed: u64, number: u64, generation: u64) {
    let head = [MAGIC, seed, number, generation];
    for (chunk, v) in out.chunks_mut(8).zip(head) {
        chunk.copy_from_slice(&v.to_le_bytes()[..chunk.len()]);
    }
    if let Some(rest) = out.get_mut(HEAD..) {
        body(seed, number, generation).fill(rest);
    }
}

/// Verifies a block of `want` bytes; returns its generation. Error: a block of another length, without our header, of
/// another place, or with altered contents.
pub fn check(block: &[u8], want: usize, seed: u64, number: u64) -> Result<u64, Wrong> {
    if block.len() != want {
        return Err(Wrong::Short { have: block.len(), want });
    }
    if word(block, 0) != MAGIC {
        return Err(Wrong::Foreign);
    }
    let (s, n, generation) = (word(block, 1), word(block, 2), word(block, 3));
    if (s, n) != (seed, number) {
        return Err(Wrong::Elsewhere { seed: s, number: n });
    }
    let mut rng = body(seed, number, generation);
    for (i, chunk) in block.get(HEAD..).unwrap_or_default().chunks(8).enumerate() {
        let expect = rng.next_u64().to_le_bytes();
        if let Some(at) = chunk.iter().zip(expect).position(|(a, b)| *a != b) {
            return Err(Wrong::Differs { offset: HEAD + i * 8 + at, generation });
        }
    }
    Ok(generation)
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    acknowledged: Option<u64>,
    sent: u64,
    writing: bool,
}

/// Generations of the blocks of one thread.
///
/// Invariant: at most one write of a block is in flight, so generations are in the order of the writes.
#[derive(Debug, Default)]
pub struct Ledger {
    blocks: HashMap<u64, State>,
    /// Whether the blocks were prefilled with generation 0. Otherwise a block is unknown until the first read or write.
    filled: bool,
}

impl Ledger {
    /// `filled`: every block was written with generation 0.
    #[must_use]
    pub fn new(filled: bool) -> Self {
        Self { blocks: HashMap::new(), filled }
    }

    fn state(&mut self, number: u64) -> &mut State {
        let acknowledged = self.filled.then_some(0);
        self.blocks.entry(number).or_insert(State { acknowledged, ..State::default() })
    }

    /// The generation to write, or `None` while another write is in flight.
    pub fn begin_write(&mut self, number: u64) -> Option<u64> {
        let s = self.state(number);
        if s.writing {
            return None;
        }
        s.writing = true;
        s.sent += 1;
        Some(s.sent)
    }

    /// Records that the write in flight was acknowledged.
    pub fn end_write(&mut self, number: u64) {
        let s = self.state(number);
        s.writing = false;
        s.acknowledged = Some(s.sent);
    }

    /// The oldest generation that a read starting now may return; `None` if the block is unknown.
    pub fn begin_read(&mut self, number: u64) -> Option<u64> {
        self.state(number).acknowledged
    }

    /// Checks the generation that a read returned. Error: [`Wrong::Generation`] if it is older than the read may see or
    /// newer than any write sent.
    pub fn end_read(&mut self, number: u64, oldest: Option<u64>, have: u64) -> Result<(), Wrong> {
        let s = self.state(number);
        match oldest {
            Some(oldest) if !(oldest..=s.sent).contains(&have) => {
                Err(Wrong::Generation { have, oldest, newest: s.sent })
            }
            Some(_) => Ok(()),
            None => {
                // First read of a block that an earlier run wrote.
                s.acknowledged.get_or_insert(have);
                s.sent = s.sent.max(have);
                Ok(())
            }
        }
    }

    /// Numbers of all blocks that this run wrote.
    #[must_use]
    pub fn written(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.blocks.iter().filter(|(_, s)| s.acknowledged.is_some()).map(|(n, _)| *n).collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_blocks_are_told_apart() {
        let mut b = vec![0; 4096];
        fill(&mut b, 7, 11, 3);
        assert_eq!(check(&b, 4096, 7, 11), Ok(3));
        assert_eq!(check(&b, 4096, 7, 12), Err(Wrong::Elsewhere { seed: 7, number: 11 }));
        assert_eq!(check(&b, 4096, 8, 11), Err(Wrong::Elsewhere { seed: 7, number: 11 }));
        assert_eq!(check(&b[..100], 4096, 7, 11), Err(Wrong::Short { have: 100, want: 4096 }));
        assert_eq!(check(&[0; 4096], 4096, 7, 11), Err(Wrong::Foreign));
        b[4000] ^= 1;
        assert_eq!(check(&b, 4096, 7, 11), Err(Wrong::Differs { offset: 4000, generation: 3 }));
        let mut torn = vec![0; 4096];
        fill(&mut torn, 7, 11, 4);
        torn[512..].copy_from_slice(&b[512..]);
        assert!(matches!(check(&torn, 4096, 7, 11), Err(Wrong::Differs { generation: 4, .. })));
    }

    #[test]
    fn generations_are_bounded_by_what_was_sent_and_acknowledged() {
        let mut l = Ledger::new(true);
        let oldest = l.begin_read(5);
        assert_eq!(oldest, Some(0));
        assert_eq!(l.begin_write(5), Some(1));
        assert_eq!(l.begin_write(5), None, "one at a time");
        assert_eq!(l.end_read(5, oldest, 1), Ok(()), "sent before the read ended");
        l.end_write(5);
        let oldest = l.begin_read(5);
        assert_eq!(l.end_read(5, oldest, 0), Err(Wrong::Generation { have: 0, oldest: 1, newest: 1 }), "a lost write");
        assert_eq!(l.end_read(5, oldest, 2), Err(Wrong::Generation { have: 2, oldest: 1, newest: 1 }), "from nowhere");
        let mut l = Ledger::new(false);
        let first = l.begin_read(1);
        assert_eq!(l.end_read(1, first, 9), Ok(()), "an earlier run's");
        let oldest = l.begin_read(1);
        assert!(l.end_read(1, oldest, 8).is_err());
        assert_eq!(l.begin_write(1), Some(10));
    }
}
