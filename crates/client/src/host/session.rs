//! One client's sessions: monitor, tickets, maps, and an [`ObjecterHost`] for the OSDs.

use super::objecter::{ObjecterHost, Unasked};
use super::tell;
use super::{ClientError, CommandReply, Options};
use crate::core::maps;
use crate::core::mon::{Event, MonSession, Output};
use crate::core::objecter::{Request, What};
use base::{AddrVec, EntityAddr, EntityKind, PoolId, SnapId};
use bytes::Bytes;
use cluster::OsdMap;
use net::{CloseReason, ConnEvent, ConnId, Endpoint, EndpointConfig, Handler, Limits, Net, OsRandom, Target};
use reactor::clock;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use wire::msg::{
    MAuth, MAuthReply, MOsdMap, MOsdOpReply, MPoolOpReply, MWatchNotify, OpCode, OpVec, OsdOp, watch_event,
};
use wire::types::SnapContext;
use wire::{Message, WireMessage as _};

/// Interval at which ticket expiry is checked.
const TICKET_CHECK: Duration = Duration::from_secs(30);
/// Seconds beyond a notify's timeout to wait for its completion.
const NOTIFY_GRACE: u64 = 5;
/// cephx in the protocol field of `MAuth`.
const AUTH_PROTOCOL: u32 = 2;

pub(super) struct Session {
    net: Net,
    endpoint: RefCell<Option<Endpoint>>,
    mon: RefCell<MonSession>,
    mon_conn: Cell<Option<ConnId>>,
    auth: Rc<RefCell<auth::Client>>,
    objecter: RefCell<Option<Rc<ObjecterHost>>>,
    commands: RefCell<HashMap<u64, oneshot::Sender<CommandReply>>>,
    versions: RefCell<HashMap<u64, oneshot::Sender<u64>>>,
    /// Unanswered pool operations on this monitor session.
    pool_ops: RefCell<HashMap<u64, oneshot::Sender<(i32, Bytes)>>>,
    /// Notifies in progress, by cookie.
    notifies: RefCell<HashMap<u64, oneshot::Sender<MWatchNotify>>>,
    next_cookie: Cell<u64>,
    nonce: u32,
    modes: net::modes::Modes,
    changed: Notify,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    error: String,
    refused: Option<String>,
    open: bool,
    renewing: bool,
}

struct Events(Weak<Session>);

impl Handler for Events {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        if let Some(s) = self.0.upgrade() {
            s.mon_event(conn, event);
        }
    }
}

/// Policies of a client: all sessions are lossy.
fn policies(modes: &net::modes::Modes) -> msgr::Policies {
    modes.apply(EntityKind::CLIENT, msgr::Policies::uniform(msgr::Policy::lossy_client(Vec::new())))
}

/// Host name from the kernel.
pub(super) fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "localhost".to_owned(), |s| s.trim().to_owned())
}

fn endpoint_config(auth: &Rc<RefCell<auth::Client>>, nonce: u32, modes: &net::modes::Modes) -> EndpointConfig {
    EndpointConfig {
        kind: EntityKind::CLIENT,
        num: -1,
        addrs: base::AddrVec::from(base::EntityAddr::unlistening(nonce)),
        policies: policies(modes),
        auth_host: None,
        auth_client: Some(auth.clone()),
        limits: Limits::default(),
    }
}

impl Session {
    pub(super) fn start(o: Options) -> Rc<Self> {
        let auth = Rc::new(RefCell::new(match o.key {
            Some(k) => auth::Client::cephx(o.name, k),
            None => auth::Client::none(o.name),
        }));
        if o.mds {
            let all = [EntityKind::MON, EntityKind::OSD, EntityKind::MGR, EntityKind::MDS];
            auth.borrow_mut().set_want(all.iter().fold(0, |mask, kind| mask | u32::from(kind.0)));
        }
        let net = Net::new();
        let mut first = [0; 8];
        auth::Random::fill(&OsRandom, &mut first);
        let nonce = (u64::from_le_bytes(first) >> 32) as u32 | 1;
        let mon = MonSession::new(o.mons, u64::from_le_bytes(first), hostname()).of_cluster(o.fsid);
        let me = Rc::new(Self {
            net: net.clone(),
            endpoint: RefCell::default(),
            mon: RefCell::new(mon),
            mon_conn: Cell::new(None),
            auth: auth.clone(),
            objecter: RefCell::default(),
            commands: RefCell::default(),
            versions: RefCell::default(),
            pool_ops: RefCell::default(),
            notifies: RefCell::default(),
            next_cookie: Cell::new(1),
            nonce,
            modes: o.modes.clone(),
            changed: Notify::new(),
            state: RefCell::default(),
        });
        let ep = net.endpoint(endpoint_config(&auth, nonce, &o.modes), Rc::new(Events(Rc::downgrade(&me))));
        *me.endpoint.borrow_mut() = Some(ep);
        let weak = Rc::downgrade(&me);
        let unasked = move |u: Unasked| {
            if let Some(s) = weak.upgrade() {
                s.unasked(u);
            }
        };
        *me.objecter.borrow_mut() =
            Some(ObjecterHost::new(&net, endpoint_config(&auth, nonce, &o.modes), 0, Box::new(unasked)));
        me.mon.borrow_mut().subscribe("osdmap", 0, false);
        tokio::task::spawn_local(tick(Rc::downgrade(&me)));
        me
    }

