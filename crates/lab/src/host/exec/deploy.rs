//! Makes a cluster as a plan describes it, of Belemnite's or Ceph's daemons: a monitor, a manager, and OSDs on files or
//! devices.
//!
//! Both systems are made by the same steps from one `ceph.conf`: `mkfs` of the monitor, `osd new` and `mkfs` of each
//! OSD, then the daemons. Ceph's programs come from this machine or from a root directory. With a root directory the
//! cluster's directory is below its `/var/lib/belemnite`, where the programs see it.
//!
//! `osds` makes and starts the OSDs: stores of Belemnite and Ceph, or servers of the floor.

use super::conf::{Conf, OsdConf};
use super::daemon::{Daemon, spawn, spawn_on, stop_all};
use super::limits::{self, Group};
use super::made::Made;
use super::nodes::{self, Nodes};
use super::random::{new_key, new_tag, new_uuid};
use super::remote::{At, Remote};
use super::system::System;
use super::{ExecError, Tools};
use crate::host::command::{self, CommandError};
use crate::host::control::Control;
use crate::plan::{Settings, keys};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

mod osds;

/// Time limit for making a store.
const MKFS_LIMIT: Duration = Duration::from_secs(180);
/// Time limit for a cluster to come up.
const UP_LIMIT: Duration = Duration::from_secs(180);
/// File in a cluster's directory that lists the processes started for it; `lab clean` reads it.
pub(super) const PIDS: &str = "lab.pids";

/// A running cluster. Dropping it stops and removes it.
pub(super) struct Cluster {
    /// Name and version of the system under test.
    pub(super) label: String,
    /// Path of the configuration file for clients.
    pub(super) conf: PathBuf,
    pub(super) control: Control,
    pub(super) daemons: Vec<Daemon>,
    /// Control groups with CPU and disk limits, by device.
    pub(super) groups: Vec<Group>,
    pub(super) osds: u64,
    /// The system under test.
    pub(super) system: System,
    /// The cluster's directory as its daemons see it.
    pub(super) inside: PathBuf,
    /// Address of the monitor.
    pub(super) ip: String,
    /// Pools and profiles that the run has made.
    pub(super) made: Made,
    dir: Option<PathBuf>,
    _nodes: Option<Nodes>,
    _hosts: Vec<Arc<Remote>>,
}

pub(super) fn io<T>(path: &Path, r: std::io::Result<T>) -> Result<T, ExecError> {
    r.map_err(|source| ExecError::Io { path: path.to_owned(), source })
}

pub(super) fn write_private(path: &Path, text: &str) -> Result<(), ExecError> {
    let f = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    io(path, f.and_then(|mut f| std::io::Write::write_all(&mut f, text.as_bytes())))
}

const ADMIN_CAPS: &str =
    "\tcaps mon = \"allow *\"\n\tcaps osd = \"allow *\"\n\tcaps mgr = \"allow *\"\n\tcaps mds = \"allow *\"\n";

/// State while a cluster is being made.
struct Making<'a> {
    t: &'a Tools<'a>,
    system: System,
    settings: &'a Settings,
    options: &'a BTreeMap<String, BTreeMap<String, String>>,
    /// The cluster's directory as the laboratory sees it.
    dir: PathBuf,
    /// The cluster's directory as the daemons see it.
    inside: PathBuf,
    fsid: String,
    port: u16,
    daemons: Vec<Daemon>,
    nodes: Option<Nodes>,
    /// Hosts over ssh, if there are any.
    hosts: Vec<Arc<Remote>>,
    groups: Vec<Group>,
    /// Ids of the OSDs, by their numbers.
    uuids: Vec<String>,
}

