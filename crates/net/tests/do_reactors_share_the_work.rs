//! Can one reactor accept and another serve, are silent peers dropped, and does a reactor with live connections stop?

mod support;

use auth::ConMode;
use base::{EntityAddr, EntityKind};
use msgr::Policy;
use net::{CloseReason, Limits, Net, Target};
use reactor::{Reactors, mailbox};
use std::collections::VecDeque;
use std::sync::mpsc;
use std::time::Duration;
use support::*;

const CRC: [ConMode; 1] = [ConMode::CRC];

#[test]
fn a_socket_accepted_on_one_reactor_is_served_on_another() {
    let (to_server, from_acceptor) = mailbox::channel::<net::descriptors::Accepted>(16);
    let from_acceptor = std::sync::Arc::new(std::sync::Mutex::new(Some(from_acceptor)));
    let (tell, told) = mpsc::channel();
    let reactors = Reactors::start(2, "share", move |cx| {
        let (to_server, from_acceptor, tell) = (to_server.clone(), from_acceptor.clone(), tell.clone());
        async move {
            let net = Net::new();
            let h = Recorder::new(&net);
            h.echo.set(true);
            // Only reactor 0 uses its listener; both know the endpoint's identity.
            let (ep, _) = server(&net, Policy::lossy_server(CRC.to_vec()), Limits::default(), h.clone());
            ep.stop_listening();
            if cx.index == 0 {
                let at = ep
                    .listen_with(([127, 0, 0, 1], 0).into(), move |s, _| to_server.send(s).expect("room"))
                    .expect("listen");
                tell.send(at).expect("test");
                cx.stopped().await;
            } else {
                ep.set_addrs(base::AddrVec::default());
                let mut rx = from_acceptor.lock().unwrap().take().expect("once");
                let mut batch = VecDeque::new();
                loop {
                    tokio::select! {
                        () = cx.stopped() => return,
                        more = rx.recv_batch(&mut batch) => {
                            for s in batch.drain(..) {
                                ep.adopt(s).expect("adopt");
                            }
                            if !more {
                                return;
                            }
                        }
                    }
                }
            }
        }
    })
    .unwrap();
    let at = told.recv().unwrap();
    run(|| async move {
        let net = Net::new();
        let h = Recorder::new(&net);
        let c = client(&net, Policy::lossy_client(CRC.to_vec()), Limits::default(), h.clone());
        let conn = c.connect(Target::new(EntityKind::OSD, EntityAddr::msgr2(at, 1)));
        h.open().await;
        for i in 0..100 {
            net.send(conn, message(i, 30, 300)).unwrap();
        }
        for i in 0..100 {
            assert_eq!(h.message().await.header.tid, i);
        }
        // The reactors stop while this connection is open.
        reactors.stopper().stop();
        assert!(matches!(h.closed().await, CloseReason::Peer | CloseReason::Io(_)));
        tokio::task::spawn_blocking(move || reactors.join().unwrap()).await.unwrap();
    });
}

#[test]
fn a_silent_server_is_noticed_by_its_missing_keepalives() {
    run(|| async {
        let net = Net::new();
        let (sh, ch) = (Recorder::new(&net), Recorder::new(&net));
        // The handler of this server never returns bytes, so the server reads nothing once open.
        let deaf = Limits { in_flight_bytes_max: 1, ..Limits::default() };
        let (s, addr) = server(&net, Policy::lossy_server(CRC.to_vec()), deaf, sh.clone());
        s.set_auto_consume(false);
        let limits = Limits {
            keepalive_every: Duration::from_millis(10),
            keepalive_max: Duration::from_millis(20),
            ..Limits::default()
        };
        let conn = client(&net, Policy::lossy_client(CRC.to_vec()), limits, ch.clone()).connect(target(addr));
        ch.open().await;
        net.send(conn, message(1, 10, 10)).unwrap();
        assert_eq!(ch.closed().await, CloseReason::KeepaliveTimeout);
    });
}

#[test]
fn an_idle_client_is_closed_and_a_shut_down_endpoint_reports_nothing() {
    run(|| async {
        let net = Net::new();
        let (sh, ch) = (Recorder::new(&net), Recorder::new(&net));
        let limits = Limits { idle_max: Duration::from_millis(20), ..Limits::default() };
        let (s, addr) = server(&net, Policy::lossy_server(CRC.to_vec()), limits, sh.clone());
        let mute = Limits { keepalive_every: Duration::ZERO, ..Limits::default() };
        let c = client(&net, Policy::lossy_client(CRC.to_vec()), mute, ch.clone());
        let _ = c.connect(target(addr));
        ch.open().await;
        sh.open().await;
        assert_eq!(sh.closed().await, CloseReason::KeepaliveTimeout);
        assert_eq!(ch.closed().await, CloseReason::Peer);

        let _ = c.connect(target(addr));
        ch.open().await;
        sh.open().await;
        s.shutdown();
        assert_eq!(ch.closed().await, CloseReason::Peer);
        assert!(sh.events.borrow().is_empty());
        assert_eq!(net.stats().connections, 0);
        let _ = c.connect(target(addr));
        assert!(matches!(ch.closed().await, CloseReason::Io(_)), "nobody listens any more");
    });
}
