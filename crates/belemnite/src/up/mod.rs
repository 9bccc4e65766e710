//! `belemnite up`: a cluster on this machine, with each daemon as a process.
//!
//! Makes or reads the [`plan::Plan`] and writes the files for clients and daemons. Starts the monitor, registers new
//! OSDs by the usual commands, starts the OSDs, and supervises all until it is stopped.

mod files;
mod foreign;
pub(crate) mod gateway;
pub(crate) mod layout;
mod manager;
mod options;
pub(crate) mod plan;
pub(crate) mod supervisor;

use crate::admin;
use crate::size;
use client::Client;
use layout::Layout;
use plan::Plan;
use serde_json::json;
use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::task::Poll;
use std::time::Duration;
use supervisor::{Change, Daemon, Spec};

/// Arguments of `belemnite up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the cluster
    #[arg(long, default_value = "belemnite-data", value_name = "DIR")]
    data: PathBuf,
    /// Number of OSDs [default: 3, or the number of devices, or as in DIR]
    #[arg(long, value_name = "N")]
    osds: Option<u32>,
    /// Size of each new OSD's file, e.g. 20G [default: an eighth of the free space, at most 64G]
    #[arg(long, value_name = "SIZE")]
    osd_size: Option<String>,
    /// Block device for an OSD; repeat it for more OSDs
    #[arg(long, value_name = "PATH")]
    device: Vec<PathBuf>,
    /// Overwrite a device that has a partition table, a file system or another store
    #[arg(long)]
    force: bool,
    /// Port of the monitor; the other daemons use the following ports [default: 3300]
    #[arg(long, value_name = "P")]
    port: Option<u16>,
    /// Number of monitors: 1, or 3 with their state in a three-member etcd, which must be installed [default: 1]
    #[arg(long, value_name = "N", value_parser = ["1", "3"])]
    mons: Option<String>,
    /// Address to listen on [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    ip: Option<IpAddr>,
    /// Copies of objects in new pools [default: 3 with three OSDs or more, else 1]
    #[arg(long, value_name = "N")]
    pool_size: Option<u32>,
    /// Authentication method [default: cephx]
    #[arg(long, value_parser = ["cephx", "none"])]
    auth: Option<String>,
    /// Run an S3 gateway: Ceph's radosgw, which must be installed
    #[arg(long)]
    s3: bool,
    /// Port of the gateway [default: the monitor's port plus 5]
    #[arg(long, value_name = "P")]
    s3_port: Option<u16>,
    /// Make a file system and run Ceph's ceph-mds for it [default name: home, or as in DIR]
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    fs: Option<String>,
    /// Number of MDS daemons [default: 2]
    #[arg(long, value_name = "N")]
    mds: Option<u32>,
    /// Provider of the manager role: belemnite, or Ceph's ceph-mgr with its modules, which must be installed [default:
    /// belemnite, or as in DIR]
    #[arg(long, value_name = "WHO", value_parser = ["belemnite", "ceph"])]
    mgr: Option<String>,
    /// Root directory (debootstrap) with Ceph daemons of another release [default: this machine's]
    #[arg(long, value_name = "DIR")]
    ceph_root: Option<PathBuf>,
}

type Error = Box<dyn std::error::Error>;

/// Time for the cluster to come up, after which `up` reports a problem (and keeps waiting).
const PATIENCE: Duration = Duration::from_secs(30);

fn say(text: impl std::fmt::Display) {
    // Serving continues if the terminal is closed.
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let tmp = path.with_extension("tmp");
    // A file of an earlier run may be readable by other users, or be a link.
    match fs::remove_file(&tmp) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut f = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&tmp)?;
    f.write_all(text.as_bytes())?;
    f.sync_all()?;
    fs::rename(tmp, path)
}

fn keyring(name: &str, key: &str, caps: &[(&str, &str)]) -> String {
    let mut s = format!("[{name}]\n\tkey = {key}\n");
    for (svc, cap) in caps {
        s.push_str(&format!("\tcaps {svc} = \"{cap}\"\n"));
    }
    s
}

