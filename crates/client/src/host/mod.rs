//! A client on a reactor: sockets, tickets and timers around the pure cores.
//!
//! [`Client`] authenticates to a monitor, follows the maps, and runs commands and operations. [`objecter`] is its part
//! that talks to OSDs; the OSD itself uses that part to read the source of `copy-from`.
//!
//! | module | contents |
//! | --- | --- |
//! | `links` | connections of a core by peer, and callers that wait for its answers |
//! | `mds` | a file system's MDS daemons on a reactor: connections and timers around `Machine` |
//! | `objecter` | connections to OSDs for an `Objecter` |
//! | `session` | one client's sessions: monitor, tickets, maps, and an `ObjecterHost` for the OSDs |
//! | `tell` | commands to daemons (`ceph tell`), each on a connection of its own |

mod links;
pub mod mds;
pub mod objecter;
mod session;
mod tell;

use crate::core::objecter::{Request, What};
use base::errno::Errno;
use base::{AddrVec, AuthName, EntityAddr, EntityKind, HObject, PgId, PoolId, SnapId, Utime};
use bytes::Bytes;
use cluster::OsdMap;
use session::Session;
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use wire::msg::{MOsdOpReply, NotifyReply, OpCode, OpVec, OsdOp};
use wire::types::{ObjectLocator, SnapContext};
use wire::{Decode as _, Encode as _, Features, Reader};

/// Connection options of a client.
#[derive(Clone, Debug)]
pub struct Options {
    /// Addresses of monitors.
    pub mons: Vec<EntityAddr>,
    /// Entity name.
    pub name: AuthName,
    /// Key of the entity; `None` for method none.
    pub key: Option<auth::CryptoKey>,
    /// Cluster id, if the configuration has one: other clusters are refused.
    pub fsid: Option<base::Uuid>,
    /// Time limit for connecting.
    pub timeout: Duration,
    /// Connection modes to offer (`ms_client_mode`, `ms_mon_client_mode`).
    pub modes: net::modes::Modes,
    /// Gets tickets for MDS daemons, too, which [`Client::tell`] needs.
    pub mds: bool,
}

/// Error that prevented an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// No monitor answered in time; with the last error.
    #[error("no monitor reached within {0:?}: {1}")]
    NoMonitor(Duration, String),
    /// The monitor refused authentication.
    #[error("{0}")]
    Auth(String),
    /// The pool does not exist.
    #[error("no pool named {0}")]
    NoPool(String),
    /// The operation could not be sent.
    #[error("{}", base::errno::name(*.0))]
    Errno(Errno),
    /// An answer cannot be decoded.
    #[error("the answer cannot be decoded: {0}")]
    Decode(#[from] wire::DecodeError),
    /// The client was closed.
    #[error("client closed")]
    Closed,
}

/// Answer to a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandReply {
    /// Zero or positive for success, or a negative errno.
    pub rc: i32,
    /// Status line.
    pub status: String,
    /// Output.
    pub out: Bytes,
}

/// An object of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRef {
    /// Pool, namespace and locator key.
    pub locator: ObjectLocator,
    /// Name of the object.
    pub oid: Bytes,
}

impl ObjectRef {
    /// An object in the default namespace.
    #[must_use]
    pub fn new(pool: PoolId, name: &str) -> Self {
        Self { locator: ObjectLocator::new(pool), oid: Bytes::copy_from_slice(name.as_bytes()) }
    }
}

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Namespace.
    pub nspace: Bytes,
    /// Name of the object.
    pub oid: Bytes,
    /// Locator key.
    pub key: Bytes,
}

/// A connected client. Clones share the session.
#[derive(Clone)]
pub struct Client {
    session: Rc<Session>,
}

/// A client that this handle does not keep open.
#[derive(Clone)]
pub struct WeakClient {
    session: Weak<Session>,
}

impl WeakClient {
    /// The client; `None` after its last clone was dropped.
    #[must_use]
    pub fn upgrade(&self) -> Option<Client> {
        self.session.upgrade().map(|session| Client { session })
    }
}

impl Client {
    /// Connects and authenticates to a monitor. Must run on a reactor. Error: [`ClientError::Auth`] if the monitor
    /// refuses authentication, [`ClientError::NoMonitor`] if none answers within the time limit of `o`.
    pub async fn connect(o: Options) -> Result<Self, ClientError> {
        let limit = o.timeout;
        let session = Session::start(o);
        match tokio::time::timeout(limit, session.ready()).await {
            Ok(r) => r?,
            Err(_) => return Err(ClientError::NoMonitor(limit, session.last_error())),
        }
        Ok(Self { session })
    }

