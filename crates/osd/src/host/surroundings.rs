//! CPU of a reactor's thread and TCP of its host, read from files of the kernel once a second.

use base::Mono;
use base::ledger::{Cpu, Net};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Interval of the samples.
const EVERY: Duration = Duration::from_millis(900);
/// Microseconds of a tick in `/proc/stat`.
const TICK_US: u64 = 10_000;

/// Counters since the start of thread, cgroup, host and network namespace. A file that can't be read counts as 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    ran: u64,
    waited: u64,
    throttled: u64,
    steal: u64,
    sent: u64,
    again: u64,
}

/// Sampler of a thread.
#[derive(Debug)]
pub(super) struct Sampler {
    before: Option<(Mono, Totals)>,
    /// Also samples the network, which all reactors share.
    network: bool,
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

/// Nanoseconds for which a thread ran and waited, of its `schedstat`, in microseconds.
fn schedstat(text: &str) -> (u64, u64) {
    let mut all = text.split_whitespace().map(|n| number(n) / 1000);
    (all.next().unwrap_or(0), all.next().unwrap_or(0))
}

/// Microseconds for which a quota stopped threads, of a `cpu.stat` of version 1 or 2.
fn throttled(text: &str) -> u64 {
    text.lines().find_map(|l| Some(number(l.strip_prefix("throttled_usec ")?))).unwrap_or_else(|| {
        text.lines().find_map(|l| Some(number(l.strip_prefix("throttled_time ")?) / 1000)).unwrap_or(0)
    })
}

/// Microseconds of steal of `/proc/stat`, mean of all CPUs.
fn steal(text: &str) -> u64 {
    let cpus = text.lines().filter(|l| l.starts_with("cpu") && !l.starts_with("cpu ")).count().max(1) as u64;
    let ticks = text.lines().next().and_then(|l| l.split_whitespace().nth(8)).map_or(0, number);
    ticks * TICK_US / cpus
}

/// Segments sent, and those sent again, of `/proc/net/snmp`.
fn segments(text: &str) -> (u64, u64) {
    let mut tcp = text.lines().filter(|l| l.starts_with("Tcp:"));
    let (names, values) = (tcp.next().unwrap_or_default(), tcp.next().unwrap_or_default());
    let of = |name| {
        let i = names.split_whitespace().position(|n| n == name)?;
        values.split_whitespace().nth(i).map(number)
    };
    (of("OutSegs").unwrap_or(0), of("RetransSegs").unwrap_or(0))
}

/// The `cpu.stat` of this process's cgroup: of the controller `cpu` of version 1, or of version 2.
fn quota_file(cgroups: &str, root: &Path) -> Option<PathBuf> {
    let group = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let mounts: &[&str] = match controllers {
            "" => &[".", "unified"],
            c if c.split(',').any(|c| c == "cpu") => &["cpu", "cpu,cpuacct"],
            _ => return None,
        };
        mounts.iter().map(|m| root.join(m).join(path).join("cpu.stat")).find(|f| f.exists())
    };
    // A controller of version 1 is not in version 2.
    let v1 = cgroups.lines().filter(|l| !l.starts_with("0::")).find_map(group);
    v1.or_else(|| cgroups.lines().filter(|l| l.starts_with("0::")).find_map(group))
}

/// MTU of the interfaces with these names.
pub(super) fn mtus<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<String, u32> {
    let mtu = |name: &str| {
        let text = fs::read_to_string(Path::new("/sys/class/net").join(name).join("mtu")).ok()?;
        Some((name.to_owned(), text.trim().parse().ok()?))
    };
    names.filter_map(mtu).collect()
}

impl Sampler {
    /// Sampler of the calling thread; `network`: of its host's network too.
    pub(super) fn new(network: bool) -> Self {
        Self { before: None, network }
    }

    fn read(&self) -> Totals {
        let text = |p: &str| fs::read_to_string(p).unwrap_or_default();
        let (ran, waited) = schedstat(&text("/proc/thread-self/schedstat"));
        // A service manager may move the process.
        let quota = quota_file(&text("/proc/self/cgroup"), Path::new("/sys/fs/cgroup"));
        let throttled = quota.and_then(|p| fs::read_to_string(p).ok()).map_or(0, |t| throttled(&t));
        let (sent, again) = if self.network { segments(&text("/proc/thread-self/net/snmp")) } else { (0, 0) };
        Totals { ran, waited, throttled, steal: steal(&text("/proc/stat")), sent, again }
    }

    /// A sample since the last one; `None` if that was taken a moment ago, and for the first.
    pub(super) fn sample(&mut self, now: Mono) -> Option<(Cpu, Net)> {
        if self.before.is_some_and(|(at, _)| now.since(at) < EVERY) {
            return None;
        }
        let t = self.read();
        let (at, b) = self.before.replace((now, t))?;
        let cpu = Cpu {
            wall: now.since(at).as_micros() as u64,
            ran: t.ran.saturating_sub(b.ran),
            waited: t.waited.saturating_sub(b.waited),
            throttled: t.throttled.saturating_sub(b.throttled),
            steal: t.steal.saturating_sub(b.steal),
        };
        Some((cpu, Net { sent: t.sent.saturating_sub(b.sent), again: t.again.saturating_sub(b.again) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_understood() {
        assert_eq!(schedstat("9889016 3885825 2\n"), (9889, 3885));
        assert_eq!(throttled("nr_periods 4\nnr_throttled 3\nthrottled_time 250000000\n"), 250_000);
        assert_eq!(throttled("usage_usec 7\nnr_throttled 3\nthrottled_usec 2500\n"), 2500);
        let stat = "cpu  159452 0 9786 49024 831 0 159 120 0 0\ncpu0 7 0 4 2 1 0 1 58 0 0\ncpu1 8 0 5 2 7 0 1 62 0 0\nintr 5\n";
        assert_eq!(steal(stat), 600_000);
        let snmp = "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm InSegs OutSegs RetransSegs InErrs\nTcp: 1 900 1000 25 0\nUdp: x\n";
        assert_eq!(segments(snmp), (1000, 25));
        assert_eq!((schedstat(""), throttled(""), steal(""), segments("")), ((0, 0), 0, 0, (0, 0)));
    }

    #[test]
    fn a_thread_that_computes_has_run() {
        let mut s = Sampler::new(true);
        assert_eq!(s.sample(Mono(0)), None, "the first");
        assert_eq!(s.sample(Mono(1000)), None, "a moment later");
        let (cpu, _) = s.sample(Mono(0) + Duration::from_secs(2)).unwrap();
        assert_eq!(cpu.wall, 2_000_000);
    }
}