/// Runs a cluster until it is stopped.
pub(crate) async fn run(a: Args) -> Result<(), Error> {
    let layout = Layout { dir: layout::absolute(&a.data)? };
    fs::create_dir_all(&layout.dir).map_err(|e| format!("--data {}: {e}", layout.dir.display()))?;
    let _lock = lock_dir(&layout)?;
    let fresh = !layout.plan().exists();
    let (mut plan, added) = options::decide(&a, &layout)?;
    plan.fs = files::decide(&a, plan.fs.take())?;
    let mds = plan.fs.as_ref().map(files::find).transpose()?;
    plan.mgr = manager::decide(&a, plan.mgr.take())?;
    let mgr = plan.mgr.as_ref().map(manager::find).transpose()?;
    let etcd = (plan.mons > 1).then(|| foreign::Foreign::find(None, "etcd", "etcd-server")).transpose()?;
    check_ports(&plan)?;
    plan.s3 = gateway::plan(&a, &plan)?;
    let plan = plan;
    for d in [layout.run(), layout.log()] {
        fs::create_dir_all(d)?;
    }
    warn_of_space(&plan, &added, &layout);
    let mut daemons = Vec::new();
    for spec in etcd.iter().flat_map(|e| etcd_specs(&plan, &layout, e)) {
        if fresh && layout.data(&spec.name).exists() {
            // Made by an `up` that was killed before it wrote its plan.
            fs::remove_dir_all(layout.data(&spec.name))?;
        }
        let mut d = Daemon::new(spec, layout.clone());
        d.start()?;
        daemons.push(d);
    }
    if fresh {
        say(format_args!("creating a cluster in {}", layout.dir.display()));
        make_monitor(&plan, &layout)?;
    } else {
        say(format_args!("starting the cluster in {}", layout.dir.display()));
    }
    let have = fs::read_to_string(layout.conf()).unwrap_or_default();
    write_private(&layout.conf(), &plan.conf_beside(&layout, &have))?;
    for id in &added {
        make_osd(&plan, *id, &layout, a.force)?;
    }
    // Write the plan last: everything that it names has been made.
    write_private(&layout.plan(), &serde_json::to_string_pretty(&plan)?)?;
    for i in 0..plan.mons {
        let mut d = Daemon::new(daemon_spec("mon", &plan::mon_name(i), &layout), layout.clone());
        d.start()?;
        daemons.push(d);
    }
    let control = daemons.len();
    for o in &plan.osds {
        daemons.push(Daemon::new(daemon_spec("osd", &o.id.to_string(), &layout), layout.clone()));
    }
    let mut stop = Stop::new()?;
    if let Some(program) = &mgr {
        daemons.push(Daemon::new(manager::spec(&plan, &layout, program), layout.clone()));
    }
    if let Some((f, program)) = plan.fs.as_ref().zip(mds.as_ref()) {
        for spec in files::specs(&plan, f, &layout, program) {
            daemons.push(Daemon::new(spec, layout.clone()));
        }
    }
    let ready = {
        let up = bring_up(&plan, &layout, mds.as_ref(), mgr.as_ref());
        tokio::pin!(up);
        loop {
            tokio::select! {
                r = &mut up => break r,
                () = stop.wait() => { stop_all(&mut daemons).await; return Ok(()); }
                (i, c) = any_change(&mut daemons[..control]) => {
                    if plan.mons == 1 {
                        let log = layout.log();
                        break Err(format!("the monitor did not start ({c:?}); see {}/mon.a.log", log.display()).into());
                    }
                    handle_change(&mut daemons[i], c);
                }
            }
        }
    };
    if let Err(e) = ready {
        stop_all(&mut daemons).await;
        return Err(e);
    }
    for d in &mut daemons[control..] {
        d.start()?;
    }
    let report = report_when_up(&plan, &layout);
    tokio::pin!(report);
    let gateway_up = async {
        match &plan.s3 {
            Some(s) => gateway::report(&plan, s, &layout).await,
            None => Ok(()),
        }
    };
    tokio::pin!(gateway_up);
    let (mut reported, mut gateway_reported) = (false, false);
    loop {
        tokio::select! {
            () = stop.wait() => break,
            r = &mut report, if !reported => {
                reported = true;
                match r {
                    Err(e) => say(format_args!("cannot get the status of the cluster: {e}")),
                    // The gateway makes its pools when it starts, which needs OSDs.
                    Ok(()) => match start_gateway(&plan, &layout) {
                        Ok(d) => daemons.extend(d),
                        Err(e) => say(format_args!("the gateway cannot be started: {e}")),
                    },
                }
            }
            r = &mut gateway_up, if reported && !gateway_reported => {
                gateway_reported = true;
                if let Err(e) = r {
                    say(format_args!("the gateway is not ready: {e}"));
                }
            }
            (i, change) = any_change(&mut daemons) => handle_change(&mut daemons[i], change),
        }
    }
    stop_all(&mut daemons).await;
    Ok(())
}

