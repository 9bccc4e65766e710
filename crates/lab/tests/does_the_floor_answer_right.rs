//! Does the floor give right answers, and is what it acknowledged in the files of all its servers?
//!
//! The test is the monitor at which the servers boot, and their client.

use auth::{AuthHost, Client, ConMode, CryptoKey, EntityAuth, Method, RotatingKeys};
use base::errno::{EINVAL, ENOENT, EOPNOTSUPP};
use base::id::Uuid;
use base::rng::Rng;
use base::{AddrKind, AddrVec, AuthName, EntityAddr, EntityKind};
use bytes::Bytes;
use lab::host::floor;
use msgr::{Policies, Policy};
use net::{ConnEvent, ConnId, EndpointConfig, Handler, Limits, Net, Target};
use std::cell::RefCell;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::mpsc;
use wire::msg::{MOsdBoot, MOsdOp, MOsdOpReply, OpCode, OsdOp};
use wire::{Features, Message, WireMessage as _};

const OBJECT: usize = 4 << 20;
const LIMIT: Duration = Duration::from_secs(120);

/// A monitor that accepts everybody.
struct Monitor;

impl AuthHost for Monitor {
    fn service(&self) -> EntityKind {
        EntityKind::MON
    }
    fn methods(&self) -> Vec<Method> {
        vec![Method::NONE]
    }
    fn entity(&self, _: &AuthName) -> Option<EntityAuth> {
        None
    }
    fn service_key(&self, _: EntityKind, _: Option<u64>) -> Option<(u64, CryptoKey)> {
        None
    }
    fn rotating_keys(&self, _: EntityKind) -> Option<RotatingKeys> {
        None
    }
    fn new_global_id(&self) -> Option<u64> {
        Some(1)
    }
}

/// Passes on what arrives.
struct Inbox(mpsc::UnboundedSender<(ConnId, Option<Message>)>);

impl Handler for Inbox {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        let what = match event {
            ConnEvent::Message(m) => Some(m),
            ConnEvent::Closed(_) => None,
            ConnEvent::Open(_) => return,
        };
        let _ = self.0.send((conn, what));
    }
}

fn config(kind: EntityKind, serves: bool) -> EndpointConfig {
    let modes = vec![ConMode::CRC];
    let policy = if serves { Policy::lossy_server(modes) } else { Policy::lossy_client(modes) };
    EndpointConfig {
        kind,
        num: if serves { 0 } else { -1 },
        addrs: AddrVec(vec![EntityAddr { kind: AddrKind::ANY, nonce: 1, sock: None }]),
        policies: Policies::uniform(policy),
        auth_host: serves.then(|| Rc::new(Monitor) as Rc<_>),
        auth_client: (!serves).then(|| Rc::new(RefCell::new(Client::none(AuthName::parse("client.a").unwrap())))),
        limits: Limits::default(),
    }
}

struct Floor {
    net: Net,
    servers: Vec<ConnId>,
    inbox: mpsc::UnboundedReceiver<(ConnId, Option<Message>)>,
    tid: u64,
}

impl Floor {
    fn send(&mut self, server: usize, name: &str, ops: Vec<OsdOp>) -> u64 {
        self.tid += 1;
        let op = MOsdOp {
            tid: self.tid,
            oid: Bytes::copy_from_slice(name.as_bytes()),
            ops: ops.into(),
            ..MOsdOp::default()
        };
        self.net.send(self.servers[server], op.to_message(Features::PACIFIC)).unwrap();
        self.tid
    }

    async fn reply(&mut self) -> MOsdOpReply {
        let (_, m) = self.inbox.recv().await.unwrap();
        MOsdOpReply::from_message(&m.expect("a server closed the connection")).unwrap()
    }

    /// Result and data of one operation.
    async fn one(&mut self, server: usize, name: &str, op: OsdOp) -> (i32, Bytes) {
        let tid = self.send(server, name, vec![op]);
        let r = self.reply().await;
        assert_eq!(r.tid, tid);
        (r.result, r.ops[0].outdata.clone())
    }
}

fn write(offset: u64, data: impl Into<Bytes>) -> OsdOp {
    let data = data.into();
    OsdOp::with_extent(OpCode::WRITE, offset, data.len() as u64, data)
}

fn read(offset: u64, length: u64) -> OsdOp {
    OsdOp::with_extent(OpCode::READ, offset, length, Bytes::new())
}

/// Addresses that nobody uses.
fn addresses(n: usize) -> Vec<SocketAddr> {
    let held: Vec<TcpListener> = (0..n).map(|_| TcpListener::bind(("127.0.0.1", 0)).unwrap()).collect();
    held.iter().map(|l| l.local_addr().unwrap()).collect()
}

