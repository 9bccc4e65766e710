//! Measures the server thread's CPU time per request: a client reactor sends requests, a server reactor answers
//! with data.
//!
//! `cargo run --release -p belemnite-net --example echo -- CONNS DEPTH REQUEST_BYTES REPLY_BYTES SECONDS [secure]`

use auth::{AuthHost, Client, ConMode, CryptoKey, EntityAuth, KeyKind, Method, RotatingKeys};
use base::{AddrKind, AddrVec, AuthName, EntityAddr, EntityKind};
use bytes::Bytes;
use msgr::{Policies, Policy};
use net::{ConnEvent, ConnId, EndpointConfig, Handler, Limits, Net, NetStats, OsRandom, Target};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use wire::{Message, MsgHeader};

fn key() -> CryptoKey {
    CryptoKey::new(KeyKind::Aes, base::Utime::ZERO, &[7; 16]).expect("16 bytes")
}

struct Host(bool);
impl AuthHost for Host {
    fn service(&self) -> EntityKind {
        EntityKind::MON
    }
    fn methods(&self) -> Vec<Method> {
        vec![if self.0 { Method::CEPHX } else { Method::NONE }]
    }
    fn entity(&self, _: &AuthName) -> Option<EntityAuth> {
        Some(EntityAuth { key: key(), pending_key: None, caps: Default::default() })
    }
    fn service_key(&self, s: EntityKind, _: Option<u64>) -> Option<(u64, CryptoKey)> {
        (s == EntityKind::AUTH).then(|| (1, key()))
    }
    fn rotating_keys(&self, _: EntityKind) -> Option<RotatingKeys> {
        None
    }
    fn new_global_id(&self) -> Option<u64> {
        Some(1)
    }
}

fn message(data: Bytes) -> Message {
    let header = MsgHeader { kind: 42, version: 1, compat: 1, ..MsgHeader::default() };
    Message { header, front: Bytes::from_static(&[5; 200]), data, ..Message::default() }
}

struct Server {
    net: Net,
    reply: Bytes,
}
impl Handler for Server {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        if let ConnEvent::Message(m) = event {
            let mut r = message(self.reply.clone());
            r.header.tid = m.header.tid;
            let _ = self.net.send(conn, r);
        }
    }
}

struct Asker {
    net: Net,
    request: Bytes,
    depth: u64,
    done: Cell<u64>,
}
impl Handler for Asker {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        match event {
            ConnEvent::Open(_) => {
                for _ in 0..self.depth {
                    let _ = self.net.send(conn, message(self.request.clone()));
                }
            }
            ConnEvent::Message(_) => {
                self.done.set(self.done.get() + 1);
                let _ = self.net.send(conn, message(self.request.clone()));
            }
            ConnEvent::Closed(r) => panic!("{r}"),
        }
    }
}

/// CPU of this thread in nanoseconds.
fn cpu() -> u64 {
    let s = std::fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    s.split_whitespace().next().and_then(|x| x.parse().ok()).expect("number")
}

/// Prints what an operation has cost, from the counts at the begin and the end.
fn report(what: &str, cpu: u64, (s0, s1): (&NetStats, &NetStats), dt: Duration) {
    let ops = (s1.messages_in - s0.messages_in).max(1);
    println!(
        "{what}: {:.2} us/op, {:.0} kIOPS, {:.2} reads/op, {:.2} writes/op, {:.2} GiB/s",
        cpu as f64 / 1000.0 / ops as f64,
        ops as f64 / dt.as_secs_f64() / 1000.0,
        (s1.reads - s0.reads) as f64 / ops as f64,
        (s1.writes - s0.writes) as f64 / ops as f64,
        (s1.bytes_in + s1.bytes_out - s0.bytes_in - s0.bytes_out) as f64 / dt.as_secs_f64() / f64::from(1 << 30),
    );
}

fn main() {
    let a: Vec<String> = std::env::args().skip(1).collect();
    let n = |i: usize| a.get(i).and_then(|x| x.parse::<u64>().ok()).unwrap_or(1);
    let (conns, depth, request, reply, secs) = (n(0), n(1), n(2), n(3), n(4));
    let secure = a.get(5).is_some();
    let modes = vec![if secure { ConMode::SECURE } else { ConMode::CRC }];
    let (tx, rx) = mpsc::channel();
    let m = modes.clone();
    let server = reactor::Reactors::start(1, "server", move |cx| {
        let (tx, modes) = (tx.clone(), m.clone());
        async move {
            let net = Net::new();
            let h = Rc::new(Server { net: net.clone(), reply: vec![9; reply as usize].into() });
            let config = EndpointConfig {
                kind: EntityKind::MON,
                num: 0,
                addrs: AddrVec::default(),
                policies: Policies::uniform(Policy::lossy_server(modes)),
                auth_host: Some(Rc::new(Host(secure))),
                auth_client: None,
                limits: Limits::default(),
            };
            let ep = net.endpoint(config, h);
            let at = ep.listen(([127, 0, 0, 1], 0).into()).expect("listen");
            tx.send(at).expect("main thread");
            tokio::time::sleep(Duration::from_millis(500)).await;
            let (c0, s0, t0) = (cpu(), net.stats(), Instant::now());
            tokio::time::sleep(Duration::from_secs(secs)).await;
            let (c1, s1, dt) = (cpu(), net.stats(), t0.elapsed());
            let what = format!("{conns}x{depth} {request}->{reply} secure {secure}");
            report(&what, c1 - c0, (&s0, &s1), dt);
            cx.stopped().await;
        }
    })
    .expect("reactor");
    let at = rx.recv().expect("server");
    reactor::run_here(|_, _| async move {
        let net = Net::new();
        let h =
            Rc::new(Asker { net: net.clone(), request: vec![3; request as usize].into(), depth, done: Cell::new(0) });
        let name = AuthName::parse("client.b").expect("name");
        let client = if secure { Client::cephx(name, key()) } else { Client::none(name) };
        let config = EndpointConfig {
            kind: EntityKind::CLIENT,
            num: -1,
            addrs: AddrVec(vec![EntityAddr { kind: AddrKind::ANY, nonce: 1, sock: None }]),
            policies: Policies::uniform(Policy::lossy_client(modes)),
            auth_host: None,
            auth_client: Some(Rc::new(RefCell::new(client))),
            limits: Limits::default(),
        };
        let ep = net.endpoint(config, h);
        let ids: Vec<ConnId> =
            (0..conns).map(|_| ep.connect(Target::new(EntityKind::MON, EntityAddr::msgr2(at, 0)))).collect();
        tokio::time::sleep(Duration::from_secs(secs) + Duration::from_millis(800)).await;
        for id in ids {
            net.close(id);
        }
    })
    .expect("client");
    server.stopper().stop();
    server.join().expect("server");
    let _ = OsRandom;
}
