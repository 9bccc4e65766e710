//! Tests of the store in memory.

use super::*;
use base::{HObject, PgId};

fn oid(n: u8) -> Oid {
    HObject { oid: Bytes::copy_from_slice(&[n]), hash: u32::from(n), ..HObject::min() }.into()
}

#[test]
fn writes_read_back_and_holes_are_zero() {
    let (cid, mut s) = (Cid::Pg(PgId::new(1, 0).into()), MemStore::new().with_waits(7));
    let ops = vec![
        Op::MakeCollection { cid, bits: 0 },
        Op::Write { cid, oid: oid(1), off: 5000, data: Bytes::from_static(b"abc"), sums: None },
        Op::Clone { cid, src: oid(1), dst: oid(2) },
        Op::Truncate { cid, oid: oid(1), size: 5001 },
        Op::Truncate { cid, oid: oid(1), size: 20000 },
    ];
    s.submit(Tag(1), Transaction { ops });
    assert_eq!(s.poll_event(), Some(Event::Durable(Tag(1), Ok(()))));
    let read = |s: &mut MemStore, o: u8| loop {
        match s.read(Tag(9), cid, &oid(o), 4999, 5) {
            Err(ReadError::Wait) => assert_eq!(s.poll_event(), Some(Event::Ready(Tag(9)))),
            r => break r,
        }
    };
    assert_eq!(read(&mut s, 1).unwrap().as_ref(), b"\0a\0\0\0");
    assert_eq!(read(&mut s, 2).unwrap().as_ref(), b"\0abc");
    assert_eq!(s.collection_usage(cid), (2, 4096 + 4096 - (8192 - 5003), 0));
    let rm = Transaction { ops: vec![Op::RemoveCollection { cid }] };
    assert!(matches!(s.prepare(Tag(2), &rm), Err(ReadError::Io { errno: errno::ENOTEMPTY, .. })));
}
