//! Measures small overwrites on a device so large that no two share a metadata page, and pages of a listing of
//! a large index.
//!
//! `STORE_DEVICE=1T STORE_LOG=256M STORE_WRITES=1000000 cargo test --release -p belemnite-store --test scale -- --nocapture`
//! runs another size than the small default; `STORE_ENTRIES=10000000` another index. Data are zeros, which the device
//! does not keep.

use base::device::Device;
use base::errno::Errno;
use base::rng::Rng;
use base::{Eversion, HObject, PgId, PoolId, Uuid};
use bytes::Bytes;
use std::collections::HashMap;
use store::engine::device::{drive, submit};
use store::engine::{self, Config, FormatOptions, Store};
use store::{BLOCK, Cid, Event, ObjectStore, Oid, Op, ReadError, Tag, Transaction};

/// Default size of the device in bytes.
const DEVICE: u64 = 2 << 30;
const OBJECT: u64 = 4 << 20;
const PGS: u64 = 64;
/// Transactions of a frame.
const DEPTH: u64 = 32;
/// Entries that each PG's log keeps.
const KEPT: u64 = 1000;

/// A device that keeps only non-zero blocks.
struct Sparse {
    bytes: u64,
    blocks: HashMap<u64, Bytes>,
}

impl Device for Sparse {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_many(&mut self, ranges: &[(u64, u64)]) -> Vec<Result<Bytes, Errno>> {
        let block = |b: u64| self.blocks.get(&b).map_or([0; BLOCK as usize].as_slice(), |x| x);
        let one = |&(off, len): &(u64, u64)| {
            let all: Vec<&[u8]> = (off / BLOCK..(off + len) / BLOCK).map(block).collect();
            Ok(Bytes::from(all.concat()))
        };
        ranges.iter().map(one).collect()
    }

