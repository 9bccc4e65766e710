//! Services on a pool, besides objects and images: S3 by Ceph's `radosgw`, files by `ceph-mds` and `ceph-fuse`.
//!
//! These are Ceph's programs for both systems: this machine's for Belemnite, those of the root directory for Ceph. A
//! service starts with the first load of a pool that needs it, and is removed with the pool.

use super::deploy::{self, Cluster};
use super::random;
use super::system::System;
use super::{ExecError, Tools, conf, measure};
use crate::host::command;
use crate::plan::Cell;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Time limit for a service to come up.
const UP_LIMIT: Duration = Duration::from_secs(120);
/// Interval between checks of a starting service.
const LOOK: Duration = Duration::from_millis(100);
/// Placement groups of pools for metadata.
const SMALL: u64 = 8;
/// Pools that a gateway needs besides the pool of its objects.
const GATEWAY_POOLS: [&str; 5] =
    [".rgw.root", "default.rgw.log", "default.rgw.control", "default.rgw.meta", "default.rgw.buckets.index"];
/// Pool of a gateway's objects.
const GATEWAY_DATA: &str = "default.rgw.buckets.data";
/// Name of the file system.
const FS: &str = "lab";

/// A running S3 gateway.
#[derive(Clone, Debug)]
pub(super) struct Gateway {
    /// `http://HOST:PORT`.
    pub(super) endpoint: String,
    pub(super) access: String,
    pub(super) secret: String,
}

/// Services of a pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Served {
    pub(super) gateway: Option<Gateway>,
    files: bool,
    /// Pools made for them.
    pools: Vec<String>,
}

/// A word of random letters and digits.
fn word() -> String {
    random::new_key().chars().filter(char::is_ascii_alphanumeric).take(20).collect()
}

fn program(c: &Cluster, t: &Tools<'_>, name: &str, args: &[String]) -> Result<(String, Vec<String>), ExecError> {
    c.system.of_services().command(&t.binary, name, args)
}

/// Imports a key with its capabilities, and writes its keyring into the cluster's directory.
fn make_key(c: &Cluster, entity: &str, caps: &str) -> Result<(), ExecError> {
    let ring = format!("[{entity}]\n\tkey = {}\n{caps}", random::new_key());
    c.control.run(&json!({"prefix": "auth import"}), ring.as_bytes())?;
    let dir = c.conf.parent().unwrap_or(Path::new("/"));
    deploy::write_private(&dir.join(format!("{entity}.keyring")), &ring)
}

/// Name of a metadata server, by its number.
fn mds_name(i: u64) -> String {
    format!("mds.{}", if i < 26 { char::from(b'a' + i as u8).to_string() } else { format!("m{i}") })
}

/// Starts a metadata server.
fn start_mds(t: &Tools<'_>, c: &mut Cluster, name: &str) -> Result<(), ExecError> {
    let caps = "\tcaps mon = \"allow profile mds\"\n\tcaps osd = \"allow rwx tag cephfs *=*\"\n\tcaps mds = \"allow\"\n\tcaps mgr = \"allow profile mds\"\n";
    make_key(c, name, caps)?;
    let data = c.conf.parent().unwrap_or(Path::new("/")).join(name);
    deploy::io(&data, fs::create_dir_all(&data))?;
    let id = name.strip_prefix("mds.").unwrap_or(name);
    let mut args = vec!["-c".to_owned(), c.inside.join("ceph.conf").display().to_string()];
    args.extend(["-i", id, "-f", "--setuser", "root", "--setgroup", "root"].map(String::from));
    let (run, args) = program(c, t, "ceph-mds", &args)?;
    c.serve(name, &run, args)
}

/// The active ranks of the file system, by the name of the daemon, such as `mds.a`.
pub(super) fn ranks_of(c: &Cluster) -> BTreeMap<String, i64> {
    let map = c.control.json(json!({"prefix": "fs get", "fs_name": FS})).unwrap_or_default();
    let infos = map["mdsmap"]["info"].as_object().into_iter().flatten();
    let active = infos.filter(|(_, d)| d["state"] == "up:active");
    active.filter_map(|(_, d)| Some((format!("mds.{}", d["name"].as_str()?), d["rank"].as_i64()?))).collect()
}

/// Waits until `is` returns a value; fails early if a daemon has ended.
fn wait<T>(
    t: &Tools<'_>,
    c: &mut Cluster,
    name: &str,
    mut is: impl FnMut(&Cluster) -> Option<T>,
) -> Result<T, ExecError> {
    let end = Instant::now() + UP_LIMIT;
    loop {
        if let Some(x) = is(c) {
            return Ok(x);
        }
        if t.cancel.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(ExecError::Cancelled);
        }
        if let Some(why) = c.ended() {
            return Err(ExecError::Plan(format!("{why}: {}", c.printed(name))));
        }
        if Instant::now() > end {
            return Err(ExecError::Plan(format!("{name} did not serve within {UP_LIMIT:?}: {}", c.printed(name))));
        }
        std::thread::sleep(LOOK);
    }
}

