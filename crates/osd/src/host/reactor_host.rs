//! Host of a reactor: connections, disk and clock of [`crate::core::reactor`].
//!
//! A loop turn has stages. First, messages of connections are decoded and gathered. Then the PG machines handle
//! them one after the other, and their effects become replies and store I/O. The turn's end closes the store's
//! open frame, submits all disk I/O at once, and writes each connection once. The reason is the instruction
//! cache: the code of an operation's whole path exceeds it several times, but a stage stays in it for all
//! operations of a turn.
//!
//! | module | contents |
//! | --- | --- |
//! | `clients` | a client's operation on its way from the connection to the PGs and back |
//! | `inspect` | state of a reactor that admin commands show |
//! | `judged` | judgement of the device and its space; see `silence` and `room` |
//! | `others` | other OSDs: their messages, and those that share PGs with this reactor |
//! | `own` | the host's own transactions and reads, and failures of the store |
//! | `turn` | a loop turn: messages go to PGs, completions to the store, effects to sockets and disk |
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
use crate::core::pgs::Input;
use crate::core::queries::Meter;
use crate::core::reactor::Reactor;
use crate::core::room::RoomLimits;
use crate::core::unanswered::Forgotten;
use crate::host::fill::Fills;
use crate::host::peers::{PeerEvent, Peers};
use crate::host::route::{Ask, Routes, Setting, ToControl, ToReactor};
use crate::host::tracker::History;
use auth::server::ServiceHost;
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
use turn::{Stages, Work, completions, ticks};

/// Time for which an operation that no PG knows is still shown as in flight.
const IN_TRANSIT: Duration = Duration::from_secs(1);
/// Ticks between returns of free memory to the system.
const RELEASE_TICKS: u32 = 20;
/// Most operations between two returns; a busier reactor keeps its memory.
const RELEASE_OPS_MAX: u64 = 1000;

/// Host of a reactor; see the module.
pub(super) struct ReactorHost {
    me: Weak<Self>,
    index: usize,
    net: Net,
    endpoint: RefCell<Option<Endpoint>>,
    others: Others,
    core: RefCell<Reactor>,
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
    judged: Judged,
    admission: Admission,
    /// Bytes that unanswered operations of all clients have returned.
    forgotten: RefCell<Forgotten>,
}

/// Components of a reactor's host.
pub(super) struct Parts {
    pub(super) net: Net,
    pub(super) core: Reactor,
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
    pub(super) limits: RoomLimits,
    pub(super) discard: bool,
}

