//! `belemnite bench`: generates load and reports latencies, and the CPU that daemons used.

use super::Error;
use super::table::{Progress, duration};
use crate::size;
use lab::host::generator::{self, Outcome};
use lab::load::pace::Arrivals;
use lab::load::pattern::Order;
use lab::load::recorder::Second;
use lab::load::{Spec, Work, calls};
use serde_json::json;
use std::io::Write as _;
use std::time::Duration;

/// Arguments of `belemnite bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// Pool of the objects
    pool: String,
    /// Job: blocks of prefilled objects in random order (randread, randwrite, randrw) or sequentially (read, write,
    /// rw), each block written once (fill), omap keys (omapget, omapset, omaprw), or a class call on an image header
    /// (lock.lock, rbd.get_size, …) or on a shard of a bucket's index (rgw.put, …)
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(JOBS.into_iter().chain(calls::NAMES)))]
    job: String,
    /// Measured time in seconds
    #[arg(long, alias = "seconds", default_value_t = 10.0, value_name = "SECONDS")]
    secs: f64,
    /// Unmeasured load before, in seconds [default: a tenth of --secs]
    #[arg(long, value_name = "SECONDS")]
    warm_up: Option<f64>,
    /// Operations in flight of each client; with --rate, the most
    #[arg(long, default_value_t = 16)]
    depth: usize,
    /// Number of clients, each with its own connections
    #[arg(long, default_value_t = 1)]
    clients: usize,
    /// Number of threads that the clients are distributed over
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Start this many operations per second, whether or not earlier ones were answered; latencies count from the time
    /// when an operation was due
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// Times between starts with --rate: constant, or as of many independent clients
    #[arg(long, default_value = "even", value_parser = ["even", "poisson"])]
    arrivals: String,
    /// Percentage of reads of randrw, rw and omaprw
    #[arg(long, default_value_t = 70, value_name = "PERCENT")]
    read_percent: u8,
    /// Choose random blocks by Zipf's law with this exponent, e.g. 0.99, instead of uniformly
    #[arg(long, value_name = "S")]
    zipf: Option<f64>,
    /// Bytes per operation [default: 4M for write and read, 4K for random jobs, 100 for omap values]
    #[arg(long)]
    block: Option<String>,
    /// Number of objects
    #[arg(long, default_value_t = 64)]
    objects: u64,
    /// Size of each object
    #[arg(long, default_value = "4M")]
    object_size: String,
    /// Number of keys of each omap
    #[arg(long, default_value_t = 1000)]
    keys: u64,
    /// Use the data of this image, made with `--image-feature layering`; its contents are overwritten
    #[arg(long, value_name = "NAME")]
    image: Option<String>,
    /// Prefix of the objects' names
    #[arg(long, default_value = "belemnite_bench", value_name = "NAME")]
    run_name: String,
    /// Verify every read, and verify all objects at the end
    #[arg(long)]
    verify: bool,
    /// Seed for order and contents
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Use the objects of an earlier run with --keep instead of writing them
    #[arg(long)]
    no_fill: bool,
    /// Keep the objects
    #[arg(long)]
    keep: bool,
    /// Process ids of local daemons whose CPU time per operation is reported
    #[arg(long, value_delimiter = ',', value_name = "PID")]
    cpu_of: Vec<u32>,
    /// Output: a line at the end; a line per second and a summary in the format of `rados bench`; or JSON
    #[arg(long, default_value = "line", value_parser = ["line", "rados", "json"])]
    format: String,
}

/// Jobs other than class calls.
const JOBS: [&str; 10] =
    ["write", "read", "rw", "randwrite", "randread", "randrw", "fill", "omapset", "omapget", "omaprw"];

fn bytes(s: &str) -> Result<u64, Error> {
    size::parse(s).filter(|n| *n > 0).ok_or_else(|| format!("{s}: not a size").into())
}

pub(super) fn seconds(s: f64) -> Result<Duration, Error> {
    Duration::try_from_secs_f64(s).map_err(|_| format!("{s}: not a number of seconds").into())
}