    fn write(&mut self, off: u64, data: &[Bytes]) -> Result<(), Errno> {
        let mut at = off / BLOCK;
        for part in data {
            for b in part.chunks(BLOCK as usize) {
                if b.iter().all(|x| *x == 0) {
                    self.blocks.remove(&at);
                } else {
                    self.blocks.insert(at, Bytes::copy_from_slice(b));
                }
                at += 1;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Errno> {
        Ok(())
    }
}

fn var(name: &str, default: u64) -> u64 {
    let Ok(v) = std::env::var(name) else { return default };
    let unit = ["K", "M", "G", "T"].iter().position(|u| v.ends_with(u));
    v.trim_end_matches(char::is_alphabetic).parse::<u64>().unwrap() << unit.map_or(0, |i| 10 * (i + 1))
}

fn cid(object: u64) -> Cid {
    Cid::Pg(PgId::new(1, (object % PGS) as u32).into())
}

fn oid(object: u64) -> Oid {
    // The last bits of a hash are the number of the PG.
    let hash = (object % PGS) as u32 | (object as u32).wrapping_mul(0x9e37_79b9) << 6;
    let name = format!("rbd_data.1234567890ab.{object:016x}");
    Oid::new(HObject { oid: name.into(), hash, pool: PoolId(1), ..HObject::min() }.head())
}

/// A write as a PG makes it.
fn write(object: u64, off: u64, data: Bytes, version: u64) -> Transaction {
    let (cid, oid) = (cid(object), oid(object));
    let mut ops = vec![
        Op::Write { cid, oid: oid.clone(), off, data, sums: None },
        Op::SetAttrs { cid, oid, attrs: vec![(Bytes::from_static(b"_"), Bytes::from_static(&[7; 250]))] },
        Op::LogAppend { cid, version: Eversion::new(5, version), entry: Bytes::from_static(&[8; 180]) },
        Op::PgInfo { cid, info: Bytes::from_static(&[9; 200]) },
    ];
    if version.is_multiple_of(100) {
        ops.push(Op::LogTrim { cid, to: Eversion::new(5, version.saturating_sub(PGS * KEPT)) });
    }
    Transaction { ops }
}

/// Runs transactions in one frame.
fn together(s: &mut Store, dev: &mut Sparse, txns: Vec<Transaction>) {
    let n = txns.len();
    for (i, t) in txns.into_iter().enumerate() {
        let tag = Tag(1 + i as u64);
        loop {
            match s.prepare(tag, &t) {
                Ok(()) => break,
                Err(ReadError::Wait) => drive(s, dev),
                Err(e) => panic!("{e:?}"),
            }
        }
        s.submit(tag, t);
    }
    drive(s, dev);
    let durable = std::iter::from_fn(|| s.poll_event()).filter(|e| matches!(e, Event::Durable(_, Ok(())))).count();
    assert_eq!(durable, n);
}

#[test]
fn overwrites_of_a_large_device_write_less_than_a_page_each() {
    let bytes = var("STORE_DEVICE", DEVICE);
    let objects = bytes / 2 / OBJECT;
    let log = var("STORE_LOG", 1 << 20);
    let writes = var("STORE_WRITES", 12_000);
    let cfg = Config {
        meta_bytes: var("STORE_MEMORY", 64 << 20) as usize,
        checkpoint_log_bytes: log,
        log_bytes_max: 2 * log,
        ..Config::default()
    };
    let mut dev = Sparse { bytes, blocks: HashMap::new() };
    let o = FormatOptions { uuid: Uuid([5; 16]), reactors: 1, labels: Default::default() };
    engine::format(&mut dev, &o).unwrap();
    let mut s = engine::open(&mut dev, &cfg).unwrap().remove(0);
    for n in 0..PGS {
        let ops = vec![Op::MakeCollection { cid: cid(n), bits: 6 }];
        submit(&mut s, &mut dev, Tag(1), Transaction { ops }).unwrap();
    }
    let zeros = Bytes::from(vec![0; OBJECT as usize]);
    let mut version = 0;
    for n in 0..objects {
        version += 1;
        submit(&mut s, &mut dev, Tag(1), write(n, 0, zeros.clone(), version)).unwrap();
        while s.poll_event().is_some() {}
    }
    let mut rng = Rng::new(5);
    let mut most = 0;
    // The first half makes the device look like one with a long history of random writes.
    let mut before = s.counters();
    for n in 0..writes / DEPTH {
        if n == writes / DEPTH / 2 {
            before = s.counters();
        }
        let txns = (0..DEPTH).map(|_| {
            version += 1;
            write(rng.below(objects), rng.below(OBJECT / BLOCK) * BLOCK, zeros.slice(..BLOCK as usize), version)
        });
        let txns = txns.collect();
        together(&mut s, &mut dev, txns);
        most = most.max(s.meta_memory());
    }
    let c = s.counters();
    let per = |a: u64, b: u64| (b - a) as f64 / (c.data_blocks - before.data_blocks) as f64;
    let (pages, log) = (per(before.page_blocks, c.page_blocks), per(before.log_bytes, c.log_bytes) / BLOCK as f64);
    println!(
        "{objects} objects, {} checkpoints, {:.2} changes of a chunk between them: {pages:.3} blocks of pages and {log:.3} of log per write, amplification \
         {:.2}; {:.2} page reads; {:.0} MiB in memory",
        c.checkpoints - before.checkpoints,
        (c.data_blocks - before.data_blocks) as f64
            / (c.checkpoints - before.checkpoints) as f64
            / (objects * 4) as f64,
        1.0 + pages + log,
        per(before.page_reads, c.page_reads),
        most as f64 / (1 << 20) as f64,
    );
    assert!(c.checkpoints - before.checkpoints >= 3, "{c:?}");
    // With a page for each changed chunk it would be 0.75.
    assert!(bytes > DEVICE || pages < 0.5, "{pages} blocks of pages for each overwrite");
    s.check(&mut dev).unwrap();
    drop(s);
    let mut s = engine::open(&mut dev, &cfg).unwrap().remove(0);
    s.check(&mut dev).unwrap();
}

/// Shards of an index, as its pages are listed.
const SHARDS: u64 = 64;

fn key(n: u64) -> Bytes {
    format!("photos/{n:010}.jpg").into()
}

/// A store with `entries` entries in the omaps of `shards` objects, and `memory` bytes for metadata.
fn index(entries: u64, shards: u64, memory: usize) -> (Store, Sparse) {
    let bytes = (entries * 2048).max(DEVICE);
    let cfg = Config { meta_bytes: memory, ..Config::default() };
    let mut dev = Sparse { bytes, blocks: HashMap::new() };
    let o = FormatOptions { uuid: Uuid([6; 16]), reactors: 1, labels: Default::default() };
    engine::format(&mut dev, &o).unwrap();
    let mut s = engine::open(&mut dev, &cfg).unwrap().remove(0);
    for n in 0..PGS {
        let ops = vec![Op::MakeCollection { cid: cid(n), bits: 6 }];
        submit(&mut s, &mut dev, Tag(1), Transaction { ops }).unwrap();
    }
    // Names come in random order, like uploads; each shard gets the same number.
    let per = entries / shards;
    let step = (per / 2 + 1..).find(|s| (2..*s).take_while(|d| d * d <= *s).all(|d| !s.is_multiple_of(d))).unwrap();
    let value = Bytes::from(vec![7; 200]);
    for from in (0..per).step_by(50) {
        for shard in 0..shards {
            let entries = (from..per.min(from + 50)).map(|n| (key(n * step % per), value.clone())).collect();
            let ops = vec![Op::OmapSet { cid: cid(shard), oid: oid(shard), entries }];
            submit(&mut s, &mut dev, Tag(1), Transaction { ops }).unwrap();
            while s.poll_event().is_some() {}
        }
    }
    (s, dev)
}

/// Lists `pages` pages of `most` entries, each from a random place in one of 64 shards. Returns the page reads of all
/// listings, and of the most expensive one.
fn pages_read(entries: u64, pages: u64, most: u64) -> (u64, u64) {
    // Less memory than the index needs, and the same for any large one.
    let memory = (entries as usize * 40).min(4 << 20);
    let per = entries / SHARDS;
    let (mut s, mut dev) = index(entries, SHARDS, memory);
    let mut rng = Rng::new(9);
    let (before, mut dearest) = (s.counters().page_reads, 0);
    for _ in 0..pages {
        let (shard, at) = (rng.below(SHARDS), rng.below(per - most));
        let start = s.counters().page_reads;
        let page = loop {
            match s.omap_range(Tag(1), cid(shard), &oid(shard), &key(at), false, most as usize, 1 << 20) {
                Ok(page) => break page,
                Err(ReadError::Wait) => drive(&mut s, &mut dev),
                Err(e) => panic!("{e:?}"),
            }
        };
        s.release(Tag(1));
        s.end_turn();
        let names: Vec<&Bytes> = page.entries.iter().map(|(k, _)| k).collect();
        assert_eq!(names, (at..at + most).map(key).collect::<Vec<_>>().iter().collect::<Vec<_>>());
        dearest = dearest.max(s.counters().page_reads - start);
        assert!(s.meta_memory() <= memory + memory / 8, "{} bytes in memory, not {memory}", s.meta_memory());
    }
    (s.counters().page_reads - before, dearest)
}

#[test]
fn a_page_of_a_listing_costs_the_same_in_a_large_index() {
    let pages = 300;
    let (small, large) = (pages_read(25_000, pages, 100), pages_read(var("STORE_ENTRIES", 100_000), pages, 100));
    println!(
        "page reads for {pages} pages, and most for one: {small:?} of 25,000 entries, {large:?} of the large index"
    );
    // A hundred entries fill two leaves. If leaves are half full and the scan begins in the middle of one, they are in
    // five. One more leaf may be read in vain, and the path to them is short.
    assert!(large.0 <= 6 * pages && large.1 <= 12, "{large:?}");
    assert!(small.0 > 2 * pages, "{small:?}: nothing was read");
    // In a large index the path is a page or two longer, and less of it is in memory.
    assert!(large.0 <= small.0 + 3 * pages, "{small:?} and {large:?}");
}

#[test]
fn a_short_page_of_a_listing_reads_no_leaves_behind_it() {
    // As a gateway does, which asks each of 64 shards for a part of a page. A leaf has at least 26 entries, so 20
    // entries are in at most two leaves.
    let pages = 300;
    let (reads, most) = pages_read(100_000, pages, 20);
    println!("page reads for {pages} short pages, and most for one: {reads}, {most}");
    assert!(reads > pages, "{reads}: nothing was read");
    assert!(reads <= 4 * pages && most <= 8, "{reads}, {most}");
}

#[test]
fn a_walk_through_a_large_omap_is_not_repeated_for_each_leaf() {
    // Each time that leaves are missing, a class call that walks through a shard begins anew.
    let entries = 40_000;
    let (mut s, mut dev) = index(entries, 1, 4 << 20);
    s.request_checkpoint();
    drive(&mut s, &mut dev);
    drop(s);
    let mut s = engine::open(&mut dev, &Config { meta_bytes: 64 << 20, ..Config::default() }).unwrap().remove(0);
    let (mut repeated, before) = (0, s.counters().page_reads);
    'again: loop {
        for from in (0..entries).step_by(256) {
            match s.omap_range(Tag(1), cid(0), &oid(0), &key(from), false, 256, 1 << 20) {
                Ok(page) => assert_eq!(page.entries.len() as u64, 256.min(entries - from)),
                Err(ReadError::Wait) => {
                    drive(&mut s, &mut dev);
                    repeated += 1;
                    continue 'again;
                }
                Err(e) => panic!("{e:?}"),
            }
        }
        break;
    }
    s.release(Tag(1));
    let reads = s.counters().page_reads - before;
    println!("{reads} page reads, {repeated} times repeated");
    assert!(reads > 600, "{reads}: most was in memory");
    assert!(repeated <= 30, "{repeated} times repeated for {reads} page reads");
}

/// Removes or clears an omap of many leaves in a store that has none of them in memory.
fn visits_to_drop(entries: u64, clear: bool) -> (u64, u64, u64) {
    let mut dev = Sparse { bytes: 1 << 30, blocks: HashMap::new() };
    let how = FormatOptions { uuid: Uuid([5; 16]), reactors: 1, labels: Default::default() };
    engine::format(&mut dev, &how).unwrap();
    // Small pages, so that there are as many as in a large omap.
    let cfg = Config { kids_max: 8, ..Config::default() };
    let mut s = engine::open(&mut dev, &cfg).unwrap().remove(0);
    let (cid, oid) = (cid(0), oid(0));
    together(&mut s, &mut dev, vec![Transaction { ops: vec![Op::MakeCollection { cid, bits: 0 }] }]);
    let value = Bytes::from(vec![7; 1000]);
    let key = |i: u64| Bytes::from(format!("{i:016x}"));
    for page in 0..entries / 500 {
        let entries = (page * 500..(page + 1) * 500).map(|i| (key(i), value.clone())).collect();
        together(&mut s, &mut dev, vec![Transaction { ops: vec![Op::OmapSet { cid, oid: oid.clone(), entries }] }]);
    }
    s.request_checkpoint();
    drive(&mut s, &mut dev);
    drop(s);
    let mut s = engine::open(&mut dev, &cfg).unwrap().remove(0);
    let before = s.counters();
    let op = if clear { Op::OmapClear { cid, oid: oid.clone() } } else { Op::Remove { cid, oid: oid.clone() } };
    let txn = Transaction { ops: vec![op] };
    let mut rounds = 0;
    while let Err(e) = s.prepare(Tag(1), &txn) {
        assert_eq!(e, ReadError::Wait);
        rounds += 1;
        drive(&mut s, &mut dev);
    }
    s.submit(Tag(1), txn);
    drive(&mut s, &mut dev);
    assert_eq!(s.collection_usage(cid), (u64::from(clear), 0, 0));
    let visits = s.counters().visits - before.visits;
    s.request_checkpoint();
    drive(&mut s, &mut dev);
    s.check(&mut dev).unwrap();
    (visits, rounds, s.counters().page_reads - before.page_reads)
}

/// Dropping an omap costs in proportion to its leaves, and the pages above them are brought many at a time.
#[test]
fn dropping_a_large_omap_looks_at_each_leaf_a_few_times() {
    for clear in [false, true] {
        let (small, large) = (visits_to_drop(4_000, clear), visits_to_drop(16_000, clear));
        // Leaves have about eight entries of this size.
        assert!(large.0 <= 4 * 16_000 / 8 && large.0 <= 5 * small.0, "{small:?} {large:?}");
        assert!(large.1 <= small.1 + 3, "rounds: {small:?} {large:?}");
    }
}

/// A device that counts reads, and of which one block does not read.
struct Counting {
    dev: Sparse,
    reads: Vec<(u64, u64)>,
    bad: Option<u64>,
}

impl Device for Counting {
    fn bytes(&self) -> u64 {
        self.dev.bytes
    }
    fn read_many(&mut self, ranges: &[(u64, u64)]) -> Vec<Result<Bytes, Errno>> {
        self.reads.extend(ranges.iter().map(|(off, len)| (off / BLOCK, len / BLOCK)));
        let bad = |(off, len): &(u64, u64)| self.bad.is_some_and(|b| (off / BLOCK..(off + len) / BLOCK).contains(&b));
        let bad: Vec<bool> = ranges.iter().map(bad).collect();
        let all = self.dev.read_many(ranges);
        all.into_iter().zip(bad).map(|(r, bad)| if bad { Err(base::errno::EIO) } else { r }).collect()
    }
    fn write(&mut self, off: u64, data: &[Bytes]) -> Result<(), Errno> {
        self.dev.write(off, data)
    }
    fn flush(&mut self) -> Result<(), Errno> {
        Ok(())
    }
}

/// Every second block of an object was overwritten. The blocks that stayed are read with those in between, unless one
/// of these is unreadable.
#[test]
fn neighbouring_runs_of_an_object_in_pieces_are_read_together() {
    const N: u64 = 64;
    let dev = Sparse { bytes: 1 << 30, blocks: HashMap::new() };
    let mut dev = Counting { dev, reads: Vec::new(), bad: None };
    let how = FormatOptions { uuid: Uuid([6; 16]), reactors: 1, labels: Default::default() };
    engine::format(&mut dev, &how).unwrap();
    let mut s = engine::open(&mut dev, &Config::default()).unwrap().remove(0);
    let (cid, oid) = (cid(0), oid(0));
    let whole: Vec<u8> = (0..N * BLOCK).map(|i| (i / BLOCK) as u8 + 1).collect();
    let mut ops = vec![Op::MakeCollection { cid, bits: 0 }];
    ops.push(Op::Write { cid, oid: oid.clone(), off: 0, data: whole.clone().into(), sums: None });
    submit(&mut s, &mut dev, Tag(1), Transaction { ops }).unwrap();
    let mut want = whole;
    for b in (0..N).step_by(2) {
        let data = Bytes::from(vec![200; BLOCK as usize]);
        want[(b * BLOCK) as usize..((b + 1) * BLOCK) as usize].copy_from_slice(&data);
        let op = Op::Write { cid, oid: oid.clone(), off: b * BLOCK, data, sums: None };
        submit(&mut s, &mut dev, Tag(2), Transaction { ops: vec![op] }).unwrap();
    }
    s.request_checkpoint();
    drive(&mut s, &mut dev);
    let mut look = |bad: Option<u64>| {
        dev.bad = None;
        let mut s = engine::open(&mut dev, &Config::default()).unwrap().remove(0);
        (dev.bad, dev.reads) = (bad, Vec::new());
        let got = loop {
            match s.read(Tag(3), cid, &oid, 0, N * BLOCK) {
                Err(ReadError::Wait) => drive(&mut s, &mut dev),
                r => break r.unwrap(),
            }
        };
        assert!(got == want);
        std::mem::take(&mut dev.reads)
    };
    let reads = look(None);
    // Pages of metadata have one block each.
    let merged = *reads.iter().max_by_key(|(_, n)| *n).unwrap();
    assert!(merged.1 >= N - 2 && reads.len() < 12, "{reads:?}");
    // A block that belongs to the object's past.
    let gap = (merged.0..merged.0 + merged.1).nth(if merged.1 == N { 2 } else { 1 }).unwrap();
    let apart = look(Some(gap));
    assert!(apart.len() > N as usize / 2, "{apart:?}");
}

/// The map of used blocks and the bitmap count in the memory for metadata.
#[test]
fn maps_of_a_large_device_leave_less_memory_for_pages() {
    let memory = |bytes: u64| {
        let mut dev = Sparse { bytes, blocks: HashMap::new() };
        let how = FormatOptions { uuid: Uuid([8; 16]), reactors: 1, labels: Default::default() };
        engine::format(&mut dev, &how).unwrap();
        engine::open(&mut dev, &Config::default()).unwrap().remove(0).meta_memory()
    };
    let (small, large) = (memory(1 << 30), memory(1 << 40));
    // A bit for each block.
    assert!(large >= small + (31 << 20) && large < small + (40 << 20), "{small} {large}");
}
