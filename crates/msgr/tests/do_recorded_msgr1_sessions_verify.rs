//! Do recorded msgr1 sessions of 16.2.15 verify with our code, and does our server accept them?
//!
//! `vectors/msgr1`: `rados put` over msgr1 alone, its session at the monitor and that at the OSD. With the keyring, the
//! test signs in as the client did, opens its tickets, recomputes the authorizer, and checks all checksums and signatures
//! of both directions.

mod support;

use auth::client::Handshake;
use auth::{Client, ConMode, CryptoKey, Keyring, Method, Random};
use base::crc::crc32c;
use base::{AddrKind, AddrVec, AuthName, EntityAddr, EntityKind};
use bytes::{Buf, Bytes};
use msgr::v1::format::{
    BANNER, CLIENT_HELLO_LEN, CONNECT_LEN, Connect, FOOTER_LEN, Footer, HEADER_LEN, Header, REPLY_LEN,
    SERVER_HELLO_LEN, Tag, server_hello,
};
use msgr::v1::{self, REQUIRED};
use msgr::{Event, Policy};
use std::cell::Cell;
use std::path::PathBuf;
use support::{Cluster, NOW, server_config};
use wire::msg::{MAuth, MAuthReply};
use wire::{Reader, WireMessage};

fn vector(name: &str) -> Vec<u8> {
    let p = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors/msgr1").join(name);
    std::fs::read(&p).unwrap_or_else(|e| panic!("{}: {e}", p.display()))
}

fn stream(name: &str) -> Bytes {
    vector(&format!("pacific-rados_put.{name}.bin")).into()
}

fn admin_key() -> CryptoKey {
    let ring = Keyring::parse(&String::from_utf8(vector("keyring")).unwrap()).unwrap();
    ring.key(&AuthName::parse("client.admin").unwrap()).unwrap().clone()
}

/// Returns the same number each time: the nonce or challenge of the recording.
struct Fixed(Cell<u64>);

impl Random for Fixed {
    fn fill(&self, out: &mut [u8]) {
        for (o, b) in out.iter_mut().zip(self.0.get().to_le_bytes().into_iter().cycle()) {
            *o = b;
        }
    }
}

/// One recorded message.
struct Seen {
    header: Header,
    front: Bytes,
    footer: Footer,
}

/// All messages of an open session, with their checksums checked; counts the other items.
fn messages(mut b: Bytes) -> (Vec<Seen>, usize) {
    let (mut out, mut others) = (Vec::new(), 0);
    while !b.is_empty() {
        let tag = Tag::of_item(b.get_u8()).expect("a tag");
        if tag != Tag::Msg {
            b.advance(tag.fixed_len());
            others += 1;
            continue;
        }
        let raw = b.split_to(HEADER_LEN);
        let mut header = Header::read(&raw).unwrap();
        let parts = header.len.map(|n| b.split_to(n));
        let raw_footer = b.split_to(FOOTER_LEN);
        let footer = Footer::read(&raw_footer).unwrap();
        assert_eq!(parts.each_ref().map(|p| crc32c(0, p)), footer.crc);
        assert_eq!((header.seal().as_slice(), footer.bytes().as_slice()), (&raw[..], &raw_footer[..]), "encode again");
        let [front, _, _] = parts;
        out.push(Seen { header, front, footer });
    }
    (out, others)
}

/// Splits off a reply to a request to connect, with what follows for the authorizer.
fn reply(s: &mut Bytes) -> (u8, Bytes) {
    let head = s.split_to(REPLY_LEN);
    let len = u32::from_le_bytes(head[21..25].try_into().unwrap()) as usize;
    (head[0], s.split_to(len))
}

fn request(c: &mut Bytes) -> (Connect, Bytes) {
    let connect = Connect::read(&c.split_to(CONNECT_LEN)).unwrap();
    (connect, c.split_to(connect.authorizer_len as usize))
}

/// Signs in as the recorded client did; returns it with its tickets.
fn sign_in(c2s: &[Seen], s2c: &[Seen]) -> Client {
    let payload = |m: &Seen| MAuth::decode_front(&mut Reader::shared(&m.front), 1, &Bytes::new()).unwrap().auth_payload;
    let reply = |m: &Seen| MAuthReply::decode_front(&mut Reader::shared(&m.front), 1, &Bytes::new()).unwrap();
    let mut client = Client::cephx(AuthName::parse("client.admin").unwrap(), admin_key());
    let proof = payload(&c2s[1]);
    let challenge = u64::from_le_bytes(proof[3..11].try_into().unwrap());
    let rnd = Fixed(Cell::new(challenge));
    let mut h = Handshake::new(EntityKind::MON);
    h.request(&client, &rnd).unwrap();
    let ours = h.more(&client, &rnd, &reply(&s2c[0]).auth_payload).unwrap();
    assert_eq!(ours[..19], proof[..19], "the proof");
    let done = reply(&s2c[1]);
    assert_eq!((done.protocol, done.result), (2, 0));
    h.done(&mut client, NOW.wall, done.global_id, ConMode::CRC, &done.auth_payload).unwrap();
    // It then asked for tickets once more.
    for m in s2c.iter().skip(2).filter(|m| m.header.common.kind == MAuthReply::KIND) {
        client.handle_reply(NOW.wall, &reply(m).auth_payload).unwrap();
    }
    client
}

