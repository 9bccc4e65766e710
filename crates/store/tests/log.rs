//! Tests of rot in the log: a store without loss must open, and a store with loss must say so.

use base::device::{Device, IoKind, IoRequest};
use base::rng::Rng;
use base::{HObject, PgId, Uuid};
use bytes::Bytes;
use store::engine::device::{drive, submit};
use store::engine::{self, Config, FormatOptions, Store};
use store::layout::Layout;
use store::testing::compare::{TAG, wait};
use store::testing::disk::SimDisk;
use store::{Cid, ObjectStore, Oid, Op, ReadError, Tag, Transaction};

const BYTES: u64 = 64 << 20;

fn cid() -> Cid {
    Cid::Pg(PgId::new(1, 0).into())
}

fn oid(n: u64) -> Oid {
    HObject { oid: format!("o{n}").into(), hash: n as u32, ..HObject::min() }.into()
}

fn write(n: u64, fill: u8) -> Transaction {
    Transaction { ops: vec![Op::Write { cid: cid(), oid: oid(n), off: 0, data: vec![fill; 4096].into(), sums: None }] }
}

/// A store with a collection and the beginning of a log.
fn fresh(bytes: u64) -> (SimDisk, Store) {
    let (mut dev, mut s) = store::testing::fresh(bytes, 3, &Config::default());
    let make = Transaction { ops: vec![Op::MakeCollection { cid: cid(), bits: 0 }] };
    submit(&mut s, &mut dev, Tag(1), make).unwrap();
    (dev, s)
}

fn open(dev: &mut SimDisk) -> Result<Store, engine::OpenError> {
    engine::open(dev, &Config::default()).map(|mut v| v.remove(0))
}

fn objects(s: &Store) -> u64 {
    s.collection_usage(cid()).0
}

fn read(s: &mut Store, dev: &mut SimDisk, n: u64) -> Result<Bytes, ReadError> {
    wait(s, &mut |s| drive(s, dev), |s| s.read(TAG, cid(), &oid(n), 0, 4096))
}

/// Two calls of `confirm` without a commit in between.
fn rest(s: &mut Store, dev: &mut SimDisk) {
    for _ in 0..2 {
        s.confirm();
        drive(s, dev);
    }
}

/// Blocks of the log, and the block of the next frame.
fn log(dev: &SimDisk, s: &Store) -> (Vec<u64>, u64) {
    let (first, blocks) = Layout::of(dev.bytes()).unwrap().ring(0, 1);
    let all = dev.written().into_iter().filter(|b| (first..first + blocks).contains(b)).collect();
    (all, s.log_ahead(u64::MAX).0 / 4096)
}

#[test]
fn the_log_ahead_is_as_long_as_asked_for_and_moves_on() {
    let (mut dev, mut s) = fresh(BYTES);
    let (first, blocks) = Layout::of(BYTES).unwrap().ring(0, 1);
    let (at, len) = s.log_ahead(1 << 20);
    assert_eq!((at % 4096, len), (0, 1 << 20));
    assert_eq!(s.log_ahead((1 << 20) + 4095).1, 1 << 20, "whole blocks");
    let (_, all) = s.log_ahead(u64::MAX);
    assert!(all > 1 << 20 && at + all <= (first + blocks) * 4096, "{at} {all}");
    submit(&mut s, &mut dev, Tag(2), write(1, 7)).unwrap();
    let (next, rest) = s.log_ahead(u64::MAX);
    assert_eq!(next + rest, at + all, "the new frame is before that place");
    assert!(next > at);
}

