//! Tests that a fault of the device never gives wrong data, a partial transaction or a crash.

use base::device::Device;
use base::rng::Rng;
use base::{HObject, PgId, Uuid, errno};
use bytes::Bytes;
use store::engine::{self, Config, FormatOptions, Store};
use store::layout::Layout;
use store::mem::MemStore;
use store::testing::compare::{durable, same};
use store::testing::disk::SimDisk;
use store::testing::turn;
use store::testing::workload::Workload;
use store::{Cid, Event, Health, ObjectStore, Oid, Op, ReadError, Tag, Transaction};

const BYTES: u64 = 64 << 20;

fn fresh(cfg: &Config) -> (SimDisk, Store) {
    store::testing::fresh(BYTES, 3, cfg)
}

/// Runs a transaction to its acknowledgement.
fn run(dev: &mut SimDisk, s: &mut Store, rng: &mut Rng, tag: Tag, txn: Transaction) -> Result<(), ReadError> {
    for _ in 0..100_000 {
        match s.prepare(tag, &txn) {
            Ok(()) => {
                s.submit(tag, txn);
                let mut done = Vec::new();
                for _ in 0..1000 {
                    turn(dev, s, rng);
                    durable(s, &mut done);
                    if let Some((t, ok)) = done.pop() {
                        assert_eq!(t, tag);
                        return if ok { Ok(()) } else { Err(ReadError::Io { what: "not durable".into(), errno: -5 }) };
                    }
                }
                panic!("never durable");
            }
            Err(ReadError::Wait) => turn(dev, s, rng),
            Err(e) => {
                s.release(tag);
                return Err(e);
            }
        }
    }
    panic!("prepare waits for ever");
}

#[test]
fn rot_is_an_error_never_wrong_data() {
    let cfg = Config { cache_bytes: 0, checkpoint_log_bytes: 64 << 10, kids_max: 3, ..Config::default() };
    let mut errors = 0;
    for seed in 1..=100 {
        let mut rng = Rng::new(seed);
        let (mut dev, mut s) = fresh(&cfg);
        let mut load = Workload::new(&mut rng);
        let mut states = vec![MemStore::new()];
        for n in 1..=30 {
            let mut m = states.last().unwrap().clone();
            let txn = load.next(&mut rng, &m);
            run(&mut dev, &mut s, &mut rng, Tag(n), txn.clone()).unwrap();
            m.submit(Tag(n), txn);
            while m.poll_event().is_some() {}
            states.push(m);
        }
        for _ in 0..2 {
            s.confirm();
            turn(&mut dev, &mut s, &mut rng);
        }
        let blocks = dev.written();
        // Two victims at a time may hit a frame and the one that records it as durable.
        let victims = 1 + rng.below(4);
        for _ in 0..victims {
            let victim = blocks[rng.below(blocks.len() as u64) as usize];
            match rng.below(4) {
                0 => {
                    dev.bad_reads.insert(victim);
                }
                1 => dev.misplace(blocks[rng.below(blocks.len() as u64) as usize], victim),
                2 => dev.misplace(u64::MAX, victim),
                _ => {
                    dev.flips.insert(victim, rng.next_u64() % (4096 * 8));
                }
            }
        }
        let compare = |dev: &mut SimDisk, s: &mut Store, m: &MemStore, errors_allowed| {
            let mut rng = Rng::new(seed);
            same(s, &mut m.clone(), &mut |s| turn(dev, s, &mut rng), errors_allowed)
        };
        compare(&mut dev, &mut s, states.last().unwrap(), true).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        // Undo records are read by a check only.
        if compare(&mut dev, &mut s, states.last().unwrap(), false).is_err() || !s.fsck(&mut dev, true).clean() {
            errors += 1;
        }
        // Opening refuses what it can't trust; a store that opens has the newest state.
        match engine::open(&mut dev, &cfg) {
            Err(_) => errors += 1,
            Ok(mut v) => {
                let mut s = v.remove(0);
                let ok = states
                    .iter()
                    .rev()
                    .take(if victims > 1 { 3 } else { 1 })
                    .any(|m| compare(&mut dev, &mut s, m, true).is_ok());
                assert!(ok, "seed {seed}: opened with a state that never was");
            }
        }
    }
    assert!(errors > 10, "the faults were found only {errors} times");
}

