//! The monitor daemon: one reactor that joins the core to the network, the clock and the state store.
//!
//! | module | contents |
//! | --- | --- |
//! | `admin` | the monitor's answers on its admin socket |
//! | `advance` | makes a monitor's state serve a cluster that is ahead of it |
//! | `archive` | a monitor's state in a file: for backup, and to move it between a single monitor's file and etcd |
//! | `backup` | exports of the state while the monitor runs: on request, and on a timer |
//! | `bridge` | carries events into the core and effects out of it |
//! | `console` | the module `dashboard`: the console over TLS, while the module is enabled |
//! | `counters` | counters of a monitor that leads, in the sections of Ceph's |
//! | `front_admin` | answers of a front monitor about itself: admin socket, and `ceph tell` about options |
//! | `listen` | the addresses at which a monitor listens for clients, for msgr2 and msgr1 |
//! | `machine` | facts about this machine, as `mon metadata` and `mgr metadata` show them |
//! | `manager` | the manager role in the monitor's process: its view of the monitor, and the way of its commands |
//! | `membership` | the membership of a monitor over etcd, on a thread of its own |
//! | `metrics` | the HTTP endpoint of the module `prometheus`: `GET /metrics` |
//! | `mkfs` | creates a new cluster: its id, monmap, first OSD map and first keys |
//! | `modules` | addresses of the manager role's modules that serve HTTP |
//! | `several` | a monitor of several: a front monitor until it is elected leader |

mod admin;
pub mod advance;
pub mod archive;
mod backup;
mod bridge;
mod console;
mod counters;
mod front_admin;
mod listen;
mod machine;
mod manager;
mod membership;
mod metrics;
pub mod mkfs;
mod modules;
mod several;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use auth::{ConMode, Method};
use base::{AddrVec, EntityAddr, EntityKind};
use msgr::{Policies, Policy, Protocol};
use net::{EndpointConfig, Limits, Net, OsRandom};
use reactor::{Context, clock};
use state::embedded::EmbeddedStore;
use state::etcd::care::EtcdCare;
use state::etcd::{EtcdOptions, EtcdStore};
use state::{Entry, Event, Op, Outcome, Range, Reply, Request, StateError, StateStore};
use tokio::sync::Notify;

use crate::core::quorum::member::Presence;
use crate::core::start::load::{self, LoadError, Setup};
use crate::core::start::reading::{Reading, Step};
use crate::core::{self, MonAuthHost, MonCore};
use crate::state::options::MonOptions;
use bridge::{Bridge, RoleHandler};
use listen::Listening;

/// Name of the state store's file in the monitor's directory.
pub const STATE_FILE: &str = "state.redb";

/// Parameters of a monitor process.
#[derive(Clone, Debug)]
pub struct MonRunOptions {
    /// The monitor's name: `a` of `mon.a`.
    pub name: String,
    /// The monitor's directory.
    pub data_dir: PathBuf,
    /// The etcd cluster that holds the state, for one of several monitors; `None` for a single monitor.
    pub etcd: Option<EtcdOptions>,
    /// The address to listen on instead of the one in the monmap (for a host behind address translation).
    pub bind: Option<SocketAddr>,
    /// The announced address of the manager role, which listens there, or at this port of `bind`; `None` for no manager role (a separate `ceph-mgr` is expected).
    pub mgr_bind: Option<SocketAddr>,
    /// Path of the admin socket.
    pub admin_socket: Option<PathBuf>,
    /// Options of the configuration file that apply to this monitor, by Ceph's names.
    pub config: BTreeMap<String, String>,
}

