//! Host of the control machine, on the first reactor: sessions with monitor and manager, heartbeats, storing
//! maps, tickets, fetches for copies.

use super::commands;
use super::ending::Ending;
use super::keyring;
use super::links::{Answering, LinkEvent, Links};
use super::route::{Routes, ToControl, ToShard};
use super::shard::ShardHost;
use super::tracker::HistoryOptions;
use crate::core::admission::{self, Lane};
use crate::core::compress::Defaults;
use crate::core::control::{Control, Output, Phase};
use crate::core::lease;
use crate::core::mapstore::Stored;
use crate::core::memory::{self, Memory};
use crate::core::mgr::{self, Stats};
use crate::core::moves::Moves;
use crate::core::recovery;
use crate::core::scrub::ScrubSettings;
use crate::core::session::SessionInfo;
use crate::core::shard::Input;
use auth::server::ServiceHost;
use base::counter::Section;
use base::errno::EIO;
use base::{AddrKind, EntityKind, Epoch, Now, PgId};
use client::core::mon;
use client::core::objecter::{Request, What};
use client::host::objecter::{ObjecterHost, Unasked};
use cluster::settings::Settings;
use net::modes::Modes;
use net::{ConnEvent, ConnId, Endpoint, Handler, Net, OsRandom, Target};
use pg::lease::{Held, LeaseUpdate};
use pg::pace::Profile;
use pg::reserve::Reserver;
use pg::{Fetch, Fetched};
use reactor::clock;
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use wire::msg::{MAuth, MAuthReply, MCommand, MMgrConfigure, MOsdForceRecovery, MOsdScrub2};
use wire::types::SnapContext;
use wire::{Features, Message, WireMessage as _};

/// Interval at which tickets and secrets are checked.
const TICKET_CHECK: Duration = Duration::from_secs(10);
/// Interval at which secrets are checked while there are none yet.
const TICKET_CHECK_FIRST: Duration = Duration::from_millis(100);
/// Number of the cephx protocol in `MAuth`.
const CEPHX: u32 = 2;
/// Option that gives freed blocks back to the device.
const DISCARD: &str = "bdev_enable_discard";
/// Option that sets the priority of clients against recovery.
const MCLOCK_PROFILE: &str = "osd_mclock_profile";

pub(super) struct ControlHost {
    pub(super) net: Net,
    core: RefCell<Control>,
    pub(super) routes: Routes,
    /// Endpoint towards the monitor, with the identity of the OSD and its public addresses.
    mon_endpoint: RefCell<Option<Endpoint>>,
    mon_conn: Cell<Option<ConnId>>,
    mgr_conn: Cell<Option<ConnId>>,
    links: RefCell<Option<Rc<Links>>>,
    objecter: RefCell<Option<Rc<ObjecterHost>>>,
    auth: Rc<RefCell<auth::Client>>,
    /// File of the key.
    keyring: Option<PathBuf>,
    service: Rc<ServiceHost>,
    answering: Rc<Answering>,
    moves: RefCell<Moves>,
    stored: RefCell<Stored>,
    /// Reactor on which this machine runs.
    pub(super) shard: Rc<ShardHost>,
    /// Recovery reservations of all PGs.
    pub(super) reserver: Arc<Reserver>,
    scrubs: Arc<pg::scrub::ScrubSlots>,
    rotates: bool,
    renewing: Cell<bool>,
    /// The monitor session on which the rotating secrets were asked for.
    secrets_from: Cell<Option<ConnId>>,
    collecting: RefCell<Option<Collecting>>,
    /// Options in force.
    pub(super) settings: RefCell<Settings>,
    /// Memory as it was set at the start.
    memory: Memory,
    /// File or block device of the store.
    pub(super) device: Arc<reactor::disk::DiskFile>,
    /// Path of the device.
    device_name: String,
    ending: Ending,
    /// True while a command enlarges the store.
    pub(super) growing: Cell<bool>,
    /// Values of the counters at their last reset.
    pub(super) perf_base: RefCell<super::perf::Reset>,
    /// Endpoints with the heartbeat addresses.
    listening: RefCell<Vec<Endpoint>>,
    /// True once the cluster's connection modes are applied.
    modes_taken: Cell<bool>,
    wake: Notify,
    done: Notify,
    finished: Cell<bool>,
    exit: RefCell<Option<String>>,
    admin: RefCell<Option<net::admin_socket::AdminSocket>>,
}

