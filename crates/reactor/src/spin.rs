//! Staying awake for a short time after work, where the next work is likely to come soon.
//!
//! A thread that sleeps costs its next operation a wake-up: tens of microseconds where idle processors halt, and more in
//! a virtual machine. A thread that stays awake costs a processor. So it does so only if an option allows it, for at
//! most the time of the option, and only while work has come as quickly as that on average.
//!
//! Invariant: a reactor without work sleeps after at most the option's time.
//!
//! Tests: below.

use crate::clock;
use base::Mono;
use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

/// Weight of a new gap in the mean: one part of so many.
const WEIGHT: u64 = 8;
/// Longest gap that counts, in times of the limit: after a long rest the mean is right again after some operations.
const GAP_MAX: u64 = 4;

/// Decision how long to stay awake.
#[derive(Clone, Copy, Debug)]
pub struct Spin {
    /// Longest time in nanoseconds.
    max: u64,
    /// Mean time between two turns with work.
    gap: u64,
    worked: Mono,
}

impl Spin {
    /// A reactor stays awake for `max` after work at most.
    #[must_use]
    pub fn new(max: Duration) -> Self {
        let max = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX / GAP_MAX).min(u64::MAX / GAP_MAX / WEIGHT);
        Self { max, gap: max * GAP_MAX, worked: Mono(0) }
    }

    /// Notes work, and tells until when to stay awake; `None`: not at all.
    pub fn worked(&mut self, now: Mono) -> Option<Mono> {
        let gap = now.0.saturating_sub(self.worked.0).min(self.max * GAP_MAX);
        self.worked = now;
        self.gap = (self.gap * (WEIGHT - 1) + gap) / WEIGHT;
        (self.gap <= self.max && self.max > 0).then(|| Mono(now.0 + (self.gap * 2).min(self.max)))
    }
}

struct Awake {
    spin: Spin,
    until: Mono,
    waker: Option<Waker>,
}

thread_local! {
    static AWAKE: RefCell<Option<Awake>> = const { RefCell::new(None) };
}

/// Lets this thread stay awake after work, for `max` at most. Needs a surrounding `LocalSet`.
pub(crate) fn start(max: Duration) {
    if max.is_zero() {
        return;
    }
    AWAKE.with(|a| *a.borrow_mut() = Some(Awake { spin: Spin::new(max), until: Mono(0), waker: None }));
    tokio::task::spawn_local(poll_fn(|cx| {
        AWAKE.with(|a| {
            let mut a = a.borrow_mut();
            let Some(a) = a.as_mut() else { return Poll::Ready(()) };
            if clock::read().mono < a.until {
                // Other tasks run meanwhile, and the runtime looks for events.
                cx.waker().wake_by_ref();
            } else {
                a.waker = Some(cx.waker().clone());
            }
            Poll::Pending
        })
    }));
}

/// Ends what [`start`] began on this thread.
pub(crate) fn forget() {
    AWAKE.with(|a| a.borrow_mut().take());
}

/// Notes that a turn had work.
pub(crate) fn worked() {
    AWAKE.with(|a| {
        if let Some(a) = &mut *a.borrow_mut()
            && let Some(until) = a.spin.worked(clock::now().mono)
        {
            a.until = until;
            if let Some(w) = a.waker.take() {
                w.wake();
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;

    fn at(us: u64) -> Mono {
        Mono(1_000_000_000 + us * US)
    }

    /// Work each 20 us, then each 200 us, with a limit of 50 us; then an hour of rest.
    #[test]
    fn a_thread_stays_awake_while_work_comes_quickly() {
        let mut s = Spin::new(Duration::from_micros(50));
        let mut now = 0;
        let mut work = |s: &mut Spin, gap: u64| {
            now += gap;
            s.worked(at(now)).map(|until| (until.0 - at(now).0) / US)
        };
        assert_eq!(work(&mut s, 0), None, "the first work tells nothing");
        let after = (0..100).position(|_| work(&mut s, 20).is_some()).unwrap();
        assert!(after < 20, "{after}");
        let waits: Vec<u64> = (0..100).filter_map(|_| work(&mut s, 20)).collect();
        assert_eq!((waits.len(), waits[99]), (100, 40), "twice the gap");
        assert!((0..100).filter(|_| work(&mut s, 200).is_some()).count() < 10);
        work(&mut s, 3_600_000_000);
        assert!((0..100).position(|_| work(&mut s, 20).is_some()).unwrap() < 20);
    }

    #[test]
    fn limits_of_any_size_stand() {
        for max in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            let mut s = Spin::new(max);
            for i in 0..100 {
                let until = s.worked(at(i));
                assert!(until.is_none_or(|u| u.0 - at(i).0 <= u64::try_from(max.as_nanos()).unwrap_or(u64::MAX)));
                assert!(until.is_none() || !max.is_zero());
            }
        }
    }
}