/// Makes and starts a cluster, or connects to an existing one. `record` is the file that names what the run has made in an
/// existing cluster; what an earlier run of the same folder left there is removed first.
pub(super) fn make(
    t: &Tools<'_>,
    settings: &Settings,
    options: &BTreeMap<String, BTreeMap<String, String>>,
    port: u16,
    record: &Path,
) -> Result<Cluster, ExecError> {
    let system = System::parse(settings.text("system"));
    if let System::Existing { conf } = &system {
        let control = Control::connect((t.connect)(conf).map_err(ExecError::Plan)?)?;
        let osds = control.status()?.up();
        if let Some(left) = Made::of_record(record) {
            left.remove_all(&control)?;
        }
        return Ok(Cluster {
            label: format!("existing ({})", conf.display()),
            conf: conf.clone(),
            control,
            daemons: Vec::new(),
            groups: Vec::new(),
            osds,
            system,
            inside: PathBuf::new(),
            ip: String::new(),
            made: Made::theirs(&new_tag(), record.to_owned()),
            dir: None,
            _nodes: None,
            _hosts: Vec::new(),
        });
    }
    let fsid = new_uuid();
    let name = format!("lab-{port}-{}", std::process::id());
    let (dir, inside) = match &system {
        System::Ceph { root } if root != Path::new("/") => {
            let inside = Path::new("/var/lib/belemnite").join(&name);
            (root.join("var/lib/belemnite").join(&name), inside)
        }
        _ => (t.work.join(&name), t.work.join(&name)),
    };
    let mut m = Making {
        t,
        system,
        settings,
        options,
        dir: dir.clone(),
        inside,
        fsid,
        port,
        daemons: Vec::new(),
        nodes: None,
        hosts: Vec::new(),
        groups: Vec::new(),
        uuids: Vec::new(),
    };
    match m.all() {
        Ok(c) => Ok(c),
        Err(e) => {
            let log = m.last_words();
            stop_all(&mut m.daemons);
            if !t.keep {
                // `lab clean` reports and removes leftovers.
                let _ = fs::remove_dir_all(&dir);
            }
            Err(if log.is_empty() { e } else { ExecError::Cluster { what: Box::new(e), log } })
        }
    }
}

