//! Does a running OSD accept messages and commands exactly from authorized senders?
//!
//! One OSD as a process, live sessions of each principal at each of its addresses, and every message type of the
//! protocol on each. The OSD counts accepted and refused messages (`perf dump`, `admission`), and each message must be
//! counted as expected. The expectation is independent of the OSD's own table. Commands and their results were recorded
//! from real 16.2 and 20.2 clusters (`vectors/rights`).

mod support;

use base::{AddrVec, AuthName, EntityAddr, EntityKind, OsdId};
use client::Client;
use msgr::{Policies, Policy};
use net::{CloseReason, ConnId, Endpoint, EndpointConfig, Limits, Net, Target};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use support::*;
use wire::msg::{MCommand, MCommandReply, registry};
use wire::{Features, Message, MsgHeader, WireMessage as _};

/// Addresses of an OSD.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Public,
    Cluster,
    Heartbeat,
}

impl At {
    fn counters(self) -> (&'static str, &'static str) {
        match self {
            Self::Public => ("public_taken", "public_refused"),
            Self::Cluster => ("cluster_taken", "cluster_refused"),
            Self::Heartbeat => ("heartbeat_taken", "heartbeat_refused"),
        }
    }
}

/// A column of the recordings: name, entity, caps, entity type in HELLO.
struct Key {
    column: &'static str,
    entity: &'static str,
    caps: &'static [&'static str],
    says: EntityKind,
}

const fn key(column: &'static str, entity: &'static str, caps: &'static [&'static str], says: EntityKind) -> Key {
    Key { column, entity, caps, says }
}

const KEYS: &[Key] = &[
    key("read-only", "client.m_ro", &["mon", "allow r"], EntityKind::CLIENT),
    key("reader", "client.m_reader", &["mon", "allow r", "mgr", "allow r", "osd", "allow r"], EntityKind::CLIENT),
    key("profile-rbd", "client.m_rbd", &["mon", "profile rbd", "osd", "profile rbd"], EntityKind::CLIENT),
    key("bootstrap-osd", "client.bootstrap-osd", &["mon", "allow profile bootstrap-osd"], EntityKind::CLIENT),
    key("bootstrap-mds", "client.bootstrap-mds", &["mon", "allow profile bootstrap-mds"], EntityKind::CLIENT),
    key("bootstrap-rgw", "client.bootstrap-rgw", &["mon", "allow profile bootstrap-rgw"], EntityKind::CLIENT),
    key("bootstrap-mgr", "client.bootstrap-mgr", &["mon", "allow profile bootstrap-mgr"], EntityKind::CLIENT),
    key("bootstrap-rbd", "client.bootstrap-rbd", &["mon", "allow profile bootstrap-rbd"], EntityKind::CLIENT),
    key("all of one pool", "client.m_pool", &["mon", "allow r", "osd", "allow * pool=p"], EntityKind::CLIENT),
    key(
        "from elsewhere",
        "client.m_net",
        &["mon", "allow r", "osd", "allow * network 10.9.0.0/16"],
        EntityKind::CLIENT,
    ),
    key("rwx", "client.m_rwx", &["mon", "allow r", "osd", "allow rwx"], EntityKind::CLIENT),
    key("osd-key", "osd.1", &["mon", "allow profile osd", "osd", "allow *"], EntityKind::CLIENT),
    key("admin", "client.admin", &[], EntityKind::CLIENT),
    key("osd", "osd.1", &["mon", "allow profile osd", "osd", "allow *"], EntityKind::OSD),
    key("osd, caps taken", "osd.2", &["mon", "allow profile osd", "osd", "allow r"], EntityKind::OSD),
    key("mgr", "mgr.m", &["mon", "allow profile mgr", "osd", "allow *"], EntityKind::MGR),
    key("mds", "mds.m", &["mon", "allow profile mds", "osd", "allow rwx", "mds", "allow"], EntityKind::MDS),
];

/// Authorized senders of each message; all others are refused. Sources: `crates/osd/tests/rights.rs`.
fn listens(at: At, message: &str, column: &str) -> bool {
    match (at, message) {
        (At::Public, "osd_op" | "osd_backoff" | "ping") => true,
        (At::Public, "command") => matches!(column, "osd-key" | "admin" | "osd" | "mgr"),
        (At::Public, "osd_map") => column == "osd",
        (At::Cluster, "osd_map" | "pg_peer" | "pg_peers") => column == "osd",
        (At::Heartbeat, "osd_ping" | "belemnite_osd_lease") => column == "osd",
        _ => false,
    }
}

/// Connections of one principal to the OSD.
struct Session<'a> {
    up: &'a Up,
    net: Net,
    seen: Rc<Recorder>,
    endpoint: Endpoint,
    at: At,
    target: Target,
    conn: Option<ConnId>,
}

