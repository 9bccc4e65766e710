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
use ::store::engine::{self, Config, FormatOptions, Store};
use ::store::{Cid, Event, ObjectStore, Oid, Op, ReadError, Tag, Transaction};
use base::rng::Rng;
use base::{Eversion, HObject, PgId, Uuid};
use bytes::Bytes;
use reactor::disk::{self, Disk};
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

#[derive(Clone, Copy, PartialEq)]
enum Kind {
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

    async fn run(&mut self, name: &str, kind: Kind, depth: usize, limit: Duration) -> Result<(), Error> {
        let total = match kind {
            Kind::Fill | Kind::Clone | Kind::RemoveClone | Kind::ReadAll => Some(self.objects),
            Kind::Omap => Some(self.keys / OMAP_BATCH),
            Kind::OmapRange => Some(1 << 16),
            Kind::Small => Some(self.small),
            Kind::Age => Some(self.age),
            _ => None,
        };
        let (t0, c0, n0) = (Instant::now(), cpu(), self.store.counters());
        let (mut flying, mut ops, mut next, mut tag) = (0, 0u64, 0u64, 1u64 << 32);
        let mut waiting: std::collections::HashMap<Tag, (Option<Transaction>, u64, u64)> = Default::default();
        let mut ready: Vec<Tag> = Vec::new();
        let mut lat: Vec<Duration> = Vec::new();
        let mut started: std::collections::HashMap<Tag, Instant> = Default::default();
        let mut turns = 0u64;
        let len = if kind == Kind::ReadAll { OBJECT } else { 4096 };
        loop {
            let over = match total {
                Some(n) => next >= n,
                None => t0.elapsed() >= limit,
            };
            if kind == Kind::FillLog && (over || self.store.replay_bytes() >= self.log_max) {
                break;
            }
            if over && flying == 0 {
                break;
            }
            let again = ready.drain(..).filter_map(|t| waiting.remove(&t).map(|(x, n, off)| (t, x, n, off)));
            let mut retry: Vec<(Tag, Option<Transaction>, u64, u64)> = again.collect();
            while !over && flying < depth && total.is_none_or(|n| next < n) {
                tag += 1;
                let among = if kind == Kind::ReadSmall { self.small } else { self.objects };
                let n = if total.is_some() && kind != Kind::Age { next } else { self.rng.below(among) };
                next += 1;
                if depth == 1 {
                    started.insert(Tag(tag), Instant::now());
                }
                let t = (!kind.reads()).then(|| self.transaction(kind, n));
                let off = match kind {
                    Kind::ReadAll | Kind::ReadSmall => 0,
                    _ => self.rng.below(OBJECT / 4096) * 4096,
                };
                retry.push((Tag(tag), t, n, off));
                flying += 1;
            }
            // An OSD handles received messages in the same way.
            for (_, t, n, off) in &retry {
                match t.as_ref().map(|t| t.ops.iter().find(|o| matches!(o, Op::Write { .. }))) {
                    Some(Some(Op::Write { oid, off, .. })) => self.store.foresee(oid.hobj.hash, *off),
                    Some(_) => {}
                    None => self.store.foresee(self.name(kind, *n).hobj.hash, *off),
                }
            }
            for (tag, t, n, off) in retry {
                match t {
                    Some(t) => match self.store.prepare(tag, &t) {
                        Ok(()) => self.store.submit(tag, t),
                        Err(ReadError::Wait) => drop(waiting.insert(tag, (Some(t), n, off))),
                        Err(e) => return Err(format!("{name}: {e}").into()),
                    },
                    None => match self.store.read(tag, cid(n), &self.name(kind, n), off, len) {
                        Ok(_) => {
                            self.store.release(tag);
                            ops += 1;
                            flying -= 1;
                            if let Some(s) = started.remove(&tag) {
                                lat.push(s.elapsed());
                            }
                        }
                        Err(ReadError::Wait) => drop(waiting.insert(tag, (None, n, off))),
                        Err(e) => return Err(format!("{name}: {e}").into()),
                    },
                }
            }
            self.store.end_turn();
            self.most = self.most.max(self.store.meta_memory());
            turns += 1;
            while let Some(r) = self.store.poll_io() {
                self.disk.submit(r);
                self.in_flight += 1;
            }
            self.disk.flush_submissions();
            if self.in_flight > 0 && ready.is_empty() {
                self.disk.ready().await;
            }
            self.disk.poll(&mut self.done);
            for c in self.done.drain(..) {
                self.in_flight -= 1;
                self.store.handle_io(c);
            }
            while let Some(e) = self.store.poll_event() {
                match e {
                    Event::Ready(t) => ready.push(t),
                    Event::Durable(t, r) => {
                        r.map_err(|e| format!("{name}: {}", base::errno::name(e)))?;
                        ops += 1;
                        flying -= 1;
                        if let Some(s) = started.remove(&t) {
                            lat.push(s.elapsed());
                        }
                    }
                    Event::Health(_) => {}
                }
            }
        }
        let (t, now, n) = (t0.elapsed().as_secs_f64(), cpu(), self.store.counters());
        let (user_cpu, sys_cpu) = (now.0 - c0.0, now.1 - c0.1);
        let c = user_cpu + sys_cpu;
        lat.sort_unstable();
        let p50 = lat.get(lat.len() / 2).copied().unwrap_or_default();
        let user = ops as f64 * if kind == Kind::Fill { 1024.0 } else { 1.0 };
        let amp = matches!(kind, Kind::Fill | Kind::Write | Kind::Keep | Kind::FillLog | Kind::Small);
        let blocks = (n.data_blocks - n0.data_blocks + n.page_blocks - n0.page_blocks) as f64
            + (n.log_bytes - n0.log_bytes) as f64 / 4096.0;
        let mut line =
            format!("{name:24} {ops:8} ops {:9.0} op/s  cpu {:7.2} us/op", ops as f64 / t, c * 1e6 / ops as f64);
        if depth == 1 {
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
    let (limit, depth) = (Duration::from_secs(a.secs), a.depth);
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    rt.block_on(async {
        let disk = Disk::new(file.clone(), false)?;
        let objects = bytes / 2 / OBJECT;
        // Slices of one buffer, so that using a name touches only the name.
        let mut names: Vec<Oid> = (0..objects).map(oid).collect();
        let text: Bytes = names.iter().flat_map(|o| o.hobj.oid.iter().copied()).collect();
        let mut at = 0;
        for n in &mut names {
            let len = n.hobj.oid.len();
            n.hobj.oid = text.slice(at..at + len);
            at += len;
        }
        let (done, rng) = (Vec::new(), Rng::new(1));
        // Before a checkpoint starts; on a small device, space waiting to be freed causes one soon after this length.
        let log_max = config.checkpoint_log_bytes.min(config.log_bytes_max / 2) / 4 * 3;
        let (small, keys, age) = (a.objects, a.keys, a.age * objects * (OBJECT / 4096));
        let version = 0;
        let mut b =
            Bench { store, disk, done, rng, objects, names, version, in_flight: 0, keys, small, age, log_max, most: 0 };
        let wants = |job: &str| a.only.is_empty() || a.only.iter().any(|o| o == job);
        if ["fill", "seq", "write", "keep", "read", "depth1", "clone", "restart"].into_iter().any(wants) {
            b.run("write 4 MiB", Kind::Fill, 4, limit).await?;
        }
        if age > 0 {
            b.run("write 4 KiB to age the device", Kind::Age, depth, limit).await?;
        }
        if wants("seq") {
            b.run("read 4 MiB", Kind::ReadAll, 4, limit).await?;
        }
        if wants("write") {
            b.run("write 4 KiB (warm-up)", Kind::Write, depth, limit).await?;
            b.run("write 4 KiB", Kind::Write, depth, limit).await?;
        }
        if wants("keep") {
            b.run("write 4 KiB, kept to undo", Kind::Keep, depth, limit).await?;
        }
        if wants("read") {
            b.run("read 4 KiB", Kind::Read, depth, limit).await?;
        }
        if wants("depth1") {
            b.run("write 4 KiB, depth 1", Kind::Write, 1, limit / 2).await?;
            b.run("read 4 KiB, depth 1", Kind::Read, 1, limit / 2).await?;
        }
        if wants("clone") {
            b.run("clone 4 MiB", Kind::Clone, depth, limit).await?;
            // Otherwise each later overwrite would allocate another block.
            b.run("remove a clone of 4 MiB", Kind::RemoveClone, depth, limit).await?;
        }
        if wants("small") {
            b.run("make 4 KiB objects", Kind::Small, depth, limit).await?;
            b.run("read 4 KiB objects", Kind::ReadSmall, depth, limit).await?;
        }
        if wants("omap") {
            b.run("omap, 32 keys", Kind::Omap, depth, limit).await?;
            b.run("omap, remove 1/65536", Kind::OmapRange, depth, limit).await?;
        }
        if wants("restart") {
            b.run("write until log is full", Kind::FillLog, depth, limit * 4).await?;
        }
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
