//! Whole msgr1 connections at a monitor and at an OSD, on recorded streams of a client. Input: u8 selector, then the
//! stream. Checksums of complete messages are corrected; otherwise nothing behind them would be reached.

use super::frames::{config, drive, put32, u32_at};
use super::{ALLOC_DECODER, Family, select};
use crate::vectors;
use base::crc::crc32c;
use base::{AddrKind, AddrVec, EntityAddr, EntityKind};
use msgr::v1::format::{CLIENT_HELLO_LEN, CONNECT_LEN, FOOTER_LEN, HEADER_LEN, Tag};
use msgr::{Machine, Protocol};
use std::net::SocketAddr;

pub(super) const FAMILY: Family = Family { name: "msgr1", run, seeds, alloc_fixed: ALLOC_DECODER, cost: 2 };

const WHICH: &[EntityKind] = &[EntityKind::MON, EntityKind::OSD];
/// Longest part of a corrected message: space for announced bytes is limited by policy, which has its own tests.
const PART_MAX: u32 = 64 << 10;
/// Length at which streams are cut.
const STREAM_MAX: usize = 16 << 10;

fn run(input: &[u8]) {
    let Some((kind, rest)) = select(WHICH, input) else { return };
    let mut stream = rest.to_vec();
    repair(&mut stream);
    let ours = EntityAddr { kind: AddrKind::LEGACY, nonce: 1, sock: Some(([127, 0, 0, 1], 6789).into()) };
    let socket = SocketAddr::from(([127, 0, 0, 1], 50_000));
    drive(Machine::server(config(kind, AddrVec(vec![ours])), socket, Protocol::V1), &stream);
}

/// Corrects the checksums of all messages behind the first request to connect that is accepted: one without an authorizer,
/// or the second.
fn repair(b: &mut [u8]) {
    let mut at = CLIENT_HELLO_LEN;
    for _ in 0..2 {
        let len = u32_at(b, at + 28);
        at += CONNECT_LEN + len.min(PART_MAX) as usize;
        // The number that follows is 0 in a new session; a second request never begins with eight zeros.
        if b.get(at..at + 8).is_none_or(|n| n == [0; 8]) {
            break;
        }
    }
    at += 8;
    while let Some(tag) = b.get(at).and_then(|t| Tag::of_item(*t)) {
        at += 1;
        if tag != Tag::Msg {
            at += tag.fixed_len();
            continue;
        }
        if b.len() < at + HEADER_LEN {
            return;
        }
        let mut lens = [0; 3];
        for (i, len) in lens.iter_mut().enumerate() {
            let n = u32_at(b, at + 22 + 4 * i).min(PART_MAX);
            put32(b, at + 22 + 4 * i, n);
            *len = n as usize;
        }
        let crc = crc32c(0, &b[at..at + HEADER_LEN - 4]);
        put32(b, at + HEADER_LEN - 4, crc);
        at += HEADER_LEN;
        let footer = at + lens.iter().sum::<usize>();
        for (i, len) in lens.into_iter().enumerate() {
            let Some(part) = b.get(at..at + len) else { return };
            let crc = crc32c(0, part);
            put32(b, footer + 4 * i, crc);
            at += len;
        }
        at += FOOTER_LEN;
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for (which, side) in [(0u8, ".mon.c2s."), (1, ".osd.c2s.")] {
        for mut s in vectors::files("msgr1", |n| n.contains(side)) {
            s.truncate(STREAM_MAX);
            out.push([&[which], s.as_slice()].concat());
        }
    }
    // Method none opens the session at once: the recorded messages then reach the host.
    let mon = vectors::files("msgr1", |n| n.contains(".mon.c2s."));
    if let Some(hello) = mon.first().and_then(|s| s.get(..CLIENT_HELLO_LEN + CONNECT_LEN)) {
        let mut s = [&[1], hello].concat();
        let authorizer = [&[1, 8, 0, 0, 0, 1, 0, 0, 0, b'x'][..], &[7, 0, 0, 0, 0, 0, 0, 0]].concat();
        let at = 1 + CLIENT_HELLO_LEN;
        put32(&mut s, at + 20, 24);
        put32(&mut s, at + 24, 1);
        put32(&mut s, at + 28, authorizer.len() as u32);
        s.extend(authorizer);
        s.extend(mon.first().and_then(|m| m.get(CLIENT_HELLO_LEN + CONNECT_LEN..)).unwrap_or_default());
        out.push(s);
    }
    out
}
