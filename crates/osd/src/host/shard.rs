//! One reactor of an OSD: client connections, PGs, store and disk.
//!
//! A loop turn: what connections receive is decoded and gathered; then the PG machines take all of it, one after the other, and
//! their effects become replies and store I/O; the turn's end closes the store's open frame, submits all disk I/O at once and
//! writes each connection once. In stages because the code an operation runs through is several times what a core's
//! instruction cache holds: a stage that sees all operations of a turn finds its code there.
//!
//! Invariant: no `RefCell` is borrowed while another component is called that may call back.

use super::peers::{PeerEvent, Peers};
use super::route::{Inspect, Routes, ToControl, ToShard};
use super::tracker::{self, History};
use crate::core::admission::{self, Lane, Refusal, Right};
use crate::core::known::KnownMap;
use crate::core::own::{Need, OwnQueue};
use crate::core::perf::{Finished, Meter};
use crate::core::session::{SessionInfo, caps_of, session_id, session_route};
use crate::core::shard::{Output, Shard};
use auth::server::ServiceHost;
use base::{Mono, OsdId, PgId};
use cluster::caps::OsdCaps;
use net::{ConnEvent, ConnId, Endpoint, Handler, Net, PeerInfo};
use reactor::clock;
use reactor::disk::{Disk, DiskFile};
use reactor::turn::{Turn, TurnHook};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use store::engine::Store;
use store::layout;
use store::{Event, Health, ObjectStore as _, Tag, Transaction};
use wire::msg::{MCommand, MCommandReply, MOsdBackoff, MOsdMap, MOsdOp, MOsdOpReply, MPgPeer, MPgPeers, MPing};
use wire::{Features, Message, WireMessage as _};

/// Operations older than this give back their share of the connection's bytes: their answer takes so long that others
/// must not wait for it.
const FORGET_AFTER: Duration = Duration::from_secs(30);
/// Operations older than this are not followed any more.
const LOSE_AFTER: Duration = Duration::from_secs(3600);
/// An operation that no PG knows is shown as in flight for so long.
const IN_TRANSIT: Duration = Duration::from_secs(1);
/// How often deadlines of watches and notifies are looked at.
const TICK: Duration = Duration::from_millis(500);
/// So often, in ticks, memory that is free goes back to the system...
const RELEASE_TICKS: u32 = 20;
/// ...if there were fewer operations than this since: who is busy needs it again.
const RELEASE_OPS_MAX: u64 = 1000;

/// How many messages or events are looked at before the first of them is handled: what they need fits the processor's caches with room.
const FORESEEN: usize = 16;

struct Client {
    info: Arc<SessionInfo>,
    map: KnownMap,
    /// Operations without an answer, by transaction number.
    in_flight: RefCell<FxHashMap<u64, InFlight>>,
    /// The log says that a message of it was refused.
    refused: Cell<bool>,
}

/// An operation of a client that has no answer yet.
struct InFlight {
    received: Mono,
    /// As it came; handles only.
    request: Message,
    /// Bytes it holds of what the connection may have unanswered; 0 once given back.
    cost: usize,
}

pub(super) struct ShardHost {
    me: Weak<Self>,
    index: usize,
    net: Net,
    endpoint: RefCell<Option<Endpoint>>,
    peers: RefCell<Option<Rc<Peers>>>,
    /// With which it connects to other OSDs.
    auth: Rc<RefCell<auth::Client>>,
    /// The cluster address, until it is listened on.
    listen_later: Cell<Option<SocketAddr>>,
    /// As the control machine was told: OSDs that share PGs here, and those of PGs led here.
    pg_peers: RefCell<(BTreeSet<OsdId>, BTreeSet<OsdId>)>,
    core: RefCell<Shard>,
    store: RefCell<Store>,
    disk: Disk,
    device: Arc<DiskFile>,
    clients: RefCell<FxHashMap<ConnId, Rc<Client>>>,
    routes: Routes,
    service: Rc<ServiceHost>,
    hook: RefCell<Option<TurnHook>>,
    /// In order of receipt; taken by `work_hook`, and before anything that must not overtake it.
    work: RefCell<VecDeque<Work>>,
    work_hook: RefCell<Option<TurnHook>>,
    /// The host's own transactions that are not submitted yet.
    own: RefCell<OwnQueue>,
    /// Whoever waits for a transaction or read of the host itself.
    waiters: RefCell<HashMap<Tag, tokio::sync::oneshot::Sender<Result<(), base::errno::Errno>>>>,
    completions: RefCell<Vec<base::device::IoCompletion>>,
    history: RefCell<History>,
    /// A task waits for background work's next share.
    pacing: Cell<bool>,
    /// A task lets more PGs see new maps in the next turn.
    walking: Cell<bool>,
    /// Load above which no scrub begins.
    scrub_load: Cell<f64>,
    meter: RefCell<Meter>,
    release_memory: fn(),
    /// The store failed.
    failed: Cell<bool>,
    device_timeout: Duration,
    /// OSDs whose messages are not understood.
    strange: RefCell<BTreeSet<OsdId>>,
}

pub(super) struct Parts {
    pub(super) index: usize,
    pub(super) net: Net,
    pub(super) core: Shard,
    pub(super) store: Store,
    pub(super) disk: Disk,
    pub(super) device: Arc<DiskFile>,
    pub(super) routes: Routes,
    pub(super) service: Rc<ServiceHost>,
    pub(super) public: net::EndpointConfig,
    /// Towards other OSDs: identity with this reactor's cluster address.
    pub(super) cluster: net::EndpointConfig,
    pub(super) auth: Rc<RefCell<auth::Client>>,
    pub(super) release_memory: fn(),
    /// A device that answers a request not even after that has failed.
    pub(super) device_timeout: Duration,
}

