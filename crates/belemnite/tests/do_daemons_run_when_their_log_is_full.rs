//! Do daemons serve, and end with the right status, when their log takes no line? A full file system does that.

mod support;

use std::fs::{File, create_dir_all, remove_dir_all, write};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use support::Up;

#[test]
fn a_monitor_and_an_osd_serve_without_their_logs() {
    let name = "full-log";
    let log = Up::dir(name).join("log");
    create_dir_all(&log).unwrap();
    for daemon in ["mon.a", "osd.0"] {
        symlink("/dev/full", log.join(format!("{daemon}.log"))).unwrap();
    }
    let up = Up::start(name);
    let ask = || async { support::run(&up.admin().await, serde_json::json!({ "prefix": "osd stat" }), "").await };
    let said = reactor::run_here(|_, _| ask()).unwrap();
    assert!(said.starts_with("1 osds: 1 up"), "{said}");
}

#[test]
fn the_exit_status_stays_when_the_reason_cannot_be_printed() {
    let dir = std::env::temp_dir().join(format!("belemnite-full-stderr-{}", std::process::id()));
    create_dir_all(&dir).unwrap();
    let conf = dir.join("ceph.conf");
    write(&conf, "[global]\nauth_cluster_required = cephx\n").unwrap();
    let ends = |args: &[&str], stderr: Stdio| {
        let mut c = Command::new(env!("CARGO_BIN_EXE_belemnite"));
        c.arg("--conf").arg(&conf).args(args).stdout(Stdio::null()).stderr(stderr).status().unwrap().code()
    };
    for args in [["osd", "--id", "5"].as_slice(), &["store", "fsck", "missing"]] {
        let usual = ends(args, Stdio::null());
        assert_ne!(usual, Some(0), "{args:?}");
        assert_eq!(ends(args, File::options().write(true).open("/dev/full").unwrap().into()), usual, "{args:?}");
    }
    remove_dir_all(&dir).unwrap();
}
