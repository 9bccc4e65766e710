//! Reference counts of shared blocks, counted beyond the first reference, so that unshared blocks cost nothing.

use rustc_hash::FxHashMap;

const CHUNK: u64 = 512;

#[derive(Debug)]
struct Chunk {
    counts: Box<[u32]>,
    used: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Refs {
    chunks: FxHashMap<u64, Chunk>,
}

impl Refs {
    /// One more reference to a block.
    pub(crate) fn inc(&mut self, block: u64) {
        let c = self
            .chunks
            .entry(block / CHUNK)
            .or_insert_with(|| Chunk { counts: vec![0; CHUNK as usize].into(), used: 0 });
        if let Some(n) = c.counts.get_mut((block % CHUNK) as usize) {
            c.used += u32::from(*n == 0);
            *n += 1;
        }
    }

    /// One less; false if that was the last one.
    pub(crate) fn dec(&mut self, block: u64) -> bool {
        if self.chunks.is_empty() {
            return false;
        }
        let Some(c) = self.chunks.get_mut(&(block / CHUNK)) else { return false };
        let Some(n) = c.counts.get_mut((block % CHUNK) as usize) else { return false };
        if *n == 0 {
            return false;
        }
        *n -= 1;
        if *n == 0 {
            c.used -= 1;
            if c.used == 0 {
                self.chunks.remove(&(block / CHUNK));
            }
        }
        true
    }

    /// References beyond the first, over all blocks.
    pub(crate) fn sum(&self) -> u64 {
        self.chunks.values().flat_map(|c| c.counts.iter()).map(|n| u64::from(*n)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_reference_is_told() {
        let mut r = Refs::default();
        assert!(!r.dec(5));
        r.inc(5);
        r.inc(5);
        r.inc(6);
        assert_eq!(r.sum(), 3);
        assert!(r.dec(5) && r.dec(5) && !r.dec(5));
        assert!(r.dec(6));
        assert!(r.chunks.is_empty());
    }
}
