//! Checks of the whole machine: IOMMU, NUMA, kernel, descriptors, clock, memory.

use super::cpu::pressure;
use super::names;
use crate::facts::Facts;
use crate::finding::Finding;

/// Translation of device addresses: strict translation costs on every I/O.
pub(super) fn iommu(f: &Facts) -> Vec<Finding> {
    const CHECK: &str = "IOMMU";
    let kinds: Vec<&str> = f.each("/sys/kernel/iommu_groups/", "/type").map(|(_, k)| k).collect();
    let strict = kinds.iter().filter(|k| **k == "DMA").count();
    if strict > 0 {
        return vec![Finding::warn(
            CHECK,
            format!("strict translation in {strict} of {} groups of devices", kinds.len()),
            "each I/O flushes the unit's cache under a lock that all processors share; it grows with their number",
            "boot with `iommu=pt` (or `iommu.strict=0`)",
        )];
    }
    let what = match kinds.first() {
        None => "off",
        Some(_) if kinds.contains(&"DMA-FQ") => "translation with delayed flushes",
        Some(_) => "passed through",
    };
    vec![Finding::fine(CHECK, what)]
}

/// Nodes of memory, and where network and drives are.
pub(super) fn numa(f: &Facts) -> Vec<Finding> {
    const CHECK: &str = "NUMA";
    let nodes = f.each("/sys/devices/system/node/", "/cpulist").filter(|(_, cpus)| !cpus.is_empty()).count();
    if nodes <= 1 {
        return vec![Finding::fine(CHECK, "one node")];
    }
    let mut out = Vec::new();
    let places = |before: &'static str, after: &'static str| {
        let all = f.each(before, after).filter_map(|(n, node)| Some((n, node.parse::<u32>().ok()?)));
        all.collect::<Vec<_>>()
    };
    let cards = places("/sys/class/net/", "/device/numa_node");
    let drives = places("/sys/class/nvme/", "/numa_node");
    let far: Vec<String> = drives
        .iter()
        .filter(|(_, node)| !cards.is_empty() && !cards.iter().any(|(_, c)| c == node))
        .map(|(n, node)| format!("{n} on node {node}"))
        .collect();
    if !far.is_empty() {
        let cards: Vec<String> = cards.iter().map(|(n, node)| format!("{n} on node {node}")).collect();
        out.push(Finding::note(
            CHECK,
            format!("{nodes} nodes: {}, but {}", names(&cards), names(&far)),
            "all data of these drives cross the link between the sockets",
            "a card in a slot of that node, or the OSDs bound to the drive's node (`osd_numa_node` in ceph.conf)",
        ));
    }
    if f.text("/proc/sys/kernel/numa_balancing") == "1" {
        out.push(Finding::note(
            CHECK,
            format!("{nodes} nodes, and the kernel moves pages between them"),
            "pauses while pages of an OSD are moved",
            "`sysctl kernel.numa_balancing=0`",
        ));
    }
    if out.is_empty() {
        out.push(Finding::fine(CHECK, format!("{nodes} nodes")));
    }
    out
}

