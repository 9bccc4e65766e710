//! Do captured sessions of real daemons and clients verify with our code?
//!
//! Every stream is parsed to its end. With the capture's keyring, the test derives the proof again, opens tickets,
//! recomputes both signatures and (in secure mode) decrypts every frame, for both key types.

use auth::client::{Accepted, Handshake};
use auth::crypto::Usage;
use auth::ticket::{ServiceTicket, TicketBlob};
use auth::{Client, ConMode, CryptoKey, Keyring, Random, RotatingKeys};
use base::{AuthName, EntityKind, Utime};
use bytes::Bytes;
use msgr::frame::{AuthDone, AuthRequest, Frame, Hello, Tag, read_header2};
use msgr::rx::{Phase, Rx};
use msgr::secure::streams;
use std::cell::Cell;
use std::io::Read as _;
use std::path::PathBuf;
use wire::{Reader, Writer};

fn vectors(p: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(p)
}

fn read(p: PathBuf) -> Bytes {
    let raw = std::fs::read(&p).unwrap_or_else(|e| panic!("{}: {e}", p.display()));
    if p.extension().is_some_and(|e| e == "gz") {
        let mut out = Vec::new();
        flate2::read::GzDecoder::new(raw.as_slice()).read_to_end(&mut out).unwrap();
        return out.into();
    }
    raw.into()
}

fn keyring(p: &str) -> Keyring {
    Keyring::parse(&std::fs::read_to_string(vectors(p)).unwrap()).unwrap()
}

/// Returns the same number each time: the nonce or challenge of the capture.
struct Fixed(Cell<u64>);
impl Random for Fixed {
    fn fill(&self, out: &mut [u8]) {
        for (o, b) in out.iter_mut().zip(self.0.get().to_le_bytes().into_iter().cycle()) {
            *o = b;
        }
    }
}

/// One direction of a capture.
struct Side {
    rx: Rx,
    all: Bytes,
}

impl Side {
    fn new(all: Bytes) -> Self {
        let mut rx = Rx::new(msgr::BufPool::default(), msgr::FrameLimits::default());
        rx.feed(all.clone());
        assert_eq!(rx.poll_banner().unwrap().map(|(s, r)| (s & 1, r)), Some((1, 0)));
        Self { rx, all }
    }

    fn next(&mut self) -> Frame {
        self.rx.poll_frame().unwrap().expect("a frame")
    }

    fn expect(&mut self, tag: Tag) -> Frame {
        let f = self.next();
        assert_eq!(f.tag, tag);
        f
    }
}

/// Known state of a capture's cluster.
#[derive(Default)]
struct Known {
    client: Option<Client>,
    rotating: Option<RotatingKeys>,
    /// Clients of earlier sessions: a later session may present the ticket of an earlier one.
    earlier: Vec<Client>,
    reclaimed: usize,
}

/// Replays the dialogue with a monitor: the client's key proves it, or an earlier ticket does.
fn monitor(
    payload: &Bytes,
    challenge: &Bytes,
    answer: &Bytes,
    done: &AuthDone,
    keys: &Keyring,
    known: &mut Known,
) -> Accepted {
    let now = Utime { sec: 1_795_000_000, nsec: 0 };
    let mut r = Reader::new(payload);
    assert_eq!(r.u8().unwrap(), 10);
    let name: AuthName = r.get().unwrap();
    let key = keys.key(&name).unwrap_or_else(|| panic!("no key of {name}")).clone();
    check_proof(&key, challenge, answer);
    let old = old_ticket(answer);
    let before = known.earlier.iter().find(|c| {
        c.name() == &name && c.ticket(EntityKind::AUTH).is_some_and(|t| !old.blob.is_empty() && t.blob == old)
    });
    known.reclaimed += usize::from(before.is_some());
    let mut client = before.cloned().unwrap_or_else(|| Client::cephx(name, key));
    let asked_id = r.u64().unwrap();
    assert_eq!(asked_id, client.global_id());
    let mut h = Handshake::new(EntityKind::MON);
    let rnd = Fixed(Cell::new(5));
    h.request(&client, &rnd).unwrap();
    h.more(&client, &rnd, challenge).unwrap();
    let a = h.done(&mut client, now, done.global_id, done.mode, &done.payload).unwrap();
    assert!(client.ticket(EntityKind::AUTH).is_some());
    if asked_id != 0 {
        assert_eq!(done.global_id, asked_id);
    }
    known.earlier.push(client.clone());
    known.client = Some(client);
    a
}

