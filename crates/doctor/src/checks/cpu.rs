//! Checks of processors: idle states, governor, shortage, instructions, temperature.

use super::names;
use crate::facts::Facts;
use crate::finding::Finding;

const CPU: &str = "/sys/devices/system/cpu/";
const IDLE: &str = "/sys/devices/system/cpu/cpu0/cpuidle/";

/// Time to leave an idle state above which it costs more than an operation on a fast drive.
const WAKE_MAX_US: f64 = 50.0;

/// States in which a processor sleeps, and how long it takes to leave them.
pub(super) fn idle_states(f: &Facts) -> Vec<Finding> {
    const CHECK: &str = "idle states";
    let on = f.each(IDLE, "/latency").filter(|(s, _)| f.text(&format!("{IDLE}{s}/disable")) != "1");
    let deepest = on
        .filter_map(|(s, us)| Some((us.parse::<f64>().ok().filter(|n| n.is_finite())?, s)))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let Some((us, state)) = deepest else {
        return vec![Finding::fine(CHECK, "the kernel uses none; a hypervisor may")];
    };
    let name = f.text(&format!("{IDLE}{state}/name"));
    let what = format!("the deepest is {name}, which it leaves in {us:.0} µs");
    if us <= WAKE_MAX_US {
        return vec![Finding::fine(CHECK, what)];
    }
    vec![Finding::warn(
        CHECK,
        what,
        "this time on each operation that finds its core asleep, so mostly at low load",
        format!("`cpupower idle-set -D {WAKE_MAX_US:.0}`, or the tuned profile `latency-performance`"),
    )]
}

/// Frequency governors.
pub(super) fn governor(f: &Facts) -> Vec<Finding> {
    const CHECK: &str = "governor";
    let all: Vec<&str> = f.each(CPU, "/cpufreq/scaling_governor").map(|(_, g)| g).collect();
    let slow: Vec<&str> = all.iter().copied().filter(|g| *g != "performance").collect();
    let Some(first) = slow.first() else {
        let what = if all.is_empty() { "the kernel does not set frequencies" } else { "performance" };
        return vec![Finding::fine(CHECK, what)];
    };
    let ghz = |name: &str| f.number(&format!("{CPU}cpu0/cpufreq/{name}")).map(|khz| khz / 1e6);
    let range = match (ghz("cpuinfo_min_freq"), ghz("cpuinfo_max_freq")) {
        (Some(a), Some(b)) => format!(", {a:.1} to {b:.1} GHz"),
        _ => String::new(),
    };
    vec![Finding::warn(
        CHECK,
        format!("{first} on {} of {} processors{range}", slow.len(), all.len()),
        "operations after a pause run at a low frequency until it has risen",
        "`cpupower frequency-set -g performance`",
    )]
}

/// The share of a number in percent of another.
fn percent(part: f64, of: f64) -> f64 {
    if of > 0.0 { 100.0 * part / of } else { 0.0 }
}

/// Average of the last five minutes in a file of `/proc/pressure`, in percent.
pub(super) fn pressure(f: &Facts, kind: &str) -> Option<f64> {
    let some = f.text(&format!("/proc/pressure/{kind}")).lines().find(|l| l.starts_with("some"))?;
    some.split_whitespace().find_map(|w| w.strip_prefix("avg300=")?.parse().ok())
}

/// Processor time taken by a hypervisor, and threads that wait for a processor.
pub(super) fn shortage(f: &Facts) -> Vec<Finding> {
    const CHECK: &str = "processor time";
    const STOLEN_MAX: f64 = 0.5;
    const WAITING_MAX: f64 = 20.0;
    let mut out = Vec::new();
    let line = f.text("/proc/stat").lines().find_map(|l| l.strip_prefix("cpu ")).unwrap_or_default();
    // user nice system idle iowait irq softirq steal; guest times are parts of user and nice.
    let times: Vec<f64> = line.split_whitespace().take(8).filter_map(|n| n.parse().ok()).collect();
    let stolen = percent(times.get(7).copied().unwrap_or_default(), times.iter().sum());
    if stolen > STOLEN_MAX {
        out.push(Finding::warn(
            CHECK,
            format!("the hypervisor took {stolen:.1} % since the boot"),
            "pauses of milliseconds in the middle of operations",
            "a machine with processors of its own, or fewer guests on its host",
        ));
    }
    if let Some(waiting) = pressure(f, "cpu").filter(|p| *p > WAITING_MAX) {
        out.push(Finding::note(
            CHECK,
            format!("threads waited for a processor {waiting:.0} % of the last five minutes"),
            "waiting adds to the latency of each operation",
            "fewer reactors (`osd_reactors`), fewer other programs, or more cores",
        ));
    }
    if out.is_empty() {
        out.push(Finding::fine(CHECK, "none is taken away"));
    }
    out
}

