//! Signs in at a running cluster and opens a session with one of its daemons: the counterpart of `listen`.
//!
//! `cargo run -p belemnite-net --example dial -- MON_IP:PORT KEYRING|none NAME [osd|mgr IP:PORT NONCE]`. Prints the sessions
//! and tickets, then asks the monitor for a renewal of the tickets on the open session.

use auth::{Client, ConMode, Keyring};
use base::{AddrKind, AddrVec, AuthName, EntityAddr, EntityKind};
use msgr::{Policies, Policy};
use net::{ConnEvent, ConnId, Endpoint, EndpointConfig, Handler, Limits, Net, OsRandom, Target};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use wire::{Message, MsgHeader, Reader, Writer};

struct Dialler {
    net: Net,
    client: Rc<RefCell<Client>>,
    next: RefCell<Option<(EntityKind, EntityAddr)>>,
    endpoint: RefCell<Option<Endpoint>>,
    done: tokio::sync::Notify,
}

impl Dialler {
    fn tickets(&self) {
        let c = self.client.borrow();
        for s in auth::rotating::SERVICES {
            if let Some(t) = c.ticket(s) {
                println!("ticket for {}: secret {}, valid {:?}", s.word(), t.blob.secret_id, t.validity);
            }
        }
    }
}

impl Handler for Dialler {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        match event {
            ConnEvent::Open(p) => {
                println!(
                    "{conn} open: {} {} {:?} lossy {} gid {}",
                    p.entity, p.addrs, p.mode, p.lossy, p.principal.global_id
                );
                self.tickets();
                let c = self.client.borrow();
                if p.principal.kind == EntityKind::MON && c.key().is_some() {
                    let mut w = Writer::default();
                    // Paxos header, protocol, blob.
                    w.u64(0);
                    w.i16(-1);
                    w.u64(0);
                    w.u32(2);
                    w.blob(&c.renewal_request(0x15, &OsRandom).expect("authorizer"));
                    let header = MsgHeader { kind: 17, version: 1, compat: 1, ..MsgHeader::default() };
                    let m = Message { header, front: w.into_bytes(), ..Message::default() };
                    self.net.send(conn, m).expect("send");
                } else {
                    self.done.notify_one();
                }
            }
            ConnEvent::Message(m) => {
                println!("{conn} message type {} front {} data {}", m.header.kind, m.front.len(), m.data.len());
                if m.header.kind != 18 {
                    return;
                }
                let mut r = Reader::shared(&m.front);
                r.skip(16, "protocol, result, global id").expect("reply");
                let blob = r.blob().expect("blob");
                let now = reactor::clock::now().wall;
                println!("renewal: {:?}", self.client.borrow_mut().handle_reply(now, &blob));
                self.tickets();
                match self.next.borrow_mut().take() {
                    Some((kind, addr)) => {
                        let _ = self.endpoint.borrow().as_ref().expect("set").connect(Target::new(kind, addr));
                    }
                    None => self.done.notify_one(),
                }
            }
            ConnEvent::Closed(r) => {
                println!("{conn} closed: {r}");
                self.done.notify_one();
            }
        }
    }
}

fn main() {
    tracing_subscriber::fmt().init();
    let a: Vec<String> = std::env::args().skip(1).collect();
    let [mon, keyring, name, rest @ ..] = a.as_slice() else {
        eprintln!("usage: dial MON_IP:PORT KEYRING|none NAME [osd|mgr IP:PORT NONCE]");
        std::process::exit(2);
    };
    let mon: SocketAddr = mon.parse().expect("IP:PORT");
    let name = AuthName::parse(name).expect("kind.id");
    let client = if keyring == "none" {
        Client::none(name)
    } else {
        let k = Keyring::parse(&std::fs::read_to_string(keyring).expect("keyring file")).expect("keyring");
        let key = k.key(&name).expect("key of that name").clone();
        Client::cephx(name, key)
    };
    let next = match rest {
        [kind, addr, nonce] => Some((
            EntityKind::from_word(kind).expect("kind"),
            EntityAddr::msgr2(addr.parse().expect("IP:PORT"), nonce.parse().expect("nonce")),
        )),
        _ => None,
    };
    let served = reactor::run_here(|_, _| async move {
        let net = Net::new();
        let client = Rc::new(RefCell::new(client));
        let d = Rc::new(Dialler {
            net: net.clone(),
            client: client.clone(),
            next: RefCell::new(next),
            endpoint: RefCell::new(None),
            done: tokio::sync::Notify::new(),
        });
        let crc_first = Policy::lossy_client(vec![ConMode::CRC, ConMode::SECURE]);
        let secure_first = Policy::lossy_client(vec![ConMode::SECURE, ConMode::CRC]);
        let ep = net.endpoint(
            EndpointConfig {
                kind: EntityKind::CLIENT,
                num: -1,
                addrs: AddrVec(vec![EntityAddr { kind: AddrKind::ANY, nonce: std::process::id(), sock: None }]),
                policies: Policies::uniform(secure_first).with(EntityKind::OSD, crc_first),
                auth_host: None,
                auth_client: Some(client),
                limits: Limits::default(),
            },
            d.clone(),
        );
        *d.endpoint.borrow_mut() = Some(ep.clone());
        let _ = ep.connect(Target::new(EntityKind::MON, EntityAddr::msgr2(mon, 0)));
        d.done.notified().await;
    });
    served.expect("reactor");
}
