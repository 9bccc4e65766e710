//! Does a request that reads one extent get the answer that a vector of several operations gives for the same read?
mod common;

use base::rng::Rng;
use common::*;
use wire::msg::osd_op::Extent;
use wire::msg::{MOsdOpReply, OpCode, OsdOp};

/// A read at random places around the ends of objects, of holes and of truncations.
fn any_read(rng: &mut Rng) -> OsdOp {
    let ends = [0, 1, 4095, 4096, 4097, 8191, 8192, 9000, 70_000, 127 << 20, u64::from(u32::MAX), u64::MAX];
    let mut at = || ends[rng.below(ends.len() as u64) as usize];
    let (off, len, cut) = (at(), at(), at());
    let mut op = read(off, len);
    let seq = rng.below(4) as u32;
    op.set_extent(Extent { truncate_seq: seq, truncate_size: if seq == 1 { u64::MAX } else { cut }, ..op.extent() });
    op
}

#[test]
fn a_single_read_is_answered_as_in_a_vector() {
    let mut w = World::new();
    let mut truncated = simple(OpCode::SETTRUNC);
    truncated.set_extent(Extent { truncate_seq: 2, truncate_size: 5000, ..truncated.extent() });
    for (name, ops) in [
        ("short", vec![write(0, b"0123456789")]),
        ("empty", vec![simple(OpCode::CREATE)]),
        ("holes", vec![write(4096, &[7; 100]), write(66_000, &[8; 3000])]),
        ("cut", vec![write(0, &[9; 9000]), truncated]),
    ] {
        assert_eq!(w.op(name, ops).result, 0, "{name}");
    }
    let shown = |r: &MOsdOpReply| {
        let e = r.ops[0].extent();
        (r.result, r.ops[0].rval, r.ops[0].outdata.clone(), (e.offset, e.length, e.truncate_seq, e.truncate_size))
    };
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let name = ["short", "empty", "holes", "cut", "absent"][rng.below(5) as usize];
        let op = any_read(&mut rng);
        let alone = w.op(name, vec![op.clone()]);
        let beside = w.op(name, vec![op.clone(), simple(OpCode::STAT)]);
        assert_eq!(shown(&alone), shown(&beside), "seed {seed}, {name}, {:?}", op.extent());
        assert_eq!((alone.user_version, alone.flags), (beside.user_version, beside.flags), "seed {seed}");
    }
}
