//! Findings and notes: named reasons why a measurement was limited or is doubtful.
//!
//! A finding concerns one measurement: a saturated resource, a client that could not go faster, a cluster with
//! background work. A note concerns the machine and holds for the whole run. Every threshold is a constant here.

use crate::result::{CellResult, Process};
use crate::stats::{REPETITIONS_MIN, Sample, ratio};
use serde_json::Value;
use std::collections::BTreeMap;

/// Fraction of its cores (or of its CPU limit) from which a machine (or a process) counts as saturated.
const SATURATED: f64 = 0.95;
/// Fraction of the machine's cores that processes outside the measurement may use.
const OTHERS: f64 = 0.25;
/// Fraction of CPU periods in which a process was throttled, from which the throttling is reported.
const HELD_BACK: f64 = 0.10;
/// Fraction of the measured time in which the disk was busy, from which the disk counts as saturated.
const DISK_BUSY: f64 = 0.95;
/// Fraction of its limit in bytes per second at which a disk counts as throttled.
const DISK_LIMIT: f64 = 0.80;
/// An OSD counts as slow if its mean latency is this many times the median of the other OSDs.
const SLOW_OSD: f64 = 3.0;
/// Mean latency in microseconds below which an OSD never counts as slow.
const SLOW_OSD_MIN_US: f64 = 500.0;
/// Fewest operations for which an OSD's mean latency is judged.
const OPS_MIN: f64 = 50.0;
/// Fraction of the samples in which a cluster state was seen, from which it is reported.
const SEEN: f64 = 0.10;
/// Ratio of the most to the fewest operations of equal clients, above which they count as uneven.
const UNEVEN: f64 = 1.5;
/// Fraction of the median by which repetitions may differ.
const SPREAD: f64 = 0.25;
/// Load average per core before a run, above which the machine counts as busy.
const LOAD: f64 = 0.25;
/// Wake-up time of the deepest idle state, in microseconds, above which it is noted.
const DEEP_IDLE_US: f64 = 50.0;

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// A short name: `client-cpu`, `scrub`.
    pub kind: &'static str,
    /// The cell's name, or `run` for a note.
    pub about: String,
    /// The finding as a sentence, with figures.
    pub text: String,
}

/// Whether the process was throttled by its CPU limit or used (nearly) all of it.
fn held(p: &Process) -> bool {
    p.limit > 0.0 && (p.throttled >= HELD_BACK || p.cores >= SATURATED * p.limit)
}

/// Findings of one cell.
#[must_use]
pub fn of_cell(r: &CellResult) -> Vec<Finding> {
    let about = format!("{} on {} ({})", r.load, r.system, r.id);
    let mut out = Vec::new();
    let mut say = |kind, text: String| out.push(Finding { kind, about: about.clone(), text });
    resources(r, &mut say);
    cluster(r, &mut say);
    if let Some(n) = r.metrics.get("not_started").filter(|n| **n > 0.0) {
        say(
            "overload",
            format!("{n:.0} operations were due and never started: the rate is more than the cluster can do"),
        );
    }
    let (most, fewest) = r.clients.iter().fold((0.0, f64::MAX), |(a, b): (f64, f64), x| (a.max(*x), b.min(*x)));
    if r.clients.len() > 1 && most > UNEVEN * fewest {
        say(
            "uneven",
            format!(
                "the fastest of {} equal clients did {most:.0} operations, the slowest {fewest:.0}",
                r.clients.len()
            ),
        );
    }
    out
}

