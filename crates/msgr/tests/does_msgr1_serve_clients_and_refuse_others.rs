//! Are msgr1's clients served as those of msgr2, whatever the cuts of their bytes, and does every hostile or altered
//! stream end the connection with a typed error, without a wrong message, a panic or a large allocation?

mod support;

use auth::client::Handshake;
use auth::{Client, ConMode, CryptoKey, KeyKind, Method};
use base::crc::crc32c;
use base::rng::Rng;
use base::{AddrKind, AddrVec, EntityAddr, EntityKind, Utime};
use bytes::{Buf, Bytes};
use msgr::policy::{AUTH_ATTEMPTS_MAX, AUTH_FRAMES_MAX, DATA_BYTES_MAX, FRAME_BYTES_MAX_PREAUTH};
use msgr::v1::format::{
    BANNER, COMPLETE, FOOTER_LEN, Footer, HEADER_LEN, Header, NO_DATA_CRC, REPLY_LEN, SERVER_HELLO_LEN, SIGNED, Tag,
};
use msgr::v1::{AUTHORIZER_BYTES_MAX, Connection, REQUIRED};
use msgr::{Error, Event, Policy};
use std::cell::RefCell;
use std::io::IoSlice;
use std::rc::Rc;
use support::{Cluster, NOW, Seeded, message, messages, name, peer_socket, server_config};
use wire::msg::{MAuth, MAuthReply};
use wire::{Features, Message, Reader, WireMessage, Writer};

fn server(cluster: &Cluster) -> Connection {
    let cfg = server_config(cluster, Policy::lossy_server(vec![ConMode::CRC]));
    let v1 = EntityAddr { kind: AddrKind::LEGACY, nonce: 99, sock: Some(([127, 0, 0, 1], 6801).into()) };
    cfg.identity.borrow_mut().addrs = AddrVec(vec![support::server_addr(), v1]);
    Connection::server(cfg, peer_socket())
}

fn output(c: &mut Connection) -> Bytes {
    let mut out = Vec::new();
    while c.unwritten() > 0 {
        let mut s = [IoSlice::new(&[]); 64];
        let n = c.slices(&mut s);
        let taken: Vec<u8> = s[..n].iter().flat_map(|x| x.to_vec()).collect();
        c.advance(taken.len()).unwrap();
        out.extend_from_slice(&taken);
    }
    out.into()
}

fn events(c: &mut Connection) -> Result<Vec<Event>, Error> {
    let mut out = Vec::new();
    while let Some(e) = c.poll_event(NOW)? {
        out.push(e);
    }
    Ok(out)
}

/// Passes all bytes, through the direct target while there is one.
fn fed(c: &mut Connection, b: &[u8]) -> Result<Vec<Event>, Error> {
    let (mut out, mut b) = (Vec::new(), Bytes::copy_from_slice(b));
    loop {
        if let Some(t) = c.target() {
            let n = t.len().min(b.len());
            t[..n].copy_from_slice(&b.split_to(n));
            c.received(n);
        } else if !b.is_empty() {
            // No more than a read of a socket brings.
            c.feed(b.split_to(b.len().min(4096)));
        }
        out.extend(events(c)?);
        if b.is_empty() {
            return Ok(out);
        }
    }
}

fn hello(addr: &EntityAddr) -> Vec<u8> {
    let mut w = Writer::new(Features::default());
    w.raw(BANNER);
    w.put(addr);
    w.as_slice().to_vec()
}

const FEATURES: u64 = Features::PACIFIC.0;

fn connect(features: u64, kind: EntityKind, protocol: u32, method: Method, authorizer: &[u8]) -> Vec<u8> {
    let mut w = Writer::default();
    w.u64(features);
    for n in [u32::from(kind.0), 1, 0, protocol, method.0, authorizer.len() as u32] {
        w.u32(n);
    }
    w.u8(1);
    w.raw(authorizer);
    w.as_slice().to_vec()
}