/// Starts the gateway if the plan has one.
fn start_gateway(p: &Plan, l: &Layout) -> Result<Option<Daemon>, Error> {
    let Some(s) = &p.s3 else { return Ok(None) };
    let spec = Spec { name: "rgw.a".into(), args: gateway::prepare(p, s, l)?, program: None };
    let mut d = Daemon::new(spec, l.clone());
    d.start()?;
    Ok(Some(d))
}

fn daemon_spec(kind: &str, id: &str, l: &Layout) -> Spec {
    Spec {
        name: format!("{kind}.{id}"),
        args: vec![
            kind.into(),
            "--conf".into(),
            l.conf().display().to_string(),
            "--id".into(),
            id.into(),
            "--supervised".into(),
        ],
        program: None,
    }
}

/// Start commands of the etcd members for the monitors' state.
fn etcd_specs(p: &Plan, l: &Layout, program: &foreign::Foreign) -> Vec<Spec> {
    let peer = |i| format!("http://127.0.0.1:{}", layout::etcd_ports(p.port, i).1);
    let name = |i| format!("etcd.{}", plan::mon_name(i));
    let all: Vec<String> = (0..p.mons).map(|i| format!("{}={}", name(i), peer(i))).collect();
    let spec = |i| {
        let client = format!("http://127.0.0.1:{}", layout::etcd_ports(p.port, i).0);
        let args = vec![
            format!("--name={}", name(i)),
            format!("--data-dir={}", l.data(&name(i)).display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={}", peer(i)),
            format!("--initial-advertise-peer-urls={}", peer(i)),
            format!("--initial-cluster={}", all.join(",")),
            format!("--initial-cluster-token={}", p.fsid),
            // A member that was cut off does not depose etcd's leader when it returns.
            "--pre-vote".into(),
            "--auto-compaction-mode=periodic".into(),
            "--auto-compaction-retention=10m".into(),
        ];
        program.spec(&name(i), args)
    };
    (0..p.mons).map(spec).collect()
}

fn handle_change(d: &mut Daemon, c: Change) {
    match c {
        Change::Ended { status, restart_in } => {
            let how = supervisor::how(status);
            if restart_in.is_zero() {
                say(format_args!("{} ended ({how}); starting it again", d.name()));
            } else {
                say(format_args!("{} ended ({how}); starting it again in {restart_in:?}", d.name()));
            }
        }
        Change::Due => {
            if let Err(e) = d.start() {
                say(format_args!("{} cannot be started: {e}", d.name()));
            }
        }
    }
}

/// Waits for the first change of any daemon.
async fn any_change(daemons: &mut [Daemon]) -> (usize, Change) {
    let mut waits: Vec<_> = daemons.iter_mut().map(|d| Box::pin(d.wait())).collect();
    std::future::poll_fn(|cx| {
        for (i, w) in waits.iter_mut().enumerate() {
            if let Poll::Ready(c) = w.as_mut().poll(cx) {
                return Poll::Ready((i, c));
            }
        }
        Poll::Pending
    })
    .await
}

async fn stop_all(daemons: &mut [Daemon]) {
    say("stopping");
    // An MDS takes seconds to stop, so all are asked first.
    for d in daemons.iter_mut().rev().filter(|d| !d.name().starts_with("etcd.")) {
        d.ask_foreign_to_stop().await;
    }
    // OSDs first: they report their shutdown to the monitor.
    for d in daemons.iter_mut().rev() {
        if !d.stop().await {
            say(format_args!("{} did not stop in time and was killed", d.name()));
        }
    }
}

/// Waits for Ctrl-C or SIGTERM.
struct Stop {
    int: tokio::signal::unix::Signal,
    term: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { int: signal(SignalKind::interrupt())?, term: signal(SignalKind::terminate())? })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
        }
    }
}

