//! The time at which a relayed session opened, by the leader's clock.
//!
//! The monotonic clocks of two monitors begin anywhere, and a link may hold a message up for seconds. So the message
//! that opens a relayed session carries two times by the front monitor's clock: when the session opened, and when the
//! message was sent. A message arrives after it was sent. So the least difference between arrival and sending is the
//! difference of the clocks plus the shortest delay of a message. Answers to the comparison of wall clocks carry the time
//! of sending, too, so there is at least one difference in each window.
//!
//! Tests: `src/core/relay/tests/ages.rs`, and `mon/tests/do_file_systems_survive_their_daemons.rs`.

use std::time::Duration;

use base::Mono;

/// Length of a window. A difference counts until the window after its own ends; in that time the clocks of two machines
/// run apart by far less than a second.
const WINDOW: Duration = Duration::from_secs(600);

/// A front monitor's monotonic clock, as the leader knows it.
#[derive(Debug, Default)]
pub(super) struct FrontClock {
    /// Least difference between arrival and sending in this window, and in the one before.
    least: [Option<i128>; 2],
    /// Time at which this window began.
    begun: Mono,
}

impl FrontClock {
    /// Notes a message that was sent at `sent`, and arrives now.
    pub(super) fn note(&mut self, sent: Mono, now: Mono) {
        let over = now.since(self.begun);
        if over >= WINDOW {
            let before = self.least[0].filter(|_| over < 2 * WINDOW);
            (self.least, self.begun) = ([None, before], now);
        }
        let d = i128::from(now.0) - i128::from(sent.0);
        self.least[0] = Some(self.least[0].map_or(d, |l| l.min(d)));
    }

    /// A time of the front monitor's clock by the leader's; not later than now.
    pub(super) fn here(&self, there: Mono, now: Mono) -> Mono {
        let Some(d) = self.least.iter().flatten().min() else { return now };
        let t = (i128::from(there.0) + d).clamp(0, i128::from(now.0));
        Mono(u64::try_from(t).unwrap_or(now.0))
    }
}