fn packed(m: &Message, seq: u64, key: Option<&CryptoKey>, change: impl Fn(&mut Footer)) -> Vec<u8> {
    let mut h = Header {
        common: wire::MsgHeader { seq, ..m.header },
        len: [m.front.len(), m.middle.len(), m.data.len()],
        src_kind: EntityKind::CLIENT,
        src_num: 4101,
        crc: 0,
    };
    let mut out = vec![Tag::Msg as u8];
    out.extend_from_slice(&h.seal());
    for b in [&m.front, &m.middle, &m.data] {
        out.extend_from_slice(b);
    }
    let mut f = Footer { crc: [&m.front, &m.middle, &m.data].map(|b| crc32c(0, b)), signature: 0, flags: COMPLETE };
    change(&mut f);
    if let Some(key) = key {
        f.signature = key.sign_message(&f.signed(&h)).unwrap();
        f.flags |= SIGNED;
    }
    out.extend_from_slice(&f.bytes());
    out
}

fn signed(m: &Message, seq: u64, key: &CryptoKey) -> Vec<u8> {
    packed(m, seq, Some(key), |_| {})
}

/// The messages in a server's output, with checksums and signatures checked, and the tags of the other items.
fn received(mut b: Bytes, key: Option<&CryptoKey>) -> (Vec<Message>, Vec<Tag>) {
    let (mut out, mut tags) = (Vec::new(), Vec::new());
    while !b.is_empty() {
        let tag = Tag::of_item(b.get_u8()).unwrap();
        if tag != Tag::Msg {
            b.advance(tag.fixed_len());
            tags.push(tag);
            continue;
        }
        let h = Header::read(&b.split_to(HEADER_LEN)).unwrap();
        let [front, middle, data] = h.len.map(|n| b.split_to(n));
        let f = Footer::read(&b.split_to(FOOTER_LEN)).unwrap();
        assert_eq!(f.crc, [&front, &middle, &data].map(|b| crc32c(0, b)));
        assert_eq!(f.flags & SIGNED != 0, key.is_some());
        assert_eq!(key.map_or(0, |k| k.sign_message(&f.signed(&h)).unwrap()), f.signature);
        out.push(Message { header: h.common, front, middle, data, ..Message::default() });
    }
    (out, tags)
}

/// A reply to a request to connect: its tag and what is for the authorizer.
fn replied(b: &mut Bytes) -> (u8, Bytes) {
    let head = b.split_to(REPLY_LEN);
    (head[0], b.split_to(u32::from_le_bytes(head[21..25].try_into().unwrap()) as usize))
}

const BLANK: EntityAddr = EntityAddr { kind: AddrKind::LEGACY, nonce: 4711, sock: None };

fn mauth(protocol: u32, auth_payload: Bytes) -> Message {
    MAuth { protocol, auth_payload, ..MAuth::default() }.to_message(Features::PACIFIC)
}

fn first_mauth(method: Method, who: &str, global_id: u64) -> Message {
    let mut w = Writer::new(Features::PACIFIC);
    w.u8(1);
    w.put(&vec![method.0]);
    w.put(&name(who));
    w.u64(global_id);
    mauth(0, w.into_bytes())
}

fn auth_reply(b: Bytes) -> MAuthReply {
    let (m, _) = received(b, None);
    assert_eq!(m.len(), 1);
    MAuthReply::decode_front(&mut Reader::shared(&m[0].front), 1, &Bytes::new()).unwrap()
}

/// Greets a monitor and connects, up to the sign-in.
fn to_monitor(s: &mut Connection, kind: EntityKind) {
    let mut up = hello(&BLANK);
    up.extend(connect(FEATURES, kind, 15, Method(0), &[]));
    up.extend([0; 8]);
    assert!(fed(s, &up).unwrap().is_empty());
    let mut down = output(s);
    assert!(down.starts_with(BANNER));
    down.advance(SERVER_HELLO_LEN);
    assert_eq!(replied(&mut down), (Tag::Seq as u8, Bytes::new()));
    assert_eq!(down.len(), 8);
}

