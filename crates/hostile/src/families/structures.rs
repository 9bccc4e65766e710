//! Structures that travel inside blobs, out of the messages' reach. Input: u8 which, then its bytes.

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
];

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
    let digests = messages.iter().filter(|m| m.header.kind == 0x706).step_by(9).map(|m| m.data.to_vec()).collect();
    add(0, digests);
    add(1, of("ServiceMap"));
    add(3, vec![wire::Encode::to_bytes(&MdsMap::null(base::Epoch(1)), wire::Features::PACIFIC).to_vec()]);
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
