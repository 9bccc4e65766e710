//! Watches over a running load: each second, CPU over the measured time, and the result at the end.

use super::{Counters, LEAD, Steps, StepsError, Tally, Times, Word};
use crate::host::proc;
use crate::load::recorder::{Latencies, Second};
use crate::load::steps::Kind;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Result of a load.
#[derive(Debug)]
pub struct Outcome {
    /// Measured seconds.
    pub seconds: f64,
    /// Latencies of each kind of operation.
    pub kinds: Vec<(Kind, Latencies)>,
    /// Latencies of all operations.
    pub all: Latencies,
    /// Times to the first byte of what was read.
    pub first_byte: Latencies,
    /// Bytes written and read.
    pub bytes: u64,
    /// Measured operations of each client.
    pub clients: Vec<u64>,
    /// Operations that were due and never started.
    pub not_started: u64,
    /// CPU nanoseconds of each watched process.
    pub cpu: Vec<(u32, u64)>,
    /// CPU nanoseconds of this process.
    pub own_cpu: u64,
    /// Statistics of each second.
    pub series: Vec<Second>,
}

impl Outcome {
    /// Operations per second.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.all.count() as f64 / self.seconds.max(1e-9)
    }

    /// MiB per second.
    #[must_use]
    pub fn mib_s(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9) / 1_048_576.0
    }

    /// All results as JSON, with the fields of `belemnite bench` and those of each kind.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let cpu: Map<String, Value> =
            self.cpu.iter().map(|(pid, n)| (pid.to_string(), json!(*n as f64 / 1e9))).collect();
        let kinds: Map<String, Value> = self
            .kinds
            .iter()
            .map(|(k, l)| {
                let rate = l.count() as f64 / self.seconds.max(1e-9);
                (k.name().to_owned(), json!({"iops": rate, "latency_us": l.to_json()}))
            })
            .collect();
        let series: Vec<Value> = self
            .series
            .iter()
            .map(|s| json!({"at": s.at, "ops": s.ops, "bytes": s.bytes, "mean_us": s.mean_us, "in_flight": s.in_flight, "warm_up": s.warm_up}))
            .collect();
        let first = (self.first_byte.count() > 0).then(|| self.first_byte.to_json());
        json!({
            "seconds": self.seconds, "ops": self.all.count(), "bytes": self.bytes, "iops": self.iops(),
            "mib_s": self.mib_s(), "latency_us": self.all.to_json(), "kinds": kinds, "first_byte_us": first,
            "not_started": self.not_started, "ops_of_clients": self.clients, "osds": [], "cpu_seconds": cpu,
            "own_cpu_seconds": self.own_cpu as f64 / 1e9, "series": series,
        })
    }
}

type Cpu = (Vec<(u32, u64)>, u64);

fn cpu(spec: &Steps) -> Result<Cpu, StepsError> {
    let all: std::io::Result<Vec<(u32, u64)>> = spec.cpu_of.iter().map(|p| Ok((*p, proc::cpu_nanos(*p)?))).collect();
    Ok((all?, proc::cpu_nanos(std::process::id())?))
}

fn next_word(rx: &mpsc::Receiver<Word>, until: Option<Instant>) -> Result<Option<Word>, StepsError> {
    let word = match until {
        None => rx.recv().map_err(|_| StepsError::Gone)?,
        Some(at) => match rx.recv_timeout(at.saturating_duration_since(Instant::now())) {
            Ok(w) => w,
            Err(mpsc::RecvTimeoutError::Timeout) => return Ok(None),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(StepsError::Gone),
        },
    };
    if let Word::Failed(e) = word { Err(e) } else { Ok(Some(word)) }
}

