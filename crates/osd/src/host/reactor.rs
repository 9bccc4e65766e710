//! One reactor of an OSD: client connections, PGs, store and disk.
//!
//! A loop turn has stages. First, messages of connections are decoded and gathered. Then the PG machines handle
//! them one after the other, and their effects become replies and store I/O. The turn's end closes the store's
//! open frame, submits all disk I/O at once, and writes each connection once. The reason is the instruction
//! cache: the code of an operation's whole path exceeds it several times, but a stage stays in it for all
//! operations of a turn.
//!
//! Invariant: no `RefCell` is borrowed while another component is called that may call back.
//!
//! Tests: a daemon in which one is panics (`interop/run.sh`).

mod clients;
mod inspect;
mod judged;
mod others;
mod own;
mod turn;

use crate::core::admission::Admission;
use crate::core::perf::Meter;
use crate::core::pgs::{Input, Pgs};
use crate::core::room::RoomLimits;
use crate::core::unanswered::Forgotten;
use crate::host::fill::Fills;
use crate::host::peers::{PeerEvent, Peers};
use crate::host::route::{Routes, ToControl, ToReactor};
use crate::host::tracker::History;
use auth::server::ServiceHost;
use base::PgId;
use clients::{Client, ClientEvents};
use judged::Judged;
use net::{ConnId, Endpoint, Net};
use others::Others;
use own::Own;
use reactor::clock;
use reactor::disk::{Disk, DiskFile};
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use store::engine::Store;
use store::layout;
use turn::{Stages, Work, completions, ticks};

/// Time for which an operation that no PG knows is still shown as in flight.
const IN_TRANSIT: Duration = Duration::from_secs(1);
/// Interval at which deadlines of watches and notifies are checked.
const TICK: Duration = Duration::from_millis(500);
/// Ticks between returns of free memory to the system.
const RELEASE_TICKS: u32 = 20;
/// Most operations between two returns; a busier reactor keeps its memory.
const RELEASE_OPS_MAX: u64 = 1000;

/// Messages or events announced before the first of them is handled. Their prefetched memory fits the CPU
/// caches with room.
const PREFETCHED: usize = 16;

/// Host of a reactor; see the module.
pub(super) struct ReactorHost {
    me: Weak<Self>,
    index: usize,
    net: Net,
    endpoint: RefCell<Option<Endpoint>>,
    others: Others,
    core: RefCell<Pgs>,
    store: RefCell<Store>,
    disk: Disk,
    device: Arc<DiskFile>,
    fills: Option<Fills>,
    clients: RefCell<FxHashMap<ConnId, Rc<Client>>>,
    routes: Routes,
    service: Rc<ServiceHost>,
    stages: Stages,
    own: Own,
    history: RefCell<History>,
    /// Load above which no scrub begins.
    scrub_load: Cell<f64>,
    meter: RefCell<Meter>,
    release_memory: fn(),
    /// True once the store has failed.
    failed: Cell<bool>,
    judged: Judged,
    admission: Admission,
    /// Bytes that unanswered operations of all clients have returned.
    forgotten: RefCell<Forgotten>,
}

/// Components of a reactor's host.
pub(super) struct Parts {
    pub(super) index: usize,
    pub(super) net: Net,
    pub(super) core: Pgs,
    pub(super) store: Store,
    pub(super) disk: Disk,
    pub(super) device: Arc<DiskFile>,
    /// Thread that allocates file blocks; `None` for a block device.
    pub(super) fills: Option<Fills>,
    pub(super) routes: Routes,
    pub(super) service: Rc<ServiceHost>,
    pub(super) public: net::EndpointConfig,
    /// Endpoint towards other OSDs: identity with this reactor's cluster address.
    pub(super) cluster: net::EndpointConfig,
    pub(super) auth: Rc<RefCell<auth::Client>>,
    pub(super) release_memory: fn(),
    /// Time without an answer after which the device counts as failed.
    pub(super) device_timeout: Duration,
    pub(super) limits: RoomLimits,
    pub(super) discard: bool,
}