/// Signs in at a monitor; returns its events.
fn sign_in(s: &mut Connection, client: &Rc<RefCell<Client>>) -> Vec<Event> {
    let (method, who) = {
        let c = client.borrow();
        (c.method(), c.name().to_string())
    };
    let rnd = Seeded::new(9);
    let mut h = Handshake::new(EntityKind::MON);
    h.request(&client.borrow(), &*rnd).unwrap();
    let mut got = fed(s, &packed(&first_mauth(method, &who, client.borrow().global_id()), 1, None, |_| {})).unwrap();
    let mut r = auth_reply(output(s));
    assert_eq!((r.protocol, r.result), (method.0, 0));
    if method == Method::CEPHX {
        let told = r.global_id;
        let proof = h.more(&client.borrow(), &*rnd, &r.auth_payload).unwrap();
        got.extend(fed(s, &packed(&mauth(method.0, proof), 2, None, |_| {})).unwrap());
        r = auth_reply(output(s));
        assert!(told != 0 && told == r.global_id, "a client takes another id for the begin of another session");
    }
    h.done(&mut client.borrow_mut(), NOW.wall, r.global_id, ConMode::CRC, &r.auth_payload).unwrap();
    got
}

/// Opens a session at a service, with the answer to its challenge; returns the events and the key of the signatures.
fn to_service(s: &mut Connection, client: &Rc<RefCell<Client>>, kind: EntityKind) -> (Vec<Event>, Option<CryptoKey>) {
    let (method, rnd) = (client.borrow().method(), Seeded::new(11));
    let mut h = Handshake::new(EntityKind::OSD);
    let authorizer = h.request(&client.borrow(), &*rnd).unwrap();
    let mut up = hello(&BLANK);
    up.extend(connect(FEATURES, kind, 24, method, &authorizer));
    let mut got = fed(s, &up).unwrap();
    let mut down = output(s);
    down.advance(SERVER_HELLO_LEN);
    let (mut tag, mut payload) = replied(&mut down);
    if method == Method::CEPHX {
        assert_eq!(tag, Tag::ChallengeAuthorizer as u8);
        let answer = h.more(&client.borrow(), &*rnd, &payload).unwrap();
        got.extend(fed(s, &connect(FEATURES, kind, 24, method, &answer)).unwrap());
        down = output(s);
        (tag, payload) = replied(&mut down);
    }
    assert_eq!((tag, down.len()), (Tag::Seq as u8, 8));
    let a = h.done(&mut client.borrow_mut(), NOW.wall, 0, ConMode::CRC, &payload).unwrap();
    got.extend(fed(s, &[0; 8]).unwrap());
    (got, a.session_key)
}

/// A cluster, a client with tickets, and the rest of its session at the monitor.
fn signed_in(method: Method) -> (Cluster, Rc<RefCell<Client>>, Connection) {
    let cluster = Cluster::new(method, KeyKind::Aes);
    let client = cluster.client("client.x");
    let mut mon = server(&cluster);
    to_monitor(&mut mon, EntityKind::CLIENT);
    let got = sign_in(&mut mon, &client);
    assert!(matches!(got[..], [Event::Open]), "{got:?}");
    assert!(mon.is_open());
    (cluster, client, mon)
}

/// An open session at an OSD, and the key of its signatures.
fn at_osd(method: Method) -> (Connection, Option<CryptoKey>) {
    let (cluster, client, _) = signed_in(method);
    let mut osd = server(&cluster.at(EntityKind::OSD));
    let (got, key) = to_service(&mut osd, &client, EntityKind::CLIENT);
    assert!(matches!(got[..], [Event::Open]), "{got:?}");
    (osd, key)
}

