//! Do the tables of docs/design/msgr.md have the code's layouts, lengths and limits?
//!
//! Frames are encoded with values of their own for each field, and read again in the order of the table.

use auth::{ConMode, Method};
use base::{AddrVec, EntityAddr, EntityKind};
use bytes::Bytes;
use msgr::frame::*;
use msgr::{policy, secure};
use std::collections::BTreeMap;
use wire::codec::{Reader, Writer};
use wire::{Features, MsgHeader};

const DOC: &str = include_str!("../../../docs/design/msgr.md");

/// Cells of the rows of the table whose first heading is `name`.
fn rows(name: &str) -> Vec<Vec<&'static str>> {
    let head = format!("| {name} |");
    let cells = |l: &'static str| l.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
    let all: Vec<_> =
        DOC.lines().skip_while(|l| !l.starts_with(&head)).skip(2).map_while(|l| l.strip_prefix('|')).collect();
    assert!(!all.is_empty(), "no table of {name}");
    all.into_iter().map(cells).collect()
}

/// The two cells of each row of a table.
fn pairs(name: &str) -> Vec<(&'static str, &'static str)> {
    rows(name).into_iter().map(|r| (r[0], r[1])).collect()
}

/// Reads fields `(name, form)` from all of `b`. Integers are returned; a list or blob stands for its length.
fn walk<'a>(b: &[u8], fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> BTreeMap<&'a str, u64> {
    let mut r = Reader::new(b);
    let mut seen = BTreeMap::new();
    for (name, form) in fields {
        let v = match form {
            "u8" => r.u8().unwrap().into(),
            "u16" => r.u16().unwrap().into(),
            "u32" => r.u32().unwrap().into(),
            "u64" => r.u64().unwrap(),
            "i32" => u64::from(r.i32().unwrap().unsigned_abs()),
            "i64" => r.i64().unwrap().unsigned_abs(),
            "list" => r.get::<Vec<u32>>().unwrap().len() as u64,
            "blob" => r.blob().unwrap().len() as u64,
            "address" => r.get::<EntityAddr>().unwrap().nonce.into(),
            "addresses" => r.get::<AddrVec>().unwrap().0.len() as u64,
            n => r.take(n.parse().unwrap_or_else(|_| panic!("form {n}")), "bytes").unwrap().len() as u64,
        };
        assert_eq!(seen.insert(name, v), None, "{name} is there twice");
    }
    assert!(r.is_empty(), "{} bytes behind the last field", r.remaining());
    seen
}

fn payload(f: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new(Features::PACIFIC);
    f(&mut w);
    w.into_bytes()
}

fn addr(nonce: u32) -> EntityAddr {
    EntityAddr::msgr2("10.0.0.1:6800".parse().unwrap(), nonce)
}

#[test]
fn banner_preamble_and_message_header() {
    let seen = walk(&banner(), pairs("banner"));
    assert_eq!((seen["length of the rest"], seen["supported features"], seen["required features"]), (16, 1, 0));

    let (_, b) = Preamble::build(Tag::Message, [HEADER2_LEN, 5, 0, 7]);
    let seen = walk(&b, pairs("preamble"));
    let lens = [0, 1, 2, 3].map(|i| seen[format!("length of segment {i}").as_str()]);
    assert_eq!((seen["tag"], seen["number of segments"], lens), (17, 4, [HEADER2_LEN as u64, 5, 0, 7]));
    assert_eq!((seen["flags"], seen["crc"]), (0, u64::from(base::crc::crc32c(0, &b[..28]))));

    let h = MsgHeader { seq: 0, tid: 2, kind: 3, priority: 4, version: 5, compat: 6, data_off: 7 };
    let seen = walk(&header2(&h, 8, 9), pairs("message header"));
    let names =
        ["transaction number", "type", "priority", "version", "compat version", "data offset", "sequence number"];
    assert_eq!(names.map(|n| seen[n]), [2, 3, 4, 5, 6, 7, 8]);
    assert_eq!((seen["acknowledged sequence number"], seen["flags"]), (9, 1));
}

