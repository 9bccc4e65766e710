//! Does an etcd that is installed on this machine fulfil the trait's contract? Without one the tests print so and do
//! nothing.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use state::conformance::{Driver, Hands, run_all};
use state::etcd::{EtcdOptions, EtcdStore};
use state::{Op, Outcome, StateError, StateStore as _, Txn};
use testkit::{TempDir, free_port};

struct Server {
    dir: PathBuf,
    /// Removed after the server has ended.
    temp: Option<TempDir>,
    child: Child,
    url: String,
    args: Vec<String>,
}

fn installed(program: &str) -> bool {
    let there = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !there {
        eprintln!("{program} is not installed: nothing is tried");
    }
    there
}

impl Server {
    fn start(name: &str, scheme: &str, tls: &[&str]) -> Self {
        let temp = TempDir::new(&format!("etcd-{name}"));
        let mut me = Self::start_in(temp.to_path_buf(), scheme, tls);
        me.temp = Some(temp);
        me
    }

    fn start_in(dir: PathBuf, scheme: &str, tls: &[&str]) -> Self {
        std::fs::create_dir_all(&dir).expect("dir");
        let (client, peer) = (free_port().port(), free_port().port());
        let url = format!("{scheme}://127.0.0.1:{client}");
        let mut args: Vec<String> = vec![
            format!("--data-dir={}", dir.join("data").display()),
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
            format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"),
            format!("--initial-cluster=default=http://127.0.0.1:{peer}"),
            "--unsafe-no-fsync=true".into(),
        ];
        args.extend(tls.iter().map(|a| (*a).to_owned()));
        // Not every version has this option.
        let help = Command::new("etcd").arg("--help").output().expect("etcd");
        let text = [help.stdout, help.stderr].concat();
        if !String::from_utf8_lossy(&text).contains("unsafe-no-fsync") {
            args.retain(|a| !a.contains("unsafe"));
        }
        let mut me = Self { child: Self::spawn(&args, &dir), temp: None, dir, url, args };
        me.await_port();
        me
    }

    fn spawn(args: &[String], dir: &Path) -> Child {
        let log = std::fs::File::create(dir.join("log")).expect("log");
        Command::new("etcd").args(args).stdout(Stdio::null()).stderr(log).spawn().expect("etcd starts")
    }

