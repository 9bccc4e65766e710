//! The OSD as a process: joins the cores to reactors, sockets and the disk.
//!
//! There is one reactor per core given to the OSD. The first also runs the control machine, listens, and
//! distributes accepted sockets. A PG lives on the reactor that its name selects.
//!
//! | module | contents |
//! | --- | --- |
//! | `about` | metadata that an OSD sends when it boots: about itself, its machine and its disks |
//! | `absent` | commands of Ceph's OSDs that this one does not have, each with what to use instead |
//! | `bench` | `ceph tell osd.N bench`: writes to the store from inside the OSD, without network and PGs |
//! | `child` | runs a program beside the reactors, with bounded output and time |
//! | `commands` | commands: `ceph tell osd.N …` and the admin socket, with the same answers |
//! | `control` | host of the control machine, on the first reactor |
//! | `doctor` | the command `doctor`: what costs this OSD speed or safety on its host |
//! | `dump` | PGs and operations as Ceph's tools print them |
//! | `ending` | makes the process end on a signal, whatever its reactors wait for |
//! | `fill` | the thread that allocates file blocks where the stores will write small data next |
//! | `grow` | `ceph tell osd.N grow`: the OSD extends its store to an enlarged file or device, while it serves |
//! | `keyring` | the OSD's key, when the monitor refuses it: the keyring may hold another one by then |
//! | `ledger` | `dump_ledger`: where the time of the operations went, and what of the OSD's surroundings explains it |
//! | `light` | the command `light`: switches the light of one of the OSD's drives |
//! | `links` | the control lane: heartbeat links, which also carry lease requests and grants |
//! | `options` | start options of an OSD |
//! | `peers` | data connections of one reactor to other OSDs |
//! | `perf` | commands about counters: `perf …` and `counter …` |
//! | `ports` | the ports of an OSD |
//! | `reactor_host` | host of a reactor: connections, disk and clock of `core::reactor` |
//! | `route` | messages between the reactors of one OSD |
//! | `smart` | the command `smart`: what `smartctl` of smartmontools says about the OSD's drives, as JSON |
//! | `stores` | the stores of an OSD on its device: making, growing and opening them |
//! | `surroundings` | CPU of a reactor's thread and TCP of its host, read from files of the kernel once a second |
//! | `tell` | commands beyond dumps of state: reports, upkeep of the store, scrubs, devices, heartbeats |
//! | `tracker` | client operations of a reactor's connections: the unanswered and the slowest recent ones |

mod about;
mod absent;
mod bench;
mod child;
mod commands;
mod control;
mod doctor;
mod dump;
mod ending;
mod fill;
mod grow;
mod keyring;
mod ledger;
mod light;
mod links;
pub mod options;
mod peers;
mod perf;
mod ports;
mod reactor_host;
mod route;
mod smart;
mod stores;
mod surroundings;
mod tell;
mod tracker;

use self::reactor_host::ReactorHost;
use crate::core::control::Control;
use crate::core::identity::{Addrs, Identity};
use crate::core::mapstore;
use crate::core::pgs::Input;
use crate::core::reactor::Common;
use auth::server::ServiceHost;
use base::id::Uuid;
use base::{AddrVec, EntityAddr, EntityKind};
use client::core::mon::MonSession;
pub use commands::descriptions as command_descriptions;
use control::ControlHost;
use ending::Ending;
use fill::Fills;
use links::{Answerer, Answering};
use msgr::{Policies, Policy, Protocol};
use net::modes::Modes;
use net::{EndpointConfig, Handler, Limits, Net, OsRandom};
use options::OsdOptions;
use ports::Listen;
use reactor::disk::{self, Disk, DiskFile};
use reactor::mailbox;
use reactor::runtime::Reactors;
use route::{Routes, ToControl, ToReactor};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::engine::Store;
pub use stores::{Mkfs, mkfs};
use stores::{SyncDevice, device_error, grow_at_start, has_room, room_limits, stores_of};
use wire::msg::PeerFeatures;