    pub(super) fn credentials(&self) -> Rc<RefCell<auth::Client>> {
        self.auth.clone()
    }

    pub(super) fn is_blocklisted(&self) -> bool {
        let Some(map) = self.objecter().and_then(|o| o.map()) else { return false };
        self.addrs().0.iter().any(|a| map.is_blocklisted(a))
    }

    /// The addresses that this client announces to all servers. The address without a port comes from the first
    /// monitor; until then it is blank.
    pub(super) fn addrs(&self) -> AddrVec {
        self.endpoint.borrow().as_ref().map(Endpoint::addrs).unwrap_or_default()
    }

    /// A further endpoint of this client, which announces the same address: a blocklist then names all its sessions.
    fn further_endpoint(&self) -> EndpointConfig {
        let num = i64::try_from(self.auth.borrow().global_id()).unwrap_or(-1);
        EndpointConfig { num, addrs: self.addrs(), ..endpoint_config(&self.auth, self.nonce, &self.modes) }
    }

    pub(super) fn last_error(&self) -> String {
        let s = self.state.borrow();
        if s.error.is_empty() { "no answer".to_owned() } else { s.error.clone() }
    }

    fn objecter(&self) -> Option<Rc<ObjecterHost>> {
        self.objecter.borrow().clone()
    }

    /// Waits until authentication succeeds or is refused.
    pub(super) async fn ready(&self) -> Result<(), ClientError> {
        loop {
            let changed = self.changed.notified();
            {
                let s = self.state.borrow();
                if let Some(r) = &s.refused {
                    return Err(ClientError::Auth(r.clone()));
                }
                if s.open {
                    return Ok(());
                }
            }
            changed.await;
        }
    }

    pub(super) async fn map(&self) -> Result<Arc<OsdMap>, ClientError> {
        loop {
            let changed = self.changed.notified();
            if let Some(m) = self.objecter().and_then(|o| o.map()) {
                return Ok(m);
            }
            changed.await;
        }
    }

    /// Waits for the monitor's newest map.
    pub(super) async fn newest_map(&self) -> Result<Arc<OsdMap>, ClientError> {
        let rx = {
            let (tx, rx) = oneshot::channel();
            let tid = self.mon.borrow_mut().get_version("osdmap");
            self.versions.borrow_mut().insert(tid, tx);
            rx
        };
        self.drain();
        let want = rx.await.map_err(|_| ClientError::Closed)?;
        loop {
            let changed = self.changed.notified();
            let m = self.map().await?;
            if u64::from(m.epoch.0) >= want {
                return Ok(m);
            }
            changed.await;
        }
    }

    pub(super) async fn command(&self, json: &str, input: Bytes) -> Result<CommandReply, ClientError> {
        let rx = {
            let (tx, rx) = oneshot::channel();
            let tid = self.mon.borrow_mut().command(json, input);
            self.commands.borrow_mut().insert(tid, tx);
            rx
        };
        self.drain();
        rx.await.map_err(|_| ClientError::Closed)
    }

    pub(super) async fn tell(
        &self,
        kind: EntityKind,
        addr: EntityAddr,
        json: &str,
    ) -> Result<CommandReply, ClientError> {
        let fsid = self.mon.borrow().fsid();
        self.command_at(Target::new(kind, addr), fsid, (json, Bytes::new())).await
    }

    pub(super) fn mds_endpoint(&self, handler: Rc<dyn Handler>) -> (Net, Endpoint) {
        (self.net.clone(), self.net.endpoint(self.further_endpoint(), handler))
    }

    /// Runs a command at a manager. Without a cluster's id it is none for the daemon itself.
    pub(super) async fn mgr_command(
        &self,
        addr: EntityAddr,
        json: &str,
        input: Bytes,
    ) -> Result<CommandReply, ClientError> {
        self.command_at(Target::new(EntityKind::MGR, addr), base::Uuid::ZERO, (json, input)).await
    }

    async fn command_at(
        &self,
        target: Target,
        fsid: base::Uuid,
        command: (&str, Bytes),
    ) -> Result<CommandReply, ClientError> {
        tell::tell(&self.net, self.further_endpoint(), fsid, target, command).await
    }

