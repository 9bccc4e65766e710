//! Whole connections on captured streams: a server with a hostile client, and a client with a hostile server. Input: u8
//! selector, then the stream. Checksums of complete frames are corrected; otherwise nothing behind them would be
//! reached.

use super::auth::Seeded;
use super::{ALLOC_DECODER, Family, select};
use crate::vectors;
use ::auth::server::ServiceHost;
use ::auth::{Client, ConMode, Method};
use base::crc::{SEED, crc32c};
use base::{AddrVec, AuthName, EntityAddr, EntityKind, Mono, Now, Utime};
use bytes::Bytes;
use msgr::{Config, Connection, Event, Identity, Machine, Policies, Policy, Protocol};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use wire::Reader;

pub(super) const FAMILY: Family = Family { name: "frames", run, seeds, alloc_fixed: ALLOC_DECODER, cost: 2 };

const WHICH: &[fn(&[u8])] = &[server, client];
/// Longest segment in a corrected preamble: space for announced data is limited by policy, which has its own tests.
const SEGMENT_MAX: u32 = 64 << 10;
/// Length at which streams are cut.
const STREAM_MAX: usize = 16 << 10;
/// Lengths of banner, preamble and message header in bytes.
const BANNER: usize = 26;
const PREAMBLE: usize = 32;

fn run(input: &[u8]) {
    if let Some((decode, rest)) = select(WHICH, input) {
        decode(rest);
    }
}

pub(super) fn u32_at(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4).and_then(|s| s.try_into().ok()).map_or(0, u32::from_le_bytes)
}

pub(super) fn put32(b: &mut [u8], at: usize, v: u32) {
    if let Some(s) = b.get_mut(at..at + 4) {
        s.copy_from_slice(&v.to_le_bytes());
    }
}

/// Corrects the checksums of all complete frames; returns the target address of a CLIENT_IDENT.
fn repair(b: &mut [u8]) -> Option<EntityAddr> {
    let mut target = None;
    let mut at = BANNER;
    while at + PREAMBLE <= b.len() {
        let several = b[at + 1] > 1;
        let mut lens = [0usize; 4];
        for (i, l) in lens.iter_mut().enumerate() {
            let n = u32_at(b, at + 2 + 6 * i).min(SEGMENT_MAX);
            put32(b, at + 2 + 6 * i, n);
            *l = n as usize;
        }
        let crc = crc32c(0, &b[at..at + 28]);
        put32(b, at + 28, crc);
        let mut q = at + PREAMBLE;
        let mut sums = [0u32; 4];
        for (i, l) in lens.iter().enumerate() {
            let Some(s) = b.get(q..q + l) else { return target };
            sums[i] = crc32c(SEED, s);
            if i == 0 && b[at] == 8 {
                let mut r = Reader::new(s);
                target = r.get::<AddrVec>().and_then(|_| r.get()).ok().or(target);
            }
            q += l;
            if i == 0 && *l > 0 {
                put32(b, q, sums[0]);
                q += 4;
            }
        }
        if several {
            for (i, sum) in sums.iter().enumerate().skip(1) {
                let sum = if i < usize::from(b[at + 1]) { *sum } else { 0 };
                put32(b, q + 1 + 4 * (i - 1), sum);
            }
            q += 13;
        }
        at = q;
    }
    target
}

fn now() -> Now {
    Now { mono: Mono(1), wall: Utime { sec: 1_795_000_000, nsec: 0 } }
}

pub(super) fn config(kind: EntityKind, addrs: AddrVec) -> Rc<Config> {
    Rc::new(Config {
        kind,
        identity: RefCell::new(Identity { num: 0, addrs }),
        policies: std::cell::RefCell::new(Policies::uniform(Policy::lossy_server(vec![ConMode::CRC]))),
        auth_host: Some(Rc::new(ServiceHost::new(kind, vec![Method::NONE]))),
        auth_client: Some(Rc::new(RefCell::new(Client::none(AuthName { kind: EntityKind::CLIENT, id: "x".into() })))),
        random: Rc::new(Seeded::new()),
        global_seq: Cell::new(1),
        pool: msgr::BufPool::default(),
        frames: msgr::FrameLimits::default(),
    })
}

/// Feeds the stream in pieces of varying size, as a network does.
pub(super) fn drive(mut c: Machine, stream: &[u8]) {
    let mut size = 1;
    let mut rest = stream;
    while !rest.is_empty() && !c.is_closing() {
        let n = size.min(rest.len());
        let (piece, later) = rest.split_at(n);
        rest = later;
        size = size * 3 % 4097 + 1;
        if let Some(t) = c.target() {
            let k = t.len().min(piece.len());
            t[..k].copy_from_slice(&piece[..k]);
            c.received(k);
            rest = &stream[stream.len() - rest.len() - (n - k)..];
        } else {
            let held = c.take_pending();
            c.feed(Bytes::from([&held, piece].concat()));
        }
        loop {
            match c.poll_event(now()) {
                Ok(Some(Event::Request(_))) | Err(_) => return,
                Ok(Some(_)) => {}
                Ok(None) => break,
            }
        }
        if c.prepare_flush().is_err() {
            return;
        }
        let out = c.unwritten();
        // Only an exhausted nonce is an error.
        let _ = c.advance(out);
    }
}

fn server(input: &[u8]) {
    let mut b = input.to_vec();
    let target = repair(&mut b).unwrap_or_default();
    let socket = SocketAddr::from(([127, 0, 0, 1], 50_000));
    drive(Machine::server(config(EntityKind::OSD, target.into()), socket, Protocol::V2), &b);
}

fn client(input: &[u8]) {
    let mut b = input.to_vec();
    repair(&mut b);
    let socket = SocketAddr::from(([127, 0, 0, 1], 6800));
    let addr = EntityAddr::msgr2(socket, 0);
    let cfg = config(EntityKind::CLIENT, AddrVec::default());
    drive(Machine::V2(Connection::client(cfg, EntityKind::MON, addr, socket)), &b);
}

fn seeds() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for (which, side) in [(0u8, ".c2s."), (1, ".s2c.")] {
        let mut all = vectors::files("daemons", |n| n.starts_with("one.") && n.contains(side));
        all.extend(vectors::files("client", |n| n.contains(side)));
        all.extend(vectors::files("msgr2", |n| n.contains("crc") && n.contains(side)));
        for s in &mut all {
            s.truncate(STREAM_MAX);
            out.push([&[which], s.as_slice()].concat());
        }
    }
    out
}