    fn await_port(&mut self) {
        let addr = self.url.split_once("://").expect("url").1.to_owned();
        let begun = Instant::now();
        while std::net::TcpStream::connect(&addr).is_err() {
            assert!(self.child.try_wait().expect("wait").is_none(), "etcd ended, see {}", self.dir.display());
            assert!(begun.elapsed() < Duration::from_secs(60), "etcd listens");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn restart(&mut self) {
        self.child = Self::spawn(&self.args, &self.dir);
        self.await_port();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn open(o: &EtcdOptions) -> (EtcdStore, Receiver<()>) {
    let (tx, rx) = sync_channel::<()>(1);
    let tx = Arc::new(tx);
    let store = EtcdStore::open(
        o,
        Box::new(move || {
            let _ = tx.try_send(());
        }),
    );
    (store.expect("open"), rx)
}

fn options(url: &str, prefix: &str) -> EtcdOptions {
    EtcdOptions { endpoints: vec![url.to_owned()], prefix: prefix.to_owned(), ..EtcdOptions::default() }
}

/// Polls after a short while, so that no waker is needed for each store of the suite.
const HANDS: Hands<'static, EtcdStore> = Hands {
    wait: &|_| std::thread::sleep(Duration::from_millis(1)),
    pass: &|_, d| std::thread::sleep(d),
    compact: &|s, r| s.compact(r),
};

#[test]
fn etcd_passes_the_conformance_suite() {
    if !installed("etcd") {
        return;
    }
    let server = Server::start("suite", "http", &[]);
    let mut n = 0;
    run_all(
        || {
            n += 1;
            open(&options(&server.url, &format!("t{n}/"))).0
        },
        HANDS,
    );
}

fn put(k: &'static str, v: &'static str) -> Op {
    let mut t = Txn::default();
    t.put(k, v);
    Op::Txn(t)
}

#[test]
fn a_watch_resumes_from_its_revision_when_etcd_restarts() {
    if !installed("etcd") {
        return;
    }
    let mut server = Server::start("again", "http", &[]);
    let (store, ready) = open(&options(&server.url, "p/"));
    let mut d = Driver::new(store, HANDS);
    d.ask(Op::Watch { id: 1, range: state::Range::prefix(b""), from: 0 });
    d.ask(put("a", "1"));
    let (other, _) = open(&options(&server.url, "p/"));
    server.stop();
    let down = d.ask(Op::get(vec![Bytes::from_static(b"a")]));
    assert!(matches!(down.result, Err(StateError::Unavailable(_))), "{down:?}");
    let write = d.ask(put("a", "2"));
    assert!(matches!(write.result, Err(StateError::Unavailable(_) | StateError::Unknown(_))), "{write:?}");
    server.restart();
    let mut o = Driver::new(other, HANDS);
    let begun = Instant::now();
    while !matches!(o.ask(put("b", "3")).result, Ok(Outcome::Committed)) {
        assert!(begun.elapsed() < Duration::from_secs(60), "etcd comes back");
    }
    let mut seen = Vec::new();
    while seen.len() < 2 {
        ready.recv_timeout(Duration::from_secs(60)).expect("an event");
        // The failed write may have taken effect: then `a` is seen twice.
        let new = d.changes().into_iter().filter(|k| k != "a" || seen.is_empty());
        seen.extend(new.collect::<Vec<_>>());
    }
    assert_eq!(seen, ["a", "b"]);
}

#[test]
fn an_etcd_that_is_full_refuses_writes_and_serves_reads() {
    if !installed("etcd") {
        return;
    }
    let server = Server::start("full", "http", &["--quota-backend-bytes=4194304"]);
    let (store, _ready) = open(&options(&server.url, "p/"));
    let mut d = Driver::new(store, HANDS);
    let lease = match d.ask(Op::Grant(Duration::from_secs(60))).result {
        Ok(Outcome::Lease(id, _)) => id,
        o => panic!("{o:?}"),
    };
    let large = Bytes::from(vec![7; 400 << 10]);
    let write = |n: usize| {
        let mut t = Txn::default();
        t.put(format!("k{n}"), large.clone());
        Op::Txn(t)
    };
    let refused = (0..40).find_map(|n| d.ask(write(n)).result.err().map(|e| (n, e)));
    let Some((n, StateError::Refused(why))) = refused else { panic!("{refused:?}") };
    assert!(n > 0 && why.contains("space"), "{why}");
    // The refused write had no effect; existing keys can be read, and leases can be renewed.
    let read = d.ask(Op::get(vec![Bytes::from(format!("k{n}")), Bytes::from_static(b"k0")]));
    let Ok(Outcome::Values(v)) = read.result else { panic!("{read:?}") };
    assert!(v[0].is_none() && v[1].as_ref().is_some_and(|e| e.value == large));
    assert_eq!(d.ask(Op::Renew(lease)).result, Ok(Outcome::Done));
}

/// Calls etcd as `etcdctl` does, through its JSON interface.
fn call(url: &str, path: &str, body: &str) -> String {
    use std::io::{Read as _, Write as _};
    let host = url.split_once("://").expect("url").1;
    let mut s = std::net::TcpStream::connect(host).expect("etcd");
    let n = body.len();
    write!(s, "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {n}\r\n\r\n{body}")
        .expect("sent");
    let mut answer = String::new();
    s.read_to_string(&mut answer).expect("answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    answer
}

/// The steps of docs/operate/monitors.md, "When etcd is full".
#[test]
fn a_full_etcd_serves_again_after_compaction_and_disarming() {
    if !installed("etcd") {
        return;
    }
    let server = Server::start("disarm", "http", &["--quota-backend-bytes=4194304"]);
    let (store, _ready) = open(&options(&server.url, "p/"));
    let mut d = Driver::new(store, HANDS);
    // The same key again and again: what fills etcd is its history.
    let write = |n: u8| {
        let mut t = Txn::default();
        t.put("k", Bytes::from(vec![n; 400 << 10]));
        Op::Txn(t)
    };
    assert!((0..40).any(|n| d.ask(write(n)).result.is_err()));
    let grant = d.ask(Op::Grant(Duration::from_secs(60))).result;
    assert!(matches!(&grant, Err(StateError::Refused(why)) if why.contains("space")), "{grant:?}");
    let newest = d.ask(Op::get(vec![Bytes::from_static(b"k")])).revision;
    call(&server.url, "/v3/kv/compaction", &format!("{{\"revision\":\"{newest}\",\"physical\":true}}"));
    call(&server.url, "/v3/maintenance/defragment", "{}");
    let alarms = call(&server.url, "/v3/maintenance/alarm", "{\"action\":\"GET\"}");
    let member = alarms.split("\"memberID\":\"").nth(1).and_then(|t| t.split('"').next()).expect("an alarm");
    let disarm = format!("{{\"action\":\"DEACTIVATE\",\"memberID\":\"{member}\",\"alarm\":\"NOSPACE\"}}");
    call(&server.url, "/v3/maintenance/alarm", &disarm);
    assert_eq!(d.ask(write(99)).result, Ok(Outcome::Committed));
    assert!(matches!(d.ask(Op::Grant(Duration::from_secs(60))).result, Ok(Outcome::Lease(..))));
}

#[test]
fn tls_with_a_certificate_or_a_password() {
    if !installed("etcd") || !installed("openssl") {
        return;
    }
    let dir = TempDir::new("etcd-tls");
    let make = "openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca \
        && for n in server client; do openssl req -newkey rsa:2048 -nodes -keyout $n.key -out $n.csr -subj /CN=root \
        && printf 'subjectAltName=IP:127.0.0.1\\nextendedKeyUsage=serverAuth,clientAuth\\n' > ext \
        && openssl x509 -req -in $n.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out $n.pem; done";
    let made = Command::new("sh").arg("-c").arg(make).current_dir(&*dir).output().expect("sh");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let flags = [
        "--cert-file=DIR/server.pem",
        "--key-file=DIR/server.key",
        "--client-cert-auth=true",
        "--trusted-ca-file=DIR/ca.pem",
    ];
    let flags = flags.map(|f| f.replace("DIR", &dir.display().to_string()));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::start_in(dir.join("certificates"), "https", &flags);
    let plain = options(&server.url, "p/");
    assert!(matches!(EtcdStore::open(&plain, Box::new(|| ())), Err(StateError::Refused(_))), "https needs a CA");
    let no_cert = EtcdOptions { ca: Some(dir.join("ca.pem")), ..plain.clone() };
    let mut d = Driver::new(open(&no_cert).0, HANDS);
    assert!(d.ask(put("a", "1")).result.is_err(), "etcd wants a certificate");
    let with = EtcdOptions { cert: Some((dir.join("client.pem"), dir.join("client.key"))), ..no_cert.clone() };
    let mut d = Driver::new(open(&with).0, HANDS);
    assert_eq!(d.ask(put("a", "1")).result, Ok(Outcome::Committed));
    d.ask(Op::Watch { id: 1, range: state::Range::prefix(b""), from: 1 });
    drop(server);

    let server = Server::start_in(dir.join("passwords"), "https", &flags[..2]);
    let ctl = |args: &[&str]| {
        let mut c = Command::new("etcdctl");
        c.env("ETCDCTL_API", "3").arg(format!("--endpoints={}", server.url)).arg("--cacert").arg(dir.join("ca.pem"));
        let out = c.args(args).output().expect("etcdctl");
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    };
    if !installed("etcdctl") {
        return;
    }
    ctl(&["user", "add", "root:secret"]);
    ctl(&["auth", "enable"]);
    let mut d = Driver::new(open(&no_cert_at(&no_cert, &server.url, None)).0, HANDS);
    assert!(matches!(d.ask(put("a", "1")).result, Err(StateError::Refused(_))));
    let wrong = no_cert_at(&no_cert, &server.url, Some("wrong"));
    let mut d = Driver::new(open(&wrong).0, HANDS);
    assert!(matches!(d.ask(put("a", "1")).result, Err(StateError::Refused(_))));
    let mut d = Driver::new(open(&no_cert_at(&no_cert, &server.url, Some("secret"))).0, HANDS);
    assert_eq!(d.ask(put("a", "1")).result, Ok(Outcome::Committed));
    drop(server);
}

fn no_cert_at(o: &EtcdOptions, url: &str, password: Option<&str>) -> EtcdOptions {
    let user = password.map(|p| ("root".to_owned(), p.to_owned()));
    EtcdOptions { endpoints: vec![url.to_owned()], user, ..o.clone() }
}

#[test]
fn other_machines_need_tls_with_a_certificate_or_user() {
    for url in ["http://10.0.0.1:2379", "https://10.0.0.1:2379"] {
        let e = EtcdStore::open(&options(url, ""), Box::new(|| ())).err();
        assert!(matches!(e, Some(StateError::Refused(_))), "{url}: {e:?}");
    }
}