impl BenchArgs {
    fn work(&self) -> Result<Work, Error> {
        let reads = match self.job.as_str() {
            "rw" | "randrw" | "omaprw" => self.read_percent,
            j if j.ends_with("read") || j.ends_with("get") => 100,
            _ => 0,
        };
        if self.zipf.is_some_and(|s| !(0.0..=10.0).contains(&s)) {
            return Err("--zipf: from 0 to 10".into());
        }
        if self.zipf.is_some() && !self.job.starts_with("rand") {
            return Err(format!("--zipf: {} does not choose blocks at random", self.job).into());
        }
        Ok(match (self.job.as_str(), self.zipf) {
            ("fill", _) => Work::Data { order: Order::Once, reads: 0 },
            (j, Some(s)) if j.starts_with("rand") => Work::Data { order: Order::Zipf(s), reads },
            (j, None) if j.starts_with("rand") => Work::Data { order: Order::Random, reads },
            (j, _) if j.starts_with("omap") => Work::Omap { keys: self.keys.max(1), reads },
            (j, _) if calls::NAMES.contains(&j) => Work::Call(j.to_owned()),
            _ => Work::Data { order: Order::Sequential, reads },
        })
    }

    fn spec(&self) -> Result<Spec, Error> {
        let work = self.work()?;
        let object_size = bytes(&self.object_size)?;
        let block = match (&self.block, &work) {
            (Some(b), _) => bytes(b)?,
            (None, Work::Data { order: Order::Random | Order::Zipf(_), .. }) => 4096.min(object_size),
            (None, Work::Omap { .. }) => 100,
            (None, _) => object_size.min(4 << 20),
        };
        if self.rate.is_some_and(|r| !(r > 0.0 && r.is_finite())) {
            return Err("--rate: more than 0".into());
        }
        let arrivals = if self.arrivals == "poisson" { Arrivals::Poisson } else { Arrivals::Even };
        let time = seconds(self.secs)?;
        Ok(Spec {
            pool: self.pool.clone(),
            image: self.image.clone(),
            time,
            warm_up: match self.warm_up {
                Some(s) => seconds(s)?,
                None if self.job == "fill" => Duration::ZERO,
                None => time / 10,
            },
            threads: self.threads,
            clients: self.clients.max(self.threads),
            depth: self.depth,
            rate: self.rate.map(|r| (r, arrivals)),
            block,
            objects: self.objects,
            object_size,
            prefix: self.run_name.clone(),
            verify: self.verify,
            seed: self.seed,
            fill: !self.no_fill && self.job != "write",
            keep: self.keep,
            cpu_of: self.cpu_of.clone(),
            work,
        })
    }
}

pub(super) fn run(options: &client::Options, a: &BenchArgs) -> Result<(), Error> {
    let spec = a.spec()?;
    let mut out = std::io::stdout().lock();
    if a.format == "rados" {
        writeln!(out, "{}", head(a, &spec))?;
    }
    let mut lines = RadosLines::default();
    let mut progress = Progress::new("", None);
    let o = generator::run(options, &spec, &mut |s| {
        if a.format == "rados" {
            // A reader may close the pipe after the first lines; that is not an error.
            let _ = writeln!(out, "{}", lines.next(s));
        } else {
            progress.say(&second(a, &spec, s));
        }
    })?;
    drop(progress);
    let text = match a.format.as_str() {
        "json" => {
            let mut j = o.to_json();
            if let Some(m) = j.as_object_mut() {
                m.insert("job".into(), json!(a.job));
                m.insert("pool".into(), json!(a.pool));
                m.insert("block".into(), json!(spec.block));
                m.insert("clients".into(), json!(spec.clients));
                m.insert("depth".into(), json!(spec.depth));
                m.insert("rate".into(), json!(a.rate));
                m.insert("seed".into(), json!(spec.seed));
            }
            serde_json::to_string_pretty(&j)?
        }
        "rados" => summary(a, &spec, &o),
        _ => line(a, &spec, &o),
    };
    super::show(out, &text)
}

/// Progress after a second.
fn second(a: &BenchArgs, spec: &Spec, s: &Second) -> String {
    let left = (spec.warm_up + spec.time).as_secs_f64() - s.at;
    let warm = if s.warm_up { " (warm-up)" } else { "" };
    format!(
        "{}{warm}: {:.0} operations/s, {}/s, {:.1} ms on average, {} left",
        a.job,
        s.ops as f64 / s.length.max(1e-9),
        size::show((s.bytes as f64 / s.length.max(1e-9)) as u64),
        s.mean_us / 1e3,
        duration(left)
    )
}

fn line(a: &BenchArgs, spec: &Spec, o: &Outcome) -> String {
    let mut s = format!("{}: {} operations in {:.1} s, {:.0} per second", a.job, o.ops(), o.seconds, o.iops());
    if !matches!(spec.work, Work::Call(_)) {
        s += &format!(", {:.1} MiB/s", o.mib_s());
    }
    s += &format!("; latency µs p50 {:.0} p99 {:.0} max {:.0}", o.all.at(0.5), o.all.at(0.99), o.all.max());
    if !o.cpu.is_empty() {
        let sum = o.cpu.iter().map(|(_, n)| n).sum();
        s += &format!("; CPU µs per operation {:.1}", o.us_per_op(sum));
    }
    if o.not_started > 0 {
        s += &format!("; {} operations were due and never started", o.not_started);
    }
    if let Some(n) = o.verified {
        s += &format!("; {n} blocks read back, all as written");
    }
    s
}

