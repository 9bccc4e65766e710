//! Commands about the daemons of a running `up`: `stop`, `start`, `restart`, `daemons`, `osd …`, `mon …`, `gateway …`.
//!
//! These commands ask the monitor whether a step is safe, and `up` to take it. Each step is durable by itself, so a
//! command that was interrupted goes on where it stopped when it is run again.
//!
//! Exit status: 0 done; 1 refused or failed, with nothing destroyed; 3 no `up` serves the directory, or
//! it ended meanwhile.

use super::Target;
use super::begun::{goes_on, while_up_runs};
use super::osds::{add, gone, osd, remove, replace};
use crate::admin;
use crate::disks::{self, ActivateArgs, CreateArgs, DeactivateArgs, DestroyArgs, ListArgs, ZapArgs};
use crate::up::control::{AskError, Request, Seen, ask};
use crate::up::layout::{self, Layout};
use crate::up::make;
use client::{Client, CommandReply};
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

type Error = Box<dyn std::error::Error>;

/// Pause between two questions while a command waits.
pub(super) const ASK_EVERY: Duration = Duration::from_millis(500);
/// Time in which a restarted daemon must be back.
const BACK_MAX: Duration = Duration::from_secs(120);
/// State of a daemon that runs, in the answers of `up`.
const RUNNING: &str = "running";

/// Selects the cluster.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Place {
    /// Directory of the cluster [default: that of the configuration file, else belemnite-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Place {
    fn layout(&self, t: &Target) -> Result<Layout, Error> {
        let dir = match &self.data {
            Some(d) => d.clone(),
            None => {
                let conf = admin::find_conf(t.conf_path()).ok();
                let beside = conf.and_then(|c| c.parent().map(|d| d.to_owned()));
                let dir = beside.filter(|d| d.join("cluster.json").exists());
                dir.unwrap_or_else(|| "belemnite-data".into())
            }
        };
        Ok(Layout { dir: layout::absolute(&dir)? })
    }

    /// The directory of an `up`; `None` on a host whose daemons are services of their own.
    pub(crate) fn up(&self, t: &Target) -> Result<Option<Layout>, Error> {
        let l = self.layout(t)?;
        let is_up = self.data.is_some() || l.plan().exists() || l.change().exists() || t.conf_file().is_err();
        Ok(is_up.then_some(l))
    }
}

/// `belemnite stop`
#[derive(Debug, clap::Args)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    place: Place,
    /// Daemons to stop, such as osd.0; without any, the whole cluster stops and `up` ends
    daemons: Vec<String>,
    /// Stop an OSD even if PGs then cannot serve, and the last monitor even though the cluster then stops
    #[arg(long)]
    force: bool,
}

/// `belemnite start`
#[derive(Debug, clap::Args)]
pub(crate) struct StartArgs {
    #[command(flatten)]
    place: Place,
    /// Daemons to start, such as osd.0
    #[arg(required = true)]
    daemons: Vec<String>,
}

/// `belemnite restart`
#[derive(Debug, clap::Args)]
pub(crate) struct RestartArgs {
    #[command(flatten)]
    place: Place,
    /// Daemons to restart, such as osd.0
    #[arg(required_unless_present = "rolling", conflicts_with = "rolling")]
    daemons: Vec<String>,
    /// Restart all daemons, one after the other, and wait after each OSD until all PGs are active+clean. They start from
    /// the program file as it is now
    #[arg(long)]
    rolling: bool,
    /// Restart an OSD even if PGs cannot serve meanwhile
    #[arg(long, conflicts_with = "rolling")]
    force: bool,
}

