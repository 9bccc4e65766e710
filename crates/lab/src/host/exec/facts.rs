//! Facts about the machine that are recorded with a measurement.

use serde_json::{Value, json};
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Kernel, processor, memory, and settings that affect measurements.
pub(super) fn machine() -> Value {
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|l| l.strip_prefix("model name")?.split(':').nth(1).map(str::trim));
    let memory = read("/proc/meminfo");
    let bytes = base::size::of_meminfo(&memory, "MemTotal:");
    let idle = fs::read_dir("/sys/devices/system/cpu/cpu0/cpuidle").into_iter().flatten().flatten();
    let deepest = idle.filter_map(|s| read(&s.path().join("latency").display().to_string()).parse::<u64>().ok()).max();
    let iommu = fs::read_dir("/sys/class/iommu").is_ok_and(|mut d| d.next().is_some());
    json!({
        "kernel": read("/proc/sys/kernel/osrelease"),
        "cpu": model.unwrap_or("unknown"),
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "memory_mib": bytes.unwrap_or(0) >> 20,
        "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "deepest_idle_us": deepest.unwrap_or(0),
        "iommu_strict": iommu && !read("/proc/cmdline").contains("iommu=pt") && !read("/proc/cmdline").contains("iommu.strict=0"),
        "load_before": read("/proc/loadavg").split(' ').next().and_then(|l| l.parse::<f64>().ok()).unwrap_or(0.0),
    })
}

/// File system that holds a path, by its name in `/proc/mounts`.
pub(super) fn file_system(path: &Path) -> String {
    let mounts = read("/proc/mounts");
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let best = mounts.lines().filter_map(|l| {
        let mut w = l.split(' ');
        let (dev, at, kind) = (w.next()?, w.next()?, w.next()?);
        path.starts_with(at).then(|| (at.len(), format!("{kind} on {dev}")))
    });
    best.max().map_or_else(String::new, |(_, s)| s)
}
