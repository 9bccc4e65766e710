//! Do endpoints open, carry, pause, break and resume connections over real sockets?

mod support;

use auth::ConMode;
use base::{EntityAddr, EntityKind, EntityName};
use msgr::Policy;
use net::{CloseReason, ConnId, Endpoint, Limits, Net, SendError};
use std::rc::Rc;
use std::time::Duration;
use support::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const CRC: [ConMode; 1] = [ConMode::CRC];

fn lossy() -> (Policy, Policy) {
    (Policy::lossy_client(CRC.to_vec()), Policy::lossy_server(CRC.to_vec()))
}

/// An open connection to a server that gives bytes back only when the test does.
struct Held {
    server: Rc<Recorder>,
    client: Rc<Recorder>,
    /// The connection as the client and as the server names it.
    conn: ConnId,
    sconn: ConnId,
    _endpoints: [Endpoint; 2],
}

/// Opens such a connection. The server reads no further while it holds more than `held` bytes, and the client queues at
/// most `queued` bytes.
async fn held_back(net: &Net, held: usize, queued: usize) -> Held {
    let (cp, sp) = lossy();
    let (server_side, client_side) = (Recorder::new(net), Recorder::new(net));
    let limits = Limits { in_flight_bytes_max: held, ..Limits::default() };
    let (s, addr) = server(net, sp, limits, server_side.clone());
    s.set_auto_consume(false);
    let limits = Limits { output_bytes_max: queued, stall_max: Duration::ZERO, ..Limits::default() };
    let c = client(net, cp, limits, client_side.clone());
    let conn = c.connect(target(addr));
    client_side.open().await;
    let (sconn, _) = server_side.open().await;
    Held { server: server_side, client: client_side, conn, sconn, _endpoints: [s, c] }
}

fn lossless() -> (Policy, Policy) {
    (Policy::lossless_peer(CRC.to_vec()), Policy::lossless_server(CRC.to_vec()))
}

#[test]
fn echo_of_all_sizes_and_who_is_who() {
    run(|| async {
        let net = Net::new();
        let (cp, sp) = lossy();
        let (sh, ch) = (Recorder::new(&net), Recorder::new(&net));
        sh.echo.set(true);
        let (_s, addr) = server(&net, sp, Limits::default(), sh.clone());
        let c = client(&net, cp, Limits::default(), ch.clone());
        let conn = c.connect(target(addr));
        // Sent before the connection is open, so it is queued.
        net.send(conn, message(1, 100, 10)).unwrap();
        let (id, p) = ch.open().await;
        assert_eq!(id, conn);
        assert_eq!((p.principal.kind, p.principal.incoming), (EntityKind::OSD, false));
        assert_eq!(p.entity, EntityName::new(EntityKind::OSD, 3));
        let (_, p) = sh.open().await;
        assert_eq!(p.principal.kind, EntityKind::CLIENT);
        assert_eq!(p.entity, EntityName::new(EntityKind::CLIENT, 0), "the number it was given, not the one it says");
        assert_eq!((p.principal.name.to_string().as_str(), p.principal.global_id), ("client.t", 0));
        assert!(p.principal.incoming && p.lossy && p.principal.caps.allow_all);
        assert_eq!(p.addrs.to_string(), "127.0.0.1:0/9");
        let m = ch.message().await;
        assert_eq!((m.header.tid, m.data.len()), (1, 10));
        for (i, size) in [0, 1, 4096, 16_384, 65_536, 300_000, 4 << 20].into_iter().enumerate() {
            net.send(conn, message(i as u64 + 2, size / 7, size)).unwrap();
        }
        for (i, size) in [0, 1, 4096, 16_384, 65_536, 300_000, 4 << 20].into_iter().enumerate() {
            let m = ch.message().await;
            let want = message(i as u64 + 2, size / 7, size);
            assert!(m.header.tid == want.header.tid && m.front == want.front && m.data == want.data);
        }
        net.close(conn);
        assert_eq!(net.send(conn, message(9, 1, 1)), Err(SendError::Gone));
        assert_eq!(sh.closed().await, CloseReason::Peer);
        assert_eq!(net.stats().connections, 0);
    });
}

