//! Carries events into the core and effects out of it.
//!
//! Each event is handled at once. The commit of its changes begins at the end of the reactor's turn, so that all
//! changes of one turn share it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use base::{AddrVec, EntityKind};
use net::{ConnEvent, ConnId, Handler, Net, PeerInfo};
use reactor::{Turn, TurnHook, clock};
use state::{Entry, StateError, StateStore};
use tokio::sync::{Notify, oneshot};
use wire::Decode as _;

use super::MonError;
use super::membership::Standing;
use crate::command::HostJob;
use crate::core::relay::{Hub, HubEffect, LINK_IDS, OUTPUT_FULL, is_monitor};
use crate::core::session::Peer;
use crate::core::start::reading::{Reading, Step};
use crate::core::{Effect, Event, MonCore};
use crate::state::Role;
use mgr::host::forward::Forward;

/// The core with the network, the state store and the host's own state.
pub(super) struct Bridge {
    pub(super) core: Rc<RefCell<MonCore>>,
    net: Net,
    store: RefCell<Box<dyn StateStore>>,
    hook: RefCell<Option<TurnHook>>,
    progress: Notify,
    stopped: RefCell<Option<String>>,
    open: RefCell<HashMap<ConnId, ()>>,
    counters: Counters,
    /// The core's count of settings changes up to which log levels are applied.
    changes: Cell<u64>,
    jobs: RefCell<Vec<(u64, HostJob)>>,
    forwards: RefCell<Vec<(u64, Forward)>>,
    /// With several monitors: the outcome of the membership, and until when this monitor leads.
    standing: Option<Arc<Standing>>,
    /// Client sessions that other monitors relay.
    hub: RefCell<Hub>,
    /// The reading of the whole state that is under way.
    export: RefCell<Option<(Reading, Option<Export>)>>,
    /// The announced addresses of the monitors on relay links, by connection.
    monitors: RefCell<HashMap<u64, AddrVec>>,
}

/// Way of a whole state to the task that asked for it.
type Export = oneshot::Sender<Result<Vec<(bytes::Bytes, Entry)>, StateError>>;

/// Token of the requests of a reading of the whole state. The core's own tokens count up from smaller numbers.
const EXPORT: state::Token = u64::MAX - 1;

/// Running totals for `perf dump`.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) sessions_opened: Cell<u64>,
    pub(super) sessions_closed: Cell<u64>,
    pub(super) commits: Cell<u64>,
}

