//! Tests of long reads that come again: from memory, without the device, and never stale.

use base::rng::Rng;
use base::{HObject, PgId};
use bytes::Bytes;
use store::engine::device::{drive, submit};
use store::engine::{Config, Store};
use store::testing::compare::{TAG, wait};
use store::testing::disk::SimDisk;
use store::{Cid, ObjectStore, Oid, Op, ReadError, Tag, Transaction};

const BLOCK: u64 = 4096;
const OBJECT: u64 = 1 << 20;

fn cid() -> Cid {
    Cid::Pg(PgId::new(1, 0).into())
}

fn oid(n: u64) -> Oid {
    HObject { oid: format!("o{n}").into(), hash: n as u32, ..HObject::min() }.into()
}

fn fresh(cache_bytes: usize, data_bytes: usize) -> (SimDisk, Store) {
    let cfg = Config { cache_bytes, data_bytes, ..Config::default() };
    let (mut dev, mut s) = store::testing::fresh(256 << 20, 3, &cfg);
    let make = Transaction { ops: vec![Op::MakeCollection { cid: cid(), bits: 0 }] };
    submit(&mut s, &mut dev, Tag(1), make).unwrap();
    (dev, s)
}

fn change(s: &mut Store, dev: &mut SimDisk, op: Op) {
    submit(s, dev, Tag(2), Transaction { ops: vec![op] }).unwrap();
}

fn write(n: u64, off: u64, data: Vec<u8>) -> Op {
    Op::Write { cid: cid(), oid: oid(n), off, data: data.into(), sums: None }
}

fn read(s: &mut Store, dev: &mut SimDisk, n: u64, off: u64, len: u64) -> Result<Bytes, ReadError> {
    let r = wait(s, &mut |s| drive(s, dev), |s| s.read_summed(TAG, cid(), &oid(n), off, len));
    r.map(|(data, sum)| {
        assert!(sum.is_none_or(|x| x == base::crc::crc32c(base::crc::SEED, &data)), "the checksum is that of the data");
        data
    })
}

fn bytes(rng: &mut Rng, len: u64) -> Vec<u8> {
    let mut v = vec![0; len as usize];
    rng.fill(&mut v);
    v
}

#[test]
fn a_long_read_that_comes_again_needs_no_device() {
    let (mut dev, mut s) = fresh(64 << 10, 16 << 20);
    let mut rng = Rng::new(1);
    let data = bytes(&mut rng, OBJECT);
    change(&mut s, &mut dev, write(1, 0, data.clone()));
    let mut reads = |off: u64, len: u64| {
        let before = s.counters().reads;
        assert_eq!(read(&mut s, &mut dev, 1, off, len).unwrap(), data[off as usize..(off + len) as usize]);
        s.counters().reads - before
    };
    assert!(reads(0, OBJECT) > 0);
    assert_eq!(
        (reads(0, OBJECT), reads(77, OBJECT - 100), reads(5 * BLOCK, 3 * BLOCK), reads(100 * BLOCK, 1)),
        (0, 0, 0, 0)
    );
    // Less memory, then none.
    s.set_data_bytes(0);
    for _ in 0..3 {
        s.shrink_data();
    }
    assert!(s.cached_bytes() <= 64 << 10);
    let mut reads = |len: u64| {
        let before = s.counters().reads;
        read(&mut s, &mut dev, 1, 0, len).unwrap();
        s.counters().reads - before
    };
    assert!(reads(OBJECT) > 0 && reads(OBJECT) > 0);
}

/// A scrub reads the device, and what it reads stays out of memory.
#[test]
fn a_read_of_the_device_passes_by_memory() {
    let (mut dev, mut s) = fresh(1 << 20, 16 << 20);
    let mut rng = Rng::new(2);
    let data = bytes(&mut rng, OBJECT);
    change(&mut s, &mut dev, write(1, 0, data.clone()));
    let mut scrub = |s: &mut Store| {
        let before = s.counters().reads;
        let got = wait(s, &mut |s| drive(s, &mut dev), |s| s.read_device(TAG, cid(), &oid(1), 0, OBJECT));
        assert_eq!(got.unwrap(), data);
        s.counters().reads - before
    };
    assert!(scrub(&mut s) > 0 && s.cached_bytes() == 0);
    assert!(scrub(&mut s) > 0);
}