    /// Key and tickets, which this client renews, for other endpoints of the same entity.
    #[must_use]
    pub fn credentials(&self) -> Rc<RefCell<auth::Client>> {
        self.session.credentials()
    }

    /// True if the newest OSD map has an address of this client in its blocklist. OSDs then refuse all its operations,
    /// and only a new client can work on.
    #[must_use]
    pub fn is_blocklisted(&self) -> bool {
        self.session.is_blocklisted()
    }

    /// The addresses that this client announces to all servers; a blocklist names them.
    #[must_use]
    pub fn addrs(&self) -> AddrVec {
        self.session.addrs()
    }

    /// True if `other` is this client or a clone of it.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.session, &other.session)
    }

    /// This client for as long as a clone of it exists elsewhere.
    #[must_use]
    pub fn downgrade(&self) -> WeakClient {
        WeakClient { session: Rc::downgrade(&self.session) }
    }

    /// Runs a monitor command given as JSON text. Error: [`ClientError::Closed`]; a refusal is in the reply.
    pub async fn mon_command(&self, json: &str, input: Bytes) -> Result<CommandReply, ClientError> {
        self.session.command(json, input).await
    }

    /// Runs a command given as JSON text at a daemon, as `ceph tell` does, on a connection of its own.
    ///
    /// # Errors
    /// [`ClientError::Closed`] if the connection ends before the answer. There is no time limit.
    pub async fn tell(&self, kind: EntityKind, addr: EntityAddr, json: &str) -> Result<CommandReply, ClientError> {
        self.session.tell(kind, addr, json).await
    }

    /// Makes an endpoint for connections to MDS daemons; [`Options::mds`] must be set.
    pub(crate) fn mds_endpoint(&self, handler: Rc<dyn net::Handler>) -> (net::Net, net::Endpoint) {
        self.session.mds_endpoint(handler)
    }

    /// Runs a command given as JSON text at a manager, on a connection of its own.
    ///
    /// # Errors
    /// [`ClientError::Closed`] if the connection ends before the answer. There is no time limit.
    pub async fn mgr_command(&self, addr: EntityAddr, json: &str, input: Bytes) -> Result<CommandReply, ClientError> {
        self.session.mgr_command(addr, json, input).await
    }

    /// This client's newest OSD map; waits for the first one.
    ///
    /// # Errors
    /// [`ClientError::Closed`] if the client was closed before the first map.
    pub async fn osdmap(&self) -> Result<Arc<OsdMap>, ClientError> {
        self.session.map().await
    }

    /// Id of a pool; fetches a newer map if the name is unknown. Error: [`ClientError::NoPool`] if the newest map has
    /// no such pool, or [`ClientError::Closed`].
    pub async fn pool(&self, name: &str) -> Result<PoolId, ClientError> {
        if let Some(p) = self.osdmap().await?.pool_by_name(name) {
            return Ok(p);
        }
        self.session.newest_map().await?.pool_by_name(name).ok_or_else(|| ClientError::NoPool(name.to_owned()))
    }

    /// Required alignment of writes to an append-only pool (`PgPool::required_alignment`), in bytes. `None` for other
    /// pools, and for a pool that the map does not have.
    ///
    /// # Errors
    /// As [`Self::osdmap`].
    pub async fn required_alignment(&self, pool: PoolId) -> Result<Option<u64>, ClientError> {
        Ok(self.osdmap().await?.pool(pool).and_then(|p| p.required_alignment()))
    }

    /// Runs operations on an object; their errors are in the reply. Error: [`ClientError::Errno`] if they could not be
    /// sent, or [`ClientError::Closed`].
    pub async fn op(&self, obj: &ObjectRef, ops: Vec<OsdOp>) -> Result<MOsdOpReply, ClientError> {
        let what = What::Object { locator: obj.locator.clone(), oid: obj.oid.clone() };
        self.run(what, ops.into_iter().collect()).await
    }

    /// Runs operations on an object at a snapshot. Their errors are in the reply. Error: [`ClientError::Errno`] if they
    /// could not be sent, or [`ClientError::Closed`].
    pub async fn op_at(&self, obj: &ObjectRef, ops: Vec<OsdOp>, snapid: SnapId) -> Result<MOsdOpReply, ClientError> {
        let what = What::Object { locator: obj.locator.clone(), oid: obj.oid.clone() };
        let ops = ops.into_iter().collect();
        let req = Request { what, ops, flags: 0, snapid, snapc: SnapContext::default(), mtime: wall() };
        Ok(*self.session.op(req).await?)
    }

    /// Runs operations on an object with the snapshot context `snapc`. Their errors are in the reply. Error:
    /// [`ClientError::Errno`] if they could not be sent, or [`ClientError::Closed`].
    pub async fn op_in(
        &self,
        obj: &ObjectRef,
        ops: Vec<OsdOp>,
        snapc: SnapContext,
    ) -> Result<MOsdOpReply, ClientError> {
        let what = What::Object { locator: obj.locator.clone(), oid: obj.oid.clone() };
        let ops = ops.into_iter().collect();
        let req = Request { what, ops, flags: 0, snapid: SnapId::HEAD, snapc, mtime: wall() };
        Ok(*self.session.op(req).await?)
    }

    async fn run(&self, what: What, ops: OpVec) -> Result<MOsdOpReply, ClientError> {
        let req = Request { what, ops, flags: 0, snapid: SnapId::HEAD, snapc: SnapContext::default(), mtime: wall() };
        Ok(*self.session.op(req).await?)
    }

    /// Notifies the watchers of an object and waits until all have answered or `seconds` have passed; returns their
    /// answers and the watchers that did not answer.
    ///
    /// # Errors
    /// [`ClientError::Errno`] if the OSD refuses the notify or it could not be sent, and with `ETIMEDOUT` if the OSD does
    /// not complete it some seconds after `seconds`; [`ClientError::Decode`] for malformed answers;
    /// [`ClientError::Closed`].
    pub async fn notify(&self, obj: &ObjectRef, payload: &[u8], seconds: u32) -> Result<NotifyReply, ClientError> {
        let what = What::Object { locator: obj.locator.clone(), oid: obj.oid.clone() };
        let done = self.session.notify(what, payload, seconds).await?;
        if done.data.is_empty() {
            return Ok(NotifyReply::default());
        }
        Ok(Reader::shared(&done.data).get()?)
    }

    /// Creates a self-managed snapshot and returns its id. Error: [`ClientError::Errno`] if the monitor refuses,
    /// [`ClientError::Decode`] for a malformed answer, or [`ClientError::Closed`].
    pub async fn create_snap(&self, pool: PoolId) -> Result<SnapId, ClientError> {
        let data = self.session.unmanaged_snap(pool, None).await?;
        Ok(Reader::shared(&data).get()?)
    }

    /// Removes a self-managed snapshot; OSDs trim its clones in the background. Error: [`ClientError::Errno`] if the
    /// monitor refuses, or [`ClientError::Closed`].
    pub async fn remove_snap(&self, pool: PoolId, snap: SnapId) -> Result<(), ClientError> {
        self.session.unmanaged_snap(pool, Some(snap)).await.map(|_| ())
    }

    /// Lists objects of a pool from `cursor` on, in hash order; returns entries and the next cursor. PGs may split and
    /// merge between two calls, so each call asks the PG that has the cursor's position. Error: [`ClientError::Errno`]
    /// if the pool does not exist or the OSD refuses, [`ClientError::Decode`] for a malformed answer, or
    /// [`ClientError::Closed`].
    pub async fn list(
        &self,
        pool: PoolId,
        cursor: &HObject,
        max: u64,
    ) -> Result<(Vec<Listed>, Option<HObject>), ClientError> {
        let map = self.osdmap().await?;
        let raw = PgId { pool, seed: cursor.hash };
        let pg = map.raw_pg_to_pg(raw).ok_or(ClientError::Errno(base::errno::ENOENT))?;
        let mut op = OsdOp::with_indata(OpCode::PGNLS, cursor.to_bytes(Features::PACIFIC));
        op.set_pgls(wire::msg::osd_op::PglsArgs { count: max, start_epoch: map.epoch.0 });
        let r = match self.run(What::Pg { pg, nspace: Bytes::new() }, OpVec::from_iter([op])).await {
            // The PG has just been merged.
            Err(ClientError::Errno(base::errno::ENOENT)) => return Ok((Vec::new(), Some(cursor.clone()))),
            r => r?,
        };
        if r.result < 0 {
            return Err(ClientError::Errno(r.result));
        }
        let data = r.ops.first().map(|o| o.outdata.clone()).unwrap_or_default();
        let (next, list) = Reader::shared(&data).versioned("pg_nls_response_t", 1, |r, _| {
            let next = HObject::decode(r)?;
            let list = r.vec_with("entries", |r| Ok(Listed { nspace: r.blob()?, oid: r.blob()?, key: r.blob()? }))?;
            Ok((next, list))
        })?;
        // A PG that has just split ends before the cursor; the next call asks the PG that has the position now.
        Ok((list, (!next.max).then(|| next.max(cursor.clone()))))
    }
}

fn wall() -> Utime {
    Utime::from_unix(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default())
}