    pub(super) async fn op(&self, req: Request) -> Result<Box<MOsdOpReply>, ClientError> {
        self.map().await?;
        let o = self.objecter().ok_or(ClientError::Closed)?;
        o.op(req).await.map_err(ClientError::Errno)
    }

    /// Creates a self-managed snapshot, or removes one.
    pub(super) async fn unmanaged_snap(&self, pool: PoolId, remove: Option<SnapId>) -> Result<Bytes, ClientError> {
        let rx = {
            let (tx, rx) = oneshot::channel();
            let tid = self.mon.borrow_mut().unmanaged_snap(pool, remove).ok_or(ClientError::Closed)?;
            self.pool_ops.borrow_mut().insert(tid, tx);
            rx
        };
        self.drain();
        match rx.await.map_err(|_| ClientError::Closed)? {
            (rc, _) if rc < 0 => Err(ClientError::Errno(rc)),
            (_, data) => Ok(data),
        }
    }

    /// Sends a notify and waits for its completion.
    pub(super) async fn notify(&self, what: What, payload: &[u8], seconds: u32) -> Result<MWatchNotify, ClientError> {
        let cookie = self.next_cookie.replace(self.next_cookie.get() + 1);
        let (tx, rx) = oneshot::channel();
        self.notifies.borrow_mut().insert(cookie, tx);
        let mut w = wire::Writer::new(wire::Features::PACIFIC);
        w.u32(1);
        w.u32(seconds);
        w.blob(payload);
        let mut op = OsdOp::with_indata(OpCode::NOTIFY, w.into_bytes());
        op.set_notify_cookie(cookie);
        let req = Request {
            what,
            ops: OpVec::from_iter([op]),
            flags: 0,
            snapid: SnapId::HEAD,
            snapc: SnapContext::default(),
            mtime: base::Utime::ZERO,
        };
        let sent = match self.op(req).await {
            Ok(r) if r.result < 0 => Err(ClientError::Errno(r.result)),
            r => r.map(|_| ()),
        };
        let done = match sent {
            // The OSD completes the notify in time, unless it fails before.
            Ok(()) => match tokio::time::timeout(Duration::from_secs(u64::from(seconds) + NOTIFY_GRACE), rx).await {
                Ok(r) => r.map_err(|_| ClientError::Closed),
                Err(_) => Err(ClientError::Errno(base::errno::ETIMEDOUT)),
            },
            Err(e) => Err(e),
        };
        self.notifies.borrow_mut().remove(&cookie);
        done
    }

    fn mon_event(&self, conn: ConnId, event: ConnEvent) {
        if self.mon_conn.get() != Some(conn) {
            return;
        }
        match event {
            ConnEvent::Open(peer) => {
                let gid = self.auth.borrow().global_id();
                if let Some(ep) = self.objecter().and_then(|o| o.endpoint()) {
                    ep.set_num(i64::try_from(gid).unwrap_or(-1));
                    // The monitor has told the address; OSDs are to see the same one.
                    ep.set_addrs(self.addrs());
                }
                self.mon.borrow_mut().handle_open(peer.features);
            }
            ConnEvent::Closed(reason) => {
                self.mon_conn.set(None);
                self.mon_closed(&reason);
                self.mon.borrow_mut().handle_closed(clock::now());
            }
            ConnEvent::Message(m) => {
                let r = self.mon.borrow_mut().handle_message(m);
                if let Err(error) = r {
                    tracing::warn!(%error, "message of the monitor cannot be decoded");
                }
            }
        }
        self.drain();
    }

    fn mon_closed(&self, reason: &CloseReason) {
        let mut s = self.state.borrow_mut();
        s.error = reason.to_string();
        s.renewing = false;
        // Refused by a monitor of the right cluster: trying again changes nothing.
        if let CloseReason::Auth { .. } = reason {
            if s.open {
                // The monitor may refuse expired tickets: the next authentication starts a new session.
                self.auth.borrow_mut().forget();
            } else {
                s.refused = Some(reason.to_string());
            }
        }
        drop(s);
        self.changed.notify_waiters();
    }

    fn drain(&self) {
        loop {
            let Some(o) = self.mon.borrow_mut().poll_output() else { return };
            match o {
                Output::Connect(addr) => {
                    let Some(ep) = self.endpoint.borrow().clone() else { return };
                    self.mon_conn.set(Some(ep.connect(Target::new(EntityKind::MON, addr))));
                }
                Output::Close => {
                    if let Some(c) = self.mon_conn.take() {
                        self.net.close(c);
                    }
                }
                Output::Send(m) => {
                    if let Some(c) = self.mon_conn.get() {
                        // A closed connection reports its end; important messages are resent on the next one.
                        let _ = self.net.send(c, m);
                    }
                }
                Output::Event(e) => self.event(e),
            }
        }
    }

