//! Benchmark of the store alone on a file, with one reactor: CPU per operation and device traffic.
//!
//! Jobs: fill half the file with 4 MiB objects; 4 KiB random overwrites with the updates that a PG adds (object info,
//! log entry, PG info); the same with undo records; 4 KiB random reads; both at depth 1; reads of whole objects; clones
//! made and removed; small objects; an omap with keys in random order; overwrites until the log is long, a kill, and a
//! restart. Only the fill has written the file before. With `--age` random overwrites come after it, so that objects
//! are in pieces all over the device. CPU is that of the whole process, with kernel threads where the kernel accounts
//! them to it.

use super::{Error, Plain};
use crate::size;
use ::store::engine::{self, Config, Counters, FormatOptions, Store};
use ::store::{Cid, Event, ObjectStore, Oid, Op, ReadError, Tag, Transaction};
use base::rng::Rng;
use base::{Eversion, HObject, PgId, Uuid};
use bytes::Bytes;
use reactor::disk::{self, Disk};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const OBJECT: u64 = 4 << 20;
const PGS: u32 = 64;
/// First number of the small objects.
const SMALL: u64 = 1 << 24;
/// Keys set by a transaction, and removed by a range.
const OMAP_BATCH: u64 = 32;

/// Arguments of `belemnite store bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// File to make and fill; it must be new or empty
    file: PathBuf,
    /// Size of the file
    #[arg(long, default_value = "4G")]
    size: String,
    /// Seconds per job
    #[arg(long, default_value_t = 8)]
    secs: u64,
    /// Number of operations in flight
    #[arg(long, default_value_t = 32)]
    depth: usize,
    /// Memory for metadata
    #[arg(long, default_value = "256M")]
    memory: String,
    /// Number of keys of the omap job
    #[arg(long, default_value_t = 200_000)]
    keys: u64,
    /// Number of 4 KiB objects to make
    #[arg(long, default_value_t = 20_000)]
    objects: u64,
    /// Run only these jobs, of fill, seq, write, keep, read, depth1, clone, small, omap, restart
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Before the jobs, overwrite this many times as many random blocks as the objects have
    #[arg(long, default_value_t = 0)]
    age: u64,
    /// Use a file that is not empty
    #[arg(long)]
    force: bool,
}

fn cid(n: u64) -> Cid {
    Cid::Pg(PgId::new(1, n as u32 % PGS).into())
}

fn oid(n: u64) -> Oid {
    let hash = (n as u32).wrapping_mul(0x9e37_79b9);
    HObject { oid: format!("rbd_data.1234567890ab.{n:016x}").into(), hash, pool: base::PoolId(1), ..HObject::min() }
        .into()
}

/// Names of the large objects. They are slices of one buffer, so that using a name touches only the name.
fn names_of(objects: u64) -> Vec<Oid> {
    let names: Vec<Oid> = (0..objects).map(oid).collect();
    let text: Bytes = names.iter().flat_map(|o| o.hobj.oid.iter().copied()).collect();
    let mut at = 0;
    let slice = |n: Oid| {
        let from = at;
        at += n.hobj.oid.len();
        HObject { oid: text.slice(from..at), ..n.hobj.clone() }.into()
    };
    names.into_iter().map(slice).collect()
}

/// CPU seconds of this process in user and kernel mode.
fn cpu() -> (f64, f64) {
    let s = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let f: Vec<&str> = s.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let t = |i: usize| f.get(i).and_then(|x| x.parse::<f64>().ok()).unwrap_or(0.0);
    (t(11) / 100.0, t(12) / 100.0)
}