fn resources(r: &CellResult, say: &mut impl FnMut(&'static str, String)) {
    let own: f64 = r.processes.iter().map(|p| p.cores).sum();
    let others = r.machine.busy * r.machine.cores - own;
    if !r.processes.is_empty() && others > OTHERS * r.machine.cores {
        let text = format!(
            "other processes used {others:.1} of the machine's {:.0} cores: repeat the measurement on a quiet machine",
            r.machine.cores
        );
        say("other-load", text);
    } else if r.machine.busy >= SATURATED {
        say(
            "machine-cpu",
            format!(
                "the machine's {:.0} cores were {:.0} % busy: clients and servers compete for the CPU",
                r.machine.cores,
                r.machine.busy * 100.0
            ),
        );
    }
    if r.machine.disk_busy >= DISK_BUSY {
        say("disk", format!("the disk was busy {:.0} % of the time", r.machine.disk_busy.min(1.0) * 100.0));
    }
    for p in &r.processes {
        if p.name == "client" && (held(p) || p.busiest_thread >= SATURATED) {
            let how =
                if held(p) { format!("{:.2} of {:.2} cores", p.cores, p.limit) } else { "a core by one thread".into() };
            say("client-cpu", format!("the client is CPU-bound: it used {how}; the servers may be able to do more"));
        }
    }
    let osds: Vec<&Process> = r.processes.iter().filter(|p| p.kind() == "osd").collect();
    let bound: Vec<&str> = osds.iter().filter(|p| held(p)).map(|p| p.name.as_str()).collect();
    if !bound.is_empty() {
        let limit = osds.iter().map(|p| p.limit).fold(0.0, f64::max);
        say("osd-cpu", format!("{} used all of the {limit:.2} cores allowed", bound.join(", ")));
    }
    let threads: Vec<String> = osds
        .iter()
        .filter(|p| p.busiest_thread >= SATURATED)
        .map(|p| format!("{} ({:.0} %)", p.name, p.busiest_thread.min(1.0) * 100.0))
        .collect();
    if !threads.is_empty() {
        say("osd-thread", format!("a thread used a whole core in {}", threads.join(", ")));
    }
    let limit = r.params.get("cluster.disk_limit").and_then(|v| base::size::parse(v)).unwrap_or(0) as f64;
    let seconds: f64 = r.metrics.get("seconds").copied().unwrap_or(0.0).max(1.0);
    if let Some(p) = osds.first().filter(|p| limit > 0.0 && p.written / seconds >= DISK_LIMIT * limit) {
        say(
            "disk-throttled",
            format!(
                "the disk of {} is limited to {:.1} MB/s, and the OSD wrote at about that rate",
                p.name,
                limit / 1e6
            ),
        );
    }
}

fn cluster(r: &CellResult, say: &mut impl FnMut(&'static str, String)) {
    let looks = r.looks.max(1) as f64;
    let asked = |what: &[&str]| r.disturbed.iter().any(|d| what.iter().any(|w| d.contains(w)));
    let often = |name: &dyn Fn(&str) -> bool| {
        r.seen.iter().filter(|(k, _)| name(k)).map(|(_, n)| *n as f64 / looks).fold(0.0, f64::max)
    };
    let by_plan = |what: &[&str]| if asked(what) { " (by the plan)" } else { "" };
    let scrub = often(&|s| s.starts_with("pg ") && s.contains("scrubbing"));
    if scrub >= SEEN {
        let plan = by_plan(&["scrub"]);
        say("scrub", format!("PGs were scrubbed in {:.0} % of the samples{plan}", scrub * 100.0));
    }
    let moving = often(&|s| {
        s.starts_with("pg ")
            && ["recover", "backfill", "degraded", "undersized", "remapped"].iter().any(|w| s.contains(w))
    });
    if moving >= SEEN {
        let plan = by_plan(&["osd-", "pg_num"]);
        say("recovery", format!("PGs were degraded or moving in {:.0} % of the samples{plan}", moving * 100.0));
    }
    let laggy = often(&|s| s.starts_with("pg ") && (s.contains("laggy") || s.contains("wait")));
    if laggy > 0.0 {
        say("laggy", format!("PGs were laggy or waited for a lease in {:.0} % of the samples", laggy * 100.0));
    }
    let down = often(&|s| {
        s.starts_with("pg ")
            && ["down", "incomplete", "peering", "inactive", "unknown", "stale"].iter().any(|w| s.contains(w))
    });
    if down > 0.0 && !asked(&["osd-", "pg_num"]) {
        say("inactive", format!("PGs did not serve in {:.0} % of the samples", down * 100.0));
    }
    if often(&|s| s == "SLOW_OPS") > 0.0 {
        say("slow-ops", "operations took longer than osd_op_complaint_time (SLOW_OPS)".into());
    }
    let full = often(&|s| s.contains("FULL"));
    if full > 0.0 {
        say("full", "an OSD or pool is nearly full, or full".into());
    }
    let busy: Vec<_> = r.osds.iter().filter(|o| o.ops >= OPS_MIN && o.mean_us > 0.0).collect();
    for o in &busy {
        let others = Sample::new(busy.iter().filter(|x| x.osd != o.osd).map(|x| x.mean_us));
        if let Some(m) = others.median().filter(|m| o.mean_us > SLOW_OSD * m && o.mean_us > SLOW_OSD_MIN_US) {
            let text = format!("osd.{} is slow: {:.0} µs for an operation, {m:.0} µs on the others", o.osd, o.mean_us);
            say("slow-osd", text);
        }
    }
}

/// Findings about cells measured several times: too few, or too unlike each other.
#[must_use]
pub fn of_repetitions(all: &[CellResult]) -> Vec<Finding> {
    let mut by: BTreeMap<usize, Vec<&CellResult>> = BTreeMap::new();
    for r in all {
        by.entry(r.combination).or_default().push(r);
    }
    let mut out = Vec::new();
    let iops = |g: &[&CellResult]| Sample::new(g.iter().filter_map(|r| r.metrics.get("iops").copied()));
    for g in by.values() {
        let Some(first) = g.first() else { continue };
        let s = iops(g);
        if let (Some(spread), true) = (s.spread().filter(|x| *x > SPREAD), s.count() >= 2) {
            out.push(Finding {
                kind: "spread",
                about: format!("{} on {}", first.load, first.system),
                text: format!("{} repetitions differ by {:.0} % of their median", s.count(), spread * 100.0),
            });
        }
    }
    out.extend(claims(&by, iops));
    out
}

/// Comparison key of a result: all its settings but the system, and the load.
fn without_system(r: &CellResult) -> String {
    let rest = r.params.iter().filter(|(k, _)| *k != "cluster.system");
    rest.map(|(k, v)| format!("{k}={v};")).collect::<String>() + &r.load
}

fn claims(by: &BTreeMap<usize, Vec<&CellResult>>, iops: impl Fn(&[&CellResult]) -> Sample) -> Vec<Finding> {
    let mut pairs: BTreeMap<String, Vec<&Vec<&CellResult>>> = BTreeMap::new();
    for g in by.values() {
        if let Some(f) = g.first() {
            pairs.entry(without_system(f)).or_default().push(g);
        }
    }
    let mut out = Vec::new();
    for groups in pairs.values().filter(|g| g.len() >= 2) {
        let [a, b, ..] = groups.as_slice() else { continue };
        let (Some(first), Some(second)) = (a.first(), b.first()) else { continue };
        let (x, y) = (iops(a), iops(b));
        let few = x.count().min(y.count());
        let about = format!("{}: {} and {}", first.load, first.system, second.system);
        if few < REPETITIONS_MIN {
            let text = format!("{few} repetitions; a claim about their ratio needs {REPETITIONS_MIN}");
            out.push(Finding { kind: "too-few", about, text });
        } else if let Some(r) = ratio(&x, &y).filter(|r| !r.is_sure() && (r.medians - 1.0).abs() > 0.1) {
            let (lo, hi) = r.interval.unwrap_or((0.0, 0.0));
            let text = format!(
                "the ratio {:.2} may be anything from {lo:.2} to {hi:.2}: more repetitions are needed",
                r.medians
            );
            out.push(Finding { kind: "unsure", about, text });
        }
    }
    out
}

/// Notes about the machine of a run.
#[must_use]
pub fn of_machine(about: &Value, all: &[CellResult]) -> Vec<Finding> {
    let m = &about["machine"];
    let mut out = Vec::new();
    let mut say = |kind, text: String| out.push(Finding { kind, about: "run".into(), text });
    let devices = |r: &CellResult| r.params.get("cluster.device_paths").is_some_and(|p| !p.is_empty());
    let existing = |r: &CellResult| r.params.get("cluster.system").is_some_and(|s| s.starts_with("existing:"));
    if all.iter().any(|r| !devices(r) && !existing(r)) {
        let fs = about["file_system"].as_str().unwrap_or("a file system");
        say("file-backed", format!("the stores are files on {fs}, not devices: latencies include the file system's"));
    }
    match m["governor"].as_str().unwrap_or_default() {
        "" | "performance" => {}
        g => say("governor", format!("the CPU's frequency governor is {g}; `performance` is steadier")),
    }
    let idle = m["deepest_idle_us"].as_f64().unwrap_or(0.0);
    if idle > DEEP_IDLE_US {
        say(
            "c-states",
            format!("cores may sleep so deeply that waking takes {idle:.0} µs; limit C-states for latencies"),
        );
    }
    if m["iommu_strict"].as_bool() == Some(true) {
        say("iommu", "the IOMMU maps every request (no iommu=pt): costs CPU on NVMe and network".into());
    }
    let (load, cores) = (m["load_before"].as_f64().unwrap_or(0.0), m["cores"].as_f64().unwrap_or(1.0));
    if load > LOAD * cores {
        say(
            "busy-before",
            format!("the machine's load was {load:.1} on {cores:.0} cores before the run: others use it"),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A cell without findings, as measured on an idle machine with many cores.
    fn clean(seed: u64) -> CellResult {
        let mut rng = base::rng::Rng::new(seed);
        let mut near = |x: f64| x * (0.97 + 0.06 * crate::load::pattern::unit(&mut rng));
        let process = |name: &str, cores: f64| Process {
            name: name.into(),
            cores,
            busiest_thread: cores * 0.5,
            limit: if name == "client" { 0.0 } else { 2.0 },
            written: 1e8,
            ..Process::default()
        };
        CellResult {
            id: "0000.0".into(),
            combination: (seed % 2) as usize,
            repetition: seed / 2,
            system: if seed.is_multiple_of(2) { "belemnite" } else { "ceph" }.into(),
            load: "randread".into(),
            params: [
                ("cluster.system".to_owned(), if seed.is_multiple_of(2) { "belemnite" } else { "ceph" }.to_owned()),
                ("cluster.device_paths".to_owned(), "/dev/nvme0n1".to_owned()),
            ]
            .into(),
            metrics: [
                ("iops".to_owned(), near(if seed.is_multiple_of(2) { 50_000.0 } else { 10_000.0 })),
                ("seconds".to_owned(), 10.0),
                ("not_started".to_owned(), 0.0),
            ]
            .into(),
            processes: vec![process("osd.0", near(1.2)), process("osd.1", near(1.2)), process("client", near(1.5))],
            osds: (0..3).map(|osd| OsdOps { osd, ops: 1000.0, mean_us: near(800.0) }).collect(),
            machine: Machine { cores: 16.0, busy: near(0.3), disk_busy: near(0.6) },
            looks: 12,
            seen: [("pg active+clean".to_owned(), 12)].into(),
            clients: vec![near(100.0), near(100.0)],
            ..CellResult::default()
        }
    }

    use crate::result::{Machine, OsdOps};

    fn kinds(f: &[Finding]) -> Vec<&'static str> {
        f.iter().map(|f| f.kind).collect()
    }

    #[test]
    fn twenty_clean_runs_have_no_finding() {
        let quiet = json!({"machine": {"governor": "performance", "deepest_idle_us": 2, "iommu_strict": false, "load_before": 0.1, "cores": 16}});
        for run in 0..20 {
            let all: Vec<CellResult> = (run * 10..run * 10 + 10).map(clean).collect();
            let mut found: Vec<Finding> = all.iter().flat_map(of_cell).collect();
            found.extend(of_repetitions(&all));
            found.extend(of_machine(&quiet, &all));
            assert!(found.is_empty(), "run {run}: {found:?}");
        }
    }

    #[test]
    fn planted_bottlenecks_are_named() {
        let with = |f: &dyn Fn(&mut CellResult)| {
            let mut r = clean(4);
            f(&mut r);
            kinds(&of_cell(&r))
        };
        assert_eq!(with(&|r| (r.processes[2].limit, r.processes[2].throttled) = (1.5, 0.6)), ["client-cpu"]);
        assert_eq!(with(&|r| r.processes[2].busiest_thread = 0.99), ["client-cpu"]);
        assert_eq!(with(&|r| (r.processes[0].cores, r.processes[0].limit) = (0.98, 1.0)), ["osd-cpu"]);
        assert_eq!(with(&|r| r.processes[1].busiest_thread = 1.0), ["osd-thread"]);
        let busy = with(&|r| (r.machine.busy, r.machine.cores) = (0.99, 4.0));
        assert_eq!(busy, ["machine-cpu"]);
        assert_eq!(with(&|r| r.machine.busy = 0.99), ["other-load"]);
        assert_eq!(with(&|r| r.machine.disk_busy = 1.0), ["disk"]);
        assert_eq!(
            with(&|r| {
                r.seen.insert("pg active+clean+scrubbing+deep".into(), 5);
            }),
            ["scrub"]
        );
        assert_eq!(
            with(&|r| {
                r.seen.insert("pg active+recovering".into(), 5);
            }),
            ["recovery"]
        );
        assert_eq!(
            with(&|r| {
                r.seen.insert("pg active+clean+laggy".into(), 1);
            }),
            ["laggy"]
        );
        assert_eq!(
            with(&|r| {
                r.seen.insert("SLOW_OPS".into(), 1);
            }),
            ["slow-ops"]
        );
        assert_eq!(with(&|r| r.osds[1].mean_us = 9000.0), ["slow-osd"]);
        assert_eq!(with(&|r| r.clients[0] = 10.0), ["uneven"]);
        assert_eq!(
            with(&|r| {
                r.metrics.insert("not_started".into(), 7.0);
            }),
            ["overload"]
        );
        let throttled = with(&|r| {
            r.params.insert("cluster.disk_limit".into(), "10M".into());
        });
        assert_eq!(throttled, ["disk-throttled"]);
        let mut r = clean(4);
        r.seen.insert("pg active+clean+scrubbing".into(), 5);
        r.disturbed = vec!["3.0 s: scrub (osd.0)".into()];
        assert!(of_cell(&r)[0].text.ends_with("(by the plan)"), "{:?}", of_cell(&r));
    }

    #[test]
    fn few_or_unlike_repetitions_are_a_finding() {
        let all: Vec<CellResult> = (0..2).map(clean).collect();
        assert_eq!(kinds(&of_repetitions(&all)), ["too-few"]);
        let mut all: Vec<CellResult> = (0..8).map(clean).collect();
        all[2].metrics.insert("iops".into(), 9_000.0);
        assert!(kinds(&of_repetitions(&all)).contains(&"spread"));
        let mut all: Vec<CellResult> = (0..6).map(clean).collect();
        for (r, iops) in all.iter_mut().zip([10.0, 9.0, 14.0, 12.0, 16.0, 15.0]) {
            r.metrics.insert("iops".into(), iops);
        }
        assert!(kinds(&of_repetitions(&all)).contains(&"unsure"));
    }

    #[test]
    fn facts_of_the_machine_become_notes() {
        let about = json!({"file_system": "ext4 on /dev/vda", "machine": {"governor": "powersave", "deepest_idle_us": 200, "iommu_strict": true, "load_before": 9.0, "cores": 2}});
        let mut r = clean(1);
        r.params.insert("cluster.device_paths".into(), String::new());
        assert_eq!(kinds(&of_machine(&about, &[r])), ["file-backed", "governor", "c-states", "iommu", "busy-before"]);
    }
}
