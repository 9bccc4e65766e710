//! Do lossless sessions deliver every message exactly once and in order, however often the socket breaks?

mod support;

use auth::{ConMode, KeyKind, Method};
use base::rng::Rng;
use msgr::policy::{UNACKED_BYTES_MAX, UNACKED_MAX, WINDOW_BYTES};
use msgr::session::decide;
use msgr::{Connection, Error, Event, Policy, Request, Verdict};
use support::*;

fn policies() -> (Policy, Policy) {
    (Policy::lossless_peer(MODES.to_vec()), Policy::lossless_server(MODES.to_vec()))
}

fn new_pair(method: Method) -> Pair {
    new_pair_in(method, &MODES)
}

fn new_pair_in(method: Method, modes: &[ConMode]) -> Pair {
    let cluster = Cluster::new(method, KeyKind::Aes);
    let (_, s) = policies();
    let c = Policy::lossless_peer(modes.to_vec());
    Pair::new(client_config(cluster.client("client.x"), c), server_config(&cluster, s))
}

/// A server socket of the same process as `p.server`.
fn fresh_socket(p: &Pair, seed: u64) -> Connection {
    let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes);
    let cfg = config(cluster.service, server_addr().into(), policies().1, Some(&cluster), None, seed);
    let _ = p;
    Connection::server(cfg, peer_socket())
}

/// Moves bytes between the client and a new server socket until the server gets the session request.
fn handshake(client: &mut Connection, server: &mut Connection) -> Request {
    for _ in 0..20 {
        let up = output(client);
        input(server, up.into());
        for e in events(server, NOW).unwrap() {
            if let Event::Request(r) = e {
                return r;
            }
        }
        let down = output(server);
        input(client, down.into());
        events(client, NOW).unwrap();
    }
    panic!("no request: client {client:?}, server {server:?}");
}

#[test]
fn an_open_session_has_cookies_and_acknowledges() {
    let mut p = new_pair(Method::CEPHX);
    p.open();
    assert!(!p.client.is_lossy() && !p.server.is_lossy());
    assert_eq!(p.client.view().client_cookie, p.server.view().client_cookie);
    assert_ne!(p.client.view().server_cookie, 0);
    p.client.send(message(1, 10, 0, 10)).unwrap();
    assert!(p.client.output_bytes() > 0);
    p.drive();
    assert_eq!(p.client.output_bytes(), 0, "acknowledged and forgotten");
}

#[test]
fn received_messages_are_acknowledged_by_the_next_message_or_once_there_are_many() {
    let mut p = new_pair(Method::CEPHX);
    p.open();
    let get = |p: &mut Pair, n: u64, data: usize| {
        for tid in 1..=n {
            p.client.send(message(tid, 10, 0, data)).unwrap();
        }
        let b = output(&mut p.client);
        input(&mut p.server, b.into());
        assert_eq!(messages(events(&mut p.server, NOW).unwrap()).len() as u64, n);
    };
    get(&mut p, 1, 10);
    assert!(p.server.owes_ack() && !p.server.wants_write(), "not worth a frame of its own");
    p.server.send(message(1, 10, 0, 10)).unwrap();
    assert!(!p.server.owes_ack());
    p.drive();
    assert_eq!(p.client.output_bytes(), 0, "acknowledged by the answer");

    get(&mut p, UNACKED_MAX, 10);
    assert!(p.server.wants_write(), "many");
    p.drive();
    assert_eq!(p.client.output_bytes(), 0);
    get(&mut p, 1, UNACKED_BYTES_MAX);
    assert!(p.server.wants_write(), "long ones");
}

