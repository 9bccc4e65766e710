//! A test cluster of one monitor and one OSD as processes, with connections for hand-made messages.
#![allow(dead_code, reason = "each test binary uses its part")]

use client::{Client, Options};
use net::{CloseReason, ConnEvent, ConnId, Handler, Net, PeerInfo};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use wire::Message;

/// Time limit of every wait; none normally comes near it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// First of a row of ports that are free, below those that the kernel gives to outgoing connections. Each call of a process
/// has another row.
pub(crate) fn free_ports() -> u16 {
    const ROW: u16 = 64;
    const ROWS: u32 = 160;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let of_process = std::process::id().wrapping_mul(8);
    loop {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(n < ROWS, "no free ports");
        let first = 10_000 + ROW * (of_process.wrapping_add(n) % ROWS) as u16;
        if (first..first + ROW).all(|p| TcpListener::bind(("127.0.0.1", p)).is_ok()) {
            return first;
        }
    }
}

/// A running `belemnite up` with its directory; dropping it ends and removes both.
pub(crate) struct Up {
    pub(crate) dir: PathBuf,
    pub(crate) mon: SocketAddr,
    child: Child,
}

impl Up {
    /// Directory of the cluster of this name.
    pub(crate) fn dir(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("belemnite-{name}-{}", std::process::id()))
    }

    pub(crate) fn start(name: &str) -> Self {
        let dir = Self::dir(name);
        let mon = SocketAddr::from(([127, 0, 0, 1], free_ports()));
        let port = mon.port().to_string();
        let args = ["--port", &port, "--osds", "1", "--osd-size", "1G"];
        let mut child = Command::new(env!("CARGO_BIN_EXE_belemnite"))
            .arg("up")
            .arg("--data")
            .arg(&dir)
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let up = lines.any(|l| l.is_ok_and(|l| l.starts_with("The cluster is up")));
        // Drain later output so that `up` does not block.
        std::thread::spawn(move || lines.for_each(drop));
        let me = Self { dir, mon, child };
        assert!(up, "the cluster did not start");
        me
    }

    /// A key from a keyring file in the directory.
    pub(crate) fn key(&self, file: &str, name: &str) -> auth::CryptoKey {
        let text = std::fs::read_to_string(self.dir.join(file)).unwrap();
        auth::Keyring::parse(&text).unwrap().key(&base::AuthName::parse(name).unwrap()).unwrap().clone()
    }

    pub(crate) async fn client(&self, name: &str, key: auth::CryptoKey) -> Client {
        let o = Options {
            mons: vec![base::EntityAddr::msgr2(self.mon, 0)],
            name: base::AuthName::parse(name).unwrap(),
            key: Some(key),
            fsid: None,
            timeout: PATIENCE,
            modes: net::modes::Modes::default(),
            mds: false,
        };
        Client::connect(o).await.unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub(crate) async fn admin(&self) -> Client {
        self.client("client.admin", self.key("ceph.client.admin.keyring", "client.admin")).await
    }

    /// Performance counters of the OSD.
    pub(crate) fn osd_perf(&self) -> Value {
        ask(&self.dir.join("run/osd.0.asok"), r#"{"prefix": "perf dump"}"#)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // The daemons end with `up`, whose pipe is their standard input.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn ask(path: &Path, request: &str) -> Value {
    let mut s = UnixStream::connect(path).unwrap();
    s.write_all(request.as_bytes()).unwrap();
    s.write_all(b"\0").unwrap();
    let mut out = Vec::new();
    s.read_to_end(&mut out).unwrap();
    serde_json::from_slice(&out[4..]).unwrap()
}

/// Runs a monitor command, which must succeed.
pub(crate) async fn run(c: &Client, cmd: Value, input: &str) -> String {
    let r = c.mon_command(&cmd.to_string(), bytes::Bytes::copy_from_slice(input.as_bytes())).await.unwrap();
    assert_eq!(r.rc, 0, "{cmd}: {}", r.status);
    String::from_utf8(r.out.to_vec()).unwrap()
}

/// Creates a key with these caps.
pub(crate) async fn make_key(admin: &Client, name: &str, caps: &[&str]) -> auth::CryptoKey {
    let out =
        run(admin, json!({ "prefix": "auth get-or-create", "entity": name, "caps": caps, "format": "json" }), "").await;
    let all: Value = serde_json::from_str(&out).unwrap();
    auth::CryptoKey::from_base64(all[0]["key"].as_str().unwrap()).unwrap()
}

/// Event of a connection.
#[derive(Debug)]
pub(crate) enum Seen {
    Open(Rc<PeerInfo>),
    Message(Message),
    Closed(CloseReason),
}

/// Records all events.
#[derive(Default)]
pub(crate) struct Recorder {
    events: RefCell<VecDeque<(ConnId, Seen)>>,
    notify: Notify,
}

impl Handler for Recorder {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        let seen = match event {
            ConnEvent::Open(p) => Seen::Open(p),
            ConnEvent::Message(m) => Seen::Message(m),
            ConnEvent::Closed(r) => Seen::Closed(r),
        };
        self.events.borrow_mut().push_back((conn, seen));
        self.notify.notify_one();
    }
}

impl Recorder {
    /// The next event of a connection; events of other connections are dropped.
    pub(crate) async fn next(&self, of: ConnId) -> Seen {
        let next = async {
            loop {
                while let Some((c, e)) = self.events.borrow_mut().pop_front() {
                    if c == of {
                        return e;
                    }
                }
                self.notify.notified().await;
            }
        };
        tokio::time::timeout(PATIENCE, next).await.expect("nothing happens")
    }

    /// True if the connection has closed; drops its other events.
    pub(crate) fn has_closed(&self, of: ConnId) -> bool {
        self.events.borrow_mut().drain(..).any(|(c, e)| c == of && matches!(e, Seen::Closed(_)))
    }
}

/// A network whose drop closes its connections.
pub(crate) fn network() -> (Net, Rc<Recorder>) {
    (Net::new(), Rc::new(Recorder::default()))
}
