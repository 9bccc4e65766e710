//! Layouts that no capture contains, written by hand from the protocol's description; tested in both directions.

use base::{EntityKind, EntityName, Epoch, Eversion, HObject, PgId, PoolId, SnapId, SpgId};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use wire::msg::*;
use wire::types::*;
use wire::{Decode, Encode, Features, Message, Reader, WireMessage, Writer};

fn unhex(s: &str) -> Vec<u8> {
    let s: Vec<u8> = s.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    s.chunks(2).map(|p| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap()).collect()
}

fn message<M: WireMessage + PartialEq + Debug>(m: &M, front: &str) {
    let out = m.to_message(Features::PACIFIC);
    assert_eq!(&out.front[..], &unhex(front)[..], "{m:?}");
    assert_eq!(&M::from_message(&out).unwrap(), m);
}

fn structure<T: Encode + Decode + PartialEq + Debug>(v: &T, hex: &str) {
    let b = v.to_bytes(Features::PACIFIC);
    assert_eq!(&b[..], &unhex(hex)[..], "{v:?}");
    let mut r = Reader::shared(&b);
    assert_eq!(&T::decode(&mut r).unwrap(), v);
    assert!(r.is_empty());
}

/// `have` 0, no session monitor.
const PAXOS: &str = "0000000000000000 ffff 0000000000000000";
const FSID: &str = "000102030405060708090a0b0c0d0e0f";

fn fsid() -> base::id::Uuid {
    base::id::Uuid(std::array::from_fn(|i| i as u8))
}

#[test]
fn space_and_pool_statistics() {
    message(&MStatfs { fsid: fsid(), ..MStatfs::default() }, &format!("{PAXOS}{FSID} 00"));
    message(
        &MStatfs { fsid: fsid(), data_pool: Some(PoolId(3)), ..MStatfs::default() },
        &format!("{PAXOS}{FSID} 01 0300000000000000"),
    );
    message(
        &MStatfsReply { fsid: fsid(), version: 1, kb: 2, kb_used: 3, kb_avail: 4, num_objects: 5 },
        &format!("{FSID} 0100000000000000 0200000000000000 0300000000000000 0400000000000000 0500000000000000"),
    );
    message(
        &MGetPoolStats { fsid: fsid(), pools: vec!["p".into()], ..MGetPoolStats::default() },
        &format!("{PAXOS}{FSID} 01000000 01000000 70"),
    );
    message(
        &MGetPoolStatsReply { fsid: fsid(), per_pool: true, ..MGetPoolStatsReply::default() },
        &format!("{PAXOS}{FSID} 00000000 01"),
    );
}

#[test]
fn pool_operations() {
    message(
        &MPoolOp {
            fsid: fsid(),
            pool: 2,
            op: pool_op::CREATE_SNAP,
            snapid: SnapId(7),
            name: "s".into(),
            crush_rule: -1,
            ..MPoolOp::default()
        },
        &format!("{PAXOS}{FSID} 02000000 11000000 0000000000000000 0700000000000000 01000000 73 00 ffff"),
    );
    message(
        &MPoolOpReply {
            fsid: fsid(),
            reply_code: -2,
            epoch: Epoch(9),
            response_data: Some(Bytes::from_static(b"xy")),
            ..MPoolOpReply::default()
        },
        &format!("{PAXOS}{FSID} feffffff 09000000 01 02000000 7879"),
    );
}

