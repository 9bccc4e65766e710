//! Descriptors of the process, of which accepted sockets leave a reserve: for peers, for the state store, for files.
//!
//! Invariant: all reactors together serve at most [`accepted_max`] accepted sockets. Beyond that, a new one takes the
//! place of the oldest that has not signed in, or is closed. Besides, at most [`WAITING_MAX`] wait for the reactor that
//! is to serve them, and one more at each listening socket.
//!
//! Tests: `tests/do_accepted_sockets_leave_a_reserve.rs`.

use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Fewest descriptors with which a daemon starts without a warning.
pub const WANTED: u64 = 16_384;
/// Part of the limit that is kept, and its bounds.
const RESERVE_PART: usize = 8;
const RESERVE_MIN: usize = 64;
const RESERVE_MAX: usize = 1024;
/// Most sockets of the process that are accepted and wait for the reactor that is to serve them. Less than the reserve.
pub const WAITING_MAX: usize = 32;

static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);
static ACCEPTED: AtomicUsize = AtomicUsize::new(0);
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// An accepted socket on its way to the reactor that is to serve it. While it waits, it counts.
#[derive(Debug)]
pub struct Accepted {
    stream: TcpStream,
    protocol: msgr::Protocol,
    _waits: Waits,
}

#[derive(Debug)]
struct Waits;

impl Drop for Waits {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Relaxed);
    }
}

impl Accepted {
    pub(crate) fn new(stream: TcpStream, protocol: msgr::Protocol) -> Self {
        WAITING.fetch_add(1, Relaxed);
        Self { stream, protocol, _waits: Waits }
    }

    /// The protocol of the port that accepted it.
    pub(crate) fn protocol(&self) -> msgr::Protocol {
        self.protocol
    }

    /// The socket, which does not wait any more.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }
}

/// True if as many sockets wait for their reactors as may: no more is to be accepted.
pub(crate) fn many_wait() -> bool {
    WAITING.load(Relaxed) >= WAITING_MAX
}

/// Tells the limit of open descriptors of this process. Before that, accepted sockets are bounded by the endpoints alone.
pub fn set_limit(descriptors: u64) {
    LIMIT.store(usize::try_from(descriptors).unwrap_or(usize::MAX), Relaxed);
}

/// The limit of open descriptors, once it was told.
#[must_use]
pub fn limit() -> Option<usize> {
    Some(LIMIT.load(Relaxed)).filter(|n| *n != usize::MAX)
}

/// Most accepted sockets of a process with that limit.
#[must_use]
pub fn accepted_max(limit: usize) -> usize {
    let reserve = (limit / RESERVE_PART).clamp(RESERVE_MIN, RESERVE_MAX);
    limit.saturating_sub(reserve).max(limit / 2)
}

pub(crate) fn is_full() -> bool {
    ACCEPTED.load(Relaxed) >= most()
}

/// Most accepted sockets of this process.
pub(crate) fn most() -> usize {
    accepted_max(LIMIT.load(Relaxed))
}

pub(crate) fn accepted() {
    ACCEPTED.fetch_add(1, Relaxed);
}

pub(crate) fn ended() {
    ACCEPTED.fetch_sub(1, Relaxed);
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_reserve_is_kept_of_every_limit() {
        const { assert!(super::WAITING_MAX < super::RESERVE_MIN) };
        let kept = |limit: usize| limit - super::accepted_max(limit);
        assert_eq!((kept(1024), kept(4096), kept(1 << 20)), (128, 512, 1024));
        assert_eq!((kept(100), super::accepted_max(0)), (50, 0), "half of very few");
    }
}
