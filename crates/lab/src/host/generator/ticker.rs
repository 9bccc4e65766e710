//! Wakes a reactor at the start times of an open loop.
//!
//! The reactor's timers have a resolution of a millisecond, longer than an operation takes. A thread therefore sleeps
//! until the next start time by kernel timers and wakes the reactor. Start times closer together than [`NAP_MIN`] share
//! a wake-up.

use crate::load::pace::Pace;
use base::rng::Rng;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Shortest sleep of the thread.
const NAP_MIN: Duration = Duration::from_micros(50);

/// Start times that are due, for the reactor to take.
#[derive(Debug, Default)]
pub(super) struct Due {
    times: Mutex<(Vec<Instant>, bool)>,
    pub(super) changed: Notify,
}

impl Due {
    /// Moves the due start times into `into`; returns true if there will be no more.
    pub(super) fn take(&self, into: &mut std::collections::VecDeque<Instant>) -> bool {
        // The lock is never poisoned: the code that holds it does not panic.
        let Ok(mut t) = self.times.lock() else { return true };
        into.extend(t.0.drain(..));
        t.1
    }
}

/// Starts the thread.
pub(super) fn start(
    mut pace: Pace,
    mut rng: Rng,
    begin: Instant,
    end: Instant,
) -> std::io::Result<(Arc<Due>, std::thread::JoinHandle<()>)> {
    let due = Arc::new(Due::default());
    let d = due.clone();
    let t = std::thread::Builder::new().name("pace".into()).spawn(move || {
        loop {
            let next = begin + pace.due();
            if next >= end {
                break;
            }
            let now = Instant::now();
            if next > now {
                std::thread::sleep((next - now).max(NAP_MIN));
            }
            let now = Instant::now().min(end);
            if let Ok(mut t) = d.times.lock() {
                while begin + pace.due() <= now {
                    t.0.push(begin + pace.due());
                    pace.advance(&mut rng);
                }
            }
            d.changed.notify_one();
        }
        if let Ok(mut t) = d.times.lock() {
            t.1 = true;
        }
        d.changed.notify_one();
    })?;
    Ok((due, t))
}