/// Instructions for checksums and ciphers.
pub(super) fn instructions(f: &Facts) -> Vec<Finding> {
    const CHECK: &str = "instructions";
    let wanted: &[&str] = match f.command("machine") {
        "aarch64" => &["aes", "pmull", "crc32"],
        _ => &["aes", "pclmulqdq", "sse4_2"],
    };
    let flags = f.text("/proc/cpuinfo").lines().find_map(|l| {
        let rest = l.strip_prefix("flags").or_else(|| l.strip_prefix("Features"))?;
        Some(rest.split_once(':')?.1)
    });
    let Some(flags) = flags else { return vec![Finding::unknown(CHECK, "the kernel does not list them")] };
    let missing: Vec<&str> = wanted.iter().copied().filter(|w| !flags.split_whitespace().any(|f| f == *w)).collect();
    if missing.is_empty() {
        return vec![Finding::fine(CHECK, wanted.join(", "))];
    }
    vec![Finding::warn(
        CHECK,
        format!("missing: {}", names(&missing)),
        "checksums and encryption take several times as long, of each byte written and read",
        "another model of processor in the hypervisor (`host`), or another machine",
    )]
}

/// Temperatures near their limit, and throttling.
pub(super) fn temperature(f: &Facts) -> Vec<Finding> {
    const CHECK: &str = "temperature";
    /// Distance from the limit in degrees below which a sensor is reported.
    const NEAR: f64 = 5.0;
    let mut out = Vec::new();
    let throttled: f64 = f
        .each(CPU, "/thermal_throttle/package_throttle_count")
        .filter_map(|(_, n)| n.parse::<f64>().ok())
        .fold(0.0, f64::max);
    if throttled > 0.0 {
        out.push(Finding::warn(
            CHECK,
            format!("processors were throttled {throttled:.0} times since the boot"),
            "a lower frequency while it is hot, without a line in any log of the cluster",
            "look at fans, filters and the power limit (`turbostat`)",
        ));
    }
    let mut hottest: Option<f64> = None;
    for (sensor, name) in f.each("/sys/class/hwmon/", "/name") {
        let before = format!("/sys/class/hwmon/{sensor}/");
        for (temp, value) in f.each(&before, "_input") {
            let degrees = |t: &str| t.parse::<f64>().ok().filter(|n| n.is_finite()).map(|m| m / 1000.0);
            let Some(now) = degrees(value) else { continue };
            let limit = |kind: &str| degrees(f.text(&format!("{before}{temp}_{kind}"))).filter(|l| *l > 0.0);
            // Some drives give 65,261 °C for "no limit".
            let limit = limit("crit").or_else(|| limit("max")).filter(|l| *l < 200.0);
            hottest = Some(hottest.map_or(now, |h| h.max(now)));
            if let Some(limit) = limit.filter(|l| now > l - NEAR) {
                out.push(Finding::warn(
                    CHECK,
                    format!("{name} is at {now:.0} °C of at most {limit:.0}"),
                    "devices slow down at their limit, and age faster",
                    "look at fans, filters and the place of the device",
                ));
            }
        }
    }
    if out.is_empty() {
        out.push(match hottest {
            Some(h) => Finding::fine(CHECK, format!("at most {h:.0} °C")),
            None => Finding::unknown(CHECK, "no sensors"),
        });
    }
    out
}