impl ReactorHost {
    pub(super) fn start(p: Parts) -> Rc<Self> {
        let me = Rc::new_cyclic(|me| Self {
            me: me.clone(),
            index: p.core.index(),
            net: p.net.clone(),
            endpoint: RefCell::default(),
            others: Others::new(p.auth),
            core: RefCell::new(p.core),
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
            admission: Admission::default(),
            forgotten: RefCell::default(),
            judged: Judged::new(p.limits, p.discard),
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
        match item {
            ToReactor::Input(input) => self.input(input),
            ToReactor::Slow(slow) => self.slow(slow),
            ToReactor::Send(conn, m) => self.send_here(conn, m),
            ToReactor::Close(conn) => self.close_client(conn),
            ToReactor::Dropped(conn, tid, feed) => self.dropped_here(conn, tid, feed.as_deref()),
            ToReactor::Adopt(stream) => self.adopt(stream),
            ToReactor::Keys(k) => self.set_keys(k),
            ToReactor::Tickets(t) => self.others.set_tickets(*t),
            ToReactor::Set(s) => self.set(s),
            ToReactor::Ask(q) => self.answer(q),
            ToReactor::Filled(ok) => {
                self.core.borrow_mut().store_mut().filled(ok);
                self.pump();
            }
        }
    }

    fn input(&self, input: Input) {
        if let Input::Maps(_, feed) = &input
            && let Some(p) = self.peers()
        {
            p.handle_map(&feed.map);
        }
        self.core.borrow_mut().handle(input, clock::now());
        self.pump();
    }

    /// Serves a socket.
    fn adopt(&self, stream: net::descriptors::Accepted) {
        if let Some(ep) = self.endpoint()
            && let Err(error) = ep.adopt(stream)
        {
            tracing::debug!(%error, "connection not taken");
        }
    }

    /// Takes fresh secrets for checking tickets. With the first ones the cluster address is served.
    fn set_keys(&self, k: auth::RotatingKeys) {
        self.service.set_keys(k);
        if let Some(at) = self.others.take_listener()
            && let Err(error) = self.listen_to_peers(at, true)
        {
            tracing::error!(%error, "cannot listen for other OSDs");
        }
    }

    /// Applies a setting.
    fn set(&self, s: Setting) {
        match s {
            Setting::Queries(q) => self.meter.borrow_mut().set(q),
            Setting::Modes(m) => {
                let peers = self.peers().and_then(|p| p.endpoint());
                self.endpoint().into_iter().chain(peers).for_each(|e| e.set_modes(&m));
            }
            Setting::History(o) => self.history.borrow_mut().set(o, clock::now().mono),
            Setting::DataMemory(bytes) => self.core.borrow_mut().store_mut().set_data_bytes(bytes),
            Setting::Discard(d) => {
                self.judged.set_discard(d);
                self.judge_room();
            }
            Setting::Profile(p) => self.core.borrow_mut().parts().0.set_profile(p),
            Setting::Scrubs(x) => {
                self.scrub_load.set(x.load_threshold);
                self.core.borrow_mut().parts().0.set_scrubs(&x);
            }
            Setting::Compression(x) => {
                let mut core = self.core.borrow_mut();
                let (pgs, store) = core.parts();
                pgs.set_compression(x, store);
            }
        }
        self.pump();
    }

    /// Answers a question, or carries out an order of an operator. The requester may have gone.
    fn answer(&self, q: Ask) {
        match q {
            Ask::Stats(all) => self.report(all),
            Ask::Counters(tx) => {
                let counted = (self.sections(), self.core.borrow().pgs().histograms());
                let _ = tx.send(counted);
            }
            Ask::Inspect(what, tx) => {
                let _ = tx.send(self.inspect(&what));
            }
            Ask::Ledger(span, tx) => {
                let _ = tx.send(self.ledger(span));
            }
            Ask::Checkpoint(tx) => {
                let mut core = self.core.borrow_mut();
                let done = core.store().counters().checkpoints;
                let comes = core.store_mut().request_checkpoint();
                let _ = tx.send(comes.then_some(done));
            }
            Ask::MarkLost(pg, revert, tx) => {
                let mut core = self.core.borrow_mut();
                let (pgs, store) = core.parts();
                let _ = tx.send(pgs.mark_lost(pg, revert, clock::now(), store));
            }
            Ask::Grow(step, done) => {
                let Some(host) = self.me.upgrade() else { return };
                tokio::task::spawn_local(async move {
                    let _ = done.send(super::grow::step(host, step).await);
                });
            }
        }
        self.pump();
    }

    /// Sends this reactor's statistics to the control machine.
    fn report(&self, all: bool) {
        let (mut stats, lec) = self.core.borrow_mut().stats(all, clock::now());
        stats.perf = self.meter.borrow_mut().take();
        stats.commits = self.meter.borrow_mut().commits.take();
        stats.counters = self.sections();
        if self.index == 0 {
            // Holes of a file for which its file system has no room are not available space.
            let lacks = i64::try_from(self.judged.lacks(self.device.room())).unwrap_or(i64::MAX);
            stats.statfs.available = stats.statfs.available.saturating_sub(lacks).max(0);
        }
        self.routes.control(ToControl::Stats(Box::new(stats), lec));
    }
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