fn oid(n: u64) -> Oid {
    let h = HObject { oid: format!("o{n}").into(), hash: n as u32, ..HObject::min() };
    Oid::new(h)
}

fn one(op: Op) -> Transaction {
    Transaction { ops: vec![op] }
}

#[test]
fn a_failed_write_fails_the_store_and_its_health_says_so() {
    let mut rng = Rng::new(1);
    let (mut dev, mut s) = fresh(&Config::default());
    let cid = Cid::Pg(PgId::new(1, 0).into());
    run(&mut dev, &mut s, &mut rng, Tag(1), one(Op::MakeCollection { cid, bits: 0 })).unwrap();
    let write = |n: u64| one(Op::Write { cid, oid: oid(n), off: 0, data: vec![n as u8; 9000].into(), sums: None });
    run(&mut dev, &mut s, &mut rng, Tag(2), write(1)).unwrap();
    dev.write_error = Some(errno::ENOSPC);
    let t = write(2);
    s.prepare(Tag(3), &t).unwrap();
    s.submit(Tag(3), t.clone());
    turn(&mut dev, &mut s, &mut rng);
    let events: Vec<Event> = std::iter::from_fn(|| s.poll_event()).collect();
    assert!(events.contains(&Event::Durable(Tag(3), Err(errno::ENOSPC))));
    assert!(events.iter().any(|e| matches!(e, Event::Health(Health::Failed { errno: errno::ENOSPC, .. }))));
    assert!(matches!(s.prepare(Tag(4), &t), Err(ReadError::Io { errno: errno::ENOSPC, .. })));
    s.submit(Tag(4), t);
    assert_eq!(s.poll_event(), Some(Event::Durable(Tag(4), Err(errno::ENOSPC))));
    // All acknowledged data is there after a restart.
    dev.write_error = None;
    let mut s = engine::open(&mut dev, &Config::default()).unwrap().remove(0);
    assert_eq!(s.stat(Tag(5), cid, &oid(1)).unwrap().size, 9000);
    s.check(&mut dev).unwrap();
}

#[test]
fn a_full_store_refuses_recovers_and_keeps_what_it_has() {
    let mut rng = Rng::new(2);
    let (mut dev, mut s) = fresh(&Config::default());
    let cid = Cid::Pg(PgId::new(1, 0).into());
    run(&mut dev, &mut s, &mut rng, Tag(1), one(Op::MakeCollection { cid, bits: 0 })).unwrap();
    let data = Bytes::from(vec![7; 300_000]);
    for round in 0..3 {
        let mut n = 0;
        let refused = loop {
            n += 1;
            let t = one(Op::Write { cid, oid: oid(n), off: 0, data: data.clone(), sums: None });
            match run(&mut dev, &mut s, &mut rng, Tag(n + 1), t) {
                Ok(()) => s.check(&mut dev).unwrap(),
                Err(e) => break e,
            }
        };
        assert!(matches!(refused, ReadError::Io { errno: errno::ENOSPC, .. }), "{refused:?}");
        assert!(n > 100, "full after {n} objects in round {round}");
        assert_eq!(*s.health(), Health::Full);
        // The refused write left nothing.
        assert!(matches!(s.stat(Tag(0), cid, &oid(n)), Err(ReadError::NoObject)));
        // Small changes still work, and so do overwrites of freed space.
        let attrs = vec![(Bytes::from_static(b"a"), Bytes::from_static(b"b"))];
        run(&mut dev, &mut s, &mut rng, Tag(7), one(Op::SetAttrs { cid, oid: oid(1), attrs })).unwrap();
        let mut s2 = engine::open(&mut dev, &Config::default()).unwrap().remove(0);
        assert_eq!(s2.collection_usage(cid).0, n - 1);
        for i in 1..n {
            run(&mut dev, &mut s2, &mut rng, Tag(8), one(Op::Remove { cid, oid: oid(i) })).unwrap();
        }
        run(
            &mut dev,
            &mut s2,
            &mut rng,
            Tag(9),
            one(Op::Write { cid, oid: oid(0), off: 0, data: data.clone(), sums: None }),
        )
        .unwrap();
        run(&mut dev, &mut s2, &mut rng, Tag(9), one(Op::Remove { cid, oid: oid(0) })).unwrap();
        s2.check(&mut dev).unwrap();
        s = s2;
    }
}