/// Memory for few, some and all of the objects; overwrites in blocks and parts of blocks, truncations, holes, clones,
/// removals and new objects in old places.
#[test]
fn memory_of_any_size_gives_right_data_beside_changes() {
    for (seed, data_bytes) in [0, 300 << 10, 2 << 20, 64 << 20].into_iter().enumerate() {
        let (mut dev, mut s) = fresh(64 << 10, data_bytes);
        let mut rng = Rng::new(seed as u64);
        let mut model: Vec<Option<Vec<u8>>> = vec![None; 5];
        for step in 0..600 {
            let i = rng.below(5) as usize;
            let off = rng.below(OBJECT / BLOCK) * BLOCK + rng.below(3) * 1000;
            match rng.below(8) {
                0 => {
                    let (from, to) = (i, rng.below(5) as usize);
                    if from != to && model[from].is_some() {
                        if model[to].is_some() {
                            change(&mut s, &mut dev, Op::Remove { cid: cid(), oid: oid(to as u64) });
                        }
                        let (src, dst) = (oid(from as u64), oid(to as u64));
                        change(&mut s, &mut dev, Op::Clone { cid: cid(), src, dst });
                        model[to] = model[from].clone();
                    }
                }
                1 if model[i].is_some() => {
                    change(&mut s, &mut dev, Op::Truncate { cid: cid(), oid: oid(i as u64), size: off });
                    model[i].as_mut().unwrap().resize(off as usize, 0);
                }
                2 if model[i].is_some() && rng.chance(1, 3) => {
                    change(&mut s, &mut dev, Op::Remove { cid: cid(), oid: oid(i as u64) });
                    model[i] = None;
                }
                n => {
                    let len = if n < 4 { rng.below(OBJECT - off) + 1 } else { (rng.below(9) + 1) * 1500 };
                    let data = bytes(&mut rng, len);
                    let m = model[i].get_or_insert_default();
                    m.resize(m.len().max((off + len) as usize), 0);
                    m[off as usize..(off + len) as usize].copy_from_slice(&data);
                    change(&mut s, &mut dev, write(i as u64, off, data));
                }
            }
            for o in [i, rng.below(5) as usize] {
                let (off, len) = (rng.below(40) * 10_000, OBJECT >> rng.below(8));
                let (off, len) = if rng.chance(1, 2) { (0, OBJECT * 2) } else { (off, len) };
                for _ in 0..2 {
                    match (read(&mut s, &mut dev, o as u64, off, len), &model[o]) {
                        (Ok(got), Some(m)) => {
                            let want = &m[m.len().min(off as usize)..m.len().min((off + len) as usize)];
                            assert!(got == want, "seed {seed}, step {step}, object {o}");
                        }
                        (Err(ReadError::NoObject), None) => {}
                        (r, m) => panic!("seed {seed}, step {step}: {:?} {}", r.err(), m.is_some()),
                    }
                }
            }
            assert!(s.cached_bytes() <= (64 << 10) + data_bytes as u64, "seed {seed}, step {step}");
        }
        let cached = s.counters().cached_blocks;
        assert!(data_bytes < 2 << 20 || cached > 1000, "{data_bytes} bytes of memory: {cached} blocks from it");
    }
}

/// The device answers a read when its object has other blocks, and the old ones have other content.
#[test]
fn a_read_that_is_overtaken_by_a_write_is_repeated() {
    let (mut dev, mut s) = fresh(0, 0);
    let mut rng = Rng::new(1);
    change(&mut s, &mut dev, write(1, 0, vec![1; OBJECT as usize]));
    s.request_checkpoint();
    drive(&mut s, &mut dev);
    let tag = Tag(7);
    assert_eq!(s.read(tag, cid(), &oid(1), 0, BLOCK), Err(ReadError::Wait));
    let late: Vec<_> = std::iter::from_fn(|| s.poll_io()).collect();
    assert_eq!(late.len(), 1);
    // The old blocks become free, and new data fills the whole device with them.
    change(&mut s, &mut dev, write(1, 0, vec![2; OBJECT as usize]));
    for n in 2..200 {
        s.request_checkpoint();
        drive(&mut s, &mut dev);
        change(&mut s, &mut dev, write(n, 0, vec![3; OBJECT as usize]));
    }
    assert_eq!(dev.find(0, |b| b.iter().all(|x| *x == 1)), [0; 0]);
    late.into_iter().for_each(|r| dev.submit(r));
    while let Some(c) = dev.step(&mut rng) {
        s.handle_io(c);
    }
    assert_eq!(s.read(tag, cid(), &oid(1), 0, BLOCK), Err(ReadError::Wait), "the data is stale");
    drive(&mut s, &mut dev);
    assert_eq!(s.read(tag, cid(), &oid(1), 0, BLOCK).unwrap(), vec![2; BLOCK as usize]);
    s.release(tag);
}

#[test]
fn an_object_in_scattered_pieces_comes_from_memory_too() {
    let (mut dev, mut s) = fresh(64 << 10, 16 << 20);
    let mut rng = Rng::new(5);
    let mut data = bytes(&mut rng, OBJECT);
    change(&mut s, &mut dev, write(1, 0, data.clone()));
    // Every block of it is overwritten, in another order, beside writes of another object.
    let mut blocks: Vec<u64> = (0..OBJECT / BLOCK).collect();
    blocks.sort_by_cached_key(|_| rng.below(u64::MAX));
    for b in blocks {
        let block = bytes(&mut rng, BLOCK);
        data[(b * BLOCK) as usize..((b + 1) * BLOCK) as usize].copy_from_slice(&block);
        change(&mut s, &mut dev, write(1, b * BLOCK, block));
        change(&mut s, &mut dev, write(2, b * BLOCK, bytes(&mut rng, BLOCK)));
    }
    let reads = |s: &mut Store, dev: &mut SimDisk, data: &[u8], off: u64, len: u64| {
        let before = s.counters().reads;
        assert_eq!(read(s, dev, 1, off, len).unwrap(), data[off as usize..(off + len) as usize]);
        s.counters().reads - before
    };
    assert!(reads(&mut s, &mut dev, &data, 0, OBJECT) > 0);
    assert_eq!(reads(&mut s, &mut dev, &data, 0, OBJECT), 0);
    assert_eq!(reads(&mut s, &mut dev, &data, 100 * BLOCK + 5, 50 * BLOCK), 0);
    // One block changes: it is all that is read, and then nothing.
    let block = bytes(&mut rng, BLOCK);
    data[(7 * BLOCK) as usize..(8 * BLOCK) as usize].copy_from_slice(&block);
    change(&mut s, &mut dev, write(1, 7 * BLOCK, block));
    assert!(reads(&mut s, &mut dev, &data, 0, OBJECT) <= 1);
    assert_eq!(reads(&mut s, &mut dev, &data, 0, OBJECT), 0);
}
