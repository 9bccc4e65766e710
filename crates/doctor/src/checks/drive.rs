//! Checks of drives, by what the kernel has counted since the boot: latency against the class, flushes, scheduler.

use super::names;
use crate::facts::Facts;
use crate::finding::Finding;

const BLOCK: &str = "/sys/block/";
/// Operations that a mean needs to be looked at.
const FEW: f64 = 500.0;
/// A drive is slow beside others of its class if it takes so many times their median.
const TIMES: f64 = 3.0;
/// Mean of a flush in ms up to which the cache has a power supply of its own: the drive answers from memory.
const PROTECTED_MS: f64 = 0.25;
/// Mean of a flush in ms above which each commit notices.
const SLOW_FLUSH_MS: f64 = 1.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Nvme,
    Ssd,
    Disk,
}

impl Class {
    fn name(self) -> &'static str {
        match self {
            Self::Nvme => "NVMe",
            Self::Ssd => "SSD",
            Self::Disk => "disk",
        }
    }

    /// Mean of a read in ms that a healthy drive stays below, queueing included.
    fn read_ms_max(self) -> f64 {
        match self {
            Self::Nvme => 2.0,
            Self::Ssd => 5.0,
            Self::Disk => 50.0,
        }
    }
}

/// A drive with its means since the boot.
struct Drive<'a> {
    name: &'a str,
    class: Class,
    /// Reads, and the mean of one in ms.
    reads: (f64, f64),
    /// Flushes, and the mean of one in ms.
    flushes: (f64, f64),
}

fn drives(f: &Facts) -> Vec<Drive<'_>> {
    let virtual_kinds = ["loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd", "rbd", "drbd"];
    let mut out = Vec::new();
    for (name, stat) in f.each(BLOCK, "/stat") {
        if virtual_kinds.iter().any(|k| name.starts_with(k)) || f.number(&format!("{BLOCK}{name}/size")) == Some(0.0) {
            continue;
        }
        let class = match f.text(&format!("{BLOCK}{name}/queue/rotational")) {
            _ if name.starts_with("nvme") => Class::Nvme,
            "1" => Class::Disk,
            _ => Class::Ssd,
        };
        let n: Vec<f64> = stat.split_whitespace().filter_map(|w| w.parse().ok()).collect();
        let pair = |count: usize, ms: usize| {
            let (count, ms) = (n.get(count).copied().unwrap_or(0.0), n.get(ms).copied().unwrap_or(0.0));
            (count, if count > 0.0 { ms / count } else { 0.0 })
        };
        // Documentation/block/stat.rst of the kernel: reads and ms at 0 and 3, flushes and ms at 15 and 16.
        out.push(Drive { name, class, reads: pair(0, 3), flushes: pair(15, 16) });
    }
    out
}