#[test]
fn whole_blocks_are_read_with_their_checksum() {
    let (mut dev, mut s) = fresh(BYTES);
    let data: Bytes = (0..40 * 4096u32).map(|i| (i / 3) as u8).collect();
    let write = Op::Write { cid: cid(), oid: oid(1), off: 0, data: data.clone(), sums: None };
    submit(&mut s, &mut dev, Tag(2), Transaction { ops: vec![write] }).unwrap();
    // From the device, and the second time from the cache.
    for _ in 0..2 {
        for (off, len) in [(0, 4096), (8192, 4096), (0, 8192), (4096, 39 * 4096)] {
            let got = wait(&mut s, &mut |s| drive(s, &mut dev), |s| s.read_summed(TAG, cid(), &oid(1), off, len));
            let want = data.slice(off as usize..(off + len) as usize);
            let sum = base::crc::crc32c(base::crc::SEED, &want);
            assert_eq!(got.unwrap(), (want, Some(sum)), "{off} {len}");
            s.release(TAG);
        }
        let part = wait(&mut s, &mut |s| drive(s, &mut dev), |s| s.read_summed(TAG, cid(), &oid(1), 1, 4096));
        assert_eq!(part.unwrap(), (data.slice(1..4097), None));
        s.release(TAG);
    }
}

/// A log ends at an unreadable block, unless a later frame says that a frame in that block was durable.
#[test]
fn a_log_ends_at_a_block_that_cannot_be_read() {
    let first = Layout::of(BYTES).unwrap().ring(0, 1).0;
    // After frames; after a checkpoint, so that the ring's first block does not belong to the log; after both.
    for checkpoint in [false, true] {
        let (mut dev, mut s) = fresh(BYTES);
        for n in 0..5 {
            submit(&mut s, &mut dev, Tag(n), write(n, 7)).unwrap();
        }
        if checkpoint {
            s.request_checkpoint();
            drive(&mut s, &mut dev);
        }
        let head = log(&dev, &s).1;
        drop(s);
        for bad in [vec![head], vec![first], vec![head, first]] {
            if !checkpoint && bad.contains(&first) {
                continue;
            }
            for short in [false, true] {
                let mut d = dev.clone();
                if short {
                    d.short_reads.extend(&bad)
                } else {
                    d.bad_reads.extend(&bad)
                }
                let mut s = open(&mut d).unwrap_or_else(|e| panic!("{bad:?}: {e}"));
                assert_eq!(objects(&s), 5);
                // The log continues there.
                submit(&mut s, &mut d, Tag(9), write(9, 9)).unwrap();
                drop(s);
                assert_eq!(objects(&open(&mut d).unwrap()), 6);
                let mut d = dev.clone();
                if short {
                    d.short_reads.extend(&bad)
                } else {
                    d.bad_reads.extend(&bad)
                }
                engine::rebuild(&mut d, &Config::default(), |_| false).unwrap_or_else(|e| panic!("{bad:?}: {e}"));
                assert_eq!(objects(&open(&mut d).unwrap()), 5);
            }
        }
    }
}