/// Time that a stopping reactor gets to bring its store to rest.
const REST_MAX: Duration = Duration::from_secs(5);
/// Longest pause before a session with another OSD is dialled again. A restored path must be used soon, because
/// writes wait for it.
const PEER_BACKOFF_MAX: Duration = Duration::from_secs(2);
/// Free bytes of the file system that this needs.
const FREE_TO_FILL: u64 = 4 << 30;

/// Error of creating or running an OSD.
#[derive(Debug, thiserror::Error)]
pub enum OsdError {
    /// The device or file can't be used.
    #[error("{}: {what}", path.display())]
    Device {
        /// Path of the device.
        path: PathBuf,
        /// Description of the problem.
        what: String,
    },
    /// A network operation failed.
    #[error("{what}: {source}")]
    Network {
        /// Attempted operation.
        what: String,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The content of the store does not fit this OSD.
    #[error("{0}")]
    Store(String),
    /// The store failed while it served. The text names the device, the request and the error.
    #[error("the store failed: {0}")]
    StoreFailed(String),
    /// The file system of the store's file is too full to serve.
    #[error(
        "{}: its file system has {free} bytes free; this OSD starts when there are {wanted} (half of osd_file_min_free)",
        path.display()
    )]
    HostFull {
        /// Path of the store's file.
        path: PathBuf,
        /// Free bytes.
        free: u64,
        /// Free bytes needed.
        wanted: u64,
    },
    /// The cluster does not want this OSD.
    #[error("{0}")]
    Excluded(String),
    /// A reactor failed.
    #[error(transparent)]
    Reactor(#[from] reactor::runtime::Failed),
}

impl OsdError {
    /// Exit status of a process that ends with this error, as in `sysexits.h`: 74 for a failed device, 75 for a
    /// device without room at present, 1 for anything else.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::StoreFailed(_) | Self::Device { .. } => 74,
            Self::HostFull { .. } => 75,
            _ => 1,
        }
    }
}

/// Connection modes of the OSD's own configuration. Those of the cluster are applied before it boots.
fn modes(o: &OsdOptions) -> Result<Modes, OsdError> {
    let get = |name: &str| o.shown.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone());
    Modes::take(get).map_err(|e| OsdError::Store(e.to_string()))
}

fn policies() -> Policies {
    // Sessions of clients are lossy, and so are our own sessions with monitor and manager.
    Policies::uniform(Policy::lossy_server(Vec::new()))
        .with(EntityKind::MON, Policy::lossy_client(Vec::new()))
        .with(EntityKind::MGR, Policy::lossy_client(Vec::new()))
        .with(EntityKind::OSD, Policy::lossy_server(Vec::new()))
}

/// State with which every reactor starts; all of it may cross threads.
struct Start {
    options: OsdOptions,
    modes: Modes,
    listen: Listen,
    addrs: Addrs,
    stores: Mutex<Vec<Option<Store>>>,
    common: Common,
    receivers: Mutex<Vec<Option<mailbox::Receiver<ToReactor>>>>,
    control_rx: Mutex<Option<mailbox::Receiver<ToControl>>>,
    file: Arc<DiskFile>,
    fills: Option<Fills>,
    routes: Routes,
    failed: Mutex<Option<OsdError>>,
    ending: Ending,
}

/// The addresses of this process.
fn addrs_of(listen: &Listen) -> Addrs {
    let mut nonce = [0; 4];
    auth::Random::fill(&OsRandom, &mut nonce);
    // Never 0, and different at every start, so that peers can't take this process for an earlier one.
    let nonce = u32::from_le_bytes(nonce).max(1);
    let addr = |a: SocketAddr| EntityAddr::msgr2(a, nonce);
    Addrs {
        public: net::modes::announced(addr(listen.public), listen.legacy),
        cluster: AddrVec(listen.cluster.iter().copied().map(addr).collect()),
        hb_back: addr(listen.hb_back).into(),
        hb_front: addr(listen.hb_front).into(),
    }
}

