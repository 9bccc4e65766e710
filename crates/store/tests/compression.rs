//! Compressed extents: what they take, how they are changed in part, shared, damaged, and marked as a feature.

use base::errno::EIO;
use base::rng::Rng;
use base::{Eversion, HObject, PgId, PoolId, ShardId, SpgId};
use bytes::Bytes;
use store::compress::{Algorithm, Compression, Mode};
use store::engine::{self, Config, Store};
use store::mem::MemStore;
use store::testing::compare::{TAG, durable, same, wait};
use store::testing::disk::SimDisk;
use store::testing::{fresh, turn};
use store::{Cid, ObjectStore, Oid, Op, ReadError, Tag, Transaction};

const POOL: PoolId = PoolId(1);
const CID: Cid = Cid::Pg(SpgId { pg: PgId { pool: POOL, seed: 0 }, shard: ShardId::NONE });
const KIB: u64 = 1 << 10;

fn how(algorithm: Algorithm) -> Compression {
    let level = algorithm.usual_level();
    Compression { mode: Mode::Force, algorithm, level, required_ratio: 0.875, min_blob: 8 << 10, max_blob: 64 << 10 }
}

fn oid(name: &'static str) -> Oid {
    Oid::new(HObject { oid: name.into(), hash: 7, ..HObject::min() })
}

/// Data of which a quarter is random.
fn soft(len: u64, seed: u64) -> Bytes {
    let mut rng = Rng::new(seed);
    (0..len).map(|i| if i % 64 < 16 { rng.below(256) as u8 } else { 7 }).collect::<Vec<u8>>().into()
}

fn write(name: &'static str, off: u64, data: Bytes) -> Op {
    Op::Write { cid: CID, oid: oid(name), off, data, sums: None }
}

struct World {
    dev: SimDisk,
    s: Store,
    rng: Rng,
    model: MemStore,
    next: u64,
    cfg: Config,
}

impl World {
    fn new(how: Option<Compression>) -> Self {
        let cfg = Config { cache_bytes: 64 << 10, ..Config::default() };
        let (dev, s) = fresh(64 << 20, 3, &cfg);
        let mut w = Self { dev, s, rng: Rng::new(4), model: MemStore::new(), next: 1, cfg };
        w.s.set_compression(POOL, how);
        w.run(vec![Op::MakeCollection { cid: CID, bits: 0 }]);
        w
    }

    fn run(&mut self, ops: Vec<Op>) {
        let t = Transaction { ops };
        let tag = Tag(self.next);
        self.next += 1;
        for round in 0.. {
            match self.s.prepare(tag, &t) {
                Ok(()) => break,
                Err(ReadError::Wait) if round < 10_000 => turn(&mut self.dev, &mut self.s, &mut self.rng),
                Err(e) => panic!("{e:?}"),
            }
        }
        self.s.submit(tag, t.clone());
        self.model.submit(tag, t);
        while self.model.poll_event().is_some() {}
        let mut done = Vec::new();
        while done.is_empty() {
            turn(&mut self.dev, &mut self.s, &mut self.rng);
            durable(&mut self.s, &mut done);
        }
        assert_eq!(done, [(tag, true)]);
    }

    fn read(&mut self, name: &'static str, off: u64, len: u64) -> Result<Bytes, ReadError> {
        let (dev, rng) = (&mut self.dev, &mut self.rng);
        wait(&mut self.s, &mut |s| turn(dev, s, rng), |s| s.read(TAG, CID, &oid(name), off, len))
    }

    /// Compares everything with the model, before and after a restart.
    fn verify(&mut self) {
        for _ in 0..2 {
            let (dev, rng) = (&mut self.dev, &mut self.rng);
            same(&mut self.s, &mut self.model, &mut |s| turn(dev, s, rng), false).unwrap_or_else(|e| panic!("{e}"));
            while self.s.has_io() || self.dev.queued() > 0 {
                turn(&mut self.dev, &mut self.s, &mut self.rng);
            }
            self.s.check(&mut self.dev).unwrap_or_else(|e| panic!("{e}"));
            let before = (self.s.compressed(), self.s.statfs().stored);
            self.s = engine::open(&mut self.dev, &self.cfg).unwrap().remove(0);
            self.s.set_compression(POOL, Some(how(Algorithm::Lz4)));
            assert_eq!((self.s.compressed(), self.s.statfs().stored), before);
        }
    }

    /// KiB before compression and on the device.
    fn extents(&self) -> (u64, u64) {
        self.s.compressed().iter().find(|p| p.0 == POOL).map_or((0, 0), |p| (p.1 / KIB, p.2 / KIB))
    }

