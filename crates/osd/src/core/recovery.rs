//! Settings of resources that the PGs of an OSD share: recovery reservations and log lengths.

use pg::keep::LogConfig;
use pg::reserve::RecoveryConfig;
use std::time::Duration;

/// Options that [`recovery_config`] reads.
const OPTIONS: [&str; 6] = [
    "osd_max_backfills",
    "osd_recovery_max_active",
    "osd_recovery_max_active_hdd",
    "osd_recovery_max_active_ssd",
    "osd_recovery_retry_interval",
    "osd_backfill_retry_interval",
];

/// True for options that [`recovery_config`] or [`log_config`] reads.
#[must_use]
pub fn observes(name: &str) -> bool {
    OPTIONS.contains(&name) || LOG_OPTIONS.contains(&name)
}

/// Recovery settings from the options in force. `rotates` tells that the device is a rotating disk.
#[must_use]
pub fn recovery_config<'a>(rotates: bool, get: impl Fn(&str) -> Option<&'a str>) -> RecoveryConfig {
    let or = RecoveryConfig::default();
    let count = |n: &str| get(n).and_then(|t| t.trim().parse::<u32>().ok());
    let seconds = |n: &str, d: Duration| {
        let v = get(n).and_then(|t| t.trim().parse::<f64>().ok()).filter(|v| v.is_finite() && *v >= 0.0);
        v.and_then(|v| Duration::try_from_secs_f64(v).ok()).unwrap_or(d)
    };
    let by_device = if rotates { ("osd_recovery_max_active_hdd", 3) } else { ("osd_recovery_max_active_ssd", 10) };
    RecoveryConfig {
        max_backfills: count("osd_max_backfills").unwrap_or(or.max_backfills),
        // 0 selects a value by the kind of device.
        max_active: count("osd_recovery_max_active")
            .filter(|n| *n > 0)
            .unwrap_or_else(|| count(by_device.0).unwrap_or(by_device.1)),
        recovery_retry: seconds("osd_recovery_retry_interval", or.recovery_retry),
        backfill_retry: seconds("osd_backfill_retry_interval", or.backfill_retry),
    }
}

/// Options that [`log_config`] reads.
const LOG_OPTIONS: [&str; 6] = [
    "osd_target_pg_log_entries_per_osd",
    "osd_min_pg_log_entries",
    "osd_max_pg_log_entries",
    "osd_pg_log_dups_tracked",
    "osd_pg_log_trim_min",
    "osd_pg_log_trim_max",
];

/// Log settings from the options in force.
#[must_use]
pub fn log_config<'a>(get: impl Fn(&str) -> Option<&'a str>) -> LogConfig {
    let or = LogConfig::default();
    let count = |n: &str, d: u32| get(n).and_then(|t| t.trim().parse::<u32>().ok()).unwrap_or(d);
    let [target, min, max, dups, trim_min, trim_max] = LOG_OPTIONS;
    LogConfig {
        target: count(target, or.target),
        min: count(min, or.min),
        max: count(max, or.max),
        dups: count(dups, or.dups),
        trim_min: count(trim_min, or.trim_min),
        trim_max: count(trim_max, or.trim_max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_ceph_reads_them() {
        assert_eq!(recovery_config(false, |_| None), RecoveryConfig::default());
        assert_eq!(recovery_config(true, |_| None).max_active, 3);
        let get = |n: &str| match n {
            "osd_max_backfills" => Some("4"),
            "osd_recovery_max_active" => Some("0"),
            "osd_recovery_max_active_ssd" => Some("20"),
            "osd_backfill_retry_interval" => Some("1.5"),
            "osd_recovery_retry_interval" => Some("nan"),
            _ => None,
        };
        let c = recovery_config(false, get);
        assert_eq!((c.max_backfills, c.max_active), (4, 20));
        assert_eq!((c.backfill_retry, c.recovery_retry), (Duration::from_millis(1500), Duration::from_secs(30)));
        assert!(observes("osd_max_backfills") && !observes("osd_max_scrubs"));
        assert_eq!(log_config(|_| None), LogConfig::default());
        let get = |n: &str| match n {
            "osd_target_pg_log_entries_per_osd" => Some("0"),
            "osd_max_pg_log_entries" => Some(" 20000"),
            "osd_min_pg_log_entries" => Some("-1"),
            _ => None,
        };
        assert_eq!(log_config(get), LogConfig { target: 0, max: 20_000, ..LogConfig::default() });
        assert!(observes("osd_pg_log_dups_tracked"));
    }
}
