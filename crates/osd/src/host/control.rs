//! Host of the control machine, on the first reactor: it carries out what the machine wants, runs its timers, stores
//! maps, and makes fetches for copies.
//!
//! | module | contents |
//! | --- | --- |
//! | `answers` | answers to commands: the state of the control machine, and what operators order it to do |
//! | `device` | the device of the stores, as the control machine's host knows it |
//! | `exit` | the end of the OSD, for those who wait for it |
//! | `sessions` | sessions with monitor and manager: their connections, and the messages that arrive on them |
//! | `settings` | options in force, given to the machines and to all reactors while the OSD runs |
//! | `tickets` | tickets of this OSD and the secrets of its peers' tickets, renewed in time |
//!
//! Invariant: no `RefCell` is borrowed while another component is called that may call back.
//!
//! Tests: a daemon in which one is panics (`interop/run.sh`).

mod answers;
mod device;
mod exit;
mod sessions;
mod settings;
mod tickets;

use super::commands;
use super::ending::Ending;
use super::links::{Answering, LinkEvent, Links};
use super::reactor_host::ReactorHost;
use super::route::{Routes, ToControl, ToReactor};
use crate::core::collect::Collecting;
use crate::core::control::{Control, Output, Phase};
use crate::core::lease;
use crate::core::mapstore::Stored;
use crate::core::memory::Memory;
use crate::core::moves::Moves;
use crate::core::pgs::Input;
use crate::core::session::SessionInfo;
use auth::server::ServiceHost;
use base::errno::EIO;
use base::{Epoch, Now, PgId};
use client::core::objecter::{Request, What};
use client::host::objecter::{ObjecterHost, Unasked};
use cluster::settings::Settings;
use device::Device;
use exit::Exit;
use net::Net;
use pg::reserve::Reserver;
use pg::{Fetch, Fetched};
use reactor::clock;
use sessions::Sessions;
use settings::Listening;
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use tickets::{Tickets, tickets};
use tokio::sync::Notify;
use wire::Message;
use wire::types::SnapContext;

/// Host of the control machine; see the module.
pub(super) struct ControlHost {
    pub(super) net: Net,
    core: RefCell<Control>,
    pub(super) routes: Routes,
    sessions: Sessions,
    links: RefCell<Option<Rc<Links>>>,
    objecter: RefCell<Option<Rc<ObjecterHost>>>,
    tickets: Tickets,
    answering: Rc<Answering>,
    moves: RefCell<Moves>,
    stored: RefCell<Stored>,
    /// Reactor on which this machine runs.
    pub(super) reactor: Rc<ReactorHost>,
    /// Recovery reservations of all PGs.
    pub(super) reserver: Arc<Reserver>,
    scrubs: Arc<pg::scrub::ScrubSlots>,
    collecting: RefCell<Option<Collecting>>,
    /// Options in force.
    pub(super) settings: RefCell<Settings>,
    /// Memory as it was set at the start.
    memory: Memory,
    pub(super) device: Device,
    exit: Exit,
    /// Values of the counters at their last reset.
    pub(super) perf_base: RefCell<super::perf::Reset>,
    listening: Listening,
    wake: Notify,
    admin: RefCell<Option<net::admin_socket::AdminSocket>>,
}

/// Components of a control machine's host.
pub(super) struct Parts {
    pub(super) net: Net,
    pub(super) core: Control,
    pub(super) routes: Routes,
    pub(super) auth: Rc<RefCell<auth::Client>>,
    pub(super) keyring: Option<PathBuf>,
    pub(super) service: Rc<ServiceHost>,
    pub(super) answering: Rc<Answering>,
    pub(super) stored: Stored,
    pub(super) reactor: Rc<ReactorHost>,
    pub(super) device: Arc<reactor::disk::DiskFile>,
    pub(super) device_name: String,
    pub(super) ending: Ending,
    pub(super) reserver: Arc<Reserver>,
    /// Scrub slots of all PGs.
    pub(super) scrubs: Arc<pg::scrub::ScrubSlots>,
    /// True if the device is a rotating disk.
    pub(super) rotates: bool,
    pub(super) memory: Memory,
    pub(super) shown: Vec<(String, String)>,
    /// Endpoint for sessions with monitor and manager: identity with public addresses.
    pub(super) public: net::EndpointConfig,
    /// Endpoints for heartbeats and for reading from other OSDs: identity without addresses.
    pub(super) anonymous: [net::EndpointConfig; 2],
}

