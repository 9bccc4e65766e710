//! Keyrings, keys, tickets, and authentication payloads of unauthenticated peers. Input: u8 selector, then the bytes.

use super::{ALLOC_DECODER, Family, select, there_and_back};
use crate::vectors;
use auth::server::{Handshake, ServiceHost};
use auth::ticket::TicketBlob;
use auth::{AuthTicket, CapsInfo, ConMode, CryptoKey, Keyring, Method, Random, RotatingKeys, ServiceKeys};
use base::rng::Rng;
use base::{AuthName, EntityKind, Utime};
use std::cell::RefCell;

pub(super) const FAMILY: Family = Family { name: "auth", run, seeds, alloc_fixed: ALLOC_DECODER, cost: 1 };

const WHICH: &[fn(&[u8])] = &[
    keyring,
    there_and_back::<CryptoKey>,
    there_and_back::<AuthTicket>,
    there_and_back::<CapsInfo>,
    there_and_back::<TicketBlob>,
    there_and_back::<RotatingKeys>,
    there_and_back::<ServiceKeys>,
    to_monitor,
    to_service,
    signing_in,
];

/// Repeatable pseudo-random bytes.
pub(super) struct Seeded(RefCell<Rng>);

impl Seeded {
    pub(super) fn new() -> Self {
        Self(RefCell::new(Rng::new(7)))
    }
}

impl Random for Seeded {
    fn fill(&self, out: &mut [u8]) {
        self.0.borrow_mut().fill(out);
    }
}

const NOW: Utime = Utime { sec: 1_795_000_000, nsec: 0 };

fn run(input: &[u8]) {
    if let Some((decode, rest)) = select(WHICH, input) {
        decode(rest);
    }
}

fn keyring(input: &[u8]) {
    let Ok(k) = Keyring::parse(&String::from_utf8_lossy(input)) else { return };
    for (name, _) in k.iter() {
        assert!(k.get(name).is_some());
    }
}

/// Splits the input into the payloads of two frames, and passes them to a server.
fn server(kind: EntityKind, input: &[u8]) {
    let host = ServiceHost::new(kind, vec![Method::CEPHX, Method::NONE]);
    let random = Seeded::new();
    let Some((n, rest)) = input.split_first() else { return };
    let (first, second) = rest.split_at(usize::from(*n).min(rest.len()));
    for method in [Method::CEPHX, Method::NONE] {
        let mut h = Handshake::new();
        let _ = h.request(&host, &random, NOW, method, first);
        let _ = h.more(&host, &random, NOW, ConMode::SECURE, second);
    }
}

fn to_monitor(input: &[u8]) {
    server(EntityKind::MON, input);
}

fn to_service(input: &[u8]) {
    server(EntityKind::OSD, input);
}

/// The opposite direction: a hostile monitor.
fn signing_in(input: &[u8]) {
    let random = Seeded::new();
    let key = CryptoKey::generate(auth::KeyKind::Aes, NOW, &random);
    let name = AuthName { kind: EntityKind::CLIENT, id: "x".into() };
    let mut client = auth::Client::cephx(name, key);
    let payload = bytes::Bytes::copy_from_slice(input);
    let mut h = auth::client::Handshake::new(EntityKind::MON);
    let _ = h.request(&client, &random);
    let _ = h.more(&client, &random, &payload);
    let _ = client.handle_reply(NOW, &payload);
}

fn seeds() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let mut add = |which: u8, b: &[u8]| out.push([&[which], b].concat());
    for k in vectors::files("msgr2", |n| n.starts_with("keyring")) {
        add(0, &k);
    }
    for k in vectors::files("daemons", |n| n.ends_with(".keyring")) {
        add(0, &k);
    }
    let random = Seeded::new();
    let key = CryptoKey::generate(auth::KeyKind::Aes, NOW, &random);
    let encode = |v: &dyn Fn(&mut wire::Writer)| {
        let mut w = wire::Writer::default();
        v(&mut w);
        w.into_vec()
    };
    add(1, &encode(&|w| w.put(&key)));
    add(3, &encode(&|w| w.put(&CapsInfo::from_text("allow *"))));
    add(4, &encode(&|w| w.put(&TicketBlob::default())));
    let mut keys = RotatingKeys::default();
    keys.rotate(NOW, std::time::Duration::from_secs(3600), auth::KeyKind::Aes, &random);
    add(5, &encode(&|w| w.put(&keys)));
    // u8 10, client.x, global id 0; then a request for a session key.
    let mut first = vec![10, 8, 0, 0, 0, 1, 0, 0, 0, b'x'];
    first.extend([0; 8]);
    let more = [&[0, 1, 3][..], &[5; 16], &[1], &[0; 8], &[0; 4], &[0x35, 0, 0, 0]].concat();
    add(7, &[&[first.len() as u8][..], &first, &more].concat());
    // u8 1, global id, service osd, ticket, authorizer.
    let ticket =
        [&[1][..], &[1; 8], &[4, 0, 0, 0], &[1], &[2; 8], &[32, 0, 0, 0], &[9; 32], &[32, 0, 0, 0], &[7; 32]].concat();
    add(8, &[&[ticket.len() as u8][..], &ticket, &ticket].concat());
    add(9, &[&[0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0x20, 0, 0, 0, 1, 48, 0, 0, 0][..], &[3; 48]].concat());
    add(9, &[1, 1, 2, 3, 4, 5, 6, 7, 8]);
    // Captured payloads of authentication messages.
    for m in vectors::all_messages().iter().filter(|m| m.header.kind == 18).take(6) {
        if let Ok(r) = <wire::msg::MAuthReply as wire::WireMessage>::from_message(m) {
            add(9, &r.auth_payload);
        }
    }
    out
}