/// Resident memory of this process in KiB.
fn resident() -> u64 {
    let s = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = s.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

struct Bench {
    store: Store,
    disk: Disk,
    done: Vec<base::device::IoCompletion>,
    rng: Rng,
    objects: u64,
    names: Vec<Oid>,
    version: u64,
    /// Requests in flight at the device; those of a checkpoint may outlast a job.
    in_flight: u64,
    /// Number of keys of the omap job.
    keys: u64,
    /// Number of small objects.
    small: u64,
    /// Number of random overwrites that age the device.
    age: u64,
    /// Log length in bytes at which the restart is measured.
    log_max: u64,
    /// Highest metadata memory in bytes.
    most: usize,
}

/// An operation that begins, or waits for pages.
struct Operation {
    tag: Tag,
    /// The transaction; `None` for a read.
    txn: Option<Transaction>,
    /// Number of the object.
    n: u64,
    off: u64,
}

/// A job in progress.
#[derive(Default)]
struct Job {
    kind: Kind,
    depth: usize,
    /// Number of operations, of a job that does not end by time.
    total: Option<u64>,
    flying: usize,
    /// Number of finished operations.
    ops: u64,
    /// Number of operations that were begun.
    next: u64,
    tag: u64,
    turns: u64,
    waiting: HashMap<Tag, Operation>,
    /// Waiting operations whose pages are there.
    ready: Vec<Tag>,
    /// Start times and latencies, at depth 1.
    started: HashMap<Tag, Instant>,
    lat: Vec<Duration>,
}

impl Job {
    /// Waiting operations whose pages are there.
    fn woken(&mut self) -> Vec<Operation> {
        self.ready.drain(..).filter_map(|t| self.waiting.remove(&t)).collect()
    }

    /// Counts an operation that has ended.
    fn done(&mut self, tag: Tag) {
        self.ops += 1;
        self.flying -= 1;
        if let Some(s) = self.started.remove(&tag) {
            self.lat.push(s.elapsed());
        }
    }
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Kind {
    #[default]
    Fill,
    Write,
    /// As `Write`, a fixed number of times.
    Age,
    /// As `Write`, with undo records that are kept for the next hundred writes of the PG.
    Keep,
    Read,
    /// Reads whole objects in order.
    ReadAll,
    Clone,
    /// Removes the clones of `Clone`.
    RemoveClone,
    /// Makes objects of one block.
    Small,
    ReadSmall,
    Omap,
    OmapRange,
    /// Overwrites until the log has its longest length.
    FillLog,
}

impl Kind {
    fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadAll | Self::ReadSmall)
    }
}

impl Bench {
    fn name(&self, kind: Kind, n: u64) -> Oid {
        match kind {
            Kind::Small | Kind::ReadSmall => oid(SMALL + n),
            _ => self.names[n as usize].clone(),
        }
    }

    fn transaction(&mut self, kind: Kind, n: u64) -> Transaction {
        if let Kind::Omap | Kind::OmapRange | Kind::Clone | Kind::RemoveClone = kind {
            return self.other(kind, n);
        }
        let c = cid(n);
        let o = self.name(kind, n);
        self.version += 1;
        let version = Eversion::new(5, self.version);
        let (off, len) = match kind {
            Kind::Fill => (0, OBJECT as usize),
            Kind::Small => (0, 4096),
            _ => (self.rng.below(OBJECT / 4096) * 4096, 4096),
        };
        // Client data arrives in a buffer of the pool. The cost of generating data must not count as the store's. As
        // with fio's default, each write changes a few bytes in every sector and leaves the rest of the buffer as it
        // was.
        let mut data = base::buf::AlignedBuf::dirty(len);
        for sector in data.chunks_mut(512) {
            sector[..8].copy_from_slice(&self.version.to_le_bytes());
        }
        let data = data.freeze();
        let mut ops = vec![
            Op::Write { cid: c, oid: o.clone(), off, data, sums: None },
            Op::SetAttrs { cid: c, oid: o, attrs: vec![(Bytes::from_static(b"_"), Bytes::from_static(&[7; 250]))] },
            Op::LogAppend { cid: c, version, entry: Bytes::from_static(&[8; 180]) },
            Op::PgInfo { cid: c, info: Bytes::from_static(&[9; 200]) },
        ];
        // Version of the entry this many entries ago in each PG.
        let before = |n: u64| Eversion::new(5, self.version.saturating_sub(u64::from(PGS) * n));
        if kind == Kind::Keep {
            ops.insert(0, Op::Keep { cid: c, version });
            if self.version.is_multiple_of(10) {
                ops.push(Op::DropKept { cid: c, to: before(100) });
            }
        }
        if self.version.is_multiple_of(100) {
            ops.push(Op::LogTrim { cid: c, to: before(3000) });
        }
        Transaction { ops }
    }

