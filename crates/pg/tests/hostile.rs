//! Does every operation with arbitrary bytes get an answer, without panic, and does the PG go on serving?
mod common;

use base::SnapId;
use base::rng::Rng;
use bytes::Bytes;
use common::*;
use pg::Event;
use store::mem::MemStore;
use wire::msg::{OpCode, OsdOp};

/// All operation codes, and some that do not exist.
const CODES: [u16; 66] = [
    0x1201, 0x1202, 0x1203, 0x1205, 0x1206, 0x1207, 0x1208, 0x1209, 0x120a, 0x120b, 0x120c, 0x1211, 0x1212, 0x1213,
    0x1214, 0x1219, 0x121d, 0x121e, 0x121f, 0x1220, 0x2201, 0x2202, 0x2203, 0x2204, 0x2205, 0x2206, 0x2208, 0x2209,
    0x320a, 0x220b, 0x220d, 0x220e, 0x220f, 0x2215, 0x2216, 0x2217, 0x2218, 0x222c, 0x221a, 0x222d, 0x221c, 0xb21f,
    0xb220, 0xb221, 0x2227, 0x2228, 0x2223, 0x2224, 0x2226, 0x3222, 0x1301, 0x1302, 0x1303, 0x2301, 0x2304, 0x1401,
    0x1501, 0x1502, 0x1503, 0x1505, 0x1506, 0x1507, 0x0000, 0xffff, 0x2fff, 0x1fff,
];

fn random_bytes(r: &mut Rng, max: u64) -> Vec<u8> {
    let mut v = vec![0; r.below(max) as usize];
    match r.below(3) {
        0 => r.fill(&mut v),
        1 => v.fill(r.below(4) as u8),
        // Lengths that are nearly right.
        _ => v.iter_mut().step_by(4).for_each(|b| *b = r.below(6) as u8),
    }
    v
}

fn random_op(r: &mut Rng) -> OsdOp {
    let mut op = OsdOp::with_indata(OpCode(CODES[r.below(CODES.len() as u64) as usize]), random_bytes(r, 80).into());
    op.flags = r.below(4) as u32;
    match r.below(4) {
        0 => r.fill(&mut op.raw),
        1 => op.raw.fill(0xff),
        // Small numbers: lengths and offsets within objects.
        _ => op.raw.iter_mut().step_by(8).for_each(|b| *b = r.below(90) as u8),
    }
    if r.chance(1, 8) {
        let (class, method) =
            [("lock", "lock"), ("rbd", "create"), ("hello", "record_hello"), ("refcount", "put")][r.below(4) as usize];
        op = OsdOp::call(class, method, &random_bytes(r, 60));
    }
    op
}

#[test]
fn any_operation_is_answered() {
    let seeds: Vec<u64> = match std::env::var("PG_SEED") {
        Ok(s) => vec![s.parse().unwrap()],
        Err(_) => (0..std::env::var("PG_SEEDS").map_or(12, |n| n.parse().unwrap())).collect(),
    };
    for seed in seeds {
        println!("seed {seed}");
        let mut r = Rng::new(seed);
        let mut w = World::with_store(MemStore::new().with_waits(seed));
        w.pool.flags |= pg::map::pool_flags::SELFMANAGED_SNAPS;
        w.next_map();
        for i in 0..600 {
            let ops: Vec<OsdOp> = (0..1 + r.below(4)).map(|_| random_op(&mut r)).collect();
            let name = ["a", "b", "c", ""][r.below(4) as usize];
            let mut q = w.request(1 + r.below(3), name, ops);
            q.msg.flags |= r.next_u64() as u32 & 0x0710_0040;
            if r.chance(1, 10) {
                q.msg.snapid = SnapId([1, 3, u64::MAX, u64::MAX - 3][r.below(4) as usize]);
            }
            if r.chance(1, 10) {
                q.msg.snapc.seq = SnapId(r.below(9));
                q.msg.snapc.snaps = (0..r.below(4)).map(|_| SnapId(r.below(9))).collect();
            }
            if r.chance(1, 10) {
                q.msg.locator.nspace = Bytes::from_static(b"n");
            }
            let shown = format!("seed {seed} #{i}: {:?}", q.msg.ops);
            let key = w.send(q);
            w.settle();
            for f in std::mem::take(&mut w.fetches) {
                w.handle(Event::Fetched(f.id, Err(base::errno::ENOENT)));
            }
            assert!(w.replies.remove(&key).is_some(), "{shown}");
            assert!(w.pg.is_active(), "{shown}");
            w.watch.clear();
        }
        w.restart();
        assert!(w.pg.info().stats.num_objects >= 0);
    }
}
