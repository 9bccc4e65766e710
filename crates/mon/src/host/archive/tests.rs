//! Tests of imports: damaged files, imports that are cut short, two at a time, and beside a running monitor; into a
//! file, and into an etcd if one is installed.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use auth::Keyring;
use base::id::Uuid;
use base::{AddrVec, EntityAddr};
use testkit::{TempDir, free_port};

use super::super::MonRunOptions;
use super::super::mkfs::{MkfsOptions, mkfs};
use super::*;

/// A directory, and an etcd if one is needed; both end with the test.
struct Scratch {
    dir: TempDir,
    etcd: Option<(Child, String)>,
}

impl Scratch {
    fn new(name: &str) -> Self {
        Self { dir: TempDir::new(&format!("import-{name}")), etcd: None }
    }

    /// With an etcd; `None` if none is installed on this machine.
    fn with_etcd(name: &str) -> Option<Self> {
        let mut me = Self::new(name);
        let (client, peer) = (format!("http://{}", free_port()), format!("http://{}", free_port()));
        let mut etcd = Command::new("etcd");
        etcd.arg("--data-dir").arg(me.dir.join("etcd"));
        for (option, value) in [
            ("--listen-client-urls", &client),
            ("--advertise-client-urls", &client),
            ("--listen-peer-urls", &peer),
            ("--initial-advertise-peer-urls", &peer),
            ("--initial-cluster", &format!("default={peer}")),
        ] {
            etcd.arg(option).arg(value);
        }
        let Ok(child) = etcd.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
            return None;
        };
        me.etcd = Some((child, client));
        Some(me)
    }

    fn place(&self, name: &str) -> Place {
        match &self.etcd {
            None => Place::Directory(self.dir.join(name)),
            Some((_, url)) => Place::Etcd(EtcdOptions {
                endpoints: vec![url.clone()],
                prefix: format!("{name}/"),
                ..EtcdOptions::default()
            }),
        }
    }

    /// Waits until the etcd answers.
    fn ready(&self) {
        with_store(&self.place("ready"), async |s| {
            while s.ask(Op::get(vec![Bytes::from_static(b"x")])).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }

    /// A new cluster in this place, made by a monitor `a` with this address.
    fn cluster(&self, place: &Place, n: u8, addr: SocketAddr) -> Result<(), MonError> {
        let (data_dir, etcd) = match place {
            Place::Directory(d) => (d.clone(), None),
            Place::Etcd(o) => (self.dir.join("unused"), Some(o.clone())),
        };
        mkfs(&MkfsOptions {
            fsid: Uuid::from_random([n; 16]),
            mon_name: "a".into(),
            mon_addrs: AddrVec(vec![EntityAddr::msgr2(addr, 0)]),
            others: Vec::new(),
            etcd,
            data_dir,
            keyring: Keyring::new(),
            failure_domain: 1,
        })
        .map(drop)
    }

    /// An export of a cluster with 250 entries of its own.
    fn archive(&self, n: u8, addr: SocketAddr) -> Vec<u8> {
        let from = Place::Directory(self.dir.join(format!("from-{n}")));
        self.cluster(&from, n, addr).unwrap();
        with_store(&from, async |s| {
            for i in 0..5 {
                let mut t = Txn::default();
                (0..50).for_each(|j| t.put(format!("kv/of-{n}/{i}/{j}"), vec![n; 9]));
                assert_eq!(s.ask(Op::Txn(t)).await, Ok(Outcome::Committed));
            }
        });
        exported(&from).unwrap()
    }

    fn options(&self, place: &Place) -> MonRunOptions {
        let (data_dir, etcd) = match place {
            Place::Directory(d) => (d.clone(), None),
            Place::Etcd(o) => (self.dir.join("unused"), Some(o.clone())),
        };
        MonRunOptions {
            etcd,
            name: "a".into(),
            data_dir,
            bind: None,
            mgr_bind: None,
            admin_socket: None,
            config: Default::default(),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some((c, _)) = &mut self.etcd {
            let _ = c.kill();
            let _ = c.wait();
        }
    }
}

fn with_store<T>(place: &Place, f: impl AsyncFnOnce(&mut Store) -> T) -> T {
    run_here(|_, _| async { f(&mut place.open(true).unwrap()).await }).unwrap()
}

fn exported(place: &Place) -> Result<Vec<u8>, MonError> {
    let mut out = Vec::new();
    export(place, &mut out).map(|_| out)
}

fn steps(archive: &[u8], name: u8) -> Vec<Txn> {
    plan(parse(&mut &*archive).unwrap(), [name; 8]).unwrap()
}

/// Carries out some steps of an import, whose process is then gone.
fn part(place: &Place, steps: &[Txn]) -> Result<(), MonError> {
    with_store(place, async |s| write(s, place, steps.to_vec()).await)
}

#[test]
fn a_cut_or_changed_archive_is_refused() {
    let line = json!({ "key": b64(b"k"), "value": b64(b"v") }).to_string();
    let sum = base::crc::crc32c(0, line.as_bytes());
    let good = format!("{}\n{line}\n{}\n", json!({ "belemnite_state": 1 }), json!({ "records": 1, "crc32c": sum }));
    let read = |s: &str| parse(&mut s.as_bytes());
    assert_eq!(read(&good).unwrap(), [(Bytes::from_static(b"k"), Bytes::from_static(b"v"))]);
    assert!(read(&good.replace(&b64(b"v"), &b64(b"w"))).is_err(), "changed");
    assert!(read(&good[..good.len() - 30]).is_err(), "cut");
    assert!(read(&good.lines().take(2).collect::<Vec<_>>().join("\n")).is_err(), "without its end");
    let later = read(&good.replace("\"belemnite_state\":1", "\"belemnite_state\":9")).unwrap_err().to_string();
    assert!(later.contains("made by a newer version of Belemnite"), "{later}");
    assert!(read("{}\n").is_err());
}

#[test]
fn records_that_no_export_has_are_refused() {
    let of = |k: &'static str| (Bytes::from_static(k.as_bytes()), Bytes::new());
    assert!(plan(vec![of(key::FORMAT)], [0; 8]).is_ok());
    assert!(plan(vec![of("kv/x")], [0; 8]).is_err(), "no cluster");
    // Such a record would have no lease: no monitor could ever lead.
    for k in [key::MON_LEADER, "mon/up/a", key::IMPORT] {
        assert!(plan(vec![of(key::FORMAT), of(k)], [0; 8]).is_err(), "{k}");
    }
}

fn an_import_is_cut_short(s: &Scratch) {
    let (one, two) = (s.archive(1, free_port()), s.archive(2, free_port()));
    let of_one = steps(&one, 1);
    assert!(of_one.len() >= 5, "{} steps", of_one.len());
    for cut in 1..of_one.len() {
        let place = s.place(&format!("cut-{cut}"));
        part(&place, &of_one[..cut]).unwrap();
        assert!(exported(&place).is_err(), "after {cut} steps it is no state to export");
        let r = run_here(|cx, _| super::super::run(cx, s.options(&place))).unwrap();
        assert!(matches!(r, Err(MonError::Load { .. })), "after {cut} steps a monitor does not serve: {r:?}");
        let r = s.cluster(&place, 3, free_port());
        assert!(matches!(r, Err(MonError::PartOfState(_))), "after {cut} steps a new cluster is refused: {r:?}");
        import(&place, &mut &two[..]).unwrap();
        assert_eq!(exported(&place).unwrap(), two, "nothing of the first import is left after {cut} steps");
        assert!(part(&place, &of_one[cut..]).is_err(), "what is late of the first import has no effect");
        assert_eq!(exported(&place).unwrap(), two);
    }
    let place = s.place("whole");
    part(&place, &of_one).unwrap();
    assert_eq!(exported(&place).unwrap(), one);
    assert!(matches!(import(&place, &mut &two[..]), Err(MonError::Exists(_))));
    assert_eq!(exported(&place).unwrap(), one);
}

#[test]
fn an_import_into_a_file_is_cut_short() {
    an_import_is_cut_short(&Scratch::new("file"));
}

#[test]
fn an_import_into_etcd_is_cut_short() {
    let Some(s) = Scratch::with_etcd("etcd") else { return };
    s.ready();
    an_import_is_cut_short(&s);
}

#[test]
fn of_two_concurrent_imports_the_second_one_stays() {
    let s = Scratch::new("two");
    let (one, two) = (s.archive(1, free_port()), s.archive(2, free_port()));
    let (of_one, of_two) = (steps(&one, 1), steps(&two, 2));
    let place = s.place("both");
    part(&place, &of_one[..3]).unwrap();
    part(&place, &of_two[..3]).unwrap();
    let r = part(&place, &of_one[3..]);
    assert!(matches!(&r, Err(MonError::Archive(why)) if why.contains("another import")), "{r:?}");
    part(&place, &of_two[3..]).unwrap();
    assert_eq!(exported(&place).unwrap(), two);
}

/// Runs the monitor of this place while `f` runs, then stops it.
fn beside_a_monitor(s: &Scratch, place: &Place, f: impl FnOnce()) {
    let (tx, rx) = channel();
    let options = s.options(place);
    let thread = std::thread::spawn(move || {
        run_here(|cx, stopper| async move {
            tx.send(stopper).unwrap();
            super::super::run(cx, options).await
        })
    });
    let stopper = rx.recv().unwrap();
    f();
    stopper.stop();
    let _ = thread.join().unwrap();
}

#[test]
fn an_import_beside_a_monitor_with_a_file_is_refused() {
    let s = Scratch::new("beside");
    let (addr, place) = (free_port(), s.place("a"));
    s.cluster(&place, 1, addr).unwrap();
    let two = s.archive(2, free_port());
    beside_a_monitor(&s, &place, || {
        while std::net::TcpStream::connect(addr).is_err() {
            std::thread::yield_now();
        }
        let r = import(&place, &mut &two[..]);
        assert!(matches!(r, Err(MonError::Store { .. })), "{r:?}");
    });
    let r = import(&place, &mut &two[..]);
    assert!(matches!(r, Err(MonError::Exists(_))), "its state is still there: {r:?}");
}

#[test]
fn an_import_beside_a_leader_with_etcd_is_refused() {
    let Some(s) = Scratch::with_etcd("leader") else { return };
    s.ready();
    let place = s.place("a");
    s.cluster(&place, 1, free_port()).unwrap();
    let two = s.archive(2, free_port());
    beside_a_monitor(&s, &place, || {
        with_store(&place, async |store| {
            let leader = Bytes::from_static(key::MON_LEADER.as_bytes());
            while !matches!(store.ask(Op::get(vec![leader.clone()])).await, Ok(Outcome::Values(v)) if v[0].is_some()) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(matches!(import(&place, &mut &two[..]), Err(MonError::Exists(_))));
        // The cluster's records are removed, but the leader still runs.
        with_store(&place, async |store| {
            let t = Txn { then: vec![Change::Delete(Bytes::from_static(key::FORMAT.as_bytes()))], ..Txn::default() };
            assert_eq!(store.ask(Op::Txn(t)).await, Ok(Outcome::Committed));
        });
        let r = import(&place, &mut &two[..]);
        assert!(matches!(&r, Err(MonError::Archive(why)) if why.contains("stop all monitors")), "{r:?}");
    });
    // A monitor that stops gives its lease back.
    import(&place, &mut &two[..]).unwrap();
    assert_eq!(exported(&place).unwrap(), two);
}

/// `fixtures/0.1-a1f98713.state.gz` was exported by the build of that commit.
fn of_the_release_before() -> Vec<u8> {
    let packed = &include_bytes!("../../../tests/fixtures/0.1-a1f98713.state.gz")[..];
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(packed), &mut text).unwrap();
    text
}

fn written(records: &[(Bytes, Bytes)]) -> Vec<u8> {
    let (mut out, mut sum) = (format!("{}\n", json!({ "belemnite_state": 1 })), 0);
    for (k, v) in records {
        let line = json!({ "key": b64(k), "value": b64(v) }).to_string();
        sum = base::crc::crc32c(sum, line.as_bytes());
        out += &format!("{line}\n");
    }
    (out + &format!("{}\n", json!({ "records": records.len(), "crc32c": sum }))).into_bytes()
}

#[test]
fn a_state_of_the_release_before_is_read_and_one_of_a_later_release_refused() {
    let s = Scratch::new("versions");
    let place = s.place("mon.a");
    let earlier = of_the_release_before();
    let records = parse(&mut &earlier[..]).unwrap();
    let later = |format: u32, words: Option<base::FeatureWords>| {
        let mut r: Vec<_> = records.iter().filter(|(k, _)| k != key::FORMAT).cloned().collect();
        r.push((key::FORMAT.into(), crate::state::records::value(&format)));
        r.extend(words.map(|w| (Bytes::from(key::FEATURES), Bytes::copy_from_slice(&w.to_bytes()))));
        r
    };
    let words = |compat, ro_compat, incompat| Some(base::FeatureWords { compat, ro_compat, incompat });
    for r in [later(4, None), later(3, words(0, 0, 1 << 50)), later(3, words(0, 1, 0))] {
        let e = import(&place, &mut &written(&r)[..]).unwrap_err().to_string();
        assert!(e.contains("made by a newer version of Belemnite"), "{e}");
    }
    let e = import(&place, &mut &written(&later(0, None))[..]).unwrap_err().to_string();
    assert!(e.contains("format 0"), "{e}");
    // Unknown features that anybody may ignore.
    let ignored = later(3, words(1 << 63, 0, 0));
    assert_eq!(import(&s.place("mon.b"), &mut &written(&ignored)[..]).unwrap(), ignored.len());
    assert_eq!(import(&place, &mut &earlier[..]).unwrap(), records.len());
    let mut again = Vec::new();
    assert_eq!(export(&place, &mut again).unwrap(), records.len());
    assert!(again == earlier, "what was read is written unchanged");
}
