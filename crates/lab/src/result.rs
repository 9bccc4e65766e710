//! Result of one measurement: figures for tables, series for plots, and facts for findings.

use crate::stats::Sample;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Statistics of one second of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Seconds since the load began.
    pub at: f64,
    /// Operations per second.
    pub iops: f64,
    /// Mean latency in microseconds; 0 if unknown.
    pub mean_us: f64,
}

/// Resource use of a process over the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Name: `osd.0`, `mon.a`, `client`.
    pub name: String,
    /// CPU seconds.
    pub cpu_seconds: f64,
    /// Cores in use on average.
    pub cores: f64,
    /// CPU limit in cores; 0 for none.
    pub limit: f64,
    /// Fraction of a core that its busiest thread used.
    pub busiest_thread: f64,
    /// Fraction of CPU periods in which its limit throttled it.
    pub throttled: f64,
    /// Resident memory in MiB at the end.
    pub rss_mib: f64,
    /// Bytes it wrote to block devices.
    pub written: f64,
    /// Bytes that its TCP connections sent; 0 if unknown.
    #[serde(default)]
    pub sent: f64,
    /// Bytes that its TCP connections received; 0 if unknown.
    #[serde(default)]
    pub received: f64,
}

impl Process {
    /// Kind of the daemon: `osd` of `osd.0`.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.name.split('.').next().unwrap_or_default()
    }
}

/// Operations of one OSD, from the client's measurements or the OSD's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OsdOps {
    /// Id of the OSD.
    pub osd: u32,
    /// Number of operations.
    pub ops: f64,
    /// Mean latency in microseconds; 0 if not counted.
    pub mean_us: f64,
}

/// Resource use of the machine over the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Number of cores.
    pub cores: f64,
    /// Fraction of the cores' time that was busy.
    pub busy: f64,
    /// Fraction of the time that the stores' disk was busy.
    pub disk_busy: f64,
}

/// Result of a cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// Name of the cell's folder.
    pub id: String,
    /// Index of its combination of settings.
    pub combination: usize,
    /// Repetition, from 0.
    pub repetition: u64,
    /// Name and version of the measured system.
    pub system: String,
    /// Name of the load.
    pub load: String,
    /// All settings, by `section.key`.
    pub params: BTreeMap<String, String>,
    /// Figures by name.
    pub metrics: BTreeMap<String, f64>,
    /// Statistics of each second.
    pub series: Vec<Point>,
    /// Histogram: latencies in microseconds, each with its count.
    pub histogram: Vec<(f64, u64)>,
    /// Resource use of the processes.
    pub processes: Vec<Process>,
    /// OSDs, from the client's measurements or the OSDs' counters.
    pub osds: Vec<OsdOps>,
    /// Resource use of the machine.
    pub machine: Machine,
    /// Number of samples of the cluster's state.
    pub looks: u64,
    /// Number of samples that saw each health check or PG state.
    pub seen: BTreeMap<String, u64>,
    /// Disturbances that were carried out.
    pub disturbed: Vec<String>,
    /// Operations of each client, if the tool reports them.
    pub clients: Vec<f64>,
    /// Histogram of the times to the first byte, as `histogram`; empty if the tool reports none.
    #[serde(default)]
    pub first_byte: Vec<(f64, u64)>,
    /// Seconds until each client finished, of a load with an end of its own.
    #[serde(default)]
    pub finishes: Vec<f64>,
    /// The hundred longest latencies in microseconds, in order, if the tool reports them.
    #[serde(default)]
    pub worst: Vec<f64>,
    /// Requests per second of each rank of the file system, over the seconds of the measurement.
    #[serde(default)]
    pub ranks: BTreeMap<i64, Vec<(f64, f64)>>,
}