/// Watches over the threads of a load from its start to its end.
pub(super) fn watch_over(
    spec: &Steps,
    threads: usize,
    rx: &mpsc::Receiver<Word>,
    start: &watch::Sender<Option<Times>>,
    counters: &Counters,
    progress: &mut dyn FnMut(&Second),
) -> Result<Outcome, StepsError> {
    for _ in 0..threads {
        next_word(rx, None)?;
    }
    let begin = Instant::now() + LEAD;
    let measure = begin + spec.warm_up;
    let times = Times { begin, measure, end: measure + spec.time };
    start.send_replace(Some(times));
    let mut tallies = Vec::new();
    let mut series: Vec<Second> = Vec::new();
    let (mut before, mut after) = (None, None);
    let mut tick = begin + Duration::from_secs(1);
    let mut last = (begin, 0, 0, 0);
    while tallies.len() < threads || after.is_none() {
        // Wake up at the start and end of the measured time, besides every second.
        let marks = [(before.is_none(), measure), (after.is_none(), times.end)];
        let until = marks.into_iter().filter(|(open, _)| *open).map(|(_, at)| at).fold(tick, Instant::min);
        match next_word(rx, Some(until)) {
            Ok(Some(Word::Done(t))) => tallies.push(*t),
            Ok(_) => {}
            // All threads have ended, and the measured time has not.
            Err(StepsError::Gone) if tallies.len() == threads => {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
            }
            Err(e) => return Err(e),
        }
        let now = Instant::now();
        if before.is_none() && now >= measure {
            before = Some(cpu(spec)?);
        }
        if after.is_none() && now >= times.end {
            after = Some(cpu(spec)?);
        }
        if now >= tick {
            let s = second(counters, &mut last, begin, tick, tick <= measure);
            tick += Duration::from_secs(1);
            progress(&s);
            series.push(s);
        }
    }
    let (before, after) = before.zip(after).ok_or(StepsError::Gone)?;
    Ok(sum_up(spec, tallies, times, before, after, series))
}

/// The second that ends at `now`; `last` has the end of the one before, and the sums at that time.
fn second(c: &Counters, last: &mut (Instant, u64, u64, u64), begin: Instant, now: Instant, warm_up: bool) -> Second {
    // Read `finished` first: an operation finishes after it has started, so `started` is never the smaller.
    let finished = c.finished.load(Ordering::Relaxed);
    let (bytes, nanos) = (c.bytes.load(Ordering::Relaxed), c.nanos.load(Ordering::Relaxed));
    let started = c.started.load(Ordering::Relaxed);
    let ops = finished - last.1;
    let s = Second {
        at: now.duration_since(begin).as_secs_f64(),
        length: now.duration_since(last.0).as_secs_f64(),
        in_flight: started.saturating_sub(finished),
        started,
        finished,
        ops,
        bytes: bytes.saturating_sub(last.2),
        mean_us: if ops == 0 { 0.0 } else { nanos.saturating_sub(last.3) as f64 / ops as f64 / 1e3 },
        warm_up,
    };
    *last = (now, finished, bytes, nanos);
    s
}

fn sum_up(spec: &Steps, tallies: Vec<Tally>, t: Times, before: Cpu, after: Cpu, series: Vec<Second>) -> Outcome {
    let mut kinds: BTreeMap<Kind, Latencies> = BTreeMap::new();
    let mut o = Outcome {
        seconds: t.end.duration_since(t.measure).as_secs_f64(),
        kinds: Vec::new(),
        all: Latencies::default(),
        first_byte: Latencies::default(),
        bytes: 0,
        clients: vec![0; spec.clients],
        not_started: 0,
        cpu: after.0.iter().zip(&before.0).map(|((pid, a), (_, b))| (*pid, a.saturating_sub(*b))).collect(),
        own_cpu: after.1.saturating_sub(before.1),
        series,
    };
    for x in tallies {
        for (k, l) in &x.kinds {
            kinds.entry(*k).or_default().merge(l);
            o.all.merge(l);
        }
        o.first_byte.merge(&x.first_byte);
        for (client, n) in x.clients {
            if let Some(sum) = o.clients.get_mut(client) {
                *sum += n;
            }
        }
        o.bytes += x.bytes;
        o.not_started += x.not_started;
    }
    o.kinds = kinds.into_iter().collect();
    o
}