/// Starts servers and returns when all have booted. They end with the process.
async fn start(net: &Net, dir: &Path, n: usize) -> Floor {
    let (tx, mut booted) = mpsc::unbounded_channel();
    let endpoint = net.endpoint(config(EntityKind::MON, true), Rc::new(Inbox(tx)));
    let monitor = endpoint.listen(([127, 0, 0, 1], 0).into()).unwrap();
    endpoint.set_addrs(EntityAddr::msgr2(monitor, 0).into());
    let servers = addresses(n);
    for id in 0..n as u32 {
        let o = floor::Options {
            id,
            servers: servers.clone(),
            monitor,
            fsid: Uuid([7; 16]),
            uuid: Uuid([id as u8; 16]),
            file: dir.join(format!("{id}")),
            size: 12 * OBJECT as u64,
        };
        std::thread::spawn(move || panic!("server {id}: {}", floor::run(o).unwrap_err()));
    }
    let mut seen = Vec::new();
    while seen.len() < n {
        let Some((_, Some(m))) = booted.recv().await else { panic!("a server left the monitor") };
        let boot = MOsdBoot::from_message(&m).unwrap();
        assert_eq!(boot.sb.cluster_fsid, Uuid([7; 16]));
        seen.push((boot.sb.whoami.0, boot.sb.osd_fsid.0[0]));
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..n as i32).map(|i| (i, i as u8)).collect::<Vec<_>>());

    let (tx, inbox) = mpsc::unbounded_channel();
    let client = net.endpoint(config(EntityKind::CLIENT, false), Rc::new(Inbox(tx)));
    let to = |(i, at): (usize, &SocketAddr)| {
        client.connect(Target::new(EntityKind::OSD, EntityAddr::msgr2(*at, i as u32 + 1)))
    };
    Floor { net: net.clone(), servers: servers.iter().enumerate().map(to).collect(), inbox, tid: 0 }
}

fn dir(name: &str) -> PathBuf {
    let d = std::env::temp_dir().join(format!("belemnite-floor-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&d).unwrap();
    d
}

/// Whether the device has a page with these bytes.
fn has(file: &Path, page: &[u8]) -> bool {
    std::fs::read(file).unwrap().chunks(4096).any(|p| p == page)
}

async fn answers(net: &Net, n: usize) {
    let dir = dir(&n.to_string());
    let mut f = start(net, &dir, n).await;
    let mut rng = Rng::new(4);
    let last = n - 1;
    assert_eq!(f.one(last, "a", read(0, 4096)).await, (ENOENT, Bytes::new()));
    let mut whole = rng.bytes(OBJECT);
    let full = OsdOp::with_extent(OpCode::WRITEFULL, 0, OBJECT as u64, whole.clone().into());
    assert_eq!(f.one(last, "a", full).await.0, 0);
    let page = rng.bytes(4096);
    assert_eq!(f.one(last, "a", write(12_288, page.clone())).await.0, 0);
    whole[12_288..16_384].copy_from_slice(&page);
    assert_eq!(f.one(last, "a", read(0, OBJECT as u64)).await, (0, whole.into()));
    for (id, want) in (0..n).map(|i| (i, dir.join(i.to_string()))) {
        assert!(has(&want, &page), "server {id} has the page that was acknowledged");
    }
    for refused in [write(1, rng.bytes(4096)), write(0, rng.bytes(100)), read(OBJECT as u64, 4096), read(0, 0)] {
        assert_eq!(f.one(last, "a", refused).await.0, EINVAL);
    }
    assert_eq!(f.one(last, "a", OsdOp::new(OpCode::STAT)).await.0, EOPNOTSUPP);
    let short = OsdOp::with_extent(OpCode::WRITE, 0, 8192, rng.bytes(4096).into());
    assert_eq!(f.one(last, "a", short).await.0, EINVAL);
    f.send(last, "a", vec![read(0, 4096), read(4096, 4096)]);
    assert_eq!(f.reply().await.result, EOPNOTSUPP);

    // Many at once, to all servers: commits with many writes, several acknowledgements in a message.
    let pages: Vec<(usize, u64, Vec<u8>)> = (0..300).map(|i| (i % n, (i / n) as u64 * 4096, rng.bytes(4096))).collect();
    for (server, offset, data) in &pages {
        f.send(*server, "b", vec![write(*offset, data.clone())]);
    }
    for _ in &pages {
        assert_eq!(f.reply().await.result, 0);
    }
    for file in (0..n).map(|i| dir.join(i.to_string())) {
        let all = std::fs::read(file).unwrap();
        let kept: std::collections::HashSet<&[u8]> = all.chunks(4096).collect();
        assert!(pages.iter().all(|(.., data)| kept.contains(&data[..])));
    }
    for (server, offset, data) in &pages {
        assert_eq!(f.one(*server, "b", read(*offset, 4096)).await, (0, data.clone().into()));
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn of_one_server_and_of_three() {
    reactor::run_here(|_, _| async {
        let net = Net::new();
        let both = async {
            answers(&net, 1).await;
            answers(&net, 3).await;
        };
        tokio::time::timeout(LIMIT, both).await.expect("a server does not answer");
    })
    .unwrap();
}