/// Figures in the order of tables, with their units.
pub const METRICS: [(&str, &str); 73] = [
    ("finish_first_s", "first client finished, s"),
    ("finish_median_s", "median client finished, s"),
    ("finish_last_s", "last client finished, s"),
    ("finish_spread", "last client's time in that of the first"),
    ("unpack_median_s", "median client unpacked, s"),
    ("mds_per_second", "requests of the metadata servers per second"),
    ("busiest_rank_percent", "of these by the busiest rank, %"),
    ("iops", "operations per second"),
    ("mib_s", "MiB per second"),
    ("mean_us", "mean latency, µs"),
    ("p1_us", "best 1 %, µs"),
    ("p10_us", "best 10 %, µs"),
    ("p25_us", "best 25 %, µs"),
    ("p50_us", "median latency, µs"),
    ("p75_us", "worst 25 %, µs"),
    ("p90_us", "worst 10 %, µs"),
    ("p99_us", "p99, µs"),
    ("p99.9_us", "p99.9, µs"),
    ("p99.99_us", "p99.99, µs"),
    ("max_us", "longest, µs"),
    ("first_byte_p1_us", "first byte: best 1 %, µs"),
    ("first_byte_p10_us", "first byte: best 10 %, µs"),
    ("first_byte_p25_us", "first byte: best 25 %, µs"),
    ("first_byte_p50_us", "first byte: median, µs"),
    ("first_byte_p75_us", "first byte: worst 25 %, µs"),
    ("first_byte_p90_us", "first byte: worst 10 %, µs"),
    ("first_byte_p99_us", "first byte: worst 1 %, µs"),
    ("first_byte_p99.9_us", "first byte: p99.9, µs"),
    ("first_byte_max_us", "first byte: maximum, µs"),
    ("first_byte_over_100ms_percent", "first byte after more than 100 ms, %"),
    ("worst_hundred_us", "shortest of the hundred longest reads, µs"),
    ("put_iops", "put per second"),
    ("put_p50_us", "put: median latency, µs"),
    ("put_p99_us", "put: p99, µs"),
    ("put_mb_s", "put: MB per second"),
    ("get_iops", "get per second"),
    ("get_p50_us", "get: median latency, µs"),
    ("get_p99_us", "get: p99, µs"),
    ("get_mb_s", "get: MB per second"),
    ("sequential_iops", "objects of whole images per second"),
    ("sequential_mb_s", "whole images: MB per second"),
    ("packed_mb_s", "packed into images: MB per second"),
    ("disk_per_payload", "bytes on disk per byte of the objects"),
    ("head_iops", "head per second"),
    ("head_p99_us", "head: p99, µs"),
    ("list_iops", "list per second"),
    ("list_p99_us", "list: p99, µs"),
    ("delete_iops", "delete per second"),
    ("delete_p99_us", "delete: p99, µs"),
    ("create_iops", "create per second"),
    ("create_p99_us", "create: p99, µs"),
    ("stat_iops", "stat per second"),
    ("stat_p99_us", "stat: p99, µs"),
    ("rename_iops", "rename per second"),
    ("rename_p99_us", "rename: p99, µs"),
    ("unlink_iops", "unlink per second"),
    ("unlink_p99_us", "unlink: p99, µs"),
    ("readdir_iops", "readdir per second"),
    ("readdir_p99_us", "readdir: p99, µs"),
    ("service_us_per_op", "CPU of gateway or metadata server per operation, µs"),
    ("osd_us_per_op", "CPU of the OSDs per operation, µs"),
    ("mon_us_per_op", "CPU of monitor and manager per operation, µs"),
    ("client_us_per_op", "CPU of the client per operation, µs"),
    ("postgres_us_per_op", "CPU of PostgreSQL per operation, µs"),
    ("mapper_us_per_op", "CPU of the servers of mapped images per operation, µs"),
    ("osd_cores", "cores used by the OSDs"),
    ("iops_per_osd_core", "operations per second and core of the OSDs"),
    ("osd_rss_mib", "memory of the OSDs, MiB"),
    ("written_per_byte", "bytes written to devices per byte of the client"),
    ("osd_net_per_op", "bytes that the OSDs sent and received per operation"),
    ("ops", "operations"),
    ("seconds", "measured seconds"),
    ("not_started", "operations that were due and never started"),
];

/// Figures parsed from a tool's output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Figures that the tool reports.
    pub metrics: BTreeMap<String, f64>,
    /// Statistics of each second.
    pub series: Vec<Point>,
    /// Histogram: latencies in microseconds, each with its count.
    pub histogram: Vec<(f64, u64)>,
    /// Operations of each client.
    pub clients: Vec<f64>,
    /// Operations by primary OSD, if the tool reports them.
    pub osds: Vec<OsdOps>,
    /// CPU seconds of processes by id, if the tool measured them over its measured time.
    pub cpu: BTreeMap<u32, f64>,
    /// CPU seconds of the tool itself, if it reports them.
    pub own_cpu: Option<f64>,
    /// Histogram of the times to the first byte.
    pub first_byte: Vec<(f64, u64)>,
    /// Seconds until each client finished.
    pub finishes: Vec<f64>,
    /// The longest latencies in microseconds, if the tool reports them.
    pub worst: Vec<f64>,
}

