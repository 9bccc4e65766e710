//! Contents that can be checked: each block says whose it is, and the rest of it follows from that.
//!
//! A block begins with a seed, its number and a generation; the bytes after them are random numbers seeded by these three. A
//! checker needs nothing else to tell a wrong place, an old version, a torn write, or rot.

use base::rng::Rng;
use std::collections::HashMap;

/// Bytes at the start of a block: magic, seed, number, generation.
const HEAD: usize = 32;
const MAGIC: u64 = 0x6c61_622d_626c_6f63;
/// Smallest block that can be checked.
pub const BLOCK_MIN: u64 = 64;

/// Why a block is not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// Fewer bytes than were written.
    #[error("{have} bytes instead of {want}")]
    Short {
        /// Bytes read.
        have: usize,
        /// Bytes of a block.
        want: usize,
    },
    /// It does not begin as a block does.
    #[error("not a block of this generator")]
    Foreign,
    /// It is a block of another run or place.
    #[error("block {number} of seed {seed}")]
    Elsewhere {
        /// Seed that it names.
        seed: u64,
        /// Number that it names.
        number: u64,
    },
    /// Its head is right and a byte after it is not.
    #[error("byte {offset} of generation {generation} differs")]
    Differs {
        /// First wrong byte.
        offset: usize,
        /// Generation that the head names.
        generation: u64,
    },
    /// It is whole, and of a generation that it cannot have.
    #[error("generation {have}, expected {oldest} to {newest}")]
    Generation {
        /// Generation read.
        have: u64,
        /// The one acknowledged when the read began.
        oldest: u64,
        /// The newest sent before the read ended.
        newest: u64,
    },
}

fn body(seed: u64, number: u64, generation: u64) -> Rng {
    Rng::new(seed ^ number.rotate_left(24) ^ generation.rotate_left(48))
}

fn word(b: &[u8], i: usize) -> u64 {
    b.get(i * 8..i * 8 + 8).and_then(|x| x.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Fills a block.
pub fn fill(out: &mut [u8], seed: u64, number: u64, generation: u64) {
    let head = [MAGIC, seed, number, generation];
    for (chunk, v) in out.chunks_mut(8).zip(head) {
        chunk.copy_from_slice(&v.to_le_bytes()[..chunk.len()]);
    }
    if let Some(rest) = out.get_mut(HEAD..) {
        body(seed, number, generation).fill(rest);
    }
}

/// Checks a block of `want` bytes; gives its generation.
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
/// Invariant: one write of a block is in flight at most, so that the order of generations is that of the writes.
#[derive(Debug, Default)]
pub struct Ledger {
    blocks: HashMap<u64, State>,
    /// Blocks that were filled before have generation 0; of others nothing is known until they are read or written.
    filled: bool,
}

impl Ledger {
    /// `filled`: every block has been written with generation 0.
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

    /// The write was acknowledged.
    pub fn end_write(&mut self, number: u64) {
        let s = self.state(number);
        s.writing = false;
        s.acknowledged = Some(s.sent);
    }

    /// The oldest generation that a read which begins now may give; `None` if nothing is known of the block.
    pub fn begin_read(&mut self, number: u64) -> Option<u64> {
        self.state(number).acknowledged
    }

    /// Judges what a read gave.
    pub fn end_read(&mut self, number: u64, oldest: Option<u64>, have: u64) -> Result<(), Wrong> {
        let s = self.state(number);
        match oldest {
            Some(oldest) if !(oldest..=s.sent).contains(&have) => {
                Err(Wrong::Generation { have, oldest, newest: s.sent })
            }
            Some(_) => Ok(()),
            None => {
                // The first look at a block that an earlier run wrote.
                s.acknowledged.get_or_insert(have);
                s.sent = s.sent.max(have);
                Ok(())
            }
        }
    }

    /// Numbers of all blocks that were written here.
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