fn is_read(spec: &Spec) -> bool {
    spec.reads() == 100
}

fn head(a: &BenchArgs, spec: &Spec) -> String {
    let kind = if is_read(spec) { "reads" } else { "writes" };
    format!(
        "Maintaining {} concurrent {kind} of {} bytes to objects of size {} for up to {} seconds or 0 objects\nObject prefix: {}",
        spec.depth * spec.clients,
        spec.block,
        spec.object_size,
        a.secs,
        spec.prefix,
    )
}

/// Output in the format of `rados bench`, a line per second; its MB have 1,048,576 bytes.
#[derive(Default)]
struct RadosLines {
    bytes: u64,
    latency: f64,
    count: u64,
}

impl RadosLines {
    fn next(&mut self, s: &Second) -> String {
        const MB: f64 = 1_048_576.0;
        let n = s.at.round() as u64;
        let mut out = String::new();
        if n % 20 == 1 {
            out += "  sec Cur ops   started  finished  avg MB/s  cur MB/s last lat(s)  avg lat(s)\n";
        }
        self.bytes += s.bytes;
        self.latency += s.mean_us * s.ops as f64;
        self.count += s.ops;
        let last = if s.ops == 0 { "          -".to_owned() } else { format!("{:>11.6}", s.mean_us / 1e6) };
        let mean = if self.count == 0 { 0.0 } else { self.latency / self.count as f64 / 1e6 };
        out += &format!(
            "{n:>5} {:>7} {:>9} {:>9} {:>9.2} {:>9.2} {last} {mean:>11.6}",
            s.in_flight,
            s.started,
            s.finished,
            self.bytes as f64 / s.at.max(1e-9) / MB,
            s.bytes as f64 / s.length.max(1e-9) / MB,
        );
        out
    }
}

/// Mean, standard deviation, maximum and minimum.
fn spread(v: &[f64]) -> (f64, f64, f64, f64) {
    let n = v.len().max(1) as f64;
    let mean = v.iter().sum::<f64>() / n;
    let deviation = (v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
    let (max, min) = v.iter().fold((f64::MIN, f64::MAX), |(a, b), x| (a.max(*x), b.min(*x)));
    if v.is_empty() { (0.0, 0.0, 0.0, 0.0) } else { (mean, deviation, max, min) }
}

fn summary(a: &BenchArgs, spec: &Spec, o: &Outcome) -> String {
    let measured = o.series.iter().filter(|s| !s.warm_up);
    let mb: Vec<f64> = measured.clone().map(|s| s.bytes as f64 / s.length.max(1e-9) / 1_048_576.0).collect();
    let ops: Vec<f64> = measured.map(|s| s.ops as f64 / s.length.max(1e-9)).collect();
    let ((_, b_dev, b_max, b_min), (_, i_dev, i_max, i_min)) = (spread(&mb), spread(&ops));
    let (kind, past) = if is_read(spec) { ("Read", "reads") } else { ("Write", "writes") };
    format!(
        "Total time run:         {:.4}\nTotal {past} made:{}{}\n{kind} size:{}{}\nObject size:            {}\n\
         Bandwidth (MB/sec):     {:.3}\nStddev Bandwidth:       {b_dev:.3}\nMax bandwidth (MB/sec): {b_max:.3}\nMin bandwidth (MB/sec): {b_min:.3}\n\
         Average IOPS:           {:.0}\nStddev IOPS:            {i_dev:.3}\nMax IOPS:               {i_max:.0}\nMin IOPS:               {i_min:.0}\n\
         Average Latency(s):     {:.6}\nStddev Latency(s):      {:.6}\nMax latency(s):         {:.6}\nMin latency(s):         {:.6}{}",
        o.seconds,
        " ".repeat(if is_read(spec) { 7 } else { 6 }),
        o.ops(),
        " ".repeat(if is_read(spec) { 14 } else { 13 }),
        spec.block,
        spec.object_size,
        o.mib_s(),
        o.iops(),
        o.all.mean() / 1e6,
        o.all.deviation() / 1e6,
        o.all.max() / 1e6,
        o.all.min() / 1e6,
        if spec.rate.is_some() || spec.verify { format!("\n{}", line(a, spec, o)) } else { String::new() },
    )
}