/// Major and minor number of a kernel's release.
fn release(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split(['.', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Version of the kernel, and io_uring.
pub(super) fn kernel(f: &Facts) -> Vec<Finding> {
    const CHECK: &str = "kernel";
    const OLDEST: (u32, u32) = (5, 10);
    let text = f.text("/proc/sys/kernel/osrelease");
    let Some(found) = release(text) else { return vec![Finding::unknown(CHECK, "no release is told")] };
    let mut out = Vec::new();
    let threads = "OSDs use threads for their disk I/O: more processor time and latency for each operation";
    if found < OLDEST {
        let change = format!("a kernel of {}.{} or later; 6.1 is better", OLDEST.0, OLDEST.1);
        out.push(Finding::warn(CHECK, format!("{text} has too little of io_uring"), threads, change));
    }
    // 1: only for a group; 2: for nobody.
    if matches!(f.text("/proc/sys/kernel/io_uring_disabled"), "1" | "2") {
        out.push(Finding::warn(
            CHECK,
            format!("{text}: io_uring is disabled"),
            threads,
            "`sysctl kernel.io_uring_disabled=0`",
        ));
    }
    if out.is_empty() {
        out.push(Finding::fine(CHECK, text));
    }
    out
}

/// Limit of open files.
pub(super) fn descriptors(f: &Facts) -> Vec<Finding> {
    const CHECK: &str = "descriptors";
    let line = f.text("/proc/self/limits").lines().find_map(|l| l.strip_prefix("Max open files"));
    let Some(hard) = line.and_then(|l| l.split_whitespace().nth(1)) else {
        return vec![Finding::unknown(CHECK, "no limit is told")];
    };
    let what = format!("at most {hard} open files");
    match hard.parse::<u64>() {
        Ok(n) if n < net::descriptors::WANTED => vec![Finding::warn(
            CHECK,
            what,
            "each client takes one; with none left an OSD sends clients away",
            "`LimitNOFILE=1048576` in the unit; `ulimit -Hn` for daemons started from a shell",
        )],
        _ => vec![Finding::fine(CHECK, what)],
    }
}

/// Programs that keep the clock right, and its source.
pub(super) fn clock(f: &Facts) -> Vec<Finding> {
    const CHECK: &str = "clock";
    /// Offset in seconds above which monitors complain (`mon_clock_drift_allowed`).
    const OFFSET_MAX: f64 = 0.05;
    let mut out = Vec::new();
    let wrong = "monitors and OSDs refuse tickets of other hosts, and the order of events in logs is wrong";
    let chrony: Vec<&str> = f.command("chrony").split(',').collect();
    let offset = chrony.get(4).and_then(|o| o.parse::<f64>().ok()).filter(|o| o.is_finite());
    match (offset, f.command("synchronized")) {
        (Some(_), _) if chrony.last().is_some_and(|l| l.starts_with("Not")) => {
            out.push(Finding::warn(CHECK, "chrony has not synchronised it", wrong, "`chronyc sources` tells why"));
        }
        (Some(o), _) if o.abs() > OFFSET_MAX => {
            let what = format!("it is {:.2} ms off, by chrony", o.abs() * 1e3);
            out.push(Finding::warn(CHECK, what, wrong, "wait for chrony, or `chronyc makestep`"));
        }
        (Some(o), _) => out.push(Finding::fine(CHECK, format!("{:.2} ms off, by chrony", o.abs() * 1e3))),
        (None, "yes") => out.push(Finding::fine(CHECK, "synchronized")),
        (None, "no") => {
            let what = "no program has synchronized it";
            out.push(Finding::warn(CHECK, what, wrong, "install and start chrony"));
        }
        (None, _) => out.push(Finding::unknown(CHECK, "neither chronyc nor timedatectl tells")),
    }
    let source = f.text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    if ["hpet", "acpi_pm", "jiffies"].contains(&source) {
        out.push(Finding::warn(
            CHECK,
            format!("the kernel reads {source}"),
            "a microsecond and a system call for each look at the clock",
            "boot with `tsc=reliable` if the processor's counter is stable, or update the firmware",
        ));
    }
    out
}

/// Memory that is left, pressure, swapping, killed processes.
pub(super) fn memory(f: &Facts) -> Vec<Finding> {
    const CHECK: &str = "memory";
    const LEAST_PERCENT: f64 = 5.0;
    const PRESSURE_MAX: f64 = 1.0;
    let kib = |key: &str| f.on_line("/proc/meminfo", key);
    let mut out = Vec::new();
    let left = match (kib("MemAvailable:"), kib("MemTotal:")) {
        (Some(a), Some(t)) if t > 0.0 => 100.0 * a / t,
        _ => return vec![Finding::unknown(CHECK, "no sizes are told")],
    };
    if left < LEAST_PERCENT {
        out.push(Finding::warn(
            CHECK,
            format!("{left:.0} % are available"),
            "the kernel frees pages in the middle of operations, and ends a process when none are left",
            "a smaller `osd_memory_target`, fewer OSDs on the host, or more memory",
        ));
    }
    if let Some(p) = pressure(f, "memory").filter(|p| *p > PRESSURE_MAX) {
        out.push(Finding::warn(
            CHECK,
            format!("threads waited for memory {p:.1} % of the last five minutes"),
            "pauses in the middle of operations",
            "a smaller `osd_memory_target`, or more memory",
        ));
    }
    let killed = f.on_line("/proc/vmstat", "oom_kill ").unwrap_or(0.0);
    if killed > 0.0 {
        out.push(Finding::warn(
            CHECK,
            format!("the kernel killed {killed:.0} processes for lack of it since the boot"),
            "an OSD that is killed is down until it is started again",
            "`journalctl -k -g 'Out of memory'` names them; give the host more, or its programs less",
        ));
    }
    let swapped = kib("SwapTotal:").unwrap_or(0.0) - kib("SwapFree:").unwrap_or(0.0);
    if swapped > 64.0 * 1024.0 {
        out.push(Finding::note(
            CHECK,
            format!("{} are swapped out", base::size::show((swapped * 1024.0) as u64)),
            "an operation that touches such a page waits for the swap device",
            "`swapoff -a`, or `sysctl vm.swappiness=1`",
        ));
    }
    if out.is_empty() {
        out.push(Finding::fine(CHECK, format!("{left:.0} % available")));
    }
    out
}

/// How the program was built.
pub(super) fn build(f: &Facts) -> Vec<Finding> {
    const CHECK: &str = "build";
    let version = f.command("version").lines().next().unwrap_or_default();
    match f.command("build") {
        "debug" => vec![Finding::warn(
            CHECK,
            "this program was built without optimisation",
            "ten times the processor time for each operation",
            "`cargo build --release`, or a package (`scripts/package.sh`)",
        )],
        "release" => vec![Finding::fine(CHECK, "optimised")],
        _ if version.is_empty() => vec![Finding::unknown(CHECK, "no `belemnite` in the path")],
        _ => vec![Finding::fine(CHECK, version)],
    }
}