fn number(v: &Value) -> f64 {
    v.as_f64().unwrap_or(0.0)
}

/// Quantiles: names in the output of `belemnite bench` and in tables.
const QUANTILES: [(&str, &str, &str); 9] = [
    ("p1", "1.000000", "p1_us"),
    ("p10", "10.000000", "p10_us"),
    ("p25", "25.000000", "p25_us"),
    ("p50", "50.000000", "p50_us"),
    ("p75", "75.000000", "p75_us"),
    ("p90", "90.000000", "p90_us"),
    ("p99", "99.000000", "p99_us"),
    ("p99.9", "99.900000", "p99.9_us"),
    ("p99.99", "99.990000", "p99.99_us"),
];

/// Time to the first byte, in microseconds, that an archive of small objects aims for.
pub const GOAL_US: f64 = 100_000.0;

/// Fraction of a histogram's values that are above a limit; 0 for an empty one.
#[must_use]
pub fn share_above(histogram: &[(f64, u64)], limit: f64) -> f64 {
    let all: u64 = histogram.iter().map(|(_, n)| n).sum();
    let above: u64 = histogram.iter().filter(|(us, _)| *us > limit).map(|(_, n)| n).sum();
    if all == 0 { 0.0 } else { above as f64 / all as f64 }
}

/// The histogram of latencies in the output of `belemnite bench`.
fn histogram(latencies: &Value) -> Option<Vec<(f64, u64)>> {
    Some(latencies["histogram"].as_array()?.iter().filter_map(|p| Some((p[0].as_f64()?, p[1].as_u64()?))).collect())
}

/// Parses the output of `belemnite bench --format json`, and of `belemnite load`.
#[must_use]
pub fn from_bench(text: &str) -> Option<Measured> {
    let v: Value = serde_json::from_str(text).ok()?;
    let mut m = Measured::default();
    for k in ["ops", "seconds", "iops", "mib_s", "not_started", "bytes"] {
        m.metrics.insert(k.into(), number(&v[k]));
    }
    let lat = &v["latency_us"];
    m.metrics.insert("mean_us".into(), number(&lat["mean"]));
    m.metrics.insert("max_us".into(), number(&lat["max"]));
    for (ours, _, name) in QUANTILES {
        m.metrics.insert(name.into(), number(&lat[ours]));
    }
    m.histogram = histogram(lat)?;
    if let Some(h) = histogram(&v["first_byte_us"]) {
        m.first_byte = h;
        for (ours, _, name) in QUANTILES {
            m.metrics.insert(format!("first_byte_{name}"), number(&v["first_byte_us"][ours]));
        }
        m.metrics.insert("first_byte_max_us".into(), number(&v["first_byte_us"]["max"]));
        m.metrics.insert("first_byte_over_100ms_percent".into(), share_above(&m.first_byte, GOAL_US) * 100.0);
    }
    for (name, value) in v["figures"].as_object().into_iter().flatten() {
        m.metrics.insert(name.clone(), number(value));
    }
    m.worst = v["worst_us"].as_array().into_iter().flatten().map(number).collect();
    if let Some(least) = m.worst.iter().copied().reduce(f64::min) {
        m.metrics.insert("worst_hundred_us".into(), least);
    }
    for (kind, of) in v["kinds"].as_object().into_iter().flatten() {
        m.metrics.insert(format!("{kind}_iops"), number(&of["iops"]));
        m.metrics.insert(format!("{kind}_p50_us"), number(&of["latency_us"]["p50"]));
        m.metrics.insert(format!("{kind}_p99_us"), number(&of["latency_us"]["p99"]));
    }
    m.series = v["series"]
        .as_array()?
        .iter()
        .map(|s| Point { at: number(&s["at"]), iops: number(&s["ops"]), mean_us: number(&s["mean_us"]) })
        .collect();
    m.clients = v["ops_of_clients"].as_array()?.iter().map(number).collect();
    let osds = v["osds"].as_array()?.iter();
    m.osds = osds.filter_map(|o| serde_json::from_value(o.clone()).ok()).collect();
    let cpu = v["cpu_seconds"].as_object()?;
    m.cpu = cpu.iter().filter_map(|(pid, s)| Some((pid.parse().ok()?, s.as_f64()?))).collect();
    m.own_cpu = v["own_cpu_seconds"].as_f64();
    Some(m)
}

