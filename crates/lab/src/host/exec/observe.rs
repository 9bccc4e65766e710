//! Samples processes, the machine and the cluster while a cell is measured.
//!
//! A thread takes a sample every second, or at the plan's interval. The first and the last one give the use between
//! them.

use super::remote::{At, SS};
use crate::host::control::{self, Control};
use crate::result::{Machine, Process};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Kernel clock ticks per second in `/proc`; the same on all Linux machines.
const TICKS: f64 = 100.0;

/// One process in one sample.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    pub(super) cpu: f64,
    pub(super) rss: u64,
    pub(super) read: u64,
    pub(super) written: u64,
    /// Bytes sent and received by TCP since the first sample.
    pub(super) net: [u64; 2],
    /// CPU seconds of each thread.
    threads: BTreeMap<u32, f64>,
}

/// The machine in one sample.
#[derive(Clone, Copy, Debug, Default)]
struct Whole {
    busy: f64,
    all: f64,
    disk: f64,
}

/// One sample: processes, machine, cluster state.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub(super) at: f64,
    pub(super) processes: BTreeMap<String, Look>,
    whole: Whole,
    pub(super) seen: Vec<String>,
    /// Requests that each rank of the file system has had.
    requests: BTreeMap<i64, f64>,
}

fn stat_cpu(text: &str) -> f64 {
    let rest = text.rsplit(')').next().unwrap_or_default();
    let f: Vec<&str> = rest.split_whitespace().collect();
    let t = |i: usize| f.get(i).and_then(|x| x.parse::<f64>().ok()).unwrap_or(0.0);
    (t(11) + t(12)) / TICKS
}

/// CPU seconds of the terminated children of this process.
pub(super) fn children_cpu() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let rest = text.rsplit(')').next().unwrap_or_default();
    let f: Vec<&str> = rest.split_whitespace().collect();
    let t = |i: usize| f.get(i).and_then(|x| x.parse::<f64>().ok()).unwrap_or(0.0);
    (t(13) + t(14)) / TICKS
}

