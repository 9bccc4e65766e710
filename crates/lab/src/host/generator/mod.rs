//! Runs a load with threads that have a reactor each, and clients with their own connections on them.
//!
//! The calling thread only watches: it sums the threads' counters each second and measures CPU over the measured time.
//! All threads start at the same time, set when the last of them has connected and filled its objects.
//!
//! | module | contents |
//! | --- | --- |
//! | `image` | data objects of an RBD image, found as librbd does: by the image id, then the header object |
//! | `ticker` | wakes a reactor at the start times of an open loop |
//! | `worker` | one thread of a load: its clients, their operations in flight, and its measurements |

mod image;
mod ticker;
mod worker;

use super::proc;
use crate::load::recorder::{Latencies, Second};
use crate::load::{BadSpec, Spec};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Delay between the last thread becoming ready and the start of the load.
const LEAD: Duration = Duration::from_millis(20);

/// Error that ended a load early.
#[derive(Debug, thiserror::Error)]
pub enum GeneratorError {
    /// The load's description is invalid.
    #[error(transparent)]
    Spec(#[from] BadSpec),
    /// The cluster could not be reached, or the pool does not exist.
    #[error(transparent)]
    Client(#[from] client::ClientError),
    /// An operation failed.
    #[error("{what} {object}: {errno}")]
    Operation {
        /// The kind of operation.
        what: &'static str,
        /// Name of the object.
        object: String,
        /// Errno as text.
        errno: String,
    },
    /// The image does not exist or its header cannot be read.
    #[error("image: {what}: {errno}")]
    Image {
        /// The header field that was read.
        what: &'static str,
        /// Errno as text.
        errno: String,
    },
    /// The image has features that need more than writes to its data objects.
    #[error("image features {0:#x} are not supported; make the image with `--image-feature layering`")]
    ImageFeatures(u64),
    /// The pool does not allow overwrites.
    #[error("the pool is erasure-coded and does not allow overwrites: write whole objects or set allow_ec_overwrites")]
    NoOverwrites,
    /// A read returned other data than was written.
    #[error("object {object}, offset {offset}: {wrong}")]
    Wrong {
        /// Name of the object.
        object: String,
        /// Offset of the block.
        offset: u64,
        /// The mismatch.
        wrong: crate::load::content::Wrong,
    },
    /// Starting a thread or reading a process's CPU time failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A thread ended without a result.
    #[error("a thread of the generator ended early")]
    Gone,
}

/// A thread's counters, read by the watcher.
#[derive(Debug, Default)]
pub(super) struct Counters {
    started: AtomicU64,
    finished: AtomicU64,
    bytes: AtomicU64,
    nanos: AtomicU64,
}

/// Start of the load, start of the measured time, and the time after which no operation starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    begin: Instant,
    measure: Instant,
    end: Instant,
}

/// Measurements of one thread.
#[derive(Debug, Default)]
pub(super) struct Seen {
    reads: Latencies,
    writes: Latencies,
    /// Latencies from sending to answer, in an open loop.
    service: Latencies,
    /// Measured operations of each client.
    clients: Vec<u64>,
    /// Measured operations of each primary, and the sum of their latencies in nanoseconds.
    osds: Vec<(u64, u64)>,
    bytes: u64,
    /// Operations of an open loop that were due but never started.
    not_started: u64,
    /// Blocks verified at the end.
    verified: u64,
    /// Completion time of the last measured operation.
    last: Option<Instant>,
}

enum Word {
    Ready,
    Done(Box<Seen>),
    Failed(GeneratorError),
}

/// Result of a load.
#[derive(Debug)]
pub struct Outcome {
    /// Measured seconds.
    pub seconds: f64,
    /// Latencies of reads.
    pub reads: Latencies,
    /// Latencies of writes.
    pub writes: Latencies,
    /// Latencies of reads and writes together.
    pub all: Latencies,
    /// Latencies from sending to answer, in an open loop.
    pub service: Option<Latencies>,
    /// Bytes of measured operations.
    pub bytes: u64,
    /// Measured operations of each client.
    pub clients: Vec<u64>,
    /// Measured operations by the primary at the start of the load, and the sum of their latencies in nanoseconds.
    pub osds: Vec<(u64, u64)>,
    /// Operations that were due but never started.
    pub not_started: u64,
    /// Blocks verified at the end.
    pub verified: Option<u64>,
    /// CPU nanoseconds of each watched process.
    pub cpu: Vec<(u32, u64)>,
    /// CPU nanoseconds of this process.
    pub own_cpu: u64,
    /// Statistics of each second.
    pub series: Vec<Second>,
}

impl Outcome {
    /// Number of measured operations.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.all.count()
    }