#[test]
fn many_messages_of_a_turn_leave_in_one_write() {
    run(|| async {
        let net = Net::new();
        let (cp, sp) = lossy();
        let (sh, ch) = (Recorder::new(&net), Recorder::new(&net));
        let (_s, addr) = server(&net, sp, Limits::default(), sh.clone());
        let conn = client(&net, cp, Limits::default(), ch.clone()).connect(target(addr));
        ch.open().await;
        sh.open().await;
        let before = net.stats().writes;
        for i in 0..200 {
            net.send(conn, message(i, 20, 50)).unwrap();
        }
        for i in 0..200 {
            assert_eq!(sh.message().await.header.tid, i);
        }
        assert_eq!(net.stats().writes, before + 1);
    });
}

#[test]
fn a_handler_that_does_not_consume_stops_the_reading() {
    run(|| async {
        let net = Net::new();
        let held = held_back(&net, 100_000, Limits::default().output_bytes_max).await;
        let Held { server: sh, conn, sconn, .. } = &held;
        let (conn, sconn) = (*conn, *sconn);
        let total = 3000u64;
        for i in 0..total {
            net.send(conn, message(i, 0, 10_000)).unwrap();
        }
        let mut kept = Vec::new();
        for i in 0..total {
            let m = sh.message().await;
            assert_eq!(m.header.tid, i);
            kept.push(m);
            if kept.len() == 10 {
                // 107,680 bytes are held: no message may arrive until some are given back.
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                assert!(sh.events.borrow().is_empty());
                for m in kept.drain(..) {
                    net.consumed(sconn, m.cost());
                }
            }
        }
    });
}

#[test]
fn output_for_a_full_socket_waits_without_turns() {
    run(|| async {
        let net = Net::new();
        let held = held_back(&net, 100_000, 64 << 20).await;
        let Held { server: sh, conn, sconn, .. } = &held;
        let (conn, sconn) = (*conn, *sconn);
        for i in 0..32 {
            net.send(conn, message(i, 0, 1 << 20)).unwrap();
        }
        let first = sh.message().await;
        // The server reads no further, and the socket fills up.
        let mut bytes = 0;
        while net.stats().bytes_out != bytes {
            bytes = net.stats().bytes_out;
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
        }
        let turns = reactor::turn::Turn::current().count();
        for i in 32..36 {
            net.send(conn, message(i, 0, 1 << 20)).unwrap();
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
        }
        let turns = reactor::turn::Turn::current().count() - turns;
        assert!(turns <= 16, "{turns} turns for four messages that nobody takes");
        net.consumed(sconn, first.cost());
        for i in 1..36 {
            let m = sh.message().await;
            assert_eq!(m.header.tid, i);
            net.consumed(sconn, m.cost());
        }
    });
}

#[test]
fn all_connections_together_are_bounded_and_none_starves() {
    run(|| async {
        let net = Net::new();
        net.set_in_flight_max(50_000);
        let (cp, sp) = lossy();
        let (sh, ch) = (Recorder::new(&net), Recorder::new(&net));
        let (s, addr) = server(&net, sp, Limits::default(), sh.clone());
        s.set_auto_consume(false);
        let c = client(&net, cp, Limits::default(), ch.clone());
        let conns: Vec<_> = (0..10).map(|_| c.connect(target(addr))).collect();
        for _ in &conns {
            ch.open().await;
            sh.open().await;
        }
        for i in 0..20 {
            for conn in &conns {
                net.send(*conn, message(i, 0, 10_000)).unwrap();
            }
        }
        let mut held = std::collections::VecDeque::new();
        for got in 0..200 {
            if sh.events.borrow().is_empty() {
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                }
                // Each connection may exceed the bound by at most one message.
                assert!(net.in_flight() <= 50_000 + 10 * 10_768, "{}", net.in_flight());
            }
            while sh.events.borrow().is_empty() {
                let (conn, cost): (net::ConnId, usize) = held.pop_front().expect("stuck with nothing held");
                net.consumed(conn, cost);
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                }
                if sh.events.borrow().is_empty() && held.is_empty() {
                    break;
                }
            }
            match sh.next().await {
                (conn, Seen::Message(m)) => held.push_back((conn, m.cost())),
                (_, other) => panic!("{got}: {other:?}"),
            }
        }
        // The total is below the bound again, but one message is never given back.
        held.pop_back();
        for (conn, cost) in held {
            net.consumed(conn, cost);
        }
        assert_eq!(net.in_flight(), 10_768);
        for conn in conns {
            net.close(conn);
        }
        for _ in 0..10 {
            sh.closed().await;
        }
        assert_eq!(net.in_flight(), 0, "a closed connection holds nothing");
    });
}