/// Runs an OSD until SIGTERM, SIGINT or the end of standard input (if supervised). Error: the reason why the OSD did
/// not start or ended on its own.
pub fn run(mut o: OsdOptions) -> Result<(), OsdError> {
    bind(&mut o);
    let modes = modes(&o)?;
    let err = device_error(&o.device.path);
    let file = disk::open(&o.device.path).map_err(|e| err(e.to_string()))?;
    if o.device.grow_at_start {
        grow_at_start(&file).map_err(|e| err(e.to_string()))?;
    }
    has_room(&file, &o)?;
    // Only a file has holes. Discarding makes new ones.
    let fills = file.room().is_some() && disk::free_space(&o.device.path).is_ok_and(|free| free >= FREE_TO_FILL);
    let mut stores = stores_of(&o, &file, fills)?;
    let n = stores.len();
    let listen = Listen::choose(o.ports, o.public_ip, o.cluster_ip, n, o.msgr1)
        .map_err(|(what, source)| OsdError::Network { what, source })?;
    let addrs = addrs_of(&listen);
    let mailboxes = (0..n).map(|_| mailbox::channel(route::REACTOR_QUEUE_MAX));
    let (tx, rx): (Vec<_>, Vec<_>) = mailboxes.map(|(t, r)| (t, Some(r))).unzip();
    let (control, control_rx) = mailbox::channel(route::CONTROL_QUEUE_MAX);
    tracing::info!(
        osd = o.whoami.0, reactors = n, block = %o.device.path.display(), bytes = file.bytes(), public = %addrs.public,
        "starting"
    );
    let drive = |s: &mut Store| store::engine::device::drive(s, &mut SyncDevice::new(file.clone()));
    let common = Common::survey(o.whoami, &mut stores, drive);
    let start = Arc::new(Start {
        modes,
        common,
        listen,
        addrs,
        stores: Mutex::new(stores.into_iter().map(Some).collect()),
        receivers: Mutex::new(rx),
        control_rx: Mutex::new(Some(control_rx)),
        fills: fills.then(|| Fills::start(file.clone(), FREE_TO_FILL, tx.clone())).flatten(),
        file,
        routes: Routes { reactors: tx, control },
        failed: Mutex::new(None),
        ending: Ending::watch().map_err(|source| OsdError::Network { what: "signals".into(), source })?,
        options: o,
    });
    let s = start.clone();
    let stopper: Arc<std::sync::OnceLock<reactor::runtime::Stopper>> = Arc::default();
    let stop = stopper.clone();
    let reactors = Reactors::start_awake(n, "osd", start.options.busy_poll, move |cx| {
        let (s, stop) = (s.clone(), stop.clone());
        async move {
            if let Err(e) = reactor_main(&cx, &s, &stop).await {
                tracing::error!("{e}");
                if let Ok(mut f) = s.failed.lock() {
                    f.get_or_insert(e);
                }
                s.ending.arm();
                if let Some(st) = stop.get() {
                    st.stop();
                }
            }
        }
    })
    .map_err(|source| OsdError::Network { what: "reactors".into(), source })?;
    // The reactors wait for this before they end.
    let _ = stopper.set(reactors.stopper());
    reactors.join()?;
    let failed = start.failed.lock().ok().and_then(|mut f| f.take());
    failed.map_or(Ok(()), Err)
}

/// Binds this thread to the node of the options. All threads of the OSD are started by it, and the stores are opened by
/// it. Without a usable node the OSD runs where the system lets it, and health tells why.
fn bind(o: &mut OsdOptions) {
    match bound(o) {
        Ok(None) => {}
        Ok(Some(error)) => tracing::warn!(
            osd = o.whoami.0, %error,
            "osd_numa_node: the system does not let this process prefer memory of the node; only its threads are bound"
        ),
        Err(why) => {
            tracing::warn!(osd = o.whoami.0, "{why}; the OSD runs on all nodes until the option is right at a start");
            o.numa = Err(why);
        }
    }
}

/// Binds this thread; returns the error of preferring memory, if there was one. Error: the reason why no node is used.
fn bound(o: &OsdOptions) -> Result<Option<std::io::Error>, String> {
    let Some(node) = o.numa.as_ref().map_err(Clone::clone)? else { return Ok(None) };
    let memory = node.bind().map_err(|e| format!("osd_numa_node: {e}"))?;
    tracing::info!(osd = o.whoami.0, node = node.number, cpus = %node.cpus, "bound to a NUMA node");
    Ok(memory)
}