#[test]
fn foreign_and_newer_devices_are_refused() {
    let mut dev = SimDisk::new(BYTES);
    assert!(engine::open(&mut dev, &Config::default()).is_err_and(|e| e.to_string().contains("no object store")));
    let mut small = SimDisk::new(1 << 20);
    let o = FormatOptions { uuid: Uuid([3; 16]), reactors: 1, labels: Default::default() };
    assert!(engine::format(&mut small, &o).is_err_and(|e| e.to_string().contains("at least")));
    engine::format(&mut dev, &o).unwrap();
    // First one damaged copy of the superblock, then all of them.
    let zero = base::buf::AlignedBuf::zeroed(4096).freeze();
    for block in [0, 4, 8] {
        dev.write(block * 4096, std::slice::from_ref(&zero)).unwrap();
    }
    assert_eq!(engine::open(&mut dev, &Config::default()).unwrap().len(), 1);
    for block in [BYTES / 4096 - 4, BYTES / 4096 - 8] {
        dev.write(block * 4096, std::slice::from_ref(&zero)).unwrap();
    }
    assert!(engine::open(&mut dev, &Config::default()).is_err());
}

/// A program of a later version was stopped between the copies, or writes other slots first.
#[test]
fn a_copy_of_a_newer_format_counts_before_all_others() {
    let mut dev = SimDisk::new(BYTES);
    let o = FormatOptions { uuid: Uuid([3; 16]), reactors: 1, labels: Default::default() };
    engine::format(&mut dev, &o).unwrap();
    let (mut dev2, labels) = (dev.clone(), store::superblock::Labels::new());
    engine::relabel(&mut dev2, labels.clone()).unwrap();
    let of_version = |dev: &mut SimDisk, slot: u64, version: u32| {
        let at = Layout::of(BYTES).unwrap().super_slot(slot) * 4096;
        let mut b = base::buf::AlignedBuf::zeroed(4 * 4096);
        b.copy_from_slice(&dev.read_many(&[(at, 4 * 4096)])[0].clone().unwrap());
        let len = u32::from_le_bytes(b[20..24].try_into().unwrap()) as usize;
        b[16..20].copy_from_slice(&version.to_le_bytes());
        let crc = base::crc::crc32c(base::crc::SEED, &b[..len - 4]);
        b[len - 4..len].copy_from_slice(&crc.to_le_bytes());
        dev.write(at, &[b.freeze()]).unwrap();
    };
    for slot in 0..4 {
        let mut d = dev2.clone();
        of_version(&mut d, slot, 4);
        let newer = engine::FormatError::NewerFormat(4);
        assert_eq!(engine::probe(&mut d), Err(newer.clone()), "slot {slot}");
        assert!(engine::open(&mut d, &Config::default()).is_err());
        assert_eq!(engine::relabel(&mut d, labels.clone()), Err(newer.clone()));
        assert_eq!(engine::grow(&mut d), Err(newer));
        // The copies of an older version do not interfere.
        let mut d = dev2.clone();
        of_version(&mut d, slot, 1);
        assert_eq!(engine::open(&mut d, &Config::default()).unwrap().len(), 1);
    }
}

/// A power cut may leave sectors unreadable: at each end of the device, one of two adjacent copies.
#[test]
fn one_copy_of_the_superblock_is_enough_wherever_it_is() {
    let mut dev = SimDisk::new(BYTES);
    let o = FormatOptions { uuid: Uuid([3; 16]), reactors: 1, labels: Default::default() };
    engine::format(&mut dev, &o).unwrap();
    engine::relabel(&mut dev, store::superblock::Labels::new()).unwrap();
    let l = Layout::of(BYTES).unwrap();
    for left in 0..4 {
        let mut d = dev.clone();
        d.bad_reads.extend((0..4).filter(|s| *s != left).map(|s| l.super_slot(s) + 1));
        assert!(engine::probe(&mut d).is_ok(), "copy {left}");
        assert_eq!(engine::open(&mut d, &Config::default()).unwrap().len(), 1);
    }
}