    fn other(&mut self, kind: Kind, n: u64) -> Transaction {
        let index = oid(u64::from(u32::MAX));
        // Every number below a power of two once, in scrambled order.
        let key = |i: u64| Bytes::from(format!("key{:016x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let op = match kind {
            Kind::Clone | Kind::RemoveClone => {
                let src = self.names[n as usize].clone();
                let clone = Oid::new(HObject { snap: base::SnapId(1), ..src.hobj.clone() });
                match kind {
                    Kind::Clone => Op::Clone { cid: cid(n), src, dst: clone },
                    _ => Op::Remove { cid: cid(n), oid: clone },
                }
            }
            Kind::Omap => {
                let keys = n * OMAP_BATCH..(n + 1) * OMAP_BATCH;
                let entries = keys.map(|i| (key(i), Bytes::from_static(&[3; 100]))).collect();
                Op::OmapSet { cid: cid(0), oid: index, entries }
            }
            _ => {
                let at = |i: u64| Bytes::from(format!("key{:04x}", i));
                Op::OmapRmRange { cid: cid(0), oid: index, first: at(n), last: at(n + 1) }
            }
        };
        self.version += 1;
        let version = Eversion::new(5, self.version);
        Transaction { ops: vec![op, Op::LogAppend { cid: cid(0), version, entry: Bytes::from_static(&[8; 180]) }] }
    }

    /// Runs a job and prints its result.
    async fn run(&mut self, name: &str, kind: Kind, depth: usize, limit: Duration) -> Result<(), Error> {
        let total = match kind {
            Kind::Fill | Kind::Clone | Kind::RemoveClone | Kind::ReadAll => Some(self.objects),
            Kind::Omap => Some(self.keys / OMAP_BATCH),
            Kind::OmapRange => Some(1 << 16),
            Kind::Small => Some(self.small),
            Kind::Age => Some(self.age),
            _ => None,
        };
        let before = (Instant::now(), cpu(), self.store.counters());
        let mut job = Job { kind, depth, total, tag: 1 << 32, ..Job::default() };
        let failed = |e: String| -> Error { format!("{name}: {e}").into() };
        loop {
            let over = match total {
                Some(n) => job.next >= n,
                None => before.0.elapsed() >= limit,
            };
            if kind == Kind::FillLog && (over || self.store.replay_bytes() >= self.log_max) {
                break;
            }
            if over && job.flying == 0 {
                break;
            }
            let mut due = job.woken();
            if !over {
                self.begin(&mut job, &mut due);
            }
            // An OSD handles received messages in the same way.
            for o in &due {
                match o.txn.as_ref().map(|t| t.ops.iter().find(|o| matches!(o, Op::Write { .. }))) {
                    Some(Some(Op::Write { oid, off, .. })) => self.store.prefetch(oid.hobj.hash, *off),
                    Some(_) => {}
                    None => self.store.prefetch(self.name(kind, o.n).hobj.hash, o.off),
                }
            }
            for o in due {
                self.attempt(&mut job, o).map_err(|e| failed(e.to_string()))?;
            }
            self.turn(&job).await;
            job.turns += 1;
            while let Some(e) = self.store.poll_event() {
                match e {
                    Event::Ready(t) => job.ready.push(t),
                    Event::Durable(t, r) => {
                        r.map_err(|e| failed(base::errno::name(e).to_string()))?;
                        job.done(t);
                    }
                    Event::Health(_) => {}
                }
            }
        }
        self.print(name, &mut job, before);
        Ok(())
    }

    /// Begins operations up to the depth of the job.
    fn begin(&mut self, job: &mut Job, due: &mut Vec<Operation>) {
        let kind = job.kind;
        while job.flying < job.depth && job.total.is_none_or(|n| job.next < n) {
            job.tag += 1;
            let among = if kind == Kind::ReadSmall { self.small } else { self.objects };
            let n = if job.total.is_some() && kind != Kind::Age { job.next } else { self.rng.below(among) };
            job.next += 1;
            if job.depth == 1 {
                job.started.insert(Tag(job.tag), Instant::now());
            }
            let txn = (!kind.reads()).then(|| self.transaction(kind, n));
            let off = match kind {
                Kind::ReadAll | Kind::ReadSmall => 0,
                _ => self.rng.below(OBJECT / 4096) * 4096,
            };
            due.push(Operation { tag: Tag(job.tag), txn, n, off });
            job.flying += 1;
        }
    }

    /// Submits a transaction or reads. An operation that lacks pages waits for them.
    fn attempt(&mut self, job: &mut Job, o: Operation) -> Result<(), ReadError> {
        let Some(txn) = o.txn else {
            let len = if job.kind == Kind::ReadAll { OBJECT } else { 4096 };
            match self.store.read(o.tag, cid(o.n), &self.name(job.kind, o.n), o.off, len) {
                Ok(_) => {
                    self.store.release(o.tag);
                    job.done(o.tag);
                }
                Err(ReadError::Wait) => drop(job.waiting.insert(o.tag, o)),
                Err(e) => return Err(e),
            }
            return Ok(());
        };
        match self.store.prepare(o.tag, &txn) {
            Ok(()) => self.store.submit(o.tag, txn),
            Err(ReadError::Wait) => drop(job.waiting.insert(o.tag, Operation { txn: Some(txn), ..o })),
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Ends a turn of the store, and waits for the device if there is nothing else to do.
    async fn turn(&mut self, job: &Job) {
        self.store.end_turn();
        self.most = self.most.max(self.store.meta_memory());
        while let Some(r) = self.store.poll_io() {
            self.disk.submit(r);
            self.in_flight += 1;
        }
        self.disk.flush_submissions();
        if self.in_flight > 0 && job.ready.is_empty() {
            self.disk.ready().await;
        }
        self.disk.poll(&mut self.done);
        for c in self.done.drain(..) {
            self.in_flight -= 1;
            self.store.handle_io(c);
        }
    }

    /// Prints the result of a job; `before`: time, CPU and counters at its begin.
    fn print(&self, name: &str, job: &mut Job, (t0, c0, n0): (Instant, (f64, f64), Counters)) {
        let (kind, ops, turns) = (job.kind, job.ops, job.turns);
        let (t, now, n) = (t0.elapsed().as_secs_f64(), cpu(), self.store.counters());
        let (user_cpu, sys_cpu) = (now.0 - c0.0, now.1 - c0.1);
        let c = user_cpu + sys_cpu;
        job.lat.sort_unstable();
        let p50 = job.lat.get(job.lat.len() / 2).copied().unwrap_or_default();
        let user = ops as f64 * if kind == Kind::Fill { 1024.0 } else { 1.0 };
        let amp = matches!(kind, Kind::Fill | Kind::Write | Kind::Keep | Kind::FillLog | Kind::Small);
        let blocks = (n.data_blocks - n0.data_blocks + n.page_blocks - n0.page_blocks) as f64
            + (n.log_bytes - n0.log_bytes) as f64 / 4096.0;
        let mut line =
            format!("{name:24} {ops:8} ops {:9.0} op/s  cpu {:7.2} us/op", ops as f64 / t, c * 1e6 / ops as f64);
        if job.depth == 1 {
            line += &format!("  p50 {} us", p50.as_micros());
        }
        if amp {
            line += &format!("  write amp {:.2}", blocks / user);
        }
        if matches!(kind, Kind::Fill | Kind::ReadAll) {
            line += &format!("  {:.0} MiB/s", ops as f64 * 4.0 / t);
        }
        line += &format!("  page reads {:.2}/op", (n.page_reads - n0.page_reads) as f64 / ops as f64);
        println!("{line}  metadata {} KiB", self.store.meta_memory() >> 10);
        println!(
            "{:24} cpu {:.0} % ({:.2} us of user, {:.2} of system), {turns} turns, {} frames, {} checkpoints, {} stalls, {} evictions, {} blocks of pages",
            "",
            c / t * 100.0,
            user_cpu * 1e6 / ops as f64,
            sys_cpu * 1e6 / ops as f64,
            n.frames - n0.frames,
            n.checkpoints - n0.checkpoints,
            n.stalls - n0.stalls,
            n.evictions - n0.evictions,
            n.page_blocks - n0.page_blocks,
        );
    }

    /// Runs the jobs that the arguments ask for.
    async fn run_all(&mut self, a: &BenchArgs) -> Result<(), Error> {
        let (limit, depth) = (Duration::from_secs(a.secs), a.depth);
        let wants = |job: &str| a.only.is_empty() || a.only.iter().any(|o| o == job);
        if ["fill", "seq", "write", "keep", "read", "depth1", "clone", "restart"].into_iter().any(wants) {
            self.run("write 4 MiB", Kind::Fill, 4, limit).await?;
        }
        if self.age > 0 {
            self.run("write 4 KiB to age the device", Kind::Age, depth, limit).await?;
        }
        if wants("seq") {
            self.run("read 4 MiB", Kind::ReadAll, 4, limit).await?;
        }
        if wants("write") {
            self.run("write 4 KiB (warm-up)", Kind::Write, depth, limit).await?;
            self.run("write 4 KiB", Kind::Write, depth, limit).await?;
        }
        if wants("keep") {
            self.run("write 4 KiB, kept to undo", Kind::Keep, depth, limit).await?;
        }
        if wants("read") {
            self.run("read 4 KiB", Kind::Read, depth, limit).await?;
        }
        if wants("depth1") {
            self.run("write 4 KiB, depth 1", Kind::Write, 1, limit / 2).await?;
            self.run("read 4 KiB, depth 1", Kind::Read, 1, limit / 2).await?;
        }
        if wants("clone") {
            self.run("clone 4 MiB", Kind::Clone, depth, limit).await?;
            // Otherwise each later overwrite would allocate another block.
            self.run("remove a clone of 4 MiB", Kind::RemoveClone, depth, limit).await?;
        }
        if wants("small") {
            self.run("make 4 KiB objects", Kind::Small, depth, limit).await?;
            self.run("read 4 KiB objects", Kind::ReadSmall, depth, limit).await?;
        }
        if wants("omap") {
            self.run("omap, 32 keys", Kind::Omap, depth, limit).await?;
            self.run("omap, remove 1/65536", Kind::OmapRange, depth, limit).await?;
        }
        if wants("restart") {
            self.run("write until log is full", Kind::FillLog, depth, limit * 4).await?;
        }
        Ok(())
    }

    /// Leaves requests in flight to the device and drops the store, as after a kill.
    async fn abandon(mut self) {
        while self.in_flight > 0 {
            self.disk.ready().await;
            self.disk.poll(&mut self.done);
            self.in_flight -= self.done.drain(..).count() as u64;
        }
    }
}

/// Runs the benchmark.
pub(super) fn run(a: &BenchArgs) -> Result<(), Error> {
    let parse = |s: &str| size::parse(s).ok_or_else(|| format!("{s}: not a size"));
    let (bytes, memory) = (parse(&a.size)?, parse(&a.memory)?);
    let config = Config { meta_bytes: memory as usize, ..Config::default() };
    let file = disk::prepare(&a.file, Some(bytes), a.force).map_err(|e| format!("{}: {e}", a.file.display()))?;
    let mut dev = Plain(file.clone());
    let o = FormatOptions { uuid: Uuid([1; 16]), reactors: 1, labels: Default::default() };
    engine::format(&mut dev, &o)?;
    let mut store = engine::open(&mut dev, &config)?.pop().ok_or("the store opens to nothing")?;
    let ops = (0..u64::from(PGS)).map(|p| Op::MakeCollection { cid: cid(p), bits: 6 }).collect();
    store.submit(Tag(1), Transaction { ops });
    engine::device::drive(&mut store, &mut dev);
    while store.poll_event().is_some() {}
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    rt.block_on(async {
        let disk = Disk::new(file.clone(), false)?;
        let objects = bytes / 2 / OBJECT;
        let names = names_of(objects);
        let (done, rng) = (Vec::new(), Rng::new(1));
        // Before a checkpoint starts; on a small device, space waiting to be freed causes one soon after this length.
        let log_max = config.checkpoint_log_bytes.min(config.log_bytes_max / 2) / 4 * 3;
        let (small, keys, age) = (a.objects, a.keys, a.age * objects * (OBJECT / 4096));
        let version = 0;
        let mut b =
            Bench { store, disk, done, rng, objects, names, version, in_flight: 0, keys, small, age, log_max, most: 0 };
        b.run_all(a).await?;
        println!("metadata in memory at most {} KiB of {}, process {} KiB", b.most >> 10, memory >> 10, resident());
        b.abandon().await;
        Ok::<_, Error>(())
    })?;
    let t = Instant::now();
    let s = engine::open(&mut dev, &config)?.pop().ok_or("the store opens to nothing")?;
    let (t, r) = (t.elapsed().as_secs_f64(), s.replayed());
    let log = r.bytes as f64 / f64::from(1 << 20);
    let (txns, steps) = (r.txns, r.steps);
    println!(
        "opened in {t:.2} s: {log:.0} MiB of log, {:.0} MiB/s, {txns} transactions, {steps} steps, {:.2} us each",
        log / t,
        t * 1e6 / steps as f64,
    );
    Ok(())
}
