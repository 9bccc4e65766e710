//! Scheduling of scrubs: whether a PG is due.
//!
//! Facts: meaning of `osd_scrub_min_interval`, `osd_scrub_max_interval`, `osd_deep_scrub_interval`,
//! `osd_scrub_interval_randomize_ratio` from Ceph's OSD configuration reference.

use super::ScrubRequest;
use base::Utime;
use wire::types::PgHistory;

/// Settings of scrubs (`osd_scrub_*`, `osd_deep_scrub_*`).
#[derive(Clone, Debug, PartialEq)]
pub struct ScrubConfig {
    /// Least time between scrubs, in seconds.
    pub min_interval: f64,
    /// Time after the last scrub from which load and hour are ignored, in seconds.
    pub max_interval: f64,
    /// Time between deep scrubs, in seconds.
    pub deep_interval: f64,
    /// Largest share of the minimum interval that is added, by PG, so that PGs do not all come due at once.
    pub randomize_ratio: f64,
    /// First hour (UTC) in which scrubs may begin.
    pub begin_hour: u32,
    /// Hour from which scrubs may not begin; equal to `begin_hour`: all day.
    pub end_hour: u32,
    /// First day of the week on which scrubs may begin, 0 is Sunday.
    pub begin_week_day: u32,
    /// Day from which scrubs may not begin; equal to `begin_week_day`: all week.
    pub end_week_day: u32,
    /// Repair the errors of a scheduled deep scrub, if they are at most `auto_repair_num_errors`.
    pub auto_repair: bool,
    /// Most errors that are repaired so.
    pub auto_repair_num_errors: u32,
    /// Pause between groups of objects, in seconds.
    pub sleep: f64,
    /// Omap entries above which an omap is reported as large.
    pub large_omap_keys: u64,
    /// Omap bytes above which an omap is reported as large.
    pub large_omap_bytes: u64,
}

const DAY: f64 = 86_400.0;

impl Default for ScrubConfig {
    fn default() -> Self {
        Self {
            min_interval: DAY,
            max_interval: 7.0 * DAY,
            deep_interval: 7.0 * DAY,
            randomize_ratio: 0.5,
            begin_hour: 0,
            end_hour: 0,
            begin_week_day: 0,
            end_week_day: 0,
            auto_repair: false,
            auto_repair_num_errors: 5,
            sleep: 0.0,
            large_omap_keys: 200_000,
            large_omap_bytes: 1 << 30,
        }
    }
}

/// Intervals of a pool that override the settings, in seconds; 0: the setting applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolScrub {
    /// `scrub_min_interval`.
    pub min_interval: u32,
    /// `scrub_max_interval`.
    pub max_interval: u32,
    /// `deep_scrub_interval`.
    pub deep_interval: u32,
}

/// A scrub that is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Due {
    /// Kind of the scrub.
    pub request: ScrubRequest,
    /// Seconds since the scrub came due; the PG with the most goes first.
    pub since: f64,
    /// The maximum interval has passed, so hours and load are ignored.
    pub overdue: bool,
}

impl ScrubConfig {
    /// True if the hour and day of `now` (UTC) permit scrubs.
    #[must_use]
    pub fn permits(&self, now: Utime) -> bool {
        let within = |begin: u32, end: u32, x: u32| {
            if begin == end {
                true
            } else if begin < end {
                (begin..end).contains(&x)
            } else {
                x >= begin || x < end
            }
        };
        let hour = now.sec / 3600 % 24;
        // 1 January 1970 was a Thursday.
        let day = (now.sec / 86_400 + 4) % 7;
        within(self.begin_hour, self.end_hour, hour) && within(self.begin_week_day, self.end_week_day, day)
    }

    /// Time from which a PG is scrubbed, and from which hours and load are ignored; `jitter` as for [`ScrubConfig::due`].
    #[must_use]
    pub fn next(&self, h: &PgHistory, pool: PoolScrub, jitter: u64) -> (Utime, Option<Utime>) {
        let or = |p: u32, d: f64| if p > 0 { f64::from(p) } else { d };
        let (min, max) = (or(pool.min_interval, self.min_interval), or(pool.max_interval, self.max_interval));
        let spread = 1.0 + self.randomize_ratio.max(0.0) * ((jitter % 1024) as f64 / 1024.0);
        let after =
            |t: Utime, s: f64| Utime { sec: (f64::from(t.sec) + s).min(f64::from(u32::MAX)) as u32, nsec: t.nsec };
        let shallow = after(h.last_scrub_stamp, min * spread);
        let deep = after(h.last_deep_scrub_stamp, or(pool.deep_interval, self.deep_interval));
        (shallow.min(deep), (max > 0.0).then(|| after(h.last_scrub_stamp, max)))
    }