impl ControlHost {
    pub(super) fn start(p: Parts) -> Rc<Self> {
        let whoami = p.core.whoami().0.to_string();
        let reactors = p.routes.reactors.len();
        let me = Rc::new(Self {
            net: p.net,
            core: RefCell::new(p.core),
            routes: p.routes,
            sessions: Sessions::default(),
            links: RefCell::default(),
            objecter: RefCell::default(),
            tickets: Tickets::new(p.auth, p.keyring, p.service),
            answering: p.answering,
            moves: RefCell::new(Moves::new(reactors)),
            stored: RefCell::new(p.stored),
            reactor: p.reactor,
            reserver: p.reserver,
            scrubs: p.scrubs,
            collecting: RefCell::default(),
            memory: p.memory,
            settings: RefCell::new(Settings::new(p.shown).named("osd", &whoami)),
            device: Device::new(p.device, p.device_name, p.rotates),
            exit: Exit::new(p.ending),
            perf_base: RefCell::default(),
            listening: Listening::default(),
            wake: Notify::new(),
            admin: RefCell::default(),
        });
        me.core.borrow_mut().set_options(me.settings.borrow().held());
        me.sessions.listen(&me.net, p.public, &me);
        me.connect(p.anonymous);
        let stored = me.core.borrow().map().cloned();
        let objecter = me.objecter.borrow().clone();
        if let (Some(map), Some(o)) = (stored, objecter) {
            o.handle_map(map);
        }
        if !me.tickets.lacks_secrets() {
            me.with(|c, now| c.set_ready(now));
        }
        tokio::task::spawn_local(timers(Rc::downgrade(&me)));
        tokio::task::spawn_local(tickets(Rc::downgrade(&me)));
        me
    }

    /// Makes the endpoints towards other OSDs, for heartbeats and for reading, and answers to their requests of leases.
    fn connect(self: &Rc<Self>, [hb, obj]: [net::EndpointConfig; 2]) {
        let weak = Rc::downgrade(self);
        let links = Links::new(
            &self.net,
            hb,
            Box::new(move |e| {
                if let Some(c) = weak.upgrade() {
                    c.link_event(e);
                }
            }),
        );
        *self.links.borrow_mut() = Some(links);
        let weak = Rc::downgrade(self);
        *self.answering.lease.borrow_mut() = Some(Box::new(move |from, m| match weak.upgrade() {
            Some(c) => c.with(|core, now| core.handle_lease_request(from, &m, now)),
            None => (None, None),
        }));
        let weak = Rc::downgrade(self);
        let unasked = move |u: Unasked| {
            let Some(c) = weak.upgrade() else { return };
            match u {
                Unasked::Maps(m) => c.with(|core, now| core.handle_map_message(&m, now)),
                Unasked::NeedMap(e) => c.with(|core, _| core.want_map(e)),
                Unasked::Watch(_) => {}
            }
        };
        *self.objecter.borrow_mut() = Some(ObjecterHost::new(&self.net, obj, 0, Box::new(unasked)));
    }

    /// Keeps the admin socket open as long as the OSD runs.
    pub(super) fn keep(&self, a: net::admin_socket::AdminSocket) {
        *self.admin.borrow_mut() = Some(a);
    }

    fn with<R>(&self, f: impl FnOnce(&mut Control, Now) -> R) -> R {
        let r = f(&mut self.core.borrow_mut(), clock::now());
        self.drain();
        self.wake.notify_one();
        r
    }

    /// Handles requests of reactors and sessions to the control machine.
    pub(super) fn handle(self: &Rc<Self>, item: ToControl) {
        match item {
            ToControl::Report(at, r) => self.with(|c, now| c.handle_report(at, r, now)),
            ToControl::Moves(at, news) => {
                let map = self.core.borrow().map().cloned();
                let told = self.moves.borrow_mut().handle(at, news, map.as_deref());
                for (i, input) in told.into_iter().flat_map(|t| t.inputs(self.routes.reactors.len())) {
                    self.routes.input(i, input);
                }
            }
            ToControl::Maps(m) => self.with(|c, now| c.handle_map_message(&m, now)),
            ToControl::Stats(s, lec) => self.stats(*s, lec),
            ToControl::Short(reactor, short) => self.with(|c, _| c.set_short(reactor, short)),
            ToControl::Silent(reactor, what) => {
                let why = what.map(|w| format!("{}: {w}", self.device.name()));
                self.with(|c, now| c.device_silent(reactor, why, now));
            }
            ToControl::Fetch(at, pg, f) => self.fetch(at, pg, *f),
            ToControl::Command(at, info, m) => self.command(at, info, m),
            ToControl::Stopped(reactor) => {
                let all = self.routes.reactors.len();
                self.with(|c, now| c.reactor_stopped(reactor, all, now));
            }
            ToControl::StoreFailed(what) => {
                let why = format!("{}: {what}", self.device.name());
                self.with(|c, now| c.store_failed(&why, now));
            }
        }
    }