fn lock_dir(l: &Layout) -> Result<fs::File, Error> {
    let f = fs::OpenOptions::new().create(true).truncate(false).write(true).open(l.lock());
    let f = f.map_err(|e| format!("{}: {e}", l.lock().display()))?;
    match f.try_lock() {
        Ok(()) => Ok(f),
        Err(fs::TryLockError::WouldBlock) => {
            Err(format!("{}: another `belemnite up` serves this directory", l.dir.display()).into())
        }
        Err(fs::TryLockError::Error(e)) => Err(format!("{}: {e}", l.lock().display()).into()),
    }
}

fn check_ports(p: &Plan) -> Result<(), Error> {
    let mons = (0..p.mons).flat_map(|i| [layout::mon_port(p.port, i), layout::mgr_port_of(p.port, i)]);
    let etcd = (0..p.mons).filter(|_| p.mons > 1).map(|i| layout::etcd_ports(p.port, i));
    for port in mons.chain(etcd.flat_map(|(a, b)| [a, b])) {
        std::net::TcpListener::bind((p.ip, port)).map_err(|e| cannot_listen(p.ip, port, &e, "others with --port"))?;
    }
    Ok(())
}

/// Error of a port that can't be used; `choose` says what to change if the address is one of this machine.
fn cannot_listen(ip: IpAddr, port: u16, e: &std::io::Error, choose: &str) -> String {
    let choose = match e.kind() {
        std::io::ErrorKind::AddrNotAvailable => "an address of this machine with --ip",
        _ => choose,
    };
    format!("port {port} on {ip}: {e} (choose {choose})")
}

/// Warns if the file system lacks space for the full size of the new files.
fn warn_of_space(p: &Plan, added: &[u32], l: &Layout) {
    let files = p.osds.iter().filter(|o| o.device.is_none() && added.contains(&o.id));
    let wanted: u64 = files.map(|o| o.size).sum();
    if let Ok(free) = reactor::disk::free_space(&l.dir)
        && wanted > free
    {
        say(format_args!(
            "warning: the OSDs' files may grow to {} in all, but {} has {} free; the cluster is full when that is used up",
            size::show(wanted),
            l.dir.display(),
            size::show(free)
        ));
    }
}

/// Makes the monitor's store with its initial keys.
fn make_monitor(p: &Plan, l: &Layout) -> Result<(), Error> {
    let admin = admin::new_key()?;
    let mon = admin::new_key()?;
    let all: [(&str, &str); 4] = [("mds", "allow *"), ("mgr", "allow *"), ("mon", "allow *"), ("osd", "allow *")];
    write_private(&l.admin_keyring(), &keyring("client.admin", &admin, &all))?;
    let data = l.data("mon.a");
    // A directory of an `up` that was killed before it wrote its plan has nothing of value.
    if data.exists() {
        fs::remove_dir_all(&data)?;
    }
    fs::create_dir_all(&data)?;
    write_private(&data.join("keyring"), &keyring("mon.", &mon, &[("mon", "allow *")]))?;
    admin::mon_mkfs(p, l)?;
    Ok(())
}

/// Makes an OSD's store and keyring. [`bring_up`] registers it with the monitor.
fn make_osd(p: &Plan, id: u32, l: &Layout, force: bool) -> Result<(), Error> {
    let Some(o) = p.osds.iter().find(|o| o.id == id) else { return Err("no such OSD in the plan".into()) };
    let name = format!("osd.{id}");
    let data = l.data(&name);
    if data.exists() {
        fs::remove_dir_all(&data)?;
    }
    fs::create_dir_all(&data)?;
    write_private(&data.join("keyring"), &keyring(&name, &o.key, &[]))?;
    match &o.device {
        Some(d) => say(format_args!("{name}: preparing {}", d.display())),
        None => say(format_args!("{name}: preparing a file of {}", size::show(o.size))),
    }
    admin::osd_mkfs(p, o, l, force)
}

