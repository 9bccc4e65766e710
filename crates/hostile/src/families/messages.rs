//! All message types. Input: u16 type, u16 version, u32 length of the front, front, and the rest is data.

use super::{ALLOC_DECODER, Family};
use crate::vectors;
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::msg::registry;
use wire::{Features, Message, MsgHeader, Reader};

pub(super) const FAMILY: Family = Family { name: "messages", run, seeds, alloc_fixed: ALLOC_DECODER, cost: 1 };

/// Seeds per type: enough for variety, and few enough for rare types to matter.
const SEEDS_PER_KIND: usize = 6;

fn parse(input: &[u8]) -> Option<Message> {
    let mut r = Reader::new(input);
    let kind = r.u16().ok()?;
    let version = r.u16().ok()?;
    let n = (r.u32().ok()? as usize).min(r.remaining());
    let front = Bytes::copy_from_slice(r.take(n, "front").ok()?);
    let data = r.rest();
    Some(Message { header: MsgHeader { kind, version, ..MsgHeader::default() }, front, data, ..Message::default() })
}

fn run(input: &[u8]) {
    let Some(m) = parse(input) else { return };
    let Some(Ok(once)) = registry::reencode(&m, Features::PACIFIC) else { return };
    match registry::reencode(&once, Features::PACIFIC) {
        Some(Ok(again)) => assert!(again == once, "encoding is not stable"),
        other => panic!("own encoding refused: {other:?}"),
    }
}

fn seed(m: &Message) -> Vec<u8> {
    let mut b = Vec::with_capacity(8 + m.front.len() + m.data.len());
    b.extend(m.header.kind.to_le_bytes());
    b.extend(m.header.version.to_le_bytes());
    b.extend((m.front.len() as u32).to_le_bytes());
    b.extend(&m.front);
    b.extend(&m.data);
    b
}

fn seeds() -> Vec<Vec<u8>> {
    let mut by_kind: BTreeMap<u16, Vec<Message>> = BTreeMap::new();
    for m in vectors::all_messages() {
        by_kind.entry(m.header.kind).or_default().push(m);
    }
    // Types without a capture start from an empty message.
    let mut out: Vec<Vec<u8>> = registry::KINDS
        .iter()
        .filter(|k| !by_kind.contains_key(k))
        .map(|k| {
            seed(&Message { header: MsgHeader { kind: *k, version: 9, ..MsgHeader::default() }, ..Message::default() })
        })
        .collect();
    for ms in by_kind.values_mut() {
        ms.sort_by_key(|m| m.front.len() + m.data.len());
        let step = ms.len().div_ceil(SEEDS_PER_KIND);
        out.extend(ms.iter().step_by(step).map(seed));
    }
    out
}