#[test]
fn clients_sign_in_and_exchange_messages() {
    for method in [Method::CEPHX, Method::NONE] {
        let (cluster, client, mut mon) = signed_in(method);
        let p = mon.peer();
        assert_eq!((&p.principal.name, p.principal.kind), (&name("client.x"), EntityKind::CLIENT));
        assert_eq!(p.principal.global_id, client.borrow().global_id());
        assert_eq!(p.addrs.to_string(), "v1:127.0.0.1:0/4711", "the socket tells the IP, and a client has no port");
        let renewal = mauth(2, Bytes::from_static(b"renew"));
        let got = fed(&mut mon, &packed(&renewal, 9, None, |_| {})).unwrap();
        assert_eq!(messages(got)[0].front, renewal.front, "later ones are the host's");

        let mut osd = server(&cluster.at(EntityKind::OSD));
        let (got, key) = to_service(&mut osd, &client, EntityKind::CLIENT);
        assert!(matches!(got[..], [Event::Open]) && key.is_some() == (method == Method::CEPHX));
        assert_eq!(osd.peer().principal.name, name("client.x"));
        for (seq, (front, data)) in (1..).zip([(10, 0), (300, 70_000), (5000, 9_000_000), (0, 0)]) {
            let m = message(seq, front, 3, data);
            let got = messages(fed(&mut osd, &packed(&m, seq, key.as_ref(), |_| {})).unwrap());
            assert_eq!(got, [support::numbered(m.clone(), seq)]);
            osd.send(m.clone()).unwrap();
            let (down, _) = received(output(&mut osd), key.as_ref());
            assert_eq!(down, [support::numbered(m, seq)]);
        }
    }
}

#[test]
fn keepalives_are_answered_and_a_close_closes() {
    let (mut osd, key) = at_osd(Method::CEPHX);
    let mut w = Writer::default();
    w.u8(Tag::Keepalive as u8);
    w.u8(Tag::Ack as u8);
    w.u64(7);
    w.u8(Tag::Keepalive2 as u8);
    w.put(&Utime { sec: 5, nsec: 6 });
    assert!(fed(&mut osd, w.as_slice()).unwrap().is_empty());
    let down = output(&mut osd);
    assert_eq!(received(down.clone(), key.as_ref()).1, [Tag::Keepalive2Ack]);
    assert_eq!(down[1..], w.as_slice()[11..], "with the client's time");
    osd.keepalive(Utime { sec: 8, nsec: 9 });
    assert_eq!(received(output(&mut osd), key.as_ref()).1, [Tag::Keepalive2]);
    let mut w = Writer::default();
    w.u8(Tag::Keepalive2Ack as u8);
    w.put(&Utime { sec: 8, nsec: 9 });
    assert!(matches!(fed(&mut osd, w.as_slice()).unwrap()[..], [Event::KeepaliveAck(Utime { sec: 8, nsec: 9 })]));
    assert!(fed(&mut osd, &[Tag::Close as u8]).unwrap().is_empty());
    assert!(osd.is_closing());
}

#[test]
fn daemons_are_reported_with_the_number_in_their_first_message() {
    let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes);
    let client = cluster.client("osd.3");
    to_monitor(&mut server(&cluster), EntityKind::OSD);
    let mut mon = server(&cluster);
    to_monitor(&mut mon, EntityKind::OSD);
    sign_in(&mut mon, &client);
    let mut osd = server(&cluster.at(EntityKind::OSD));
    let (got, key) = to_service(&mut osd, &client, EntityKind::OSD);
    assert!(got.is_empty() && !osd.is_open(), "the host's limit of a handshake goes on");
    let m = message(1, 5, 0, 0);
    let got = fed(&mut osd, &packed(&m, 1, key.as_ref(), |_| {})).unwrap();
    assert!(matches!(got[..], [Event::Open, Event::Message(_)]), "{got:?}");
    assert_eq!((osd.peer().num, osd.peer().principal.kind), (4101, EntityKind::OSD));
}

