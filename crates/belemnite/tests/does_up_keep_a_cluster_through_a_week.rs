//! Does `up` keep data through an operator's commands: OSDs stopped, removed, added, replaced and purged, a lost
//! description, kills in the middle of changes?

mod support;

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A directory with at most one `up` on it.
struct Week {
    dir: PathBuf,
    port: String,
    up: Option<(Child, Receiver<String>)>,
}

impl Week {
    fn new(name: &str) -> Self {
        let dir = support::Up::dir(name);
        let port = support::free_ports().to_string();
        Self { dir, port, up: None }
    }

    fn spawn(&mut self, args: &[&str]) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_belemnite"))
            .args(["up", "--data"])
            .arg(&self.dir)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (tell, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        let err = BufReader::new(child.stderr.take().unwrap());
        for input in [Box::new(out) as Box<dyn std::io::BufRead + Send>, Box::new(err)] {
            let tell = tell.clone();
            std::thread::spawn(move || input.lines().map_while(Result::ok).all(|l| tell.send(l).is_ok()));
        }
        self.up = Some((child, lines));
    }

    /// Waits for a line of `up` with this text.
    fn says(&self, text: &str) {
        let (_, lines) = self.up.as_ref().unwrap();
        let end = Instant::now() + support::PATIENCE;
        let mut seen = Vec::new();
        while let Ok(l) = lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            if l.contains(text) {
                return;
            }
            seen.push(l);
        }
        panic!("`up` does not say '{text}': {seen:#?}");
    }

    fn up(&mut self, args: &[&str]) {
        self.spawn(args);
        self.says("The cluster is up");
    }

    /// Runs `up`, which must refuse with this text.
    fn refuses(&mut self, args: &[&str], text: &str) {
        self.spawn(args);
        self.says(text);
        assert!(!self.end().success());
    }

    fn end(&mut self) -> std::process::ExitStatus {
        self.up.take().unwrap().0.wait().unwrap()
    }

    /// Kills `up` as the kernel does.
    fn kill(&mut self) {
        self.up.as_mut().unwrap().0.kill().unwrap();
        self.end();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut c = Command::new(env!("CARGO_BIN_EXE_belemnite"));
        c.arg("--conf").arg(self.dir.join("ceph.conf")).args(args);
        c
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command that must succeed.
    #[track_caller]
    fn does(&self, args: &[&str]) -> String {
        let o = self.run(args);
        assert!(o.status.success(), "{args:?}: {o:?}");
        String::from_utf8(o.stdout).unwrap()
    }

    /// Runs a command that must be refused with this text.
    #[track_caller]
    fn does_not(&self, args: &[&str], status: i32, text: &str) {
        let o = self.run(args);
        let said = String::from_utf8(o.stderr).unwrap();
        assert!(o.status.code() == Some(status) && said.contains(text), "{args:?}: {:?} {said}", o.status);
    }

    /// Runs monitor commands with the administrator's key; returns the output of the last.
    fn mon(&self, cmds: &[Value]) -> String {
        let mon = format!("127.0.0.1:{}", self.port).parse().unwrap();
        let text = std::fs::read_to_string(self.dir.join("ceph.client.admin.keyring")).unwrap();
        let name = base::AuthName::parse("client.admin").unwrap();
        let key = auth::Keyring::parse(&text).unwrap().key(&name).unwrap().clone();
        let cmds = cmds.to_vec();
        let o = client::Options {
            mons: vec![base::EntityAddr::msgr2(mon, 0)],
            name,
            key: Some(key),
            fsid: None,
            timeout: support::PATIENCE,
            modes: net::modes::Modes::default(),
            mds: false,
        };
        reactor::run_here(|_, _| async move {
            let c = client::Client::connect(o).await.unwrap();
            let mut out = String::new();
            for cmd in cmds {
                out = support::run(&c, cmd, "").await;
            }
            out
        })
        .unwrap()
    }

    #[track_caller]
    fn until(&self, mut is: impl FnMut() -> bool) {
        let end = Instant::now() + support::PATIENCE;
        while !is() {
            assert!(Instant::now() < end, "{}", self.does(&["status"]));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until all PGs are active+clean.
    #[track_caller]
    fn clean(&self) {
        self.until(|| {
            let s: Value = serde_json::from_str(&self.does(&["status", "-f", "json"])).unwrap();
            let m = &s["pgmap"];
            let states = m["pgs_by_state"].as_array().unwrap();
            states.len() == 1 && states[0]["state_name"] == "active+clean" && states[0]["count"] == m["num_pgs"]
        });
    }

    /// An OSD as the map shows it.
    fn osd(&self, id: u32) -> Option<Value> {
        let dump: Value =
            serde_json::from_str(&self.mon(&[json!({ "prefix": "osd dump", "format": "json" })])).unwrap();
        dump["osds"].as_array().unwrap().iter().find(|o| o["osd"] == id).cloned()
    }

    fn file(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn put(&self, objects: std::ops::Range<u32>) {
        for i in objects {
            std::fs::write(self.file(), format!("object {i}").repeat(100)).unwrap();
            self.does(&["put", "p", &format!("o{i}"), self.file().to_str().unwrap()]);
        }
    }

    /// Reads objects back and compares them.
    fn has(&self, objects: std::ops::Range<u32>) {
        for i in objects {
            assert_eq!(self.does(&["get", "p", &format!("o{i}"), "-"]), format!("object {i}").repeat(100));
        }
    }

    fn daemons(&self) -> Vec<(String, String)> {
        let v: Value = serde_json::from_str(&self.does(&["daemons", "--json"])).unwrap();
        let of = |d: &Value, k: &str| d[k].as_str().unwrap().to_owned();
        v["daemons"].as_array().unwrap().iter().map(|d| (of(d, "name"), of(d, "state"))).collect()
    }

    fn state(&self, name: &str) -> Option<String> {
        self.daemons().into_iter().find(|(n, _)| n == name).map(|(_, s)| s)
    }
}

impl Drop for Week {
    fn drop(&mut self) {
        if let Some((mut c, _)) = self.up.take() {
            // The daemons end with `up`, whose pipe is their standard input.
            let _ = c.kill();
            let _ = c.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn files(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut out = Vec::new();
    for e in std::fs::read_dir(dir).unwrap().flatten() {
        let m = e.metadata().unwrap();
        let ignored = ["lock", "log", "run", "control"].iter().any(|n| e.file_name() == *n);
        match () {
            () if ignored => {}
            () if m.is_dir() => out.extend(files(&e.path())),
            () => out.push((e.path(), m.len())),
        }
    }
    out.sort();
    out
}

#[test]
fn osds_are_stopped_removed_added_replaced_and_purged_under_up() {
    let mut w = Week::new("week-osds");
    let port = w.port.clone();
    w.up(&["--port", &port, "--osds", "3", "--osd-size", "1G", "--pool-size", "2"]);
    w.does(&["pool", "create", "p", "4"]);
    w.clean();
    w.put(0..6);
    daemons_stop_and_start(&mut w);
    // An OSD that holds copies is not given up without a word.
    w.does_not(&["osd", "replace", "1"], 1, "not safe to destroy");
    w.does(&["osd", "replace", "1", "--degraded"]);
    w.clean();
    w.has(0..8);
    an_osd_is_removed_and_added(&mut w);
    a_purged_osd_does_not_start(&mut w);
    w.has(0..8);
    assert_eq!(w.does(&["stop"]), "stopped\n");
    assert!(w.end().success());
    w.does_not(&["stop"], 3, "no `belemnite up` serves");
    w.does_not(&["status"], 1, "no monitor listens");
}

fn daemons_stop_and_start(w: &mut Week) {
    w.does(&["osd", "stop", "1"]);
    assert_eq!(w.state("osd.1").as_deref(), Some("stopped"));
    w.put(6..8);
    w.does(&["osd", "start", "1"]);
    w.does_not(&["osd", "stop", "9"], 1, "no daemon osd.9");
    w.clean();

    // Without its only monitor the cluster stops.
    for stop in [&["mon", "stop"][..], &["stop", "mon.a"]] {
        w.does_not(stop, 1, "mon.a is the last monitor that runs");
    }
    w.does_not(&["mon", "stop", "b"], 1, "no daemon mon.b");
    assert_eq!(w.state("mon.a").as_deref(), Some("running"));
    w.does(&["mon", "stop", "--force"]);
    assert_eq!(w.state("mon.a").as_deref(), Some("stopped"));
    w.does(&["mon", "start"]);
    w.clean();
}

fn an_osd_is_removed_and_added(w: &mut Week) {
    // An OSD that an operator takes back in the middle stays.
    let hold = |set: &str| w.mon(&["nobackfill", "norecover"].map(|key| json!({ "prefix": set, "key": key })));
    hold("osd set");
    let mut remove = w.command(&["osd", "remove", "0"]).stderr(Stdio::piped()).spawn().unwrap();
    w.until(|| w.osd(0).is_some_and(|o| o["in"] == 0));
    w.mon(&[json!({ "prefix": "osd in", "ids": ["0"] })]);
    assert_eq!(remove.wait().unwrap().code(), Some(1));
    let mut said = String::new();
    remove.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("marked in again"), "{said}");
    hold("osd unset");
    w.clean();

    w.does(&["osd", "remove", "0"]);
    assert!(!w.dir.join("osd.0").exists());
    w.has(0..8);
    w.does_not(&["osd", "remove", "0"], 1, "no osd.0");
    // Pools with two copies need the two OSDs that are left.
    w.does_not(&["osd", "remove", "1"], 1, "cannot be emptied");
    assert!(w.does(&["osd", "add", "--size", "1G"]).contains("osd.0"), "the id is used again");
    assert!(w.osd(0).is_some_and(|o| o["up"] == 1 && o["in"] == 1));
    w.clean();
}

/// An OSD is purged behind the back of `up`, which is killed then.
fn a_purged_osd_does_not_start(w: &mut Week) {
    w.does(&["osd", "stop", "0"]);
    w.mon(&[
        json!({ "prefix": "osd down", "ids": ["0"] }),
        json!({ "prefix": "osd purge", "id": 0, "yes_i_really_mean_it": true }),
    ]);
    w.does_not(&["osd", "start", "0"], 1, "not in the monitor's map");
    w.kill();
    w.up(&[]);
    assert_eq!(w.state("osd.0").as_deref(), Some("purged"));
    w.does_not(&["osd", "start", "0"], 1, "not in the monitor's map");
    w.does(&["osd", "remove", "0"]);
    assert_eq!(w.state("osd.0"), None);
}

#[test]
fn a_lost_key_of_the_administrator_comes_back() {
    let mut w = Week::new("week-key");
    let port = w.port.clone();
    w.up(&["--port", &port, "--osds", "1", "--osd-size", "1G", "--pool-size", "1"]);
    let admin = w.dir.join("ceph.client.admin.keyring");
    let key = || {
        let ring = auth::Keyring::parse(&std::fs::read_to_string(&admin).unwrap()).unwrap();
        ring.key(&base::AuthName::parse("client.admin").unwrap()).unwrap().clone()
    };
    let first = key();
    w.does(&["stop"]);
    w.end();
    std::fs::remove_file(&admin).unwrap();
    w.spawn(&[]);
    w.says("client.admin: wrote its keyring, which was missing");
    w.says("The cluster is up");
    assert_eq!(key(), first);

    // The monitors have lost it, too.
    w.mon(&[json!({ "prefix": "auth rm", "entity": "client.admin" })]);
    w.does(&["stop"]);
    w.end();
    w.spawn(&[]);
    w.says("client.admin: the monitors had no key of it; made a new one");
    w.says("The cluster is up");
    assert_ne!(key(), first);
    w.mon(&[json!({ "prefix": "auth get", "entity": "client.admin" })]);

    // A command that waits for an answer of `up` does not outlive it.
    let pid = w.up.as_ref().unwrap().0.id();
    let stopped = Command::new("sh").arg("-c").arg(format!("kill -STOP {pid}")).status().unwrap();
    assert!(stopped.success());
    let waiting = w.command(&["daemons"]).stderr(Stdio::piped()).spawn().unwrap();
    let fds = format!("/proc/{}/fd", waiting.id());
    let is_socket =
        |e: std::fs::DirEntry| std::fs::read_link(e.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
    w.until(|| std::fs::read_dir(&fds).unwrap().flatten().any(is_socket));
    w.kill();
    let o = waiting.wait_with_output().unwrap();
    assert_eq!(o.status.code(), Some(3), "{o:?}");
}

#[test]
fn a_lost_description_is_refused_and_recovered() {
    let mut w = Week::new("week-lost");
    let port = w.port.clone();
    let create = ["--port", &port, "--osds", "2", "--osd-size", "1G", "--pool-size", "2"];
    w.up(&create);
    w.does(&["pool", "create", "p", "4"]);
    w.put(0..4);
    w.does_not(&["restart"], 2, "DAEMONS");
    // A second `up` is refused, and takes nothing from the first.
    let second = Command::new(env!("CARGO_BIN_EXE_belemnite")).args(["up", "--data"]).arg(&w.dir).output().unwrap();
    assert!(String::from_utf8_lossy(&second.stderr).contains("another `belemnite up`"), "{second:?}");
    assert_eq!(w.state("osd.1").as_deref(), Some("running"));
    w.does(&["stop"]);
    w.end();

    let description = w.dir.join("cluster.json");
    let whole = std::fs::read_to_string(&description).unwrap();
    let before: Vec<_> = files(&w.dir).into_iter().filter(|(p, _)| *p != description).collect();
    std::fs::remove_file(&description).unwrap();
    w.refuses(&create, "--recover");
    assert_eq!(files(&w.dir), before);
    std::fs::write(&description, &whole[..whole.len() / 2]).unwrap();
    w.refuses(&create, "--recover");
    // Lost as well: the administrator's and an OSD's keyrings, and the configuration.
    std::fs::remove_file(w.dir.join("ceph.client.admin.keyring")).unwrap();
    std::fs::remove_file(w.dir.join("osd.1/keyring")).unwrap();
    std::fs::remove_file(w.dir.join("ceph.conf")).unwrap();
    w.up(&["--recover", "--pool-size", "2"]);
    let plan = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(plan(&std::fs::read_to_string(&description).unwrap()), plan(&whole));
    w.has(0..4);
    w.does(&["stop"]);
    w.end();
    w.refuses(&["--recover"], "nothing to recover");
}

#[test]
fn an_interrupted_creation_begins_anew_and_a_left_over_store_stays() {
    let mut w = Week::new("week-kill");
    let port = w.port.clone();
    let create = ["--port", &port, "--osds", "2", "--osd-size", "1G"];
    w.spawn(&create);
    w.says("osd.0: preparing");
    w.kill();
    w.up(&create);
    w.does(&["stop"]);
    w.end();
    // A store that the description does not name: of a purged OSD, or of a newer description.
    let left = w.dir.join("osd.2");
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join("block"), "data").unwrap();
    w.refuses(&["--osds", "3", "--osd-size", "1G"], "does not name");
    assert_eq!(std::fs::read_to_string(left.join("block")).unwrap(), "data");
    // A refusal leaves nothing behind.
    let other = w.dir.join("other");
    let mut o = Week { dir: other.clone(), port: String::new(), up: None };
    o.refuses(&["--ip", "0.0.0.0"], "one of this machine's own");
    assert!(!other.exists());
}

/// The file of a stopped OSD.
struct Block(std::fs::File);

impl base::device::Device for Block {
    fn bytes(&self) -> u64 {
        self.0.metadata().unwrap().len()
    }
    fn read_many(&mut self, ranges: &[(u64, u64)]) -> Vec<Result<bytes::Bytes, base::errno::Errno>> {
        let one = |(off, len): &(u64, u64)| {
            let mut b = vec![0; *len as usize];
            self.0.read_exact_at(&mut b, *off).unwrap();
            Ok(b.into())
        };
        ranges.iter().map(one).collect()
    }
    fn write(&mut self, off: u64, data: &[bytes::Bytes]) -> Result<(), base::errno::Errno> {
        self.0.write_all_at(&data.concat(), off).unwrap();
        Ok(())
    }
    fn flush(&mut self) -> Result<(), base::errno::Errno> {
        Ok(())
    }
}

/// A newer version has used a feature in an OSD's store that this one does not know. The OSD says so and does not start,
/// nothing offers a repair or writes to the store, and the other OSDs serve.
#[test]
fn a_store_of_a_newer_version_is_refused_and_left_alone() {
    let mut w = Week::new("week-newer");
    let port = w.port.clone();
    w.up(&["--port", &port, "--osds", "3", "--osd-size", "1G"]);
    w.does(&["pool", "create", "p", "8"]);
    w.clean();
    w.put(0..4);
    w.does(&["osd", "stop", "0"]);
    let block = w.dir.join("osd.0/block");
    let features = base::FeatureWords { compat: 0, ro_compat: 0, incompat: 1 << 40 };
    {
        let file = std::fs::File::options().read(true).write(true).open(&block).unwrap();
        store::testing::set_features(&mut Block(file), features);
    }
    let before = std::fs::read(&block).unwrap();
    let said = "made by a newer version of Belemnite";
    let refused = w.run(&["osd", "start", "0"]);
    w.says(said);
    let block = block.to_str().unwrap();
    for args in [&["store", "fsck", block][..], &["store", "repair", "--metadata", block], &["store", "inspect", block]]
    {
        let o = w.run(args);
        let text = String::from_utf8_lossy(&[o.stdout, o.stderr].concat()).into_owned();
        assert!(!o.status.success() && text.contains(said) && !text.contains("damaged"), "{args:?}: {text}");
    }
    assert!(std::fs::read(block).unwrap() == before, "the store was changed: {refused:?}");
    w.has(0..4);
    w.put(4..6);
    w.has(0..6);
    w.does(&["stop"]);
    w.end();
}

#[test]
fn a_monitors_state_comes_back_from_a_backup_and_from_the_osds() {
    let mut w = Week::new("week-monitor");
    let port = w.port.clone();
    w.up(&["--port", &port, "--osds", "2", "--osd-size", "1G", "--pool-size", "2"]);
    w.does(&["pool", "create", "p", "4"]);
    w.put(0..4);
    let backup = w.dir.join("backup");
    let file = backup.to_str().unwrap().to_owned();
    assert!(w.does(&["state", "export", &file]).contains("records written"), "while the monitor runs");
    w.does_not(&["state", "export", &file], 1, "exists");
    // What the backup does not know: maps, a pool, and a split.
    w.does(&["pool", "create", "q", "4"]);
    w.mon(&[json!({ "prefix": "osd pool set", "pool": "p", "var": "pg_num", "val": "8" })]);
    w.until(|| w.mon(&[json!({ "prefix": "osd pool get", "pool": "p", "var": "pg_num" })]).contains("pg_num: 8"));
    w.does(&["osd", "restart", "1", "--force"]);
    w.clean();
    w.put(4..6);
    w.does_not(&["state", "advance"], 1, "in use by another process");
    w.does(&["mon", "restart"]);
    w.does(&["pool", "ls"]);
    w.does(&["stop"]);
    w.end();
    let timed: Vec<_> = std::fs::read_dir(w.dir.join("backups/mon.a")).unwrap().collect();
    assert_eq!(timed.len(), 1, "the timer's export");

    std::fs::remove_file(w.dir.join("mon.a/state.redb")).unwrap();
    w.does(&["state", "import", &file]);
    w.spawn(&[]);
    w.says("its state is older than theirs");
    assert!(w.does(&["status"]).contains("osds have newer maps than the monitor"));
    w.does(&["stop"]);
    w.end();
    assert!(w.does(&["state", "advance"]).contains("epoch"));
    w.up(&[]);
    w.clean();
    w.has(0..6);
    assert!(w.does(&["pool", "ls"]).contains('q'), "the OSDs know");
    assert!(w.mon(&[json!({ "prefix": "osd pool get", "pool": "p", "var": "pg_num" })]).contains("pg_num: 8"));
    w.put(6..8);
    w.does(&["stop"]);
    w.end();

    // The monitor's disk is lost, and no backup is there.
    std::fs::remove_dir_all(w.dir.join("mon.a")).unwrap();
    std::fs::remove_file(w.dir.join("ceph.client.admin.keyring")).unwrap();
    let osd = |n: &str| w.dir.join(n).join("block").to_str().unwrap().to_owned();
    let (a, b) = (osd("osd.0"), osd("osd.1"));
    w.does_not(&["state", "rebuild", "--osd", &file], 1, &file);
    w.does(&["state", "rebuild", "--osd", &a, "--osd", &b]);
    w.does_not(&["state", "rebuild", "--osd", &a], 1, "already");
    w.up(&[]);
    w.clean();
    w.has(0..8);
}

#[test]
fn rotated_keys_are_taken_up() {
    let mut w = Week::new("week-keys");
    let port = w.port.clone();
    w.up(&["--port", &port, "--osds", "1", "--osd-size", "1G"]);
    w.does(&["pool", "create", "p", "4"]);
    w.put(0..2);
    let keyring = |path: &str| std::fs::read_to_string(w.dir.join(path)).unwrap();
    let key = |out: &str| out.lines().find_map(|l| l.trim().strip_prefix("key = ")).unwrap().to_owned();
    let booted = |w: &Week| w.osd(0).unwrap()["up_from"].as_u64().unwrap();

    let before = booted(&w);
    let osd = key(&w.mon(&[json!({ "prefix": "auth rotate", "entity": "osd.0" })]));
    assert!(!keyring("osd.0/keyring").contains(&osd));
    w.does(&["osd", "restart", "0", "--force"]);
    w.says("osd.0: took up its new key");
    w.until(|| booted(&w) > before && w.osd(0).unwrap()["up"] == 1);
    w.has(0..2);

    // The administrator's own: the answer has the new key.
    let admin = key(&w.mon(&[json!({ "prefix": "auth rotate", "entity": "client.admin" })]));
    w.does_not(&["status"], 1, "wrong key");
    assert!(!keyring("ceph.client.admin.keyring").contains(&admin));
    // A command on the cluster's directory takes it up, and `up` does when it has a question.
    w.does_not(&["osd", "stop", "0"], 1, "unsafe to stop");
    assert!(keyring("ceph.client.admin.keyring").contains(&admin));
    w.mon(&[json!({ "prefix": "auth rotate", "entity": "client.admin" })]);
    w.does(&["osd", "restart", "0", "--force"]);
    w.says("client.admin: took up its new key");
    w.clean();
    // The monitors' own, written by the operator; then both at a start.
    let mon = key(&w.mon(&[json!({ "prefix": "auth rotate", "entity": "mon." })]));
    let path = w.dir.join("mon.a/keyring");
    let ring = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, ring.replace(&key(&ring), &mon)).unwrap();
    w.mon(&[json!({ "prefix": "auth rotate", "entity": "client.admin" })]);
    w.does(&["stop"]);
    w.end();
    w.spawn(&[]);
    w.says("client.admin: took up its new key");
    w.says("The cluster is up");
    w.has(0..2);
}
