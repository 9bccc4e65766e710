//! Every kind of message, written and read.

use super::codec::{ACTIVATED_UNSIZED, SHARD_READ_FROM};
use super::*;
use base::PgId;
use std::collections::BTreeSet;
use store::Cid;
use store::Oid;
use wire::msg::PeerFeatures;

fn scrub_bodies(head: &HObject, v: Eversion) -> Vec<Body> {
    use crate::scrub::map::{Family, ScrubAttr, ScrubObject};
    use crate::scrub::message::{Answer, Ask};
    let o = ScrubObject {
        attrs: vec![ScrubAttr::new(Bytes::from_static(b"_x"), Bytes::from_static(b"value"))],
        data_digest: Some(7),
        ..ScrubObject::default()
    };
    let ask = |ask| ScrubMsg::Ask { n: 3, seq: 9, ask };
    let answer = |answer| ScrubMsg::Answer { n: 3, answer };
    [
        ask(Ask::Reserve),
        ask(Ask::List { begin: HObject::min(), end: HObject::max() }),
        ask(Ask::Scan { heads: vec![head.clone()], deep: true }),
        ask(Ask::Lack(vec![(head.clone(), v)])),
        answer(Answer::Reserved(true)),
        answer(Answer::Listed { upto: head.clone(), heads: vec![head.clone()] }),
        answer(Answer::Scanned(vec![Family { head: head.clone(), objects: vec![o] }])),
        answer(Answer::Lacks),
        answer(Answer::Failed),
        ScrubMsg::Release { n: 5 },
        ScrubMsg::Done { history: Box::default(), counts: [1, -2, 3, 4], delta: Default::default() },
    ]
    .into_iter()
    .map(|m| Body::Scrub(Box::new(m)))
    .collect()
}

/// Checks that the table of docs/design/osd-peers.md has the names and codes of these bodies, and no others.
fn the_document_names_all(bodies: &[Body]) {
    let doc = include_str!("../../../../../docs/design/osd-peers.md");
    let rows = doc.lines().skip_while(|l| !l.starts_with("| body | code |")).skip(2);
    let row = |l: &str| {
        let mut cells = l.split('|').map(str::trim).skip(1);
        Some((cells.next()?.trim_matches('`').to_owned(), cells.next()?.parse::<u8>().ok()?))
    };
    let documented: BTreeSet<(String, u8)> = rows.map_while(row).collect();
    let name = |b: &Body| format!("{b:?}").chars().take_while(|c| c.is_alphanumeric()).collect::<String>();
    let coded: BTreeSet<(String, u8)> = bodies.iter().map(|b| (name(b), b.encode().0[0])).collect();
    assert_eq!(documented, coded);
}

#[test]
fn an_osd_without_pages_gets_and_sends_no_size() {
    let b = Body::Activated { missing: Vec::new(), frame: 7 };
    let (body, data) = b.encode_for(PeerFeatures::PARTS);
    let cid = Cid::Pg(PgId::new(3, 1).into());
    assert_eq!(body[0], ACTIVATED_UNSIZED);
    let back = Body::decode(&body, &data, cid).unwrap();
    assert_eq!(back, Body::Activated { missing: Vec::new(), frame: u64::MAX });
    // A page of something else.
    assert!(Body::decode(&[&[SHARD_READ_FROM][..], &[0; 80]].concat().into(), &Bytes::new(), cid).is_err());
}

/// A message of each kind, without those of scrubs.
fn plain_bodies(cid: Cid, head: &HObject, v: Eversion) -> Vec<Body> {
    let ops =
        vec![Op::Write { cid, oid: Oid::new(head.clone()), off: 0, data: Bytes::from_static(b"xyz"), sums: None }];
    let info = Box::new(PgInfo { last_update: Eversion::new(3, 4), ..PgInfo::default() });
    let records = vec![Bytes::from_static(b"record")];
    vec![
        Body::Query,
        Body::Notify { info: info.clone(), absent: true, grants: vec![(OsdId(3), 7)] },
        Body::GetLog { last_update: v, les: Epoch(4), upto: Eversion::new(2, 3) },
        Body::Log { since: v, info: info.clone(), records: records.clone() },
        Body::Activate { les: Epoch(3), since: v, reset: true, info, records: records.clone() },
        Body::Activated { missing: vec![(head.clone(), v)], frame: 1 << 20 },
        Body::Started { history: Box::default(), clean: true },
        Body::Rewind { since: v, records: records.clone() },
        Body::Write { first: 5, seq: 7, stable: 6, trim: Some(v), records, ops: ops.clone() },
        Body::GetTouched { since: v },
        Body::Touched { since: v, upto: Eversion::new(2, 9), entries: vec![(v, 5), (Eversion::new(2, 9), u32::MAX)] },
        Body::WriteAck { seq: 3 },
        Body::Pull { head: head.clone(), need: v, urgent: true },
        Body::NoPull { head: head.clone() },
        Body::Push { id: 4, n: 1, last: true, background: true, head: head.clone(), ops },
        Body::PushAck { id: 4, n: 1 },
        Body::PushStop { id: 4, n: 1, again: true },
        Body::Piece { place: Place { id: 4, n: 1, body: 2, data: 5 }, bytes: Bytes::from_static(b"piece") },
        Body::Heard { id: 4, next: 2 },
        Body::Scan { begin: HObject::min(), end: HObject::max() },
        Body::Digest { begin: HObject::min(), end: head.clone(), objects: vec![(head.clone(), 5)] },
        Body::Backfilled { upto: head.clone() },
        Body::Remove,
        Body::Stable { seq: 9 },
        Body::Lacks { objects: vec![(head.clone(), v)] },
        Body::Reserve(ReserveMsg::Ask { n: 1, fill: Some(7), priority: 180 }),
        Body::Reserve(ReserveMsg::Ask { n: 1, fill: None, priority: 100 }),
        Body::Have { heads: vec![head.clone()] },
        Body::Versions { versions: vec![(head.clone(), v)] },
        Body::ShardRead {
            id: 4,
            n: 2,
            seq: 9,
            family: Some(head.clone()),
            from: None,
            items: vec![ReadItem { oid: head.clone(), version: v, since: Eversion::new(2, 1), off: 4096, len: 8192 }],
        },
        Body::ShardData {
            id: 4,
            n: 2,
            family: Some(vec![(head.clone(), vec![(Bytes::from_static(b"_"), Bytes::from_static(b"oi"))])]),
            more: None,
            found: vec![Ok(Bytes::from_static(b"bytes")), Err(-5), Ok(Bytes::new())],
        },
        Body::Reserve(ReserveMsg::Granted { n: 2 }),
        Body::Reserve(ReserveMsg::TooFull { n: 3 }),
        Body::Reserve(ReserveMsg::Revoked { n: 4 }),
        Body::Reserve(ReserveMsg::Release { n: 5 }),
        Body::Reserve(ReserveMsg::Released { n: 6 }),
    ]
}

