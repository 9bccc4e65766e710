//! Structures inside blobs, which message decoders do not reach. Input: u8 selector, then the bytes.

use super::{ALLOC_DECODER, Family, select, there_and_back};
use crate::vectors;
use wire::msg::{NotifyReply, PackedCounters};
use wire::types::*;

pub(super) const FAMILY: Family = Family { name: "structures", run, seeds, alloc_fixed: ALLOC_DECODER, cost: 1 };

const DECODERS: &[fn(&[u8])] = &[
    there_and_back::<PgMapDigest>,
    there_and_back::<ServiceMap>,
    there_and_back::<DaemonConfig>,
    there_and_back::<MdsMap>,
    there_and_back::<FsMap>,
    there_and_back::<ListWatchersReply>,
    there_and_back::<ListSnapsReply>,
    there_and_back::<PgNlsReply>,
    there_and_back::<NotifyReply>,
    there_and_back::<NotifyArgs>,
    there_and_back::<PackedCounters>,
    there_and_back::<OsdSuperblock>,
    there_and_back::<MgrMap>,
    there_and_back::<PgInfo>,
    there_and_back::<base::AddrVec>,
    there_and_back::<base::HObject>,
    peer_body,
    pg_info,
    log_record,
    there_and_back::<InodeStat>,
    there_and_back::<SnapRealmInfo>,
];

fn cid() -> store::Cid {
    store::Cid::Pg(base::PgId::new(3, 1).into())
}

/// Messages between shards of a PG: u16 length of the body, body, and the rest is its data.
fn peer_body(input: &[u8]) {
    let Some((len, rest)) = input.split_at_checked(2) else { return };
    let n = usize::from(u16::from_le_bytes([len[0], len[1]])).min(rest.len());
    let (body, data) = rest.split_at(n);
    let (body, data) = (bytes::Bytes::copy_from_slice(body), bytes::Bytes::copy_from_slice(data));
    let glance = pg::peer::peek_object(&body);
    let Ok(b) = pg::peer::Body::decode(&body, &data, cid()) else { return };
    let first = match &b {
        pg::peer::Body::Write { ops, .. } => match ops.first() {
            Some(store::Op::Write { oid, off, .. }) => Some((oid.hobj.hash, *off)),
            _ => glance,
        },
        pg::peer::Body::ShardRead { items, .. } => items.first().map(|i| (i.oid.hash, i.off)),
        _ => None,
    };
    assert!(glance.is_none() || glance == first, "a glance sees what decoding does");
    let (body, data) = b.encode();
    let again = pg::peer::Body::decode(&body, &data, cid()).unwrap_or_else(|e| panic!("own encoding refused: {e}"));
    assert!(again == b, "encoding is not stable");
}

fn pg_info(input: &[u8]) {
    let Ok(i) = pg::info::PgInfo::from_blob(&bytes::Bytes::copy_from_slice(input)) else { return };
    assert!(pg::info::PgInfo::from_blob(&i.to_blob()).as_ref() == Ok(&i), "encoding is not stable");
}

fn log_record(input: &[u8]) {
    let Ok(e) = pg::log::LogEntry::from_record(&bytes::Bytes::copy_from_slice(input)) else { return };
    assert!(pg::log::LogEntry::from_record(&e.to_record()).as_ref() == Ok(&e), "encoding is not stable");
}

