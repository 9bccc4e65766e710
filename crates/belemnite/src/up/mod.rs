//! `belemnite up`: a cluster on this machine, with each daemon as a process.
//!
//! [`dir`] finds the description of the cluster ([`plan::Plan`]), [`options`] compares it with the arguments, [`make`]
//! makes stores and keys, and [`cluster`] runs the daemons until the end. [`control`] takes an operator's commands.
//!
//! | module | contents |
//! | --- | --- |
//! | `addresses` | the monitors' addresses for msgr1, which a cluster that was made without them gets by `up --msgr1` |
//! | `bring_up` | commands to the monitor before daemons start: new OSDs, keys, and the file system |
//! | `cluster` | a running cluster: its daemons, what happens to them, and what an operator asks of them |
//! | `control` | the socket at which a running `up` takes commands about its daemons |
//! | `detach` | `up --detach`: the same command in the background |
//! | `dir` | the description of a cluster in its directory: how it is found, and how it changes |
//! | `files` | `up --fs`: a file system and Debian's `ceph-mds` for it |
//! | `foreign` | Ceph's daemons under `up`: where their programs are, and how they are started |
//! | `gateway` | an S3 gateway of the cluster: Ceph's unmodified `radosgw`, as another supervised daemon |
//! | `layout` | paths below a cluster's directory, and ports of its daemons |
//! | `left` | processes that a killed `up` of the same directory has left |
//! | `make` | makes the monitor's state, stores of OSDs, keyrings, and entries in the OSD map |
//! | `manager` | `up --mgr ceph`: Debian's `ceph-mgr` in the manager role, with its modules |
//! | `options` | the arguments of `up` against the cluster that a directory holds |
//! | `plan` | description of a cluster, stored in its directory so that a later `up` starts the same cluster |
//! | `recover` | `up --recover`: makes the description of a cluster anew from what its directory holds |
//! | `supervisor` | supervises daemons: starts them, detects their exit, restarts them, and stops them in order |

mod addresses;
mod bring_up;
mod cluster;
pub(crate) mod control;
mod detach;
pub(crate) mod dir;
mod files;
mod foreign;
pub(crate) mod gateway;
pub(crate) mod layout;
mod left;
pub(crate) mod make;
mod manager;
mod options;
pub(crate) mod plan;
mod recover;
pub(crate) mod supervisor;

use crate::size;
use client::Client;
use cluster::{Cluster, Programs};
use dir::{Change, Holds};
use layout::Layout;
use make::Permit;
use plan::Plan;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use supervisor::{Program, Spec};
use tokio::sync::mpsc;

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
    /// Serve msgr1 to clients, too, for kernels without ms_mode and libraries before Ceph 14 [default for a new cluster]
    #[arg(long, conflicts_with = "no_msgr1")]
    msgr1: bool,
    /// Serve msgr2 only
    #[arg(long)]
    no_msgr1: bool,
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
    /// Return once the cluster is up, and keep it running in the background, with the output in DIR/log/up.log
    #[arg(long)]
    detach: bool,
    /// Make a lost or damaged cluster.json anew from the stores, keyrings and ceph.conf in DIR, then start the cluster
    #[arg(long)]
    recover: bool,
}

type Error = Box<dyn std::error::Error>;

/// Time for the cluster to come up, after which `up` reports a problem (and keeps waiting).
const PATIENCE: Duration = Duration::from_secs(30);