impl Making<'_> {
    fn all(&mut self) -> Result<Cluster, ExecError> {
        for d in ["run", "log", "mon.a", "mgr.x"] {
            let d = self.dir.join(d);
            io(&d, fs::create_dir_all(&d))?;
        }
        let count = self.settings.int("nodes");
        if count > 0 {
            self.nodes = Some(Nodes::new(self.port, count, self.t.cancel)?);
        }
        for h in keys::hosts(self.settings) {
            let n = self.hosts.len();
            let name = self.dir.file_name().unwrap_or_default().to_string_lossy();
            let dir = format!("{}/{name}-{n}", self.settings.text("host_dir"));
            self.hosts.push(Arc::new(Remote::connect(self.settings.text("ssh"), h, &dir)?));
        }
        let osds = self.osds();
        let ip = self.monitor_ip();
        let conf = Conf {
            fsid: &self.fsid,
            ip: &ip,
            port: self.port,
            cluster: self.settings,
            options: self.options,
            osds: &osds,
            reactors: self.reactors(osds.len()),
        };
        write_private(&self.dir.join("ceph.conf"), &conf.text(&self.inside))?;
        let client_conf = self.dir.join("client.conf");
        write_private(&client_conf, &conf.text(&self.dir))?;
        self.equip(&conf)?;
        self.monitor(&ip)?;
        let control = Control::connect((self.t.connect)(&client_conf).map_err(ExecError::Plan)?)?;
        self.limits(&osds)?;
        self.make_osds(&control, &osds)?;
        self.start_osds(&osds)?;
        let n = osds.len() as u64;
        control.wait("OSDs to come up", UP_LIMIT, self.t.cancel, |s| s.up() >= n)?;
        Ok(Cluster {
            label: self.label()?,
            conf: client_conf,
            control,
            daemons: std::mem::take(&mut self.daemons),
            groups: std::mem::take(&mut self.groups),
            osds: n,
            system: self.system.clone(),
            inside: self.inside.clone(),
            ip,
            dir: (!self.t.keep).then(|| self.dir.clone()),
            made: Made::own(&new_tag()),
            _nodes: self.nodes.take(),
            _hosts: std::mem::take(&mut self.hosts),
        })
    }

    fn label(&self) -> Result<String, ExecError> {
        match self.system {
            System::Belemnite => return Ok(format!("belemnite {}", env!("CARGO_PKG_VERSION"))),
            System::Floor => return Ok("floor".into()),
            _ => {}
        }
        let (program, args) = self.command("osd", &["--version".into()])?;
        let mut c = Command::new(program);
        c.args(args);
        let text = command::run(c, Duration::from_secs(20), self.t.cancel, |_| ())?.out;
        Ok(format!("ceph {}", text.split_whitespace().nth(2).unwrap_or("of unknown version")))
    }

    fn osds(&self) -> Vec<OsdConf> {
        let s = self.settings;
        let nodes = s.int("nodes");
        let per_node = s.int("devices") * s.int("osds_per_device");
        let devices: Vec<&str> = s.text("device_paths").split(',').map(str::trim).filter(|p| !p.is_empty()).collect();
        (0..per_node * nodes.max(self.hosts.len() as u64).max(1))
            .map(|i| OsdConf {
                ip: match self.host_of(i as usize) {
                    Some(h) => h.ip.clone(),
                    None if nodes > 0 => nodes::node_ip(self.port, i / per_node),
                    None => "127.0.0.1".into(),
                },
                host: match nodes.max(self.hosts.len() as u64) {
                    0 => "lab".into(),
                    _ => format!("node{}", i / per_node),
                },
                device: devices.get(i as usize).map(|d| (*d).to_owned()),
            })
            .collect()
    }

    /// Reactors as the plan says. The default is the cores an OSD may use, or half of the machine's cores for all OSDs
    /// together, as `belemnite up` does.
    fn reactors(&self, osds: usize) -> u64 {
        let s = self.settings;
        match (s.int("reactors"), s.number("cores_per_device")) {
            (n, _) if n > 0 => n,
            (_, cores) if cores > 0.0 => ((cores / s.int("osds_per_device").max(1) as f64).ceil() as u64).max(1),
            _ => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                ((cores / 2 / osds.max(1)) as u64).max(1)
            }
        }
    }

    fn command(&self, kind: &str, args: &[String]) -> Result<(String, Vec<String>), ExecError> {
        self.system.command(&self.t.binary, kind, args)
    }

    fn run(&self, kind: &str, args: &[String]) -> Result<(), ExecError> {
        let (program, args) = self.command(kind, args)?;
        let mut c = Command::new(program);
        c.args(args);
        command::run(c, MKFS_LIMIT, self.t.cancel, |_| ())?;
        Ok(())
    }

    fn path(&self, name: &str) -> String {
        self.inside.join(name).display().to_string()
    }

    fn start(&mut self, kind: &str, id: &str, namespace: Option<String>) -> Result<(), ExecError> {
        let mut args = vec!["-c".into(), self.path("ceph.conf"), "-i".into(), id.into()];
        if !self.system.is_ours() {
            args.extend(["-f", "--setuser", "root", "--setgroup", "root"].map(String::from));
        }
        self.start_with(kind, id, namespace, args)
    }

    fn start_with(
        &mut self,
        kind: &str,
        id: &str,
        namespace: Option<String>,
        args: Vec<String>,
    ) -> Result<(), ExecError> {
        let name = format!("{kind}.{id}");
        let (mut program, mut args) = self.command(kind, &args)?;
        if let Some(ns) = namespace {
            let mut all = vec!["netns".into(), "exec".into(), ns, program];
            all.append(&mut args);
            (program, args) = ("ip".into(), all);
        }
        let child = spawn(&self.dir, &name, &program, &args)?;
        self.daemons.push(Daemon { name, child, program, args, remote: None });
        Ok(())
    }

    /// Writes the cluster's configuration to each host, and the program unless it is there.
    fn equip(&self, conf: &Conf<'_>) -> Result<(), ExecError> {
        for h in &self.hosts {
            h.write("ceph.conf", &conf.text(Path::new(&h.dir)))?;
            if self.system == System::Belemnite && self.settings.text("host_binary").is_empty() {
                h.copy(&self.t.binary, "belemnite")?;
            }
        }
        Ok(())
    }

    /// The host of an OSD.
    fn host_of(&self, id: usize) -> Option<Arc<Remote>> {
        let per_host = self.settings.int("devices") * self.settings.int("osds_per_device");
        self.hosts.get(id / (per_host as usize).max(1)).cloned()
    }

    fn monitor(&mut self, ip: &str) -> Result<(), ExecError> {
        let (mon, admin, mgr) = (new_key(), new_key(), new_key());
        let admin = format!("[client.admin]\n\tkey = {admin}\n{ADMIN_CAPS}");
        let mon = format!("[mon.]\n\tkey = {mon}\n\tcaps mon = \"allow *\"\n");
        let mgr = format!(
            "[mgr.x]\n\tkey = {mgr}\n\tcaps mon = \"allow profile mgr\"\n\tcaps osd = \"allow *\"\n\tcaps mds = \"allow *\"\n"
        );
        write_private(&self.dir.join("ceph.client.admin.keyring"), &admin)?;
        write_private(&self.dir.join("mon.a.keyring"), &mon)?;
        write_private(&self.dir.join("mgr.x.keyring"), &mgr)?;
        let conf = ["-c".to_owned(), self.path("ceph.conf"), "-i".into(), "a".into(), "--mkfs".into()];
        if self.system.is_ours() {
            self.run("mon", &conf)?;
            return self.start("mon", "a", None);
        }
        write_private(&self.dir.join("all.keyring"), &format!("{mon}{admin}{mgr}"))?;
        let (map, addr) = (self.path("monmap"), format!("[v2:{ip}:{}/0]", self.port));
        let args = ["--create", "--clobber", "--fsid", &self.fsid, "--addv", "a", &addr, &map].map(String::from);
        self.run("monmaptool", &[self.ciphers()?, args.to_vec()].concat())?;
        let mut args = conf.to_vec();
        args.extend(["--monmap".into(), map, "--keyring".into(), self.path("all.keyring")]);
        self.run("mon", &args)?;
        self.start("mon", "a", None)?;
        self.start("mgr", "x", None)
    }

    /// Monitor options that allow keys of type `aes`, which clients of every release read. Ceph 20 and later know two
    /// key types.
    fn ciphers(&self) -> Result<Vec<String>, ExecError> {
        let (program, args) = self.command("monmaptool", &["--help".into()])?;
        let mut c = Command::new(program);
        c.args(args);
        // Some releases exit with an error status after printing their help.
        let help = match command::run(c, MKFS_LIMIT, self.t.cancel, |_| ()) {
            Ok(o) => o.out + &o.err,
            Err(CommandError::Failed { output, .. }) => output,
            Err(e) => return Err(e.into()),
        };
        let words =
            ["--auth-allowed-ciphers", "aes,aes256k", "--auth-service-cipher", "aes", "--auth-preferred-cipher", "aes"];
        let knows = help.contains("auth-allowed-ciphers") || help.contains("auth-preferred-cipher");
        Ok(if knows { words.map(String::from).to_vec() } else { Vec::new() })
    }

    /// Makes a control group for the OSDs of each device.
    fn limits(&mut self, osds: &[OsdConf]) -> Result<(), ExecError> {
        let (cores, disk) = (self.settings.number("cores_per_device"), self.settings.bytes("disk_limit"));
        if cores == 0.0 && disk == 0 {
            return Ok(());
        }
        let per = self.settings.int("osds_per_device").max(1) as usize;
        for d in 0..osds.len().div_ceil(per) {
            let dev = match osds.get(d * per).and_then(|o| o.device.clone()) {
                Some(p) => PathBuf::from(p),
                None => self.dir.clone(),
            };
            let dev = if d == 0 && disk > 0 { Some(io(&dev, limits::device_of(&dev))?) } else { None };
            let name = format!("belemnite-lab-{}-{d}", self.port);
            self.groups.push(Group::new(&name, cores, dev.as_deref().map(|d| (d, disk)))?);
        }
        Ok(())
    }

    /// Last lines of each daemon's log.
    fn last_words(&self) -> String {
        let mut out = String::new();
        for d in &self.daemons {
            let text = fs::read_to_string(self.dir.join("log").join(format!("{}.out", d.name))).unwrap_or_default();
            for l in text.lines().rev().take(3).collect::<Vec<_>>().into_iter().rev() {
                out += &format!("{}: {l}\n", d.name);
            }
        }
        out
    }
}