#[test]
fn a_client_without_what_is_required_is_told_so() {
    let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes);
    for (features, protocol, want) in [
        (FEATURES & !REQUIRED, 15, Tag::Features),
        (FEATURES & !(1 << 61), 15, Tag::Features),
        (FEATURES, 24, Tag::BadProtocol),
    ] {
        let mut s = server(&cluster);
        let mut up = hello(&BLANK);
        up.extend(connect(features, EntityKind::CLIENT, protocol, Method(0), &[]));
        assert!(fed(&mut s, &up).unwrap().is_empty());
        let mut down = output(&mut s);
        down.advance(SERVER_HELLO_LEN);
        assert_eq!(replied(&mut down).0, want as u8);
        assert!(s.is_closing());
    }
}

#[test]
fn no_other_protocol_and_no_lossless_peer_is_served() {
    let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes);
    for b in [&b"ceph v2\n\x10\x00"[..], b"GET / HTTP/1.1", b"x"] {
        assert_eq!(fed(&mut server(&cluster), b).unwrap_err(), Error::NotMsgr1);
    }
    let cfg = server_config(&cluster, Policy::lossless_peer(Vec::new()));
    let mut s = Connection::server(cfg, peer_socket());
    let mut up = hello(&BLANK);
    up.extend(connect(FEATURES, EntityKind::MON, 15, Method(0), &[]));
    assert_eq!(fed(&mut s, &up).unwrap_err(), Error::LosslessOverMsgr1(EntityKind::MON));
    // Nor one for which only encrypted connections are allowed.
    let cfg = server_config(&cluster, Policy::lossy_server(vec![ConMode::SECURE]));
    let mut s = Connection::server(cfg, peer_socket());
    let mut up = hello(&BLANK);
    up.extend(connect(FEATURES, EntityKind::CLIENT, 15, Method(0), &[]));
    assert_eq!(fed(&mut s, &up).unwrap_err(), Error::Msgr1NotEncrypted("ms_service_mode"));
}

#[test]
fn lengths_are_checked_before_anything_is_allocated() {
    let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes);
    let mut s = server(&cluster.at(EntityKind::OSD));
    let mut up = hello(&BLANK);
    up.extend(connect(FEATURES, EntityKind::CLIENT, 24, Method::CEPHX, &[]));
    let at = up.len() - 5;
    up[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let e = fed(&mut s, &up).unwrap_err();
    assert!(matches!(e, Error::TooLarge { max: AUTHORIZER_BYTES_MAX, .. }), "{e}");

    let head = |len: [usize; 3]| {
        let mut h = Header { len, ..Header::default() };
        [&[Tag::Msg as u8][..], &h.seal()].concat()
    };
    let mut mon = server(&cluster);
    to_monitor(&mut mon, EntityKind::CLIENT);
    let e = fed(&mut mon, &head([FRAME_BYTES_MAX_PREAUTH + 1, 0, 0])).unwrap_err();
    assert!(matches!(e, Error::TooLarge { segment: 0, .. }), "{e}");
    let mut mon = server(&cluster);
    to_monitor(&mut mon, EntityKind::CLIENT);
    let e = fed(&mut mon, &head([10, 0, 1])).unwrap_err();
    assert!(matches!(e, Error::TooLarge { segment: 2, max: 0, .. }), "{e}");
    let (mut osd, _) = at_osd(Method::CEPHX);
    let e = fed(&mut osd, &head([0, 0, DATA_BYTES_MAX + 1])).unwrap_err();
    assert!(matches!(e, Error::TooLarge { segment: 2, .. }), "{e}");
}