fn take<T>(m: &Mutex<Vec<Option<T>>>, i: usize) -> Option<T> {
    m.lock().ok()?.get_mut(i)?.take()
}

fn endpoint_config(s: &Start, addrs: &AddrVec, service: &Rc<ServiceHost>) -> EndpointConfig {
    EndpointConfig {
        kind: EntityKind::OSD,
        num: s.options.whoami.0.into(),
        addrs: addrs.clone(),
        policies: s.modes.apply(EntityKind::OSD, policies()),
        auth_host: Some(service.clone()),
        auth_client: None,
        limits: Limits::default(),
    }
}

/// Configuration of connections that we open: without addresses, as this endpoint never listens.
fn connecting_config(s: &Start, auth: &Rc<RefCell<auth::Client>>, addrs: AddrVec) -> EndpointConfig {
    EndpointConfig {
        kind: EntityKind::OSD,
        num: s.options.whoami.0.into(),
        addrs,
        policies: s.modes.apply(EntityKind::OSD, policies().with(EntityKind::OSD, Policy::lossy_client(Vec::new()))),
        auth_host: None,
        auth_client: Some(auth.clone()),
        limits: Limits::default(),
    }
}

/// Configuration of sessions with other OSDs, which survive their sockets: with the address of one reactor.
fn cluster_config(
    s: &Start,
    index: usize,
    service: &Rc<ServiceHost>,
    auth: &Rc<RefCell<auth::Client>>,
) -> EndpointConfig {
    let addr = s.addrs.cluster.0.get(index).copied().unwrap_or_default();
    EndpointConfig {
        kind: EntityKind::OSD,
        num: s.options.whoami.0.into(),
        addrs: addr.into(),
        // A peer that lost the session says so. The PGs are then told, instead of the peer getting messages it
        // may have had.
        policies: s.modes.apply(
            EntityKind::OSD,
            policies().with(EntityKind::OSD, Policy { reset_check: true, ..Policy::lossless_peer(Vec::new()) }),
        ),
        auth_host: Some(service.clone()),
        auth_client: Some(auth.clone()),
        limits: Limits { backoff_max: PEER_BACKOFF_MAX, ..Limits::default() },
    }
}

fn auth_client(o: &OsdOptions) -> Rc<RefCell<auth::Client>> {
    let name = base::AuthName { kind: EntityKind::OSD, id: o.whoami.0.to_string() };
    Rc::new(RefCell::new(match &o.key {
        Some(k) => auth::Client::cephx(name, k.clone()),
        None => auth::Client::none(name),
    }))
}

async fn reactor_main(
    cx: &reactor::runtime::Context,
    s: &Arc<Start>,
    stop: &std::sync::OnceLock<reactor::runtime::Stopper>,
) -> Result<(), OsdError> {
    let o = &s.options;
    let (Some(store), Some(rx)) = (take(&s.stores, cx.index), take(&s.receivers, cx.index)) else {
        return Err(OsdError::Store(format!("no store for reactor {}", cx.index)));
    };
    let disk =
        Disk::new(s.file.clone(), o.device.no_io_uring).map_err(|e| device_error(&o.device.path)(e.to_string()))?;
    let net = Net::new();
    let service = Rc::new(ServiceHost::new(EntityKind::OSD, o.methods.clone()).of_cluster(o.fsid));
    let index = cx.index;
    let mut seed = [0; 8];
    auth::Random::fill(&OsRandom, &mut seed);
    let seed = u64::from_le_bytes(seed);
    let auth = auth_client(o);
    let core = s.common.reactor(index, store, seed, s.addrs.public.clone(), o.move_pgs, o.device.timeout);
    let host = ReactorHost::start(reactor_host::Parts {
        net: net.clone(),
        core,
        disk,
        device: s.file.clone(),
        fills: s.fills.clone(),
        routes: s.routes.clone(),
        service: service.clone(),
        public: endpoint_config(s, &s.addrs.public, &service),
        cluster: cluster_config(s, index, &service, &auth),
        auth: auth.clone(),
        release_memory: o.release_memory,
        limits: room_limits(o),
        discard: o.device.discard,
    });
    tokio::task::spawn_local(reactor_host::mailbox(host.clone(), rx));
    if let Some(at) = s.listen.cluster.get(index).copied() {
        // Without the secrets no peer can be authenticated; until they arrive, peers wait for an answer.
        s.listen
            .take(at)
            .and_then(|l| host.listen_to_peers(l, !service.need_fetch(reactor::clock::now().wall)))
            .map_err(|source| OsdError::Network { what: format!("listening on {at}"), source })?;
    }
    if index == 0 {
        let start = start_control(s, &net, &host, service, auth, seed);
        if !control_main(s, &host, stop, start).await? {
            return Ok(());
        }
    }
    cx.stopped().await;
    rest(&host).await;
    Ok(())
}