    /// KiB of the device that data takes, extents and others, after everything freed has been released.
    fn used(&mut self) -> u64 {
        for _ in 0..2 {
            self.s.request_checkpoint();
            for _ in 0..50 {
                turn(&mut self.dev, &mut self.s, &mut self.rng);
            }
        }
        self.s.statfs().allocated / KIB
    }
}

#[test]
fn compressible_writes_take_fewer_blocks_with_every_algorithm() {
    for algorithm in Algorithm::ALL {
        let mut w = World::new(Some(how(algorithm)));
        let before = w.used();
        w.run(vec![write("o", 0, soft(1 << 20, 1))]);
        let (original, stored) = w.extents();
        assert_eq!(original, 1024, "{algorithm:?}");
        assert!((256..600).contains(&stored), "{algorithm:?}: {stored} KiB");
        assert_eq!(w.used() - before, stored, "used space is what is stored");
        assert_eq!(w.s.statfs().stored, 1 << 20);
        for (off, len) in [(0, 1 << 20), (5, 100), (65_530, 20), (100_000, 300_000), (4096, 4096)] {
            assert_eq!(w.read("o", off, len).unwrap(), soft(1 << 20, 1).slice(off as usize..(off + len) as usize));
        }
        w.verify();
        w.run(vec![Op::Remove { cid: CID, oid: oid("o") }]);
        assert_eq!((w.extents(), w.used()), ((0, 0), before));
        w.verify();
    }
}

#[test]
fn changes_of_a_part_leave_the_rest_plain() {
    let zero = |off, len| Op::Zero { cid: CID, oid: oid("o"), off, len };
    let cut = |size| Op::Truncate { cid: CID, oid: oid("o"), size };
    let b = |n: u64| soft(n, 9);
    // Each change, and the KiB of extents that it leaves of four times 64.
    let changes: Vec<(Vec<Op>, u64)> = vec![
        (vec![write("o", 70_000, b(10))], 192),
        (vec![write("o", 64 * KIB, b(4096))], 192),
        (vec![write("o", 128 * KIB - 1, b(2))], 128),
        // A piece is 60 KiB.
        (vec![write("o", 100, b(200_000))], 60 + 128),
        (vec![write("o", 64 * KIB, b(64 * KIB))], 256),
        (vec![write("o", 64 * KIB - 1, b(64 * KIB + 2))], 128),
        (vec![zero(64 * KIB, 64 * KIB)], 192),
        (vec![zero(64 * KIB, 4096)], 192),
        (vec![zero(64 * KIB + 1, 64 * KIB - 2)], 192),
        (vec![zero(1, 256 * KIB - 2)], 0),
        (vec![cut(256 * KIB - 4096)], 192),
        (vec![cut(192 * KIB + 1)], 192),
        (vec![cut(192 * KIB)], 192),
        (vec![cut(0)], 0),
        (vec![cut(100_000), cut(300_000), write("o", 99_999, b(5))], 64),
        (vec![write("o", 5000, b(6000)), write("o", 9000, b(90_000)), zero(40_000, 3)], 128),
    ];
    for (n, (ops, left)) in changes.into_iter().enumerate() {
        for cloned in [false, true] {
            let mut w = World::new(Some(how(Algorithm::Zstd)));
            w.run(vec![write("o", 0, soft(256 * KIB, 1))]);
            let clone = Op::Clone { cid: CID, src: oid("o"), dst: oid("clone") };
            let mut ops = ops.clone();
            match cloned {
                true if n % 2 == 0 => w.run(vec![clone]),
                true => ops.insert(0, clone),
                false => {}
            }
            w.run(ops);
            assert_eq!(w.extents().0, left + if cloned { 256 } else { 0 }, "change {n}, cloned {cloned}");
            w.verify();
            w.run(vec![Op::Remove { cid: CID, oid: oid("o") }]);
            w.verify();
        }
    }
}