impl Bridge {
    pub(super) fn new(
        core: Rc<RefCell<MonCore>>,
        net: Net,
        store: Box<dyn StateStore>,
        standing: Option<Arc<Standing>>,
    ) -> Rc<Self> {
        let me = Rc::new(Self {
            core,
            net,
            store: RefCell::new(store),
            hook: RefCell::new(None),
            progress: Notify::new(),
            stopped: RefCell::new(None),
            open: RefCell::new(HashMap::new()),
            counters: Counters::default(),
            changes: Cell::new(0),
            jobs: RefCell::default(),
            forwards: RefCell::default(),
            standing,
            hub: RefCell::default(),
            export: RefCell::default(),
            monitors: RefCell::default(),
        });
        let weak = Rc::downgrade(&me);
        let hook = Turn::current().on_end(move || {
            if let Some(me) = weak.upgrade() {
                me.turn_end();
            }
        });
        *me.hook.borrow_mut() = Some(hook);
        me
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The reason why the core stopped, if it did.
    pub(super) fn stopped(&self) -> Option<String> {
        self.stopped.borrow().clone()
    }

    /// Completes when an event arrived that the main loop has to look at.
    pub(super) async fn progress(&self) {
        self.progress.notified().await;
    }

    /// False if this monitor led and its lease has expired; it then handles no events and sends nothing.
    fn may_act(&self) -> bool {
        let ok = self.standing.as_ref().is_none_or(|s| s.may_act());
        if !ok {
            self.stopped.borrow_mut().get_or_insert_with(|| "the lease of the leader expired".into());
            self.progress.notify_one();
        }
        ok
    }

    fn handle(&self, e: Event) {
        if !self.may_act() {
            return;
        }
        self.core.borrow_mut().handle(e, clock::now());
        if let Some(h) = self.hook.borrow().as_ref() {
            h.schedule();
        }
    }

    /// Takes the jobs that the core has for the host.
    pub(super) fn take_jobs(&self) -> Vec<(u64, HostJob)> {
        self.jobs.take()
    }

    /// Takes the commands for the separate manager.
    pub(super) fn take_forwards(&self) -> Vec<(u64, Forward)> {
        self.forwards.take()
    }

    /// Hands the answer of a finished job to the core.
    pub(super) fn answer(&self, token: u64, (rc, rs, out): (i32, String, bytes::Bytes)) {
        self.handle(Event::Answer(token, rc, rs, out));
    }

    pub(super) fn tick(&self) {
        self.store.borrow_mut().tick(clock::now().mono);
        self.handle(Event::Tick);
        let round = self.core.borrow_mut().clock_round(clock::read());
        if let Some(round) = round.filter(|_| self.may_act()) {
            self.hub.borrow_mut().ask_clocks(round);
            self.send_on_links();
        }
    }

    /// Announces where a module serves, or that it does not, in the manager map.
    pub(super) fn offer(&self, module: &'static str, uri: Option<String>) {
        let told = self.core.borrow().state().mgrmap.services.get(module).cloned();
        if told != uri {
            self.handle(Event::Offer(module, uri));
        }
    }

    /// Names the clients of the manager role in the manager map; true once the map names exactly these.
    pub(super) fn names_clients(&self, mut clients: Vec<AddrVec>) -> bool {
        clients.sort();
        clients.dedup();
        let named = self.core.borrow().state().mgrmap.clients == clients;
        if !named {
            self.handle(Event::OwnClients(clients));
        }
        named
    }

    /// Stores values that a module made, unless one of them is there.
    pub(super) fn store_values(&self, values: [(&'static str, bytes::Bytes); 2]) {
        self.handle(Event::StoreValues(values));
    }

    /// Applies changed log levels.
    pub(super) fn settings_changed(&self) {
        let core = self.core.borrow();
        let o = &core.state().options;
        if self.changes.replace(o.changes) != o.changes {
            net::log_filter::apply(&o.settings);
        }
    }

    /// Begins a commit if there are changes, and carries out effects.
    pub(super) fn turn_end(&self) {
        self.core.borrow_mut().flush();
        self.settings_changed();
        // An effect may call back into the core, so the core is not borrowed while effects are carried out.
        let effects = self.core.borrow_mut().take_effects();
        if !self.may_act() {
            return;
        }
        if self.core.borrow().has_more()
            && let Some(h) = self.hook.borrow().as_ref()
        {
            h.schedule();
        }
        for e in effects {
            match e {
                Effect::Send(c, m) if Hub::is_relayed(c) => {
                    let sent = self.hub.borrow_mut().send(c, m);
                    if let Err(why) = sent {
                        tracing::warn!("mon: closing a session that another monitor relays: {why}");
                        self.hub.borrow_mut().close(c, why);
                        self.handle(Event::Closed(c));
                    }
                }
                Effect::Close(c, why) if Hub::is_relayed(c) => {
                    tracing::warn!("mon: closing a session that another monitor relays: {why}");
                    self.hub.borrow_mut().close(c, why);
                }
                Effect::Send(c, m) => self.send(c, m),
                Effect::Close(c, why) => {
                    tracing::warn!("mon: closing {}: {why}", ConnId(c));
                    self.open.borrow_mut().remove(&ConnId(c));
                    self.net.close(ConnId(c));
                }
                Effect::CloseLinks(why) => {
                    let links: Vec<u64> = self.monitors.borrow().keys().copied().collect();
                    for link in links {
                        tracing::warn!("mon: closing the relay link {}: {why}", ConnId(link));
                        self.net.close(ConnId(link));
                        self.link_closed(ConnId(link));
                    }
                }
                Effect::Submit(r) => {
                    if matches!(r.op, state::Op::Txn(_)) {
                        self.counters.commits.set(self.counters.commits.get() + 1);
                    }
                    self.store.borrow_mut().submit(r);
                }
                Effect::Job(token, job) => {
                    self.jobs.borrow_mut().push((token, job));
                    self.progress.notify_one();
                }
                Effect::Forward(token, f) => {
                    self.forwards.borrow_mut().push((token, *f));
                    self.progress.notify_one();
                }
                Effect::Stop(why) => {
                    self.stopped.borrow_mut().get_or_insert(why);
                    self.progress.notify_one();
                }
            }
        }
        self.hold_sessions();
        self.send_on_links();
    }

    /// Stops or resumes the reading of sessions, as the core asks.
    fn hold_sessions(&self) {
        for (c, hold) in self.core.borrow_mut().take_holds() {
            match hold {
                _ if Hub::is_relayed(c) => self.hub.borrow_mut().hold(c, hold),
                true => self.net.hold(ConnId(c)),
                false => self.net.release(ConnId(c)),
            }
        }
    }

    /// Sends a message on a direct connection.
    fn send(&self, c: u64, m: wire::Message) {
        // For a closed connection the network reports `Closed` separately.
        let _ = self.net.send(ConnId(c), m);
        if self.net.output_bytes(ConnId(c)) > OUTPUT_FULL && self.net.report_drained(ConnId(c), OUTPUT_FULL / 4).is_ok()
        {
            self.core.borrow_mut().output_full(c, true);
        }
    }

    /// Handles the messages of a session again whose answers have been sent.
    fn drained(&self, conn: ConnId) {
        self.core.borrow_mut().output_full(conn.0, false);
        if let Some(h) = self.hook.borrow().as_ref() {
            h.schedule();
        }
    }

    fn send_on_links(&self) {
        let fullness = self.hub.borrow_mut().take_fullness();
        for (c, full) in fullness {
            self.core.borrow_mut().output_full(c, full);
            if let Some(h) = self.hook.borrow().as_ref().filter(|_| !full) {
                h.schedule();
            }
        }
        let out = self.hub.borrow_mut().take_out();
        for (link, m) in out {
            // For a closed link the network reports `Closed` separately.
            let _ = self.net.send(ConnId(link), m);
        }
    }

    /// Reads the whole state at one revision. Error: another reading is under way, or the store fails.
    pub(super) async fn read_everything(&self) -> Result<Vec<(bytes::Bytes, Entry)>, MonError> {
        let (tell, told) = oneshot::channel();
        let (reading, first) = Reading::new(super::backup::everything(), 0, EXPORT);
        let busy = self.export.borrow().as_ref().is_some();
        if busy {
            return Err(MonError::Archive("another export is under way".into()));
        }
        *self.export.borrow_mut() = Some((reading, Some(tell)));
        self.store.borrow_mut().submit(first);
        let records = told.await.map_err(|_| MonError::Archive("the monitor stops".into()))?;
        records.map_err(|error| MonError::Store { path: "state".into(), error })
    }

    /// Continues the reading of the whole state.
    fn read_on(&self, r: state::Reply) {
        let mut export = self.export.borrow_mut();
        let Some((reading, tell)) = export.as_mut() else { return };
        let done = match reading.reply(r) {
            Step::Ask(next) => return self.store.borrow_mut().submit(next),
            Step::NotMine => return,
            Step::Done(records, _) => Ok(records),
            Step::Failed(e) => Err(e),
        };
        if let Some(tell) = tell.take() {
            // The task may be gone.
            let _ = tell.send(done);
        }
        *export = None;
    }

    /// Hands the state store's events to the core; never returns.
    pub(super) async fn serve_state(self: &Rc<Self>, ready: Arc<Notify>) {
        let me = Rc::clone(self);
        loop {
            ready.notified().await;
            clock::expire();
            loop {
                let e = me.store.borrow_mut().poll();
                let Some(e) = e else { break };
                match e {
                    state::Event::Reply(r) if r.token == EXPORT => me.read_on(r),
                    e => me.handle(Event::State(e)),
                }
            }
            me.progress.notify_one();
        }
    }

    pub(super) fn peer(info: &PeerInfo, role: Role) -> Peer {
        Peer {
            principal: info.principal.clone(),
            entity: info.entity,
            addrs: info.addrs.clone(),
            features: info.announced,
            role,
        }
    }
}

impl Bridge {
    /// Handles a message from another monitor on its relay link.
    fn link_message(&self, link: ConnId, m: &wire::Message) {
        let effect = self.hub.borrow_mut().message(link.0, m, clock::now().mono);
        match effect {
            Ok(None) => {}
            Ok(Some(HubEffect::Open(c, peer, opened))) => {
                self.handle(Event::OpenElsewhere(c, peer));
                if let Some(addrs) = self.monitors.borrow().get(&link.0) {
                    self.core.borrow_mut().relayed_by(c, addrs, opened);
                }
            }
            Ok(Some(HubEffect::Message(c, m))) => self.handle(Event::Message(c, m)),
            Ok(Some(HubEffect::Closed(c))) => self.handle(Event::Closed(c)),
            Ok(Some(HubEffect::TakeIds)) => {
                let ids = self.core.borrow_mut().take_ids(LINK_IDS);
                self.hub.borrow_mut().ids(link.0, ids);
            }
            Ok(Some(HubEffect::Clock(c))) => {
                if let Some(addrs) = self.monitors.borrow().get(&link.0) {
                    self.core.borrow_mut().clock_answered(addrs, c.round, c.here, clock::read());
                }
            }
            Ok(Some(HubEffect::KeyUsed(k))) => match auth::CryptoKey::from_bytes(&k.key) {
                Ok(key) => self.core.borrow_mut().key_used(k.name, key),
                Err(e) => tracing::warn!("mon: ignoring an invalid key from another monitor: {e}"),
            },
            Err(why) => {
                tracing::warn!("mon: closing the relay link {link} of another monitor: {why}");
                self.net.close(link);
                self.link_closed(link);
            }
        }
        if self.may_act() {
            self.send_on_links();
        }
    }

    fn link_closed(&self, link: ConnId) {
        self.monitors.borrow_mut().remove(&link.0);
        let sessions = self.hub.borrow_mut().link_closed(link.0);
        for c in sessions {
            self.handle(Event::Closed(c));
        }
    }
}

/// Events of one role's endpoint.
pub(super) struct RoleHandler {
    bridge: Rc<Bridge>,
    role: Role,
}

impl RoleHandler {
    pub(super) fn new(bridge: Rc<Bridge>, role: Role) -> Self {
        Self { bridge, role }
    }
}

impl Handler for RoleHandler {
    fn drained(&self, conn: ConnId) {
        self.bridge.drained(conn);
    }

    fn event(&self, conn: ConnId, event: ConnEvent) {
        let b = &self.bridge;
        let count = |c: &Cell<u64>| c.set(c.get() + 1);
        match event {
            ConnEvent::Open(info)
                if info.principal.kind == EntityKind::MON
                    && is_monitor(&info.principal.name)
                    && self.role == Role::Mon =>
            {
                let judged = b.core.borrow().judge_link(&info.principal);
                if let Err(why) = judged {
                    tracing::warn!("mon: refusing the relay link of the monitor at {}: {why}", info.addrs);
                    return b.net.close(conn);
                }
                tracing::info!("mon: the monitor at {} opened a relay link", info.addrs);
                b.hub.borrow_mut().link_open(conn.0);
                b.monitors.borrow_mut().insert(conn.0, info.addrs.clone());
                b.core.borrow_mut().clock_soon();
            }
            ConnEvent::Message(m) if b.hub.borrow().is_link(conn.0) => b.link_message(conn, &m),
            ConnEvent::Closed(why) if b.hub.borrow().is_link(conn.0) => {
                tracing::info!("mon: the relay link of another monitor is closed: {why}");
                b.link_closed(conn);
            }
            ConnEvent::Open(info) => {
                b.open.borrow_mut().insert(conn, ());
                count(&b.counters.sessions_opened);
                b.handle(Event::Open(conn.0, Box::new(Bridge::peer(&info, self.role))));
            }
            ConnEvent::Message(m) => b.handle(Event::Message(conn.0, m)),
            ConnEvent::Closed(why) => {
                tracing::debug!("mon: {conn} closed: {why}");
                if b.open.borrow_mut().remove(&conn).is_some() {
                    count(&b.counters.sessions_closed);
                    b.handle(Event::Closed(conn.0));
                }
            }
        }
    }
}
