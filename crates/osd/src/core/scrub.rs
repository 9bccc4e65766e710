//! Settings of scrubs: those of the OSD, and those of pools.

use cluster::PgPool;
use cluster::pool::PoolOpt;
use pg::scrub::ScrubConfig;
use pg::scrub::due::PoolScrub;

/// Default of `osd_scrub_load_threshold`: load average per CPU above which no scrub begins.
pub const LOAD_THRESHOLD: f64 = 0.5;

/// Settings of scrubs.
#[derive(Clone, Debug, PartialEq)]
pub struct ScrubSettings {
    /// Settings of the PGs.
    pub pg: ScrubConfig,
    /// `osd_max_scrubs`.
    pub max_scrubs: u32,
    /// `osd_scrub_load_threshold`.
    pub load_threshold: f64,
}

impl Default for ScrubSettings {
    fn default() -> Self {
        Self { pg: ScrubConfig::default(), max_scrubs: pg::scrub::slots::SCRUBS_MAX, load_threshold: LOAD_THRESHOLD }
    }
}

impl ScrubSettings {
    /// True for options that [`ScrubSettings::take`] reads.
    #[must_use]
    pub fn observes(name: &str) -> bool {
        name.starts_with("osd_scrub_") || name.starts_with("osd_deep_scrub_") || matches!(name, "osd_max_scrubs")
    }

    /// Reads the settings from the options in force.
    #[must_use]
    pub fn take<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Self {
        let or = Self::default();
        let number = |n: &str, d: f64| {
            let v = get(n).and_then(|t| t.trim().parse::<f64>().ok());
            v.filter(|v| v.is_finite() && *v >= 0.0).unwrap_or(d)
        };
        let count = |n: &str, d: u64| number(n, d as f64) as u64;
        let yes = |n: &str, d: bool| get(n).map_or(d, |t| matches!(t.trim(), "true" | "1" | "yes" | "on"));
        let p = or.pg;
        let small = |n: &str, d: u32| u32::try_from(count(n, d.into())).unwrap_or(u32::MAX);
        Self {
            max_scrubs: small("osd_max_scrubs", or.max_scrubs),
            load_threshold: number("osd_scrub_load_threshold", or.load_threshold),
            pg: ScrubConfig {
                min_interval: number("osd_scrub_min_interval", p.min_interval),
                max_interval: number("osd_scrub_max_interval", p.max_interval),
                deep_interval: number("osd_deep_scrub_interval", p.deep_interval),
                randomize_ratio: number("osd_scrub_interval_randomize_ratio", p.randomize_ratio),
                begin_hour: small("osd_scrub_begin_hour", p.begin_hour),
                end_hour: small("osd_scrub_end_hour", p.end_hour),
                begin_week_day: small("osd_scrub_begin_week_day", p.begin_week_day),
                end_week_day: small("osd_scrub_end_week_day", p.end_week_day),
                auto_repair: yes("osd_scrub_auto_repair", p.auto_repair),
                auto_repair_num_errors: small("osd_scrub_auto_repair_num_errors", p.auto_repair_num_errors),
                sleep: number("osd_scrub_sleep", p.sleep),
                large_omap_keys: count("osd_deep_scrub_large_omap_object_key_threshold", p.large_omap_keys),
                large_omap_bytes: count("osd_deep_scrub_large_omap_object_value_sum_threshold", p.large_omap_bytes),
            },
        }
    }
}

/// Scrub settings of a pool.
pub(super) fn pool_scrub(p: &PgPool) -> PoolScrub {
    let seconds = |name: &str| match p.opt(name) {
        Some(PoolOpt::Float(f)) if f.is_finite() && *f > 0.0 => *f as u32,
        Some(PoolOpt::Int(i)) => u32::try_from(*i).unwrap_or(0),
        _ => 0,
    };
    PoolScrub {
        min_interval: seconds("scrub_min_interval"),
        max_interval: seconds("scrub_max_interval"),
        deep_interval: seconds("deep_scrub_interval"),
    }
}