/// The reason why a monitor did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum MonError {
    /// An option about connection modes is invalid.
    #[error(transparent)]
    Modes(#[from] net::modes::BadModes),
    /// The state store failed.
    #[error("{path}: {error}")]
    Store {
        /// The state store's file.
        path: String,
        /// The failure.
        error: StateError,
    },
    /// The store holds no cluster, or one that this program cannot read.
    #[error("{path}: {error}")]
    Load {
        /// The state store's file.
        path: String,
        /// The reason.
        error: LoadError,
    },
    /// There is no file with a state.
    #[error(
        "{0} is missing. A lost state comes back from an export (`belemnite state import --advance FILE`) or from the \
         OSDs (`belemnite state rebuild --osd PATH …`), see docs/operate/monitor-lost.md; `belemnite mon --mkfs` makes \
         that of a new cluster"
    )]
    NoState(String),
    /// `mkfs` was run where a cluster exists.
    #[error("{0} holds a cluster already")]
    Exists(String),
    /// `mkfs` was run where an import was cut short.
    #[error("{0} holds a part of a state, whose import was cut short; import it again")]
    PartOfState(String),
    /// The monitor cannot listen on an address.
    #[error("cannot listen on {addr}: {error}")]
    Listen {
        /// The listening address.
        addr: SocketAddr,
        /// The reason.
        error: io::Error,
    },
    /// The admin socket cannot be served.
    #[error("admin socket {path}: {error}")]
    AdminSocket {
        /// The socket's path.
        path: String,
        /// The reason.
        error: io::Error,
    },
    /// The monmap does not name this monitor, or gives it no address.
    #[error("the monitor map has no usable address for mon.{0}")]
    NotInMap(String),
    /// A file or directory cannot be used.
    #[error("{path}: {error}")]
    Io {
        /// The path of the file or directory.
        path: String,
        /// The reason.
        error: io::Error,
    },
    /// An archive of a state cannot be read or imported.
    #[error("archive: {0}")]
    Archive(String),
    /// The monitor stopped by itself, with the reason.
    #[error("stopped: {0}")]
    Stopped(String),
}

impl MonRunOptions {
    /// The core's options, from the configuration.
    #[must_use]
    pub fn core_options(&self) -> MonOptions {
        let mut o = MonOptions::from_local(self.config.clone());
        o.external_mgr = self.mgr_bind.is_none();
        o.host_metadata = machine::host_metadata();
        o
    }
}

/// A state store with a waker for its events.
pub(crate) struct Store {
    pub(crate) store: Box<dyn StateStore>,
    pub(crate) ready: Arc<Notify>,
}

impl Store {
    pub(crate) fn open(path: &Path) -> Result<Self, MonError> {
        let ready = Arc::new(Notify::new());
        let waker = Arc::clone(&ready);
        let store = EmbeddedStore::open(path, Box::new(move || waker.notify_one()))
            .map_err(|error| MonError::Store { path: path.display().to_string(), error })?;
        Ok(Self { store: Box::new(store), ready })
    }

    /// A handle on the state in etcd.
    pub(crate) fn etcd(o: &EtcdOptions) -> Result<Self, MonError> {
        let ready = Arc::new(Notify::new());
        let waker = Arc::clone(&ready);
        let store = EtcdStore::open(o, Box::new(move || waker.notify_one()))
            .map_err(|error| MonError::Store { path: "etcd".into(), error })?;
        Ok(Self { store: Box::new(store), ready })
    }

    /// Sends one request and waits for its result; for start-up only, when no other request is in flight.
    async fn ask(&mut self, op: Op) -> Result<Outcome, StateError> {
        self.store.submit(Request { token: 0, op });
        loop {
            while let Some(e) = self.store.poll() {
                if let Event::Reply(Reply { result, token: 0, .. }) = e {
                    return result;
                }
            }
            self.ready.notified().await;
        }
    }

    /// Reads ranges at one revision: `at`, or, if `at` is 0, that of the first read, which is then written to `at`.
    async fn read(&mut self, ranges: Vec<Range>, at: &mut u64) -> Result<Vec<(bytes::Bytes, Entry)>, StateError> {
        let (mut reading, first) = Reading::new(ranges, *at, READ);
        self.store.submit(first);
        loop {
            while let Some(e) = self.store.poll() {
                let Event::Reply(r) = e else { continue };
                match reading.reply(r) {
                    Step::Ask(next) => self.store.submit(next),
                    Step::Done(records, revision) => {
                        *at = revision;
                        return Ok(records);
                    }
                    Step::Failed(e) => return Err(e),
                    Step::NotMine => {}
                }
            }
            self.ready.notified().await;
        }
    }
}

/// Interval in seconds at which the room for the state is looked at.
const SPACE_SECONDS: u64 = 30;
/// Token of reads at the start.
const READ: state::Token = 0;

/// Runs a monitor on this reactor until it is asked to stop. Error: the reason why it did not start or stopped by
/// itself.
pub async fn run(cx: Context, o: MonRunOptions) -> Result<(), MonError> {
    if let Some(etcd) = o.etcd.clone() {
        return several::run(cx, o, etcd).await;
    }
    let path = o.data_dir.join(STATE_FILE);
    let shown = path.display().to_string();
    if !path.exists() {
        return Err(MonError::NoState(shown));
    }
    let store = Store::open(&path)?;
    serve(cx, &o, store, &shown, None).await
}