#[test]
fn ranges_share_whole_extents_and_copy_parts_of_them() {
    for (src_off, len, dst_off, shared) in
        [(0, 256, 0, 256), (64, 128, 64, 128), (32, 128, 32, 64), (70, 30, 70, 0), (60, 140, 60, 128), (64, 64, 0, 0)]
    {
        let mut w = World::new(Some(how(Algorithm::Lz4)));
        w.run(vec![write("o", 0, soft(256 * KIB, 1))]);
        w.run(vec![Op::Clone { cid: CID, src: oid("o"), dst: oid("d") }]);
        w.run(vec![write("d", 0, soft(256 * KIB, 2))]);
        let range = (src_off * KIB, len * KIB, dst_off * KIB);
        let (src, dst) = (oid("o"), oid("d"));
        let op = Op::CloneRange { cid: CID, src, dst, src_off: range.0, len: range.1, dst_off: range.2 };
        w.run(vec![op]);
        // Extents of the target outside the range stay.
        let (first, end) = (dst_off.div_ceil(64) * 64, (dst_off + len) / 64 * 64);
        let whole = end.saturating_sub(first);
        let outer = 256 - ((dst_off + len).div_ceil(64) * 64 - dst_off / 64 * 64);
        assert!(shared <= whole);
        assert_eq!(w.extents().0, 256 + outer + shared, "{src_off} {len} {dst_off}");
        w.verify();
        let (src, dst) = (oid("d"), oid("d"));
        w.run(vec![Op::CloneRange { cid: CID, src, dst, src_off: 10_000, len: 50_000, dst_off: 120_001 }]);
        w.verify();
    }
}

#[test]
fn an_undone_change_brings_extents_back() {
    let at = |v| Eversion::new(1, v);
    for op in [
        write("o", 70_000, soft(10, 2)),
        write("o", 0, soft(256 * KIB, 2)),
        write("o", 100_000, soft(100_000, 3)),
        Op::Truncate { cid: CID, oid: oid("o"), size: 100_000 },
        Op::Zero { cid: CID, oid: oid("o"), off: 5000, len: 100_000 },
    ] {
        let mut w = World::new(Some(how(Algorithm::Snappy)));
        w.run(vec![write("o", 0, soft(256 * KIB, 1))]);
        let entry = |v| Op::LogAppend { cid: CID, version: at(v), entry: Bytes::from_static(b"e") };
        w.run(vec![Op::Keep { cid: CID, version: at(1) }, op.clone(), entry(1)]);
        w.verify();
        let later = vec![Op::Keep { cid: CID, version: at(2) }, write("o", 8192, soft(120_000, 5)), entry(2)];
        w.run(later);
        let undo = |v| Op::Undo { cid: CID, oid: oid("o"), version: at(v) };
        let mut out_of_order = World { model: w.model.clone(), dev: w.dev.clone(), ..World::new(None) };
        out_of_order.s = engine::open(&mut out_of_order.dev, &w.cfg).unwrap().remove(0);
        out_of_order.next = 100;
        out_of_order.run(vec![undo(1)]);
        out_of_order.verify();
        w.run(vec![undo(2), undo(1), Op::Truncate { cid: CID, oid: oid("o"), size: 256 * KIB }]);
        w.verify();
        assert_eq!(w.read("o", 0, 1 << 20).unwrap(), soft(256 * KIB, 1), "{op:?}");
        // What was changed as a whole comes back as it was.
        let whole = matches!(op, Op::Write { off: 0, .. });
        assert_eq!(w.extents().0 == 256, whole, "{op:?}");
    }
}

#[test]
fn nothing_of_a_store_changes_before_the_first_extent() {
    let mut w = World::new(None);
    w.run(vec![write("o", 0, soft(1 << 20, 1))]);
    w.s.set_compression(POOL, Some(Compression { mode: Mode::Passive, ..how(Algorithm::Lz4) }));
    w.s.set_compression(PoolId(2), Some(how(Algorithm::Lz4)));
    w.run(vec![write("o", 0, soft(1 << 20, 1)), write("small", 0, soft(8191, 1))]);
    w.used();
    assert_eq!((w.s.packing().packed, w.s.superblock().features.any()), (0, false));
    let s = engine::open(&mut w.dev.clone(), &w.cfg).unwrap().remove(0);
    assert!(!s.superblock().features.any());
    // The hint comes with the write.
    let hint = |flags| Op::SetAllocHint { cid: CID, oid: oid("o"), object_size: 0, write_size: 0, flags };
    w.run(vec![hint(256), write("o", 0, soft(1 << 20, 1))]);
    assert_eq!(w.extents().0, 1024);
    w.run(vec![write("o", 0, soft(64 * KIB, 2))]);
    assert_eq!(w.extents().0, 1024, "the hint stays");
    // The root that has the feature was durable before the extents.
    let dead = w.dev.killed(&mut w.rng);
    let s = engine::open(&mut dead.clone(), &w.cfg).unwrap().remove(0);
    assert_eq!((s.superblock().features.incompat, s.compressed().len()), (1, 1));
    w.s.set_compression(POOL, Some(Compression { mode: Mode::Aggressive, ..how(Algorithm::Lz4) }));
    w.run(vec![hint(512), write("o", 0, soft(1 << 20, 1))]);
    assert_eq!(w.extents().0, 0);
    w.verify();
    // Labels, growth and another number of reactors keep it.
    w.dev.grow(128 << 20);
    assert_eq!(engine::grow(&mut w.dev).unwrap().bytes, 64 << 20);
    let two = engine::open(&mut w.dev, &Config { reactors: 2, ..w.cfg.clone() }).unwrap();
    assert!(two.iter().all(|s| s.superblock().features.incompat == 1));
    assert_eq!(engine::probe(&mut w.dev).unwrap().features.incompat, 1);
}