/// What was received and waits for the end of the turn's receiving.
enum Work {
    Op(Rc<Client>, Box<MOsdOp>),
    Peer(OsdId, Box<MPgPeer>),
}

struct ClientEvents(Weak<ShardHost>);

impl Handler for ClientEvents {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        if let Some(s) = self.0.upgrade() {
            s.client_event(conn, event);
        }
    }
}

impl ShardHost {
    pub(super) fn start(p: Parts) -> Rc<Self> {
        let me = Rc::new_cyclic(|me| Self {
            me: me.clone(),
            index: p.index,
            net: p.net.clone(),
            endpoint: RefCell::default(),
            peers: RefCell::default(),
            auth: p.auth,
            listen_later: Cell::new(None),
            pg_peers: RefCell::default(),
            core: RefCell::new(p.core),
            store: RefCell::new(p.store),
            disk: p.disk,
            device: p.device,
            clients: RefCell::default(),
            routes: p.routes,
            service: p.service,
            hook: RefCell::default(),
            work: RefCell::default(),
            work_hook: RefCell::default(),
            own: RefCell::default(),
            waiters: RefCell::default(),
            completions: RefCell::default(),
            history: RefCell::default(),
            pacing: Cell::new(false),
            walking: Cell::new(false),
            scrub_load: Cell::new(crate::core::scrub::LOAD_THRESHOLD),
            meter: RefCell::default(),
            release_memory: p.release_memory,
            failed: Cell::new(false),
            strange: RefCell::default(),
            device_timeout: p.device_timeout,
        });
        let ep = p.net.endpoint(p.public, Rc::new(ClientEvents(Rc::downgrade(&me))));
        ep.set_auto_consume(false);
        *me.endpoint.borrow_mut() = Some(ep);
        let weak = Rc::downgrade(&me);
        let sink = move |e: PeerEvent| {
            if let Some(s) = weak.upgrade() {
                s.peer_event(e);
            }
        };
        *me.peers.borrow_mut() = Some(Peers::new(&p.net, p.cluster, Box::new(sink)));
        let weak = Rc::downgrade(&me);
        *me.work_hook.borrow_mut() = Some(Turn::current().before_end(move || {
            if let Some(s) = weak.upgrade() {
                s.work();
            }
        }));
        let weak = Rc::downgrade(&me);
        *me.hook.borrow_mut() = Some(Turn::current().on_end(move || {
            if let Some(s) = weak.upgrade() {
                s.end_turn();
            }
        }));
        tokio::task::spawn_local(completions(Rc::downgrade(&me)));
        tokio::task::spawn_local(ticks(Rc::downgrade(&me)));
        me
    }

