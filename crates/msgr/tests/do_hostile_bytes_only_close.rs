//! Do malformed, oversized, truncated and altered streams end with a typed error, never with a panic, a wrong message or
//! a large allocation?

mod support;

use auth::{ConMode, KeyKind, Method};
use base::crc::crc32c;
use base::rng::Rng;
use bytes::Bytes;
use msgr::frame::{PREAMBLE_LEN, Preamble, Tag, header2};
use msgr::policy::{AUTH_ATTEMPTS_MAX, CONTROL_BYTES_MAX, DATA_BYTES_MAX, FRAME_BYTES_MAX_PREAUTH, FRONT_BYTES_MAX};
use msgr::{Connection, Error, Event, Policy};
use support::*;

fn cluster() -> Cluster {
    Cluster::new(Method::CEPHX, KeyKind::Aes)
}

fn server() -> Connection {
    Connection::server(server_config(&cluster(), Policy::lossy_server(MODES.to_vec())), peer_socket())
}

fn pair(mode: ConMode) -> Pair {
    let cluster = cluster();
    let c = client_config(cluster.client("client.x"), Policy::lossy_client(vec![mode]));
    Pair::new(c, server_config(&cluster, Policy::lossy_server(MODES.to_vec())))
}

fn fed(c: &mut Connection, b: &[u8]) -> Result<Vec<Event>, Error> {
    c.feed(Bytes::copy_from_slice(b));
    events(c, NOW)
}

#[test]
fn banners() {
    assert_eq!(fed(&mut server(), b"ceph v027\0\0\0").unwrap_err(), Error::Msgr1Peer);
    let text = Error::Msgr1Peer.to_string();
    assert!(text.contains("ms_mode"), "{text}");
    assert_eq!(fed(&mut server(), b"GET / HTTP/1.1").unwrap_err(), Error::NotMsgr2);
    assert_eq!(fed(&mut server(), b"x").unwrap_err(), Error::NotMsgr2);
    assert!(fed(&mut server(), b"ceph v0").is_ok(), "not enough to tell");
    assert_eq!(fed(&mut server(), b"ceph v2\n\xff\xff").unwrap_err(), Error::BadBanner(65535));
    let mut b = msgr::frame::banner();
    b[18] = 2;
    assert_eq!(fed(&mut server(), &b).unwrap_err(), Error::BannerFeatures { supported: 1, required: 2 });
    b[10] = 0;
    b[18] = 0;
    assert_eq!(fed(&mut server(), &b).unwrap_err(), Error::BannerFeatures { supported: 0, required: 0 });
}

fn preamble(tag: Tag, len: [usize; 4]) -> [u8; PREAMBLE_LEN] {
    Preamble::build(tag, len).1
}

#[test]
fn sizes_are_limited_per_state_before_anything_is_allocated() {
    let mut c = server();
    fed(&mut c, &msgr::frame::banner()).unwrap();
    let e = fed(&mut c, &preamble(Tag::Hello, [FRAME_BYTES_MAX_PREAUTH + 1, 0, 0, 0])).unwrap_err();
    assert!(matches!(e, Error::TooLarge { tag: "HELLO", segment: 0, .. }));
    let mut c = server();
    fed(&mut c, &msgr::frame::banner()).unwrap();
    let e = fed(&mut c, &preamble(Tag::Message, [41, 10, 0, 0])).unwrap_err();
    assert!(matches!(e, Error::TooLarge { tag: "MESSAGE", segment: 1, max: 0, .. }), "no message before signing in");

    for (tag, len) in [
        (Tag::Message, [41, FRONT_BYTES_MAX + 1, 0, 0]),
        (Tag::Message, [41, 0, 0, DATA_BYTES_MAX + 1]),
        (Tag::Ack, [CONTROL_BYTES_MAX + 1, 0, 0, 0]),
        (Tag::Ack, [8, 8, 0, 0]),
    ] {
        let mut p = pair(ConMode::CRC);
        p.open();
        assert!(matches!(fed(&mut p.server, &preamble(tag, len)).unwrap_err(), Error::TooLarge { .. }));
    }
    let mut p = pair(ConMode::CRC);
    p.open();
    let e = fed(&mut p.server, &preamble(Tag::Message, [40, 0, 0, 0])).unwrap_err();
    assert_eq!(e, Error::BadPreamble("length of a message header"));
}