/// Parses the output of `belemnite load build --format json`. An operation is a file of the built trees.
#[must_use]
pub fn from_build(text: &str) -> Option<Measured> {
    let v: Value = serde_json::from_str(text).ok()?;
    let of = |k: &str| -> Option<Vec<f64>> { Some(v["clients"].as_array()?.iter().map(|c| number(&c[k])).collect()) };
    let (built, unpacked, clients) = (Sample::new(of("built")?), Sample::new(of("unpacked")?), of("files")?);
    let ((first, last), ops) = (built.range()?, clients.iter().sum::<f64>());
    let mut m = Measured { clients, finishes: of("built")?, ..Measured::default() };
    m.metrics.extend([
        ("ops".to_owned(), ops),
        ("seconds".to_owned(), last),
        ("iops".to_owned(), ops / last.max(1e-9)),
        ("finish_first_s".to_owned(), first),
        ("finish_median_s".to_owned(), built.median()?),
        ("finish_last_s".to_owned(), last),
        ("finish_spread".to_owned(), last / first.max(1e-9)),
        ("unpack_median_s".to_owned(), unpacked.median()?),
    ]);
    let cpu = v["cpu_seconds"].as_object()?;
    m.cpu = cpu.iter().filter_map(|(pid, s)| Some((pid.parse().ok()?, s.as_f64()?))).collect();
    Some(m)
}