#[test]
fn bodies_round_trip_and_are_refused_when_cut() {
    let cid = Cid::Pg(PgId::new(3, 1).into());
    let head = HObject { oid: Bytes::from_static(b"a"), ..HObject::min() }.head();
    let v = Eversion::new(2, 2);
    let all = plain_bodies(cid, &head, v).into_iter();
    let all: Vec<Body> = all.chain(scrub_bodies(&head, v)).chain([Body::Failed { errno: 5 }]).collect();
    the_document_names_all(&all);
    let pages = [
        Body::ShardRead {
            id: 4,
            n: 2,
            seq: 9,
            family: Some(head.clone()),
            from: Some(head.clone()),
            items: Vec::new(),
        },
        Body::ShardData { id: 4, n: 2, family: Some(Vec::new()), more: Some(head.clone()), found: Vec::new() },
    ];
    for b in all.into_iter().chain(pages) {
        let (body, data) = b.encode();
        assert_eq!(Body::decode(&body, &data, cid).unwrap(), b);
        for n in 0..body.len() {
            assert!(Body::decode(&body.slice(..n), &data, cid).is_err(), "{b:?} cut at {n}");
        }
    }
}

#[test]
fn a_glance_at_a_message_finds_what_decoding_does() {
    let cid = Cid::Pg(PgId::new(3, 1).into());
    let head =
        HObject { oid: Bytes::from_static(b"name"), key: Bytes::from_static(b"key"), hash: 77, ..HObject::min() };
    let oid = Oid::new(head.clone());
    let v = Eversion::new(2, 3);
    let write = |trim, records: &[Bytes], ops| {
        let m = Body::Write { first: 5, seq: 7, stable: 6, trim, records: records.to_vec(), ops };
        m.encode().0
    };
    let data = Op::Write { cid, oid: oid.clone(), off: 8192, data: Bytes::from_static(b"xyz"), sums: None };
    let records = [Bytes::from_static(b"record"), Bytes::new()];
    let full = write(Some(v), &records, vec![data.clone()]);
    assert_eq!(peek_object(&full), Some((77, 8192)));
    assert_eq!(peek_object(&write(None, &[], vec![data.clone()])), Some((77, 8192)));
    assert_eq!(peek_object(&write(None, &records, vec![Op::Touch { cid, oid }, data])), Some((77, 0)));
    assert_eq!(peek_object(&write(None, &records, Vec::new())), None, "no change");
    for b in plain_bodies(cid, &head, v).iter().chain(&scrub_bodies(&head, v)) {
        let names = matches!(b, Body::Write { .. } | Body::ShardRead { .. });
        assert_eq!(peek_object(&b.encode().0).is_some(), names, "{b:?}");
    }
    // The length of the data, which comes last, is not needed.
    for n in 0..full.len() - size_of::<u32>() {
        assert_eq!(peek_object(&full[..n]), None, "cut at {n}");
    }
    let item = |off| ReadItem { oid: head.clone(), version: v, since: v, off, len: 4096 };
    let read = |family, items| {
        let from = None;
        Body::ShardRead { id: 4, n: 2, seq: 9, family, from, items }.encode().0
    };
    let full = read(Some(HObject { hash: 5, ..head.clone() }), vec![item(12_288), item(0)]);
    assert_eq!(peek_object(&full), Some((77, 12_288)));
    assert_eq!(peek_object(&read(None, vec![item(4096)])), Some((77, 4096)));
    assert_eq!(peek_object(&read(Some(head.clone()), Vec::new())), None, "no range");
    let first = full.len() - read(None, vec![item(0)]).len() + read(None, Vec::new()).len();
    for n in 0..first - size_of::<u64>() {
        assert_eq!(peek_object(&full[..n]), None, "cut at {n}");
    }
}