/// `belemnite daemons`
#[derive(Debug, clap::Args)]
pub(crate) struct DaemonsArgs {
    #[command(flatten)]
    place: Place,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `belemnite mon` and `belemnite gateway` with a command.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum DaemonCommand {
    /// Stop it; it stays down until it is started, or until the next `up`
    Stop {
        #[command(flatten)]
        name: NameArgs,
        /// Stop the last monitor even though the cluster then stops
        #[arg(long)]
        force: bool,
    },
    /// Start it
    Start(NameArgs),
    /// Stop it and start it again, from the program file as it is now
    Restart(NameArgs),
}

/// Names a daemon of `up`.
#[derive(Debug, clap::Args)]
pub(crate) struct NameArgs {
    #[command(flatten)]
    place: Place,
    /// Its id
    #[arg(default_value = "a")]
    id: String,
}

/// `belemnite osd` with a command.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum OsdCommand {
    /// Stop an OSD of `up`; it stays down until it is started, or until the next `up`
    Stop(OneOsd),
    /// Start an OSD of `up`
    Start(OneOsd),
    /// Stop an OSD of `up` and start it again, from the program file as it is now
    Restart(OneOsd),
    /// Make OSDs on devices or files of this host, and start them
    Create(CreateArgs),
    /// Show the devices of this host and what they hold
    List(ListArgs),
    /// Show the OSDs of the cluster with their hosts, space, PGs and latencies
    Status(super::views::Form),
    /// Erase a device or file. Refused while an OSD's data on it is needed
    Zap(ZapArgs),
    /// Erase the store of an OSD of this host, and keep its id for another one. Refused while its data is needed
    Destroy(DestroyArgs),
    /// Give the files and the device of an OSD to the account that runs it; units do this before each start
    Activate(ActivateArgs),
    /// Close the mapping of an encrypted OSD of this host; units do this after each stop
    Deactivate(DeactivateArgs),
    /// Add an OSD to a running `up`; `osd create` makes those of a host
    Add {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Move all data off an OSD of `up` or of this host, then remove it with its store and its place in the maps
    Remove {
        #[command(flatten)]
        place: Place,
        /// Id of the OSD
        id: u32,
        #[command(flatten)]
        risk: Risk,
    },
    /// Give an OSD of `up` or of this host an empty store under the same id, for a disk that failed. Refused while its
    /// data is needed
    Replace(super::osds::ReplaceArgs),
}

/// Where a new store is.
#[derive(Debug, clap::Args)]
pub(crate) struct StoreArgs {
    /// Block device for the store [default: a file, or the device that the OSD had]
    #[arg(long, value_name = "PATH", conflicts_with = "size")]
    pub(crate) device: Option<PathBuf>,
    /// Size of the store's file, e.g. 20G
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<String>,
    /// Overwrite a device that has a partition table, a file system or another store
    #[arg(long)]
    pub(crate) force: bool,
}

/// How much redundancy may be given up.
#[derive(Debug, clap::Args)]
pub(crate) struct Risk {
    /// Do not wait for other copies of the data: the copies on other OSDs are enough to serve. They must be complete
    #[arg(long)]
    pub(crate) degraded: bool,
    /// Destroy the store without any check. Data that is nowhere else is lost
    #[arg(long, conflicts_with = "degraded")]
    pub(crate) yes_i_really_mean_it: bool,
}

/// Names an OSD of `up`.
#[derive(Debug, clap::Args)]
pub(crate) struct OneOsd {
    #[command(flatten)]
    place: Place,
    /// Id of the OSD
    id: u32,
    /// Stop it even if PGs then cannot serve
    #[arg(long)]
    force: bool,
}

pub(crate) fn print(text: &str) {
    // What was done stays done if nobody reads it.
    let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
}

/// Sends a request without blocking the reactor.
pub(super) async fn tell(l: &Layout, r: Request) -> Result<String, Error> {
    let l = l.clone();
    let (done, answer) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || done.send(ask(&l, &r)));
    Ok(answer.await.map_err(|_| "the request was lost")??)
}

pub(super) async fn seen(l: &Layout) -> Result<Seen, Error> {
    Ok(serde_json::from_str(&tell(l, Request::Daemons).await?)?)
}

