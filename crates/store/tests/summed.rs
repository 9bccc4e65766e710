//! Tests of writes whose receiver has summed their data: the store takes the checksums of whole blocks from there.

use base::crc::{BLOCK, SEED, crc32c};
use base::rng::Rng;
use base::{HObject, PgId, Summed};
use bytes::Bytes;
use std::sync::Arc;
use store::engine::device::{drive, submit};
use store::engine::{Config, Store};
use store::testing::compare::{TAG, wait};
use store::testing::disk::SimDisk;
use store::{Cid, ObjectStore, Oid, Op, ReadError, Tag, Transaction};

fn cid() -> Cid {
    Cid::Pg(PgId::new(1, 0).into())
}

fn oid(n: u64) -> Oid {
    HObject { oid: format!("o{n}").into(), hash: n as u32, ..HObject::min() }.into()
}

fn fresh(cfg: &Config) -> (SimDisk, Store) {
    let (mut dev, mut s) = store::testing::fresh(256 << 20, 3, cfg);
    let make = Transaction { ops: vec![Op::MakeCollection { cid: cid(), bits: 0 }] };
    submit(&mut s, &mut dev, Tag(1), make).unwrap();
    (dev, s)
}

fn read(s: &mut Store, dev: &mut SimDisk, n: u64, len: u64) -> Result<(Bytes, Option<u32>), ReadError> {
    wait(s, &mut |s| drive(s, dev), |s| s.read_summed(TAG, cid(), &oid(n), 0, len))
}

/// Random bytes at an address that is, or is not, a multiple of a block.
fn buffer(rng: &mut Rng, len: usize, aligned: bool) -> Bytes {
    let mut b = base::buf::AlignedBuf::zeroed((len + 16).next_multiple_of(BLOCK));
    rng.fill(&mut b);
    let from = if aligned { 0 } else { 16 };
    b.freeze().slice(from..from + len)
}

fn write(n: u64, off: u64, data: Bytes, sums: &Arc<Summed>) -> Transaction {
    Transaction { ops: vec![Op::Write { cid: cid(), oid: oid(n), off, data, sums: Some(Arc::clone(sums)) }] }
}

#[test]
fn writes_with_known_checksums_read_back_at_any_offset() {
    // Large writes go to the device early, in the transaction's turn, or after a copy.
    for early_bytes in [8 << 10, usize::MAX] {
        let (mut dev, mut s) = fresh(&Config { early_bytes, cache_bytes: 0, ..Config::default() });
        let mut rng = Rng::new(early_bytes as u64);
        let mut model: Vec<Vec<u8>> = vec![Vec::new(); 4];
        for round in 0..150 {
            let (n, len) = (rng.below(4), 1 + rng.below(30 * BLOCK as u64) as usize);
            let aligned = rng.chance(1, 2);
            let received = buffer(&mut rng, len, aligned);
            let sums = Arc::new(Summed::new(received.clone()));
            // A slice of what was received, at an offset of the object; either may be on a boundary of blocks.
            let mut from = rng.below(len as u64) as usize;
            let mut off = rng.below(20 * BLOCK as u64) as usize;
            if rng.chance(2, 3) {
                (from, off) = (from - from % BLOCK, off - off % BLOCK);
            }
            let mut data = received.slice(from..);
            if data.len() > BLOCK && rng.chance(1, 2) {
                data.truncate(data.len() - data.len() % BLOCK);
            }
            let object = &mut model[n as usize];
            object.resize(object.len().max(off + data.len()), 0);
            object[off..off + data.len()].copy_from_slice(&data);
            submit(&mut s, &mut dev, Tag(2 + round), write(n, off as u64, data, &sums)).unwrap();
            let want = Bytes::from(model[n as usize].clone());
            let (got, crc) = read(&mut s, &mut dev, n, want.len() as u64).unwrap();
            assert!(got == want, "round {round}");
            assert!(crc.is_none_or(|c| c == crc32c(SEED, &want)), "round {round}");
        }
    }
}

#[test]
fn checksums_of_other_bytes_are_not_taken() {
    let (mut dev, mut s) = fresh(&Config::default());
    let mut rng = Rng::new(9);
    let (data, other) = (buffer(&mut rng, 32 * BLOCK, true), buffer(&mut rng, 32 * BLOCK, true));
    submit(&mut s, &mut dev, Tag(2), write(1, 0, data.clone(), &Arc::new(Summed::new(other)))).unwrap();
    assert_eq!(read(&mut s, &mut dev, 1, 32 * BLOCK as u64).unwrap(), (data.clone(), Some(crc32c(SEED, &data))));
}

#[test]
fn rot_of_a_block_with_a_known_checksum_is_found() {
    let mut rng = Rng::new(4);
    for at in [0, 7, 31] {
        let (mut dev, mut s) = fresh(&Config { cache_bytes: 0, ..Config::default() });
        let data = buffer(&mut rng, 32 * BLOCK, true);
        submit(&mut s, &mut dev, Tag(2), write(1, 0, data.clone(), &Arc::new(Summed::new(data.clone())))).unwrap();
        s.confirm();
        drive(&mut s, &mut dev);
        let block = data.slice(at * BLOCK..(at + 1) * BLOCK);
        let places = dev.find(0, |b| *b == block[..]);
        assert_eq!(places.len(), 1);
        dev.flips.insert(places[0], 1234);
        let got = read(&mut s, &mut dev, 1, 32 * BLOCK as u64);
        assert!(matches!(got, Err(ReadError::Io { .. })), "block {at}: {:?}", got.map(|(b, _)| b.len()));
    }
}

#[cfg(debug_assertions)]
#[test]
fn whole_blocks_with_known_checksums_are_not_summed() {
    use base::crc::counted;
    let mut rng = Rng::new(5);
    for early_bytes in [64 << 10, usize::MAX] {
        for aligned in [true, false] {
            let (mut dev, mut s) = fresh(&Config { early_bytes, ..Config::default() });
            let data = buffer(&mut rng, 4 << 20, aligned);
            let sums = Arc::new(Summed::new(data.clone()));
            let mut cost = |n, txn| {
                let before = counted::bytes();
                submit(&mut s, &mut dev, Tag(n), txn).unwrap();
                counted::bytes() - before
            };
            let known = cost(2, write(1, 0, data.clone(), &sums));
            assert!(known < 128 << 10, "{known} bytes");
            let op = Op::Write { cid: cid(), oid: oid(2), off: 0, data: data.clone(), sums: None };
            let unknown = cost(3, Transaction { ops: vec![op] });
            assert!((4 << 20..(4 << 20) + (128 << 10)).contains(&unknown), "{unknown} bytes");
        }
    }
}
