//! Wall-clock time of encoding and decoding the I/O path's messages; run it with `cargo bench -p belemnite-wire`.

use base::{PgId, PoolId, SpgId};
use bytes::Bytes;
use std::hint::black_box;
use std::time::Instant;
use wire::msg::{MOsdOp, MOsdOpReply, OpCode, OsdOp};
use wire::types::ObjectLocator;
use wire::{Features, Message, WireMessage};

const ROUNDS: u32 = 2_000_000;

fn time<R>(what: &str, mut f: impl FnMut() -> R) {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        black_box(f());
    }
    println!("{what}: {:.1} ns", start.elapsed().as_nanos() as f64 / f64::from(ROUNDS));
}

fn main() {
    let op = MOsdOp {
        pgid: SpgId::from(PgId::new(2, 7)),
        oid: Bytes::from_static(b"rbd_data.10226b8b4567.0000000000000000"),
        locator: ObjectLocator::new(PoolId(2)),
        ops: [
            OsdOp::new(OpCode::SETALLOCHINT),
            OsdOp::with_extent(OpCode::WRITE, 8192, 4096, Bytes::from(vec![7; 4096])),
        ]
        .into_iter()
        .collect(),
        ..MOsdOp::default()
    };
    let m: Message = op.to_message(Features::PACIFIC);
    time("decode a write of 4 KiB", || MOsdOp::from_message(&m));
    time("encode a write of 4 KiB", || op.to_message(Features::PACIFIC));
    let mut read = OsdOp::with_extent(OpCode::READ, 0, 4096, Bytes::new());
    read.outdata = Bytes::from(vec![1; 4096]);
    let reply = MOsdOpReply { oid: op.oid.clone(), ops: [read].into_iter().collect(), ..MOsdOpReply::default() };
    time("encode a reply with 4 KiB", || reply.to_message(Features::PACIFIC));
}