/// Replays a connection; returns the frames after authentication in both directions.
fn replay(c2s: Bytes, s2c: Bytes, keys: &Keyring, known: &mut Known) -> Option<(Vec<Frame>, Vec<Frame>)> {
    if c2s.len() < 200 || s2c.len() < 100 {
        return None;
    }
    let (mut c, mut s) = (Side::new(c2s), Side::new(s2c));
    let server = s.expect(Tag::Hello).read(Hello::read).unwrap();
    c.expect(Tag::Hello).read(Hello::read).unwrap();
    let req = c.expect(Tag::AuthRequest).read(AuthRequest::read).unwrap();
    let (mut session_key, mut secret, mut mode) = (None, Vec::new(), ConMode::CRC);
    if req.method == auth::Method::NONE {
        let done = s.expect(Tag::AuthDone).read(AuthDone::read).unwrap();
        assert!(done.payload.is_empty());
    } else {
        let challenge = s.expect(Tag::AuthReplyMore).read(|r| r.blob()).unwrap();
        let answer = c.expect(Tag::AuthRequestMore).read(|r| r.blob()).unwrap();
        let done = s.expect(Tag::AuthDone).read(AuthDone::read).unwrap();
        mode = done.mode;
        let accepted = if server.kind == EntityKind::MON {
            monitor(&req.payload, &challenge, &answer, &done, keys, known)
        } else {
            service(&req.payload, &challenge, &answer, &done, server.kind, known)?
        };
        session_key = accepted.session_key;
        secret = accepted.connection_secret;
    }
    let sign = |b: &[u8]| session_key.as_ref().map_or([0; 32], |k: &CryptoKey| k.sign(b));
    let (c_log, s_log) = (c.rx.take_log(), s.rx.take_log());
    assert_eq!(c.all.get(..c_log.len()), Some(c_log.as_slice()));
    if mode == ConMode::SECURE {
        let (_, from_server) = streams(&secret, false).unwrap();
        let (_, from_client) = streams(&secret, true).unwrap();
        s.rx.set_crypto(from_server);
        c.rx.set_crypto(from_client);
    }
    assert_eq!(c.expect(Tag::AuthSignature).segments[0], sign(&s_log).to_vec(), "client's signature");
    assert_eq!(s.expect(Tag::AuthSignature).segments[0], sign(&c_log).to_vec(), "server's signature");
    let rest = |side: &mut Side| {
        side.rx.set_phase(Phase::Open);
        let mut v = Vec::new();
        while let Some(f) = side.rx.poll_frame().unwrap() {
            if f.tag == Tag::Message {
                let (h, _) = read_header2(&f.segments[0]).unwrap();
                assert!(h.seq > 0 && h.kind > 0);
            }
            v.push(f);
        }
        v
    };
    let (cf, sf) = (rest(&mut c), rest(&mut s));
    assert!(cf.iter().any(|f| f.tag == Tag::ClientIdent));
    Some((cf, sf))
}

fn old_ticket(answer: &Bytes) -> TicketBlob {
    let mut r = Reader::shared(answer);
    r.skip(2 + 1 + 8 + 8, "head").unwrap();
    r.get().unwrap()
}

fn check_proof(key: &CryptoKey, challenge: &Bytes, answer: &Bytes) {
    let mut r = Reader::new(challenge);
    r.u8().unwrap();
    let server_challenge = r.u64().unwrap();
    let mut r = Reader::new(answer);
    assert_eq!(r.u16().unwrap(), 0x0100);
    assert_eq!(r.u8().unwrap(), 3);
    let client_challenge = r.u64().unwrap();
    let proof = r.u64().unwrap();
    assert_eq!(key.proof(server_challenge, client_challenge, &Fixed(Cell::new(1))), proof);
}

/// Replays a connection to a service: as the client if its tickets are known, and as the service if its rotating
/// secrets are.
fn service(
    first: &Bytes,
    challenge: &Bytes,
    answer: &Bytes,
    done: &AuthDone,
    kind: EntityKind,
    known: &mut Known,
) -> Option<Accepted> {
    let mut r = Reader::shared(answer);
    assert_eq!(r.u8().unwrap(), 1);
    let (global_id, service) = (r.u64().unwrap(), r.u32().unwrap());
    assert_eq!(service, u32::from(kind.0));
    let blob: TicketBlob = r.get().unwrap();
    let sealed = r.blob().unwrap();
    let mut session_key = None;
    if let Some(secret) = known.rotating.as_ref().and_then(|k| k.get(blob.secret_id)) {
        let t = ServiceTicket::open(&blob, secret).unwrap();
        assert_eq!(t.ticket.global_id, global_id);
        assert!(!t.ticket.caps.text().is_empty());
        session_key = Some(t.session_key);
    }
    let ours = known.client.as_mut().filter(|c| c.ticket(kind).is_some_and(|t| t.blob == blob));
    if let Some(t) = ours.as_ref().and_then(|c| c.ticket(kind)) {
        session_key = Some(t.session_key.clone());
    }
    let key = session_key?;
    let plain = key.open(Usage::Authorize, &sealed, "authorizer").unwrap();
    let mut p = Reader::new(&plain);
    assert_eq!(p.u8().unwrap(), 2);
    let nonce = p.u64().unwrap();
    if let Some(client) = ours {
        let rnd = Fixed(Cell::new(nonce));
        let mut h = Handshake::new(kind);
        let mine = h.request(client, &rnd).unwrap();
        let reply = h.more(client, &rnd, challenge).unwrap();
        if key.kind() == auth::KeyKind::Aes {
            assert_eq!(mine, first, "AES has no randomness: our authorizer must equal theirs");
            assert_eq!(reply, answer);
        }
        return Some(h.done(client, Utime::ZERO, done.global_id, done.mode, &done.payload).unwrap());
    }
    let sealed = Reader::shared(&done.payload).blob().unwrap();
    let plain = key.open(Usage::AuthorizeReply, &sealed, "reply").unwrap();
    let mut p = Reader::new(&plain);
    p.u8().unwrap();
    assert_eq!(p.u64().unwrap(), nonce.wrapping_add(1));
    Some(Accepted { session_key: Some(key), connection_secret: Vec::new() })
}