impl<'a> Session<'a> {
    fn new(up: &'a Up, auth: &Rc<RefCell<auth::Client>>, says: EntityKind, at: At, addr: EntityAddr) -> Self {
        let (net, seen) = network();
        let modes = vec![auth::ConMode::CRC, auth::ConMode::SECURE];
        let policy = if says == EntityKind::OSD && at == At::Cluster {
            Policy { reset_check: true, ..Policy::lossless_peer(modes) }
        } else {
            Policy::lossy_client(modes)
        };
        let config = EndpointConfig {
            kind: says,
            num: 1,
            addrs: AddrVec::from(EntityAddr::msgr2(([127, 0, 0, 1], 1).into(), nonce())),
            policies: Policies::uniform(policy),
            auth_host: None,
            auth_client: Some(auth.clone()),
            limits: Limits::default(),
        };
        let endpoint = net.endpoint(config, seen.clone());
        let name = AuthName::parse("osd.0");
        let target = Target { kind: EntityKind::OSD, addr, addrs: addr.into(), name };
        Self { up, net, seen, endpoint, at, target, conn: None }
    }

    /// An open connection; the error is the reason if it was closed at once.
    async fn connect(&mut self) -> Result<ConnId, CloseReason> {
        if let Some(c) = self.conn.take().filter(|c| !self.seen.has_closed(*c)) {
            self.conn = Some(c);
            return Ok(c);
        }
        let conn = self.endpoint.connect(self.target.clone());
        match self.seen.next(conn).await {
            Seen::Open(_) => {
                self.conn = Some(conn);
                Ok(conn)
            }
            Seen::Closed(why) => Err(why),
            Seen::Message(m) => panic!("{m:?} before it was open"),
        }
    }

    /// Number of messages accepted and refused at this address so far.
    fn verdicts(&self) -> (u64, u64) {
        let (taken, refused) = self.at.counters();
        let all = &self.up.osd_perf()["admission"];
        (all[taken].as_u64().unwrap(), all[refused].as_u64().unwrap())
    }

    /// Sends a message and waits for the verdict; true if it was accepted. A message sent while the OSD closed the
    /// connection because of an earlier one is sent again.
    async fn is_taken(&mut self, m: Message) -> bool {
        let before = self.verdicts();
        for sent in 1.. {
            let conn = self.connect().await.unwrap();
            self.net.send(conn, m.clone()).unwrap();
            if let Some(taken) = self.verdict_since(before, sent).await {
                return taken;
            }
        }
        unreachable!("it is sent until it is judged")
    }

    /// The verdict on a message that was sent `sent` times; `None` if the connection closed without one. The verdict on
    /// an earlier sending may be counted after its connection has closed.
    async fn verdict_since(&mut self, before: (u64, u64), sent: u64) -> Option<bool> {
        let judged = async {
            loop {
                let closed = self.conn.is_none_or(|c| self.seen.has_closed(c));
                let now = self.verdicts();
                if now != before || closed {
                    self.conn = self.conn.filter(|_| !closed);
                    return now;
                }
                tokio::task::yield_now().await;
            }
        };
        let now = tokio::time::timeout(PATIENCE, judged).await.expect("neither a verdict nor an end");
        let (taken, refused) = (now.0 - before.0, now.1 - before.1);
        let one = taken + refused <= sent && (taken == 0 || refused == 0);
        assert!(one, "{sent} messages, at most as many equal verdicts: {before:?}, {now:?}");
        (now != before).then_some(now.0 > before.0)
    }

    async fn command(&mut self, cmd: &Value) -> MCommandReply {
        let conn = self.connect().await.unwrap();
        let m = MCommand { fsid: Default::default(), cmd: vec![cmd.to_string().into()], data: Default::default() };
        self.net.send(conn, m.to_message(Features::PACIFIC).with_tid(5)).unwrap();
        loop {
            match self.seen.next(conn).await {
                Seen::Message(m) if m.header.kind == MCommandReply::KIND => {
                    return MCommandReply::from_message(&m).unwrap();
                }
                Seen::Message(_) | Seen::Open(_) => {}
                Seen::Closed(why) => panic!("{cmd}: closed: {why}"),
            }
        }
    }
}

/// Unique nonce: a lossless session is identified by the address of its initiator.
fn nonce() -> u32 {
    thread_local! {
        static LAST: Cell<u32> = const { Cell::new(76) };
    }
    LAST.set(LAST.get() + 1);
    LAST.get()
}

fn bare(kind: u16) -> Message {
    Message { header: MsgHeader { kind, version: 1, compat: 1, ..MsgHeader::default() }, ..Message::default() }
}

/// Connects all principals, with keys that the cluster makes for them.
async fn sign_in(up: &Up, admin: &Client) -> Vec<(&'static Key, Client)> {
    let mut all = Vec::new();
    for k in KEYS {
        let secret = match k.caps {
            [] => up.key("ceph.client.admin.keyring", k.entity),
            caps => make_key(admin, k.entity, caps).await,
        };
        all.push((k, up.client(k.entity, secret).await));
    }
    all
}

