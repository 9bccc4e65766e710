//! Work that a reactor repeats in intervals: release of memory, the check for due scrubs, reports to the manager.

use base::Mono;
use std::time::Duration;

/// Interval at which PGs and queues give back unneeded memory.
const RELEASE_EVERY: Duration = Duration::from_secs(10);
/// Interval at which the PGs are checked for due scrubs.
const SCRUBS_EVERY: Duration = Duration::from_secs(5);
/// Reports after which an unchanged PG is reported again.
const REPORT_EVERY: u32 = 60;

/// Times of periodic work; see the module.
#[derive(Debug, Default)]
pub(super) struct Periodic {
    next_release: Mono,
    next_scrubs: Mono,
    /// Number of statistics requests so far.
    reports: u32,
}

impl Periodic {
    /// True if memory is to be released now.
    pub(super) fn may_release_memory(&mut self, now: Mono) -> bool {
        let due = now >= self.next_release;
        if due {
            self.next_release = now + RELEASE_EVERY;
        }
        due
    }

    /// True if due scrubs are to be begun now.
    pub(super) fn may_schedule_scrubs(&mut self, now: Mono) -> bool {
        let due = now >= self.next_scrubs;
        if due {
            self.next_scrubs = now + SCRUBS_EVERY;
        }
        due
    }

    /// Lets the next check for due scrubs be made without a pause.
    pub(super) fn schedule_scrubs_soon(&mut self) {
        self.next_scrubs = Mono(0);
    }

    /// Counts a report to the manager.
    pub(super) fn begin_report(&mut self) {
        self.reports = self.reports.wrapping_add(1);
    }

    /// True if the present report includes the `n`th PG although it has not changed.
    pub(super) fn repeats(&self, n: u32) -> bool {
        n % REPORT_EVERY == self.reports % REPORT_EVERY
    }
}