#[test]
fn a_peer_that_does_not_read_is_closed() {
    run(|| async {
        let net = Net::new();
        let held = held_back(&net, 1, 4 << 20).await;
        let (ch, conn) = (&held.client, held.conn);
        let mut result = Ok(());
        for i in 0..100 {
            result = net.send(conn, message(i, 0, 1 << 20));
            if result.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert_eq!(result, Err(SendError::Full));
        assert_eq!(ch.closed().await, CloseReason::OutputFull);
    });
}

#[test]
fn refused_and_silent_addresses() {
    run(|| async {
        let net = Net::new();
        let ch = Recorder::new(&net);
        let c = client(&net, lossy().0, Limits::default(), ch.clone());
        let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let _ = c.connect(target(EntityAddr::msgr2(unused, 0)));
        assert!(matches!(ch.closed().await, CloseReason::Io(_)));
        // A listener that never answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let limits = Limits { handshake_max: Duration::from_millis(50), ..Limits::default() };
        let c = client(&net, lossy().0, limits, ch.clone());
        let _ = c.connect(target(EntityAddr::msgr2(silent.local_addr().unwrap(), 0)));
        assert_eq!(ch.closed().await, CloseReason::HandshakeTimeout);
    });
}

/// A queue above its bound alone closes nothing, as long as the peer reads.
#[test]
fn a_peer_that_reads_is_not_closed_for_a_long_queue() {
    run(|| async {
        let net = Net::new();
        let (cp, sp) = lossy();
        let (sh, ch) = (Recorder::new(&net), Recorder::new(&net));
        let (_s, addr) = server(&net, sp, Limits::default(), sh.clone());
        let limits = Limits { output_bytes_max: 4 << 20, ..Limits::default() };
        let c = client(&net, cp, limits, ch.clone());
        let conn = c.connect(target(addr));
        ch.open().await;
        sh.open().await;
        let one = message(1, 0, 1 << 20);
        for _ in 0..16 {
            net.send(conn, one.clone()).unwrap();
        }
        assert!(net.output_bytes(conn) > 3 * (4 << 20));
        let last = (0..8).map(|_| net.send(conn, one.clone())).find(Result::is_err);
        assert_eq!(last, Some(Err(SendError::Full)), "four times the bound is too much within one turn");
        assert_eq!(ch.closed().await, CloseReason::OutputFull);
    });
}

#[test]
fn the_wrong_target_and_too_many_connections() {
    run(|| async {
        let net = Net::new();
        let (cp, sp) = lossy();
        let (sh, ch) = (Recorder::new(&net), Recorder::new(&net));
        let (_s, addr) = server(&net, sp, Limits { connections_max: 1, ..Limits::default() }, sh.clone());
        let c = client(&net, cp, Limits::default(), ch.clone());
        // The nonce is that of an earlier process at this address.
        let _ = c.connect(target(EntityAddr { nonce: 5, ..addr }));
        assert_eq!(ch.closed().await, CloseReason::Peer);
        let _ = c.connect(target(addr));
        ch.open().await;
        let _ = c.connect(target(addr));
        assert!(matches!(ch.closed().await, CloseReason::Peer | CloseReason::Io(_)));
        sh.open().await;
    });
}

/// Forwards bytes between a client and a server and breaks every connection after a number of bytes.
async fn breaking_proxy(to: std::net::SocketAddr, budgets: Vec<usize>) -> std::net::SocketAddr {
    let l = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = l.local_addr().unwrap();
    tokio::task::spawn_local(async move {
        let mut budgets = budgets.into_iter();
        loop {
            let (mut a, _) = l.accept().await.unwrap();
            let mut b = tokio::net::TcpStream::connect(to).await.unwrap();
            let mut left = budgets.next().unwrap_or(usize::MAX);
            let (mut x, mut y) = ([0; 4096], [0; 4096]);
            while left > 0 {
                tokio::select! {
                    n = a.read(&mut x) => {
                        let n = n.unwrap_or(0).min(left);
                        if n == 0 || b.write_all(&x[..n]).await.is_err() { break; }
                        left -= n;
                    }
                    n = b.read(&mut y) => {
                        let n = n.unwrap_or(0).min(left);
                        if n == 0 || a.write_all(&y[..n]).await.is_err() { break; }
                        left -= n;
                    }
                }
            }
        }
    });
    at
}

#[test]
fn a_lossless_session_survives_broken_sockets() {
    run(|| async {
        let net = Net::new();
        let (cp, sp) = lossless();
        let (sh, ch) = (Recorder::new(&net), Recorder::new(&net));
        sh.echo.set(true);
        let limits = Limits { backoff_min: Duration::from_millis(1), ..Limits::default() };
        let (s, real) = server(&net, sp, limits.clone(), sh.clone());
        let mut rng = base::rng::Rng::new(7);
        let budgets: Vec<usize> = (0..30).map(|_| 1500 + rng.below(60_000) as usize).collect();
        let proxy = breaking_proxy(real.sock.unwrap(), budgets).await;
        // The client dials the proxy, so the server must list that address as one of its own.
        let addr = EntityAddr::msgr2(proxy, 77);
        s.set_addrs(base::AddrVec(vec![real, addr]));
        let conn = client(&net, cp, limits, ch.clone()).connect(target(addr));
        let total = 600u64;
        for i in 1..=total {
            net.send(conn, message(i, 10, (i as usize * 37) % 3000)).unwrap();
        }
        let mut opens = 0;
        let mut next = 1;
        while next <= total {
            match ch.next().await {
                (_, Seen::Message(m)) => {
                    assert_eq!(m.header.tid, next);
                    assert!(m.data == message(next, 10, (next as usize * 37) % 3000).data);
                    next += 1;
                }
                (_, Seen::Open(_)) => opens += 1,
                (_, Seen::Closed(r)) => panic!("{r}"),
            }
        }
        assert_eq!(opens, 1, "told once however often it reconnects");
        assert_eq!(net.stats().connections, 2);
    });
}

#[test]
fn a_restarted_client_replaces_its_old_session() {
    run(|| async {
        let net = Net::new();
        let (cp, sp) = lossless();
        let (sh, ch) = (Recorder::new(&net), Recorder::new(&net));
        let (_s, addr) = server(&net, sp, Limits::default(), sh.clone());
        let first = client(&net, cp.clone(), Limits::default(), ch.clone());
        let _ = first.connect(target(addr));
        ch.open().await;
        let (old, _) = sh.open().await;
        // The same address, nonce included, comes with another cookie.
        let second = client(&net, cp, Limits::default(), Recorder::new(&net));
        let _ = second.connect(target(addr));
        let (gone, why) = sh.next().await;
        assert!(gone == old && matches!(why, Seen::Closed(CloseReason::Reset)));
        let (new, _) = sh.open().await;
        assert_ne!(new, old);
    });
}

/// A peer can't take over another entity's session by claiming its address.
#[test]
fn another_entity_does_not_take_over_a_session_by_its_address() {
    run(|| async {
        let net = Net::new();
        let (cp, sp) = lossless();
        let (sh, ch, eh) = (Recorder::new(&net), Recorder::new(&net), Recorder::new(&net));
        let (_s, addr) = server(&net, sp, Limits::default(), sh.clone());
        let first = client(&net, cp.clone(), Limits::default(), ch.clone());
        let conn = first.connect(target(addr));
        ch.open().await;
        let (old, _) = sh.open().await;
        let limits = Limits { backoff_min: Duration::from_millis(1), ..Limits::default() };
        let evil = client_named(&net, "client.evil", cp, limits, eh);
        let evil_conn = evil.connect(target(addr));
        while net.stats().auth_failures < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        net.close(evil_conn);
        net.send(conn, message(9, 3, 0)).unwrap();
        let (id, seen) = sh.next().await;
        assert!(id == old && matches!(&seen, Seen::Message(m) if m.header.tid == 9), "{seen:?}");
    });
}

#[test]
fn two_peers_that_dial_each_other_share_one_session() {
    run(|| async {
        let net = Net::new();
        let policy = Policy::lossless_peer(CRC.to_vec());
        let limits = Limits { backoff_min: Duration::from_millis(1), ..Limits::default() };
        let mut ends = Vec::new();
        for n in 0..2u8 {
            let h = Recorder::new(&net);
            let ep = net.endpoint(
                net::EndpointConfig {
                    kind: EntityKind::OSD,
                    num: i64::from(n),
                    addrs: base::AddrVec::default(),
                    policies: msgr::Policies::uniform(policy.clone()),
                    auth_host: Some(Rc::new(NoAuth(std::cell::Cell::new(1)))),
                    auth_client: Some(Rc::new(std::cell::RefCell::new(auth::Client::none(
                        base::AuthName::parse(&format!("osd.{n}")).unwrap(),
                    )))),
                    limits: limits.clone(),
                },
                h.clone(),
            );
            let at = ep.listen(([127, 0, 0, 1], 0).into()).unwrap();
            let addr = EntityAddr::msgr2(at, 10 + u32::from(n));
            ep.set_addrs(addr.into());
            ends.push((ep, h, addr));
        }
        let [(a, ah, aa), (b, bh, ba)] = ends.try_into().ok().unwrap();
        let ca = a.connect(target(ba));
        let cb = b.connect(target(aa));
        for i in 0..50 {
            net.send(ca, message(i, 1, 1)).unwrap();
            net.send(cb, message(i, 1, 1)).unwrap();
        }
        for h in [&ah, &bh] {
            h.open().await;
            for i in 0..50 {
                assert_eq!(h.message().await.header.tid, i);
            }
        }
        assert_eq!(net.stats().connections, 2, "one per side");
    });
}

/// Connections that never sign in come from the address of an honest client. The client is served and memory
/// stays bounded.
#[test]
fn silent_connections_are_bounded_and_a_client_still_gets_in() {
    run(|| async {
        let net = Net::new();
        let (cp, sp) = lossy();
        let (sh, ch) = (Recorder::new(&net), Recorder::new(&net));
        sh.echo.set(true);
        let (_s, addr) = server(&net, sp, Limits::default(), sh.clone());
        let at = addr.sock.unwrap();
        let mut held = Vec::new();
        for n in 0..net::gate::PER_ADDRESS + 100 {
            held.push(tokio::net::TcpStream::connect(at).await.unwrap());
            if n % 50 == 0 {
                tokio::task::yield_now().await;
            }
        }
        while net.stats().connections < net::gate::PER_ADDRESS as u64 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let c = client(&net, cp, Limits::default(), ch.clone());
        let conn = c.connect(target(addr));
        net.send(conn, message(1, 10, 10)).unwrap();
        ch.open().await;
        assert_eq!(ch.message().await.header.tid, 1);
        assert!(net.stats().not_signed_in <= net::gate::PER_ADDRESS as u64);
        drop(held);
        while net.stats().not_signed_in > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

/// Each end enforces its own option; changed options apply to later connections.
#[test]
fn modes_that_are_not_allowed_keep_a_connection_from_opening() {
    use auth::ConMode;
    run(|| async {
        let net = Net::new();
        let modes = |list: &str| {
            let value = list.to_owned();
            net::modes::Modes::take(|_| Some(value.clone())).unwrap()
        };
        let (cp, sp) = lossy();
        let (sh, ch) = (Recorder::new(&net), Recorder::new(&net));
        let (s, addr) = server(&net, sp, Limits::default(), sh.clone());
        let c = client(&net, cp, Limits::default(), ch.clone());
        // Without keys only crc mode is possible.
        s.set_modes(&modes("crc secure"));
        let _ = c.connect(target(addr));
        let (_, p) = ch.open().await;
        assert_eq!(p.mode, ConMode::CRC);
        s.set_modes(&modes("secure"));
        let _ = c.connect(target(addr));
        let CloseReason::Auth { reason, errno } = ch.closed().await else { panic!("not refused") };
        assert_eq!(errno, base::errno::EOPNOTSUPP);
        assert!(reason.contains("modes secure"), "{reason}");
        s.set_modes(&modes("crc"));
        c.set_modes(&modes("secure"));
        let _ = c.connect(target(addr));
        let CloseReason::Auth { reason, errno } = ch.closed().await else { panic!("not refused") };
        assert_eq!(errno, base::errno::EOPNOTSUPP);
        assert!(reason.contains("ms_client_mode here is secure"), "{reason}");
    });
}