/// Connects as the administrator of the directory, whose key may have been rotated.
pub(super) async fn connect(l: &Layout) -> Result<Client, Error> {
    make::connect(l).await
}

pub(crate) async fn command(c: &Client, cmd: Value) -> Result<CommandReply, Error> {
    Ok(c.mon_command(&cmd.to_string(), Default::default()).await?)
}

/// Runs a monitor command that must succeed.
pub(crate) async fn must(c: &Client, cmd: Value) -> Result<Vec<u8>, Error> {
    let r = command(c, cmd.clone()).await?;
    if r.rc < 0 {
        return Err(format!("{}: {}", cmd["prefix"].as_str().unwrap_or_default(), r.status).into());
    }
    Ok(r.out.to_vec())
}

pub(crate) async fn must_json(c: &Client, mut cmd: Value) -> Result<Value, Error> {
    cmd["format"] = "json".into();
    Ok(serde_json::from_slice(&must(c, cmd).await?)?)
}

/// Time for the question whether the cluster has an OSD.
const LOOK_MAX: std::time::Duration = std::time::Duration::from_secs(5);
/// Time for the question whether an OSD may be stopped.
const CHECK_MAX: std::time::Duration = std::time::Duration::from_secs(30);

/// Exit status of a command that failed.
pub(crate) fn exit_status(e: &(dyn std::error::Error + 'static)) -> Option<u8> {
    e.downcast_ref::<AskError>().map(|e| if matches!(e, AskError::NotRunning(_) | AskError::Ended(_)) { 3 } else { 1 })
}

/// Checks that PGs serve without an OSD. A monitor that ends during the question would be waited for without end.
async fn check_stop(l: &Layout, id: u32) -> Result<(), Error> {
    let late = |_| format!("osd.{id}: the monitors have not answered for {CHECK_MAX:?}; --force stops it anyway");
    tokio::time::timeout(CHECK_MAX, is_needless(l, id)).await.map_err(late)?
}

async fn is_needless(l: &Layout, id: u32) -> Result<(), Error> {
    let c = connect(l).await?;
    if !osd(&c, id).await?.is_some_and(|o| o["up"] == 1) {
        return Ok(());
    }
    let r = command(&c, json!({"prefix": "osd ok-to-stop", "ids": [id.to_string()]})).await?;
    if r.rc < 0 {
        return Err(format!("osd.{id}: {}; --force stops it anyway", r.status).into());
    }
    Ok(())
}

/// Checks that the cluster goes on without a daemon that is no OSD: a monitor is left, or a majority of the members of
/// etcd with the monitors' state.
fn check_last(s: &Seen, daemon: &str) -> Result<(), Error> {
    let Some(kind) = daemon.split('.').next().filter(|k| ["mon", "etcd"].contains(k)) else { return Ok(()) };
    let all: Vec<_> = s.daemons.iter().filter(|d| d.name.split('.').next() == Some(kind)).collect();
    // What does not run serves nobody, and an unknown name is refused by `up`.
    if !all.iter().any(|d| d.name == daemon && d.state == RUNNING) {
        return Ok(());
    }
    let left = all.iter().filter(|d| d.name != daemon && d.state == RUNNING).count();
    let (needed, what) = match kind {
        "mon" => (1, "the last monitor that runs"),
        _ => (all.len() / 2 + 1, "needed for a majority of etcd, which has the monitors' state"),
    };
    if left >= needed {
        return Ok(());
    }
    Err(format!(
        "{daemon} is {what}: without it no client signs in, no map changes and no failed OSD is replaced by others, so \
         the cluster stops. `belemnite stop` ends all of it in order; --force stops {daemon} alone, and `belemnite start \
         {daemon}` starts it again"
    )
    .into())
}

/// Checks that the cluster serves without a daemon.
async fn check_needed(l: &Layout, daemon: &str) -> Result<(), Error> {
    // An unknown name is refused by `up`, before the monitor is asked.
    let s = seen(l).await?;
    match osd_id(daemon) {
        Some(id) => check_stop(l, id).await,
        None => check_last(&s, daemon),
    }
}

fn osd_id(daemon: &str) -> Option<u32> {
    daemon.strip_prefix("osd.")?.parse().ok()
}

/// `belemnite stop`
pub(crate) async fn stop(t: &Target, a: StopArgs) -> Result<(), Error> {
    let l = a.place.layout(t)?;
    for d in &a.daemons {
        if !a.force {
            check_needed(&l, d).await?;
        }
        print(&tell(&l, Request::Stop { daemon: d.clone() }).await?);
    }
    if !a.daemons.is_empty() {
        return Ok(());
    }
    tell(&l, Request::Shutdown).await?;
    // `up` holds the lock until all daemons have ended.
    let lock = std::fs::File::open(l.lock())?;
    while let Err(std::fs::TryLockError::WouldBlock) = lock.try_lock() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    print("stopped");
    Ok(())
}

/// `belemnite start`
pub(crate) async fn start(t: &Target, a: StartArgs) -> Result<(), Error> {
    let l = a.place.layout(t)?;
    for daemon in a.daemons {
        if let Some(id) = osd_id(&daemon) {
            seen(&l).await?;
            // Monitors that do not answer hold up no start.
            if let Ok(Ok(Some(why))) = tokio::time::timeout(LOOK_MAX, gone(&l, id)).await {
                return Err(why.into());
            }
        }
        print(&tell(&l, Request::Start { daemon }).await?);
    }
    Ok(())
}

/// `belemnite restart`
pub(crate) async fn restart(t: &Target, a: RestartArgs) -> Result<(), Error> {
    let l = a.place.layout(t)?;
    if a.rolling {
        return rolling(&l).await;
    }
    for daemon in a.daemons {
        if let Some(id) = osd_id(&daemon).filter(|_| !a.force) {
            seen(&l).await?;
            check_stop(&l, id).await?;
        }
        print(&tell(&l, Request::Restart { daemon }).await?);
    }
    Ok(())
}

/// `belemnite daemons`
pub(crate) async fn daemons(t: &Target, a: DaemonsArgs) -> Result<(), Error> {
    let l = a.place.layout(t)?;
    if a.json {
        print(&tell(&l, Request::Daemons).await?);
        return Ok(());
    }
    let s = seen(&l).await?;
    for d in &s.daemons {
        let pid = d.pid.map_or_else(|| "-".to_owned(), |p| p.to_string());
        print(&format!("{:<8} {:<8} {pid}", d.name, d.state));
    }
    if s.replaced {
        // The kernel marks the program of a process whose file was replaced.
        let is_old = |pid: u32| {
            std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|p| p.to_string_lossy().ends_with(" (deleted)"))
        };
        let what = match s.daemons.iter().filter_map(|d| d.pid).filter(|p| is_old(*p)).count() {
            0 => "all daemons run it; `up` itself takes it up when it is started again".to_owned(),
            n => format!("`belemnite restart --rolling` restarts {n} daemons with it"),
        };
        print(&format!("{} is a new program file; {what}", s.program.display()));
    }
    Ok(())
}