#[test]
fn a_device_that_is_too_large_is_refused_at_once() {
    let most = store::layout::DEVICE_BYTES_MAX;
    let o = FormatOptions { uuid: Uuid([3; 16]), reactors: 1, labels: Default::default() };
    let mut large = SimDisk::new(most + 4096);
    let e = engine::FormatError::TooLarge { have: most + 4096, most };
    assert_eq!(engine::format(&mut large, &o), Err(e.clone()));
    // Growing to that size is refused as well.
    let (mut dev, mut s) = fresh(&Config::default());
    let refused = s.grow(Tag(1), engine::Growth::Begin(most + 4096));
    assert!(matches!(refused, Err(ReadError::Io { errno: errno::EFBIG, .. })), "{refused:?}");
    drop(s);
    dev.grow(most + 4096);
    assert_eq!(engine::grow(&mut dev), Err(e));
    let mut same = engine::open(&mut dev, &Config::default()).unwrap().remove(0);
    run(&mut dev, &mut same, &mut Rng::new(1), Tag(2), one(Op::MakeCollection { cid: Cid::Meta, bits: 0 })).unwrap();
}

#[test]
fn formatting_again_makes_the_earlier_store_unreadable() {
    let mut rng = Rng::new(3);
    let (mut dev, mut s) = fresh(&Config::default());
    for n in 0..5 {
        let cid = Cid::Pg(PgId::new(1, n).into());
        run(&mut dev, &mut s, &mut rng, Tag(1), one(Op::MakeCollection { cid, bits: 0 })).unwrap();
        s.request_checkpoint();
        turn(&mut dev, &mut s, &mut rng);
    }
    // This holds even with the same uuid.
    let o = FormatOptions { uuid: Uuid([3; 16]), reactors: 1, labels: Default::default() };
    engine::format(&mut dev, &o).unwrap();
    assert!(engine::open(&mut dev, &Config::default()).unwrap()[0].collections().is_empty());
}

#[test]
fn labels_are_kept_and_replaced() {
    let mut dev = SimDisk::new(BYTES);
    let mut labels = store::superblock::Labels::new();
    labels.insert("whoami".into(), Bytes::from_static(b"3"));
    let o = FormatOptions { uuid: Uuid([3; 16]), reactors: 1, labels: labels.clone() };
    engine::format(&mut dev, &o).unwrap();
    assert_eq!(engine::probe(&mut dev).unwrap().labels, labels);
    labels.insert("key".into(), Bytes::from_static(b"secret"));
    engine::relabel(&mut dev, labels.clone()).unwrap();
    assert_eq!(engine::open(&mut dev, &Config::default()).unwrap()[0].superblock().labels, labels);
    labels.insert("big".into(), vec![0; 9000].into());
    assert!(engine::relabel(&mut dev, labels).is_err());
}

#[test]
fn unreadable_data_can_be_removed_or_truncated_and_written_again_at_once() {
    let cfg = Config { cache_bytes: 0, checkpoint_log_bytes: 64 << 10, kids_max: 3, ..Config::default() };
    let cid = Cid::Pg(PgId::new(1, 0).into());
    let oid = Oid::new(HObject { oid: Bytes::from_static(b"a"), pool: base::PoolId(1), ..HObject::min() }.head());
    let write =
        |off, data: &'static [u8]| Op::Write { cid, oid: oid.clone(), off, data: Bytes::from_static(data), sums: None };
    let cut = |size| Op::Truncate { cid, oid: oid.clone(), size };
    for gone in [Op::Remove { cid, oid: oid.clone() }, cut(0)] {
        let mut rng = Rng::new(9);
        let (mut dev, mut s) = fresh(&cfg);
        let make = vec![Op::MakeCollection { cid, bits: 0 }, write(0, &[7; 5000])];
        run(&mut dev, &mut s, &mut rng, Tag(1), Transaction { ops: make }).unwrap();
        for block in dev.find(0, |b| b.iter().take(904).all(|x| *x == 7)) {
            dev.flips.insert(block, 5);
        }
        // Parts of the corrupt blocks can't be written, but a full overwrite can.
        for ops in [vec![write(10, &[8; 20])], vec![cut(4097)], vec![cut(100), write(200, &[8; 20])]] {
            assert!(run(&mut dev, &mut s, &mut rng, Tag(2), Transaction { ops }).is_err());
        }
        let again = vec![gone, write(10, &[9; 20])];
        run(&mut dev, &mut s, &mut rng, Tag(3), Transaction { ops: again }).unwrap();
        let got = loop {
            match s.read(Tag(4), cid, &oid, 0, 30) {
                Err(ReadError::Wait) => turn(&mut dev, &mut s, &mut rng),
                r => break r.unwrap(),
            }
        };
        assert_eq!(&got[..], [[0; 10].as_slice(), &[9; 20]].concat());
    }
}