#[test]
fn watch_notify_and_backoff() {
    message(
        &MWatchNotify {
            msg_ver: 1,
            opcode: watch_event::NOTIFY_COMPLETE,
            cookie: 2,
            ver: 3,
            notify_id: 4,
            payload: Bytes::from_static(b"z"),
            return_code: -110,
            notifier_gid: 5,
            data: Bytes::new(),
        },
        "01 02 0200000000000000 0300000000000000 0400000000000000 01000000 7a 92ffffff 0500000000000000",
    );
    structure(
        &NotifyReply { acks: BTreeMap::from([((1, 2), Bytes::from_static(b"a"))]), timeouts: BTreeSet::from([(3, 4)]) },
        "01000000 0100000000000000 0200000000000000 01000000 61 01000000 0300000000000000 0400000000000000",
    );
    let min = "04 03 21000000 00000000 00000000 0000000000000000 00000000 00 00000000 0000000000000080";
    let max = "04 03 21000000 00000000 00000000 0000000000000000 00000000 01 00000000 0000000000000080";
    message(
        &MOsdBackoff {
            pgid: SpgId::from(PgId::new(1, 2)),
            map_epoch: Epoch(3),
            op: backoff_op::BLOCK,
            id: 4,
            begin: HObject::min(),
            end: HObject::max(),
        },
        &format!("01 01 12000000 01 0100000000000000 02000000 ffffffff ff 03000000 01 0400000000000000 {min} {max}"),
    );
}

#[test]
fn file_system_names() {
    message(
        &MFsMapUser {
            epoch: Epoch(1),
            fsmap: FsMapUser {
                epoch: Epoch(1),
                legacy_client_fscid: 1,
                filesystems: vec![FsUserInfo { cid: 1, name: "a".into() }],
            },
        },
        "01000000 01 01 1b000000 01000000 01000000 01000000 01 01 09000000 01000000 01000000 61",
    );
}

#[test]
fn answers_of_object_operations() {
    structure(
        &ListWatchersReply {
            entries: vec![WatchItem {
                name: EntityName::new(EntityKind::CLIENT, 9),
                cookie: 1,
                timeout_seconds: 30,
                addr: base::EntityAddr::msgr2("127.0.0.1:6800".parse().unwrap(), 5),
            }],
        },
        "01 01 42000000 01000000 02 01 38000000 08 0900000000000000 0100000000000000 1e000000
         01 01 01 1c000000 02000000 05000000 10000000 0200 1a90 7f000001 0000000000000000",
    );
    structure(
        &ListSnapsReply {
            clones: vec![CloneInfo {
                cloneid: SnapId(2),
                snaps: vec![SnapId(1), SnapId(2)],
                overlap: vec![(0, 4096)],
                size: 5000,
            }],
            seq: 2,
        },
        "02 01 4a000000 01000000 01 01 38000000 0200000000000000 02000000 0100000000000000 0200000000000000
         01000000 0000000000000000 0010000000000000 8813000000000000 0200000000000000",
    );
    structure(
        &ListObject { nspace: Bytes::from_static(b"n"), oid: Bytes::from_static(b"o"), locator: Bytes::new() },
        "01000000 6e 01000000 6f 00000000",
    );
    structure(
        &NotifyArgs { prot_ver: 1, timeout_seconds: 10, payload: Bytes::from_static(b"p") },
        "01000000 0a000000 01000000 70",
    );
}

#[test]
fn locators() {
    let plain = ObjectLocator::new(PoolId(1));
    structure(&plain, "06 03 1c000000 0100000000000000 ffffffff 00000000 00000000 ffffffffffffffff");
    let hashed = ObjectLocator { hash: 5, key: Bytes::from_static(b"k"), ..plain };
    structure(&hashed, "06 06 1d000000 0100000000000000 ffffffff 01000000 6b 00000000 0500000000000000");
    let snapc = SnapContext { seq: SnapId(3), snaps: vec![SnapId(3), SnapId(1)] };
    structure(&snapc, "0300000000000000 02000000 0300000000000000 0100000000000000");
    assert!(snapc.is_valid());
    assert!(!SnapContext { seq: SnapId(2), ..snapc.clone() }.is_valid());
    assert!(!SnapContext { snaps: vec![SnapId(1), SnapId(3)], ..snapc }.is_valid());
}