struct Collecting {
    missing: usize,
    stats: Stats,
    min_lec: Epoch,
}

pub(super) struct Parts {
    pub(super) net: Net,
    pub(super) core: Control,
    pub(super) routes: Routes,
    pub(super) auth: Rc<RefCell<auth::Client>>,
    pub(super) keyring: Option<PathBuf>,
    pub(super) service: Rc<ServiceHost>,
    pub(super) answering: Rc<Answering>,
    pub(super) stored: Stored,
    pub(super) shard: Rc<ShardHost>,
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

struct MonEvents(Weak<ControlHost>);

impl Handler for MonEvents {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        if let Some(c) = self.0.upgrade() {
            c.conn_event(conn, event);
        }
    }
}

impl ControlHost {
    pub(super) fn start(p: Parts) -> Rc<Self> {
        let whoami = p.core.whoami().0.to_string();
        let reactors = p.routes.shards.len();
        let me = Rc::new(Self {
            net: p.net.clone(),
            core: RefCell::new(p.core),
            routes: p.routes,
            mon_endpoint: RefCell::default(),
            mon_conn: Cell::new(None),
            mgr_conn: Cell::new(None),
            links: RefCell::default(),
            objecter: RefCell::default(),
            auth: p.auth,
            keyring: p.keyring,
            service: p.service,
            answering: p.answering,
            moves: RefCell::new(Moves::new(reactors)),
            stored: RefCell::new(p.stored),
            shard: p.shard,
            reserver: p.reserver,
            scrubs: p.scrubs,
            rotates: p.rotates,
            renewing: Cell::new(false),
            secrets_from: Cell::new(None),
            collecting: RefCell::default(),
            memory: p.memory,
            settings: RefCell::new(Settings::new(p.shown).named("osd", &whoami)),
            device: p.device,
            device_name: p.device_name,
            ending: p.ending,
            growing: Cell::new(false),
            perf_base: RefCell::default(),
            listening: RefCell::default(),
            modes_taken: Cell::new(false),
            wake: Notify::new(),
            done: Notify::new(),
            finished: Cell::new(false),
            exit: RefCell::default(),
            admin: RefCell::default(),
        });
        *me.mon_endpoint.borrow_mut() = Some(p.net.endpoint(p.public, Rc::new(MonEvents(Rc::downgrade(&me)))));
        me.connect(p.anonymous);
        let stored = me.core.borrow().map().cloned();
        let objecter = me.objecter.borrow().clone();
        if let (Some(map), Some(o)) = (stored, objecter) {
            o.handle_map(map);
        }
        if !me.service.need_fetch(clock::now().wall) {
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

    /// Reason why the OSD ends on its own, once it must.
    pub(super) fn exit_reason(&self) -> Option<String> {
        self.exit.borrow().clone()
    }

    /// Reason of the store's failure, if it failed.
    pub(super) fn store_failure(&self) -> Option<String> {
        self.core.borrow().failure().map(str::to_owned)
    }

    /// Waits until the OSD has left the cluster.
    pub(super) async fn finished(&self) {
        while !self.finished.get() {
            self.done.notified().await;
        }
    }

    /// Keeps the admin socket open as long as the OSD runs.
    pub(super) fn keep(&self, a: net::admin_socket::AdminSocket) {
        *self.admin.borrow_mut() = Some(a);
    }

    /// Begins a clean stop.
    pub(super) fn stop(&self) {
        self.with(|core, now| core.leave(now));
        let links = self.links.borrow().clone();
        if let Some(l) = links {
            l.shutdown();
        }
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
                for (i, input) in told.into_iter().flat_map(|t| t.inputs(self.routes.shards.len())) {
                    self.routes.input(i, input);
                }
            }
            ToControl::Maps(m) => self.with(|c, now| c.handle_map_message(&m, now)),
            ToControl::Stats(s, lec) => self.stats(*s, lec),
            ToControl::Short(reactor, short) => self.with(|c, _| c.set_short(reactor, short)),
            ToControl::Silent(reactor, what) => {
                let why = what.map(|w| format!("{}: {w}", self.device_name));
                self.with(|c, now| c.device_silent(reactor, why, now));
            }
            ToControl::Fetch(shard, pg, f) => self.fetch(shard, pg, *f),
            ToControl::Command(shard, info, m) => self.command(shard, info, m),
            ToControl::Stopped(reactor) => {
                let all = self.routes.shards.len();
                self.with(|c, now| c.reactor_stopped(reactor, all, now));
            }
            ToControl::StoreFailed(what) => {
                let why = format!("{}: {what}", self.device_name);
                self.with(|c, now| c.store_failed(&why, now));
            }
        }
    }

