//! Length of a PG's log: the OSD's target for log records, divided among its PGs.
//!
//! A record takes memory for its reqid, and space in the store. A PG on an OSD with few PGs keeps many records, so
//! that a copy that was long away is brought up to date by the log. With many PGs the share alone would be too short
//! for the other purpose of records. A client resends a write if its connection broke before the answer came. Such a
//! write must not be applied twice, over later writes of other clients. Ceph remembers reqids beyond the log for
//! that; here records are kept for them.
//!
//! Facts: names, defaults and the division from Ceph's OSD configuration reference (`osd_target_pg_log_entries_per_osd` and
//! those beside it).

use std::sync::atomic::{AtomicU32, Ordering};

/// Settings of operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// `osd_target_pg_log_entries_per_osd`: records of all PGs together; 0: no common target, each PG keeps `min`.
    pub target: u32,
    /// `osd_min_pg_log_entries`: fewest records of one PG.
    pub min: u32,
    /// `osd_max_pg_log_entries`: most records of one PG.
    pub max: u32,
    /// `osd_pg_log_dups_tracked`: fewest reqids that a PG remembers. Each record has one reqid, and reqids are kept
    /// nowhere else.
    pub dups: u32,
    /// `osd_pg_log_trim_min`: trimming waits until this many records are due.
    pub trim_min: u32,
    /// `osd_pg_log_trim_max`: most records that are trimmed at once.
    pub trim_max: u32,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { target: 300_000, min: 250, max: 10_000, dups: 3000, trim_min: 100, trim_max: 10_000 }
    }
}

impl LogConfig {
    /// Records that each PG keeps if the OSD has `pgs` of them.
    #[must_use]
    pub fn records(&self, pgs: u32) -> u32 {
        let share = self.target.checked_div(pgs).filter(|_| self.target > 0);
        share.map_or(self.min, |s| s.min(self.max).max(self.min)).max(self.dups)
    }
}

/// Length of one PG's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Records that the log keeps.
    pub records: usize,
    /// The log is trimmed when it has this many records more than `records`.
    pub batch: usize,
    /// Most records that one write trims.
    pub batch_max: usize,
}

/// Most records that one write trims, whatever the options say: the trim is part of the write's transaction.
const BATCH_MAX: u32 = 1000;

/// The division of an OSD's records among its PGs. One per OSD, shared by its reactors.
#[derive(Debug, Default)]
pub(crate) struct Division {
    pgs: AtomicU32,
    records: AtomicU32,
    batch: AtomicU32,
    batch_max: AtomicU32,
}

impl Division {
    /// Changes the number of PGs by `more`, and applies the settings `c`.
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
        // A minimum above the maximum wins, as in Ceph.
        assert_eq!(LogConfig { min: 500, max: 400, ..c }.records(1), 500);
    }

    #[test]
    fn nonsensical_settings_still_trim_the_log() {
        let d = Division::default();
        d.change(1, &LogConfig { trim_min: 0, trim_max: 0, min: 0, max: 0, dups: 0, ..LogConfig::default() });
        assert_eq!(d.keep(), Keep { records: 0, batch: 1, batch_max: 1 });
    }
}