    /// The identity clients see.
    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        self.endpoint.borrow().clone()
    }

    /// Connections to other OSDs.
    pub(super) fn peers(&self) -> Option<Rc<Peers>> {
        self.peers.borrow().clone()
    }

    /// Opens the cluster address, now or when the secrets have come.
    pub(super) fn listen_to_peers(&self, at: SocketAddr, now: bool) -> std::io::Result<()> {
        match self.peers().and_then(|p| p.endpoint()) {
            Some(ep) if now => ep.listen(at).map(|_| ()),
            _ => {
                self.listen_later.set(Some(at));
                Ok(())
            }
        }
    }

    /// Loads the PGs of this reactor.
    pub(super) fn load(&self, feed: Option<Arc<crate::core::maps::MapFeed>>) {
        self.core.borrow_mut().load(feed, clock::now(), &mut *self.store.borrow_mut());
        self.pump();
    }

    // --- what was received ---

    fn later(&self, w: Work) {
        self.work.borrow_mut().push_back(w);
        if let Some(h) = &*self.work_hook.borrow() {
            h.schedule();
        }
    }

    /// Lets the PGs take what was gathered.
    fn work(&self) {
        let now = clock::now();
        if self.work.borrow().is_empty() {
            return;
        }
        loop {
            self.foresee_work();
            for _ in 0..FORESEEN {
                let next = self.work.borrow_mut().pop_front();
                match next {
                    Some(Work::Op(c, m)) => self.client_op(&c, m, now),
                    Some(Work::Peer(from, m)) => self.pg_message(from, m, now),
                    None => return self.pump(),
                }
            }
        }
    }

    /// Lets the machines that the next messages are for come to the processor, and what the store has of the objects.
    fn foresee_work(&self) {
        let (core, mut store) = (self.core.borrow(), self.store.borrow_mut());
        for w in self.work.borrow().iter().take(FORESEEN) {
            match w {
                Work::Op(_, m) => {
                    core.foresee(m.pgid.pg);
                    // Hints come before what they are for.
                    store.foresee(m.hash, m.ops.last().map_or(0, |o| o.extent().offset));
                }
                Work::Peer(_, m) => core.foresee(m.spg.pg),
            }
        }
    }

    // --- store ---

    fn schedule(&self) {
        if let Some(h) = &*self.hook.borrow() {
            h.schedule();
        }
    }

    fn end_turn(&self) {
        {
            let mut store = self.store.borrow_mut();
            store.end_turn();
            while let Some(r) = store.poll_io() {
                self.disk.submit(r);
            }
            if store.wants_turn() {
                tokio::task::spawn_local(another_turn(self.me.clone()));
            }
        }
        self.disk.flush_submissions();
    }

    /// Hands completed I/O to the store and what follows to the PGs.
    fn complete(&self) {
        let mut done = self.completions.take();
        self.disk.poll(&mut done);
        if !done.is_empty() {
            let mut store = self.store.borrow_mut();
            for c in done.drain(..) {
                store.handle_io(c);
            }
        }
        self.completions.replace(done);
        {
            let (store, core) = (self.store.borrow(), self.core.borrow());
            store.events().take(FORESEEN).for_each(|e| core.foresee_event(e));
        }
        self.pump();
    }

    /// Submits a transaction of the host, after those before it; nobody waits for it.
    pub(super) fn submit(&self, t: Transaction) {
        self.own.borrow_mut().push(t, Need::Must);
        self.submit_own();
    }

    /// Submits a transaction of the host and waits until it is durable.
    pub(super) async fn submit_and_wait(&self, t: Transaction) -> Result<(), base::errno::Errno> {
        let (tx, rx) = tokio::sync::oneshot::channel();
        let tag = self.own.borrow_mut().push(t, Need::May);
        self.waiters.borrow_mut().insert(tag, tx);
        self.submit_own();
        // The sender lives as long as this host.
        rx.await.unwrap_or(Err(base::errno::EIO))
    }

    /// Submits the host's transactions as far as the store has what they need.
    fn submit_own(&self) {
        let refused = self.own.borrow_mut().submit(&mut *self.store.borrow_mut());
        for r in refused {
            let w = self.waiters.borrow_mut().remove(&r.tag);
            match (w, r.need) {
                // The waiter may have given up.
                (Some(w), _) => _ = w.send(Err(r.errno)),
                (None, Need::Must) => self.store_failed(format!("cannot store maps ({})", base::errno::name(r.errno))),
                (None, Need::May) => {}
            }
        }
        self.schedule();
    }

    /// Repeats a read until it does not wait.
    pub(super) async fn read<T>(
        &self,
        f: impl Fn(&mut Store, Tag) -> Result<T, store::ReadError>,
    ) -> Result<T, store::ReadError> {
        let tag = self.own.borrow_mut().tag();
        loop {
            let rx = {
                let (tx, rx) = tokio::sync::oneshot::channel();
                let r = f(&mut self.store.borrow_mut(), tag);
                if !matches!(r, Err(store::ReadError::Wait)) {
                    self.store.borrow_mut().release(tag);
                    return r;
                }
                self.waiters.borrow_mut().insert(tag, tx);
                rx
            };
            self.schedule();
            // The sender lives as long as this host.
            let _ = rx.await;
        }
    }

    /// Carries events of the store to the machines and their outputs to the world, until nothing is left.
    fn pump(&self) {
        let now = clock::now();
        loop {
            let event = self.store.borrow_mut().poll_event();
            if let Some(e) = event {
                self.store_event(e, now);
                continue;
            }
            let out = self.core.borrow_mut().poll_output();
            match out {
                Some(o) => self.output(o),
                None => break,
            }
        }
        self.schedule();
        if !self.pacing.get()
            && let Some(at) = self.core.borrow().paced_until()
        {
            self.pacing.set(true);
            tokio::task::spawn_local(pace(self.me.clone(), at));
        }
        if self.core.borrow().is_walking() && !self.walking.replace(true) {
            tokio::task::spawn_local(walk(self.me.clone()));
        }
    }

    fn store_event(&self, e: Event, now: base::Now) {
        if let Event::Health(h) = &e {
            if let Health::Failed { errno, what } = h {
                self.store_failed(format!("{what} ({})", base::errno::name(*errno)));
            }
            return;
        }
        let (tag, result) = match &e {
            Event::Ready(t) => (*t, Ok(())),
            Event::Durable(t, r) => (*t, *r),
            Event::Health(_) => return,
        };
        let taken = self.core.borrow_mut().store_event(e, now, &mut *self.store.borrow_mut());
        if !taken {
            if self.own.borrow().awaits(tag) {
                return self.submit_own();
            }
            let w = self.waiters.borrow_mut().remove(&tag);
            if let Some(w) = w {
                // Nobody waits for writes of maps.
                let _ = w.send(result);
            }
        }
    }

    fn output(&self, o: Output) {
        match o {
            Output::Reply(s, r) => self.send(s, r.to_message(Features::PACIFIC)),
            Output::Watch(s, w, data) => {
                let mut m = w.to_message(Features::PACIFIC);
                m.data = data;
                self.send(s, m);
            }
            Output::Backoff(s, b) => self.send(s, b.to_message(Features::PACIFIC)),
            Output::Dropped(s, tid) => self.dropped(s, tid),
            Output::Close(s) => self.close_session(s),
            Output::WantUpThru(e) => self.routes.control(ToControl::WantUpThru(e)),
            Output::WantMap(e) => self.routes.control(ToControl::WantMap(e)),
            Output::WantPgTemp(pg, acting) => self.routes.control(ToControl::WantPgTemp(pg, acting)),
            Output::Peer { to, msg, .. } => self.send_peer(to, *msg),
            Output::Log(level, text) => self.routes.control(ToControl::Log(level, text)),
            Output::PeerElsewhere(at, from, m) => self.routes.shard(at, ToShard::Peer(from, m)),
            Output::KinElsewhere(at, from, to, kin) => self.routes.shard(at, ToShard::Kin(from, to, kin)),
            Output::Reserved(at) => self.routes.shard(at, ToShard::Reserved),
            Output::WantMove(pg, to) => self.routes.control_surely(ToControl::WantMove(self.index, pg, to)),
            Output::Move(to, spg, m) => self.routes.surely(to, ToShard::Move(self.index, spg, m)),
            Output::MoveReady { pg, pg_num, .. } => {
                self.routes.control_surely(ToControl::MoveReady(self.index, pg, pg_num));
            }
            Output::MoveSeen(at, pg) => self.routes.surely(at, ToShard::MoveSeen(pg)),
            Output::MoveOver(pg) => self.routes.control_surely(ToControl::MoveOver(self.index, pg)),
            Output::Swept => self.routes.control_surely(ToControl::Swept(self.index)),
            Output::ReadyToMerge(pg, r) => self.routes.control(ToControl::ReadyToMerge(pg, r)),
            Output::OpElsewhere(at, s, m) => self.routes.shard(at, ToShard::Op(s, m)),
            Output::Members => self.note_pg_peers(),
            Output::Created(pg) => self.routes.control(ToControl::PgCreated(pg)),
            Output::Fetch(pg, f) => self.routes.control(ToControl::Fetch(self.index, pg, f)),
            // What there is to say of it the PG has said.
            Output::PgFailed(..) => {}
            Output::Stopped => self.drained(),
        }
    }

    /// Bytes of the store as it is now.
    pub(super) fn store_size(&self) -> u64 {
        self.store.borrow().superblock().size()
    }

    /// Bytes of a device that the store can grow into.
    pub(super) fn grows_from(&self) -> u64 {
        self.store.borrow().grows_from()
    }

    /// All PGs are done: brings the store to rest, then says so.
    fn drained(&self) {
        if !self.failed.get() {
            self.store.borrow_mut().request_checkpoint();
            self.schedule();
        }
        self.routes.control_surely(ToControl::Stopped(self.index));
    }

    /// Says once that this OSD has no store any more.
    fn store_failed(&self, what: String) {
        if !self.failed.replace(true) {
            self.routes.control_surely(ToControl::StoreFailed(what));
        }
    }

    /// A device that owes an answer for too long is as good as gone: whoever waits for it must get it from others.
    fn watch_device(&self, now: Mono) {
        let waits = self.disk.oldest().map_or(Duration::ZERO, |at| now.since(at));
        if waits >= self.device_timeout {
            self.store_failed(format!("a request has no answer for {} s", waits.as_secs()));
        }
    }

    /// Nothing is waited for any more, not even by the engine of the disk.
    pub(super) fn let_go(&self) {
        self.disk.abandon();
    }

    /// True when the disk has nothing more to do.
    pub(super) fn is_idle(&self) -> bool {
        self.failed.get() || self.store.borrow().is_idle()
    }

    fn send(&self, s: pg::SessionId, m: Message) {
        let (reactor, conn) = session_route(s);
        if reactor == self.index {
            self.send_here(conn, m);
        } else {
            self.routes.shard(reactor, ToShard::Send(conn, m));
        }
    }

    fn send_here(&self, conn: ConnId, m: Message) {
        if m.header.kind == MOsdOpReply::KIND {
            self.answered(conn, m.header.tid, m.data.len() as u64);
        }
        // A client that went away asks again on its next connection.
        let _ = self.net.send(conn, m);
    }

    fn close_session(&self, s: pg::SessionId) {
        let (reactor, conn) = session_route(s);
        if reactor == self.index {
            self.close_client(conn);
        } else {
            self.routes.shard(reactor, ToShard::Close(conn));
        }
    }

    fn close_client(&self, conn: ConnId) {
        self.net.close(conn);
        self.client_gone(conn, &net::CloseReason::Local);
    }

    fn client_gone(&self, conn: ConnId, reason: &net::CloseReason) {
        let c = self.clients.borrow_mut().remove(&conn);
        if let Some(c) = c {
            tracing::debug!(client = %c.info.entity, %reason, "session ended");
            let id = c.info.id;
            self.routes.all(|| ToShard::SessionClosed(id));
        }
    }

    fn dropped(&self, s: pg::SessionId, tid: u64) {
        let (reactor, conn) = session_route(s);
        if reactor == self.index {
            self.give_back(conn, tid);
        } else {
            self.routes.shard(reactor, ToShard::Dropped(conn, tid));
        }
    }

    /// Ends an operation's share of what its connection may have unanswered.
    fn give_back(&self, conn: ConnId, tid: u64) -> Option<(Rc<Client>, InFlight)> {
        let c = self.clients.borrow().get(&conn).cloned()?;
        let f = c.in_flight.borrow_mut().remove(&tid)?;
        if f.cost > 0 {
            self.net.consumed(conn, f.cost);
        }
        Some((c, f))
    }

    fn answered(&self, conn: ConnId, tid: u64, bytes_out: u64) {
        let Some((c, f)) = self.give_back(conn, tid) else { return };
        let now = clock::now();
        let took = now.mono.since(f.received);
        if self.history.borrow().wants(took, now.mono) {
            self.history.borrow_mut().add(&f.request, c.info.entity, c.info.addr, took, now);
        }
        if self.meter.borrow().is_on() {
            self.count(&c.info, &f.request, bytes_out, took);
        }
    }

    /// Counts an answered operation for who asks about performance.
    #[cold]
    fn count(&self, who: &SessionInfo, request: &Message, bytes_out: u64, latency: Duration) {
        let Ok(op) = MOsdOp::from_message(request) else { return };
        let access = pg::op_access(&op);
        self.meter.borrow_mut().add(&Finished {
            client: who.entity,
            addr: who.addr,
            osd: self.core.borrow().whoami(),
            pg: op.pgid.pg,
            nspace: &op.locator.nspace,
            oid: &op.oid,
            snap: op.snapid,
            reads: access.may_read(),
            writes: access.may_write(),
            bytes_in: request.data.len() as u64,
            bytes_out,
            latency,
        });
    }

    /// Gives back what operations hold whose answer will not come.
    fn forget_old(&self, now: Mono) {
        let clients: Vec<Rc<Client>> = self.clients.borrow().values().cloned().collect();
        for c in clients {
            let mut freed = 0;
            c.in_flight.borrow_mut().retain(|_, f| {
                let age = now.since(f.received);
                if age >= FORGET_AFTER {
                    freed += std::mem::take(&mut f.cost);
                }
                age < LOSE_AFTER
            });
            if freed > 0 {
                self.net.consumed(c.info.conn, freed);
            }
        }
    }

    /// Closes sessions whose ticket is over: their clients come back with a fresh one, which says what they may do now, and repeat
    /// what had no answer. Those that got none stay away.
    fn close_expired(&self) {
        let now = clock::now().wall;
        let over: Vec<ConnId> = {
            let clients = self.clients.borrow();
            clients.iter().filter(|(_, c)| c.info.principal.expired(now)).map(|(id, _)| *id).collect()
        };
        for conn in over {
            if let Some(c) = self.clients.borrow().get(&conn) {
                tracing::debug!(client = %c.info.entity, name = %c.info.principal.name, "ticket is over; session closed");
            }
            self.close_client(conn);
        }
    }

    // --- other reactors ---

    pub(super) fn handle(&self, item: ToShard) {
        let now = clock::now();
        match item {
            ToShard::Load(feed) => return self.load(feed),
            ToShard::Maps(maps, feed) => {
                if let Some(p) = self.peers() {
                    p.handle_map(&feed.map);
                }
                self.core.borrow_mut().handle_maps(&maps, feed, now, &mut *self.store.borrow_mut());
                self.note_pg_peers();
            }
            ToShard::Create(pgs) => {
                self.core.borrow_mut().create(&pgs, now, &mut *self.store.borrow_mut());
                self.note_pg_peers();
            }
            ToShard::Peer(from, m) => {
                self.core.borrow_mut().handle_peer(from, m, now, &mut *self.store.borrow_mut());
            }
            ToShard::Kin(from, to, kin) => {
                self.core.borrow_mut().handle_kin(from, to, kin, now, &mut *self.store.borrow_mut());
            }
            ToShard::Move(from, spg, m) => {
                self.core.borrow_mut().handle_move(from, spg, m, now, &mut *self.store.borrow_mut());
            }
            ToShard::MayMove(pg, to) => {
                self.core.borrow_mut().may_move(pg, to, now, &mut *self.store.borrow_mut());
            }
            ToShard::Decided(pg, way, granted) => {
                self.core.borrow_mut().decided(pg, way, granted, now, &mut *self.store.borrow_mut());
            }
            ToShard::MoveSeen(pg) => self.core.borrow_mut().move_seen(pg, now, &mut *self.store.borrow_mut()),
            ToShard::PeerReset(osd) => self.core.borrow_mut().peer_reset(osd, now, &mut *self.store.borrow_mut()),
            ToShard::Lease(news) => {
                self.core.borrow_mut().handle_leases(&[news], now, &mut *self.store.borrow_mut());
            }
            ToShard::Op(s, m) => self.core.borrow_mut().op(&s, m, now, &mut *self.store.borrow_mut()),
            ToShard::SessionClosed(id) => {
                self.core.borrow_mut().session_closed(id, now, &mut *self.store.borrow_mut());
            }
            ToShard::Send(conn, m) => return self.send_here(conn, m),
            ToShard::Close(conn) => return self.close_client(conn),
            ToShard::Dropped(conn, tid) => return drop(self.give_back(conn, tid)),
            ToShard::Adopt(stream) => {
                if let Some(ep) = self.endpoint()
                    && let Err(error) = ep.adopt(stream)
                {
                    tracing::debug!(%error, "connection not taken");
                }
                return;
            }
            ToShard::Keys(k) => {
                self.service.set_keys(k);
                if let Some(at) = self.listen_later.take()
                    && let Err(error) = self.listen_to_peers(at, true)
                {
                    tracing::error!(%at, %error, "cannot listen for other OSDs");
                }
                return;
            }
            ToShard::Modes(m) => {
                let peers = self.peers().and_then(|p| p.endpoint());
                return self.endpoint().into_iter().chain(peers).for_each(|e| e.set_modes(&m));
            }
            ToShard::Tickets(t) => return *self.auth.borrow_mut() = *t,
            ToShard::Collect(all) => {
                let (mut stats, lec) = self.core.borrow_mut().stats(all, now, &*self.store.borrow());
                stats.perf = self.meter.borrow_mut().take();
                if self.index != 0 {
                    // All reactors share one device.
                    stats.statfs = Default::default();
                } else {
                    // Holes of a file that its file system has no room for are no space.
                    let lacks = i64::try_from(self.device.unfillable()).unwrap_or(i64::MAX);
                    stats.statfs.available = stats.statfs.available.saturating_sub(lacks).max(0);
                }
                self.routes.control(ToControl::Stats(Box::new(stats), lec));
            }
            ToShard::Queries(q) => return self.meter.borrow_mut().set(q),
            ToShard::Inspect(what, tx) => {
                let v = self.inspect(&what);
                // The asker may have gone.
                let _ = tx.send(v);
                return;
            }
            ToShard::Fetched(pg, id, r) => {
                self.core.borrow_mut().fetched(pg, id, r, now, &mut *self.store.borrow_mut());
            }
            ToShard::ScrubSettings(x) => {
                self.scrub_load.set(x.load_threshold);
                self.core.borrow_mut().set_scrubs(&x);
            }
            ToShard::Force(pgs, options) => {
                self.core.borrow_mut().force(&pgs, options, now, &mut *self.store.borrow_mut());
            }
            ToShard::Scrub(pgs, deep, repair) => {
                self.core.borrow_mut().scrub(&pgs, deep, repair, now, &mut *self.store.borrow_mut());
            }
            ToShard::MarkLost(pg, revert, tx) => {
                let said = self.core.borrow_mut().mark_lost(pg, revert, now, &mut *self.store.borrow_mut());
                // The asker may have gone.
                let _ = tx.send(said);
            }
            ToShard::Reserved => self.core.borrow_mut().reserved(now, &mut *self.store.borrow_mut()),
            ToShard::History(o) => return self.history.borrow_mut().set(o, now.mono),
            ToShard::Profile(p) => return self.core.borrow_mut().set_profile(p),
            ToShard::Grow(step, done) => {
                let Some(host) = self.me.upgrade() else { return };
                tokio::task::spawn_local(async move {
                    // Whoever asked may be gone.
                    let _ = done.send(super::grow::step(host, step).await);
                });
                return;
            }
            ToShard::Stop { abandon: false } => self.core.borrow_mut().stop(now, &mut *self.store.borrow_mut()),
            ToShard::Stop { abandon: true } => {
                // Reactors share the device.
                self.failed.set(true);
                self.core.borrow_mut().abandon();
            }
        }
        self.pump();
    }

    fn inspect(&self, what: &Inspect) -> Value {
        let core = self.core.borrow();
        match what {
            Inspect::Stages => core
                .pgs()
                .flat_map(|p| p.dump_ops(clock::now().mono))
                .map(|o| json!([format!("{}:{}", o.client, o.tid), o.stage]))
                .collect(),
            Inspect::Ops(stages) => {
                let now = clock::now();
                let mut all = Vec::new();
                for c in self.clients.borrow().values() {
                    let (client, addr) = (c.info.entity, c.info.addr);
                    for (tid, f) in &*c.in_flight.borrow() {
                        // One that no PG knows is on its way to one, or was dropped.
                        let young = (now.mono.since(f.received) < IN_TRANSIT).then_some("queued_for_pg");
                        let stage = stages.get(&format!("{client}:{tid}")).map(String::as_str).or(young);
                        let shown =
                            stage.and_then(|s| tracker::in_flight(&f.request, client, addr, f.received, s, now));
                        all.extend(shown);
                    }
                }
                Value::Array(all)
            }
            Inspect::Historic => self.history.borrow_mut().kept(clock::now()).into(),
            Inspect::Slow => self.history.borrow().slow(clock::now()).into(),
            Inspect::States => {
                let mut all: BTreeMap<String, u64> = BTreeMap::new();
                for p in core.pgs().filter(|p| p.is_primary()) {
                    *all.entry(wire::types::pg_state::to_string(p.state_bits())).or_default() += 1;
                }
                json!({ "pgs_by_state": all })
            }
            Inspect::Watchers => core.pgs().flat_map(super::dump::watchers).collect(),
            Inspect::Pg(pg) => core.pg(*pg).map_or(Value::Null, super::dump::pg),
            Inspect::Places => super::dump::places(self.index, &core),
            Inspect::Unfound(pg) => core.pg(*pg).map_or(Value::Null, super::dump::unfound),
            Inspect::Perf => {
                let (c, n, s) = (core.counters(), self.net.stats(), self.store.borrow().counters());
                let fs = self.store.borrow().statfs();
                let (sessions, queued) = self.peers().map_or((0, 0), |p| p.figures());
                json!({
                    "osd": {
                        "op": c.op, "op_r": c.op_r, "op_w": c.op_w, "op_in_bytes": c.op_in_bytes,
                        "op_out_bytes": c.op_out_bytes, "op_denied": c.op_denied, "op_misdirected": c.op_misdirected,
                        "numpg": core.pg_count(),
                        "stat_bytes": if self.index == 0 { fs.total } else { 0 },
                        "stat_bytes_avail": if self.index == 0 { fs.available } else { 0 },
                    },
                    "messenger": {
                        "connections": n.connections, "msg_recv_messages": n.messages_in,
                        "msg_send_messages": n.messages_out, "msg_recv_bytes": n.bytes_in,
                        "msg_send_bytes": n.bytes_out, "reads": n.reads, "writes": n.writes,
                        "protocol_errors": n.protocol_errors, "auth_failures": n.auth_failures,
                        "osd_sessions": sessions, "osd_queued_bytes": queued,
                    },
                    "store": {
                        "txns": s.txns, "frames": s.frames, "log_bytes": s.log_bytes, "data_blocks": s.data_blocks,
                        "data_writes": s.data_writes, "reads": s.reads, "flushes": s.flushes,
                        "checkpoints": s.checkpoints, "page_blocks": s.page_blocks, "bad_blocks": s.bad_blocks,
                        "stalls": s.stalls,
                    },
                })
            }
        }
    }

    // --- other OSDs ---

    /// Every message of a PG goes over the data session, so that they keep their order; leases go another way.
    fn send_peer(&self, to: OsdId, m: MPgPeer) {
        let map = self.core.borrow().newest_map().cloned();
        if let (Some(map), Some(p)) = (map, self.peers()) {
            p.send(to, m, &map);
        }
    }

    fn peer_event(&self, e: PeerEvent) {
        match e {
            PeerEvent::Message(from, m) => self.peer_message(from, &m),
            PeerEvent::Reset(osd) => {
                self.strange.borrow_mut().remove(&osd);
                self.work();
                self.routes.all(|| ToShard::PeerReset(osd));
            }
        }
    }

    /// Tells the control machine which OSDs share PGs with this one here, if that changed.
    fn note_pg_peers(&self) {
        let now = self.core.borrow().pg_peers();
        if *self.pg_peers.borrow() != now {
            self.routes.control(ToControl::PgPeers(self.index, now.0.clone(), now.1.clone()));
            self.pg_peers.replace(now);
        }
    }

    fn peer_message(&self, from: OsdId, m: &Message) {
        match m.header.kind {
            MPgPeer::KIND => match MPgPeer::from_message(m) {
                Ok(m) => self.later(Work::Peer(from, Box::new(m))),
                Err(error) => self.not_understood(from, &error),
            },
            MPgPeers::KIND => match MPgPeers::from_message(m) {
                Ok(m) => {
                    for m in m.items {
                        self.later(Work::Peer(from, Box::new(m)));
                    }
                }
                Err(error) => self.not_understood(from, &error),
            },
            MOsdMap::KIND => match MOsdMap::from_message(m) {
                Ok(m) => self.routes.control(ToControl::Maps(m)),
                Err(error) => tracing::warn!(osd = from.0, %error, "maps of another OSD not understood"),
            },
            // Not admitted.
            _ => {}
        }
    }

    /// Says so once in each session: an OSD of another build sends many of these.
    fn not_understood(&self, from: OsdId, error: &wire::DecodeError) {
        if self.strange.borrow_mut().insert(from) {
            tracing::error!(osd = from.0, %error, "does not speak as this OSD does; OSDs of a cluster must run the same build");
        }
    }

    fn pg_message(&self, from: OsdId, m: Box<MPgPeer>, now: base::Now) {
        let target = self.core.borrow().place(m.spg.pg);
        if target == self.index {
            self.core.borrow_mut().handle_peer(from, m, now, &mut *self.store.borrow_mut());
        } else {
            // It was split off one there, or the sender does not know how many reactors we have.
            self.routes.shard(target, ToShard::Peer(from, m));
        }
    }

    // --- clients ---

    fn client_event(&self, conn: ConnId, event: ConnEvent) {
        match event {
            ConnEvent::Message(m) => self.client_message(conn, m),
            ConnEvent::Open(p) => self.client_open(conn, &p),
            ConnEvent::Closed(reason) => {
                self.work();
                self.client_gone(conn, &reason);
            }
        }
    }

    fn client_open(&self, conn: ConnId, p: &PeerInfo) {
        let caps = caps_of(&p.principal).unwrap_or_else(|error| {
            tracing::warn!(name = %p.principal.name, error, "caps not understood; nothing is allowed");
            OsdCaps::default()
        });
        let mut addr = p.addrs.0.first().copied().unwrap_or_default();
        if addr.sock.is_none_or(|s| s.ip().is_unspecified()) {
            addr.sock = Some(std::net::SocketAddr::new(p.principal.socket.ip(), 0));
        }
        let info = SessionInfo {
            id: session_id(self.index, conn),
            reactor: self.index,
            conn,
            entity: p.entity,
            principal: p.principal.clone(),
            addr,
            features: p.features,
            caps,
        };
        let client = Rc::new(Client {
            info: Arc::new(info),
            map: KnownMap::default(),
            in_flight: RefCell::default(),
            refused: Cell::new(false),
        });
        self.clients.borrow_mut().insert(conn, client);
    }

    fn client_message(&self, conn: ConnId, m: Message) {
        let Some(c) = self.clients.borrow().get(&conn).cloned() else { return };
        let cost = m.cost();
        if let Err(why) = admission::admit(Lane::Public, m.header.kind, &c.info.principal) {
            self.net.consumed(conn, cost);
            return self.refused(conn, &c, &m, why);
        }
        if m.header.kind == MOsdOp::KIND {
            let f = InFlight { received: clock::now().mono, request: m.clone(), cost };
            let before = c.in_flight.borrow_mut().insert(m.header.tid, f);
            if let Some(b) = before.filter(|b| b.cost > 0) {
                // Sent again: the first one's answer went nowhere.
                self.net.consumed(conn, b.cost);
            }
        } else {
            self.net.consumed(conn, cost);
        }
        match m.header.kind {
            MOsdOp::KIND => match MOsdOp::from_message(&m) {
                Ok(op) => self.later(Work::Op(c, Box::new(op))),
                Err(error) => {
                    tracing::warn!(client = %c.info.entity, %error, "operation not understood; closing the connection");
                    self.net.close(conn);
                    self.client_event(conn, ConnEvent::Closed(net::CloseReason::Local));
                }
            },
            MCommand::KIND => self.routes.control(ToControl::Command(self.index, c.info.clone(), m)),
            MOsdMap::KIND => match MOsdMap::from_message(&m) {
                Ok(m) => self.routes.control(ToControl::Maps(m)),
                Err(error) => tracing::warn!(osd = %c.info.entity, %error, "maps of another OSD not understood"),
            },
            // Acknowledgements of backoffs, and pings of watchers: nothing to do.
            MOsdBackoff::KIND | MPing::KIND => {}
            kind => tracing::info!(client = %c.info.entity, kind, "message is not supported"),
        }
    }

    /// A message that its sender may not send. A session that goes on so is named once in the log.
    #[cold]
    fn refused(&self, conn: ConnId, c: &Client, m: &Message, why: Refusal) {
        let (kind, name) = (wire::msg::registry::name(m.header.kind), &c.info.principal.name);
        if !c.refused.replace(true) {
            tracing::warn!(client = %c.info.entity, %name, socket = %c.info.principal.socket, kind, ?why, "message refused");
        } else {
            tracing::debug!(client = %c.info.entity, %name, kind, ?why, "message refused");
        }
        if why == Refusal::Lacks(Right::AllowAll) {
            let refused = MCommandReply { r: base::errno::EACCES, ..MCommandReply::default() };
            self.send_here(conn, refused.to_message(Features::PACIFIC).with_tid(m.header.tid));
        }
    }

    fn client_op(&self, c: &Client, m: Box<MOsdOp>, now: base::Now) {
        let maps = c.map.share(m.osdmap_epoch, self.core.borrow().feed().map(|f| &**f), c.info.features);
        if let Some(maps) = maps {
            let _ = self.net.send(c.info.conn, maps.to_message(c.info.features));
        }
        let target = self.core.borrow().place_of_op(&m);
        if target == self.index {
            self.core.borrow_mut().op(&c.info, m, now, &mut *self.store.borrow_mut());
        } else {
            self.routes.shard(target, ToShard::Op(c.info.clone(), m));
        }
    }
}