/// `belemnite mon stop` and its like, of daemons of type `kind`.
pub(crate) async fn daemon(t: &Target, kind: &str, c: DaemonCommand) -> Result<(), Error> {
    let (name, starts, request): (NameArgs, bool, fn(String) -> Request) = match c {
        DaemonCommand::Stop { name, force } => {
            let daemons = vec![format!("{kind}.{}", name.id)];
            return stop(t, StopArgs { place: name.place, daemons, force }).await;
        }
        DaemonCommand::Start(n) => (n, true, |daemon| Request::Start { daemon }),
        DaemonCommand::Restart(n) => (n, true, |daemon| Request::Restart { daemon }),
    };
    let l = name.place.layout(t)?;
    print(&tell(&l, request(format!("{kind}.{}", name.id))).await?);
    if starts && kind == "mon" {
        // The next command finds a monitor that listens.
        connect(&l).await?;
    }
    Ok(())
}

/// `belemnite osd stop` and its like.
pub(crate) async fn osd_command(t: &Target, c: OsdCommand) -> Result<(), Error> {
    match c {
        OsdCommand::Stop(o) => {
            let daemons = vec![format!("osd.{}", o.id)];
            stop(t, StopArgs { place: o.place, daemons, force: o.force }).await
        }
        OsdCommand::Start(o) => start(t, StartArgs { place: o.place, daemons: vec![format!("osd.{}", o.id)] }).await,
        OsdCommand::Restart(o) => {
            let daemons = vec![format!("osd.{}", o.id)];
            restart(t, RestartArgs { place: o.place, daemons, rolling: false, force: o.force }).await
        }
        OsdCommand::Create(a) => disks::create(t, &a).await,
        OsdCommand::List(a) => disks::list(t, &a).await,
        OsdCommand::Status(f) => super::views::osd_status(t, &f).await,
        OsdCommand::Zap(a) => disks::zap(t, &a).await,
        OsdCommand::Destroy(a) => disks::destroy(t, &a).await,
        OsdCommand::Activate(a) => disks::activate(t, &a).await,
        OsdCommand::Deactivate(a) => disks::deactivate(&t.conf()?, &a),
        OsdCommand::Add { place, store } => {
            let l = place.layout(t)?;
            goes_on(&l, add(&l, &store)).await
        }
        OsdCommand::Remove { place, id, risk } => match place.up(t)? {
            Some(l) => goes_on(&l, remove(&l, id, &risk)).await,
            None => disks::remove(t, id, &risk).await,
        },
        OsdCommand::Replace(a) => match a.place.up(t)? {
            Some(_) if a.encrypt => Err("--encrypt: `up` makes no encrypted OSDs; `belemnite osd create` does".into()),
            Some(l) => goes_on(&l, replace(&l, a.id, &a.store, a.drain, &a.risk)).await,
            None => disks::replace(t, a.id, &a).await,
        },
    }
}