fn say(text: impl std::fmt::Display) {
    // Serving continues if the terminal is closed.
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Text of a keyring with one entity.
pub(crate) fn keyring(name: &str, key: &str, caps: &[(&str, &str)]) -> String {
    let mut s = format!("[{name}]\n\tkey = {key}\n");
    for (svc, cap) in caps {
        s.push_str(&format!("\tcaps {svc} = \"{cap}\"\n"));
    }
    s
}

/// Runs a cluster until it is stopped.
pub(crate) async fn run(a: Args) -> Result<(), Error> {
    let layout = Layout { dir: layout::absolute(&a.data)? };
    control::check_length(&layout)?;
    if a.detach {
        return detach::run(&layout);
    }
    let program = Program::of_this_process()?;
    let mut stop = Stop::new()?;
    let made = Made::new(&layout)?;
    let _lock = lock_dir(&layout)?;
    tokio::select! {
        () = left::wait(&layout) => {}
        () = stop.wait() => return Ok(()),
    }
    if a.recover {
        recover::rebuild(&a, &layout)?;
    }
    let (before, unfinished) = match dir::look(&layout)? {
        Holds::Nothing(c) => (None, c.map(|c| *c)),
        Holds::Cluster(p, c) => (Some(*p), c.map(|c| *c)),
    };
    let resumed = unfinished.as_ref().filter(|_| before.is_some()).map(|c| (c.plan.clone(), c.makes.clone()));
    let have = resumed.or_else(|| before.clone().map(|p| (p, Vec::new())));
    let (mut plan, makes) = options::decide(&a, &layout, have)?;
    plan.fs = files::decide(&a, plan.fs.take())?;
    plan.mgr = manager::decide(&a, plan.mgr.take())?;
    let programs = Programs {
        mds: plan.fs.as_ref().map(files::find).transpose()?,
        mgr: plan.mgr.as_ref().map(manager::find).transpose()?,
        etcd: (plan.mons > 1).then(|| foreign::Foreign::find(None, "etcd", "etcd-server")).transpose()?,
    };
    check_ports(&plan).await?;
    plan.s3 = gateway::plan(&a, &plan)?;
    for d in [layout.run(), layout.log()] {
        fs::create_dir_all(&d).map_err(|e| format!("{}: {e}", d.display()))?;
    }
    let (ask, mut requests) = mpsc::channel(16);
    let _control = control::serve(&layout, ask)?;
    made.keep();
    warn_of_space(&plan, &makes, &layout);

    let change = Change { creates: before.is_none(), makes, plan: plan.clone() };
    let permit = Permit { force: a.force, unfinished, given_up: None };
    let mut cluster = Cluster::new(plan, layout.clone(), programs, program);
    let made = prepare(&change, before.as_ref(), &permit, &layout, &mut cluster);
    let ran = match made {
        Ok(()) => cluster.run(&mut requests, stop.wait()).await,
        Err(e) => Err(e),
    };
    cluster.stop_all().await;
    ran
}

/// Makes the stores of a change, with the members of etcd running that a monitor's state needs.
fn prepare(
    change: &Change,
    before: Option<&Plan>,
    permit: &Permit,
    l: &Layout,
    cluster: &mut Cluster,
) -> Result<(), Error> {
    make::check(change, l, permit)?;
    let dir = l.dir.display();
    match (&permit.unfinished, before) {
        (Some(c), None) => {
            say(format_args!("the creation of a cluster in {dir} was interrupted; it begins anew"));
            make::clear(c, l)?;
        }
        (Some(_), Some(_)) => say(format_args!("finishing an interrupted change of the cluster in {dir}")),
        _ => {}
    }
    say(format_args!("{} the cluster in {dir}", if change.creates { "creating" } else { "starting" }));
    if change.creates || !change.makes.is_empty() {
        change.begin(l)?;
    }
    cluster.start_etcd()?;
    make::carry_out(change, before, l, permit)
}

/// A directory that `up` made. It is removed again, if `up` refuses to make a cluster in it.
struct Made<'a> {
    layout: &'a Layout,
    remove: bool,
}

impl<'a> Made<'a> {
    fn new(layout: &'a Layout) -> Result<Self, Error> {
        let remove = !layout.dir.exists();
        fs::create_dir_all(&layout.dir).map_err(|e| format!("--data {}: {e}", layout.dir.display()))?;
        Ok(Self { layout, remove })
    }