#[test]
fn client_captures_of_all_modes_and_key_types() {
    let mut names: Vec<String> = std::fs::read_dir(vectors("msgr2"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter_map(|n| n.strip_suffix(".c2s.bin").map(str::to_owned))
        .collect();
    names.sort();
    let mut known = Known::default();
    let mut scenario = String::new();
    let (mut secure, mut replayed) = (0, 0);
    for n in &names {
        let keys = keyring(if n.starts_with("pacific") { "msgr2/keyring-pacific" } else { "msgr2/keyring-tentacle" });
        let this = n.split(".conn").next().unwrap().to_owned();
        if this != scenario {
            scenario = this;
            known = Known::default();
        }
        let c2s = read(vectors(&format!("msgr2/{n}.c2s.bin")));
        let s2c = read(vectors(&format!("msgr2/{n}.s2c.bin")));
        let Some((c, s)) = replay(c2s, s2c, &keys, &mut known) else { panic!("{n}: not replayed") };
        replayed += 1;
        if n.contains("secure") {
            secure += 1;
        }
        if n.contains("conn0") {
            assert!(c.iter().any(|f| f.tag == Tag::Message) && s.iter().any(|f| f.tag == Tag::Message), "{n}");
        }
    }
    assert_eq!((replayed, secure), (names.len(), 11));
}

#[test]
fn daemon_captures() {
    let keys = keyring("daemons/cephx.keyring");
    let mut names: Vec<String> = std::fs::read_dir(vectors("daemons"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter_map(|n| n.strip_suffix(".c2s.bin.gz").map(str::to_owned))
        .collect();
    // The monitor sessions come first: they hold the rotating secrets of the OSDs.
    names.sort_by_key(|n| (!n.contains("-mon."), n.clone()));
    let mut osd_secrets: Option<RotatingKeys> = None;
    let mut mgr_secrets: Option<RotatingKeys> = None;
    let (mut replayed, mut with_tickets, mut renewals) = (0, 0, 0);
    let mut known = Known::default();
    for n in &names {
        let c2s = read(vectors(&format!("daemons/{n}.c2s.bin.gz")));
        let s2c = read(vectors(&format!("daemons/{n}.s2c.bin.gz")));
        known.client = None;
        if n.starts_with("cephx") {
            known.rotating = if n.contains("-mgr.") { mgr_secrets.clone() } else { osd_secrets.clone() };
        }
        let Some((c, s)) = replay(c2s, s2c, &keys, &mut known) else { continue };
        replayed += 1;
        if n.starts_with("cephx") && !n.contains("-mon.") {
            with_tickets += 1;
        }
        let Some(mut client) = known.client.take() else { continue };
        // Renewals: AUTH (17) with the request, AUTH_REPLY (18) with tickets or rotating secrets.
        let auth_blob = |f: &Frame, kind: u16| {
            let (h, _) = read_header2(&f.segments[0]).ok()?;
            if f.tag != Tag::Message || h.kind != kind {
                return None;
            }
            let mut r = Reader::shared(&f.segments[1]);
            if kind == 17 {
                // Paxos header, protocol.
                r.skip(18 + 4, "head").unwrap();
            } else {
                // Protocol, result, global id.
                r.skip(4 + 4 + 8, "head").unwrap();
            }
            r.blob().ok()
        };
        let asked: Vec<Bytes> = c.iter().filter_map(|f| auth_blob(f, 17)).collect();
        let answers: Vec<Bytes> = s.iter().filter_map(|f| auth_blob(f, 18)).collect();
        // Long captures are cut, each direction at its own length.
        for (q, a) in asked.iter().zip(&answers) {
            renewals += 1;
            if let Some(k) = client.handle_reply(Utime { sec: 1_795_000_100, nsec: 0 }, a).unwrap() {
                assert_eq!(*q, client.rotating_request());
                assert_eq!(k.iter().len(), 3);
                let mut w = Writer::default();
                w.put(&k);
                let into = if client.name().kind == EntityKind::OSD { &mut osd_secrets } else { &mut mgr_secrets };
                *into = Some(k);
            } else {
                assert_eq!(q.first_chunk::<2>(), Some(&[0x00, 0x02]));
            }
        }
    }
    assert!(osd_secrets.is_some() && mgr_secrets.is_some());
    assert!(known.reclaimed > 0, "no session presented an earlier ticket");
    assert!(renewals >= 9, "{renewals}");
    assert!(replayed >= 60, "{replayed}");
    assert!(with_tickets >= 3, "{with_tickets}");
}