/// Parses fio's JSON output with group reporting.
#[must_use]
pub fn from_fio(text: &str) -> Option<Measured> {
    let v: Value = serde_json::from_str(text.get(text.find('{')?..)?).ok()?;
    let job = v["jobs"].as_array()?.first()?;
    let mut m = Measured::default();
    let sides: Vec<&Value> =
        ["read", "write"].iter().map(|s| &job[*s]).filter(|s| number(&s["total_ios"]) > 0.0).collect();
    let sum = |k: &str| sides.iter().map(|s| number(&s[k])).sum::<f64>();
    let ops = sum("total_ios");
    let seconds = sides.iter().map(|s| number(&s["runtime"])).fold(0.0, f64::max) / 1e3;
    m.metrics.extend([
        ("ops".to_owned(), ops),
        ("seconds".to_owned(), seconds),
        ("iops".to_owned(), ops / seconds.max(1e-9)),
        ("bytes".to_owned(), sum("io_bytes")),
        ("mib_s".to_owned(), sum("io_bytes") / seconds.max(1e-9) / 1_048_576.0),
    ]);
    // In a mixed load, the direction with more operations gives the latencies.
    let side = sides.iter().max_by(|a, b| number(&a["total_ios"]).total_cmp(&number(&b["total_ios"])))?;
    let lat = &side["clat_ns"];
    m.metrics.insert("mean_us".into(), number(&lat["mean"]) / 1e3);
    m.metrics.insert("max_us".into(), number(&lat["max"]) / 1e3);
    for (_, fio, name) in QUANTILES {
        m.metrics.insert(name.into(), number(&lat["percentile"][fio]) / 1e3);
    }
    if let Some(bins) = lat["bins"].as_object() {
        m.histogram = bins.iter().filter_map(|(ns, n)| Some((ns.parse::<f64>().ok()? / 1e3, n.as_u64()?))).collect();
        m.histogram.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    Some(m)
}

/// Statistics of each second, from the texts of fio's rate and latency logs of each job (`write_iops_log` and
/// `write_lat_log` with `log_avg_msec=1000`; lines of `time in ms, value, direction, …`).
#[must_use]
pub fn series_of_fio(rates: &[String], latencies: &[String]) -> Vec<Point> {
    // Time, value and direction of each valid line.
    let lines = |texts: &[String]| -> Vec<(u64, f64, u64)> {
        let one = |l: &str| {
            let mut f = l.split(',').map(str::trim);
            Some((f.next()?.parse::<u64>().ok()?, f.next()?.parse().ok()?, f.next()?.parse().ok()?))
        };
        texts.iter().flat_map(|t| t.lines().filter_map(one)).collect()
    };
    // Jobs write their lines a few milliseconds apart.
    let second = |ms: u64| (ms + 500) / 1000;
    let mut rate_of: BTreeMap<u64, BTreeMap<u64, f64>> = BTreeMap::new();
    for (ms, v, side) in lines(rates) {
        *rate_of.entry(second(ms)).or_default().entry(side).or_default() += v;
    }
    let mut latency_of: BTreeMap<(u64, u64), (f64, u64)> = BTreeMap::new();
    for (ms, ns, side) in lines(latencies) {
        let e = latency_of.entry((second(ms), side)).or_default();
        *e = (e.0 + ns / 1e3, e.1 + 1);
    }
    let point = |(at, sides): (u64, BTreeMap<u64, f64>)| {
        let iops: f64 = sides.values().sum();
        let mean = |side: &u64| latency_of.get(&(at, *side)).map_or(0.0, |(sum, n)| sum / *n as f64);
        let weighted: f64 = sides.iter().map(|(side, rate)| mean(side) * rate).sum();
        Point { at: at as f64, iops, mean_us: weighted / iops.max(1e-9) }
    };
    rate_of.into_iter().map(point).collect()
}

/// Parses the summary and the lines per second of `rados bench`.
#[must_use]
pub fn from_rados(text: &str) -> Option<Measured> {
    let field = |name: &str| {
        let l = text.lines().find(|l| l.starts_with(name))?;
        l.rsplit(':').next()?.trim().parse::<f64>().ok()
    };
    let ops = field("Total writes made").or_else(|| field("Total reads made"))?;
    let (seconds, size) = (field("Total time run")?, field("Write size").or_else(|| field("Read size")).unwrap_or(0.0));
    let mut m = Measured::default();
    m.metrics.extend([
        ("ops".to_owned(), ops),
        ("seconds".to_owned(), seconds),
        ("iops".to_owned(), ops / seconds.max(1e-9)),
        ("bytes".to_owned(), ops * size),
        ("mib_s".to_owned(), field("Bandwidth (MB/sec)")?),
        ("mean_us".to_owned(), field("Average Latency(s)")? * 1e6),
        ("max_us".to_owned(), field("Max latency(s)")? * 1e6),
    ]);
    let mut before = 0.0;
    for l in text.lines() {
        let w: Vec<f64> = l.split_whitespace().map_while(|x| x.parse().ok()).collect();
        if let [at, _, _, finished, ..] = w.as_slice()
            && w.len() >= 6
            && *at > 0.0
        {
            let last = l.split_whitespace().nth(6).and_then(|x| x.parse::<f64>().ok()).unwrap_or(0.0);
            m.series.push(Point { at: *at, iops: finished - before, mean_us: last * 1e6 });
            before = *finished;
        }
    }
    Some(m)
}

/// Parses the last line of `rbd bench`.
#[must_use]
pub fn from_rbd(text: &str, block: f64) -> Option<Measured> {
    let l = text.lines().rev().find(|l| l.starts_with("elapsed:"))?;
    let words: Vec<&str> = l.split_whitespace().collect();
    let after = |name: &str| {
        let i = words.iter().position(|w| *w == name)?;
        words.get(i + 1)?.trim_end_matches(',').parse::<f64>().ok()
    };
    let (ops, rate) = (after("ops:")?, after("ops/sec:")?);
    let mut m = Measured::default();
    m.metrics.extend([
        ("ops".to_owned(), ops),
        ("iops".to_owned(), rate),
        ("seconds".to_owned(), ops / rate.max(1e-9)),
        ("bytes".to_owned(), ops * block),
        ("mib_s".to_owned(), rate * block / 1_048_576.0),
    ]);
    Some(m)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_s_figures_are_taken_over() {
        let text = r#"{"ops": 4, "seconds": 2, "iops": 2, "mib_s": 1, "latency_us": {"histogram": [[10, 4]]}, "kinds": {},
            "first_byte_us": {"p99.9": 120000, "max": 200000, "histogram": [[50, 3], [100000, 4], [120000, 1]]},
            "figures": {"disk_per_payload": 1.55}, "worst_us": [120000, 200000], "series": [], "ops_of_clients": [4], "osds": [],
            "cpu_seconds": {"7": 0.5}, "own_cpu_seconds": 1.5}"#;
        let m = from_bench(text).unwrap();
        assert_eq!(m.metrics["first_byte_over_100ms_percent"], 12.5, "100 ms itself is in time");
        assert_eq!((m.metrics["disk_per_payload"], m.metrics["first_byte_p99.9_us"]), (1.55, 120_000.0));
        assert_eq!((m.worst.len(), m.metrics["worst_hundred_us"]), (2, 120_000.0));
        assert!(METRICS.iter().any(|(n, _)| *n == "disk_per_payload"));
        assert_eq!(share_above(&[], 1.0), 0.0);
    }

    #[test]
    fn output_of_rados_bench() {
        let text = "Maintaining 16 concurrent writes of 4194304 bytes to objects of size 4194304 for up to 3 seconds or 0 objects\n\
            Object prefix: benchmark_data_x_1\n  sec Cur ops   started  finished  avg MB/s  cur MB/s last lat(s)  avg lat(s)\n\
            \x20   0       0         0         0         0         0           -           0\n\
            \x20   1      16        60        44   175.977       176    0.314206    0.296349\n\
            \x20   2      16       110        94   187.971       200    0.301       0.29\n\
            Total time run:         2.3\nTotal writes made:      110\nWrite size:             4194304\nObject size:            4194304\n\
            Bandwidth (MB/sec):     191.3\nStddev Bandwidth:       1\nAverage IOPS:           47\nAverage Latency(s):     0.31\n\
            Max latency(s):         0.5\nMin latency(s):         0.1\n";
        let m = from_rados(text).unwrap();
        assert_eq!((m.metrics["ops"], m.metrics["mib_s"], m.metrics["mean_us"]), (110.0, 191.3, 310_000.0));
        assert!((m.metrics["iops"] - 47.826).abs() < 0.01);
        assert_eq!(m.series.iter().map(|p| p.iops).collect::<Vec<_>>(), [44.0, 50.0]);
        assert!((m.series[0].mean_us - 314_206.0).abs() < 1.0);
        assert!(from_rados("error: no such pool").is_none());
    }

    #[test]
    fn output_of_rbd_bench() {
        let m = from_rbd("bench  type write\nelapsed: 2   ops: 1024   ops/sec: 512.5   bytes/sec: 2.0 MiB/s\n", 4096.0)
            .unwrap();
        assert_eq!((m.metrics["ops"], m.metrics["iops"]), (1024.0, 512.5));
    }

    #[test]
    fn output_of_fio() {
        let text = r#"fio: note
{"jobs":[{"read":{"io_bytes":4096000,"runtime":2000,"total_ios":1000,"clat_ns":{"mean":250000.5,"max":900000,
"percentile":{"50.000000":240000,"99.000000":500000},"bins":{"240000":900,"500000":100}}},
"write":{"io_bytes":0,"runtime":0,"total_ios":0,"clat_ns":{"mean":0}}}]}"#;
        let m = from_fio(text).unwrap();
        assert_eq!((m.metrics["iops"], m.metrics["p50_us"], m.metrics["p99_us"]), (500.0, 240.0, 500.0));
        assert_eq!(m.histogram, [(240.0, 900), (500.0, 100)]);
        assert!(from_fio("fio: failed").is_none());
    }

    #[test]
    fn logs_of_fio_become_seconds() {
        let rates = ["1000, 100, 0, 0, 0\n2003, 300, 0, 0, 0\n2003, 50, 1, 0, 0\n", "998, 20, 0, 0, 0\nrubbish\n"];
        let latencies = ["1000, 200000, 0, 0, 0\n2003, 100000, 0, 0\n2003, 800000, 1, 0\n", "999, 400000, 0, 0, 0\n"];
        let all = series_of_fio(&rates.map(String::from), &latencies.map(String::from));
        let point = |at, iops, mean_us| Point { at, iops, mean_us };
        assert_eq!(all, [point(1.0, 120.0, 300.0), point(2.0, 350.0, 200.0)]);
        assert_eq!(series_of_fio(&[], &latencies.map(String::from)), []);
    }
}