/// Waits until the map shows an OSD up.
///
/// # Errors
/// `up` ends, the monitor does not answer, or the OSD is not up in time.
pub(super) async fn wait_up(c: &Client, l: &Layout, id: u32) -> Result<(), Error> {
    let up = async {
        while !osd(c, id).await?.is_some_and(|o| o["up"] == 1) {
            tokio::time::sleep(ASK_EVERY).await;
        }
        Ok(())
    };
    let late = || format!("osd.{id} is not up after {BACK_MAX:?}; see its log").into();
    while_up_runs(l, async { tokio::time::timeout(BACK_MAX, up).await.unwrap_or_else(|_| Err(late())) }).await
}

/// PGs that are not active+clean, in words; `None` if all are.
pub(crate) async fn unclean(c: &Client) -> Result<Option<String>, Error> {
    let stat = must_json(c, json!({"prefix": "status"})).await?;
    let states = stat["pgmap"]["pgs_by_state"].as_array().cloned().unwrap_or_default();
    let counted: u64 = states.iter().filter_map(|s| s["count"].as_u64()).sum();
    let all = stat["pgmap"]["num_pgs"].as_u64().unwrap_or_default();
    let clean = |s: &Value| s["state_name"].as_str().is_some_and(|n| n.starts_with("active+clean"));
    let bad: Vec<String> = states
        .iter()
        .filter(|s| !clean(s))
        .map(|s| format!("{} {}", s["count"], s["state_name"].as_str().unwrap_or_default()))
        .collect();
    if bad.is_empty() && counted >= all {
        return Ok(None);
    }
    Ok(Some(if bad.is_empty() { "some PGs have no statistics".into() } else { bad.join(", ") }))
}

