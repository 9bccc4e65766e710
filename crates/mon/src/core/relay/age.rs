//! The time at which a relayed session opened, by the leader's clock.
//!
//! The monotonic clocks of two monitors begin anywhere, and a link may hold a message up for seconds. So an opening
//! carries the time of the session and its own, both by the clock of its front monitor. A message cannot arrive before
//! it is sent: the least difference between arrival and sending is that of the clocks, and the shortest way of a
//! message. Answers to the comparison of wall clocks are messages of that kind, too: there is one in each window.
//!
//! Tests: `src/core/relay/tests/ages.rs`, and `mon/tests/do_file_systems_survive_their_daemons.rs`.

use std::time::Duration;

use base::Mono;

/// Time for which a difference counts, once or twice. Clocks of two machines run apart by far less than a second in it.
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