#[test]
fn tags_and_payloads() {
    let table = rows("number");
    let names: Vec<_> = table.iter().map(|r| (r[0].to_owned(), r[1])).collect();
    let tags = (1..=u8::MAX).map_while(|n| Some((n.to_string(), Tag::from_number(n)?.name())));
    assert_eq!(names, tags.collect::<Vec<_>>());

    let check = |tag: Tag, b: &[u8], want: &[(&str, u64)]| {
        let row = table.iter().find(|r| r[1] == tag.name()).unwrap();
        let fields: Vec<_> = row[2].split(", ").map(|f| f.rsplit_once(' ').unwrap()).collect();
        let seen = walk(b, fields);
        want.iter().for_each(|(name, v)| assert_eq!(seen.get(name), Some(v), "{name} of {}", tag.name()));
    };
    let (method, modes, data) = (Method(2), vec![1, 2], Bytes::from_static(b"abc"));
    let hello = Hello { kind: EntityKind::OSD, peer_addr: addr(3) };
    check(Tag::Hello, &payload(|w| hello.write(w)), &[("kind", 4), ("receiver", 3)]);
    let request = AuthRequest { method, modes: modes.clone(), payload: data.clone() };
    check(Tag::AuthRequest, &payload(|w| request.write(w)), &[("method", 2), ("modes", 2), ("data", 3)]);
    let bad = AuthBadMethod { method, result: -13, methods: vec![2], modes };
    let want = [("method", 2), ("errno", 13), ("methods", 1), ("modes", 2)];
    check(Tag::AuthBadMethod, &payload(|w| bad.write(w)), &want);
    let done = AuthDone { global_id: 7, mode: ConMode(1), payload: data };
    check(Tag::AuthDone, &payload(|w| done.write(w)), &[("gid", 7), ("mode", 1), ("data", 3)]);

    let (addrs, supported, required) = (AddrVec(vec![addr(1), addr(2)]), Features(4), Features(5));
    let (num, global_seq, flags, cookie) = (8, 9, 10, 11);
    let session = [("number", 8), ("attempts", 9), ("supported", 4), ("required", 5), ("flags", 10), ("cookie", 11)];
    let c = ClientIdent { addrs: addrs.clone(), target: addr(6), num, global_seq, supported, required, flags, cookie };
    check(Tag::ClientIdent, &payload(|w| c.write(w)), &[&session[..], &[("sender", 2), ("target", 6)]].concat());
    let s = ServerIdent { addrs: addrs.clone(), num, global_seq, supported, required, flags, cookie };
    check(Tag::ServerIdent, &payload(|w| s.write(w)), &[&session[..], &[("sender", 2)]].concat());
    let r = Reconnect { addrs, client_cookie: 1, server_cookie: 3, global_seq, connect_seq: 4, msg_seq: 5 };
    let want = [
        ("sender", 2),
        ("client-cookie", 1),
        ("server-cookie", 3),
        ("attempts", 9),
        ("connections", 4),
        ("received", 5),
    ];
    check(Tag::SessionReconnect, &payload(|w| r.write(w)), &want);
}

#[test]
fn lengths_and_limits() {
    let want = [
        ("banner", BANNER_LEN),
        ("preamble", PREAMBLE_LEN),
        ("message header", HEADER2_LEN),
        ("epilogue in crc mode", EPILOGUE_CRC_LEN),
        ("epilogue in secure mode", EPILOGUE_SECURE_LEN),
        ("GCM tag behind each run", secure::TAG_LEN),
        ("first run in secure mode with its tag", secure::FIRST_RUN),
    ];
    assert_eq!(pairs("length of"), want.map(|(n, v)| (n, v.to_string())).each_ref().map(|(n, v)| (*n, v.as_str())));
    assert!(DOC.contains(&format!("the first {} bytes of\n  segment 0", secure::INLINE)));

    let size = |n: usize| if n >= 1 << 20 { format!("{} MiB", n >> 20) } else { format!("{} KiB", n >> 10) };
    let want = [
        ("rest of the banner", format!("{} bytes", policy::BANNER_PAYLOAD_MAX)),
        ("frame before the peer has signed in, one segment", size(policy::FRAME_BYTES_MAX_PREAUTH)),
        ("control frame, one segment", size(policy::CONTROL_BYTES_MAX)),
        ("front of a message", size(policy::FRONT_BYTES_MAX)),
        ("middle of a message", size(policy::MIDDLE_BYTES_MAX)),
        ("data of a message", size(policy::DATA_BYTES_MAX)),
        (
            "segments of messages to monitors and managers, but those of monitors",
            size(msgr::FrameLimits::control_plane().data),
        ),
        ("encoded, unwritten output of a connection", size(policy::WINDOW_BYTES)),
        ("first buffer of a longer frame", size(policy::FIRST_BUFFER_BYTES)),
        ("modes or methods in a frame", policy::LIST_MAX.to_string()),
        ("addresses in an ident", policy::ADDRS_MAX.to_string()),
        ("all bytes before the peer has signed in", size(policy::PREAUTH_BYTES_MAX)),
        ("AUTH_REQUEST and AUTH_REQUEST_MORE frames", policy::AUTH_FRAMES_MAX.to_string()),
        ("failed authentications on a connection", policy::AUTH_ATTEMPTS_MAX.to_string()),
        ("unacknowledged messages until an ACK frame is sent at once", policy::UNACKED_MAX.to_string()),
        ("their bytes", size(policy::UNACKED_BYTES_MAX)),
    ];
    assert_eq!(pairs("limit of a frame"), want.each_ref().map(|(n, v)| (*n, v.as_str())));
}
