//! The checks: from facts to findings, without I/O.
//!
//! | module | contents |
//! | --- | --- |
//! | `cpu` | checks of processors: idle states, governor, shortage, instructions, temperature |
//! | `drive` | drives, by what the kernel has counted: latency against the class, flushes, scheduler |
//! | `nic` | checks of network interfaces that have a device: speed, MTU, offloads, errors |
//! | `system` | checks of the whole machine: IOMMU, NUMA, kernel, descriptors, clock, memory |

mod cpu;
mod drive;
mod nic;
mod system;

use crate::facts::Facts;
use crate::finding::Finding;

/// Findings of all checks, in a fixed order. Each check has at least one.
pub fn all(f: &Facts) -> Vec<Finding> {
    let mut out = Vec::new();
    for check in [
        cpu::idle_states,
        cpu::governor,
        cpu::shortage,
        cpu::instructions,
        cpu::temperature,
        system::iommu,
        system::numa,
        nic::speed,
        nic::mtu,
        nic::offloads,
        nic::errors,
        drive::latency,
        drive::write_cache,
        drive::scheduler,
        system::kernel,
        system::descriptors,
        system::clock,
        system::memory,
        system::build,
    ] {
        out.extend(check(f));
    }
    out
}

/// One line about a machine.
pub fn machine(f: &Facts) -> String {
    let cpu = f.text("/proc/cpuinfo");
    let model =
        cpu.lines().find_map(|l| l.strip_prefix("model name")?.split(':').nth(1)).unwrap_or("processor unknown");
    let cores = cpu.lines().filter(|l| l.starts_with("processor")).count();
    let memory = f.on_line("/proc/meminfo", "MemTotal:").unwrap_or_default() * 1024.0;
    let virt = f.command("hypervisor");
    let virt = if virt.is_empty() || virt == "none" { String::new() } else { format!(", virtual ({virt})") };
    format!(
        "Linux {}, {} × {}, {}{virt}",
        f.text("/proc/sys/kernel/osrelease"),
        cores,
        model.trim(),
        base::size::show(memory as u64)
    )
}