#[test]
fn an_operation_with_payloads() {
    let mut watch = OsdOp::new(OpCode::WATCH);
    let args = osd_op::WatchArgs { cookie: 7, ver: 0, op: osd_op::WatchArgs::WATCH, gen_: 1, timeout: 30 };
    watch.set_watch(args);
    assert_eq!(watch.watch(), args);
    let ops: OpVec = [
        OsdOp::with_extent(OpCode::WRITE, 4096, 3, Bytes::from_static(b"abc")),
        OsdOp::call("lock", "lock", b"in"),
        OsdOp::with_xattr(OpCode::CMPXATTR, b"n", b"vv", 1, 2),
        watch,
    ]
    .into_iter()
    .collect();
    let op = MOsdOp {
        tid: 11,
        pgid: SpgId::from(PgId::new(1, 2)),
        hash: 0x1234_5678,
        oid: Bytes::from_static(b"obj"),
        locator: ObjectLocator::new(PoolId(1)),
        ops,
        retry_attempt: -1,
        ..MOsdOp::default()
    };
    let m = op.to_message(Features::PACIFIC);
    assert_eq!(m.header.tid, 11);
    assert_eq!(&m.data[..], b"abclocklockinnvv");
    let back = MOsdOp::from_message(&m).unwrap();
    assert_eq!(back, op);
    assert_eq!(back.ops[0].extent().offset, 4096);
    assert_eq!(back.ops[1].cls_payload().unwrap().1, b"lock");
    assert_eq!(back.ops[1].cls_payload().unwrap().2, "in");
    assert_eq!(back.ops[2].xattr_payload().unwrap().1, "vv");
    // The payloads are slices of the data segment, not copies.
    assert_eq!(back.ops[0].indata.as_ptr(), m.data.as_ptr());
    let sender = EntityName::new(EntityKind::CLIENT, 4100);
    assert_eq!(back.reqid_from(sender), base::ReqId { name: sender, tid: 11, inc: 0 });
}

#[test]
fn payloads_beyond_the_data_are_refused() {
    let op = MOsdOp {
        ops: [OsdOp::with_indata(OpCode::WRITE, Bytes::from_static(b"abc"))].into_iter().collect(),
        ..MOsdOp::default()
    };
    let mut m = op.to_message(Features::PACIFIC);
    m.data = m.data.slice(..2);
    assert!(MOsdOp::from_message(&m).is_err());
    // Lengths inside an operation are checked by the accessors.
    let mut call = OsdOp::call("lock", "lock", b"in");
    call.indata = Bytes::from_static(b"loc");
    assert_eq!(call.cls_payload(), None);
}

#[test]
fn a_tracing_block_of_newer_clients_is_skipped() {
    let op = MOsdOp { oid: Bytes::from_static(b"o"), ..MOsdOp::default() };
    let m = op.to_message(Features::PACIFIC);
    // The tracing block follows spg (24), hash, epoch, flags, reqid (27) and three trace ids.
    let at = 24 + 12 + 27 + 24;
    let front = [&m.front[..at], &unhex("01 01 03000000 aabbcc"), &m.front[at..]].concat();
    let mut v9 = Message { front: front.into(), ..m };
    v9.header.version = 9;
    assert_eq!(MOsdOp::from_message(&v9).unwrap(), op);
}

#[test]
fn a_reply_carries_results_and_output_in_order() {
    let mut read = OsdOp::with_extent(OpCode::READ, 0, 5, Bytes::new());
    read.outdata = Bytes::from_static(b"hello");
    read.rval = 5;
    let mut stat = OsdOp::new(OpCode::STAT);
    stat.outdata = Bytes::from_static(b"0123456789abcdef");
    let reply = MOsdOpReply {
        tid: 3,
        oid: Bytes::from_static(b"o"),
        pgid: PgId::new(1, 2),
        result: 5,
        osdmap_epoch: Epoch(4),
        ops: [read, stat].into_iter().collect(),
        replay_version: Eversion::new(4, 9),
        user_version: 8,
        redirect: Some(RequestRedirect { locator: ObjectLocator::new(PoolId(2)), object: Bytes::from_static(b"x") }),
        ..MOsdOpReply::default()
    };
    let m = reply.to_message(Features::PACIFIC);
    assert_eq!(&m.data[..], b"hello0123456789abcdef");
    assert_eq!(m.front.len(), reply.front_len_hint(), "the hint is exact");
    assert_eq!(MOsdOpReply::from_message(&m).unwrap(), reply);
}

