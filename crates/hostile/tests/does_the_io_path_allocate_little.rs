//! Number of memory allocations by messages of the I/O path; one more per operation is noticeable at a million of them.

use base::{PgId, PoolId, SpgId};
use bytes::Bytes;
use hostile::meter::{Meter, allocations_of};
use wire::msg::{MOsdOp, MOsdOpReply, OpCode, OsdOp};
use wire::types::ObjectLocator;
use wire::{Features, WireMessage};

#[global_allocator]
static METER: Meter = Meter;

/// A write as librbd sends it: an allocation hint and a write.
fn write_op() -> MOsdOp {
    MOsdOp {
        tid: 1,
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
    }
}

#[test]
fn decoding_an_operation_allocates_nothing() {
    let m = write_op().to_message(Features::PACIFIC);
    // The first clone of a buffer allocates its reference count, which buffers from the network already have.
    let _keep = (m.front.clone(), m.data.clone());
    let (op, n) = allocations_of(|| MOsdOp::from_message(&m).unwrap());
    assert_eq!(op.ops[1].indata.as_ptr(), m.data.as_ptr(), "the payload is shared");
    assert_eq!(n, 0);
}

#[test]
fn encoding_a_reply_allocates_its_front_alone() {
    let op = write_op();
    let mut read = OsdOp::with_extent(OpCode::READ, 0, 4096, Bytes::new());
    read.outdata = Bytes::from(vec![1; 4096]);
    let reply =
        MOsdOpReply { tid: 1, oid: op.oid, pgid: op.pgid.pg, ops: [read].into_iter().collect(), ..Default::default() };
    let _keep = reply.ops[0].outdata.clone();
    let (m, n) = allocations_of(|| reply.to_message(Features::PACIFIC));
    assert_eq!(m.data.as_ptr(), reply.ops[0].outdata.as_ptr(), "the output is shared");
    assert_eq!(n, 1);
}