async fn addresses(admin: &Client) -> Vec<(At, EntityAddr)> {
    let map = admin.osdmap().await.unwrap();
    let first = |v: Option<&AddrVec>| *v.and_then(|a| a.msgr2()).expect("an address");
    let osd = OsdId(0);
    vec![
        (At::Public, first(map.client_addr(osd))),
        (At::Cluster, first(map.cluster_addr(osd))),
        (At::Heartbeat, first(map.hb_front_addr(osd))),
        (At::Heartbeat, first(map.hb_back_addr(osd))),
    ]
}

#[test]
fn messages_and_commands_of_live_sessions() {
    let up = Up::start("live-rights");
    let wrong = reactor::run_here(|_, _| async {
        let admin = up.admin().await;
        let people = sign_in(&up, &admin).await;
        let addrs = addresses(&admin).await;
        let mut wrong = Vec::new();
        let mut cells = 0;
        for (k, client) in &people {
            for (at, addr) in &addrs {
                cells += messages(&up, k, client, *at, *addr, &mut wrong).await;
            }
            cells += commands(&up, k, client, addrs[0].1, &mut wrong).await;
        }
        nobody(&up, addrs, &mut wrong).await;
        assert!(cells > 3000, "{cells} cells");
        wrong
    })
    .unwrap();
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

async fn messages(up: &Up, k: &Key, client: &Client, at: At, addr: EntityAddr, wrong: &mut Vec<String>) -> usize {
    let mut s = Session::new(up, &client.credentials(), k.says, at, addr);
    if at == At::Cluster {
        // The OSD decides about a connection to its cluster address before the first message.
        let before = s.verdicts();
        s.connect().await.unwrap();
        let taken = s.verdict_since(before, 1).await.expect("a verdict");
        if taken != (k.column == "osd") {
            wrong.push(format!("session of '{}' at {at:?}: taken {taken}", k.column));
        }
        if !taken {
            if let Some(conn) = s.conn {
                assert!(matches!(s.seen.next(conn).await, Seen::Closed(_)));
            }
            return 1;
        }
    }
    for kind in registry::KINDS {
        let name = registry::name(*kind);
        let taken = s.is_taken(bare(*kind)).await;
        if taken != listens(at, name, k.column) {
            wrong.push(format!("{name} of '{}' to {at:?}: taken {taken}", k.column));
        }
    }
    registry::KINDS.len()
}

/// Runs the recorded commands, and compares the running OSD's answers.
async fn commands(up: &Up, k: &Key, client: &Client, addr: EntityAddr, wrong: &mut Vec<String>) -> usize {
    let mut cells = 0;
    let mut s = Session::new(up, &client.credentials(), k.says, At::Public, addr);
    let mut done = BTreeSet::new();
    for release in RELEASES {
        let path = format!("{}/../../vectors/rights/osd-{release}.json", env!("CARGO_MANIFEST_DIR"));
        let all: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let unreachable: BTreeSet<&str> = all["unreachable"].as_object().unwrap().keys().map(String::as_str).collect();
        for (row, cell) in all["rows"].as_object().unwrap() {
            if !done.insert(row.clone()) {
                continue;
            }
            let has = |verdict: &str| cell[verdict].as_array().unwrap().iter().any(|c| c == k.column);
            let want = match k.column {
                c if unreachable.contains(c) => false,
                _ if has("allowed") || has("refused") => has("allowed"),
                // Not recorded: expected as for those with the same caps.
                c => matches!(c, "admin" | "osd" | "mgr"),
            };
            let r = s.command(&cell["send"]).await;
            let allowed = r.r != base::errno::EACCES;
            if allowed != want {
                wrong.push(format!("{release}: command '{row}' of '{}': {} {:?}", k.column, r.r, r.rs));
            }
            cells += 1;
        }
    }
    cells
}

const RELEASES: [&str; 2] = ["16.2.15", "20.2.4"];

/// A peer without a ticket gets no session, whatever its HELLO says; neither does one whose HELLO names another daemon
/// type than its key.
async fn nobody(up: &Up, addrs: Vec<(At, EntityAddr)>, wrong: &mut Vec<String>) {
    let admin = up.admin().await;
    let honest = up.client("client.m_rwx", make_key(&admin, "client.m_rwx", KEYS[10].caps).await).await;
    let claims = [EntityKind::CLIENT, EntityKind::OSD, EntityKind::MON, EntityKind::MGR, EntityKind::MDS];
    for (at, addr) in addrs {
        for says in claims {
            let name = AuthName::parse("osd.1").unwrap();
            let without = Rc::new(RefCell::new(auth::Client::none(name)));
            let refused = Session::new(up, &without, says, At::Public, addr).connect().await;
            if !matches!(refused, Err(CloseReason::Auth { .. })) {
                wrong.push(format!("no key, says it is {says:?}, at {at:?}: {refused:?}"));
            }
            if says != EntityKind::CLIENT {
                let r = Session::new(up, &honest.credentials(), says, At::Public, addr).connect().await;
                if r.is_ok() {
                    wrong.push(format!("client.m_rwx that says it is {says:?} at {at:?}: has a session"));
                }
            }
        }
    }
}
