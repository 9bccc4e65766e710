//! A client on a reactor: sockets, tickets and timers around the pure cores.
//!
//! [`Client`] signs in at a monitor, follows the maps, runs commands and operations. [`objecter`] is the part of it that
//! talks to OSDs; the OSD itself uses that part for reading the source of a copy.

pub mod objecter;
mod session;

use crate::core::objecter::{Request, What};
use base::errno::Errno;
use base::{AuthName, EntityAddr, HObject, PgId, PoolId, SnapId, Utime};
use bytes::Bytes;
use cluster::OsdMap;
use session::Session;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use wire::msg::{MOsdOpReply, NotifyReply, OpCode, OpVec, OsdOp};
use wire::types::{ObjectLocator, SnapContext};
use wire::{Decode as _, Encode as _, Features, Reader};

/// How to reach a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// Monitors to try.
    pub mons: Vec<EntityAddr>,
    /// Name to sign in with.
    pub name: AuthName,
    /// Its key; `None` signs in without proof.
    pub key: Option<auth::CryptoKey>,
    /// The cluster, if the configuration names it: no other one is taken.
    pub fsid: Option<base::Uuid>,
    /// How long connecting may take.
    pub timeout: Duration,
    /// Connection modes to offer (`ms_client_mode`, `ms_mon_client_mode`).
    pub modes: net::modes::Modes,
}

/// Why something failed before an answer came.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// No monitor answered in time; the last thing that went wrong.
    #[error("no monitor reached within {0:?}: {1}")]
    NoMonitor(Duration, String),
    /// The monitor refused us.
    #[error("{0}")]
    Auth(String),
    /// No such pool.
    #[error("no pool named {0}")]
    NoPool(String),
    /// The operation could not be sent.
    #[error("{}", base::errno::name(*.0))]
    Errno(Errno),
    /// An answer that cannot be understood.
    #[error("answer not understood: {0}")]
    Decode(#[from] wire::DecodeError),
    /// The client was closed.
    #[error("client closed")]
    Closed,
}

/// Answer to a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandReply {
    /// Zero or positive, or a negative errno.
    pub rc: i32,
    /// Status line.
    pub status: String,
    /// Output.
    pub out: Bytes,
}

/// An object of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRef {
    /// Pool, namespace, key.
    pub locator: ObjectLocator,
    /// Name.
    pub oid: Bytes,
}

impl ObjectRef {
    /// In the default namespace.
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
    /// Name.
    pub oid: Bytes,
    /// Locator key.
    pub key: Bytes,
}

/// A connected client. Clones share the session.
#[derive(Clone)]
pub struct Client {
    session: Rc<Session>,
}

impl Client {
    /// Signs in. Needs a reactor around.
    pub async fn connect(o: Options) -> Result<Self, ClientError> {
        let limit = o.timeout;
        let session = Session::start(o);
        match tokio::time::timeout(limit, session.ready()).await {
            Ok(r) => r?,
            Err(_) => return Err(ClientError::NoMonitor(limit, session.last_error())),
        }
        Ok(Self { session })
    }

    /// Key and tickets, kept fresh by this client: for connections of other endpoints under its name.
    #[must_use]
    pub fn credentials(&self) -> Rc<RefCell<auth::Client>> {
        self.session.credentials()
    }

    /// Runs a monitor command given as JSON text.
    pub async fn mon_command(&self, json: &str, input: Bytes) -> Result<CommandReply, ClientError> {
        self.session.command(json, input).await
    }

    /// The newest OSD map this client has; waits for the first.
    pub async fn osdmap(&self) -> Result<Arc<OsdMap>, ClientError> {
        self.session.map().await
    }

    /// The number of a pool, asking for a newer map if the name is not in ours.
    pub async fn pool(&self, name: &str) -> Result<PoolId, ClientError> {
        if let Some(p) = self.osdmap().await?.pool_by_name(name) {
            return Ok(p);
        }
        self.session.newest_map().await?.pool_by_name(name).ok_or_else(|| ClientError::NoPool(name.to_owned()))
    }

    /// What writes to a pool must be aligned to, if they may only append (`PgPool::required_alignment`).
    pub async fn required_alignment(&self, pool: PoolId) -> Result<Option<u64>, ClientError> {
        Ok(self.osdmap().await?.pool(pool).and_then(|p| p.required_alignment()))
    }

    /// Runs operations on an object; their errors are in the reply.
    pub async fn op(&self, obj: &ObjectRef, ops: Vec<OsdOp>) -> Result<MOsdOpReply, ClientError> {
        let what = What::Object { locator: obj.locator.clone(), oid: obj.oid.clone() };
        self.run(what, ops.into_iter().collect()).await
    }

    /// The same, reading as of a snapshot.
    pub async fn op_at(&self, obj: &ObjectRef, ops: Vec<OsdOp>, snapid: SnapId) -> Result<MOsdOpReply, ClientError> {
        let what = What::Object { locator: obj.locator.clone(), oid: obj.oid.clone() };
        let ops = ops.into_iter().collect();
        let req = Request { what, ops, flags: 0, snapid, snapc: SnapContext::default(), mtime: wall() };
        Ok(*self.session.op(req).await?)
    }

    /// The same, writing what the snapshots of `snapc` are kept from.
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

    /// Notifies those who watch an object and waits until all have answered or `seconds` are over: what they answered, and
    /// who did not.
    pub async fn notify(&self, obj: &ObjectRef, payload: &[u8], seconds: u32) -> Result<NotifyReply, ClientError> {
        let what = What::Object { locator: obj.locator.clone(), oid: obj.oid.clone() };
        let done = self.session.notify(what, payload, seconds).await?;
        if done.data.is_empty() {
            return Ok(NotifyReply::default());
        }
        Ok(Reader::shared(&done.data).get()?)
    }

    /// The id of a new self-managed snapshot.
    pub async fn create_snap(&self, pool: PoolId) -> Result<SnapId, ClientError> {
        let data = self.session.unmanaged_snap(pool, None).await?;
        Ok(Reader::shared(&data).get()?)
    }

    /// Ends a self-managed snapshot: what only it shows is removed in the background.
    pub async fn remove_snap(&self, pool: PoolId, snap: SnapId) -> Result<(), ClientError> {
        self.session.unmanaged_snap(pool, Some(snap)).await.map(|_| ())
    }

    /// Lists a pool from `cursor` on, in order of hashes: entries, and where to go on. PGs may be split and joined between two calls: who has
    /// the place is asked.
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
            // It has just been joined to another one.
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
        // A PG that has just been split ends before the place: who has it now goes on from there.
        Ok((list, (!next.max).then(|| next.max(cursor.clone()))))
    }
}

fn wall() -> Utime {
    Utime::from_unix(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default())
}