fn median(mut all: Vec<f64>) -> Option<f64> {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// Mean time of reads against the drive's class and against drives of the same class.
pub(super) fn latency(f: &Facts) -> Vec<Finding> {
    const CHECK: &str = "drives";
    let all: Vec<Drive<'_>> = drives(f).into_iter().filter(|d| d.reads.0 >= FEW).collect();
    let mut out = Vec::new();
    for d in &all {
        let ms = d.reads.1;
        let head = format!("{} ({}): reads {ms:.1} ms on average since the boot", d.name, d.class.name());
        let others =
            all.iter().filter(|o| o.class == d.class && o.name != d.name).map(|o| o.reads.1).collect::<Vec<_>>();
        let like = (others.len() >= 2).then(|| median(others)).flatten();
        let cost = "reads of this drive's PGs, and writes of all PGs that it has a copy of, wait for it";
        if let Some(like) = like.filter(|l| ms > TIMES * l) {
            out.push(Finding::warn(
                CHECK,
                format!("{head}, others of its class {like:.1} ms"),
                cost,
                format!("look at it (`smartctl -a /dev/{}`), and replace it: `belemnite osd replace`", d.name),
            ));
        } else if ms > d.class.read_ms_max() {
            out.push(Finding::warn(
                CHECK,
                format!("{head}; {:.0} ms is much for its class", d.class.read_ms_max()),
                cost,
                format!("look at it (`smartctl -a /dev/{}`), or spread the load over more drives", d.name),
            ));
        }
    }
    if !out.is_empty() {
        return out;
    }
    let shown: Vec<String> = all.iter().map(|d| format!("{} {:.2} ms", d.name, d.reads.1)).collect();
    match shown.is_empty() {
        true => vec![Finding::unknown(CHECK, "no drive has been read enough since the boot")],
        false => vec![Finding::fine(CHECK, format!("mean of a read: {}", names(&shown)))],
    }
}

/// Volatile caches, and whether flushes show a power supply of their own.
pub(super) fn write_cache(f: &Facts) -> Vec<Finding> {
    const CHECK: &str = "write cache";
    let mut out = Vec::new();
    let (mut fine, mut unseen) = (Vec::new(), Vec::new());
    for d in drives(f) {
        let name = d.name;
        if f.text(&format!("{BLOCK}{name}/queue/write_cache")) != "write back" {
            fine.push(format!("{name} has none that a power cut empties"));
            continue;
        }
        let (count, ms) = d.flushes;
        if count < FEW {
            unseen.push(name);
        } else if ms <= PROTECTED_MS {
            fine.push(format!("{name} flushes in {ms:.2} ms, as drives with power-loss protection do"));
        } else {
            let what =
                format!("{name}: a flush takes {ms:.2} ms on average, so its cache has no power supply of its own");
            let cost = "each commit waits for a flush";
            let change = "a drive with power-loss protection; turning the cache off does not make it faster";
            out.push(match ms > SLOW_FLUSH_MS {
                true => Finding::warn(CHECK, what, cost, change),
                false => Finding::note(CHECK, what, cost, change),
            });
        }
    }
    if !unseen.is_empty() {
        let what = format!("{}: a volatile cache; too few flushes since the boot to judge", names(&unseen));
        out.push(Finding::unknown(CHECK, what));
    }
    if out.is_empty() {
        out.push(match fine.is_empty() {
            true => Finding::unknown(CHECK, "no drives"),
            false => Finding::fine(CHECK, names(&fine)),
        });
    }
    out
}

/// I/O schedulers and throttles of drives without moving parts.
pub(super) fn scheduler(f: &Facts) -> Vec<Finding> {
    const CHECK: &str = "I/O scheduler";
    let mut out = Vec::new();
    let all: Vec<Drive<'_>> = drives(f).into_iter().filter(|d| d.class != Class::Disk).collect();
    for d in &all {
        let name = d.name;
        let line = f.text(&format!("{BLOCK}{name}/queue/scheduler"));
        let active = line.split(['[', ']']).nth(1).unwrap_or("none");
        if active != "none" {
            out.push(Finding::note(
                CHECK,
                format!("{name}: {active}"),
                "processor time and a lock on each operation; the OSD orders its own",
                format!("`echo none >{BLOCK}{name}/queue/scheduler`, and a udev rule"),
            ));
        }
        // With a scheduler of its own the throttle rests.
        if active == "none" && f.number(&format!("{BLOCK}{name}/queue/wbt_lat_usec")).is_some_and(|n| n > 0.0) {
            out.push(Finding::note(
                CHECK,
                format!("{name}: the kernel throttles writes for the sake of reads (wbt)"),
                "buffered writes of other programs; direct ones of an OSD hardly",
                format!("`echo 0 >{BLOCK}{name}/queue/wbt_lat_usec`"),
            ));
        }
    }
    if out.is_empty() {
        out.push(Finding::fine(CHECK, if all.is_empty() { "no drive needs another" } else { "none" }));
    }
    out
}
