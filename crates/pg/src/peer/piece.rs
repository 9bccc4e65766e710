//! Positions of pieces in messages that are sent in pieces.

use crate::limits::{LONG_MESSAGE_MAX, PIECE_BYTES};

/// Where a piece belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the message.
    pub id: u64,
    /// Number of the piece.
    pub n: u32,
    /// Length of the message's body in bytes.
    pub body: u64,
    /// Length of the message's data in bytes.
    pub data: u64,
}

impl Place {
    /// Number of pieces of the message; those of the body come first.
    pub(crate) fn of(self) -> u64 {
        (self.body.div_ceil(PIECE_BYTES as u64) + self.data.div_ceil(PIECE_BYTES as u64)).max(1)
    }

    /// True if the message may exist and the piece has the right length.
    pub(crate) fn is_sound(self, len: usize) -> bool {
        self.body.saturating_add(self.data) <= LONG_MESSAGE_MAX as u64
            && u64::from(self.n) < self.of()
            && self.range().is_some_and(|r| r.1 - r.0 == len as u64)
    }

    /// The piece in the body or, beyond it, in the data: start, end, and whether it is of the data.
    pub(crate) fn range(self) -> Option<(u64, u64, bool)> {
        let bodies = self.body.div_ceil(PIECE_BYTES as u64);
        let n = u64::from(self.n);
        let (at, len, apart) = if n < bodies { (n, self.body, false) } else { (n - bodies, self.data, true) };
        let start = at * PIECE_BYTES as u64;
        (start < len || len == 0 && at == 0).then(|| (start, len.min(start + PIECE_BYTES as u64), apart))
    }
}