impl ReactorHost {
    pub(super) fn start(p: Parts) -> Rc<Self> {
        let me = Rc::new_cyclic(|me| Self {
            me: me.clone(),
            index: p.index,
            net: p.net.clone(),
            endpoint: RefCell::default(),
            others: Others::new(p.auth),
            core: RefCell::new(p.core),
            store: RefCell::new(p.store),
            disk: p.disk,
            device: p.device,
            fills: p.fills,
            clients: RefCell::default(),
            routes: p.routes,
            service: p.service,
            stages: Stages::default(),
            own: Own::default(),
            history: RefCell::default(),
            scrub_load: Cell::new(crate::core::scrub::LOAD_THRESHOLD),
            meter: RefCell::default(),
            release_memory: p.release_memory,
            failed: Cell::new(false),
            admission: Admission::default(),
            forgotten: RefCell::default(),
            judged: Judged::new(p.device_timeout, p.limits, p.discard),
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
        me.others.set_peers(Peers::new(&p.net, p.cluster, Box::new(sink)));
        me.hook_turns();
        tokio::task::spawn_local(completions(Rc::downgrade(&me)));
        tokio::task::spawn_local(ticks(Rc::downgrade(&me)));
        me
    }

    /// Number of this reactor.
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Endpoint with the identity that clients see.
    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        self.endpoint.borrow().clone()
    }

    /// Handles a message of the control machine's host or of another reactor.
    pub(super) fn handle(&self, item: ToReactor) {
        let now = clock::now();
        match item {
            ToReactor::Input(input) => self.input(input, now),
            ToReactor::Slow(slow) => return self.slow(slow),
            ToReactor::Send(conn, m) => return self.send_here(conn, m),
            ToReactor::Close(conn) => return self.close_client(conn),
            ToReactor::Dropped(conn, tid, feed) => return self.dropped_here(conn, tid, feed.as_deref()),
            ToReactor::Adopt(stream) => {
                if let Some(ep) = self.endpoint()
                    && let Err(error) = ep.adopt(stream)
                {
                    tracing::debug!(%error, "connection not taken");
                }
                return;
            }
            ToReactor::Keys(k) => {
                self.service.set_keys(k);
                if let Some(at) = self.others.take_listener()
                    && let Err(error) = self.listen_to_peers(at, true)
                {
                    tracing::error!(%error, "cannot listen for other OSDs");
                }
                return;
            }
            ToReactor::Modes(m) => {
                let peers = self.peers().and_then(|p| p.endpoint());
                return self.endpoint().into_iter().chain(peers).for_each(|e| e.set_modes(&m));
            }
            ToReactor::Tickets(t) => return self.others.set_tickets(*t),
            ToReactor::Collect(all) => {
                let (mut stats, lec) = self.core.borrow_mut().stats(all, now, &*self.store.borrow());
                stats.perf = self.meter.borrow_mut().take();
                stats.commits = self.meter.borrow_mut().commits.take();
                stats.counters = self.sections();
                if self.index != 0 {
                    // All reactors share one device.
                    stats.statfs = Default::default();
                } else {
                    // Holes of a file for which its file system has no room are not available space.
                    let lacks = i64::try_from(self.judged.lacks(self.device.room())).unwrap_or(i64::MAX);
                    stats.statfs.available = stats.statfs.available.saturating_sub(lacks).max(0);
                }
                self.routes.control(ToControl::Stats(Box::new(stats), lec));
            }
            ToReactor::Queries(q) => return self.meter.borrow_mut().set(q),
            ToReactor::Counters(tx) => {
                let counted = (self.sections(), self.core.borrow().histograms());
                // The requester may have gone.
                let _ = tx.send(counted);
                return;
            }
            ToReactor::Checkpoint(tx) => {
                let mut store = self.store.borrow_mut();
                let done = store.counters().checkpoints;
                let comes = store.request_checkpoint();
                // The requester may have gone.
                let _ = tx.send(comes.then_some(done));
            }
            ToReactor::Inspect(what, tx) => {
                let v = self.inspect(&what);
                // The requester may have gone.
                let _ = tx.send(v);
                return;
            }
            ToReactor::ScrubSettings(x) => {
                self.scrub_load.set(x.load_threshold);
                self.core.borrow_mut().set_scrubs(&x);
            }
            ToReactor::Compression(x) => self.core.borrow_mut().set_compression(x, &mut *self.store.borrow_mut()),
            ToReactor::MarkLost(pg, revert, tx) => {
                let said = self.core.borrow_mut().mark_lost(pg, revert, now, &mut *self.store.borrow_mut());
                // The requester may have gone.
                let _ = tx.send(said);
            }
            ToReactor::Ledger(span, tx) => {
                // The requester may have gone.
                let _ = tx.send(self.ledger(span));
                return;
            }
            ToReactor::History(o) => return self.history.borrow_mut().set(o, now.mono),
            ToReactor::DataMemory(bytes) => return self.store.borrow_mut().set_data_bytes(bytes),
            ToReactor::Discard(d) => {
                self.judged.set_discard(d);
                return self.judge_room();
            }
            ToReactor::Profile(p) => return self.core.borrow_mut().set_profile(p),
            ToReactor::Grow(step, done) => {
                let Some(host) = self.me.upgrade() else { return };
                tokio::task::spawn_local(async move {
                    // The requester may have gone.
                    let _ = done.send(super::grow::step(host, step).await);
                });
                return;
            }
            ToReactor::Filled(ok) => self.store.borrow_mut().filled(ok),
        }
        self.pump();
    }

    fn input(&self, input: Input, now: base::Now) {
        match &input {
            Input::Maps(_, feed) => {
                if let Some(p) = self.peers() {
                    p.handle_map(&feed.map);
                }
            }
            // Reactors share the device, so all have failed.
            Input::Stop { abandon: true } => self.failed.set(true),
            _ => {}
        }
        if self.core.borrow_mut().handle(input, now, &mut *self.store.borrow_mut()) {
            self.note_pg_peers();
        }
    }
}

/// Reactor that a PG's name selects. A split-off PG may be on its parent's instead ([`crate::core::places`]).
pub(super) fn reactor_of(pg: PgId, reactors: usize) -> usize {
    let shard = layout::shard_for(store::Cid::Pg(pg.into()), layout::SHARDS);
    layout::reactor_for(shard, reactors as u16).into()
}

/// Handles messages of other reactors, until all of these are gone.
pub(super) async fn mailbox(s: Rc<ReactorHost>, mut rx: reactor::mailbox::Receiver<ToReactor>) {
    let mut batch = VecDeque::new();
    while rx.recv_batch(&mut batch).await {
        for item in batch.drain(..) {
            s.handle(item);
        }
    }
}