#[test]
fn random_breaks_lose_and_repeat_nothing() {
    for seed in 0..8u64 {
        let mut rng = Rng::new(seed);
        let modes: &[ConMode] = if seed % 2 == 0 { &MODES } else { &[ConMode::CRC] };
        let mut p = new_pair_in(Method::CEPHX, modes);
        p.open();
        let (mut sent, mut got) = ([0u64; 2], [0u64; 2]);
        let mut breaks = 0;
        for step in 0..400u64 {
            for (i, end) in [&mut p.client, &mut p.server].into_iter().enumerate() {
                for _ in 0..rng.below(4) {
                    sent[i] += 1;
                    let (f, d) = (rng.below(300) as usize, rng.below(20_000) as usize);
                    end.send(message(sent[i], f, 0, if rng.chance(1, 4) { d } else { 0 })).unwrap();
                }
            }
            // Some bytes pass, then perhaps the socket breaks in mid-frame.
            let breaking = rng.chance(1, 8);
            let up = output(&mut p.client);
            let down = output(&mut p.server);
            for (i, b) in [(0, up), (1, down)] {
                let end = if i == 0 { &mut p.server } else { &mut p.client };
                let n = if breaking { rng.below(b.len() as u64 + 1) as usize } else { b.len() };
                input(end, bytes::Bytes::copy_from_slice(&b[..n]));
                for m in messages(events(end, NOW).unwrap()) {
                    got[i] += 1;
                    assert_eq!(m.header.tid, got[i], "seed {seed} step {step} direction {i}");
                    let want = message(m.header.tid, m.front.len(), 0, m.data.len());
                    assert!(m.front == want.front && m.data == want.data);
                }
            }
            if breaking {
                breaks += 1;
                assert!(p.client.disconnected());
                if rng.chance(1, 2) {
                    // Otherwise the server learns of the break only from the new connection.
                    assert!(p.server.disconnected());
                }
                p.client.reconnect();
                let mut socket = fresh_socket(&p, 1000 + step);
                let r = handshake(&mut p.client, &mut socket);
                assert!(r.reconnect);
                let v = decide(&r, Some(p.server.view()), true, true, server_addr());
                assert_eq!(v, Verdict::Adopt, "seed {seed} step {step}");
                assert!(matches!(p.server.adopt(socket).unwrap(), Event::Resumed));
                assert_eq!(p.server.peer().principal.name, name("client.x"));
            }
        }
        let seen = p.drive();
        got[0] += messages(seen.server).len() as u64;
        got[1] += messages(seen.client).len() as u64;
        assert_eq!(got, sent, "seed {seed}, {breaks} breaks");
        assert!(breaks > 10);
        assert_eq!((p.client.output_bytes(), p.server.output_bytes()), (0, 0));
    }
}

/// Neither a long queue nor all that a lost socket had taken is encoded at once.
#[test]
fn a_resumed_session_resends_in_windows() {
    let mut p = new_pair(Method::CEPHX);
    p.open();
    let (n, size) = (40, 512 << 10);
    let most = WINDOW_BYTES + size + 4096;
    for tid in 1..=n {
        p.client.send(message(tid, 10, 0, size)).unwrap();
        assert!(p.client.unwritten() <= most);
    }
    // The socket takes half of it, and nothing arrives.
    while p.client.unwritten() > 0 && p.client.output_bytes() > 0 {
        let mut s = [std::io::IoSlice::new(&[]); 64];
        let part = p.client.slices(&mut s);
        let bytes = s[..part].iter().map(|x| x.len()).sum();
        p.client.advance(bytes).unwrap();
    }
    assert!(p.client.output_bytes() > n as usize * size, "all of it is kept");
    p.client.disconnected();
    p.client.reconnect();
    let mut socket = fresh_socket(&p, 77);
    handshake(&mut p.client, &mut socket);
    p.server.adopt(socket).unwrap();
    input(&mut p.client, output(&mut p.server).into());
    events(&mut p.client, NOW).unwrap();
    p.client.send(message(n + 1, 10, 0, size)).unwrap();
    let mut got = 0;
    while got <= n {
        assert!(p.client.unwritten() <= most, "{} bytes are encoded", p.client.unwritten());
        let mut s = [std::io::IoSlice::new(&[]); 64];
        let part = p.client.slices(&mut s);
        let bytes: Vec<u8> = s[..part].iter().flat_map(|x| x.to_vec()).collect();
        assert!(!bytes.is_empty(), "stuck after {got}");
        p.client.advance(bytes.len()).unwrap();
        input(&mut p.server, bytes.into());
        for m in messages(events(&mut p.server, NOW).unwrap()) {
            got += 1;
            assert_eq!(m.header.tid, got);
        }
    }
    p.drive();
    assert_eq!(p.client.output_bytes(), 0);
}