impl Cluster {
    /// Names and processes of the daemons.
    pub(super) fn processes(&self) -> Vec<(String, At)> {
        self.daemons.iter().map(|d| (d.name.clone(), d.process())).collect()
    }

    /// Admin socket of a daemon.
    pub(super) fn socket(&self, name: &str) -> Option<PathBuf> {
        let dir = self.conf.parent()?;
        // The socket is below the cluster's directory, which Ceph's daemons see at another path in a root directory.
        Some(dir.join("run").join(format!("{name}.asok")))
    }

    /// Starts a program that uses the cluster, as another daemon.
    pub(super) fn serve(&mut self, name: &str, program: &str, args: Vec<String>) -> Result<(), ExecError> {
        let dir = self.conf.parent().unwrap_or(Path::new("/")).to_owned();
        let child = spawn(&dir, name, program, &args)?;
        self.daemons.push(Daemon { name: name.to_owned(), child, program: program.to_owned(), args, remote: None });
        Ok(())
    }

    /// Stops the daemons whose names begin with `prefix`, the last one first.
    pub(super) fn stop(&mut self, prefix: &str) {
        for d in self.daemons.iter_mut().rev().filter(|d| d.name.starts_with(prefix)) {
            d.stop();
        }
        self.daemons.retain(|d| !d.name.starts_with(prefix));
    }

