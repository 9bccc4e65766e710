//! The client captures were made with known commands: decoded operations must have the commands' arguments, and the
//! payloads of the replies must decode.

mod support;

use base::{HObject, SnapId};
use std::collections::BTreeMap;
use wire::msg::osd_op::WatchArgs;
use wire::msg::*;
use wire::types::*;
use wire::{Decode, Message, WireMessage};

/// Operations on captured connections whose names start with `prefix`, each with its message and its reply.
fn operations(prefix: &str) -> Vec<(MOsdOp, OsdOp, OsdOp)> {
    let messages: Vec<(String, Message)> =
        support::messages().into_iter().filter(|(at, _)| at.starts_with(prefix)).collect();
    let connection = |at: &str| at.split(".c2s").next().unwrap().split(".s2c").next().unwrap().to_owned();
    let replies: BTreeMap<(String, u64), MOsdOpReply> = messages
        .iter()
        .filter(|(_, m)| m.header.kind == MOsdOpReply::KIND)
        .map(|(at, m)| ((connection(at), m.header.tid), MOsdOpReply::from_message(m).unwrap()))
        .collect();
    let mut out = Vec::new();
    for (at, m) in messages.iter().filter(|(_, m)| m.header.kind == MOsdOp::KIND) {
        let op = MOsdOp::from_message(m).unwrap();
        let Some(reply) = replies.get(&(connection(at), op.tid)) else { continue };
        assert_eq!(op.oid, reply.oid);
        assert_eq!(op.ops.len(), reply.ops.len());
        for (o, r) in op.ops.iter().zip(&reply.ops) {
            // The reply echoes the rest of the union, except lengths, which are those of the output.
            assert_eq!(o.op, r.op);
            out.push((op.clone(), o.clone(), r.clone()));
        }
    }
    assert!(!out.is_empty());
    out
}

#[test]
fn of_the_python_program() {
    let all = operations("py.");
    let find = |op: OpCode, oid: &str| {
        all.iter().find(|(m, o, _)| o.op == op && m.oid == oid).unwrap_or_else(|| panic!("{op} on {oid}"))
    };

    let (_, o, _) = find(OpCode::WRITE, "a");
    assert_eq!((o.extent().offset, o.extent().length, &o.indata[..]), (3, 2, &b"XY"[..]));
    let (_, _, r) = find(OpCode::READ, "a");
    assert_eq!(&r.outdata[..], b"helXY worldtail");
    assert_eq!(r.rval, 0, "a read's result is not its length");
    let (_, o, _) = find(OpCode::TRUNCATE, "a");
    assert_eq!(o.extent().offset, 8);
    let (_, o, _) = find(OpCode::SETXATTR, "a");
    assert_eq!(o.xattr_payload().unwrap(), ("k".into(), "v".into()));
    let (_, o, r) = find(OpCode::CALL, "a");
    let (class, method, _) = o.cls_payload().unwrap();
    assert_eq!((class, method, r.outdata.len()), (&b"nope"[..], &b"nope"[..], 0));
    let (_, o, _) = find(OpCode::WRITESAME, "b");
    assert_eq!((o.writesame().offset, o.writesame().length, o.writesame().data_length), (16, 8, 2));
    let (_, _, r) = find(OpCode::OMAPGETVALS, "a");
    let (vals, more) = <(BTreeMap<String, bytes::Bytes>, bool)>::from_bytes(&r.outdata).unwrap();
    assert_eq!(vals.keys().collect::<Vec<_>>(), ["k1", "k3"]);
    assert!(!more);
    let (_, _, r) = find(OpCode::READ, "missing");
    assert_eq!(r.outdata.len(), 0);
    let (m, _, _) = find(OpCode::WRITEFULL, "n1");
    assert_eq!(&m.locator.nspace[..], b"ns");
    let (m, _, _) = find(OpCode::WRITEFULL, "l1");
    assert_eq!(&m.locator.key[..], b"lockey");
    let (_, o, _) = find(OpCode::ROLLBACK, "a");
    assert_eq!(o.snap(), SnapId(1));
    let (m, _, _) = all.iter().rfind(|(m, o, _)| m.oid == "sm" && o.op == OpCode::WRITE).unwrap();
    assert!(m.snapc.is_valid() && m.snapc.snaps.len() == 2);
    let watches: Vec<u8> = all.iter().filter(|(_, o, _)| o.op == OpCode::WATCH).map(|(_, o, _)| o.watch().op).collect();
    assert!(watches.contains(&WatchArgs::WATCH) && watches.contains(&WatchArgs::UNWATCH));
    let (_, o, r) = find(OpCode::NOTIFY, "a");
    assert_eq!(&NotifyArgs::from_bytes(&o.indata).unwrap().payload[..], b"msg");
    assert_eq!(r.outdata.len(), 8);
}