    /// Operations per second.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.ops() as f64 / self.seconds.max(1e-9)
    }

    /// MiB per second.
    #[must_use]
    pub fn mib_s(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9) / 1_048_576.0
    }

    /// CPU microseconds per operation, from nanoseconds in all.
    #[must_use]
    pub fn us_per_op(&self, nanos: u64) -> f64 {
        nanos as f64 / 1e3 / self.ops().max(1) as f64
    }

    /// All results as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let cpu: serde_json::Map<String, Value> =
            self.cpu.iter().map(|(pid, n)| (pid.to_string(), json!(*n as f64 / 1e9))).collect();
        let osds: Vec<Value> = self
            .osds
            .iter()
            .enumerate()
            .filter(|(_, (n, _))| *n > 0)
            .map(|(osd, (n, nanos))| json!({"osd": osd, "ops": n, "mean_us": *nanos as f64 / *n as f64 / 1e3}))
            .collect();
        let series: Vec<Value> = self
            .series
            .iter()
            .map(|s| json!({"at": s.at, "ops": s.ops, "bytes": s.bytes, "mean_us": s.mean_us, "in_flight": s.in_flight, "warm_up": s.warm_up}))
            .collect();
        json!({
            "seconds": self.seconds, "ops": self.ops(), "bytes": self.bytes, "iops": self.iops(), "mib_s": self.mib_s(),
            "latency_us": self.all.to_json(), "reads_us": self.reads.to_json(), "writes_us": self.writes.to_json(),
            "service_us": self.service.as_ref().map(Latencies::to_json),
            "not_started": self.not_started, "blocks_verified": self.verified, "ops_of_clients": self.clients, "osds": osds,
            "cpu_seconds": cpu, "own_cpu_seconds": self.own_cpu as f64 / 1e9,
            "own_cpu_us_per_op": self.us_per_op(self.own_cpu), "series": series,
        })
    }
}

/// Runs a load to its end; `progress` is called each second.
///
/// # Errors
/// [`GeneratorError`]: of an invalid `spec` before anything starts, else the first error of a thread, which ends the load.
pub fn run(
    options: &client::Options,
    spec: &Spec,
    progress: &mut dyn FnMut(&Second),
) -> Result<Outcome, GeneratorError> {
    spec.check()?;
    let (tx, rx) = mpsc::channel();
    let (start, started) = watch::channel(None);
    let counters: Arc<[Counters]> = (0..spec.threads).map(|_| Counters::default()).collect();
    let (shared, options, all) = (Arc::new(spec.clone()), options.clone(), counters.clone());
    let threads = reactor::runtime::Reactors::start(spec.threads, "load", move |cx| {
        let (tx, spec, options) = (tx.clone(), shared.clone(), options.clone());
        let (counters, started) = (all.clone(), started.clone());
        async move {
            let r = worker::run(cx.index, &spec, options, counters, started, || drop(tx.send(Word::Ready))).await;
            // The watcher may have returned after an error of another thread.
            let _ = tx.send(r.map_or_else(Word::Failed, |s| Word::Done(Box::new(s))));
        }
    })?;
    let stop = threads.stopper();
    let out = watch_over(spec, &rx, &start, &counters, progress);
    stop.stop();
    if out.is_ok() {
        threads.join().map_err(|e| std::io::Error::other(e.to_string()))?;
    }
    out
}

/// The next message of a thread; `None` if there is none until the given time.
fn next_word(rx: &mpsc::Receiver<Word>, until: Option<Instant>) -> Result<Option<Word>, GeneratorError> {
    let word = match until {
        None => rx.recv().map_err(|_| GeneratorError::Gone)?,
        Some(at) => match rx.recv_timeout(at.saturating_duration_since(Instant::now())) {
            Ok(w) => w,
            Err(mpsc::RecvTimeoutError::Timeout) => return Ok(None),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(GeneratorError::Gone),
        },
    };
    if let Word::Failed(e) = word { Err(e) } else { Ok(Some(word)) }
}

/// CPU nanoseconds of the watched processes and of this one.
fn cpu(spec: &Spec) -> Result<(Vec<(u32, u64)>, u64), GeneratorError> {
    let all: std::io::Result<Vec<(u32, u64)>> = spec.cpu_of.iter().map(|p| Ok((*p, proc::cpu_nanos(*p)?))).collect();
    Ok((all?, proc::cpu_nanos(std::process::id())?))
}