/// One body of each shape that has a count.
fn peer_seeds() -> Vec<Vec<u8>> {
    use pg::peer::Body;
    let head = base::HObject { oid: bytes::Bytes::from_static(b"a"), ..base::HObject::min() }.head();
    let oid = store::Oid::new(head.clone());
    let kv = vec![(bytes::Bytes::from_static(b"k"), bytes::Bytes::from_static(b"v"))];
    let ops = vec![
        store::Op::Write { cid: cid(), oid: oid.clone(), off: 0, data: bytes::Bytes::from_static(b"data"), sums: None },
        store::Op::SetAttrs { cid: cid(), oid: oid.clone(), attrs: kv.clone() },
        store::Op::OmapSet { cid: cid(), oid, entries: kv },
    ];
    let v = base::Eversion::new(2, 2);
    let records = vec![bytes::Bytes::from_static(b"record")];
    let all = [
        Body::Notify { info: Box::default(), absent: false, grants: vec![(base::OsdId(3), 7)] },
        Body::Activate { les: base::Epoch(3), since: v, reset: false, info: Box::default(), records: records.clone() },
        Body::Scrub(Box::new(pg::scrub::message::ScrubMsg::Ask {
            n: 3,
            seq: 9,
            ask: pg::scrub::message::Ask::Scan { heads: vec![head.clone()], deep: true },
        })),
        Body::Scrub(Box::new(pg::scrub::message::ScrubMsg::Answer {
            n: 3,
            answer: pg::scrub::message::Answer::Scanned(vec![pg::scrub::map::Family {
                head: head.clone(),
                objects: vec![pg::scrub::map::ScrubObject::default()],
            }]),
        })),
        Body::Activated { missing: vec![(head.clone(), v)], frame: 0 },
        Body::ShardData { id: 4, n: 2, family: Some(Vec::new()), more: Some(head.clone()), found: Vec::new() },
        Body::ShardRead {
            id: 4,
            n: 2,
            seq: 9,
            family: Some(head.clone()),
            from: None,
            items: vec![pg::peer::ReadItem { oid: head.clone(), version: v, since: v, off: 4096, len: 4096 }],
        },
        Body::Write { first: 7, seq: 7, stable: 6, trim: Some(v), records, ops: ops.clone() },
        Body::Push { id: 4, n: 1, last: true, background: true, head: head.clone(), ops },
        Body::Digest { begin: base::HObject::min(), end: head.clone(), objects: vec![(head, 5)] },
    ];
    let seed = |b: &Body| {
        let (body, data) = b.encode();
        [&(body.len() as u16).to_le_bytes()[..], &body, &data].concat()
    };
    all.iter().map(seed).collect()
}

fn run(input: &[u8]) {
    if let Some((decode, rest)) = select(DECODERS, input) {
        decode(rest);
    }
}

fn unhex(s: &str) -> Vec<u8> {
    s.as_bytes()
        .chunks(2)
        .filter_map(|p| std::str::from_utf8(p).ok().and_then(|p| u8::from_str_radix(p, 16).ok()))
        .collect()
}

fn seeds() -> Vec<Vec<u8>> {
    let text = vectors::read(&vectors::dir().join("daemons/enc.json.gz"));
    let all: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    let of = |name: &str| -> Vec<Vec<u8>> {
        all[name].as_array().into_iter().flatten().filter_map(|s| s["hex"].as_str().map(unhex)).collect()
    };
    let messages = vectors::all_messages();
    let mut out = Vec::new();
    let mut add = |which: u8, inputs: Vec<Vec<u8>>| {
        for i in inputs {
            out.push([&[which][..], &i].concat());
        }
    };
    add(16, peer_seeds());
    add(17, vec![pg::info::PgInfo::default().to_blob().to_vec()]);
    let digests = messages.iter().filter(|m| m.header.kind == 0x706).step_by(9).map(|m| m.data.to_vec()).collect();
    add(0, digests);
    add(1, of("ServiceMap"));
    // File-system maps from real monitors of two releases, and their parts for clients.
    let maps = vectors::files("fsmap", |n| n.ends_with(".bin"));
    let parts = maps.iter().filter_map(|b| <FsMap as wire::Decode>::from_bytes(&b.clone().into()).ok());
    let parts = parts.flat_map(|m| m.filesystems.into_values().map(|f| f.mds_map));
    add(3, parts.map(|m| wire::Encode::to_bytes(&m, wire::Features::PACIFIC).to_vec()).collect());
    add(4, maps);
    add(4, messages.iter().filter(|m| m.header.kind == 45).take(3).map(|m| m.front[4..].to_vec()).collect());
    for which in [2, 5, 6, 7, 8, 9, 10, 15] {
        add(which, vec![vec![1, 1, 4, 0, 0, 0, 0, 0, 0, 0]]);
    }
    add(11, of("OSDSuperblock"));
    add(12, of("MgrMap"));
    add(13, of("pg_info_t"));
    add(14, of("entity_addrvec_t"));
    out
}
