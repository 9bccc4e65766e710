//! Does the whole daemon start in a new directory, answer on its admin socket, stop, and find its state again?

mod daemon;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::channel;

use daemon::{fsid, new_cluster};
use mon::host::mkfs::mkfs;
use mon::host::{MonError, MonRunOptions, run};
use testkit::{TempDir, free_port};

fn ask(path: &Path, request: &str) -> serde_json::Value {
    let mut s = UnixStream::connect(path).unwrap();
    s.write_all(request.as_bytes()).unwrap();
    s.write_all(b"\0").unwrap();
    let mut out = Vec::new();
    s.read_to_end(&mut out).unwrap();
    serde_json::from_slice(&out[4..]).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out[4..])))
}

/// Runs the daemon while `f` talks to it, then stops it.
fn with_daemon(o: &MonRunOptions, f: impl FnOnce()) -> Result<(), MonError> {
    let (tx, rx) = channel();
    let options = o.clone();
    let thread = std::thread::spawn(move || {
        reactor::run_here(|cx, stopper| async move {
            tx.send(stopper).unwrap();
            run(cx, options).await
        })
        .unwrap()
    });
    let stopper = rx.recv().unwrap();
    let socket = o.admin_socket.clone().unwrap();
    // The socket's file exists shortly before the daemon accepts connections.
    while UnixStream::connect(&socket).is_err() && !thread.is_finished() {
        std::thread::yield_now();
    }
    if !thread.is_finished() {
        f();
        stopper.stop();
    }
    thread.join().unwrap()
}

#[test]
fn the_daemon_serves_its_state_across_restarts() {
    let dir = TempDir::new("mon");
    let data_dir = dir.join("mon.a");
    let options = new_cluster(free_port(), &data_dir);
    let entities = mkfs(&options).unwrap();
    assert!(entities.keys().any(|n| n.to_string() == "client.admin"));
    assert!(matches!(mkfs(&options), Err(MonError::Exists(_))), "a cluster is not overwritten");
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(data_dir.join(mon::host::STATE_FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "keys are in there");

    let o = MonRunOptions {
        etcd: None,
        name: "a".into(),
        data_dir,
        bind: None,
        mgr_bind: Some(free_port()),
        admin_socket: Some(dir.join("run/mon.a.asok")),
        config: [("osd_pool_default_size".to_owned(), "1".to_owned())].into(),
    };
    let socket = o.admin_socket.clone().unwrap();
    let mut commits = 0;
    for round in 0..2 {
        with_daemon(&o, || {
            assert_eq!(
                ask(&socket, r#"{"prefix": "config get", "var": "osd_pool_default_size"}"#)["osd_pool_default_size"],
                "1"
            );
            let perf = ask(&socket, r#"{"prefix": "perf dump"}"#);
            // A start blocklists the client that the manager role had in the last process.
            let epoch = perf["cluster"]["osd_epoch"].as_u64().unwrap();
            assert!((1..=1 + round).contains(&epoch), "epoch {epoch} in round {round}");
            commits += perf["paxos"]["commit"].as_u64().unwrap();
            let status = ask(&socket, r#"{"prefix": "mon_status"}"#);
            assert_eq!(status["monmap"]["fsid"], fsid().to_string());
            assert_eq!(ask(&socket, r#"{"prefix": "dump_historic_ops"}"#)["num_ops"], 0);
            // A second daemon on the same directory is refused.
            let second = MonRunOptions { admin_socket: Some(dir.join("second.asok")), ..o.clone() };
            assert!(matches!(with_daemon(&second, || ()), Err(MonError::Store { .. })));
        })
        .unwrap_or_else(|e| panic!("round {round}: {e}"));
        assert!(!socket.exists());
    }
    assert!(commits >= 2, "each start commits keys, ids and the manager's address");
}