    fn link_event(&self, e: LinkEvent) {
        self.with(|c, now| {
            let (epoch, up_from) = (c.map().map_or(Epoch(0), |m| m.epoch), c.up_from());
            let hb = c.heartbeats();
            match e {
                LinkEvent::Open(o, l) => {
                    hb.handle_open(o, l, now, epoch, up_from);
                    c.handle_lane_open(o, now);
                }
                LinkEvent::Closed { osd, link, refused } => hb.handle_closed(osd, link, refused, now, epoch, up_from),
                LinkEvent::Reply(o, l, p) => hb.handle_reply(o, l, &p, now, epoch),
                LinkEvent::Lease(o, m) => c.handle_lease_grant(o, &m, now),
                LinkEvent::Maps(m) => c.handle_map_message(&m, now),
            }
        });
    }

    fn drain(&self) {
        loop {
            let o = self.core.borrow_mut().poll_output(clock::now());
            let Some(o) = o else { return };
            self.output(o);
        }
    }

    fn output(&self, o: Output) {
        let input = o.input();
        match o {
            Output::Mon(o) => self.mon_output(o),
            Output::Heartbeat(o) => {
                let links = self.links.borrow().clone();
                if let Some(l) = links {
                    l.output(o);
                }
            }
            Output::Lease(lease::Output::Send(osd, m)) => {
                let links = self.links.borrow().clone();
                if let Some(l) = links {
                    l.send_lease(osd, &m);
                }
            }
            // The control machine has handled wanted maps; the rest is for the reactors.
            Output::Lease(_) | Output::Create(_) => {}
            Output::Mgr(o) => self.mgr_output(o),
            Output::Store { records, superblock, trim_below } => {
                let t = self.stored.borrow_mut().store(records, &superblock, trim_below);
                self.reactor.submit(t);
            }
            Output::Publish { maps, feed } => {
                self.answering.epoch.set(feed.map.epoch);
                maps.iter().for_each(|m| self.moves.borrow_mut().published(m));
                let up_from = self.core.borrow().up_from();
                self.answering.up_from.set(up_from);
                let objecter = self.objecter.borrow().clone();
                if let Some(o) = objecter {
                    for m in &maps {
                        o.handle_map(m.clone());
                    }
                }
            }
            Output::Config(c) => {
                self.settings.borrow_mut().central = c;
                self.settings_changed();
                if self.listening.may_take_modes() {
                    self.take_modes();
                }
            }
            Output::Message(m) => self.host_message(&m),
            Output::Phase(p) => {
                tracing::info!(phase = ?p, "OSD phase changed");
                if p == Phase::Gone {
                    self.exit.finish();
                }
            }
            Output::Stop { .. } => self.exit.arm(),
            Output::Exit(why) => {
                tracing::error!("{why}");
                self.exit.set_reason(why);
            }
        }
        if let Some(i) = input {
            self.routes.inputs(|| i.clone());
        }
    }

    fn fetch(&self, at: usize, pg: PgId, f: Fetch) {
        let Some(objecter) = self.objecter.borrow().clone() else { return };
        let routes = self.routes.clone();
        tokio::task::spawn_local(async move {
            let id = f.id;
            let req = Request {
                what: What::Object { locator: f.locator, oid: f.oid },
                ops: f.ops,
                flags: f.flags,
                snapid: f.snapid,
                snapc: SnapContext::default(),
                mtime: base::Utime::ZERO,
            };
            let result = match objecter.op(req).await {
                Ok(r) if r.result < 0 => Err(r.result),
                Ok(r) => match r.ops.last() {
                    Some(o) => Ok(Fetched { data: o.outdata.clone(), user_version: r.user_version }),
                    None => Err(EIO),
                },
                Err(e) => Err(e),
            };
            routes.input(at, Input::Fetched(pg, id, result));
        });
    }

    fn command(self: &Rc<Self>, at: usize, info: Arc<SessionInfo>, m: Message) {
        let me = self.clone();
        tokio::task::spawn_local(async move {
            let r = commands::run(&me, &m).await;
            me.routes.reactor(at, ToReactor::Send(info.conn, r));
        });
    }
}

/// Runs the control machine's timers.
async fn timers(c: Weak<ControlHost>) {
    loop {
        let wait = {
            let Some(c) = c.upgrade() else { return };
            let now = clock::read();
            c.core.borrow_mut().tick(now);
            c.drain();
            let deadline = c.core.borrow().next_deadline();
            deadline.map(|d| d.since(now.mono).max(Duration::from_millis(1)))
        };
        let Some(host) = c.upgrade() else { return };
        match wait {
            Some(w) => {
                // A change of deadlines wakes the loop early.
                let _ = tokio::time::timeout(w, host.wake.notified()).await;
            }
            None => host.wake.notified().await,
        }
    }
}