/// The msgr2 address of a monitor in the monmap, and all its addresses there.
fn public_addrs(m: &cluster::MonMap, name: &str) -> Result<(EntityAddr, AddrVec), MonError> {
    let addrs = m.mons.get(name).map(|m| &m.public_addrs);
    let found = addrs.and_then(|all| Some((*all.msgr2()?, all.clone())));
    found.ok_or_else(|| MonError::NotInMap(name.to_owned()))
}

/// The election of a leader: its fence, and its standing among the monitors.
type Lead = ((bytes::Bytes, u64), Arc<membership::Standing>);

/// Records of the state, without and with those of the maps.
type Records = (Vec<(bytes::Bytes, Entry)>, Vec<(bytes::Bytes, Entry)>);

/// Parts of a serving monitor that it looks after beside its clients.
struct Care {
    timer: Option<backup::Timer>,
    etcd: Option<EtcdCare>,
    listening: Listening,
}

/// The parts of a serving monitor that its endpoints and tasks share.
struct Serving<'a> {
    o: &'a MonRunOptions,
    /// The address for clients.
    public: EntityAddr,
    /// The address on which the monitor listens for clients.
    bind: SocketAddr,
    core: Rc<RefCell<MonCore>>,
    net: Net,
    bridge: Rc<Bridge>,
    /// The standing of an elected monitor.
    standing: Option<Arc<membership::Standing>>,
}

/// Runs the monitor that writes: the only one, or, with a fence, the leader of several.
async fn serve(
    cx: Context,
    o: &MonRunOptions,
    mut store: Store,
    shown: &str,
    lead: Option<Lead>,
) -> Result<(), MonError> {
    let (fence, standing) = lead.unzip();
    let Some((records, maps)) = read_state(&cx, o, &mut store, shown, standing.as_deref()).await? else {
        return Ok(());
    };
    let nonce = std::process::id();
    let mgr_addrs = o.mgr_bind.map(|a| AddrVec(vec![EntityAddr::msgr2(a, nonce)]));
    let setup = Setup {
        name: o.name.clone(),
        options: o.core_options(),
        mgr_addrs: mgr_addrs.clone(),
        random: Rc::new(OsRandom),
    };
    let mut core = MonCore::load(&records, &maps, setup, clock::read())
        .map_err(|error| MonError::Load { path: shown.to_owned(), error })?;
    drop((records, maps));
    if let Some(fence) = fence {
        core.lead(fence);
    }
    let (public, public_all) = public_addrs(&core.state().monmap, &o.name)?;
    let bind = o.bind.or(public.sock).ok_or_else(|| MonError::NotInMap(o.name.clone()))?;
    let cephx = core.state().options.auth.cephx;
    let core = Rc::new(RefCell::new(core));
    let net = Net::new();
    let bridge = Bridge::new(Rc::clone(&core), net.clone(), store.store, standing.clone());
    let serving = Serving { o, public, bind, core, net, bridge, standing };

    let serve_state = serving.bridge.serve_state(store.ready);
    let mut state_task = std::pin::pin!(serve_state);
    serving.bridge.turn_end();
    serving.until_ready(state_task.as_mut()).await?;
    let (mgr, mon, listening) = serving.listen(mgr_addrs, public_all).await?;
    let _admin = serving.admin_sockets()?;
    let method = if cephx { Method::CEPHX } else { Method::NONE };
    tracing::info!(
        "mon.{} serves {} ({}); epoch {}",
        o.name,
        public,
        auth_word(method),
        serving.core.borrow().state().osdmap.epoch
    );

    let images = mgr::host::images::Service::new(
        Box::new(manager::Seen { core: Rc::clone(&serving.core), bridge: Rc::clone(&serving.bridge) }),
        public,
    );
    let timer = backup::Timer::from(&o.config)?;
    let care = match &o.etcd {
        Some(etcd) => {
            let failed = |error| MonError::Store { path: shown.to_owned(), error };
            Some(EtcdCare::start(etcd).map_err(failed)?)
        }
        None => None,
    };
    let result = serving.run(&cx, state_task, images, Care { timer, etcd: care, listening }).await;
    mon.shutdown();
    if let Some(m) = mgr {
        m.shutdown();
    }
    result
}