/// Names with a count for those that are left out: `a, b and 7 more`.
fn names<S: AsRef<str>>(all: &[S]) -> String {
    const SHOWN: usize = 4;
    let shown: Vec<&str> = all.iter().take(SHOWN).map(AsRef::as_ref).collect();
    match all.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    /// Findings of a check on a host with these facts.
    #[track_caller]
    fn found(facts: &str, check: &str) -> Vec<Finding> {
        let all: Vec<Finding> = all(&Facts::parse(facts.as_bytes())).into_iter().filter(|f| f.check == check).collect();
        assert!(!all.is_empty(), "{check}");
        all
    }

    #[track_caller]
    fn is(facts: &str, check: &str, severity: Severity, word: &str) {
        let all = found(facts, check);
        let hit = all.iter().any(|f| f.severity == severity && f.what.contains(word));
        assert!(hit, "{check}: {all:#?}");
        for f in all.iter().filter(|f| f.severity >= Severity::Note) {
            assert!(!f.cost.is_empty() && !f.change.is_empty(), "{f:?}");
        }
    }

    #[test]
    fn a_host_that_tells_nothing_has_no_warning() {
        for f in all(&Facts::default()) {
            assert!(f.severity <= Severity::Unknown, "{f:?}");
        }
        machine(&Facts::default());
    }

    #[test]
    fn texts_of_any_kind_are_survived() {
        // Each entry of a full host, with values that no kernel writes.
        let paths: Vec<&str> = GOOD.lines().filter_map(|l| l.split(':').next()).collect();
        for value in ["", "-1", "nan", "inf", "1e999", "[", "x y z", "99999999999999999999", "é", ":::", "-"] {
            let facts: String = paths.iter().map(|p| format!("{p}:{value}\n")).collect();
            all(&Facts::parse(facts.as_bytes()));
            machine(&Facts::parse(facts.as_bytes()));
        }
    }

    #[test]
    fn a_good_host_is_fine() {
        let all = all(&Facts::parse(GOOD.as_bytes()));
        let bad: Vec<_> = all.iter().filter(|f| f.severity != Severity::Fine).collect();
        assert!(bad.is_empty(), "{bad:#?}");
        assert_eq!(
            machine(&Facts::parse(GOOD.as_bytes())),
            "Linux 6.12.41, 2 × AMD EPYC 7543P 32-Core Processor, 503.1 GiB"
        );
    }

    /// The good host with some lines in place of those with the same path.
    fn with(changed: &str) -> String {
        let paths: Vec<&str> = changed.lines().filter_map(|l| l.split(':').next()).collect();
        let kept = GOOD.lines().filter(|l| !paths.contains(&l.split(':').next().unwrap_or_default()));
        kept.chain(changed.lines()).map(|l| format!("{l}\n")).collect()
    }

    #[test]
    fn each_fault_has_its_finding() {
        use Severity::{Note, Warning};
        let cpu = "/sys/devices/system/cpu/cpu0";
        let rows: &[(String, &str, Severity, &str)] = &[
            (format!("{cpu}/cpuidle/state2/disable:0"), "idle states", Warning, "C6, which it leaves in 133 µs"),
            (format!("{cpu}/cpufreq/scaling_governor:powersave"), "governor", Warning, "powersave on 1 of 2"),
            ("/proc/stat:cpu  900 0 0 9000 0 0 0 100 0 0".into(), "processor time", Warning, "1.0 %"),
            (
                "/proc/pressure/cpu:some avg10=1.00 avg60=1.00 avg300=40.00 total=1".into(),
                "processor time",
                Note,
                "40 %",
            ),
            ("/proc/cpuinfo:flags : sse2 aes".into(), "instructions", Warning, "pclmulqdq, sse4_2"),
            (format!("{cpu}/thermal_throttle/package_throttle_count:7"), "temperature", Warning, "7 times"),
            ("/sys/class/hwmon/hwmon0/temp1_input:93000".into(), "temperature", Warning, "nvme is at 93 °C"),
            ("/sys/kernel/iommu_groups/0/type:DMA".into(), "IOMMU", Warning, "1 of 1"),
            ("/sys/class/nvme/nvme0/numa_node:1".into(), "NUMA", Note, "nvme0 on node 1"),
            ("/proc/sys/kernel/numa_balancing:1".into(), "NUMA", Note, "moves pages"),
            ("/sys/class/net/eth0/speed:100".into(), "network speed", Warning, "eth0 100 Mb/s"),
            ("/sys/class/net/eth0/speed:1000".into(), "network speed", Note, "eth0 1 Gb/s"),
            ("/sys/class/net/eth0/duplex:half".into(), "network speed", Warning, "half duplex"),
            ("/sys/class/net/eth0/mtu:1500".into(), "MTU", Note, "eth0 1500"),
            (
                "/cmd/offloads/eth0:generic-receive-offload: off".into(),
                "offloads",
                Warning,
                "eth0 without generic-receive-offload",
            ),
            ("/sys/class/net/eth0/statistics/rx_dropped:50000".into(), "network errors", Warning, "eth0 lost 50000"),
            (
                "/sys/block/nvme0n1/stat:1000 0 8000 9000 1000 0 8000 100 0 0 0 0 0 0 0 1000 50".into(),
                "drives",
                Warning,
                "nvme0n1 (NVMe): reads 9.0 ms",
            ),
            (
                "/sys/block/nvme0n1/queue/write_cache:write back\n\
                 /sys/block/nvme0n1/stat:1000 0 8000 90 1000 0 8000 100 0 0 0 0 0 0 0 1000 4000"
                    .into(),
                "write cache",
                Warning,
                "nvme0n1: a flush takes 4.00 ms",
            ),
            (
                "/sys/block/nvme0n1/queue/scheduler:none [mq-deadline] kyber".into(),
                "I/O scheduler",
                Note,
                "mq-deadline",
            ),
            ("/sys/block/nvme0n1/queue/wbt_lat_usec:2000".into(), "I/O scheduler", Note, "throttles"),
            ("/proc/sys/kernel/osrelease:5.4.0-100-generic".into(), "kernel", Warning, "5.4.0"),
            ("/proc/sys/kernel/io_uring_disabled:2".into(), "kernel", Warning, "io_uring is disabled"),
            ("/proc/self/limits:Max open files  1024  4096  files".into(), "descriptors", Warning, "4096"),
            ("/cmd/synchronized:no".into(), "clock", Warning, "no program"),
            ("/sys/devices/system/clocksource/clocksource0/current_clocksource:hpet".into(), "clock", Warning, "hpet"),
            (
                "/proc/meminfo:MemTotal: 9000 kB\n/proc/meminfo:MemAvailable: 100 kB".into(),
                "memory",
                Warning,
                "1 % are available",
            ),
            ("/cmd/build:debug".into(), "build", Warning, "without optimisation"),
            ("/proc/vmstat:oom_kill 3".into(), "memory", Warning, "killed 3"),
        ];
        for (line, check, severity, word) in rows {
            is(&with(line), check, *severity, word);
        }
    }

    #[test]
    fn a_drive_slower_than_its_like_is_named() {
        let stat = |n: u32, ms: u32| {
            let dir = format!("/sys/block/sd{n}");
            let times = format!("5000 0 8000 {ms} 5000 0 8000 1000 0 0 0 0 0 0 0 0 0");
            format!("{dir}/stat:{times}\n{dir}/queue/rotational:1\n{dir}/size:1000\n")
        };
        let text: String = [(0, 30_000), (1, 31_000), (2, 29_000), (3, 120_000)].map(|(n, ms)| stat(n, ms)).concat();
        let all = found(&text, "drives");
        let bad: Vec<_> = all.iter().filter(|f| f.severity == Severity::Warning).collect();
        assert_eq!(bad.len(), 1, "{all:#?}");
        assert!(bad[0].what.contains("sd3 (disk): reads 24.0 ms") && bad[0].what.contains("6.0 ms"), "{bad:?}");
    }

    #[test]
    fn chrony_tells_the_offset() {
        let line = |offset: &str, leap: &str| {
            with(&format!(
                "/cmd/chrony:A9FEA97B,169.254.169.123,4,1795873000.1,{offset},0.0,0.0,1,0,0.1,0.0,0.0,64,{leap}"
            ))
        };
        is(&line("0.000002", "Normal"), "clock", Severity::Fine, "0.00 ms");
        is(&line("-0.2", "Normal"), "clock", Severity::Warning, "200.00 ms");
        is(&line("0.0", "Not synchronised"), "clock", Severity::Warning, "not synchronised");
    }

    /// A host without anything to change, as such hosts print it (shortened).
    const GOOD: &str = "\
/proc/cpuinfo:processor\t: 0
/proc/cpuinfo:model name\t: AMD EPYC 7543P 32-Core Processor
/proc/cpuinfo:flags\t\t: fpu sse2 sse4_2 aes pclmulqdq avx2
/proc/cpuinfo:processor\t: 1
/proc/meminfo:MemTotal:       527545584 kB
/proc/meminfo:MemAvailable:   427545584 kB
/proc/meminfo:SwapTotal:              0 kB
/proc/meminfo:SwapFree:               0 kB
/proc/stat:cpu  1000 0 1000 100000 10 0 0 0 0 0
/proc/vmstat:oom_kill 0
/proc/cmdline:BOOT_IMAGE=/vmlinuz iommu=pt
/proc/self/limits:Max open files            1024                 1048576              files
/proc/pressure/cpu:some avg10=0.00 avg60=0.00 avg300=0.00 total=1
/proc/pressure/memory:some avg10=0.00 avg60=0.00 avg300=0.00 total=1
/proc/sys/kernel/osrelease:6.12.41
/proc/sys/kernel/io_uring_disabled:0
/proc/sys/kernel/numa_balancing:0
/cmd/machine:x86_64
/sys/devices/system/cpu/cpu0/cpuidle/state0/name:POLL
/sys/devices/system/cpu/cpu0/cpuidle/state0/latency:0
/sys/devices/system/cpu/cpu0/cpuidle/state0/disable:0
/sys/devices/system/cpu/cpu0/cpuidle/state1/name:C1
/sys/devices/system/cpu/cpu0/cpuidle/state1/latency:2
/sys/devices/system/cpu/cpu0/cpuidle/state1/disable:0
/sys/devices/system/cpu/cpu0/cpuidle/state2/name:C6
/sys/devices/system/cpu/cpu0/cpuidle/state2/latency:133
/sys/devices/system/cpu/cpu0/cpuidle/state2/disable:1
/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor:performance
/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor:performance
/sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count:0
/sys/devices/system/node/node0/cpulist:0
/sys/devices/system/node/node1/cpulist:1
/sys/devices/system/clocksource/clocksource0/current_clocksource:tsc
/sys/kernel/iommu_groups/0/type:identity
/sys/class/net/eth0/speed:25000
/sys/class/net/eth0/duplex:full
/sys/class/net/eth0/mtu:9000
/sys/class/net/eth0/operstate:up
/sys/class/net/eth0/device/numa_node:0
/sys/class/net/eth0/device/uevent:DRIVER=mlx5_core
/sys/class/net/eth0/statistics/rx_packets:1000000
/sys/class/net/eth0/statistics/rx_dropped:0
/sys/class/net/lo/mtu:65536
/sys/class/nvme/nvme0/numa_node:0
/sys/class/hwmon/hwmon0/name:nvme
/sys/class/hwmon/hwmon0/temp1_input:41000
/sys/class/hwmon/hwmon0/temp1_crit:85000
/sys/block/nvme0n1/stat:10000 0 8000 900 10000 0 8000 200 0 0 0 0 0 0 0 1000 50
/sys/block/nvme0n1/size:1000000
/sys/block/nvme0n1/queue/rotational:0
/sys/block/nvme0n1/queue/scheduler:[none] mq-deadline kyber
/sys/block/nvme0n1/queue/write_cache:write back
/sys/block/nvme0n1/queue/wbt_lat_usec:0
/cmd/offloads/eth0:rx-checksumming: on
/cmd/offloads/eth0:generic-receive-offload: on
/cmd/offloads/eth0:large-receive-offload: off [fixed]
/cmd/synchronized:yes
/cmd/build:release
/cmd/name:a
";
}