    fn conn_event(self: &Rc<Self>, conn: ConnId, event: ConnEvent) {
        if self.mon_conn.get() == Some(conn) {
            self.mon_event(event);
        } else if self.mgr_conn.get() == Some(conn) {
            self.mgr_event(conn, event);
        }
    }

    fn mon_event(&self, event: ConnEvent) {
        match event {
            ConnEvent::Open(peer) => {
                self.spread_tickets();
                self.with(|c, _| c.handle_mon_open(peer.features));
            }
            ConnEvent::Closed(reason) => {
                self.mon_conn.set(None);
                self.renewing.set(false);
                tracing::warn!(%reason, "session with the monitor ended");
                if matches!(reason, net::CloseReason::Auth { .. }) {
                    // The monitor may refuse old tickets because it has lost their secrets.
                    self.auth.borrow_mut().forget();
                    keyring::read_again(self.keyring.clone(), &self.auth);
                }
                self.with(|c, now| c.handle_mon_closed(now));
            }
            ConnEvent::Message(m) => {
                let kind = m.header.kind;
                if admission::right(Lane::Monitor, kind).is_none() {
                    return tracing::debug!(kind, "message of the monitor is not used");
                }
                if let Err(error) = self.with(|c, _| c.handle_mon_message(m)) {
                    tracing::warn!(kind, %error, "message of the monitor not understood");
                }
            }
        }
    }

    fn mgr_event(self: &Rc<Self>, conn: ConnId, event: ConnEvent) {
        match event {
            ConnEvent::Open(_) => self.with(|c, _| c.handle_mgr_open()),
            ConnEvent::Closed(reason) => {
                tracing::debug!(%reason, "session with the manager ended");
                self.mgr_conn.set(None);
                self.with(|c, now| c.handle_mgr_closed(now));
            }
            ConnEvent::Message(m) if admission::right(Lane::Manager, m.header.kind).is_none() => {
                tracing::info!(kind = m.header.kind, "message of the manager is not supported and ignored");
            }
            ConnEvent::Message(m) => match m.header.kind {
                MMgrConfigure::KIND => match MMgrConfigure::from_message(&m) {
                    Ok(x) => self.with(|c, now| c.handle_mgr_configure(&x, now)),
                    Err(error) => tracing::warn!(%error, "configuration of the manager not understood"),
                },
                MCommand::KIND => {
                    let me = self.clone();
                    tokio::task::spawn_local(async move {
                        let r = commands::run(&me, &m).await;
                        // The manager may have disconnected meanwhile.
                        let _ = me.net.send(conn, r);
                    });
                }
                MOsdScrub2::KIND => match MOsdScrub2::from_message(&m) {
                    Ok(x) => {
                        let pgs = Arc::new(x.scrub_pgs);
                        self.routes.inputs(|| Input::Scrub(pgs.clone(), x.deep, x.repair));
                    }
                    Err(error) => tracing::warn!(%error, "request for scrubs not understood"),
                },
                MOsdForceRecovery::KIND => match MOsdForceRecovery::from_message(&m) {
                    Ok(x) => {
                        let pgs = Arc::new(x.forced_pgs);
                        self.routes.inputs(|| Input::Force(pgs.clone(), x.options));
                    }
                    Err(error) => tracing::warn!(%error, "request for recovery not understood"),
                },
                // Other messages are not admitted.
                _ => {}
            },
        }
    }