#[test]
fn incompressible_data_stays_plain_and_is_counted() {
    let mut w = World::new(Some(how(Algorithm::Lz4)));
    let mut noise = vec![0; 256 << 10];
    Rng::new(1).fill(&mut noise);
    noise[64 << 10..128 << 10].fill(0);
    w.run(vec![write("o", 0, noise.clone().into())]);
    let c = w.s.packing();
    assert_eq!((c.packed, c.unpackable, w.extents()), (1, 3, (64, 4)));
    w.run(vec![write("o", 300_001, soft(200_000, 1))]);
    w.verify();
}

/// 64 pieces in one turn, of which nine get the slow level. The next turn begins anew.
#[test]
fn a_turn_compresses_little_at_a_slow_level_and_the_rest_at_a_fast_one() {
    let slow = Compression { level: 22, ..how(Algorithm::Zstd) };
    let mut w = World::new(Some(slow));
    w.run(vec![write("o", 0, soft(4 << 20, 1))]);
    let c = w.s.packing();
    assert_eq!((c.packed, c.unpackable, c.hurried), (64, 0, 55));
    w.run(vec![write("p", 0, soft(64 * KIB, 2))]);
    let c = w.s.packing();
    assert_eq!((c.packed, c.hurried), (65, 55));
    w.verify();
}

#[test]
fn rot_in_an_extent_is_an_error_and_spares_the_others() {
    let mut w = World::new(Some(how(Algorithm::Zlib)));
    w.run(vec![write("o", 0, soft(128 * KIB, 1))]);
    // Rot in what no later frame confirms would be a torn write.
    w.used();
    let clean = w.s.fsck(&mut w.dev, true);
    assert!(clean.clean() && clean.data_blocks * 4 == w.extents().1, "{clean:?}");
    let whole = w.dev.clone();
    let head = [Algorithm::Zlib as u8, 16, 0, 0];
    let at = whole.find(0, |b| b.starts_with(&head));
    assert_eq!(at.len(), 2);
    for victim in at {
        w.dev = whole.clone();
        w.dev.flips.insert(victim, 999);
        w.s = engine::open(&mut w.dev, &w.cfg).unwrap().remove(0);
        let parts = [w.read("o", 100, 10), w.read("o", 100_000, 10)];
        let bad = parts.iter().filter(|r| matches!(r, Err(ReadError::Io { errno: EIO, .. }))).count();
        assert_eq!(bad, 1, "{parts:?}");
        let report = w.s.fsck(&mut w.dev, true);
        assert_eq!((report.bad_data.len(), report.errors.len()), (1, 0), "{report:?}");
        // A new object in its place is whole again.
        w.s.set_compression(POOL, Some(how(Algorithm::Lz4)));
        w.dev.flips.remove(&victim);
        w.run(vec![write("o", 0, soft(128 * KIB, 1))]);
        w.verify();
    }
}

#[test]
fn a_full_device_refuses_what_could_not_be_written_plain() {
    let mut w = World::new(Some(how(Algorithm::Lz4)));
    let names: Vec<&'static str> = (0..200).map(|i| &*Box::leak(format!("o{i}").into_boxed_str())).collect();
    let mut kept = 0;
    for n in names.iter().copied() {
        let t = Transaction { ops: vec![write(n, 0, soft(1 << 20, 1))] };
        let full = loop {
            match w.s.prepare(TAG, &t) {
                Ok(()) => break false,
                Err(ReadError::Wait) => turn(&mut w.dev, &mut w.s, &mut w.rng),
                Err(_) => break true,
            }
        };
        w.s.release(TAG);
        if full {
            break;
        }
        w.run(t.ops);
        kept += 1;
    }
    assert!(kept > 70, "only {kept} MiB on 64 MiB");
    // Small changes cut extents on the full device, or are refused; the store goes on either way.
    for (i, n) in names.iter().copied().take(kept).enumerate() {
        let t = Transaction { ops: vec![write(n, 5000 * i as u64 % 900_000, soft(10, 2))] };
        let full = loop {
            match w.s.prepare(TAG, &t) {
                Ok(()) => break false,
                Err(ReadError::Wait) => turn(&mut w.dev, &mut w.s, &mut w.rng),
                Err(_) => break true,
            }
        };
        w.s.release(TAG);
        if !full {
            w.run(t.ops);
        }
    }
    w.verify();
    for n in names.iter().copied().take(kept) {
        w.run(vec![Op::Remove { cid: CID, oid: oid(n) }]);
    }
    w.verify();
    assert_eq!(w.extents(), (0, 0));
}

