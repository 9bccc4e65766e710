//! How many records a PG's log keeps: what an OSD has for all of them, divided among its PGs.
//!
//! A record takes memory for its request id, and space in the store. A PG of an OSD with few PGs keeps many, so that a copy
//! that was away long is brought up to date by the log. With many PGs a share would be too short for the other thing records are
//! for: a write that a client sends again, because its connection broke before the answer came, must not be made twice, over what
//! others have written since. Ceph remembers request ids beyond the log for that; here there are records for them.
//!
//! Facts: names, defaults and the division from Ceph's OSD configuration reference (`osd_target_pg_log_entries_per_osd` and
//! those beside it).

use std::sync::atomic::{AtomicU32, Ordering};

/// What operators may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// `osd_target_pg_log_entries_per_osd`: records of all PGs together; 0: not bounded together.
    pub target: u32,
    /// `osd_min_pg_log_entries`: a PG keeps at least so many...
    pub min: u32,
    /// `osd_max_pg_log_entries`: ...and at most so many.
    pub max: u32,
    /// `osd_pg_log_dups_tracked`: a PG remembers at least so many request ids. Each record has one, and there are no others.
    pub dups: u32,
    /// `osd_pg_log_trim_min`: fewer are not dropped.
    pub trim_min: u32,
    /// `osd_pg_log_trim_max`: more are not dropped at once.
    pub trim_max: u32,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { target: 300_000, min: 250, max: 10_000, dups: 3000, trim_min: 100, trim_max: 10_000 }
    }
}

impl LogConfig {
    /// Records of each of so many PGs.
    #[must_use]
    pub fn records(&self, pgs: u32) -> u32 {
        let share = self.target.checked_div(pgs).filter(|_| self.target > 0);
        share.map_or(self.min, |s| s.min(self.max).max(self.min)).max(self.dups)
    }
}

/// What a PG's log keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// So many records.
    pub records: usize,
    /// When there are so many more, they are dropped...
    pub batch: usize,
    /// ...at most so many at once.
    pub batch_max: usize,
}

/// Most records that one write drops, whatever the options say: the drop is part of its transaction.
const BATCH_MAX: u32 = 1000;

/// The division; one per OSD, shared by its reactors.
#[derive(Debug, Default)]
pub(crate) struct Division {
    pgs: AtomicU32,
    records: AtomicU32,
    batch: AtomicU32,
    batch_max: AtomicU32,
}

impl Division {
    /// So many PGs more, with these settings.
    pub(crate) fn change(&self, more: i32, c: &LogConfig) {
        let pgs = self.pgs.load(Ordering::Relaxed).saturating_add_signed(more);
        self.pgs.store(pgs, Ordering::Relaxed);
        self.records.store(c.records(pgs), Ordering::Relaxed);
        self.batch.store(c.trim_min.clamp(1, BATCH_MAX), Ordering::Relaxed);
        self.batch_max.store(c.trim_max.clamp(1, BATCH_MAX), Ordering::Relaxed);
    }

    pub(crate) fn keep(&self) -> Keep {
        let get = |a: &AtomicU32| a.load(Ordering::Relaxed) as usize;
        Keep { records: get(&self.records), batch: get(&self.batch), batch_max: get(&self.batch_max) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_records_of_an_osd_are_divided_as_ceph_divides_them() {
        let c = LogConfig { dups: 0, ..LogConfig::default() };
        let all = [0, 1, 30, 31, 100, 1024, 1200, 5000].map(|n| c.records(n));
        assert_eq!(all, [250, 10_000, 10_000, 9677, 3000, 292, 250, 250]);
        let dups = LogConfig::default();
        assert_eq!([1, 100, 1024, 5000].map(|n| dups.records(n)), [10_000, 3000, 3000, 3000]);
        let unbounded = LogConfig { target: 0, ..dups };
        assert_eq!([1, 1000].map(|n| unbounded.records(n)), [3000, 3000]);
        // A least number beyond the most wins, as there.
        assert_eq!(LogConfig { min: 500, max: 400, ..c }.records(1), 500);
    }

    #[test]
    fn settings_that_make_no_sense_drop_something_all_the_same() {
        let d = Division::default();
        d.change(1, &LogConfig { trim_min: 0, trim_max: 0, min: 0, max: 0, dups: 0, ..LogConfig::default() });
        assert_eq!(d.keep(), Keep { records: 0, batch: 1, batch_max: 1 });
    }
}