fn field(text: &str, name: &str) -> u64 {
    let l = text.lines().find_map(|l| l.strip_prefix(name));
    l.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Bytes sent and received by each TCP connection, by the inode of its socket.
type Connections = BTreeMap<u64, [u64; 2]>;

fn number_after(line: &str, name: &str) -> Option<u64> {
    let rest = &line[line.find(name)? + name.len()..];
    rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
}

/// Reads the output of [`SS`]. A connection without a number has sent, or received, nothing.
fn connections(text: &str) -> Connections {
    let of = |l: &str| {
        let n = |name| number_after(l, name).unwrap_or(0);
        Some((number_after(l, " ino:")?, [n(" bytes_sent:"), n(" bytes_received:")]))
    };
    text.lines().filter_map(of).collect()
}

/// TCP connections of processes: those of this machine are listed once for each network namespace and sample.
#[derive(Default)]
struct Network {
    /// By the namespace, in this sample.
    listed: BTreeMap<PathBuf, Connections>,
    /// By the process's name: its connections in the sample before, and what all have sent and received.
    seen: BTreeMap<String, (Connections, [u64; 2])>,
}

impl Network {
    /// Bytes that a process has sent and received since the first sample; `open` are its open files.
    fn of(&mut self, name: &str, p: &At, open: &str) -> [u64; 2] {
        let sockets = open.lines().filter_map(|l| l.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
        let remote;
        let all = if p.host.is_some() {
            remote = connections(open);
            &remote
        } else {
            let Ok(space) = fs::read_link(format!("/proc/{}/ns/net", p.pid)) else { return [0; 2] };
            self.listed.entry(space).or_insert_with(|| {
                let (pid, ss) = (p.pid.to_string(), SS.split(' '));
                let out = Command::new("nsenter").args(["-t", &pid, "-n"]).args(ss).output();
                // Without `ss`, or the right to see another namespace, nothing is known of the network.
                out.map(|o| connections(&String::from_utf8_lossy(&o.stdout))).unwrap_or_default()
            })
        };
        let now: Connections = sockets.filter_map(|ino: u64| Some((ino, *all.get(&ino)?))).collect();
        let first = !self.seen.contains_key(name);
        let (before, sum) = self.seen.entry(name.to_owned()).or_default();
        if !first {
            for (ino, n) in &now {
                let old = before.get(ino).copied().unwrap_or_default();
                for i in 0..2 {
                    sum[i] += n[i].saturating_sub(old[i]);
                }
            }
        }
        *before = now;
        *sum
    }
}

fn look_at(name: &str, p: &At, network: &mut Network) -> Look {
    // A process that has ended has no files in `/proc`, and counts as idle.
    let [stat, status, io, threads, open] = p.look();
    Look {
        net: network.of(name, p, &open),
        cpu: stat_cpu(&stat),
        rss: field(&status, "VmRSS:") * 1024,
        read: field(&io, "read_bytes:"),
        written: field(&io, "write_bytes:"),
        threads: threads.lines().filter_map(|l| Some((l.split(' ').next()?.parse().ok()?, stat_cpu(l)))).collect(),
    }
}

fn whole(disk: &str) -> Whole {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let f: Vec<f64> =
        text.lines().next().unwrap_or_default().split_whitespace().skip(1).filter_map(|x| x.parse().ok()).collect();
    // Fields of the line `cpu`: user, nice, system, idle, iowait, irq, softirq, steal.
    let all: f64 = f.iter().take(8).sum();
    let idle: f64 = f.iter().skip(3).take(2).sum();
    let (major, minor) = disk.split_once(':').unwrap_or_default();
    let stats = fs::read_to_string("/proc/diskstats").unwrap_or_default();
    let ticks = stats.lines().find_map(|l| {
        let w: Vec<&str> = l.split_whitespace().collect();
        (w.first() == Some(&major) && w.get(1) == Some(&minor)).then(|| w.get(12)?.parse::<f64>().ok()).flatten()
    });
    Whole { busy: all - idle, all, disk: ticks.unwrap_or(0.0) / 1e3 }
}

/// Requests that a metadata server has had, by its counters.
fn requests(socket: &Path) -> Option<f64> {
    control::ask_daemon(socket, "perf dump").ok()?["mds"]["request"].as_f64()
}

enum Word {
    /// Also sample the process with this name and id.
    Add(String, At),
    Stop,
}

/// A running sampler.
pub(super) struct Watch {
    tx: mpsc::Sender<Word>,
    thread: JoinHandle<Vec<Sample>>,
}

/// Handle that adds processes to a sampler.
#[derive(Clone)]
pub(super) struct Adder(mpsc::Sender<Word>);

impl Adder {
    pub(super) fn add(&self, name: &str, process: At) {
        // The sampler may have stopped.
        let _ = self.0.send(Word::Add(name.to_owned(), process));
    }
}

impl Watch {
    /// Starts sampling. `ranks` are admin sockets of metadata servers, and `disk` is the number of the disk that holds
    /// the stores.
    pub(super) fn start(
        pids: Vec<(String, At)>,
        ranks: Vec<(i64, PathBuf)>,
        control: Control,
        disk: String,
        every: Duration,
    ) -> Self {
        let (tx, rx) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let (mut pids, begin) = (pids, Instant::now());
            let mut network = Network::default();
            let mut out: Vec<Sample> = Vec::new();
            let mut next = begin;
            let mut last = false;
            loop {
                let seen = control.status().map_or_else(
                    |_| vec!["monitor: no answer".to_owned()],
                    |s| {
                        let mut seen = s.checks();
                        seen.extend(s.pgs().into_iter().map(|(state, _)| format!("pg {state}")));
                        seen
                    },
                );
                network.listed.clear();
                out.push(Sample {
                    at: begin.elapsed().as_secs_f64(),
                    processes: pids.iter().map(|(n, p)| (n.clone(), look_at(n, p, &mut network))).collect(),
                    whole: whole(&disk),
                    seen,
                    requests: ranks.iter().filter_map(|(rank, at)| Some((*rank, requests(at)?))).collect(),
                });
                if out.last().is_some_and(is_full)
                    && let Some((_, client)) = pids.iter().find(|(n, _)| n == "client")
                {
                    // Writes to a full cluster block until space is freed, which nothing here does: kill the client.
                    client.signal("KILL");
                }
                if last {
                    return out;
                }
                next += every;
                loop {
                    match rx.recv_timeout(next.saturating_duration_since(Instant::now())) {
                        Ok(Word::Add(name, pid)) => pids.push((name, pid)),
                        Ok(Word::Stop) | Err(mpsc::RecvTimeoutError::Disconnected) => {
                            // Take one more sample at the end.
                            last = true;
                            break;
                        }
                        Err(mpsc::RecvTimeoutError::Timeout) => break,
                    }
                }
            }
        });
        Self { tx, thread }
    }

    pub(super) fn adder(&self) -> Adder {
        Adder(self.tx.clone())
    }

    /// Stops the sampler and returns its samples.
    pub(super) fn stop(self) -> Vec<Sample> {
        // Only a panic ends the thread early; the result is then empty.
        let _ = self.tx.send(Word::Stop);
        self.thread.join().unwrap_or_default()
    }
}

