//! The floor: a server that answers clients' reads and writes with the least work. It takes the place of an OSD in a
//! cluster of the laboratory, so that a table shows how much of an OSD's cost is more than frames and disk.
//!
//! The server does what no OSD can leave out: it receives and sends msgr2 frames with checksums, decodes `MOSDOp`, reads
//! the device, makes writes durable in commits (a block that lists the data, the data side by side behind it, a flush), and
//! with several servers sends each write to all others and waits for their acknowledgement. It has no maps, PGs, logs of
//! PGs, object infos, caches, or checksums on the device, and knows only in memory where the pages of an object lie.
//!
//! Clients find the servers by a monitor, at which each server boots as an OSD. So the same load generator measures all
//! systems.
//!
//! | module | contents |
//! | --- | --- |
//! | `pages` | where the pages of places lie on a server's device |
//! | `place` | places of objects, the same on all servers |
//! | `server` | operations of the floor: reads, writes, commits, and copies on the other servers |

mod pages;
mod place;
mod server;

use auth::server::ServiceHost;
use auth::{Client, ConMode, Method};
use base::buf::PAGE;
use base::id::Uuid;
use base::{AddrVec, AuthName, EntityAddr, EntityKind, OsdId};
use msgr::{Policies, Policy};
use net::{CloseReason, ConnEvent, ConnId, Endpoint, EndpointConfig, Handler, Limits, Net, Target};
use reactor::disk::{self, Disk, DiskError};
use server::Server;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::time::Duration;
use tokio::sync::mpsc;
use wire::msg::MOsdBoot;
use wire::types::OsdSuperblock;
use wire::{Features, WireMessage as _};

/// Pause before a connection is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// Options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of the OSD whose place the server takes.
    pub id: u32,
    /// Addresses of all servers, in the order of their numbers. Each write goes to all of them.
    pub servers: Vec<SocketAddr>,
    /// Address of the monitor.
    pub monitor: SocketAddr,
    /// The cluster's id.
    pub fsid: Uuid,
    /// Id of the OSD, as `osd new` was told.
    pub uuid: Uuid,
    /// File or device for the objects; its contents are destroyed.
    pub file: PathBuf,
    /// Size of a new file.
    pub size: u64,
}

/// Error that ends a server.
#[derive(Debug, thiserror::Error)]
pub enum FloorError {
    /// The file cannot be used.
    #[error("{}: {source}", path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: DiskError,
    },
    /// A read or a write of the device failed.
    #[error("the device: {0}")]
    Io(String),
    /// The number of the server is none of the listed servers.
    #[error("server {id} is none of the {servers} listed servers")]
    Number {
        /// The number.
        id: u32,
        /// Number of listed servers.
        servers: usize,
    },
    /// The file has no room for one object of each server.
    #[error("{0} bytes have no room for objects; expected at least {1}")]
    Small(u64, u64),
    /// Another server is lost, and writes can no longer be acknowledged.
    #[error("the connection to another server: {0}")]
    Peer(String),
    /// The monitor refuses the server.
    #[error("the monitor: {0}")]
    Monitor(String),
    /// A thread or socket could not be made.
    #[error(transparent)]
    System(#[from] std::io::Error),
}

/// Runs a server until it fails.
///
/// # Errors
/// [`FloorError`]; a server that does not fail never returns.
pub fn run(o: Options) -> Result<(), FloorError> {
    reactor::runtime::run_here(|_, _| async move { serve(&o).await })?
}

async fn serve(o: &Options) -> Result<(), FloorError> {
    let here = o.servers.get(o.id as usize).copied();
    let here = here.ok_or(FloorError::Number { id: o.id, servers: o.servers.len() })?;
    let failed = |source| FloorError::Disk { path: o.file.clone(), source };
    let file = disk::prepare(&o.file, Some(o.size), true).map_err(failed)?;
    // The first page stands for all that were never written.
    let zeros = base::buf::AlignedBuf::zeroed(PAGE).freeze();
    file.write(0, &[zeros]).map_err(|e| FloorError::Io(base::errno::name(e).into()))?;
    let pages = pages::Pages::new(file.bytes());
    let (bytes, least) = (pages.for_places(), crate::plan::keys::FLOOR_OBJECT_MAX * o.servers.len() as u64);
    if bytes < least {
        return Err(FloorError::Small(bytes, least));
    }
    let places = place::Places::new(bytes, u64::from(o.id), o.servers.len() as u64);
    let disk = Rc::new(Disk::new(file, false)?);
    let net = Net::new();
    let (failures, mut ended) = mpsc::unbounded_channel();
    let server = Server::new(&net, disk.clone(), places, pages, failures.clone());
    let serving = net.endpoint(config(o, Policy::lossy_server(vec![ConMode::CRC]), true), server.clone());
    serving.set_auto_consume(false);
    serving.listen(here)?;
    let links = Rc::new_cyclic(|me| Links {
        me: me.clone(),
        server,
        net: net.clone(),
        endpoint: RefCell::default(),
        monitor: Cell::default(),
        peers: RefCell::default(),
        options: o.clone(),
        failures,
    });
    let asking = net.endpoint(config(o, Policy::lossy_client(vec![ConMode::CRC]), false), links.clone());
    *links.endpoint.borrow_mut() = Some(asking);
    for id in (0..o.servers.len()).filter(|id| *id != o.id as usize) {
        links.connect(id);
    }
    links.boot_if_complete();
    let mut done = Vec::new();
    loop {
        tokio::select! {
            () = disk.ready() => {
                disk.poll(&mut done);
                for c in done.drain(..) {
                    links.server.completed(c)?;
                }
            }
            // The channel has a sender as long as `links` exists.
            Some(e) = ended.recv() => return Err(e),
        }
    }
}