#[test]
fn only_later_changes_of_the_same_blocks_forbid_compression() {
    let cut = |size| Op::Truncate { cid: CID, oid: oid("o"), size };
    let data = || write("o", 64 * KIB, soft(64 * KIB, 1));
    for (ops, extents) in [
        (vec![data(), cut(128 * KIB)], 64),
        (vec![data(), cut(128 * KIB - 1)], 0),
        (vec![data(), write("o", 128 * KIB, soft(64 * KIB, 1)), write("o", 0, soft(100, 1))], 128),
        (vec![data(), write("o", 128 * KIB - 1, soft(64 * KIB, 1))], 60),
        (vec![data(), Op::Clone { cid: CID, src: oid("o"), dst: oid("c") }], 0),
    ] {
        let mut w = World::new(Some(how(Algorithm::Lz4)));
        w.run(ops.clone());
        assert_eq!(w.extents().0, extents, "before {:?}", ops.last().map(Op::target));
        w.verify();
    }
}

#[test]
fn a_rebuilt_store_counts_its_extents_anew() {
    let mut w = World::new(Some(how(Algorithm::Lz4)));
    let clone = Op::Clone { cid: CID, src: oid("o"), dst: oid("clone") };
    w.run(vec![
        write("o", 0, soft(1 << 20, 1)),
        clone,
        write("p", 0, soft(3 << 20, 2)),
        write("q", 0, soft(64 * KIB, 3)),
    ]);
    w.run(vec![Op::Keep { cid: CID, version: Eversion::new(1, 1) }, write("p", 0, soft(200_000, 4))]);
    w.used();
    // Leaves of block maps begin with their kind and the group's high bits.
    let maps = w.dev.find(0, |b| b[0] == 4 && b[8] == 4);
    assert!(maps.len() >= 4, "{maps:?}");
    for victim in maps {
        let mut dev = w.dev.clone();
        dev.bad_reads.insert(victim);
        engine::rebuild(&mut dev, &w.cfg, |_| false).unwrap();
        let mut s = engine::open(&mut dev, &w.cfg).unwrap().remove(0);
        let r = s.fsck(&mut dev, true);
        assert!(r.errors.is_empty() && r.bad_data.is_empty() && r.damaged.len() <= 1, "{r:?}");
        assert!(s.compressed()[0].1 >= 64 * KIB);
    }
}

#[test]
fn a_write_that_was_prepared_before_an_extent_came_cuts_it() {
    for max_blob in [64 << 10, 512 << 10] {
        let mut w = World::new(Some(Compression { max_blob, ..how(Algorithm::Lz4) }));
        w.run(vec![write("o", 0, soft(1 << 20, 1))]);
        w.run(vec![Op::Zero { cid: CID, oid: oid("o"), off: 0, len: 1 << 20 }]);
        let many = (0..40).map(|i| write("o", 25_000 * i + 7, soft(10, i))).collect();
        let both = [vec![write("o", 0, soft(1 << 20, 2))], many].map(|ops| Transaction { ops });
        for (tag, t) in (500..).map(Tag).zip(&both) {
            while let Err(e) = w.s.prepare(tag, t) {
                assert_eq!(e, ReadError::Wait);
                turn(&mut w.dev, &mut w.s, &mut w.rng);
            }
        }
        for (tag, t) in (500..).map(Tag).zip(both) {
            w.s.submit(tag, t.clone());
            w.model.submit(tag, t);
        }
        while w.model.poll_event().is_some() {}
        let mut done = Vec::new();
        while done.len() < 2 {
            turn(&mut w.dev, &mut w.s, &mut w.rng);
            durable(&mut w.s, &mut done);
        }
        assert_eq!(done, [(Tag(500), true), (Tag(501), true)]);
        w.verify();
    }
}