#[test]
fn monitor_and_osd_sessions() {
    let (mut c, mut s) = (stream("mon.c2s"), stream("mon.s2c"));
    assert!(c.starts_with(BANNER) && s.starts_with(BANNER));
    let hello = s.split_to(SERVER_HELLO_LEN);
    let mut r = Reader::new(&hello[BANNER.len()..]);
    let (server, seen): (EntityAddr, EntityAddr) = (r.get().unwrap(), r.get().unwrap());
    assert_eq!(server.to_string(), "v1:127.0.0.1:29301/0");
    assert_eq!(server_hello(&server, &seen), hello);
    c.advance(CLIENT_HELLO_LEN);
    let (connect, none) = request(&mut c);
    assert_eq!((connect.kind, connect.protocol, connect.method, none.len()), (8, 15, 0, 0));
    assert_eq!(connect.features.0 & REQUIRED, REQUIRED);
    assert_eq!(reply(&mut s), (Tag::Seq as u8, Bytes::new()));
    assert_eq!((c.get_u64_le(), s.get_u64_le()), (0, 0));
    let ((up, pings), (down, pongs)) = (messages(c), messages(s));
    assert!(pings > 0 && pings == pongs);
    assert!(up.iter().chain(&down).all(|m| m.footer.signature == 0), "monitors' sessions are not signed");
    let client = sign_in(&up, &down);

    let (mut c, mut s) = (stream("osd.c2s"), stream("osd.s2c"));
    c.advance(CLIENT_HELLO_LEN);
    s.advance(SERVER_HELLO_LEN);
    let (connect, authorizer) = request(&mut c);
    assert_eq!((connect.kind, connect.protocol, connect.method), (8, 24, Method::CEPHX.0));
    let (tag, challenge) = reply(&mut s);
    assert_eq!(tag, Tag::ChallengeAuthorizer as u8);
    let (_, answer) = request(&mut c);
    let (tag, proof) = reply(&mut s);
    assert_eq!(tag, Tag::Seq as u8);
    let key = client.ticket(EntityKind::OSD).unwrap().session_key.clone();
    let nonce = {
        let mut r = Reader::shared(&authorizer);
        r.skip(1 + 8 + 4, "head").unwrap();
        r.get::<auth::ticket::TicketBlob>().unwrap();
        let plain = key.open(auth::crypto::Usage::Authorize, &r.blob().unwrap(), "authorizer").unwrap();
        u64::from_le_bytes(plain[1..9].try_into().unwrap())
    };
    let rnd = Fixed(Cell::new(nonce));
    let mut h = Handshake::new(EntityKind::OSD);
    assert_eq!(h.request(&client, &rnd).unwrap(), authorizer);
    assert_eq!(h.more(&client, &rnd, &challenge).unwrap(), answer);
    h.done(&mut client.clone(), NOW.wall, 0, ConMode::CRC, &proof).unwrap();
    c.advance(8);
    s.advance(8);
    for (who, m) in [("client", messages(c)), ("OSD", messages(s))] {
        assert!(!m.0.is_empty());
        for m in m.0 {
            assert_eq!(key.sign_message(&m.footer.signed(&m.header)).unwrap(), m.footer.signature, "{who}");
        }
    }
}

#[test]
fn our_monitor_accepts_the_recorded_client() {
    let cluster = Cluster::new(Method::CEPHX, auth::KeyKind::Aes);
    let admin = AuthName::parse("client.admin").unwrap();
    cluster.entities.borrow_mut().get_mut(&admin).unwrap().key = admin_key();
    let (c2s, mut s2c) = (stream("mon.c2s"), stream("mon.s2c"));
    s2c.advance(SERVER_HELLO_LEN + REPLY_LEN + 8);
    let challenge = MAuthReply::decode_front(&mut Reader::shared(&messages(s2c).0[0].front), 1, &Bytes::new()).unwrap();
    let challenge = u64::from_le_bytes(challenge.auth_payload[1..9].try_into().unwrap());
    let at = EntityAddr { kind: AddrKind::LEGACY, nonce: 0, sock: Some(([127, 0, 0, 1], 29301).into()) };
    let base = server_config(&cluster, Policy::lossy_server(vec![ConMode::CRC]));
    base.identity.borrow_mut().addrs = AddrVec(vec![at]);
    let cfg = std::rc::Rc::new(msgr::Config {
        kind: base.kind,
        identity: base.identity.clone(),
        policies: base.policies.clone(),
        auth_host: base.auth_host.clone(),
        auth_client: None,
        random: std::rc::Rc::new(Fixed(Cell::new(challenge))),
        global_seq: Cell::new(1),
        pool: msgr::BufPool::default(),
        frames: msgr::FrameLimits::default(),
    });
    let mut server = v1::Connection::server(cfg, ([127, 0, 0, 1], 43842).into());
    server.feed(c2s);
    let mut got = Vec::new();
    while let Some(e) = server.poll_event(NOW).unwrap() {
        got.push(e);
    }
    assert!(matches!(got.first(), Some(Event::Open)), "{got:?}");
    assert_eq!(server.peer().principal.name, admin);
    let kinds: Vec<u16> =
        got.iter().filter_map(|e| if let Event::Message(m) = e { Some(m.header.kind) } else { None }).collect();
    assert_eq!(kinds, [MAuth::KIND, 15, 15, 15], "a renewal and subscriptions: the host's");
}
