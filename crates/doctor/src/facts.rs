//! Facts about a host: texts of files in `/proc` and `/sys` and outputs of commands, by path.
//!
//! One shell script collects them, here and over ssh, so both give the same texts. [`Facts::parse`] reads its output,
//! which a foreign host may have written: lines, entries and bytes are bounded, and control characters are removed.

use std::collections::BTreeMap;

/// Longest output of the script that is read, in bytes.
pub const OUTPUT_MAX: usize = 4 << 20;
/// Most entries of a host.
const ENTRIES_MAX: usize = 20_000;
/// Longest text of an entry, in bytes.
const TEXT_MAX: usize = 64 << 10;

/// Files that the script prints, each line after its path.
const FILES: &[&str] = &[
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/vmstat",
    "/proc/cmdline",
    "/proc/self/limits",
    "/proc/pressure/*",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/io_uring_disabled",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/vm/swappiness",
    "/sys/devices/system/cpu/cpu0/cpuidle/state*/name",
    "/sys/devices/system/cpu/cpu0/cpuidle/state*/latency",
    "/sys/devices/system/cpu/cpu0/cpuidle/state*/disable",
    "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor",
    "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_m*_freq",
    "/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/package_throttle_count",
    "/sys/devices/system/node/node*/cpulist",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/kernel/iommu_groups/*/type",
    "/sys/class/net/*/speed",
    "/sys/class/net/*/duplex",
    "/sys/class/net/*/mtu",
    "/sys/class/net/*/operstate",
    "/sys/class/net/*/device/numa_node",
    "/sys/class/net/*/device/uevent",
    "/sys/class/net/*/statistics/rx_packets",
    "/sys/class/net/*/statistics/rx_dropped",
    "/sys/class/net/*/statistics/rx_errors",
    "/sys/class/net/*/statistics/tx_errors",
    "/sys/class/nvme/*/numa_node",
    "/sys/class/hwmon/*/name",
    "/sys/class/hwmon/*/temp*_input",
    "/sys/class/hwmon/*/temp*_max",
    "/sys/class/hwmon/*/temp*_crit",
    "/sys/block/*/stat",
    "/sys/block/*/size",
    "/sys/block/*/queue/rotational",
    "/sys/block/*/queue/scheduler",
    "/sys/block/*/queue/write_cache",
    "/sys/block/*/queue/wbt_lat_usec",
];

/// The script. It changes nothing, and goes on when a file or a command does not exist.
pub fn script() -> String {
    format!(
        "LC_ALL=C; PATH=$PATH:/usr/sbin:/sbin; export LC_ALL PATH\n\
         say() {{ sed \"s|^|/cmd/$1:|\"; }}\n\
         uname -n | say name\n\
         uname -m | say machine\n\
         grep -sH '' {} /dev/null\n\
         for i in /sys/class/net/*; do [ -e \"$i/device\" ] || continue\n\
         n=${{i##*/}}; ethtool -k \"$n\" 2>/dev/null | say \"offloads/$n\"; done\n\
         chronyc -c tracking 2>/dev/null | say chrony\n\
         timedatectl show -p NTPSynchronized --value 2>/dev/null | say synchronized\n\
         systemd-detect-virt 2>/dev/null | say hypervisor\n\
         belemnite --version 2>/dev/null | say version\n\
         date +%s.%N | say date\n",
        FILES.join(" ")
    )
}

/// Facts about a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    texts: BTreeMap<String, String>,
}

impl Facts {
    /// Reads the script's output: lines `PATH:TEXT`. Other lines are ignored.
    pub fn parse(output: &[u8]) -> Self {
        let output = output.get(..OUTPUT_MAX).unwrap_or(output);
        let mut me = Self::default();
        for line in String::from_utf8_lossy(output).lines() {
            let Some((path, text)) = line.split_once(':').filter(|(p, _)| p.starts_with('/')) else { continue };
            if me.texts.len() >= ENTRIES_MAX && !me.texts.contains_key(path) {
                break;
            }
            let all = me.texts.entry(clean(path)).or_default();
            if all.len() + text.len() < TEXT_MAX {
                all.push_str(&clean(text));
                all.push('\n');
            }
        }
        me
    }

    /// The text of an entry without blanks at its ends; empty if there is none.
    pub fn text(&self, path: &str) -> &str {
        self.texts.get(path).map_or("", |t| t.trim())
    }

    /// The number in an entry.
    pub fn number(&self, path: &str) -> Option<f64> {
        self.text(path).parse().ok().filter(|n: &f64| n.is_finite())
    }

    /// Output of a command of the script.
    pub fn command(&self, name: &str) -> &str {
        self.text(&format!("/cmd/{name}"))
    }

    /// Entries whose path is `before`, one name, and `after`: pairs of name and text.
    pub fn each<'a>(&'a self, before: &'a str, after: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let from = self.texts.range(before.to_owned()..).take_while(move |(p, _)| p.starts_with(before));
        from.filter_map(move |(p, t)| {
            let name = p.strip_prefix(before)?.strip_suffix(after)?;
            (!name.is_empty() && !name.contains('/')).then_some((name, t.trim()))
        })
    }

    /// The number on the line of a text that begins with `key`, such as `MemTotal:`.
    pub fn on_line(&self, path: &str, key: &str) -> Option<f64> {
        self.text(path).lines().find_map(|l| l.strip_prefix(key)?.split_whitespace().next()?.parse().ok())
    }

    /// Number of entries.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }
}

/// A text without control characters, which could change a terminal.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_by_path() {
        let f = Facts::parse(
            b"/proc/meminfo:MemTotal:  100 kB\n/proc/meminfo:MemFree: 7 kB\n/sys/block/a/size:12\nnoise\n",
        );
        assert_eq!(f.on_line("/proc/meminfo", "MemFree:"), Some(7.0));
        assert_eq!(f.number("/sys/block/a/size"), Some(12.0));
        assert_eq!(f.each("/sys/block/", "/size").collect::<Vec<_>>(), [("a", "12")]);
        assert_eq!((f.len(), f.text("/none"), f.number("/proc/meminfo")), (2, "", None));
    }

    #[test]
    fn hostile_output_is_bounded_and_clean() {
        let f = Facts::parse(b"/a:\x1b[2Jx\xff\n/a\x07:y\n");
        assert_eq!(f.text("/a"), "?[2Jx\u{fffd}");
        assert_eq!(f.text("/a?"), "y");
        let many: String = (0..2 * ENTRIES_MAX).map(|i| format!("/{i}:x\n")).collect();
        assert_eq!(Facts::parse(many.as_bytes()).len(), ENTRIES_MAX);
        let long = format!("/a:{}\n", "x".repeat(2000)).repeat(OUTPUT_MAX / 1000);
        let f = Facts::parse(long.as_bytes());
        assert!(f.text("/a").len() < TEXT_MAX && f.len() == 1);
    }

    #[test]
    fn the_script_runs_in_a_plain_shell() {
        let out = std::process::Command::new("sh").args(["-c", &script()]).output().unwrap();
        let f = Facts::parse(&out.stdout);
        assert!(!f.text("/proc/sys/kernel/osrelease").is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
        assert!(!f.command("name").is_empty() && f.number("/cmd/date").is_some());
    }
}