/// Reactor of a PG by its name, so that everybody knows it without asking; one that was split off another is where that is
/// ([`crate::core::places`]).
pub(super) fn reactor_of(pg: PgId, reactors: usize) -> usize {
    let shard = layout::shard_for(store::Cid::Pg(pg.into()), layout::SHARDS);
    layout::reactor_for(shard, reactors as u16).into()
}

async fn completions(s: Weak<ShardHost>) {
    loop {
        let Some(host) = s.upgrade() else { return };
        host.disk.ready().await;
        host.complete();
    }
}

/// The store goes on with a checkpoint although nothing is in flight that would bring its next turn.
async fn another_turn(s: Weak<ShardHost>) {
    if let Some(host) = s.upgrade() {
        host.schedule();
    }
}

/// Lets background work go on at its time. Runs only while some is held back.
async fn pace(s: Weak<ShardHost>, at: Mono) {
    tokio::time::sleep(at.since(clock::read().mono)).await;
    let Some(host) = s.upgrade() else { return };
    host.pacing.set(false);
    host.core.borrow_mut().pace(clock::read(), &mut *host.store.borrow_mut());
    host.pump();
}

/// Lets more PGs see new maps, in a turn of its own: what sockets and disk have brought comes first.
async fn walk(s: Weak<ShardHost>) {
    tokio::task::yield_now().await;
    let Some(host) = s.upgrade() else { return };
    host.walking.set(false);
    host.core.borrow_mut().walk_on(clock::now(), &mut *host.store.borrow_mut());
    host.pump();
}