impl Served {
    /// Starts the services that the cell's load needs and that do not run.
    pub(super) fn prepare(&mut self, t: &Tools<'_>, c: &mut Cluster, cell: &Cell) -> Result<(), ExecError> {
        match cell.load.text("tool") {
            "s3" if cell.load.text("endpoint").is_empty() && self.gateway.is_none() => {
                self.gateway = Some(self.start_gateway(t, c, cell)?);
            }
            _ if cell.uses_files() && cell.load.text("directory").is_empty() && !self.files => {
                self.start_files(t, c, cell)?;
                self.files = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn pool(
        &mut self,
        t: &Tools<'_>,
        c: &Cluster,
        cell: &Cell,
        name: &str,
        application: &str,
        data: bool,
    ) -> Result<(), ExecError> {
        if data {
            measure::data_pool(c, cell, name, cell.pool.int("pg_num"))?;
        } else {
            measure::copied_pool(c, c.osds.min(3), name, SMALL)?;
        }
        self.pools.push(name.to_owned());
        measure::application(c, name, application)?;
        measure::wait_clean(t, c, 1)
    }

    fn start_gateway(&mut self, t: &Tools<'_>, c: &mut Cluster, cell: &Cell) -> Result<Gateway, ExecError> {
        for name in GATEWAY_POOLS {
            self.pool(t, c, cell, name, "rgw", false)?;
        }
        self.pool(t, c, cell, GATEWAY_DATA, "rgw", true)?;
        let caps = "\tcaps mon = \"allow rw\"\n\tcaps osd = \"allow rwx\"\n\tcaps mgr = \"allow rw\"\n";
        make_key(c, "client.rgw.a", caps)?;
        let common =
            ["-c".to_owned(), c.inside.join("ceph.conf").display().to_string(), "-n".into(), "client.rgw.a".into()];
        let mut args = common.to_vec();
        args.extend(["-f", "--setuser", "root", "--setgroup", "root"].map(String::from));
        args.extend(["--admin-socket".into(), c.inside.join("run/rgw.a.asok").display().to_string()]);
        let (run, args) = program(c, t, "radosgw", &args)?;
        c.serve("rgw.a", &run, args)?;
        let host = format!("{}:{}", c.ip, conf::gateway_port(t.port));
        wait(t, c, "rgw.a", |_| std::net::TcpStream::connect(&host).ok())?;
        let g = Gateway { endpoint: format!("http://{host}"), access: word(), secret: word() };
        let mut args = common.to_vec();
        args.extend(["user", "create", "--uid", "lab", "--display-name", "lab"].map(String::from));
        args.extend(["--access-key".into(), g.access.clone(), "--secret-key".into(), g.secret.clone()]);
        let (run, args) = program(c, t, "radosgw-admin", &args)?;
        let mut line = Command::new(run);
        line.args(args);
        command::run(line, UP_LIMIT, t.cancel, |_| ())?;
        Ok(g)
    }

    fn start_files(&mut self, t: &Tools<'_>, c: &mut Cluster, cell: &Cell) -> Result<(), ExecError> {
        self.pool(t, c, cell, "labfs.meta", "cephfs", false)?;
        self.pool(t, c, cell, "labfs.data", "cephfs", true)?;
        let new =
            json!({"prefix": "fs new", "fs_name": FS, "metadata": "labfs.meta", "data": "labfs.data", "force": true});
        c.control.run(&new, &[])?;
        let ranks = cell.pool.int("ranks").max(1);
        for i in 0..ranks {
            start_mds(t, c, &mds_name(i))?;
        }
        if ranks > 1 {
            let set = |var: &str, val: &str| json!({"prefix": "fs set", "fs_name": FS, "var": var, "val": val});
            c.control.run(&set("max_mds", &ranks.to_string()), &[])?;
            // Releases that do not know this always balance.
            let _ = c.control.run(&set("balance_automate", "true"), &[]);
        }
        wait(t, c, "mds.a", |c| (ranks_of(c).len() as u64 == ranks).then_some(()))
    }

    /// Mounts the file system once more, as mount number `i`; the mount's cache is empty.
    pub(super) fn mount(&self, t: &Tools<'_>, c: &mut Cluster, i: u64) -> Result<PathBuf, ExecError> {
        let (dir, name) = (c.conf.parent().unwrap_or(Path::new("/")).join(format!("mnt.{i}")), format!("fuse.{i}"));
        deploy::io(&dir, fs::create_dir_all(&dir))?;
        let args = ["-f".to_owned(), "-c".into(), c.conf.display().to_string(), "-n".into(), "client.admin".into()];
        let args = [args.to_vec(), vec![dir.display().to_string()]].concat();
        let (run, args) = System::Ceph { root: "/".into() }.command(&t.binary, "ceph-fuse", &args)?;
        c.serve(&name, &run, args)?;
        let point = format!(" {} ", dir.display());
        wait(t, c, &name, |_| fs::read_to_string("/proc/mounts").ok()?.contains(&point).then_some(()))?;
        Ok(dir)
    }

    /// Unmounts the file system everywhere.
    pub(super) fn unmount(c: &mut Cluster) {
        if let Some(dir) = c.conf.parent() {
            unmount(dir);
        }
        c.stop("fuse.");
    }

    /// Stops the services and removes their pools; returns the names of the pools.
    pub(super) fn stop(self, c: &mut Cluster) -> Result<Vec<String>, ExecError> {
        c.stop("rgw.");
        if self.files {
            c.control.run(&json!({"prefix": "fs fail", "fs_name": FS}), &[])?;
            c.control.run(&json!({"prefix": "fs rm", "fs_name": FS, "yes_i_really_mean_it": true}), &[])?;
            c.stop("mds.");
        }
        Ok(self.pools)
    }
}

/// Unmounts what is mounted below a directory, even if its server has ended.
pub(super) fn unmount(dir: &Path) {
    let below = format!("{}/", dir.display());
    for l in fs::read_to_string("/proc/mounts").unwrap_or_default().lines() {
        if let Some(at) = l.split(' ').nth(1).filter(|at| at.starts_with(&below)) {
            // If it stays mounted, the removal of the directory fails.
            let _ = Command::new("umount").args(["-l", at]).status();
        }
    }
}