    fn event(&self, e: Event) {
        match e {
            Event::Open => {}
            Event::OtherCluster { wanted, found } => {
                let why = format!("the monitors are those of cluster {found}, the configuration names {wanted}");
                tracing::error!("{why}");
                self.state.borrow_mut().refused = Some(why);
                self.changed.notify_waiters();
            }
            // Requests on a closed session remain unanswered.
            Event::Closed => self.pool_ops.borrow_mut().clear(),
            Event::MonMap(_) => {
                self.state.borrow_mut().open = true;
                self.changed.notify_waiters();
            }
            Event::Command { tid, rc, status, out } => {
                let w = self.commands.borrow_mut().remove(&tid);
                if let Some(w) = w {
                    // The caller may have given up.
                    let _ = w.send(CommandReply { rc, status, out });
                }
            }
            Event::Version { tid, newest, .. } => {
                let w = self.versions.borrow_mut().remove(&tid);
                if let Some(w) = w {
                    let _ = w.send(newest);
                }
            }
            Event::Message(m) => self.mon_message(&m),
        }
    }

    fn mon_message(&self, m: &Message) {
        let bad = match m.header.kind {
            MOsdMap::KIND => MOsdMap::from_message(m).map(|x| self.maps(&x)).err(),
            MAuthReply::KIND => MAuthReply::from_message(m).map(|x| self.auth_reply(&x)).err(),
            MPoolOpReply::KIND => MPoolOpReply::from_message(m).map(|x| self.pool_op_reply(m.header.tid, x)).err(),
            _ => None,
        };
        if let Some(error) = bad {
            tracing::warn!(kind = m.header.kind, %error, "message of the monitor cannot be decoded");
        }
    }

    fn pool_op_reply(&self, tid: u64, r: MPoolOpReply) {
        let waits = self.pool_ops.borrow_mut().remove(&tid);
        if let Some(waits) = waits {
            // The caller may have given up.
            let _ = waits.send((r.reply_code, r.response_data.unwrap_or_default()));
        }
    }

    fn auth_reply(&self, r: &MAuthReply) {
        self.state.borrow_mut().renewing = false;
        let done = self.auth.borrow_mut().handle_reply(clock::now().wall, &r.auth_payload);
        if let Err(error) = done {
            tracing::warn!(%error, "renewal of tickets failed");
        }
    }

    fn unasked(&self, u: Unasked) {
        match u {
            Unasked::Maps(m) => self.maps(&m),
            Unasked::NeedMap(e) => {
                self.mon.borrow_mut().subscribe("osdmap", e.0.into(), false);
                self.drain();
            }
            Unasked::Watch(w) if w.opcode == watch_event::NOTIFY_COMPLETE => {
                let waits = self.notifies.borrow_mut().remove(&w.cookie);
                if let Some(waits) = waits {
                    // The caller may have given up.
                    let _ = waits.send(w);
                }
            }
            Unasked::Watch(_) => {}
        }
    }

    fn maps(&self, m: &MOsdMap) {
        let Some(o) = self.objecter() else { return };
        let (new, refused) = maps::advance(o.map(), m);
        for (epoch, error) in refused {
            tracing::warn!(epoch = epoch.0, %error, "OSD map refused");
        }
        let Some(last) = new.last() else { return };
        self.mon.borrow_mut().got("osdmap", last.epoch.0.into());
        for map in new {
            o.handle_map(map);
        }
        self.changed.notify_waiters();
    }

    fn renew(&self) {
        let now = clock::now().wall;
        let mask = self.auth.borrow().due(now);
        if mask == 0 || self.state.borrow().renewing || !self.mon.borrow().is_open() {
            return;
        }
        let req = self.auth.borrow().renewal_request(mask, &OsRandom);
        match req {
            Ok(auth_payload) => {
                let m = MAuth { protocol: AUTH_PROTOCOL, auth_payload, ..MAuth::default() };
                self.state.borrow_mut().renewing = self.mon.borrow_mut().send_now(&m);
                self.drain();
            }
            Err(error) => tracing::warn!(%error, "request for new tickets failed"),
        }
    }
}

/// Runs the deadlines of the monitor session and renews tickets while the session exists.
async fn tick(s: Weak<Session>) {
    let mut tickets = tokio::time::Instant::now() + TICKET_CHECK;
    loop {
        let wait = {
            let Some(s) = s.upgrade() else { return };
            let now = clock::now();
            s.mon.borrow_mut().tick(now);
            s.drain();
            if tokio::time::Instant::now() >= tickets {
                tickets += TICKET_CHECK;
                s.renew();
            }
            let deadline = s.mon.borrow().next_deadline();
            deadline.map_or(Duration::from_millis(500), |d| d.since(now.mono).max(Duration::from_millis(1)))
        };
        tokio::time::sleep(wait.min(Duration::from_millis(500))).await;
    }
}