fn address(id: usize, at: SocketAddr) -> EntityAddr {
    EntityAddr::msgr2(at, id as u32 + 1)
}

fn own_addrs(o: &Options) -> AddrVec {
    let at = o.servers.get(o.id as usize).map(|at| address(o.id as usize, *at));
    at.map_or_else(AddrVec::default, Into::into)
}

fn config(o: &Options, policy: Policy, serves: bool) -> EndpointConfig {
    let name = AuthName { kind: EntityKind::OSD, id: o.id.to_string() };
    EndpointConfig {
        kind: EntityKind::OSD,
        num: o.id.into(),
        addrs: own_addrs(o),
        policies: Policies::uniform(policy),
        auth_host: serves.then(|| Rc::new(ServiceHost::new(EntityKind::OSD, vec![Method::NONE])) as Rc<_>),
        auth_client: (!serves).then(|| Rc::new(RefCell::new(Client::none(name)))),
        limits: Limits::default(),
    }
}

/// Connections to the other servers and to the monitor.
struct Links {
    me: Weak<Self>,
    server: Rc<Server>,
    net: Net,
    endpoint: RefCell<Option<Endpoint>>,
    monitor: Cell<Option<ConnId>>,
    /// Connections to the other servers: the server's number, and whether it is open.
    peers: RefCell<BTreeMap<ConnId, (usize, bool)>>,
    options: Options,
    failures: mpsc::UnboundedSender<FloorError>,
}

impl Handler for Links {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        if self.monitor.get() == Some(conn) {
            match event {
                ConnEvent::Open(_) => self.boot(conn),
                // Maps and commands are for OSDs.
                ConnEvent::Message(_) => {}
                ConnEvent::Closed(why @ CloseReason::Auth { .. }) => {
                    // The receiver is gone only when the server ends anyway.
                    let _ = self.failures.send(FloorError::Monitor(why.to_string()));
                }
                ConnEvent::Closed(_) => self.later(None),
            }
            return;
        }
        match event {
            ConnEvent::Open(_) => {
                if let Some((_, open)) = self.peers.borrow_mut().get_mut(&conn) {
                    *open = true;
                }
                self.boot_if_complete();
            }
            ConnEvent::Message(m) => self.server.acknowledged(&m),
            ConnEvent::Closed(why) => match self.peers.borrow_mut().remove(&conn) {
                // The receiver is gone only when the server ends anyway.
                Some((_, true)) => drop(self.failures.send(FloorError::Peer(why.to_string()))),
                Some((id, false)) => self.later(Some(id)),
                None => {}
            },
        }
    }
}

impl Links {
    fn dial(&self, kind: EntityKind, addr: EntityAddr) -> Option<ConnId> {
        Some(self.endpoint.borrow().as_ref()?.connect(Target::new(kind, addr)))
    }

    fn connect(&self, id: usize) {
        let Some(at) = self.options.servers.get(id) else { return };
        if let Some(c) = self.dial(EntityKind::OSD, address(id, *at)) {
            self.peers.borrow_mut().insert(c, (id, false));
        }
    }

    /// Connects again after a pause: to a server, or to the monitor.
    fn later(&self, id: Option<usize>) {
        let me = self.me.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(RETRY).await;
            if let Some(me) = me.upgrade() {
                match id {
                    Some(id) => me.connect(id),
                    None => me.find_monitor(),
                }
            }
        });
    }

    fn boot_if_complete(&self) {
        let open: Vec<ConnId> = self.peers.borrow().iter().filter(|(_, (_, open))| *open).map(|(c, _)| *c).collect();
        if open.len() + 1 == self.options.servers.len() && self.monitor.get().is_none() {
            self.server.set_peers(open);
            self.find_monitor();
        }
    }

    fn find_monitor(&self) {
        self.monitor.set(self.dial(EntityKind::MON, EntityAddr::msgr2(self.options.monitor, 0)));
    }

    fn boot(&self, conn: ConnId) {
        let o = &self.options;
        let addrs = own_addrs(o);
        let boot = MOsdBoot {
            sb: OsdSuperblock {
                cluster_fsid: o.fsid,
                osd_fsid: o.uuid,
                whoami: OsdId(o.id as i32),
                ..OsdSuperblock::default()
            },
            hb_back_addrs: addrs.clone(),
            cluster_addrs: addrs.clone(),
            hb_front_addrs: addrs,
            osd_features: Features::PACIFIC.0,
            ..MOsdBoot::default()
        };
        // A monitor that has gone is found again, and told again.
        let _ = self.net.send(conn, boot.to_message(Features::PACIFIC));
    }
}
