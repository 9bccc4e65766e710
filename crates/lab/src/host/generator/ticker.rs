//! Wakes a reactor at the start times of an open loop.
//!
//! The reactor's own timers are a millisecond wide, more than an operation takes. So a thread beside it sleeps to the next
//! start time by the kernel's timers and tells the reactor; starts that are closer together than [`NAP_MIN`] share a wake-up.

use crate::load::pace::Pace;
use base::rng::Rng;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Shortest sleep.
const NAP_MIN: Duration = Duration::from_micros(50);

/// Start times that have come, for the reactor to take.
#[derive(Debug, Default)]
pub(super) struct Due {
    times: Mutex<(Vec<Instant>, bool)>,
    pub(super) changed: Notify,
}

impl Due {
    /// The start times that have come since the last call, and whether there will be no more.
    pub(super) fn take(&self, into: &mut std::collections::VecDeque<Instant>) -> bool {
        // Nothing panics while it holds the lock.
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