    fn keep(mut self) {
        self.remove = false;
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        if self.remove {
            // A directory with anything else in it stays.
            let l = self.layout;
            let _ = fs::remove_file(l.lock());
            for d in [l.run(), l.log(), l.control_dir(), l.dir.clone()] {
                let _ = fs::remove_dir(d);
            }
        }
    }
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

/// Time that processes of an earlier `up` get to free the ports of this cluster.
const PORTS_MAX: Duration = Duration::from_secs(8);

/// Checks that the daemons' ports can be used. Ports that are in use may become free in time.
async fn check_ports(p: &Plan) -> Result<(), Error> {
    let end = tokio::time::Instant::now() + PORTS_MAX;
    loop {
        match ports(p) {
            Err((e, true)) if tokio::time::Instant::now() >= end => return Err(e.into()),
            Err((_, true)) => tokio::time::sleep(Duration::from_millis(100)).await,
            Err((e, false)) => return Err(e.into()),
            Ok(()) => return Ok(()),
        }
    }
}

/// Tries the daemons' ports. Error: the text, and true if a port is only in use.
fn ports(p: &Plan) -> Result<(), (String, bool)> {
    let listen = |port| std::net::TcpListener::bind((p.ip, port));
    let in_use = |e: &std::io::Error| e.kind() == std::io::ErrorKind::AddrInUse;
    let mons = (0..p.mons).flat_map(|i| [layout::mon_port(p.port, i), layout::mgr_port_of(p.port, i)]);
    let etcd = (0..p.mons).filter(|_| p.mons > 1).map(|i| layout::etcd_ports(p.port, i));
    let msgr1 = (0..p.mons).filter(|_| p.msgr1).map(|i| layout::mon_port_msgr1(p.port, i));
    for port in mons.chain(msgr1).chain(etcd.flat_map(|(a, b)| [a, b])) {
        listen(port).map_err(|e| (cannot_listen(p.ip, port, &e, "others with --port"), in_use(&e)))?;
    }
    let reactors = plan::reactors_here(p.osds.len());
    let needed = layout::ports_needed(reactors);
    for o in &p.osds {
        let (lo, hi) = layout::osd_ports(p.port, o.id, reactors);
        // All are held until they are counted.
        let free = (lo..=hi).map(listen).filter(Result::is_ok).count();
        if free < needed {
            let text = format!(
                "osd.{} needs {needed} ports of {lo}-{hi} on {}, and {free} are free; end the programs that use them (`ss \
                 -ltnp` names them)",
                o.id, p.ip
            );
            return Err((text, true));
        }
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

/// Says that the monitor lacks maps that OSDs have; true if it does. Such OSDs show as up in its map, and none of them
/// is.
async fn say_if_behind(c: &Client) -> Result<bool, Error> {
    let out = foreign::ask(c, serde_json::json!({ "prefix": "health", "format": "json" })).await?;
    let health: serde_json::Value = serde_json::from_slice(&out)?;
    let Some(check) = health["checks"].get("OSD_MAP_AHEAD") else { return Ok(false) };
    let what = check["summary"]["message"].as_str().unwrap_or("OSDs have newer maps than the monitor");
    say(format_args!(
        "{what}, and cannot join: its state is older than theirs. Stop the cluster and run `belemnite state advance` \
         (docs/operate/monitor-lost.md)"
    ));
    Ok(true)
}

/// Interval at which health is asked for OSDs that cannot join.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time that an OSD gets to say how far it is.
const OSD_ANSWERS: Duration = Duration::from_secs(5);

/// True if an OSD says that it is a member of the cluster. The map may show it up since its last run.
async fn is_member(l: &Layout, id: u32) -> bool {
    let socket = l.run().join(format!("osd.{id}.asok"));
    let asked = tokio::task::spawn_blocking(move || control::talk(&socket, r#"{"prefix":"status"}"#));
    let Ok(Ok(Ok(text))) = tokio::time::timeout(OSD_ANSWERS, asked).await else { return false };
    serde_json::from_str::<serde_json::Value>(&text).is_ok_and(|v| v["state"] == "active")
}

/// Waits until all OSDs are up, then prints how to use the cluster.
async fn report_when_up(p: &Plan, l: &Layout) -> Result<(), Error> {
    let c = make::connect(l).await?;
    if let Err(e) = addresses::announce(&c, p).await {
        say(format_args!("warning: the monitors keep their addresses: {e}"));
    }
    let want = p.osds.len();
    let mut members = BTreeSet::new();
    let start = tokio::time::Instant::now();
    let (mut warned, mut behind, mut look_at) = (false, false, start);
    loop {
        let before = members.len();
        for o in &p.osds {
            if !members.contains(&o.id) && is_member(l, o.id).await {
                members.insert(o.id);
            }
        }
        let up = members.len();
        if up > before {
            say(format_args!("{up} of {want} OSDs up"));
        }
        if up < want && !behind && tokio::time::Instant::now() >= look_at {
            behind = say_if_behind(&c).await?;
            look_at = tokio::time::Instant::now() + LOOK_EVERY;
        }
        let served = match &p.fs {
            Some(f) if up == want => files::is_active(&c, f).await?,
            _ => true,
        };
        let managed = p.mgr.is_none() || up < want || manager::is_active(&c).await?;
        if up == want && served && managed {
            break;
        }
        if !warned && !behind && start.elapsed() > PATIENCE {
            warned = true;
            say(format_args!("still waiting for daemons; their logs are in {}", l.log().display()));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let conf = l.conf();
    say(format_args!(
        "\nThe cluster is up. Stop it with Ctrl-C or `belemnite stop`; the same command starts it again.\n\n\
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