#[test]
fn a_block_that_cannot_be_read_hides_nothing_of_the_log_before_it() {
    let mut rng = Rng::new(5);
    let (mut dev, mut s) = fresh(&Config::default());
    let (first, blocks) = Layout::of(BYTES).unwrap().ring(0, 1);
    let frames =
        |dev: &SimDisk| dev.written().into_iter().filter(|b| (first..first + blocks).contains(b)).collect::<Vec<_>>();
    let cid = Cid::Pg(PgId::new(1, 0).into());
    run(&mut dev, &mut s, &mut rng, Tag(1), one(Op::MakeCollection { cid, bits: 0 })).unwrap();
    let before = frames(&dev);
    for n in 2..30 {
        run(&mut dev, &mut s, &mut rng, Tag(n), one(Op::Touch { cid, oid: oid(n) })).unwrap();
    }
    let log: Vec<u64> = frames(&dev).into_iter().filter(|b| !before.contains(b)).collect();
    assert!(log.len() >= 20, "{log:?}");
    drop(s);
    let mut dev = dev.killed(&mut rng);

    // Blocks behind the log's end are not needed.
    let end = *log.last().unwrap();
    dev.bad_reads.insert(end + 20);
    let s = engine::open(&mut dev.clone(), &Config::default()).unwrap().remove(0);
    assert_eq!(s.collection_usage(cid).0, 28);

    // Later frames tell that a broken one was durable, even if one of them or the blocks behind are unreadable.
    for bad in [end + 20, end, log[10]] {
        let mut dev = dev.clone();
        dev.bad_reads = [bad].into();
        dev.flips.insert(log[5], 100);
        let e = engine::open(&mut dev, &Config::default()).err().map(|e| e.to_string());
        assert!(e.as_ref().is_some_and(|e| e.contains("was durable")), "block {bad}: {e:?}");
    }
}

#[test]
fn blocks_read_stay_in_memory_and_scrub_reads_the_device() {
    let (mut dev, mut s) = fresh(&Config { cache_bytes: 1 << 20, ..Config::default() });
    let mut rng = Rng::new(7);
    let oid = Oid::new(HObject { oid: "o".into(), ..HObject::default() });
    let data = |n: u8| Bytes::from(vec![n; 3 * 4096]);
    let mut t = Transaction::new();
    t.push(Op::MakeCollection { cid: Cid::Meta, bits: 0 });
    t.push(Op::Write { cid: Cid::Meta, oid: oid.clone(), off: 0, data: data(1), sums: None });
    run(&mut dev, &mut s, &mut rng, Tag(1), t).unwrap();
    let mut next = 10;
    let mut read = |dev: &mut SimDisk, s: &mut Store, scrub: bool, off: u64, len: u64| {
        next += 1;
        let tag = Tag(next);
        let r = loop {
            let r = if scrub {
                s.read_device(tag, Cid::Meta, &oid, off, len)
            } else {
                s.read(tag, Cid::Meta, &oid, off, len)
            };
            if !matches!(r, Err(ReadError::Wait)) {
                break r;
            }
            turn(dev, s, &mut rng);
        };
        s.release(tag);
        while s.poll_event().is_some() {}
        r
    };
    // What is in flight is in memory as well.
    s.confirm();
    for (off, len) in [(0, 3 * 4096), (100, 50), (4096, 4096), (5000, 4096)] {
        let reads = s.counters().reads;
        assert_eq!(read(&mut dev, &mut s, false, off, len).unwrap(), data(1).slice(..len as usize));
        assert_eq!(s.counters().reads - reads, u64::from(len == 3 * 4096), "{off} {len}");
    }
    let reads = s.counters().reads;
    assert_eq!(read(&mut dev, &mut s, true, 0, 3 * 4096).unwrap(), data(1));
    assert_eq!(s.counters().reads - reads, 1);
    // All that was ever written rots. A client still gets the right data; scrub sees the rot.
    dev.written().into_iter().for_each(|b| {
        dev.flips.insert(b, 77);
    });
    assert_eq!(read(&mut dev, &mut s, false, 0, 3 * 4096).unwrap(), data(1));
    assert!(matches!(read(&mut dev, &mut s, true, 0, 3 * 4096), Err(ReadError::Io { .. })));
    assert!(matches!(read(&mut dev, &mut s, true, 100, 50), Err(ReadError::Io { .. })));
    // New contents replace what is in memory.
    let mut t = Transaction::new();
    t.push(Op::Write { cid: Cid::Meta, oid: oid.clone(), off: 0, data: data(2), sums: None });
    run(&mut dev, &mut s, &mut Rng::new(8), Tag(2), t).unwrap();
    assert_eq!(read(&mut dev, &mut s, false, 0, 3 * 4096).unwrap(), data(2));
}

