//! Do connections that ask for much, or take little, wait for their own and not at the cost of others?

mod support;

use auth::ConMode;
use base::EntityAddr;
use msgr::Policy;
use net::{CloseReason, ConnEvent, ConnId, Endpoint, Limits, Net, SendError};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use support::*;
use tokio::io::AsyncReadExt as _;
use wire::Message;

const CRC: [ConMode; 1] = [ConMode::CRC];

/// A server and some clients of it, each with one open connection.
struct Bed {
    net: Net,
    server: Rc<Recorder>,
    /// Connections as clients name them, and as the server does.
    conns: Vec<(ConnId, ConnId)>,
    clients: Vec<Rc<Recorder>>,
    endpoints: Vec<Endpoint>,
}

async fn bed(clients: usize, limits: Limits, consume: bool) -> Bed {
    let net = Net::new();
    let server_side = Recorder::new(&net);
    let (ep, addr) = server(&net, Policy::lossy_server(CRC.to_vec()), limits, server_side.clone());
    ep.set_auto_consume(consume);
    let mut b = Bed { net, server: server_side, conns: Vec::new(), clients: Vec::new(), endpoints: vec![ep] };
    for _ in 0..clients {
        let recorder = Recorder::new(&b.net);
        let ep = client(&b.net, Policy::lossy_client(CRC.to_vec()), Limits::default(), recorder.clone());
        let conn = ep.connect(target(addr));
        recorder.open().await;
        b.conns.push((conn, b.server.open().await.0));
        b.clients.push(recorder);
        b.endpoints.push(ep);
    }
    b
}

/// Lets all tasks run until no byte moves any more.
async fn settle(net: &Net) {
    loop {
        let before = (net.stats().bytes_in, net.stats().bytes_out);
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        if (net.stats().bytes_in, net.stats().bytes_out) == before {
            return;
        }
    }
}

#[test]
fn a_held_session_waits_and_another_does_not() {
    run(|| async {
        let b = bed(2, Limits::default(), true).await;
        let [(held, sheld), (free, sfree)] = b.conns[..] else { unreachable!() };
        b.net.hold(sheld);
        for i in 0..100 {
            b.net.send(held, message(i, 10, 100)).unwrap();
        }
        settle(&b.net).await;
        assert!(b.server.events.borrow().is_empty());
        b.net.send(free, message(7, 10, 100)).unwrap();
        assert!(matches!(b.server.next().await, (c, Seen::Message(m)) if c == sfree && m.header.tid == 7));
        b.net.release(sheld);
        for i in 0..100 {
            assert!(matches!(b.server.next().await, (c, Seen::Message(m)) if c == sheld && m.header.tid == i));
        }
    });
}

/// A handler that holds its session during a message gets no other one of the same read.
#[test]
fn a_hold_within_the_handler_stops_before_the_next_message() {
    run(|| async {
        let net = Net::new();
        let got = Rc::new(RefCell::new(Vec::new()));
        let (g, n) = (got.clone(), net.clone());
        let one_by_one = With(move |conn, event| {
            if let ConnEvent::Message(m) = event {
                n.hold(conn);
                g.borrow_mut().push((conn, m.header.tid));
            }
        });
        let (_s, addr) = server(&net, Policy::lossy_server(CRC.to_vec()), Limits::default(), Rc::new(one_by_one));
        let ch = Recorder::new(&net);
        let ep = client(&net, Policy::lossy_client(CRC.to_vec()), Limits::default(), ch.clone());
        let conn = ep.connect(target(addr));
        ch.open().await;
        for i in 0..5 {
            net.send(conn, message(i, 10, 0)).unwrap();
        }
        for n in 1..=5 {
            settle(&net).await;
            assert_eq!(got.borrow().len(), n);
            let (sconn, tid) = got.borrow()[n - 1];
            assert_eq!(tid, n as u64 - 1);
            net.release(sconn);
        }
    });
}

/// Bytes of an answer of [`generous`].
const ANSWER: usize = 256 << 10;

/// A server that answers each request with [`ANSWER`] bytes.
async fn generous(limits: Limits) -> (Net, Endpoint, EntityAddr, Rc<Cell<usize>>) {
    let net = Net::new();
    let answered: Rc<Cell<usize>> = Rc::default();
    let (n, a) = (net.clone(), answered.clone());
    let answer = message(0, 0, ANSWER);
    let handler = With(move |conn, event| {
        if let ConnEvent::Message(m) = event {
            a.set(a.get() + 1);
            n.send(conn, Message { header: m.header, ..answer.clone() }).unwrap();
        }
    });
    let (ep, addr) = server(&net, Policy::lossy_server(CRC.to_vec()), limits, Rc::new(handler));
    (net, ep, addr, answered)
}