#[test]
fn odd_values_of_primitives() {
    structure(&Span(-1), "00000000 ffffffff");
    structure(&Span(-1_500_000_000), "ffffffff 0065cde2".replace("0065cde2", "009b32e2").as_str());
    structure(
        &VarVec((0..200u8).collect::<Vec<_>>()),
        &format!("c801{}", (0..200).map(|i| format!("{i:02x}")).collect::<String>()),
    );
    let bad = Bytes::from_static(b"\x02\0\0\0\xff\xfe");
    assert_eq!(Text::from_bytes(&bad).unwrap().0, "\u{fffd}\u{fffd}");
    assert!(String::from_bytes(&bad).is_err());
    // A count beyond the input's length is refused before any allocation.
    assert!(Vec::<u64>::from_bytes(&Bytes::from_static(b"\xff\xff\xff\xff")).is_err());
    assert!(VarVec::<u8>::from_bytes(&Bytes::from_static(b"\xff\xff\xff\xff\x0f")).is_err());
}

#[test]
fn counters_are_packed_by_their_kind() {
    let values = [
        (10, CounterValue { value: 1, ..CounterValue::default() }),
        (5, CounterValue { value: 9, avgcount: 2, avgcount2: 2 }),
    ];
    let p = PackedCounters::from_values(values);
    structure(&p, "01 01 20000000 0100000000000000 0900000000000000 0200000000000000 0200000000000000");
    assert_eq!(p.values([10, 5]).unwrap(), [values[0].1, values[1].1]);
    assert!(p.values([5, 5]).is_err());
}

#[test]
fn addresses_for_peers_with_and_without_vectors() {
    let a = base::AddrVec(vec![
        base::EntityAddr::msgr2("10.0.0.1:6800".parse().unwrap(), 1),
        base::EntityAddr { kind: base::AddrKind::LEGACY, nonce: 1, sock: Some("10.0.0.1:6801".parse().unwrap()) },
    ]);
    for f in [Features::PACIFIC, Features(0)] {
        let mut w = Writer::new(f);
        w.put(&a);
        let b = w.into_bytes();
        let back = base::AddrVec::from_bytes(&b).unwrap();
        if f.msg_addr2() {
            assert_eq!(back, a);
        } else {
            assert_eq!(back.0, a.0[1..]);
        }
    }
}

#[test]
fn pg_states_have_names() {
    let s = pg_state::ACTIVE | pg_state::CLEAN | pg_state::SCRUBBING | pg_state::DEEP_SCRUB;
    assert_eq!(s & !0x3, s & !(pg_state::ACTIVE | pg_state::CREATING));
    assert_eq!(pg_state::to_string(s), "active+clean+scrubbing+deep");
    assert_eq!(pg_state::to_string(0), "unknown");
    assert_eq!(pg_state::from_name("wait"), Some(1 << 34));
    let mut p = PgStat::default();
    p.set_state(s | pg_state::WAIT);
    assert_eq!(p.state(), s | pg_state::WAIT);
}

#[test]
fn codes_say_what_they_do() {
    assert!(OpCode::READ.is_read() && !OpCode::READ.is_write());
    assert!(OpCode::SETXATTR.is_write() && OpCode::SETXATTR.is_attr());
    assert!(OpCode::CALL.is_cls() && !OpCode::CALL.is_read() && !OpCode::CALL.is_write());
    assert!(OpCode::TMAPUP.is_read() && OpCode::TMAPUP.is_write());
    assert!(OpCode::PGNLS.is_pg());
    assert_eq!(format!("{:?} {:?}", OpCode::OMAPGETVALS, OpCode(0x1299)), "omap-get-vals op 0x1299");
}
