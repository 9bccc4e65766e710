//! The low-water mark of a socket: bytes of a large frame that must have arrived before its task is woken.
//!
//! A sender of 4 MiB would otherwise wake the receiver for each fragment that the kernel hands over.
//!
//! Invariants:
//!  1. A mark is at most what the frame, or its present buffer, lacks. So the end of a frame always wakes.
//!  2. A mark lasts at most [`PATIENCE`] and a sweep after the socket has brought nothing. So a slow sender counts as
//!     alive for what it has sent.
//!
//! Tests: below (1), `tests/does_a_slow_sender_of_a_large_frame_stay.rs` (2).

use reactor::descriptors::set_receive_low_water;
use std::cell::Cell;
use std::os::fd::AsFd;
use std::time::Duration;

/// Largest mark, in bytes.
const MOST: usize = 1 << 20;
/// Bytes of one read from which the sender counts as quick.
const QUICK: usize = 64 << 10;
/// Time without a byte after which a mark is removed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// The mark of a connection's present socket; 0 for none.
#[derive(Debug, Default)]
pub(super) struct LowWater(Cell<usize>);

/// The mark after a read of `got` bytes that emptied the socket, with `rest` bytes to come; 0 for none.
fn after(got: usize, rest: usize) -> usize {
    if got < QUICK || rest < QUICK { 0 } else { rest.min(MOST) }
}

impl LowWater {
    /// Follows a read of `got` bytes that emptied the socket while a frame lacked further `rest` bytes.
    pub(super) fn emptied(&self, socket: &impl AsFd, got: usize, rest: usize) {
        // A mark that is not above the rest stays.
        let mark = after(got, rest);
        if mark != self.0.get() {
            self.set(socket, mark);
        }
    }

    /// Lets each byte wake.
    pub(super) fn remove(&self, socket: &impl AsFd) {
        if self.0.get() > 0 {
            self.set(socket, 0);
        }
    }

    /// Notes that the connection has another socket.
    pub(super) fn forget(&self) {
        self.0.set(0);
    }

    fn set(&self, socket: &impl AsFd, mark: usize) {
        // A socket that takes no mark wakes for each byte.
        if set_receive_low_water(socket, mark.max(1)).is_ok() {
            self.0.set(mark);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_never_above_what_is_to_come() {
        for rest in [0, 1, QUICK - 1, QUICK, MOST - 1, MOST, MOST + 1, 8 << 20] {
            for got in [1, QUICK - 1, QUICK, 4 << 20] {
                let mark = after(got, rest);
                assert!(mark <= rest && mark <= MOST, "{got} {rest}");
                assert_eq!(mark > 0, got >= QUICK && rest >= QUICK, "{got} {rest}");
            }
        }
    }
}