    /// Last lines that a daemon printed.
    pub(super) fn printed(&self, name: &str) -> String {
        let path = self.conf.parent().unwrap_or(Path::new("/")).join("log").join(format!("{name}.out"));
        let text = fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("; ")
    }

    /// Kills a daemon.
    pub(super) fn kill(&mut self, name: &str) -> Result<(), ExecError> {
        let d = self.daemon(name)?;
        d.process().signal("KILL");
        // A daemon that has already ended needs no signal.
        let _ = d.child.kill();
        let _ = d.child.wait();
        Ok(())
    }

    /// Restarts a daemon that was killed.
    pub(super) fn start_again(&mut self, name: &str) -> Result<(), ExecError> {
        let dir = self.conf.parent().unwrap_or(Path::new("/")).to_owned();
        let d = self.daemon(name)?;
        match d.remote.clone().and_then(|r| r.host) {
            Some(host) => {
                let (child, remote) = spawn_on(&dir, &host, name, &d.program, &d.args)?;
                (d.child, d.remote) = (child, Some(remote));
            }
            None => d.child = spawn(&dir, name, &d.program, &d.args)?,
        }
        Ok(())
    }

    fn daemon(&mut self, name: &str) -> Result<&mut Daemon, ExecError> {
        let d = self.daemons.iter_mut().find(|d| d.name == name);
        d.ok_or_else(|| ExecError::Plan(format!("{name} is not a daemon of this cluster")))
    }

    /// Name of a daemon that has exited on its own, if any.
    pub(super) fn ended(&mut self) -> Option<String> {
        self.daemons.iter_mut().find_map(|d| match d.child.try_wait() {
            Ok(Some(s)) => Some(format!("{} ended ({s})", d.name)),
            _ => None,
        })
    }
}

impl Cluster {
    /// Removes from an existing cluster what the run has made in it.
    ///
    /// # Errors
    /// Of the monitor; what stays is in the record of the run's folder.
    pub(super) fn leave(&self) -> Result<(), ExecError> {
        self.made.remove_all(&self.control)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Already done by `Cluster::leave`, unless a failure or a panic led here. The record names what stays.
        let _ = self.made.remove_all(&self.control);
        stop_all(&mut self.daemons);
        if let Some(d) = &self.dir {
            super::services::unmount(d);
            // `lab clean` reports and removes leftovers.
            let _ = fs::remove_dir_all(d);
        }
    }
}

impl From<CommandError> for ExecError {
    fn from(e: CommandError) -> Self {
        match e {
            CommandError::Cancelled => Self::Cancelled,
            e => Self::Command(e),
        }
    }
}