/// The client asks for 64 MiB in one write and does not read: its further requests wait while it has not taken the
/// answers to the first. Another client is served meanwhile, and all requests are answered in the end.
#[test]
fn a_client_that_takes_no_answers_gets_no_further_ones() {
    run(|| async {
        let bound = 1 << 20;
        let (net, _s, addr, answered) = generous(Limits { in_flight_bytes_max: bound, ..Limits::default() }).await;
        let clients: Vec<_> = (0..2)
            .map(|_| {
                let r = Recorder::new(&net);
                let ep = client(&net, Policy::lossy_client(CRC.to_vec()), Limits::default(), r.clone());
                (ep.connect(target(addr)), r, ep)
            })
            .collect();
        for (_, r, _) in &clients {
            r.open().await;
        }
        let (greedy, other) = (&clients[0], &clients[1]);
        net.hold(greedy.0);
        for i in 0..256 {
            net.send(greedy.0, message(i, 10, 0)).unwrap();
        }
        settle(&net).await;
        let most = net.connections().into_iter().map(|c| net.output_bytes(c)).max().unwrap();
        assert!(most > bound && most <= bound + ANSWER + 1024, "{most} bytes wait");
        let first = answered.get();
        assert!(first < 128, "{first} answers were built, some of which the socket holds");
        net.send(other.0, message(9, 1, 1)).unwrap();
        assert_eq!(other.1.message().await.header.tid, 9);
        net.release(greedy.0);
        for i in 0..256 {
            assert_eq!(greedy.1.message().await.header.tid, i);
        }
    });
}

#[test]
fn the_host_is_told_when_output_has_drained() {
    run(|| async {
        let b = bed(1, Limits::default(), true).await;
        let (conn, sconn) = b.conns[0];
        b.net.report_drained(sconn, 0).unwrap();
        assert!(b.server.drained.borrow().is_empty(), "never within the call");
        settle(&b.net).await;
        assert_eq!(b.server.drained.take(), [sconn], "nothing was queued");
        b.net.hold(conn);
        for i in 0..40 {
            b.net.send(sconn, message(i, 0, ANSWER)).unwrap();
        }
        b.net.report_drained(sconn, 1 << 20).unwrap();
        settle(&b.net).await;
        assert!(b.net.output_bytes(sconn) > 1 << 20 && b.server.drained.borrow().is_empty());
        b.net.release(conn);
        for _ in 0..40 {
            b.clients[0].message().await;
        }
        settle(&b.net).await;
        assert_eq!(b.server.drained.take(), [sconn], "once");
        b.net.close(sconn);
        assert_eq!(b.net.report_drained(sconn, 0), Err(SendError::Gone));
    });
}

/// A thousand messages of one read are delivered in parts, with other connections between them.
#[test]
fn a_batch_of_one_connection_does_not_delay_the_others() {
    run(|| async {
        let b = bed(2, Limits::default(), true).await;
        let [(busy, sbusy), (other, sother)] = b.conns[..] else { unreachable!() };
        b.net.hold(sbusy);
        for i in 0..2000 {
            b.net.send(busy, message(i, 0, 0)).unwrap();
        }
        settle(&b.net).await;
        // Both sockets are readable when the reactor looks at them next.
        b.net.release(sbusy);
        b.net.send(other, message(1, 0, 0)).unwrap();
        let mut before = 0;
        loop {
            match b.server.next().await {
                (c, Seen::Message(_)) if c == sother => break,
                (c, Seen::Message(_)) if c == sbusy => before += 1,
                (c, seen) => panic!("{c}: {seen:?}"),
            }
        }
        assert!(before <= 3 * net::MESSAGES_PER_POLL, "{before} messages came first");
    });
}

/// A client that never reads is closed only when it has taken nothing for the time allowed.
#[test]
fn a_client_that_takes_nothing_for_too_long_is_closed() {
    run(|| async {
        let limits = Limits { in_flight_bytes_max: 1 << 20, stall_max: Duration::ZERO, ..Limits::default() };
        let b = bed(2, limits, true).await;
        let [(conn, sconn), (other, sother)] = b.conns[..] else { unreachable!() };
        b.net.hold(conn);
        for i in 0..80 {
            // Four times the bound of a queue is far more.
            b.net.send(sconn, message(i, 0, ANSWER)).unwrap();
        }
        assert!(matches!(b.server.next().await, (c, Seen::Closed(CloseReason::OutputFull)) if c == sconn));
        b.net.send(other, message(1, 1, 1)).unwrap();
        assert!(matches!(b.server.next().await, (c, Seen::Message(_)) if c == sother));
    });
}