/// Any block of the log or of data rots while the store rests. All acknowledged data is there, or the store
/// refuses to open.
#[test]
fn rot_in_the_log_of_a_store_at_rest_is_reported() {
    let (mut dev, mut s) = fresh(BYTES);
    let mut rng = Rng::new(1);
    for n in 0..4 {
        submit(&mut s, &mut dev, Tag(n), write(n, n as u8 + 1)).unwrap();
    }
    let before = s.counters();
    rest(&mut s, &mut dev);
    // The confirmation is written once, and not again while the store rests.
    let (all, head) = log(&dev, &s);
    for _ in 0..10 {
        rest(&mut s, &mut dev);
    }
    assert_eq!(s.counters().frames, before.frames + 1);
    let data = (1..=4u8).flat_map(|n| dev.find(0, move |b| b.iter().all(|x| *x == n))).collect::<Vec<_>>();
    assert_eq!(data.len(), 4);
    drop(s);
    let (mut refused, mut errors) = (0, 0);
    for block in all.iter().copied().filter(|b| *b < head).chain(data) {
        for how in 0..4 {
            let mut d = dev.clone();
            match how {
                0 => drop(d.bad_reads.insert(block)),
                1 => drop(d.short_reads.insert(block)),
                2 => drop(d.flips.insert(block, rng.below(64 * 8))),
                _ => d.misplace(u64::MAX, block),
            }
            // The same holds after another crash.
            for mut d in [d.clone(), d.power_cut(&mut rng)] {
                match open(&mut d) {
                    Err(e) => {
                        assert!(e.to_string().contains("was durable"), "block {block}: {e}");
                        refused += 1;
                    }
                    Ok(mut s) => {
                        assert_eq!(objects(&s), 4, "block {block}, {how}");
                        for n in 0..4 {
                            match read(&mut s, &mut d, n) {
                                Ok(b) => assert!(b.iter().all(|x| u64::from(*x) == n + 1), "block {block}, {how}"),
                                Err(ReadError::Io { .. }) => errors += 1,
                                Err(e) => panic!("{e:?}"),
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(refused >= 4 * 4 && errors >= 4 * 4, "{refused} times refused, {errors} errors");
}

/// Confirmations are not written while commits come, and none delays an acknowledgement.
#[test]
fn a_confirmation_waits_for_rest() {
    let (mut dev, mut s) = fresh(BYTES);
    rest(&mut s, &mut dev);
    let before = s.counters();
    for n in 0..20 {
        submit(&mut s, &mut dev, Tag(n), write(n, 7)).unwrap();
        s.confirm();
        drive(&mut s, &mut dev);
    }
    assert_eq!(s.counters().frames - before.frames, 20);
    // A checkpoint confirms as well.
    s.request_checkpoint();
    drive(&mut s, &mut dev);
    rest(&mut s, &mut dev);
    assert_eq!(s.counters().frames - before.frames, 20);
    // With a transaction in the open frame, or an unacknowledged one, there is nothing to confirm.
    let t = write(3, 1);
    s.prepare(Tag(1), &t).unwrap();
    s.submit(Tag(1), t);
    s.confirm();
    s.confirm();
    assert_eq!(s.counters().frames - before.frames, 20);
    drive(&mut s, &mut dev);
    rest(&mut s, &mut dev);
    assert_eq!(s.counters().frames - before.frames, 22);
}

/// Frames that opening cut off never come back. This holds even if the torn frame was only a confirmation, like
/// the one that opening writes over it.
#[test]
fn a_frame_behind_a_torn_confirmation_stays_cut_off() {
    let (mut dev, mut s) = fresh(BYTES);
    submit(&mut s, &mut dev, Tag(1), write(1, 7)).unwrap();
    // The confirmation is in flight when the next transaction is submitted.
    s.confirm();
    s.confirm();
    let torn: Vec<IoRequest> = std::iter::from_fn(|| s.poll_io()).collect();
    assert!(matches!(torn[..], [IoRequest { kind: IoKind::Write { .. }, .. }, IoRequest { kind: IoKind::Flush, .. }]));
    let t = write(2, 8);
    s.prepare(Tag(2), &t).unwrap();
    s.submit(Tag(2), t);
    s.end_turn();
    let mut written = 0;
    while let Some(r) = s.poll_io() {
        if let IoKind::Write { off, bufs } = r.kind {
            dev.write(off, &bufs).unwrap();
            written += 1;
        }
    }
    assert_eq!(written, 2, "data and frame");
    // The process is killed, and only the later ones of its writes happened.
    drop(s);
    for _ in 0..3 {
        assert_eq!(objects(&open(&mut dev).unwrap()), 1);
    }
    let two = engine::open(&mut dev, &Config { reactors: 2, ..Config::default() }).unwrap();
    assert_eq!(two.iter().map(objects).sum::<u64>(), 1);
}

/// Frames may be longer than the distance that is always searched after a break.
#[test]
fn a_broken_frame_of_many_blocks_is_told_from_a_torn_one() {
    let bytes = 2 << 30;
    let mut dev = SimDisk::new(bytes);
    let o = FormatOptions { uuid: Uuid([3; 16]), reactors: 1, labels: Default::default() };
    engine::format(&mut dev, &o).unwrap();
    let mut s = open(&mut dev).unwrap();
    let make = Transaction { ops: vec![Op::MakeCollection { cid: cid(), bits: 0 }] };
    submit(&mut s, &mut dev, Tag(1), make).unwrap();
    submit(&mut s, &mut dev, Tag(2), write(1, 7)).unwrap();
    let head = log(&dev, &s).1;
    // 24 MiB of a log of 128 MiB, whose frames have at most 32 MiB.
    let entries = (0..24u8).map(|i| (Bytes::from(vec![i]), Bytes::from(vec![i | 1; 1 << 20]))).collect();
    let large = Transaction { ops: vec![Op::OmapSet { cid: cid(), oid: oid(2), entries }] };
    submit(&mut s, &mut dev, Tag(3), large).unwrap();
    let next = log(&dev, &s).1;
    assert!(next - head > 6000, "a frame of {} blocks", next - head);
    rest(&mut s, &mut dev);
    drop(s);
    assert_eq!(objects(&open(&mut dev.clone()).unwrap()), 2);
    for (block, bit) in [(head, 100), (head + 3000, 9), (next - 1, 20)] {
        let mut d = dev.clone();
        d.flips.insert(block, bit);
        let e = open(&mut d).err().map(|e| e.to_string());
        assert!(e.as_ref().is_some_and(|e| e.contains("was durable")), "block {block}: {e:?}");
    }
    // No later frame confirms the frames that a crash cut off.
    let mut d = dev.clone();
    d.flips.insert(head, 100);
    d.misplace(u64::MAX, next);
    assert_eq!(objects(&open(&mut d).unwrap()), 1);
}

/// A device with an error other than an unreadable sector.
struct Failing {
    dev: SimDisk,
    /// Block whose reads fail.
    block: u64,
    asked: bool,
}

impl Device for Failing {
    fn bytes(&self) -> u64 {
        self.dev.bytes()
    }

    fn read_many(&mut self, ranges: &[(u64, u64)]) -> Vec<Result<Bytes, base::errno::Errno>> {
        let hit = |r: &(u64, u64)| (r.0 / 4096..(r.0 + r.1) / 4096).contains(&self.block);
        let hits: Vec<bool> = ranges.iter().map(hit).collect();
        self.asked |= hits.contains(&true);
        let read = self.dev.read_many(ranges);
        read.into_iter().zip(hits).map(|(r, hit)| if hit { Err(-110) } else { r }).collect()
    }

    fn write(&mut self, off: u64, data: &[Bytes]) -> Result<(), base::errno::Errno> {
        self.dev.write(off, data)
    }

    fn flush(&mut self) -> Result<(), base::errno::Errno> {
        self.dev.flush()
    }
}

/// Such an error may hide anything, so opening must use neither an older copy nor an earlier end of the log.
#[test]
fn another_error_than_an_unreadable_sector_stops_the_opening() {
    let (mut dev, mut s) = fresh(BYTES);
    s.request_checkpoint();
    drive(&mut s, &mut dev);
    submit(&mut s, &mut dev, Tag(1), write(1, 7)).unwrap();
    let (head, l) = (log(&dev, &s).1, Layout::of(BYTES).unwrap());
    drop(s);
    let data = dev.find(l.space_start, |b| b.iter().all(|x| *x == 7))[0];
    let roots = (0..2).flat_map(|p| (0..2).map(move |c| l.root_slot(0, p, c)));
    for block in (0..4).map(|i| l.super_slot(i)).chain(roots).chain([head - 1, head, data]) {
        let mut d = Failing { dev: dev.clone(), block, asked: false };
        let e = engine::open(&mut d, &Config::default()).err().map(|e| e.to_string());
        assert!(
            d.asked && e.as_ref().is_some_and(|e| e.contains("ETIMEDOUT") || e.contains("110")),
            "block {block}: {e:?}"
        );
        // Nothing was overwritten.
        assert_eq!(objects(&open(&mut d.dev).unwrap()), 1, "block {block}");
    }
}