/// Results that clients do not show: they use a read's output and only the sign of the result.
#[test]
fn results_of_real_osds() {
    let mut seen = BTreeMap::new();
    for (at, m) in support::messages().into_iter().filter(|(_, m)| m.header.kind == MOsdOpReply::KIND) {
        let r = MOsdOpReply::from_message(&m).unwrap();
        let [op] = &r.ops[..] else { continue };
        *seen.entry((op.op.name(), r.result, op.rval)).or_insert(0) += 1;
        match op.op {
            // The result of a read of 15 bytes is 0, too; only PG listings return a positive number, 1, at their end.
            OpCode::READ | OpCode::STAT | OpCode::GETXATTR | OpCode::SPARSE_READ => assert!(r.result <= 0, "{at}"),
            OpCode::PGNLS => assert!((0..=1).contains(&r.result), "{at}"),
            _ => {}
        }
    }
    // A read of a missing object fails before its operations run.
    assert!(seen.contains_key(&("read", -2, 0)));
    assert!(seen.contains_key(&("delete", -2, -2)));
    assert!(seen.contains_key(&("getxattr", -61, -61)));
    // A class outside the allowed list is refused without a lookup.
    assert!(seen.contains_key(&("call", -1, 0)));
}

#[test]
fn of_listings() {
    let mut names = Vec::new();
    let mut ends = 0;
    for (m, o, r) in operations("py.").into_iter().filter(|(_, o, _)| o.op == OpCode::PGNLS) {
        assert!(o.pgls().count > 0 && m.oid.is_empty());
        HObject::from_bytes(&o.indata).unwrap();
        let l = PgNlsReply::from_bytes(&r.outdata).unwrap();
        ends += usize::from(l.handle.max);
        names.extend(l.entries.into_iter().map(|e| (e.nspace, e.oid, e.locator)));
    }
    names.sort();
    assert!(ends > 0);
    let has = |n: &'static str, o: &'static str, l: &'static str| names.contains(&(n.into(), o.into(), l.into()));
    assert!(has("", "a", "") && has("ns", "n1", "") && has("", "l1", "lockey"), "{names:?}");
}

#[test]
fn of_snapshots_and_watchers() {
    let all = operations("");
    let (_, _, r) = all.iter().find(|(m, o, _)| o.op == OpCode::LIST_SNAPS && m.oid == "sm").unwrap();
    let l = ListSnapsReply::from_bytes(&r.outdata).unwrap();
    assert!(l.seq >= 2 && matches!(&l.clones[..], [c] if c.snaps == [c.cloneid]), "{l:?}");
    let (_, _, r) = all.iter().find(|(_, o, r)| o.op == OpCode::LIST_WATCHERS && r.outdata.len() > 20).unwrap();
    let w = ListWatchersReply::from_bytes(&r.outdata).unwrap();
    assert_eq!((w.entries.len(), w.entries[0].timeout_seconds), (1, 30));
}

#[test]
fn of_notifies() {
    let mut complete = 0;
    for (_, m) in support::messages().into_iter().filter(|(_, m)| m.header.kind == MWatchNotify::KIND) {
        let n = MWatchNotify::from_message(&m).unwrap();
        if n.opcode == watch_event::NOTIFY_COMPLETE && !n.data.is_empty() {
            let r = NotifyReply::from_bytes(&n.data).unwrap();
            assert_eq!(r.timeouts.len(), 0);
            complete += 1;
        }
    }
    assert!(complete > 5);
}