async fn wait_clean(c: &Client) -> Result<(), Error> {
    let mut said = String::new();
    let mut clean = 0;
    // The second look is after a report of the restarted OSD's PGs.
    while clean < 2 {
        match unclean(c).await? {
            None => clean += 1,
            Some(text) => {
                clean = 0;
                if text != said {
                    print(&format!("  waiting: {text}"));
                    said = text;
                }
            }
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
    Ok(())
}

/// `belemnite restart --rolling`
async fn rolling(l: &Layout) -> Result<(), Error> {
    let s = seen(l).await?;
    if !s.ready {
        return Err("the cluster is still starting".into());
    }
    print(&format!("restarting with {}", s.program.display()));
    let running = |kind: &str| {
        let names =
            s.daemons.iter().filter(|d| [RUNNING, "waiting"].contains(&d.state.as_str())).map(|d| d.name.clone());
        names.filter(|n| n.split('.').next() == Some(kind)).collect::<Vec<_>>()
    };
    if let Some(why) = unclean(&connect(l).await?).await? {
        return Err(format!("not all PGs are active+clean ({why}); nothing was restarted").into());
    }
    for daemon in running("mon") {
        print(&tell(l, Request::Restart { daemon }).await?);
        // The next one waits until this one serves.
        connect(l).await?;
    }
    for daemon in running("osd") {
        let Some(id) = osd_id(&daemon) else { continue };
        let c = connect(l).await?;
        let r = command(&c, json!({"prefix": "osd ok-to-stop", "ids": [id.to_string()]})).await?;
        if r.rc < 0 {
            return Err(format!("{daemon}: {}; the OSDs from here on were not restarted", r.status).into());
        }
        print(&tell(l, Request::Restart { daemon }).await?);
        wait_up(&c, l, id).await?;
        wait_clean(&c).await?;
    }
    for kind in ["mgr", "mds", "rgw"] {
        for daemon in running(kind) {
            print(&tell(l, Request::Restart { daemon }).await?);
        }
    }
    print("all daemons were restarted; `up` itself runs the program that it was started with");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::control::SeenDaemon;

    #[test]
    fn the_last_monitor_and_the_majority_of_etcd_are_needed() {
        let of = |daemons: &[(&str, &str)]| Seen {
            up: String::new(),
            ready: true,
            program: PathBuf::new(),
            replaced: false,
            daemons: daemons
                .iter()
                .map(|(n, s)| SeenDaemon { name: (*n).into(), pid: None, state: (*s).into() })
                .collect(),
        };
        let is_needed = |s: &Seen, d: &str| check_last(s, d).is_err();
        let three = |left: &str| {
            of(&[("etcd.a", "running"), ("etcd.b", left), ("etcd.c", "running")]
                .into_iter()
                .chain([("mon.a", "running"), ("mon.b", left), ("mon.c", left), ("mgr.x", "running")])
                .collect::<Vec<_>>())
        };
        let whole = three("running");
        assert!(!["mon.a", "mon.c", "etcd.a", "mgr.x", "mon.z"].iter().any(|d| is_needed(&whole, d)));
        for state in ["stopped", "waiting"] {
            let few = three(state);
            assert_eq!(["mon.a", "etcd.a", "etcd.c"].map(|d| is_needed(&few, d)), [true; 3], "{state}");
            assert_eq!(["mon.b", "etcd.b", "mgr.x", "rgw.a"].map(|d| is_needed(&few, d)), [false; 4], "{state}");
        }
        let text = check_last(&of(&[("mon.a", "running"), ("osd.0", "running")]), "mon.a").unwrap_err().to_string();
        assert!(text.starts_with("mon.a is the last monitor that runs: ") && text.contains("--force"), "{text}");
    }
}