#[test]
fn a_server_that_forgot_resets_and_an_unsettled_session_starts_again() {
    let mut p = new_pair(Method::CEPHX);
    p.open();
    p.client.send(message(1, 5, 0, 5)).unwrap();
    p.client.disconnected();
    p.client.reconnect();
    let mut s = fresh_socket(&p, 9);
    let r = handshake(&mut p.client, &mut s);
    assert_eq!(decide(&r, None, true, true, server_addr()), Verdict::Reset(true));
    s.answer_reset(true).unwrap();
    input(&mut p.client, output(&mut s).into());
    assert!(matches!(events(&mut p.client, NOW).unwrap().as_slice(), [Event::Reset]));

    // Not full: the client keeps its queue and opens a new session on the same connection.
    let mut p = new_pair(Method::CEPHX);
    p.open();
    p.client.send(message(1, 5, 0, 5)).unwrap();
    let lost = output(&mut p.client);
    assert!(!lost.is_empty());
    p.client.disconnected();
    p.client.reconnect();
    let mut s = fresh_socket(&p, 9);
    handshake(&mut p.client, &mut s);
    s.answer_reset(false).unwrap();
    input(&mut p.client, output(&mut s).into());
    events(&mut p.client, NOW).unwrap();
    input(&mut s, output(&mut p.client).into());
    assert!(matches!(events(&mut s, NOW).unwrap().as_slice(), [Event::Request(r)] if !r.reconnect));
    s.accept_fresh().unwrap();
    p.server = s;
    let seen = p.drive();
    assert!(messages(seen.server) == [numbered(message(1, 5, 0, 5), 1)]);
}

#[test]
fn retries_and_waits() {
    let mut p = new_pair(Method::CEPHX);
    p.open();
    p.client.disconnected();
    p.client.reconnect();
    let mut s = fresh_socket(&p, 9);
    let r = handshake(&mut p.client, &mut s);
    assert_eq!(r.connect_seq, 1);
    s.answer_retry(6).unwrap();
    let r = handshake(&mut p.client, &mut s);
    assert_eq!((r.reconnect, r.connect_seq), (true, 7));
    s.answer_retry_global(1 << 40).unwrap();
    let r = handshake(&mut p.client, &mut s);
    assert!(r.global_seq > 1 << 40);
    p.server.adopt(s).unwrap();
    p.client.send(message(1, 1, 0, 0)).unwrap();
    assert_eq!(messages(p.drive().server).len(), 1);

    let mut p = new_pair(Method::CEPHX);
    let seen = p.drive();
    assert!(matches!(seen.server.as_slice(), [Event::Request(_)]));
    p.server.answer_wait().unwrap();
    assert!(p.server.is_closing());
    let seen = p.drive();
    assert!(matches!(seen.client.as_slice(), [Event::Wait]));
}

#[test]
fn a_lossy_policy_of_the_server_wins() {
    let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes);
    let c = client_config(cluster.client("osd.3"), policies().0);
    let mut p = Pair::new(c, server_config(&cluster, Policy::lossy_server(MODES.to_vec())));
    p.open();
    assert!(p.client.is_lossy() && p.server.is_lossy());
    assert!(!p.client.disconnected(), "nothing survives");
}

#[test]
fn adopting_needs_a_request() {
    let mut p = new_pair(Method::CEPHX);
    p.open();
    let s = fresh_socket(&p, 3);
    assert!(matches!(p.server.adopt(s), Err(Error::UnexpectedFrame { .. })));
}
