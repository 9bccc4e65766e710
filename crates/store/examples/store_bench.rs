//! The store alone on a real file, one reactor: CPU per operation and what goes to the device.
//!
//! `cargo run --release -p belemnite-store --example store_bench -- FILE [SIZE_MIB] [SECONDS] [DEPTH] [COMMITS]`
//! Fills half the file with 4 MiB objects, then 4 KiB random overwrites with the company a placement group gives them (object
//! info, log entry, PG info), then 4 KiB random reads, then both at depth 1. The file was written before only as far as the
//! fill did; CPU is that of the whole process, kernel threads working for it included where the kernel accounts them so.

use base::rng::Rng;
use base::{Eversion, HObject, PgId, Uuid};
use bytes::Bytes;
use reactor::disk::{self, Disk, DiskFile};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::engine::{self, Config, FormatOptions, Store};
use store::{Cid, Event, ObjectStore, Oid, Op, ReadError, Tag, Transaction};

const OBJECT: u64 = 4 << 20;
const PGS: u32 = 64;

struct Sync_(Arc<DiskFile>);

impl base::device::Device for Sync_ {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
    fn read_many(&mut self, ranges: &[(u64, u64)]) -> Vec<Result<Bytes, i32>> {
        ranges.iter().map(|(o, l)| self.0.read(*o, *l)).collect()
    }
    fn write(&mut self, off: u64, data: &[Bytes]) -> Result<(), i32> {
        self.0.write(off, data)
    }
    fn flush(&mut self) -> Result<(), i32> {
        self.0.sync()
    }
}

fn cid(n: u64) -> Cid {
    Cid::Pg(PgId::new(1, n as u32 % PGS).into())
}

fn oid(n: u64) -> Oid {
    let hash = (n as u32).wrapping_mul(0x9e37_79b9);
    HObject { oid: format!("rbd_data.1234567890ab.{n:016x}").into(), hash, pool: base::PoolId(1), ..HObject::min() }
        .into()
}

/// CPU seconds of this process.
fn cpu() -> f64 {
    let s = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let f: Vec<&str> = s.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let t = |i: usize| f.get(i).and_then(|x| x.parse::<f64>().ok()).unwrap_or(0.0);
    (t(11) + t(12)) / 100.0
}

struct Bench {
    store: Store,
    disk: Disk,
    done: Vec<base::device::IoCompletion>,
    rng: Rng,
    objects: u64,
    names: Vec<Oid>,
    version: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Fill,
    Write,
    Read,
}

impl Bench {
    fn transaction(&mut self, kind: Kind, n: u64) -> Transaction {
        let c = cid(n);
        let o = self.names[n as usize].clone();
        self.version += 1;
        let version = Eversion::new(5, self.version);
        let (off, len) = match kind {
            Kind::Fill => (0, OBJECT as usize),
            _ => (self.rng.below(OBJECT / 4096) * 4096, 4096),
        };
        let mut data = base::buf::AlignedBuf::zeroed(len);
        data[..8].copy_from_slice(&self.version.to_le_bytes());
        let mut ops = vec![
            Op::Write { cid: c, oid: o.clone(), off, data: data.freeze() },
            Op::SetAttrs { cid: c, oid: o, attrs: vec![(Bytes::from_static(b"_"), Bytes::from_static(&[7; 250]))] },
            Op::LogAppend { cid: c, version, entry: Bytes::from_static(&[8; 180]) },
            Op::PgInfo { cid: c, info: Bytes::from_static(&[9; 200]) },
        ];
        if self.version.is_multiple_of(100) {
            let to = Eversion::new(5, self.version.saturating_sub(64 * 3000));
            ops.push(Op::LogTrim { cid: c, to });
        }
        Transaction { ops }
    }