#[test]
fn sign_in_has_bounded_attempts_and_takes_nothing_else() {
    let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes);
    let mut mon = server(&cluster);
    to_monitor(&mut mon, EntityKind::CLIENT);
    let e = fed(&mut mon, &packed(&message(1, 5, 0, 0), 1, None, |_| {})).unwrap_err();
    assert!(matches!(e, Error::UnexpectedFrame { tag: "message", .. }), "{e}");

    // A wrong key is told so, and may be tried a few times.
    let mut mon = server(&cluster);
    to_monitor(&mut mon, EntityKind::CLIENT);
    let wrong = Client::cephx(name("client.x"), cluster.key("client.admin"));
    let mut tries = 0;
    let e = loop {
        tries += 1;
        let mut h = Handshake::new(EntityKind::MON);
        h.request(&wrong, &*Seeded::new(1)).unwrap();
        fed(&mut mon, &packed(&first_mauth(Method::CEPHX, "client.x", 0), tries, None, |_| {})).unwrap();
        let proof = h.more(&wrong, &*Seeded::new(1), &auth_reply(output(&mut mon)).auth_payload).unwrap();
        match fed(&mut mon, &packed(&mauth(2, proof), tries, None, |_| {})) {
            Ok(got) => {
                assert!(matches!(got[..], [Event::AuthFailed(_)]) && !mon.is_open());
                let r = auth_reply(output(&mut mon));
                assert_eq!((r.result, r.global_id, r.result_msg.as_str()), (-13, 0, ""));
            }
            Err(e) => break e,
        }
    };
    assert_eq!((e, tries), (Error::TooManyAuthAttempts, u64::from(AUTH_ATTEMPTS_MAX)));

    // Another's global id is not given without a ticket for it.
    let mut mon = server(&cluster);
    to_monitor(&mut mon, EntityKind::CLIENT);
    let client = cluster.client("client.x");
    let mut h = Handshake::new(EntityKind::MON);
    h.request(&client.borrow(), &*Seeded::new(1)).unwrap();
    fed(&mut mon, &packed(&first_mauth(Method::CEPHX, "client.x", 4242), 1, None, |_| {})).unwrap();
    let proof = h.more(&client.borrow(), &*Seeded::new(1), &auth_reply(output(&mut mon)).auth_payload).unwrap();
    let got = fed(&mut mon, &packed(&mauth(2, proof), 2, None, |_| {})).unwrap();
    assert!(
        matches!(got[..], [Event::AuthFailed(auth::AuthError::InsecureReclaim { global_id: 4242, .. })]),
        "{got:?}"
    );

    // Keepalives count, too.
    let mut mon = server(&cluster);
    to_monitor(&mut mon, EntityKind::CLIENT);
    let e = fed(&mut mon, &[Tag::Keepalive as u8; AUTH_FRAMES_MAX as usize]).unwrap_err();
    assert_eq!(e, Error::TooManyAuthAttempts);
}

#[test]
fn a_recorded_authorizer_opens_nothing() {
    let (cluster, client, _) = signed_in(Method::CEPHX);
    let osd = cluster.at(EntityKind::OSD);
    let rnd = Seeded::new(11);
    let mut h = Handshake::new(EntityKind::OSD);
    let authorizer = h.request(&client.borrow(), &*rnd).unwrap();
    let mut one = server(&osd);
    fed(&mut one, &[hello(&BLANK), connect(FEATURES, EntityKind::CLIENT, 24, Method::CEPHX, &authorizer)].concat())
        .unwrap();
    let mut down = output(&mut one);
    down.advance(SERVER_HELLO_LEN);
    let answer = h.more(&client.borrow(), &*rnd, &replied(&mut down).1).unwrap();
    // Replayed on another connection, whose challenge is another.
    let mut two = Connection::server(
        support::config(
            EntityKind::OSD,
            AddrVec::default(),
            Policy::lossy_server(vec![ConMode::CRC]),
            Some(&osd),
            None,
            77,
        ),
        peer_socket(),
    );
    let mut up = hello(&BLANK);
    up.extend(connect(FEATURES, EntityKind::CLIENT, 24, Method::CEPHX, &authorizer));
    assert!(fed(&mut two, &up).unwrap().is_empty());
    let got = fed(&mut two, &connect(FEATURES, EntityKind::CLIENT, 24, Method::CEPHX, &answer)).unwrap();
    assert!(matches!(got[..], [Event::AuthFailed(auth::AuthError::BadChallenge)]), "{got:?}");
    let mut down = output(&mut two);
    down.advance(SERVER_HELLO_LEN);
    assert_eq!(replied(&mut down).0, Tag::ChallengeAuthorizer as u8);
    assert_eq!(replied(&mut down), (Tag::BadAuthorizer as u8, Bytes::new()));
    assert!(!two.is_open());
}

