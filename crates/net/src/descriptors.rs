//! Descriptors of the process, of which accepted sockets leave a reserve: for peers, for the state store, for files.
//!
//! Invariant: all reactors together hold at most [`accepted_max`] accepted sockets. Beyond that, a new one takes the
//! place of the oldest that has not signed in, or is closed.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Fewest descriptors with which a daemon starts without a warning.
pub const WANTED: u64 = 16_384;
/// Part of the limit that is kept, and its bounds.
const RESERVE_PART: usize = 8;
const RESERVE_MIN: usize = 64;
const RESERVE_MAX: usize = 1024;

static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);
static ACCEPTED: AtomicUsize = AtomicUsize::new(0);

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
        let kept = |limit: usize| limit - super::accepted_max(limit);
        assert_eq!((kept(1024), kept(4096), kept(1 << 20)), (128, 512, 1024));
        assert_eq!((kept(100), super::accepted_max(0)), (50, 0), "half of very few");
    }
}