    /// The scrub that is due for a PG, if any; `jitter` is the PG's own number for spreading.
    #[must_use]
    pub fn due(
        &self,
        h: &PgHistory,
        pool: PoolScrub,
        now: Utime,
        jitter: u64,
        may_scrub: bool,
        may_deep: bool,
    ) -> Option<Due> {
        let or = |p: u32, d: f64| if p > 0 { f64::from(p) } else { d };
        let (min, max) = (or(pool.min_interval, self.min_interval), or(pool.max_interval, self.max_interval));
        let deep_interval = or(pool.deep_interval, self.deep_interval);
        let seconds = |t: Utime| f64::from(t.sec) + f64::from(t.nsec) * 1e-9;
        let at = seconds(now);
        let spread = 1.0 + self.randomize_ratio.max(0.0) * ((jitter % 1024) as f64 / 1024.0);
        let last = seconds(h.last_scrub_stamp);
        // A deep scrub counts as a scrub.
        let deep_since = at - (seconds(h.last_deep_scrub_stamp) + deep_interval);
        let deep = may_deep && deep_since >= 0.0;
        let scrub_since = at - (last + min * spread);
        let overdue = max > 0.0 && at >= last + max;
        if !(scrub_since >= 0.0 || overdue || deep) || !(may_scrub || deep) {
            return None;
        }
        Some(Due {
            request: ScrubRequest { deep, repair: false, required: false },
            since: scrub_since.max(if deep { deep_since } else { scrub_since }),
            overdue,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sec: u32) -> Utime {
        Utime { sec, nsec: 0 }
    }

    #[test]
    fn hours_wrap_at_midnight_and_days_at_the_week() {
        let night = ScrubConfig { begin_hour: 22, end_hour: 4, ..ScrubConfig::default() };
        let hour = |h: u32| at(86_400 * 20_000 + h * 3600 + 5);
        let allowed: Vec<u32> = (0..24).filter(|h| night.permits(hour(*h))).collect();
        assert_eq!(allowed, vec![0, 1, 2, 3, 22, 23]);
        assert!((0..24).all(|h| ScrubConfig::default().permits(hour(h))));
        // 2024-01-07 was a Sunday.
        let sunday = 1_704_585_600;
        let weekend = ScrubConfig { begin_week_day: 6, end_week_day: 1, ..ScrubConfig::default() };
        let days: Vec<u32> = (0..7).filter(|d| weekend.permits(at(sunday + d * 86_400))).collect();
        assert_eq!(days, vec![0, 6]);
    }

    #[test]
    fn the_due_scrub_follows_the_stamps_flags_and_pool() {
        let c = ScrubConfig { randomize_ratio: 0.5, ..ScrubConfig::default() };
        let day = 86_400;
        let h =
            PgHistory { last_scrub_stamp: at(100 * day), last_deep_scrub_stamp: at(100 * day), ..PgHistory::default() };
        let due = |now, jitter| c.due(&h, PoolScrub::default(), at(now), jitter, true, true);
        assert_eq!(due(101 * day - 1, 0), None);
        assert!(due(101 * day, 0).is_some_and(|d| !d.request.deep && !d.overdue));
        assert_eq!(due(101 * day, 1023), None, "spread over half an interval");
        assert!(due(102 * day, 1023).is_some());
        assert!(due(107 * day, 0).is_some_and(|d| d.request.deep && d.overdue));
        let pool = PoolScrub { deep_interval: 3600, ..PoolScrub::default() };
        let soon = c.due(&h, pool, at(100 * day + 3600), 0, true, true);
        assert!(soon.is_some_and(|d| d.request.deep), "the pool's own interval");
        assert_eq!(c.due(&h, pool, at(100 * day + 3600), 0, true, false), None, "nodeep-scrub");
        assert!(c.due(&h, PoolScrub::default(), at(107 * day), 0, true, false).is_some_and(|d| !d.request.deep));
        assert_eq!(c.due(&h, PoolScrub::default(), at(105 * day), 0, false, true), None, "noscrub");
        assert!(c.due(&h, PoolScrub::default(), at(107 * day), 0, false, true).is_some_and(|d| d.request.deep));
    }
}