/// The load average per CPU is below that. Without one to be read, it is.
fn load_below(threshold: f64) -> bool {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = text.split_whitespace().next().and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    load / cpus as f64 <= threshold
}

async fn ticks(s: Weak<ShardHost>) {
    let mut every = tokio::time::interval(TICK);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut since, mut ops) = (0, 0);
    loop {
        every.tick().await;
        let Some(host) = s.upgrade() else { return };
        since += 1;
        if since >= RELEASE_TICKS {
            let done = host.core.borrow().counters().op;
            if done - ops < RELEASE_OPS_MAX {
                host.store.borrow_mut().release_memory();
                (host.release_memory)();
            }
            (since, ops) = (0, done);
        }
        host.store.borrow_mut().confirm();
        let now = clock::read();
        host.watch_device(now.mono);
        host.core.borrow_mut().tick(now, &mut *host.store.borrow_mut());
        let threshold = host.scrub_load.get();
        host.core.borrow_mut().schedule_scrubs(now, || load_below(threshold), &mut *host.store.borrow_mut());
        if !host.own.borrow().is_empty() {
            host.submit_own();
        }
        host.forget_old(now.mono);
        host.close_expired();
        host.note_pg_peers();
        host.pump();
    }
}

/// Takes what other reactors send, until all of them are gone.
pub(super) async fn mailbox(s: Rc<ShardHost>, mut rx: reactor::mailbox::Receiver<ToShard>) {
    let mut batch = VecDeque::new();
    while rx.recv_batch(&mut batch).await {
        for item in batch.drain(..) {
            s.handle(item);
        }
    }
}
