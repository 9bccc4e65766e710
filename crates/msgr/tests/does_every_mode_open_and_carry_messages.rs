//! Does a session open with every method, key type and mode, and carry messages of every shape unchanged?

mod support;

use auth::{ConMode, KeyKind, Method};
use base::EntityKind;
use bytes::Bytes;
use msgr::{Event, Policy};
use support::*;

fn variants() -> Vec<(Method, KeyKind, ConMode)> {
    vec![
        (Method::NONE, KeyKind::Aes, ConMode::CRC),
        (Method::CEPHX, KeyKind::Aes, ConMode::CRC),
        (Method::CEPHX, KeyKind::Aes, ConMode::SECURE),
        (Method::CEPHX, KeyKind::Aes256K, ConMode::CRC),
        (Method::CEPHX, KeyKind::Aes256K, ConMode::SECURE),
    ]
}

fn pair(method: Method, kind: KeyKind, mode: ConMode) -> Pair {
    let cluster = Cluster::new(method, kind);
    let client = client_config(cluster.client("client.admin"), Policy::lossy_client(vec![mode]));
    Pair::new(client, server_config(&cluster, Policy::lossy_server(MODES.to_vec())))
}

const SHAPES: [(usize, usize, usize); 15] = [
    (0, 0, 0),
    (1, 0, 0),
    (16, 0, 1),
    (0, 5, 0),
    (200, 0, 4096),
    (300, 17, 4095),
    (5000, 0, 0),
    (100, 0, 16_384),
    (70_000, 3, 70_001),
    (0, 0, 1 << 20),
    (1 << 20, 0, 0),
    (48, 48, 48),
    (0, 0, 65_504),
    (0, 0, 65_520),
    (1, 16, 65_521),
];

#[test]
fn messages_arrive_unchanged_both_ways() {
    for (method, kind, mode) in variants() {
        let mut p = pair(method, kind, mode);
        p.open();
        assert_eq!((p.client.mode(), p.server.mode()), (mode, mode));
        let peer = p.server.peer();
        assert_eq!((peer.claimed, peer.principal.global_id, peer.num), (EntityKind::CLIENT, 4101, 7));
        assert_eq!(peer.principal.name, name("client.admin"));
        assert_eq!(peer.principal.caps.allow_all, method == Method::NONE);
        assert_eq!(peer.addrs.to_string(), "127.0.0.1:0/4711", "learned from the server's HELLO");
        assert_eq!(p.client.peer().principal.global_id, 4101);
        let all: Vec<_> = SHAPES.iter().zip(1..).map(|((f, m, d), i)| message(i, *f, *m, *d)).collect();
        for m in &all {
            p.client.send(m.clone()).unwrap();
            p.server.send(m.clone()).unwrap();
        }
        let seen = p.drive();
        let want: Vec<_> = all.into_iter().zip(1..).map(|(m, i)| numbered(m, i)).collect();
        assert!(messages(seen.server) == want, "{method:?} {kind:?} {mode:?}");
        assert!(messages(seen.client) == want, "{method:?} {kind:?} {mode:?}");
    }
}

#[test]
fn the_server_takes_the_first_offered_mode_it_allows() {
    use ConMode as M;
    for (offered, allowed, want) in [
        (vec![M::SECURE, M::CRC], vec![M::CRC, M::SECURE], M::SECURE),
        (vec![M::CRC, M::SECURE], vec![M::SECURE, M::CRC], M::CRC),
        (vec![M::SECURE, M::CRC], vec![M::CRC], M::CRC),
    ] {
        let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes);
        let client = client_config(cluster.client("client.x"), Policy::lossy_client(offered));
        let mut p = Pair::new(client, server_config(&cluster, Policy::lossy_server(allowed)));
        p.open();
        assert_eq!(p.server.mode(), want);
    }
}

#[test]
fn a_ticket_opens_a_service() {
    for kind in [KeyKind::Aes, KeyKind::Aes256K] {
        for mode in MODES {
            let cluster = Cluster::new(Method::CEPHX, kind);
            let client = cluster.client("client.x");
            let policy = Policy::lossy_client(vec![mode]);
            let mon = server_config(&cluster, Policy::lossy_server(MODES.to_vec()));
            Pair::new(client_config(client.clone(), policy.clone()), mon).open();
            let osd = server_config(&cluster.at(EntityKind::OSD), Policy::lossy_server(MODES.to_vec()));
            let mut p = Pair::new(client_config(client, policy), osd);
            p.open();
            let peer = p.server.peer();
            assert_eq!((&peer.principal.name, peer.principal.global_id), (&name("client.x"), 4101));
            assert_eq!(peer.principal.caps.text(), "allow r");
            assert_eq!(p.server.mode(), mode);
        }
    }
}

#[test]
fn any_cut_of_the_stream_gives_the_same_messages() {
    for (method, kind, mode) in variants() {
        // Byte by byte through the whole handshake and a few messages.
        let mut p = pair(method, kind, mode);
        p.client.send(message(1, 300, 0, 100)).unwrap();
        p.client.send(message(2, 10, 0, 20_000)).unwrap();
        let mut got = Vec::new();
        loop {
            let up = output(&mut p.client);
            let down = output(&mut p.server);
            if up.is_empty() && down.is_empty() {
                break;
            }
            for b in up {
                input(&mut p.server, Bytes::copy_from_slice(&[b]));
                got.extend(messages(events(&mut p.server, NOW).unwrap()));
            }
            for b in down {
                input(&mut p.client, Bytes::copy_from_slice(&[b]));
                events(&mut p.client, NOW).unwrap();
            }
        }
        assert!(got == [numbered(message(1, 300, 0, 100), 1), numbered(message(2, 10, 0, 20_000), 2)]);
    }
}

#[test]
fn large_data_lands_page_aligned() {
    for mode in MODES {
        let mut p = pair(Method::CEPHX, KeyKind::Aes, mode);
        p.open();
        p.client.send(message(1, 333, 0, 1 << 20)).unwrap();
        let all = Bytes::from(output(&mut p.client));
        let mut at = 0;
        while at < all.len() {
            let n = (all.len() - at).min(50_000);
            input(&mut p.server, all.slice(at..at + n));
            at += n;
            if at < all.len() {
                assert!(events(&mut p.server, NOW).unwrap().is_empty());
                assert!(p.server.target().is_some(), "the rest is read straight into place");
            }
        }
        let got = events(&mut p.server, NOW).unwrap();
        let summed = got.iter().any(|e| matches!(e, Event::Message(m) if m.sums.is_some()));
        assert_eq!(summed, mode == ConMode::CRC, "a tag verifies encrypted data, not a checksum");
        let m = messages(got).pop().unwrap();
        assert!(m == numbered(message(1, 333, 0, 1 << 20), 1));
        assert_eq!(m.data.as_ptr().addr() % 4096, 0);
    }
}

#[test]
fn keepalives_are_answered() {
    let mut p = pair(Method::NONE, KeyKind::Aes, ConMode::CRC);
    p.open();
    p.client.keepalive(NOW.wall).unwrap();
    let seen = p.drive();
    assert!(matches!(seen.client.as_slice(), [Event::KeepaliveAck(t)] if *t == NOW.wall));
}
