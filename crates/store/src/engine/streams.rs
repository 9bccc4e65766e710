//! Where a store takes blocks for data: small writes side by side, large ones in long runs.

use crate::space::{Space, Stream};

/// Least blocks of a write for which a contiguous run is searched.
const LARGE_BLOCKS: u64 = 16;

/// Allocation streams for data.
#[derive(Debug)]
pub(super) struct Streams {
    small: Stream,
    large: Stream,
}

impl Streams {
    pub(super) fn new() -> Self {
        Self { small: Stream::reusing(), large: Stream::default() }
    }

    /// The stream for small writes.
    pub(super) fn small(&mut self) -> &mut Stream {
        &mut self.small
    }

    /// The stream for large writes.
    pub(super) fn large(&mut self) -> &mut Stream {
        &mut self.large
    }

    /// The stream for a write of `n` blocks.
    pub(super) fn of_blocks(&mut self, n: u64) -> &mut Stream {
        if n < LARGE_BLOCKS { &mut self.small } else { &mut self.large }
    }

    /// Begins again at the lowest free blocks.
    pub(super) fn rewind(&mut self, space: &Space) {
        space.rewind(&mut self.small);
        space.rewind(&mut self.large);
    }

    /// Blocks of the map of free blocks that were looked at.
    pub(super) fn looked(&self) -> u64 {
        self.small.looked + self.large.looked
    }
}