/// Waits for the monitor and registers OSDs that it does not know.
async fn bring_up(
    p: &Plan,
    l: &Layout,
    mds: Option<&foreign::Foreign>,
    mgr: Option<&foreign::Foreign>,
) -> Result<(), Error> {
    let c = admin::connect(&l.conf(), "admin", None).await?;
    let known = known_osds(&c).await?;
    for o in &p.osds {
        if known.iter().any(|(id, uuid)| *id == u64::from(o.id) && *uuid == o.uuid) {
            continue;
        }
        let secret = json!({ "cephx_secret": o.key }).to_string();
        let cmd = json!({"prefix": "osd new", "uuid": o.uuid, "id": o.id});
        let r = c.mon_command(&cmd.to_string(), secret.into_bytes().into()).await?;
        if r.rc < 0 {
            return Err(format!("osd.{} could not be registered: {}", o.id, r.status).into());
        }
    }
    if let Some(s) = &p.s3 {
        gateway::register(&c, s).await?;
    }
    if let Some(program) = mgr {
        manager::prepare(&c, p, l, program).await?;
    }
    match p.fs.as_ref().zip(mds) {
        Some((f, program)) => files::prepare(&c, p, f, l, program).await,
        None => Ok(()),
    }
}

async fn known_osds(c: &Client) -> Result<Vec<(u64, String)>, Error> {
    let r = c.mon_command(r#"{"prefix":"osd dump","format":"json"}"#, Default::default()).await?;
    if r.rc < 0 {
        return Err(format!("osd dump: {}", r.status).into());
    }
    let v: serde_json::Value = serde_json::from_slice(&r.out)?;
    Ok(v["osds"]
        .as_array()
        .map(|a| a.iter().filter_map(|o| Some((o["osd"].as_u64()?, o["uuid"].as_str()?.to_owned()))).collect())
        .unwrap_or_default())
}

async fn up_osds(c: &Client) -> Result<u64, Error> {
    let r = c.mon_command(r#"{"prefix":"osd stat","format":"json"}"#, Default::default()).await?;
    let v: serde_json::Value = serde_json::from_slice(&r.out)?;
    Ok(v["num_up_osds"].as_u64().unwrap_or(0))
}

/// Waits until all OSDs are up, then prints how to use the cluster.
async fn report_when_up(p: &Plan, l: &Layout) -> Result<(), Error> {
    let c = admin::connect(&l.conf(), "admin", None).await?;
    let want = p.osds.len() as u64;
    let mut shown = u64::MAX;
    let start = tokio::time::Instant::now();
    let mut warned = false;
    loop {
        let up = up_osds(&c).await?;
        if up != shown {
            say(format_args!("{up} of {want} OSDs up"));
            shown = up;
        }
        let served = match &p.fs {
            Some(f) if up >= want => files::is_active(&c, f).await?,
            _ => true,
        };
        let managed = p.mgr.is_none() || up < want || manager::is_active(&c).await?;
        if up >= want && served && managed {
            break;
        }
        if !warned && start.elapsed() > PATIENCE {
            warned = true;
            say(format_args!("still waiting for daemons; their logs are in {}", l.log().display()));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let conf = l.conf();
    say(format_args!(
        "\nThe cluster is up. Stop it with Ctrl-C; the same command starts it again.\n\n\
         ceph.conf:  {}\nkeyring:    {}\n\n\
         With Ceph's clients (Debian: apt install ceph-common):\n\
         \x20   export CEPH_CONF={}\n\
         \x20   ceph -s\n\
         \x20   ceph osd pool create test && rados -p test put hello /etc/hostname && rados -p test ls\n\n\
         Without them:\n\
         \x20   belemnite --conf {} status\n",
        conf.display(),
        l.admin_keyring().display(),
        conf.display(),
        conf.display(),
    ));
    if let Some(f) = &p.fs {
        say(format_args!(
            "The file system {} (Debian: apt install ceph-fuse):\n\x20   ceph-fuse --client_fs {} DIRECTORY\n",
            f.name, f.name
        ));
    }
    Ok(())
}