    /// Adds what this machine counts to the counters of the reactors.
    pub(super) fn count(&self, all: &mut [Section]) {
        let (taken, refused) = self.answering.admission.figures();
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
        for s in all {
            if s.name == "osd" {
                self.core.borrow().count(s);
                // As in Ceph, in hundredths.
                s.add_to("loadavg", (load * 100.0) as u64);
            } else if s.name == "admission" {
                s.add_to("heartbeat_taken", taken);
                s.add_to("heartbeat_refused", refused);
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
        match o {
            Output::Mon(o) => self.mon_output(o),
            Output::Heartbeat(o) => {
                let links = self.links.borrow().clone();
                if let Some(l) = links {
                    l.output(o);
                }
            }
            Output::Lease(o) => self.lease_output(o),
            Output::Mgr(o) => self.mgr_output(o),
            Output::Store { records, superblock, trim_below } => {
                let t = self.stored.borrow_mut().store(records, &superblock, trim_below);
                self.shard.submit(t);
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
                self.routes.inputs(|| Input::Maps(maps.clone(), feed.clone()));
            }
            Output::Create(pgs) => self.routes.inputs(|| Input::Create(pgs.clone())),
            Output::Config(c) => {
                self.settings.borrow_mut().central = c;
                self.settings_changed();
                if !self.modes_taken.replace(true) {
                    self.take_modes();
                }
            }
            Output::Message(m) => self.host_message(&m),
            Output::Phase(p) => {
                tracing::info!(phase = ?p, "OSD phase changed");
                if p == Phase::Gone {
                    self.finished.set(true);
                    self.done.notify_waiters();
                    self.done.notify_one();
                }
            }
            Output::Stop { abandon } => {
                self.ending.arm();
                self.routes.inputs(|| Input::Stop { abandon });
            }
            Output::Exit(why) => {
                tracing::error!("{why}");
                *self.exit.borrow_mut() = Some(why);
            }
        }
    }

    fn lease_output(&self, o: lease::Output) {
        match o {
            lease::Output::Send(osd, m) => {
                let links = self.links.borrow().clone();
                if let Some(l) = links {
                    l.send_lease(osd, &m);
                }
            }
            lease::Output::Readable(osd, until, epoch) => {
                self.routes.inputs(|| Input::Lease(LeaseUpdate::Held(osd, Held { until, epoch })));
            }
            lease::Output::Granted(osd, until) => {
                self.routes.inputs(|| Input::Lease(LeaseUpdate::Granted(osd, until)));
            }
            // The control machine has handled it already.
            lease::Output::WantMap(_) => {}
        }
    }

    fn mon_output(&self, o: mon::Output) {
        match o {
            mon::Output::Connect(addr) => {
                let Some(ep) = self.mon_endpoint.borrow().clone() else { return };
                self.mon_conn.set(Some(ep.connect(Target::new(EntityKind::MON, addr))));
            }
            mon::Output::Close => {
                if let Some(c) = self.mon_conn.take() {
                    self.net.close(c);
                }
            }
            mon::Output::Send(m) => {
                if let Some(c) = self.mon_conn.get() {
                    // A lost session is reported separately, and the core repeats what matters.
                    let _ = self.net.send(c, m);
                }
            }
            mon::Output::Event(_) => {}
        }
    }

    fn mgr_output(&self, o: mgr::Output) {
        match o {
            mgr::Output::Connect(addrs) => {
                let (Some(addr), Some(ep)) = (addrs.msgr2().copied(), self.mon_endpoint.borrow().clone()) else {
                    return;
                };
                self.mgr_conn.set(Some(ep.connect(Target { kind: EntityKind::MGR, addr, addrs, name: None })));
            }
            mgr::Output::Close => {
                if let Some(c) = self.mgr_conn.take() {
                    self.net.close(c);
                }
            }
            mgr::Output::Open(m) => self.to_mgr(&*m),
            mgr::Output::Queries(q) => self.routes.all(|| ToShard::Queries(q.clone())),
            mgr::Output::Collect { all } => {
                let n = self.routes.shards.len();
                *self.collecting.borrow_mut() =
                    Some(Collecting { missing: n, stats: Stats::default(), min_lec: Epoch(u32::MAX) });
                self.routes.all(|| ToShard::Collect(all));
            }
        }
    }

    fn to_mgr(&self, m: &impl wire::WireMessage) {
        if let Some(c) = self.mgr_conn.get() {
            let features = self.net.peer(c).map_or(Features::PACIFIC, |p| p.features);
            // Reports are periodic: a lost one is followed by the next.
            let _ = self.net.send(c, m.to_message(features));
        }
    }

    fn stats(&self, s: Stats, lec: Epoch) {
        let done = {
            let mut c = self.collecting.borrow_mut();
            let Some(x) = &mut *c else { return };
            x.stats.add(s);
            x.min_lec = x.min_lec.min(lec);
            x.missing = x.missing.saturating_sub(1);
            if x.missing == 0 { c.take() } else { None }
        };
        if let Some(x) = done {
            let lec = if x.min_lec == Epoch(u32::MAX) { Epoch(0) } else { x.min_lec };
            let mut x = x;
            self.count(&mut x.stats.counters);
            let (report, pgs) = self.with(|c, now| c.report(x.stats, lec, now));
            self.to_mgr(&report);
            self.to_mgr(&pgs);
        }
    }

    // --- tickets ---

    fn host_message(&self, m: &Message) {
        if m.header.kind != MAuthReply::KIND {
            tracing::debug!(kind = m.header.kind, "message of the monitor is not used");
            return;
        }
        self.renewing.set(false);
        let r = match MAuthReply::from_message(m) {
            Ok(r) => r,
            Err(error) => return tracing::warn!(%error, "authentication reply not understood"),
        };
        let keys = self.auth.borrow_mut().handle_reply(clock::now().wall, &r.auth_payload);
        match keys {
            Ok(Some(keys)) => {
                self.service.set_keys(keys.clone());
                self.routes.all(|| ToShard::Keys(keys.clone()));
                self.with(|c, now| c.set_ready(now));
            }
            Ok(None) => self.spread_tickets(),
            Err(error) => tracing::warn!(%error, "tickets or secrets not renewed"),
        }
    }

    /// Gives the other reactors the tickets for connecting to other OSDs.
    fn spread_tickets(&self) {
        let auth = self.auth.borrow().clone();
        self.routes.all(|| ToShard::Tickets(Box::new(auth.clone())));
    }

    fn look_after_tickets(&self) {
        if self.renewing.get() || !self.core.borrow_mut().mon().is_open() {
            return;
        }
        let now = clock::now().wall;
        if self.auth.borrow().must_sign_in_again(now) {
            // The session's own ticket expires soon; a new session brings a new ticket.
            if let Some(c) = self.mon_conn.take() {
                self.net.close(c);
            }
            self.with(|c, now| c.handle_mon_closed(now));
            return;
        }
        // A monitor whose state is a backup has other secrets than before under the same numbers.
        let first = self.service.checks_tickets() && self.secrets_from.get() != self.mon_conn.get();
        let payload = if first || self.service.need_fetch(now) {
            self.secrets_from.set(self.mon_conn.get());
            Some(Ok(self.auth.borrow().rotating_request()))
        } else {
            let due = self.auth.borrow().due(now);
            (due != 0).then(|| self.auth.borrow().renewal_request(due, &OsRandom))
        };
        match payload {
            Some(Ok(auth_payload)) => {
                let m = MAuth { protocol: CEPHX, auth_payload, ..MAuth::default() };
                let sent = self.with(|c, _| c.mon().send_now(&m));
                self.renewing.set(sent);
            }
            Some(Err(error)) => tracing::warn!(%error, "tickets cannot be renewed"),
            None => {}
        }
    }

    // --- answers to commands ---

    /// Answer to `status` of the admin socket.
    pub(super) fn status(&self) -> serde_json::Value {
        let c = self.core.borrow();
        let epoch = c.map().map_or(0, |m| m.epoch.0);
        serde_json::json!({
            "cluster_fsid": c.map().map(|m| m.fsid.to_string()),
            "whoami": c.whoami().0,
            "state": format!("{:?}", c.phase()).to_lowercase(),
            "oldest_map": c.oldest_map().0,
            "newest_map": epoch,
            "up_from": c.up_from().0,
            "num_reactors": self.routes.shards.len(),
        })
    }

    /// Answer to `dump_blocklist`.
    pub(super) fn blocklist(&self) -> serde_json::Value {
        let core = self.core.borrow();
        let entries = core.map().into_iter().flat_map(|m| m.blocklist.iter().chain(m.range_blocklist.iter()));
        entries
            .map(|(a, until)| {
                let a = a.0;
                serde_json::json!({
                    "entity_addr": {
                        "type": if a.kind == AddrKind::CIDR { "cidr" } else { "any" },
                        "addr": a.sock.map_or_else(|| "-".to_owned(), |s| s.to_string()),
                        "nonce": a.nonce,
                    },
                    "expire_time": until.iso(),
                })
            })
            .collect()
    }

    /// True for options that take effect while the OSD runs.
    pub(super) fn observes(name: &str) -> bool {
        Control::observes(name)
            || net::log_filter::observes(name)
            || HistoryOptions::observes(name)
            || name == MCLOCK_PROFILE
            || name == DISCARD
            || name == memory::TARGET
            || ScrubSettings::observes(name)
            || Defaults::observes(name)
            || recovery::observes(name)
            || super::bench::observes(name)
    }

    /// Applies the options in force.
    pub(super) fn settings_changed(&self) {
        let settings = self.settings.borrow();
        net::log_filter::apply(&settings);
        let history = HistoryOptions::from_settings(&settings);
        self.routes.all(|| ToShard::History(history));
        let discard = settings.given(DISCARD).is_some_and(|v| matches!(v.trim(), "true" | "1" | "yes" | "on"));
        self.routes.all(|| ToShard::Discard(discard));
        let data = self.memory.with_target(settings.given(memory::TARGET)).data();
        self.routes.all(|| ToShard::DataMemory(data));
        let name = settings.given(MCLOCK_PROFILE).unwrap_or_default();
        let profile = Profile::parse(name.trim());
        if profile.is_none() && !name.trim().is_empty() {
            tracing::warn!(profile = name, "unknown value of osd_mclock_profile; the default is used");
        }
        self.routes.all(|| ToShard::Profile(profile.unwrap_or_default()));
        self.reserver.set(&recovery::recovery_config(self.rotates, |name| settings.given(name)));
        self.reserver.set_log(&recovery::log_config(|name| settings.given(name)));
        self.routes.inputs(|| Input::Reserved);
        let scrubs = ScrubSettings::take(|name| settings.given(name));
        self.routes.all(|| ToShard::ScrubSettings(Box::new(scrubs.clone())));
        let compression = Defaults::take(|name| settings.given(name));
        self.routes.all(|| ToShard::Compression(compression));
        // The sources apply in their order, even over the monitor's values.
        self.core.borrow_mut().take_config(|name| settings.given(name));
    }

    /// Applies the cluster's connection modes once, before the OSD boots. As on Ceph, later changes need a
    /// restart.
    fn take_modes(&self) {
        let taken = {
            let settings = self.settings.borrow();
            Modes::take(|name| settings.given(name).map(str::to_owned))
        };
        let modes = match taken {
            Ok(m) => m,
            Err(error) => {
                return tracing::error!(%error, "the cluster's connection modes are invalid; those of the configuration file stay in force");
            }
        };
        let own = [self.mon_endpoint.borrow().clone(), self.objecter.borrow().as_ref().and_then(|o| o.endpoint())];
        let links = self.links.borrow().as_ref().and_then(|l| l.endpoint());
        for e in own.into_iter().chain([links]).flatten().chain(self.listening.borrow().iter().cloned()) {
            e.set_modes(&modes);
        }
        self.routes.all(|| ToShard::Modes(Box::new(modes.clone())));
    }

    /// Registers an endpoint on which peers connect.
    pub(super) fn listens(&self, e: Endpoint) {
        self.listening.borrow_mut().push(e);
    }

    /// The endpoints of the control machine, by the names that Ceph's OSDs have for them.
    pub(super) fn messengers(&self) -> Vec<(&'static str, serde_json::Value)> {
        let names = ["hb_back_server", "hb_front_server"];
        let mut all: Vec<_> = names.into_iter().zip(self.listening.borrow().iter().cloned()).collect();
        all.extend(self.mon_endpoint.borrow().clone().map(|e| ("client", e)));
        all.extend(self.links.borrow().as_ref().and_then(|l| l.endpoint()).map(|e| ("hb_client", e)));
        all.extend(self.objecter.borrow().as_ref().and_then(|o| o.endpoint()).map(|e| ("ms_objecter", e)));
        all.into_iter().map(|(name, e)| (name, e.dump(self.shard.index()))).collect()
    }

    /// Writes a line to the cluster log.
    pub(super) fn log_line(&self, prio: u16, text: String) {
        self.with(|c, now| c.clog(prio, text, now));
    }

    /// Reports to the manager at once. Returns the number that `osd last-stat-seq` shows once the report is there.
    pub(super) fn flush_stats(&self) -> u64 {
        self.with(Control::flush_stats)
    }

    /// Reports the OSD to the monitors as that full, or as it is again, at once.
    pub(super) fn inject_full(&self, state: Option<u32>) {
        self.with(|c, _| c.inject_full(state));
        self.flush_stats();
    }

    /// Sends a beacon to the monitors at once.
    pub(super) fn beacon(&self) {
        self.with(Control::beacon);
    }

    /// Number of this OSD.
    pub(super) fn whoami(&self) -> base::OsdId {
        self.core.borrow().whoami()
    }

    /// Metadata of this OSD, as the monitors got it.
    pub(super) fn metadata(&self) -> std::collections::BTreeMap<String, String> {
        self.core.borrow().metadata().clone()
    }

    /// Ping times of the watched OSDs.
    pub(super) fn ping_times(&self) -> std::collections::BTreeMap<base::OsdId, wire::types::HbPingTime> {
        self.core.borrow().ping_times(clock::read())
    }

    /// Scrub slots in use, and all.
    pub(super) fn scrub_slots(&self) -> (u32, u32) {
        self.scrubs.figures()
    }

    /// Unanswered operations of this OSD's own client.
    pub(super) fn requests(&self) -> serde_json::Value {
        let ops = self.objecter.borrow().as_ref().map_or_else(Vec::new, |o| o.in_flight());
        let one = |(tid, osd, pg, oid): (u64, Option<base::OsdId>, base::SpgId, String)| {
            serde_json::json!({
                "tid": tid, "pg": pg.to_string(), "osd": osd.map_or(-1, |o| o.0), "object_id": oid,
            })
        };
        serde_json::json!({
            "ops": ops.into_iter().map(one).collect::<Vec<_>>(),
            "linger_ops": [], "pool_ops": [], "pool_stat_ops": [], "statfs_ops": [], "command_ops": [],
        })
    }

    // --- fetches and commands ---

    fn fetch(&self, shard: usize, pg: PgId, f: Fetch) {
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
            routes.input(shard, Input::Fetched(pg, id, result));
        });
    }

    fn command(self: &Rc<Self>, shard: usize, info: Arc<SessionInfo>, m: Message) {
        let me = self.clone();
        tokio::task::spawn_local(async move {
            let r = commands::run(&me, &m).await;
            me.routes.shard(shard, ToShard::Send(info.conn, r));
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

/// Keeps tickets and secrets fresh.
async fn tickets(c: Weak<ControlHost>) {
    loop {
        let wait = {
            let Some(c) = c.upgrade() else { return };
            c.look_after_tickets();
            if c.service.need_fetch(clock::now().wall) { TICKET_CHECK_FIRST } else { TICKET_CHECK }
        };
        tokio::time::sleep(wait).await;
    }
}