/// Reads an object, past the cache if `scrub`.
fn read(dev: &mut SimDisk, s: &mut Store, oid: &Oid, scrub: bool) -> Result<Bytes, ReadError> {
    read_at(dev, s, oid, scrub, 0, 1 << 20)
}

fn read_at(dev: &mut SimDisk, s: &mut Store, oid: &Oid, scrub: bool, off: u64, len: u64) -> Result<Bytes, ReadError> {
    let tag = Tag(1 << 40);
    let r = loop {
        let cid = Cid::Meta;
        let r = if scrub { s.read_device(tag, cid, oid, off, len) } else { s.read(tag, cid, oid, off, len) };
        if !matches!(r, Err(ReadError::Wait)) {
            break r;
        }
        turn(dev, s, &mut Rng::new(1));
    };
    s.release(tag);
    while s.poll_event().is_some() {}
    r
}

#[test]
fn repair_of_a_rotten_object_that_is_in_memory_ends_the_rot() {
    let data = Bytes::from([vec![1; 4096], vec![2; 4096], vec![3; 4096]].concat());
    let whole = |oid: &Oid| Op::Write { cid: Cid::Meta, oid: oid.clone(), off: 0, data: data.clone(), sums: None };
    let part = |oid: &Oid, block: u64| {
        let off = block * 4096 + 10;
        let data = data.slice(off as usize..off as usize + 20);
        Op::Write { cid: Cid::Meta, oid: oid.clone(), off, data, sums: None }
    };
    type Repair<'a> = &'a dyn Fn(&Oid) -> Vec<Op>;
    let remove = |o: &Oid| vec![Op::Remove { cid: Cid::Meta, oid: o.clone() }, whole(o)];
    let truncate = |o: &Oid| vec![Op::Truncate { cid: Cid::Meta, oid: o.clone(), size: 0 }, whole(o)];
    let overwrite = |o: &Oid| vec![whole(o)];
    let pieces = |o: &Oid| (0..3).map(|b| part(o, b)).collect();
    let repairs: [Repair<'_>; 4] = [&remove, &truncate, &overwrite, &pieces];
    for (n, repair) in repairs.into_iter().enumerate() {
        let (mut dev, mut s) = fresh(&Config { cache_bytes: 1 << 20, ..Config::default() });
        let mut rng = Rng::new(n as u64);
        let (head, clone) = (oid(1), oid(2));
        let make = Op::MakeCollection { cid: Cid::Meta, bits: 0 };
        let shared = Op::Clone { cid: Cid::Meta, src: head.clone(), dst: clone.clone() };
        let t = Transaction { ops: vec![make, whole(&head), shared] };
        run(&mut dev, &mut s, &mut rng, Tag(1), t).unwrap();
        s.confirm();
        turn(&mut dev, &mut s, &mut rng);
        assert_eq!(read(&mut dev, &mut s, &head, false).unwrap(), data);
        for b in dev.find(0, |b| b.iter().all(|x| (1..=3).contains(x))) {
            dev.flips.insert(b, 99);
        }
        // Client and recovery get the right data of both objects from memory, and scrub sees the rot of both.
        for o in [&head, &clone] {
            assert_eq!(read(&mut dev, &mut s, o, false).unwrap(), data);
            assert!(matches!(read(&mut dev, &mut s, o, true), Err(ReadError::Io { .. })));
        }
        run(&mut dev, &mut s, &mut rng, Tag(2), Transaction { ops: repair(&head) }).unwrap();
        assert_eq!(read(&mut dev, &mut s, &head, true).unwrap(), data, "repair {n}");
        assert!(matches!(read(&mut dev, &mut s, &clone, true), Err(ReadError::Io { .. })));
        // What memory knew dies with the process.
        drop(s);
        let mut dev = dev.killed(&mut rng);
        let mut s = engine::open(&mut dev, &Config::default()).unwrap().remove(0);
        assert_eq!(read(&mut dev, &mut s, &head, false).unwrap(), data);
        assert!(matches!(read(&mut dev, &mut s, &clone, false), Err(ReadError::Io { .. })));
    }
}

#[test]
fn caches_of_any_size_give_right_data_beside_writes_and_misplaced_blocks() {
    // None, fewer blocks than a read, as many, and more than there are.
    for blocks in [0, 1, 2, 15, 16, 4096] {
        let (mut dev, mut s) = fresh(&Config { cache_bytes: blocks * 4096, first_fit: true, ..Config::default() });
        let mut rng = Rng::new(blocks as u64);
        let mut model: Vec<Vec<u8>> = vec![Vec::new(); 6];
        let make = Op::MakeCollection { cid: Cid::Meta, bits: 0 };
        run(&mut dev, &mut s, &mut rng, Tag(1), Transaction { ops: vec![make] }).unwrap();
        let mut errors = 0;
        for n in 2..300 {
            let i = rng.below(6) as usize;
            let (off, len) = (rng.below(20) * 4096 + rng.below(2) * 77, (rng.below(9) + 1) * 2048);
            let data = vec![n as u8; len as usize];
            let m = &mut model[i];
            m.resize(m.len().max((off + len) as usize), 0);
            m[off as usize..(off + len) as usize].copy_from_slice(&data);
            let op = Op::Write { cid: Cid::Meta, oid: oid(i as u64), off, data: data.into(), sums: None };
            run(&mut dev, &mut s, &mut rng, Tag(n), one(op)).unwrap();
            s.request_checkpoint();
            turn(&mut dev, &mut s, &mut rng);
            for o in [i, rng.below(6) as usize] {
                let (off, len) = (rng.below(20) * 4096 + rng.below(2) * 9, rng.below(4) * 4096 + 2048);
                let m = &model[o];
                let m = &m[m.len().min(off as usize)..m.len().min((off + len) as usize)];
                // The second time comes from the cache.
                for _ in 0..3 {
                    match read_at(&mut dev, &mut s, &oid(o as u64), rng.chance(1, 8), off, len) {
                        Ok(got) => assert_eq!(got, m, "cache of {blocks}, step {n}"),
                        Err(ReadError::NoObject) => assert!(m.is_empty()),
                        Err(e) => panic!("{e:?}"),
                    }
                }
            }
            // The device gives one block instead of another for a while.
            let good = dev.clone();
            let plain = |b: &[u8]| b[5] == b[9] && b[5] == b[4000] && b[5] > 0;
            let wrong = dev.find(0, |b| plain(b) && b[5] != n as u8);
            let right = dev.find(0, |b| plain(b) && b[5] == n as u8);
            if let (Some(from), Some(to)) = (wrong.last(), right.last()) {
                dev.misplace(*from, *to);
                match read(&mut dev, &mut s, &oid(i as u64), false) {
                    Ok(got) => assert_eq!(got, model[i]),
                    Err(ReadError::Io { .. }) => errors += 1,
                    Err(e) => panic!("{e:?}"),
                }
                dev = good;
            }
        }
        let cached = s.counters().cached_blocks;
        assert!(if blocks < 15 { errors > 10 } else { cached > 100 }, "cache of {blocks}: {errors} errors, {cached}");
    }
}
