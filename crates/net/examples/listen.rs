//! Signs clients in like a monitor and prints what they send, without serving anything.
//!
//! `cargo run -p belemnite-net --example listen -- 127.0.0.1:20200 none`, or with a keyring file instead of `none` for
//! cephx; then point a real client at it with `mon_host = v2:127.0.0.1:20200`. Checks handshake, secure mode
//! and framing against a client without a daemon.

use auth::{AuthHost, ConMode, EntityAuth, KeyKind, Keyring, Method, RotatingKeys, ServiceKeys};
use base::{AddrVec, AuthName, EntityAddr, EntityKind};
use msgr::{Policies, Policy};
use net::{ConnEvent, ConnId, EndpointConfig, Handler, Limits, Net, OsRandom};
use std::cell::Cell;
use std::rc::Rc;

struct Host {
    keyring: Keyring,
    keys: ServiceKeys,
    next: Cell<u64>,
}

impl AuthHost for Host {
    fn service(&self) -> EntityKind {
        EntityKind::MON
    }
    fn methods(&self) -> Vec<Method> {
        vec![if self.keyring.is_empty() { Method::NONE } else { Method::CEPHX }]
    }
    fn entity(&self, name: &AuthName) -> Option<EntityAuth> {
        self.keyring.get(name).map(|e| EntityAuth { key: e.key.clone(), pending_key: None, caps: e.caps.clone() })
    }
    fn service_key(&self, service: EntityKind, id: Option<u64>) -> Option<(u64, auth::CryptoKey)> {
        auth::server::pick(self.keys.get(service)?, id)
    }
    fn rotating_keys(&self, service: EntityKind) -> Option<RotatingKeys> {
        self.keys.get(service).cloned()
    }
    fn new_global_id(&self) -> Option<u64> {
        self.next.set(self.next.get() + 1);
        Some(self.next.get())
    }
}

struct Print;

impl Handler for Print {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        match event {
            ConnEvent::Open(p) => println!(
                "{conn} open: {} as {} gid {} {:?} lossy {} addrs {} caps {:?}",
                p.entity,
                p.principal.name,
                p.principal.global_id,
                p.mode,
                p.lossy,
                p.addrs,
                p.principal.caps.text()
            ),
            ConnEvent::Message(m) => println!("{conn} message {:?} front {} bytes", m.header, m.front.len()),
            ConnEvent::Closed(r) => println!("{conn} closed: {r}"),
        }
    }
}

fn main() {
    tracing_subscriber::fmt().init();
    let mut args = std::env::args().skip(1);
    let (Some(addr), Some(keyring)) = (args.next(), args.next()) else {
        eprintln!("usage: listen IP:PORT none|KEYRING");
        std::process::exit(2);
    };
    let keyring = match keyring.as_str() {
        "none" => Keyring::new(),
        f => Keyring::parse(&std::fs::read_to_string(f).expect("keyring file")).expect("keyring"),
    };
    let addr = addr.parse().expect("IP:PORT");
    let served = reactor::run_here(|_, _| async move {
        let mut keys = ServiceKeys::default();
        let now = reactor::clock::now().wall;
        keys.tick(now, auth::server::AUTH_TICKET_TTL, auth::server::SERVICE_TICKET_TTL, KeyKind::Aes, &OsRandom);
        let net = Net::new();
        let ep = net.endpoint(
            EndpointConfig {
                kind: EntityKind::MON,
                num: 0,
                addrs: AddrVec::from(EntityAddr::msgr2(addr, 0)),
                policies: Policies::uniform(Policy::lossy_server(vec![ConMode::SECURE, ConMode::CRC])),
                auth_host: Some(Rc::new(Host { keyring, keys, next: Cell::new(4100) })),
                auth_client: None,
                limits: Limits::default(),
            },
            Rc::new(Print),
        );
        ep.listen(addr).expect("listen");
        std::future::pending::<()>().await;
    });
    served.expect("reactor");
}