/// Forwards bytes between clients and a server, of each client only the first `budget`. Then nothing moves any more.
async fn stalling_proxy(to: SocketAddr, budget: usize) -> SocketAddr {
    let l = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = l.local_addr().unwrap();
    tokio::task::spawn_local(async move {
        loop {
            let (a, _) = l.accept().await.unwrap();
            let b = tokio::net::TcpStream::connect(to).await.unwrap();
            let ((mut ar, mut aw), (mut br, mut bw)) = (a.into_split(), b.into_split());
            tokio::task::spawn_local(async move { tokio::io::copy(&mut br, &mut aw).await });
            tokio::task::spawn_local(async move {
                let mut some = (&mut ar).take(budget as u64);
                tokio::io::copy(&mut some, &mut bw).await.unwrap();
                // Both sockets stay open.
                std::future::pending::<()>().await;
                drop((ar, bw));
            });
        }
    });
    at
}

/// Half frames on many connections hold no more than the reactor's bytes, and those who wait for them get them.
#[test]
fn half_frames_are_bounded_and_end_when_others_need_their_bytes() {
    run(|| async {
        let b = bed(1, Limits::default(), false).await;
        let most = 32 << 20;
        b.net.set_in_flight_max(most);
        let addr = b.endpoints[0].addrs().0[0];
        let proxy = stalling_proxy(addr.sock.unwrap(), 64 << 10).await;
        // The server knows the address that these clients dial.
        b.endpoints[0].set_addrs(base::AddrVec(vec![addr, EntityAddr::msgr2(proxy, 77)]));
        let half = message(1, 0, 6 << 20);
        let mut stalled = Vec::new();
        for _ in 0..20 {
            let r = Recorder::new(&b.net);
            let policy = Policy::lossy_client(CRC.to_vec());
            let ep = client_named(&b.net, "client.evil", policy, Limits::default(), r.clone());
            let conn = ep.connect(target(EntityAddr::msgr2(proxy, 77)));
            r.open().await;
            b.server.open().await;
            b.net.send(conn, half.clone()).unwrap();
            stalled.push((ep, r));
        }
        settle(&b.net).await;
        let granted = b.net.frame_bytes();
        assert!(granted > 6 << 20 && granted <= most, "{granted} bytes are granted");
        b.net.send(b.conns[0].0, half).unwrap();
        let mut closed = 0;
        loop {
            match b.server.next().await {
                (_, Seen::Closed(CloseReason::FrameStalled)) => closed += 1,
                (c, Seen::Message(m)) => {
                    assert!(c == b.conns[0].1 && m.data.len() == 6 << 20);
                    break;
                }
                (c, seen) => panic!("{c}: {seen:?}"),
            }
        }
        assert!(closed > 0);
        assert!(b.net.frame_bytes() <= most);
        b.endpoints[0].shutdown();
        assert_eq!((b.net.frame_bytes(), b.net.in_flight()), (0, 0));
    });
}

/// Answers are charged before they are built: the next request waits until there is room for its answer.
#[test]
fn a_charge_for_the_answer_stops_the_reading() {
    run(|| async {
        let b = bed(1, Limits { in_flight_bytes_max: 1 << 20, ..Limits::default() }, false).await;
        let (conn, sconn) = b.conns[0];
        for i in 0..10 {
            b.net.send(conn, message(i, 10, 0)).unwrap();
        }
        // The handler of the first message would charge its answer before the next is delivered.
        let (_, first) = b.server.next().await;
        assert!(matches!(first, Seen::Message(_)));
        b.server.events.borrow_mut().clear();
        b.net.charge(sconn, 2 << 20);
        b.net.send(conn, message(10, 10, 0)).unwrap();
        settle(&b.net).await;
        assert!(b.server.events.borrow().is_empty());
        b.endpoints[0].set_in_flight_max(4 << 20);
        assert_eq!(b.server.message().await.header.tid, 10);
        b.endpoints[0].set_in_flight_max(1 << 20);
        b.net.send(conn, message(11, 10, 0)).unwrap();
        settle(&b.net).await;
        assert!(b.server.events.borrow().is_empty());
        b.net.consumed(sconn, 3 << 20);
        assert_eq!(b.server.message().await.header.tid, 11);
    });
}
