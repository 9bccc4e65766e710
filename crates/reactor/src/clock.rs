//! The clocks of a reactor, read once per loop turn.
//!
//! Pure code gets time as an argument; hosts get it here. [`now`] answers from a thread-local copy until
//! [`expire`] is called. The runtime calls that whenever the thread wakes, and the turn's end does too, so a
//! busy turn reads each clock once. Code that measures durations within a turn uses [`read`].

use base::{Mono, Now, Utime};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

static START: OnceLock<Instant> = OnceLock::new();
/// Milliseconds added to the wall clock.
static SHIFT: AtomicI64 = AtomicI64::new(0);

/// Shifts the wall clock of this process by `ms` milliseconds, for tests of wrong clocks.
pub fn shift(ms: i64) {
    SHIFT.store(ms, Ordering::Relaxed);
    expire();
}

thread_local! {
    static CACHED: Cell<Option<Now>> = const { Cell::new(None) };
}

/// Both clocks at this moment.
#[must_use]
pub fn read() -> Now {
    let start = *START.get_or_init(Instant::now);
    let mono = Instant::now().saturating_duration_since(start);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let by = SHIFT.load(Ordering::Relaxed);
    let wall = match Duration::from_millis(by.unsigned_abs()) {
        d if by < 0 => wall.saturating_sub(d),
        d => wall.saturating_add(d),
    };
    // The monotonic clock starts at one second, so that zero can mean "never".
    Now { mono: Mono(mono.as_nanos() as u64 + 1_000_000_000), wall: Utime::from_unix(wall) }
}

/// Both clocks as of this turn of the loop.
#[must_use]
pub fn now() -> Now {
    CACHED.with(|c| {
        c.get().unwrap_or_else(|| {
            let n = read();
            c.set(Some(n));
            n
        })
    })
}

/// Makes the next [`now`] read the clocks.
pub fn expire() {
    CACHED.with(|c| c.set(None));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_until_expired() {
        expire();
        let a = now();
        assert_eq!(a, now());
        expire();
        assert!(now().mono >= a.mono);
    }
}