#[test]
fn messages_must_be_signed_by_the_session_and_come_once() {
    let (mut osd, key) = at_osd(Method::CEPHX);
    let key = key.unwrap();
    let m = message(1, 40, 0, 100);
    let first = signed(&m, 5, &key);
    assert_eq!(messages(fed(&mut osd, &first).unwrap()).len(), 1, "numbers may skip");
    assert!(fed(&mut osd, &first).unwrap().is_empty(), "a replayed message is dropped");
    assert!(fed(&mut osd, &signed(&m, 4, &key)).unwrap().is_empty());
    let no_crc = packed(&m, 6, Some(&key), |f| {
        f.crc[2] = 0;
        f.flags |= NO_DATA_CRC;
    });
    assert_eq!(messages(fed(&mut osd, &no_crc).unwrap()).len(), 1, "the data may have no checksum");

    let other = CryptoKey::generate(KeyKind::Aes, NOW.wall, &*Seeded::new(3));
    for bad in [packed(&m, 7, None, |_| {}), packed(&m, 7, None, |f| f.flags |= SIGNED), signed(&m, 7, &other)] {
        let (mut osd, _) = at_osd(Method::CEPHX);
        let e = fed(&mut osd, &bad).unwrap_err();
        assert_eq!(e, Error::MessageSignature(7));
        assert!(e.is_auth());
    }
    let (mut osd, _) = at_osd(Method::CEPHX);
    assert_eq!(fed(&mut osd, &packed(&m, 7, Some(&key), |f| f.flags = 0)).unwrap_err(), Error::Aborted);
    let (mut osd, _) = at_osd(Method::NONE);
    assert_eq!(fed(&mut osd, &[99]).unwrap_err(), Error::BadTag(99));
}

#[test]
fn any_cut_of_the_stream_gives_the_same_messages() {
    let seed = 0xc075;
    let mut rng = Rng::new(seed);
    for _ in 0..60 {
        let (mut osd, key) = at_osd(Method::CEPHX);
        let sent: Vec<Message> = (1..6)
            .map(|i| message(i, rng.below(300) as usize, rng.below(20) as usize, rng.below(40_000) as usize))
            .collect();
        let mut rest: Bytes = sent.iter().zip(1..).flat_map(|(m, n)| signed(m, n, key.as_ref().unwrap())).collect();
        let mut got = Vec::new();
        while !rest.is_empty() {
            let most = if rng.below(4) == 0 { 30_000 } else { 90 };
            let n = (rng.below(most) as usize + 1).min(rest.len());
            got.extend(fed(&mut osd, &rest.split_to(n)).unwrap());
        }
        let want: Vec<Message> = sent.into_iter().zip(1..).map(|(m, n)| support::numbered(m, n)).collect();
        assert_eq!(messages(got), want, "seed {seed:#x}");
    }
}

#[test]
fn any_altered_byte_ends_the_session_or_changes_no_message() {
    let m = message(1, 30, 5, 60);
    let (_, key) = at_osd(Method::CEPHX);
    let stream = signed(&m, 1, key.as_ref().unwrap());
    for at in 0..stream.len() {
        let (mut osd, key) = at_osd(Method::CEPHX);
        assert_eq!(signed(&m, 1, key.as_ref().unwrap()), stream);
        let mut bad = stream.clone();
        bad[at] ^= 0x10;
        match fed(&mut osd, &bad) {
            Err(_) => {}
            // The flags have no checksum: a flag without meaning, or that of the signature.
            Ok(got) if at + 1 == stream.len() => assert_eq!(messages(got), [support::numbered(m.clone(), 1)]),
            Ok(got) => panic!("byte {at}: {got:?}"),
        }
    }
}