/// Runs the control machine, which the first reactor has, until the OSD stops. False if it was told to stop before it
/// served.
async fn control_main(
    s: &Start,
    host: &Rc<ReactorHost>,
    stop: &std::sync::OnceLock<reactor::runtime::Stopper>,
    start: impl Future<Output = Result<Rc<ControlHost>, OsdError>>,
) -> Result<bool, OsdError> {
    let stop_all = || {
        if let Some(st) = stop.get() {
            st.stop();
        }
    };
    let control = tokio::select! {
        c = start => c?,
        // The OSD does not serve yet, and the device may not answer.
        () = s.ending.told() => {
            host.let_go();
            stop_all();
            return Ok(false);
        }
    };
    until_told_to_stop(s.options.supervised, &s.ending, &control).await;
    tracing::info!(osd = s.options.whoami.0, "stopping");
    control.stop();
    control.finished().await;
    stop_all();
    if let Some(why) = control.store_failure() {
        host.let_go();
        return Err(OsdError::StoreFailed(why));
    }
    if let Some(why) = control.exit_reason() {
        rest(host).await;
        return Err(OsdError::Excluded(why));
    }
    Ok(true)
}

/// Waits until the store has no request in flight, so that the next start replays little.
async fn rest(host: &Rc<ReactorHost>) {
    let done = async {
        while !host.is_idle() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    if tokio::time::timeout(REST_MAX, done).await.is_err() {
        tracing::warn!("the store did not come to rest; the next start replays its log");
    }
    // A store at rest has no request in flight.
    host.let_go();
}

async fn until_told_to_stop(supervised: bool, ending: &Ending, control: &Rc<ControlHost>) {
    let parent = async {
        if !supervised {
            return std::future::pending().await;
        }
        reactor::parent::stdin_ended().await;
    };
    tokio::select! {
        () = ending.told() => {}
        () = parent => {}
        () = control.finished() => {}
    }
}

/// This OSD as it tells the monitors when it boots.
fn identity(s: &Start, osd_fsid: Uuid) -> Identity {
    let o = &s.options;
    let place = || vec![format!("host={}", about::hostname()), "root=default".to_owned()];
    Identity {
        whoami: o.whoami,
        fsid: o.fsid,
        osd_fsid,
        addrs: s.addrs.clone(),
        hostname: about::hostname(),
        crush_weight: s.file.bytes() as f64 / (1u64 << 40) as f64,
        device_class: o.crush.device_class.clone().unwrap_or_else(|| s.file.device_class().to_owned()),
        crush_update_on_start: o.crush.update_on_start,
        peer_features: PeerFeatures::OURS,
        crush_location: o.crush.location.clone().unwrap_or_else(place),
        metadata: about::metadata(s),
    }
}

async fn start_control(
    s: &Arc<Start>,
    net: &Net,
    host: &Rc<ReactorHost>,
    service: Rc<ServiceHost>,
    auth: Rc<RefCell<auth::Client>>,
    seed: u64,
) -> Result<Rc<ControlHost>, OsdError> {
    let o = &s.options;
    let loaded = host.read(|store, tag| mapstore::load(store, tag, o.fsid)).await;
    let loaded = loaded.unwrap_or_else(|e| Err(format!("superblock and maps: {e:?}")));
    let (sb, maps, stored) = loaded.map_err(OsdError::Store)?;
    if sb.whoami != o.whoami {
        return Err(OsdError::Store(format!("the store belongs to {}, not {}", sb.whoami, o.whoami)));
    }
    let mon = MonSession::new(o.mons.clone(), seed, about::hostname()).of_cluster(Some(o.fsid));
    let core = Control::new(identity(s, sb.osd_fsid), mon, maps, sb, seed);
    let feed = core.feed();
    let answering = Rc::new(Answering::default());
    answering.fsid.set(o.fsid);
    let nonce = s.addrs.public.msgr2().map_or(1, |a| a.nonce);
    let unlistening = AddrVec::from(EntityAddr::unlistening(nonce));
    let control = ControlHost::start(control::Parts {
        net: net.clone(),
        core,
        routes: s.routes.clone(),
        auth: auth.clone(),
        keyring: o.keyring.clone(),
        service: service.clone(),
        answering: answering.clone(),
        stored,
        reactor: host.clone(),
        device: s.file.clone(),
        device_name: o.device.path.display().to_string(),
        ending: s.ending.clone(),
        reserver: s.common.reserver().clone(),
        scrubs: s.common.scrubs().clone(),
        rotates: s.file.device_class() == "hdd",
        memory: o.memory,
        shown: o.shown.clone(),
        public: connecting_config(s, &auth, s.addrs.public.clone()),
        anonymous: [connecting_config(s, &auth, unlistening.clone()), connecting_config(s, &auth, unlistening)],
    });
    let rx = s.control_rx.lock().ok().and_then(|mut r| r.take());
    if let Some(rx) = rx {
        tokio::task::spawn_local(control_mailbox(control.clone(), rx));
    }
    s.routes.inputs(|| Input::Load(feed.clone()));
    listen(s, net, host, &service, &answering, &control)?;
    if let Some(path) = &o.admin_socket {
        match commands::serve(&control, path) {
            Ok(a) => control.keep(a),
            Err(error) => tracing::warn!(path = %path.display(), %error, "no admin socket"),
        }
    }
    Ok(control)
}

async fn control_mailbox(c: Rc<ControlHost>, mut rx: mailbox::Receiver<ToControl>) {
    let mut batch = VecDeque::new();
    while rx.recv_batch(&mut batch).await {
        for item in batch.drain(..) {
            c.handle(item);
        }
    }
}

/// Opens the public and the heartbeat addresses. Client connections are distributed over the reactors;
/// heartbeats stay here, on their own endpoints.
fn listen(
    s: &Arc<Start>,
    net: &Net,
    host: &Rc<ReactorHost>,
    service: &Rc<ServiceHost>,
    answering: &Rc<Answering>,
    control: &Rc<ControlHost>,
) -> Result<(), OsdError> {
    let Listen { public, legacy, hb_back: back, hb_front: front, .. } = s.listen;
    let failed = |at: SocketAddr| move |source| OsdError::Network { what: format!("listening on {at}"), source };
    if let Some(ep) = host.endpoint() {
        for (at, protocol) in [(Some(public), Protocol::V2), (legacy, Protocol::V1)] {
            let Some(at) = at else { continue };
            let (routes, mut next) = (s.routes.clone(), 0);
            let adopt = move |stream, _| {
                routes.reactor(next % routes.reactors.len(), ToReactor::Adopt(stream));
                next += 1;
            };
            s.listen.take(at).and_then(|l| ep.listen_on_with(l, protocol, adopt)).map_err(failed(at))?;
        }
    }
    let answerer: Rc<dyn Handler> = Rc::new(Answerer { net: net.clone(), me: answering.clone() });
    for (at, addrs) in [(back, &s.addrs.hb_back), (front, &s.addrs.hb_front)] {
        let ep = net.endpoint(endpoint_config(s, addrs, service), answerer.clone());
        s.listen.take(at).and_then(|l| ep.listen_on(l, Protocol::V2)).map_err(failed(at))?;
        control.listens(ep);
    }
    Ok(())
}