/// Reads the state at a revision after which no other monitor writes: the fence refuses their transactions. `None`: the
/// monitor was asked to stop.
async fn read_state(
    cx: &Context,
    o: &MonRunOptions,
    store: &mut Store,
    shown: &str,
    standing: Option<&membership::Standing>,
) -> Result<Option<Records>, MonError> {
    let failed = |error| MonError::Store { path: shown.to_owned(), error };
    let bad = |error| MonError::Load { path: shown.to_owned(), error };
    loop {
        let mut at = 0;
        let error = match store.read(load::ranges(), &mut at).await {
            Ok(records) => match store.read(load::map_ranges(&records).map_err(bad)?, &mut at).await {
                Ok(maps) => return Ok(Some((records, maps))),
                Err(e) => e,
            },
            Err(e) => e,
        };
        // An elected monitor repeats a failed read for as long as it leads.
        let Some(standing) = standing else { return Err(failed(error)) };
        if let Some(why) = standing.stopped() {
            return Err(MonError::Stopped(why));
        }
        tracing::warn!("mon.{}: {error}; reading the state again", o.name);
        tokio::select! {
            () = tokio::time::sleep(several::AGAIN) => {}
            () = cx.stopped() => return Ok(None),
        }
    }
}

impl Serving<'_> {
    /// Commits keys, global ids and the manager's address before the first connection is accepted.
    async fn until_ready(&self, mut state_task: Pin<&mut impl Future<Output = ()>>) -> Result<(), MonError> {
        while !self.core.borrow().is_ready() || self.core.borrow().is_busy() {
            tokio::select! {
                () = &mut state_task => {}
                () = self.bridge.progress() => {}
            }
            let why = self.bridge.stopped().or_else(|| self.core.borrow().state().store.error.clone());
            if let Some(why) = why {
                return Err(MonError::Stopped(why));
            }
        }
        Ok(())
    }

    /// Listens as manager, if the monitor is one, and as monitor. Returns both endpoints, and the monitor's sockets.
    async fn listen(
        &self,
        mgr_addrs: Option<AddrVec>,
        mon_addrs: AddrVec,
    ) -> Result<(Option<net::Endpoint>, net::Endpoint, Listening), MonError> {
        let given = |name: &str| self.core.borrow().state().options.settings.given(name).map(str::to_owned);
        let modes = net::modes::Modes::take(given)?;
        let mgr_gid = self.core.borrow().state().mgrmap.active_gid as i64;
        // The manager listens first, because the map already announces its address.
        let mgr = match (self.o.mgr_bind, mgr_addrs) {
            (Some(addr), Some(addrs)) => {
                let e = self.endpoint(&modes, EntityKind::MGR, mgr_gid, addrs);
                let at = self.o.bind.map_or(addr, |b| SocketAddr::new(b.ip(), addr.port()));
                listen::listen(&e, at, Protocol::V2).await?;
                Some(e)
            }
            _ => None,
        };
        let mon = self.endpoint(&modes, EntityKind::MON, 0, mon_addrs);
        let listening = Listening::start(&mon, self.bind, net::modes::serves_msgr1(given)).await?;
        Ok((mgr, mon, listening))
    }

    fn endpoint(&self, modes: &net::modes::Modes, kind: EntityKind, num: i64, addrs: AddrVec) -> net::Endpoint {
        let policies = Policies::uniform(Policy::lossy_server(vec![ConMode::SECURE, ConMode::CRC]));
        let config = EndpointConfig {
            kind,
            num,
            addrs,
            policies: modes.apply(kind, policies),
            auth_host: Some(Rc::new(MonAuthHost::new(Rc::clone(&self.core), kind))),
            auth_client: None,
            limits: Limits { frames: msgr::FrameLimits::control_plane(), ..Limits::default() },
        };
        let role = core::start::load::role_of(kind);
        self.net.endpoint(config, Rc::new(RoleHandler::new(Rc::clone(&self.bridge), role)))
    }

    fn admin_sockets(&self) -> Result<Vec<net::admin_socket::AdminSocket>, MonError> {
        let mut sockets = Vec::new();
        let is_mgr = !self.core.borrow().state().options.external_mgr;
        for p in self.o.admin_socket.iter().flat_map(|p| admin::paths(p, is_mgr)) {
            let served = admin::serve(Rc::clone(&self.bridge), self.net.clone(), &p);
            sockets.push(served.map_err(|error| MonError::AdminSocket { path: p.display().to_string(), error })?);
        }
        Ok(sockets)
    }

    /// The loop of the monitor: runs its tasks until it is asked to stop, or must.
    async fn run(
        &self,
        cx: &Context,
        mut state_task: Pin<&mut impl Future<Output = ()>>,
        images: Rc<mgr::host::images::Service>,
        care: Care,
    ) -> Result<(), MonError> {
        let Care { timer, etcd: care, mut listening } = care;
        let bridge = &self.bridge;
        let mut backups = std::pin::pin!(backup::run(Rc::clone(bridge), timer));
        let mut metrics = std::pin::pin!(metrics::run(Rc::clone(bridge), self.net.clone(), self.bind.ip()));
        let mut console = std::pin::pin!(console::run(Rc::clone(bridge), self.public, self.bind.ip()));
        let mut membership = self.standing.as_ref().map(|s| s.changes());
        let mut peers = None;
        let mut image_tasks = std::pin::pin!(images.clone().run());
        let mut seconds: u64 = 0;
        // Clients that come before it is told are judged by the core.
        let mut told_required = wire::Features::default();
        let mut second = tokio::time::interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = &mut state_task => {}
                _ = second.tick() => {
                    self.core.borrow_mut().set_etcd(care.as_ref().map(EtcdCare::condition));
                    if care.is_none() && seconds.is_multiple_of(SPACE_SECONDS) {
                        let space = reactor::disk::space(&self.o.data_dir).ok();
                        self.core.borrow_mut().set_space(space);
                    }
                    seconds += 1;
                    if let Some(m) = self.core.borrow().state().monmap.mons.get(&self.o.name) {
                        listening.follow(&m.public_addrs);
                    }
                    let required = crate::state::primaries::client_features(&self.core.borrow().state().osdmap);
                    if told_required != required {
                        listening.require_of_clients(required);
                        told_required = required;
                    }
                    bridge.tick();
                }
                () = &mut image_tasks => {}
                () = &mut backups => {}
                () = &mut metrics => {}
                () = &mut console => {}
                () = bridge.progress() => {}
                () = cx.stopped() => return Ok(()),
                () = changed(membership.as_mut()) => {}
            }
            if let Some(s) = &self.standing {
                self.follow_peers(s, &mut peers);
                if let Some(why) = s.stopped() {
                    return Err(MonError::Stopped(why));
                }
                if !self.core.borrow().state().monmap.may_lead(&self.o.name) {
                    return Err(MonError::Stopped("this monitor is among the disallowed leaders".into()));
                }
            }
            self.start_jobs(&images);
            if let Some(why) = bridge.stopped() {
                return Err(MonError::Stopped(why));
            }
        }
    }

    /// Tells the core which monitors are up, if that has changed since the last call.
    fn follow_peers(&self, standing: &membership::Standing, told: &mut Option<Arc<BTreeMap<String, Presence>>>) {
        let now = standing.peers();
        if !told.as_ref().is_some_and(|p| Arc::ptr_eq(p, &now)) {
            let mut core = self.core.borrow_mut();
            core.set_monitors_up(now.keys().cloned().collect());
            core.set_monitor_metadata(now.iter().map(|(n, p)| (n.clone(), p.metadata.clone())).collect());
            *told = Some(now);
        }
    }

    /// Starts the tasks of commands that take longer than a turn.
    fn start_jobs(&self, images: &Rc<mgr::host::images::Service>) {
        let public = self.public;
        for (token, job) in self.bridge.take_jobs() {
            if job.prefix == net::messengers::PREFIX {
                self.bridge.answer(token, admin::messengers(&self.net, &job.args));
                continue;
            }
            let (images, bridge) = (Rc::clone(images), Rc::clone(&self.bridge));
            tokio::task::spawn_local(async move { bridge.answer(token, images.command(&manager::job(job)).await) });
        }
        for (token, f) in self.bridge.take_forwards() {
            let bridge = Rc::clone(&self.bridge);
            tokio::task::spawn_local(async move { bridge.answer(token, mgr::host::forward::command(public, f).await) });
        }
    }
}

/// Completes when the membership has changed; never without a membership.
async fn changed(s: Option<&mut tokio::sync::watch::Receiver<()>>) {
    // The sender lives as long as the monitor.
    if let Some(s) = s
        && s.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

fn auth_word(m: Method) -> &'static str {
    if m == Method::CEPHX { "cephx" } else { "no authentication" }
}
