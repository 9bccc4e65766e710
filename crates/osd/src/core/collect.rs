//! The reports of all reactors, collected for one report to the manager.

use super::mgr::Stats;
use base::Epoch;

/// Reports that are being collected; see the module.
#[derive(Debug)]
pub struct Collecting {
    /// Number of reactors that have not reported.
    missing: usize,
    stats: Stats,
    min_last_epoch_clean: Epoch,
}

impl Collecting {
    /// Begins to collect the reports of so many reactors.
    #[must_use]
    pub fn new(reactors: usize) -> Self {
        Self { missing: reactors, stats: Stats::default(), min_last_epoch_clean: Epoch(u32::MAX) }
    }

    /// Adds a reactor's report: its statistics, and the lowest `last_epoch_clean` of the PGs led there.
    pub fn add(&mut self, s: Stats, last_epoch_clean: Epoch) {
        self.stats.add(s);
        self.min_last_epoch_clean = self.min_last_epoch_clean.min(last_epoch_clean);
        self.missing = self.missing.saturating_sub(1);
    }

    /// True if all reactors have reported.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// The sum, and the lowest `last_epoch_clean` of all; 0 if no PG is led here.
    #[must_use]
    pub fn finish(self) -> (Stats, Epoch) {
        let lec = self.min_last_epoch_clean;
        (self.stats, if lec == Epoch(u32::MAX) { Epoch(0) } else { lec })
    }
}