    async fn run(&mut self, name: &str, kind: Kind, depth: usize, limit: Duration) {
        let (t0, c0, n0) = (Instant::now(), cpu(), self.store.counters());
        let (mut flying, mut ops, mut next, mut tag) = (0, 0u64, 0u64, 1u64 << 32);
        let mut waiting: Vec<(Tag, Option<Transaction>, u64, u64)> = Vec::new();
        let mut lat: Vec<Duration> = Vec::new();
        let mut started: std::collections::HashMap<Tag, Instant> = Default::default();
        let (mut turns, mut in_flight) = (0u64, 0u64);
        loop {
            let over = match kind {
                Kind::Fill => next >= self.objects,
                _ => t0.elapsed() >= limit,
            };
            if over && flying == 0 {
                break;
            }
            let mut retry = std::mem::take(&mut waiting);
            while !over && flying < depth && (kind != Kind::Fill || next < self.objects) {
                tag += 1;
                let n = if kind == Kind::Fill { next } else { self.rng.below(self.objects) };
                next += 1;
                if depth == 1 {
                    started.insert(Tag(tag), Instant::now());
                }
                let t = (kind != Kind::Read).then(|| self.transaction(kind, n));
                retry.push((Tag(tag), t, n, self.rng.below(OBJECT / 4096) * 4096));
                flying += 1;
            }
            for (tag, t, n, off) in retry {
                match t {
                    Some(t) => match self.store.prepare(tag, &t) {
                        Ok(()) => self.store.submit(tag, t),
                        Err(ReadError::Wait) => waiting.push((tag, Some(t), n, off)),
                        Err(e) => panic!("{e:?}"),
                    },
                    None => match self.store.read(tag, cid(n), &self.names[n as usize], off, 4096) {
                        Ok(b) => {
                            assert_eq!(b.len(), 4096);
                            self.store.release(tag);
                            ops += 1;
                            flying -= 1;
                            if let Some(s) = started.remove(&tag) {
                                lat.push(s.elapsed());
                            }
                        }
                        Err(ReadError::Wait) => waiting.push((tag, None, n, off)),
                        Err(e) => panic!("{e:?}"),
                    },
                }
            }
            self.store.end_turn();
            turns += 1;
            while let Some(r) = self.store.poll_io() {
                self.disk.submit(r);
                in_flight += 1;
            }
            self.disk.flush_submissions();
            if in_flight == 0 {
                continue;
            }
            self.disk.ready().await;
            self.disk.poll(&mut self.done);
            for c in self.done.drain(..) {
                in_flight -= 1;
                self.store.handle_io(c);
            }
            while let Some(e) = self.store.poll_event() {
                if let Event::Durable(t, r) = e {
                    r.expect("durable");
                    ops += 1;
                    flying -= 1;
                    if let Some(s) = started.remove(&t) {
                        lat.push(s.elapsed());
                    }
                }
            }
        }
        let (t, c, n) = (t0.elapsed().as_secs_f64(), cpu() - c0, self.store.counters());
        lat.sort_unstable();
        let p50 = lat.get(lat.len() / 2).copied().unwrap_or_default();
        let user = ops as f64 * if kind == Kind::Fill { 1024.0 } else { 1.0 };
        let blocks = (n.data_blocks - n0.data_blocks + n.page_blocks - n0.page_blocks) as f64
            + (n.log_bytes - n0.log_bytes) as f64 / 4096.0;
        println!(
            "{name:24} {ops:8} ops {:9.0} op/s  cpu {:7.2} us/op ({:3.0} %)  p50 {:4} us  write amp {:.2}  frames {} data writes {} checkpoints {} stalls {} turns {turns}",
            ops as f64 / t,
            c * 1e6 / ops as f64,
            c / t * 100.0,
            p50.as_micros(),
            if kind == Kind::Read { 0.0 } else { blocks / user },
            n.frames - n0.frames,
            n.data_writes - n0.data_writes,
            n.checkpoints - n0.checkpoints,
            n.stalls - n0.stalls,
        );
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let Some(path) = args.next() else {
        println!("usage: store_bench FILE [SIZE_MIB] [SECONDS] [DEPTH] [COMMITS]");
        return;
    };
    let mut num = |d: u64| args.next().and_then(|a| a.parse().ok()).unwrap_or(d);
    let (mib, secs, depth, commits) = (num(4096), num(8), num(32) as usize, num(2) as usize);
    let config = Config { commits_max: commits, ..Config::default() };
    let file = disk::prepare(std::path::Path::new(&path), Some(mib << 20), true).expect("file");
    let mut dev = Sync_(file.clone());
    let o = FormatOptions { uuid: Uuid([1; 16]), reactors: 1, labels: Default::default() };
    engine::format(&mut dev, &o).expect("format");
    let mut store = engine::open(&mut dev, &config).expect("open").remove(0);
    let mut t = Transaction::new();
    for p in 0..PGS {
        t.push(Op::MakeCollection { cid: cid(u64::from(p)), bits: 6 });
    }
    store.prepare(Tag(1), &t).expect("prepare");
    store.submit(Tag(1), t);
    engine::device::drive(&mut store, &mut dev);
    while store.poll_event().is_some() {}
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    let limit = Duration::from_secs(secs);
    rt.block_on(async {
        let disk = Disk::new(file.clone(), false).expect("disk");
        let objects = (mib << 20) / 2 / OBJECT;
        let mut b = Bench {
            store,
            disk,
            done: Vec::new(),
            rng: Rng::new(1),
            objects,
            names: (0..objects).map(oid).collect(),
            version: 0,
        };
        b.run("fill 4 MiB", Kind::Fill, 4, limit).await;
        b.run("write 4 KiB (warm-up)", Kind::Write, depth, limit).await;
        b.run("write 4 KiB", Kind::Write, depth, limit).await;
        b.run("read 4 KiB", Kind::Read, depth, limit).await;
        b.run("write 4 KiB, depth 1", Kind::Write, 1, limit / 2).await;
        b.run("read 4 KiB, depth 1", Kind::Read, 1, limit / 2).await;
    });
    let t = Instant::now();
    let s = engine::open(&mut dev, &Config::default()).expect("reopen").remove(0);
    println!("reopened in {:.2} s, log of {} MiB", t.elapsed().as_secs_f64(), s.replay_bytes() >> 20);
}