#[test]
fn frames_out_of_place() {
    let frame = |tag: Tag, payload: &[u8]| {
        let mut b = preamble(tag, [payload.len(), 0, 0, 0]).to_vec();
        b.extend_from_slice(payload);
        if !payload.is_empty() {
            b.extend_from_slice(&crc32c(!0, payload).to_le_bytes());
        }
        b
    };
    for n in 1..=22u8 {
        let tag = Tag::from_number(n).unwrap();
        if tag == Tag::Message {
            continue;
        }
        let mut c = server();
        fed(&mut c, &msgr::frame::banner()).unwrap();
        let e = fed(&mut c, &frame(tag, &[])).unwrap_err();
        if tag == Tag::Hello {
            assert!(matches!(e, Error::Malformed { tag: "HELLO", .. }));
        } else {
            assert_eq!(e, Error::UnexpectedFrame { tag: tag.name(), state: "awaiting HELLO" });
        }
        let mut p = pair(ConMode::CRC);
        p.open();
        let e = fed(&mut p.server, &frame(tag, &[])).unwrap_err();
        match tag {
            Tag::Ack | Tag::Keepalive2 | Tag::Keepalive2Ack => assert!(matches!(e, Error::Malformed { .. })),
            _ => assert_eq!(e, Error::UnexpectedFrame { tag: tag.name(), state: "open" }),
        }
    }
    let _ = AUTH_ATTEMPTS_MAX;
}

#[test]
fn an_aborted_message_is_dropped_and_the_session_goes_on() {
    let mut p = pair(ConMode::CRC);
    p.open();
    let m = message(5, 64, 0, 6000);
    let mut b = preamble(Tag::Message, [41, 64, 0, 6000]).to_vec();
    let h = header2(&m.header, 1, 0);
    b.extend_from_slice(&h);
    b.extend_from_slice(&crc32c(!0, &h).to_le_bytes());
    // The sender gave up: the rest is zeros, the checksums are not even right.
    b.extend_from_slice(&[0; 64 + 6000]);
    b.push(0x01);
    b.extend_from_slice(&[0; 12]);
    assert!(fed(&mut p.server, &b).unwrap().is_empty());
    p.client.send(message(6, 10, 0, 0)).unwrap();
    assert!(messages(p.drive().server) == [numbered(message(6, 10, 0, 0), 1)]);
    let at = b.len() - 13;
    b[at] = 0x07;
    assert_eq!(fed(&mut p.server, &b).unwrap_err(), Error::BadLateStatus(7));
}

/// A single flipped bit of a handshake and a message ends the connection or leaves it waiting for more. It never causes
/// the delivery of anything that was not sent.
#[test]
fn flipped_bits_never_deliver_a_wrong_message() {
    for mode in MODES {
        let total = {
            let mut n = 0;
            let mut p = pair(mode);
            p.client.send(message(1, 40, 0, 70)).unwrap();
            p.drive_with(|up, b| {
                n += if up { b.len() } else { 0 };
                b
            });
            n
        };
        for bit in (0..total * 8).step_by(3) {
            let mut p = pair(mode);
            p.client.send(message(1, 40, 0, 70)).unwrap();
            let mut at = 0;
            let seen = p.drive_with(|up, mut b| {
                if up {
                    let i = bit / 8;
                    if (at..at + b.len()).contains(&i) {
                        b[i - at] ^= 1 << (bit % 8);
                    }
                    at += b.len();
                }
                b
            });
            let got = messages(seen.server);
            assert!(got.is_empty() || got == [numbered(message(1, 40, 0, 70), 1)], "{mode:?} bit {bit}");
            if mode == ConMode::SECURE && !got.is_empty() {
                // Only bits the protocol ignores may pass: the supported features beyond revision 1 in the banner.
                assert!(bit / 8 < 26, "{mode:?} bit {bit} passed");
            }
        }
    }
}

#[test]
fn noise_after_the_handshake() {
    let seed = 0xbad_5eed;
    let mut rng = Rng::new(seed);
    for mode in MODES {
        for round in 0..200 {
            let mut p = pair(mode);
            p.open();
            let mut b = vec![0; rng.below(3000) as usize];
            rng.fill(&mut b);
            if rng.chance(1, 2) && b.len() > 32 {
                // A valid preamble checksum lets the noise get further.
                b[0] = rng.below(23) as u8;
                b[1] = rng.below(5) as u8;
                b[4..6].fill(0);
                let crc = crc32c(0, &b[..28]);
                b[28..32].copy_from_slice(&crc.to_le_bytes());
            }
            if let Ok(e) = fed(&mut p.server, &b) {
                assert!(e.is_empty(), "seed {seed} round {round}");
            }
        }
    }
}