/// Whether the cluster blocked writes because it was full.
pub(super) fn is_full(s: &Sample) -> bool {
    s.seen.iter().any(|x| x == "OSD_FULL" || x == "POOL_FULL")
}

/// Use of one process between the first and the last sample; `None` without samples.
fn process(name: &str, samples: &[Sample]) -> Option<Process> {
    let mut all = samples.iter().filter_map(|s| Some((s.at, s.processes.get(name)?))).filter(|(_, l)| l.rss > 0);
    let (t0, first) = all.next()?;
    let (t1, last) = all.next_back()?;
    let time = (t1 - t0).max(1e-3);
    let cpu = (last.cpu - first.cpu).max(0.0);
    let busiest = last.threads.iter().map(|(tid, c)| c - first.threads.get(tid).copied().unwrap_or(0.0));
    Some(Process {
        name: name.to_owned(),
        cpu_seconds: cpu,
        cores: cpu / time,
        busiest_thread: busiest.fold(0.0, f64::max) / time,
        rss_mib: last.rss as f64 / 1_048_576.0,
        written: last.written.saturating_sub(first.written) as f64,
        sent: (last.net[0] - first.net[0]) as f64,
        received: (last.net[1] - first.net[1]) as f64,
        ..Process::default()
    })
}

/// Summarizes samples: processes, machine, and the number of samples that saw each cluster state.
pub(super) fn sum_up(samples: &[Sample]) -> (Vec<Process>, Machine, BTreeMap<String, u64>) {
    let names: std::collections::BTreeSet<&String> = samples.iter().flat_map(|s| s.processes.keys()).collect();
    let processes = names.into_iter().filter_map(|n| process(n, samples)).collect();
    let machine = match (samples.first(), samples.last()) {
        (Some(a), Some(b)) if b.whole.all > a.whole.all => Machine {
            cores: std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64),
            busy: (b.whole.busy - a.whole.busy) / (b.whole.all - a.whole.all),
            disk_busy: (b.whole.disk - a.whole.disk) / (b.at - a.at).max(1e-3),
        },
        _ => Machine::default(),
    };
    let mut seen = BTreeMap::new();
    for s in samples {
        for x in &s.seen {
            *seen.entry(x.clone()).or_insert(0) += 1;
        }
    }
    (processes, machine, seen)
}

/// Requests per second of each rank between one sample and the next.
pub(super) fn rank_rates(samples: &[Sample]) -> BTreeMap<i64, Vec<(f64, f64)>> {
    let mut out: BTreeMap<i64, Vec<(f64, f64)>> = BTreeMap::new();
    for (a, b) in samples.iter().zip(samples.iter().skip(1)) {
        for (rank, n) in &b.requests {
            let before = a.requests.get(rank).copied().unwrap_or(*n);
            out.entry(*rank).or_default().push((b.at, (n - before).max(0.0) / (b.at - a.at).max(1e-3)));
        }
    }
    out
}

/// Samples as CSV.
pub(super) fn csv(samples: &[Sample]) -> String {
    let mut out = "at,process,cpu_seconds,rss_bytes,read_bytes,written_bytes,sent_bytes,received_bytes\n".to_owned();
    for s in samples {
        for (n, l) in &s.processes {
            let [sent, received] = l.net;
            out += &format!("{:.3},{n},{:.2},{},{},{},{sent},{received}\n", s.at, l.cpu, l.rss, l.read, l.written);
        }
    }
    out
}

/// Cluster states of each sample as CSV: health checks, and PG states with the prefix `pg`.
pub(super) fn states_csv(samples: &[Sample]) -> String {
    let mut out = "at,seen\n".to_owned();
    for s in samples {
        for x in &s.seen {
            out += &format!("{:.3},{}\n", s.at, x.replace(',', ";"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::connections;

    #[test]
    fn bytes_of_connections_are_read() {
        let text = "ESTAB 0 0 127.0.0.1:6800 127.0.0.1:40000 ino:4711 sk:3 cgroup:/ <-> cubic rto:204 bytes_sent:12 bytes_acked:12 bytes_received:34 segs_out:1\n\
            ESTAB 0 0 [::1]:1 [::1]:2 uid:33 ino:5 sk:4 <-> cubic bytes_received:7\nESTAB without an inode\n";
        let all: Vec<_> = connections(text).into_iter().collect();
        assert_eq!(all, [(5, [0, 7]), (4711, [12, 34])]);
    }
}