fn watch_over(
    spec: &Spec,
    rx: &mpsc::Receiver<Word>,
    start: &watch::Sender<Option<Times>>,
    counters: &[Counters],
    progress: &mut dyn FnMut(&Second),
) -> Result<Outcome, GeneratorError> {
    for _ in 0..spec.threads {
        next_word(rx, None)?;
    }
    let begin = Instant::now() + LEAD;
    let measure = begin + spec.warm_up;
    let end = if spec.is_once() { begin + Duration::from_secs(u64::from(u32::MAX)) } else { measure + spec.time };
    let times = Times { begin, measure, end };
    start.send_replace(Some(times));

    let mut seen = Vec::new();
    let mut series: Vec<Second> = Vec::new();
    let mut sums = Sums { at: begin, finished: 0, bytes: 0, nanos: 0 };
    let (mut before, mut after) = (None, None);
    let mut tick = begin + Duration::from_secs(1);
    loop {
        // Wake up at the start and end of the measured time, besides every second.
        let mark = [(before.is_none(), measure), (after.is_none(), end)].into_iter().filter(|(open, _)| *open);
        let until = mark.map(|(_, at)| at).fold(tick, Instant::min);
        match next_word(rx, Some(until))? {
            Some(Word::Done(s)) => seen.push(*s),
            Some(_) => {}
            None if Instant::now() >= tick => {
                let s = sums.second(counters, begin, tick, tick <= measure);
                tick += Duration::from_secs(1);
                progress(&s);
                series.push(s);
            }
            None => {}
        }
        if before.is_none() && Instant::now() >= measure {
            before = Some(cpu(spec)?);
        }
        if after.is_none() && (Instant::now() >= end || seen.len() == spec.threads) {
            after = Some(cpu(spec)?);
        }
        if seen.len() == spec.threads {
            break;
        }
    }
    let (before, after) = before.zip(after).ok_or(GeneratorError::Gone)?;
    Ok(sum_up(spec, seen, times, before, after, series))
}

type Cpu = (Vec<(u32, u64)>, u64);

fn sum_up(spec: &Spec, seen: Vec<Seen>, t: Times, before: Cpu, after: Cpu, series: Vec<Second>) -> Outcome {
    let mut o = Outcome {
        seconds: 0.0,
        reads: Latencies::default(),
        writes: Latencies::default(),
        all: Latencies::default(),
        service: spec.rate.map(|_| Latencies::default()),
        bytes: 0,
        clients: Vec::new(),
        osds: Vec::new(),
        not_started: 0,
        verified: spec.verify.then_some(0),
        cpu: after.0.iter().zip(&before.0).map(|((pid, a), (_, b))| (*pid, a.saturating_sub(*b))).collect(),
        own_cpu: after.1.saturating_sub(before.1),
        series,
    };
    let mut last = t.measure;
    for s in seen {
        o.reads.merge(&s.reads);
        o.writes.merge(&s.writes);
        if let Some(all) = &mut o.service {
            all.merge(&s.service);
        }
        o.bytes += s.bytes;
        o.clients.extend(s.clients);
        o.osds.resize(o.osds.len().max(s.osds.len()), (0, 0));
        for (sum, (n, nanos)) in o.osds.iter_mut().zip(s.osds) {
            *sum = (sum.0 + n, sum.1 + nanos);
        }
        o.not_started += s.not_started;
        o.verified = o.verified.map(|v| v + s.verified);
        last = last.max(s.last.unwrap_or(last));
    }
    o.all.merge(&o.reads);
    o.all.merge(&o.writes);
    let end = if spec.is_once() { last } else { t.end };
    o.seconds = end.duration_since(t.measure).as_secs_f64();
    o
}

/// Sums at the end of the previous second.
struct Sums {
    at: Instant,
    finished: u64,
    bytes: u64,
    nanos: u64,
}

impl Sums {
    fn second(&mut self, counters: &[Counters], begin: Instant, now: Instant, warm_up: bool) -> Second {
        let sum = |f: fn(&Counters) -> &AtomicU64| counters.iter().map(|c| f(c).load(Ordering::Relaxed)).sum::<u64>();
        // Read `finished` first: an operation finishes after it has started, so `started` is never the smaller.
        let (finished, bytes, nanos) = (sum(|c| &c.finished), sum(|c| &c.bytes), sum(|c| &c.nanos));
        let started = sum(|c| &c.started);
        let ops = finished - self.finished;
        let s = Second {
            at: now.duration_since(begin).as_secs_f64(),
            length: now.duration_since(self.at).as_secs_f64(),
            in_flight: started.saturating_sub(finished),
            started,
            finished,
            ops,
            bytes: bytes - self.bytes,
            mean_us: if ops == 0 { 0.0 } else { (nanos - self.nanos) as f64 / ops as f64 / 1e3 },
            warm_up,
        };
        *self = Self { at: now, finished, bytes, nanos };
        s
    }
}
