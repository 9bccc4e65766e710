//! Peak of memory while a PG plans requests that name much and send little. Whatever a request makes is bounded before
//! it is built.

#[path = "../../pg/tests/common/mod.rs"]
mod common;

use base::errno::{EFBIG, EINVAL, EMSGSIZE};
use base::sizes::{OUTPUT_MAX, VALUE_MAX, VECTOR_ENTRIES_MAX, VECTOR_METADATA_MAX, VECTOR_PAYLOAD_MAX};
use bytes::Bytes;
use common::*;
use hostile::meter::{Meter, peak_of};
use pg::{Event, Fetched};
use std::collections::BTreeMap;
use wire::msg::osd_op::WriteSameArgs;
use wire::msg::{OpCode, OsdOp, op_flags};

#[global_allocator]
static METER: Meter = Meter;

const MIB: usize = 1 << 20;

/// The result of the request, and its peak in MiB.
fn run(w: &mut World, ops: Vec<OsdOp>) -> (i32, usize) {
    let r = w.request(1, "a", ops);
    let (reply, peak) = peak_of(|| w.call(r).result);
    (reply, peak / MIB)
}

fn same(len: usize) -> OsdOp {
    let mut o = OsdOp::with_indata(OpCode::WRITESAME, vec![7; 1 << 16].into());
    o.set_writesame(WriteSameArgs { offset: 0, length: len as u64, data_length: 1 << 16 });
    with_flags(o, op_flags::FAILOK)
}

/// A list of `n` elements that claims to have `says`.
fn list(says: u32, n: usize, element: &[u8]) -> Bytes {
    [&says.to_le_bytes()[..], &element.repeat(n)].concat().into()
}

#[test]
fn requests_take_no_more_than_the_table_of_sizes_says() {
    assert!(peak_of(|| vec![0u8; 3 * MIB]).1 >= 3 * MIB, "the meter counts");
    let mut w = World::new();
    // Expansion: a thousand times 64 MiB, of which FAILOK excuses what is too much.
    let (_, peak) = run(&mut w, vec![same(VECTOR_PAYLOAD_MAX / 2); 1000]);
    // The store has its own copy.
    assert!(peak <= 2 * VECTOR_PAYLOAD_MAX / MIB, "{peak} MiB for expansions");

    // Lists that claim or have too many elements.
    let too_many = VECTOR_ENTRIES_MAX + 1;
    for (code, element) in [(OpCode::OMAPSETVALS, 8), (OpCode::OMAPRMKEYS, 4), (OpCode::OMAPGETVALSBYKEYS, 4)] {
        let zeros = vec![0; element];
        let (result, peak) = run(&mut w, vec![OsdOp::with_indata(code, list(u32::MAX, 10, &zeros))]);
        assert!(result == EINVAL && peak < 2, "{code}: {result}, {peak} MiB for a false count");
        let (result, peak) = run(&mut w, vec![OsdOp::with_indata(code, list(too_many as u32, too_many, &zeros))]);
        assert!(result == EMSGSIZE && peak < 2, "{code}: {result}, {peak} MiB for too many");
    }

    // Values that a small request names, a hundred times as much as an answer may have.
    let value = vec![7; 8 * MIB];
    let keys: Vec<String> = (0..64).map(|i| format!("k{i}")).collect();
    for k in keys.chunks(8) {
        let all: BTreeMap<Bytes, Bytes> = k.iter().map(|k| (bytes(k.as_bytes()), bytes(&value))).collect();
        assert_eq!(w.op("a", vec![encoded(OpCode::OMAPSETVALS, &all)]).result, 0);
    }
    let all: Vec<Bytes> = keys.iter().map(|k| bytes(k.as_bytes())).collect();
    let (result, peak) = run(&mut w, vec![encoded(OpCode::OMAPGETVALSBYKEYS, &all); 50]);
    assert!(result == EMSGSIZE && peak <= OUTPUT_MAX / MIB + 16, "{result}, {peak} MiB for values");
    assert_eq!(w.op("a", vec![simple(OpCode::DELETE)]).result, 0);

    // All attributes of an object, again and again.
    assert_eq!(w.op("a", vec![setxattr("x", &vec![7; VALUE_MAX])]).result, 0);
    let (result, peak) = run(&mut w, vec![xattr(OpCode::GETXATTRS, ""); 100]);
    assert!(
        result == EMSGSIZE && peak <= OUTPUT_MAX / MIB + 2 * VALUE_MAX / MIB,
        "{result}, {peak} MiB for attributes"
    );
}

/// A source whose omap has no end.
#[test]
fn a_copy_takes_no_more_than_a_request() {
    let mut w = World::new();
    let source = (bytes(b"b"), wire::types::ObjectLocator::new(base::PoolId(POOL)));
    let r = w.request(1, "a", vec![encoded(OpCode::COPY_FROM, &source)]);
    let key = w.send(r);
    let (parts, peak) = peak_of(|| {
        let mut parts = 0;
        while let Some(f) = w.fetches.pop() {
            parts += 1;
            let data = chunk(parts);
            w.handle(Event::Fetched(f.id, Ok(Fetched { data, user_version: 5 })));
        }
        parts
    });
    assert_eq!(w.replies.remove(&key).map(|r| r.result), Some(EFBIG));
    let peak = peak / MIB;
    assert!(parts > 10 && peak <= 2 * VECTOR_METADATA_MAX / MIB, "{parts} parts, {peak} MiB");
}

/// One part of an endless omap, of 4 MiB.
fn chunk(n: usize) -> Bytes {
    let omap: Vec<(Bytes, Bytes)> =
        (0..4).map(|i| (Bytes::from(format!("{n:08}.{i}")), Bytes::from(vec![7; MIB]))).collect();
    let mut w = wire::Writer::new(wire::Features::PACIFIC);
    w.versioned(1, 1, |w| {
        w.versioned(1, 1, |w| {
            w.bool(true);
            w.u64(0);
            w.bool(true);
            w.blob(format!("{n:08}.3").as_bytes());
            w.bool(false);
        });
        w.u64(0);
        w.put(&base::Utime::ZERO);
        w.u64(5);
        w.u32(0);
        w.u64(0);
        w.bool(true);
        w.put(&Vec::<(Bytes, Bytes)>::new());
        w.put(&Bytes::new());
        w.put(&Bytes::new());
        w.put(&omap);
    });
    w.into_bytes()
}
