//! A monitor of several: a front monitor until it is elected leader.
//!
//! A process leads at most once. A deposed leader stops; its supervisor starts it again, as a front monitor. There
//! are three handles on the state store: for the membership (which has a thread of its own), for the replica, and, on
//! the leader, for its core.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use auth::Client;
use base::{AddrVec, AuthName, EntityAddr, EntityKind};
use bytes::Bytes;
use msgr::{Policies, Policy};
use net::{ConnEvent, ConnId, Endpoint, EndpointConfig, Handler, Limits, Net, OsRandom, Target};
use reactor::{Context, clock};
use state::etcd::{EtcdOptions, care};
use state::{Op, Outcome};
use wire::msg::{MRelayClock, MRelayKeyUsed};
use wire::{Encode as _, Features, WireMessage as _};

use super::bridge::Bridge;
use super::front_admin::{FrontAdmin, Seen};
use super::listen::Listening;
use super::membership::{self, Standing};
use super::{MonError, MonRunOptions, Store, serve};
use crate::core::quorum::follow::{Follower, Output as Followed};
use crate::core::quorum::front::{FrontAuth, FrontIds, Replica};
use crate::core::quorum::member::{LEASE, Member, Presence};
use crate::core::relay::{Front, FrontEffect, PATIENCE};
use crate::state::Role;

/// Time for which a stopping monitor tries to give its lease back.
const LEAVING: Duration = Duration::from_secs(1);
/// Pause before a failed step is repeated.
pub(super) const AGAIN: Duration = Duration::from_millis(200);
/// Interval between checks of the copy of the state.
const FOLLOW: Duration = Duration::from_millis(200);
/// Bytes of one client that may wait here for the leader before it is not read from; more than a session's share of the link.
const CLIENT_BYTES: usize = 4 << 20;
/// Bytes in flight on the link to the leader: the share of all sessions together, and one message.
const LINK_BYTES: usize = 512 << 20;

async fn load_replica(store: &mut Store, o: &MonRunOptions) -> Result<Replica, MonError> {
    let failed = |error| MonError::Store { path: "etcd".into(), error };
    let mut at = 0;
    let records = store.read(Replica::ranges(), &mut at).await.map_err(failed)?;
    Replica::load(&records, at, &o.name, &o.core_options())
        .map_err(|error| MonError::Load { path: "etcd".into(), error })
}

/// True once a member of etcd has told its version. Error: the version is too old.
async fn check_versions(etcd: &EtcdOptions) -> Result<bool, MonError> {
    let failed = |error| MonError::Store { path: "etcd".into(), error };
    let (tell, told) = tokio::sync::oneshot::channel();
    let options = etcd.clone();
    let ask = move || drop(tell.send(care::look(&options)));
    std::thread::Builder::new()
        .name("etcd-version".into())
        .spawn(ask)
        .map_err(|error| MonError::Io { path: "a thread".into(), error })?;
    let Ok(looked) = told.await else { return Ok(false) };
    let condition = looked.map_err(failed)?;
    care::check_versions(&condition).map_err(failed)?;
    for m in condition.members.iter().filter(|m| !m.version.renews_with_a_majority()) {
        tracing::warn!("mon: etcd at {} has version {}: use 3.4.29, 3.5.11 or later", m.name, m.version);
    }
    Ok(!condition.members.is_empty())
}

/// Follows the store; never ends.
async fn follow(mut store: Store, replica: Rc<RefCell<Replica>>, o: MonRunOptions, standing: Arc<Standing>) {
    let mut follower = Follower::new(&o.name, &o.core_options(), replica);
    loop {
        for out in follower.take_outputs() {
            match out {
                Followed::Submit(r) => store.store.submit(r),
                Followed::Changed => {
                    standing.tell();
                }
                Followed::Leader => standing.leader_changed(),
                Followed::Reread(why) => {
                    tracing::info!("mon: the watch of the state has ended ({why}); the state is read again");
                }
                Followed::Failed(why) => tracing::warn!("mon: {why}"),
                Followed::Stop(why) => standing.stop(why),
            }
        }
        let _ = tokio::time::timeout(FOLLOW, store.ready.notified()).await;
        let now = clock::read().mono;
        while let Some(e) = store.store.poll() {
            follower.event(e, now);
        }
        follower.tick(standing.written(), now);
    }
}

/// Runs a monitor with its state in etcd.
pub(super) async fn run(cx: Context, o: MonRunOptions, etcd: EtcdOptions) -> Result<(), MonError> {
    let mut store = Store::etcd(&etcd)?;
    let mut known = false;
    let replica = loop {
        known = known || check_versions(&etcd).await?;
        match load_replica(&mut store, &o).await {
            Ok(r) => break r,
            // etcd may still be starting.
            Err(MonError::Store { error, .. }) => tracing::warn!("mon.{}: {error}; will retry", o.name),
            Err(e) => return Err(e),
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
            () = cx.stopped() => return Ok(()),
        }
    };
    let (public, _) = super::public_addrs(&replica.monmap, &o.name)?;
    let mut instance = [0; 8];
    auth::Random::fill(&OsRandom, &mut instance);
    let me = Presence {
        name: o.name.clone(),
        addr: public,
        instance: u64::from_le_bytes(instance),
        metadata: super::machine::metadata(),
    };
    let standing = Standing::new(membership::SILENT_MAX);
    standing.allow(replica.monmap.may_lead(&o.name));
    let member = Member::new(me, true, clock::read().mono);
    let belonging = {
        let etcd = etcd.clone();
        membership::begin(move || Store::etcd(&etcd), member, &standing)?
    };
    let signing = Arc::clone(&standing);
    let signing = tokio::task::spawn_local(async move { signing.keep_signing().await });
    let replica = Rc::new(RefCell::new(replica));
    let following = tokio::task::spawn_local(follow(store, Rc::clone(&replica), o.clone(), Arc::clone(&standing)));
    let result = in_front(&cx, &o, public, &replica, &standing).await;
    following.abort();
    let result = match result {
        Ok(Some(fence)) => {
            tracing::info!("mon.{} leads", o.name);
            let store = Store::etcd(&etcd)?;
            serve(cx, &o, store, "etcd", Some((fence, Arc::clone(&standing)))).await
        }
        Ok(None) => Ok(()),
        Err(e) => Err(e),
    };
    // A leader that could not renew its lease waits until it can give the lease back, since no monitor can lead before
    // that.
    let patience = if result.is_ok() { LEAVING } else { LEASE };
    standing.leave(patience);
    let _ = tokio::time::timeout(patience + LEAVING, belonging).await;
    signing.abort();
    result
}

/// A front monitor.
struct FrontHost {
    front: RefCell<Front>,
    admin: FrontAdmin,
    net: Net,
    /// The connection to the leader, the leader, and whether the connection is open.
    link: RefCell<Option<(ConnId, Presence, bool)>>,
    link_endpoint: RefCell<Option<Endpoint>>,
    link_key: RefCell<Option<auth::CryptoKey>>,
    ids: Rc<FrontIds>,
    used: Rc<RefCell<Vec<(AuthName, auth::CryptoKey)>>>,
}

struct Clients(Rc<FrontHost>);
struct Link(Rc<FrontHost>);

impl Handler for Clients {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        let me = &self.0;
        match event {
            ConnEvent::Open(info) if info.principal.kind == EntityKind::MON => {
                tracing::warn!("mon: closing the relay link of {}: this monitor is not the leader", info.addrs);
                me.net.close(conn);
            }
            ConnEvent::Open(info) => {
                let mut peer = Bridge::peer(&info, Role::Mon);
                let judged = me.admin.replica.borrow().judge(&mut peer.principal);
                if let Err(why) = judged {
                    tracing::warn!("mon: closing the session of {} from {}: {why}", info.principal.name, info.addrs);
                    return me.net.close(conn);
                }
                me.front.borrow_mut().open(conn.0, peer, clock::now().mono);
            }
            ConnEvent::Message(m) => {
                let told = me.front.borrow().peer(conn.0).and_then(|p| me.admin.told(&m, p));
                match told.or_else(|| me.admin.pinged(&m, &me.seen())) {
                    Some(r) => {
                        me.net.consumed(conn, m.cost());
                        // For a closed connection the network reports `Closed` separately.
                        let _ = me.net.send(conn, r);
                    }
                    None => me.front.borrow_mut().message(conn.0, m),
                }
            }
            ConnEvent::Closed(_) => me.front.borrow_mut().closed(conn.0),
        }
        me.carry_out();
    }
}

impl Handler for Link {
    fn event(&self, conn: ConnId, event: ConnEvent) {
        let me = &self.0;
        if me.link.borrow().as_ref().is_none_or(|(c, ..)| *c != conn) {
            return;
        }
        match event {
            ConnEvent::Open(_) => {
                if let Some(l) = me.link.borrow_mut().as_mut() {
                    l.2 = true;
                }
                me.front.borrow_mut().link_open(clock::now().mono);
            }
            ConnEvent::Message(m) => {
                let r = me.front.borrow_mut().from_leader(&m);
                if let Err(e) = r {
                    tracing::error!("mon: closing the link to the leader, which sent an invalid message: {e}");
                    me.net.close(conn);
                    me.unlink();
                }
            }
            ConnEvent::Closed(why) => {
                if me.linked().is_some() {
                    tracing::info!("mon: the connection to the leader is closed: {why}");
                }
                me.unlink();
            }
        }
        me.carry_out();
    }
}

impl FrontHost {
    fn new(o: &MonRunOptions, replica: &Rc<RefCell<Replica>>, net: &Net) -> Rc<Self> {
        Rc::new(Self {
            front: RefCell::default(),
            admin: FrontAdmin { name: o.name.clone(), replica: Rc::clone(replica), net: net.clone() },
            net: net.clone(),
            link: RefCell::default(),
            link_endpoint: RefCell::default(),
            link_key: RefCell::default(),
            ids: Rc::new(FrontIds::default()),
            used: Rc::new(RefCell::new(Vec::new())),
        })
    }

    /// Configuration of the endpoint for clients, which are authenticated with the keys of the replica.
    fn config_for_clients(&self, addrs: AddrVec, modes: &net::modes::Modes) -> EndpointConfig {
        let replica = Rc::clone(&self.admin.replica);
        let auth = FrontAuth { replica, ids: Rc::clone(&self.ids), used: Rc::clone(&self.used) };
        let policies = Policies::uniform(Policy::lossy_server(vec![auth::ConMode::SECURE, auth::ConMode::CRC]));
        EndpointConfig {
            kind: EntityKind::MON,
            num: 0,
            addrs,
            policies: modes.apply(EntityKind::MON, policies),
            auth_host: Some(Rc::new(auth)),
            auth_client: None,
            limits: Limits {
                in_flight_bytes_max: CLIENT_BYTES,
                frames: msgr::FrameLimits::control_plane(),
                ..Limits::default()
            },
        }
    }

    fn unlink(&self) {
        self.link.borrow_mut().take();
        self.front.borrow_mut().link_closed();
    }

    /// The relay state, for the admin socket.
    fn seen(&self) -> Seen {
        let link = self.link.borrow();
        let leader = link.as_ref().filter(|(.., open)| *open).map(|(_, p, _)| p.clone());
        Seen { leader, sessions: self.front.borrow().sessions() }
    }

    fn linked(&self) -> Option<ConnId> {
        self.link.borrow().as_ref().filter(|(.., open)| *open).map(|(c, ..)| *c)
    }

    fn carry_out(&self) {
        // The use of a key is sent before the session that it opened, because the leader ends sessions older than the
        // first use.
        for (name, key) in self.used.take() {
            if let Some(c) = self.linked() {
                let m = MRelayKeyUsed { name, key: key.to_bytes(Features::PACIFIC) };
                let _ = self.net.send(c, m.to_message(Features::PACIFIC));
            }
        }
        let effects = self.front.borrow_mut().take_effects();
        for e in effects {
            self.carry_out_one(e);
        }
        if self.ids.low() {
            self.front.borrow_mut().ask_ids();
            let asked = self.front.borrow_mut().take_effects();
            asked.into_iter().for_each(|e| self.carry_out_one(e));
        }
    }

    fn carry_out_one(&self, e: FrontEffect) {
        match e {
            FrontEffect::ToClient(c, m) => drop(self.net.send(ConnId(c), m)),
            FrontEffect::CloseClient(c, why) => {
                tracing::debug!("mon: closing {}: {why}", ConnId(c));
                self.net.close(ConnId(c));
            }
            FrontEffect::ToLeader(m) => {
                if let Some(c) = self.linked() {
                    let _ = self.net.send(c, m);
                }
            }
            FrontEffect::Consumed(c, bytes) => self.net.consumed(ConnId(c), bytes),
            FrontEffect::Ids(first, end) => self.ids.given(first, end),
            FrontEffect::Clock(round) => {
                if let Some(c) = self.linked() {
                    let now = clock::read();
                    let m = MRelayClock { round, here: now.wall, sent: Some(now.mono) };
                    let _ = self.net.send(c, m.to_message(Features::PACIFIC));
                }
            }
        }
    }

    /// Connects to the current leader, and closes a link to an earlier one.
    fn look(self: &Rc<Self>, standing: &Standing, replica: &Replica, own: EntityAddr, modes: &net::modes::Modes) {
        let leader = standing.leader();
        let linked = self.link.borrow().as_ref().map(|(c, p, _)| (*c, p.clone()));
        if let Some((c, p)) = &linked
            && leader.as_ref() != Some(p)
        {
            self.net.close(*c);
            self.unlink();
            self.carry_out();
        }
        let Some(leader) = leader.filter(|l| l.addr != own) else { return };
        if self.link.borrow().is_some() {
            return;
        }
        let mon = AuthName { kind: EntityKind::MON, id: String::new() };
        let key = replica.key_of(&mon);
        if self.link_endpoint.borrow().is_none() || *self.link_key.borrow() != key {
            let client = match &key {
                Some(k) if replica.options.auth.cephx => Client::cephx(mon, k.clone()),
                _ => Client::none(mon),
            };
            let config = EndpointConfig {
                kind: EntityKind::MON,
                num: -1,
                addrs: AddrVec::from(own),
                policies: modes.apply(EntityKind::MON, Policies::uniform(Policy::lossy_client(Vec::new()))),
                auth_host: None,
                auth_client: Some(Rc::new(RefCell::new(client))),
                limits: Limits {
                    handshake_max: Duration::from_secs(2),
                    keepalive_every: Duration::from_secs(1),
                    keepalive_max: Duration::from_secs(5),
                    output_bytes_max: LINK_BYTES,
                    ..Limits::default()
                },
            };
            *self.link_endpoint.borrow_mut() = Some(self.net.endpoint(config, Rc::new(Link(Rc::clone(self)))));
            *self.link_key.borrow_mut() = key;
        }
        let endpoint = self.link_endpoint.borrow();
        if let Some(e) = endpoint.as_ref() {
            let c = e.connect(Target::new(EntityKind::MON, leader.addr));
            *self.link.borrow_mut() = Some((c, leader, false));
        }
    }
}

/// Runs a front monitor until it is elected (then it returns its fence) or asked to stop.
async fn in_front(
    cx: &Context,
    o: &MonRunOptions,
    public: EntityAddr,
    replica: &Rc<RefCell<Replica>>,
    standing: &Arc<Standing>,
) -> Result<Option<(Bytes, u64)>, MonError> {
    let bind = o.bind.or(public.sock).ok_or_else(|| MonError::NotInMap(o.name.clone()))?;
    let given = |n: &str| replica.borrow().options.settings.given(n).map(str::to_owned);
    let (modes, msgr1) = (net::modes::Modes::take(given)?, net::modes::serves_msgr1(given));
    let net = Net::new();
    let host = FrontHost::new(o, replica, &net);
    let config = host.config_for_clients(super::public_addrs(&replica.borrow().monmap, &o.name)?.1, &modes);
    let endpoint = net.endpoint(config, Rc::new(Clients(Rc::clone(&host))));
    endpoint.set_auto_consume(false);
    let _admin = match &o.admin_socket {
        Some(path) => {
            let (host, host_admin) = (Rc::clone(&host), host.admin.clone());
            let seen = move || host.seen();
            let served = host_admin.serve(path, seen);
            Some(served.map_err(|error| MonError::AdminSocket { path: path.display().to_string(), error })?)
        }
        None => None,
    };
    let mut changes = standing.changes();
    let mut listening: Option<Listening> = None;
    let mut again = tokio::time::interval(AGAIN);
    again.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let result = loop {
        tokio::select! {
            _ = again.tick() => {}
            _ = changes.changed() => {}
            () = cx.stopped() => break Ok(None),
        }
        if let Some(fence) = standing.take_elected() {
            break Ok(Some(fence));
        }
        if let Some(why) = standing.stopped() {
            break Err(MonError::Stopped(why));
        }
        standing.allow(replica.borrow().monmap.may_lead(&o.name));
        if !replica.borrow().monmap.mons.contains_key(&o.name) {
            break Err(MonError::Stopped("this monitor was removed from the monmap".into()));
        }
        // Without global ids no client can sign in, and clients would take the failure for a refusal.
        if let Some(l) = &mut listening {
            let own = replica.borrow().monmap.mons.get(&o.name).map(|m| m.public_addrs.clone());
            own.iter().for_each(|addrs| l.follow(addrs));
        } else if host.ids.left() > 0 {
            listening = Some(Listening::start(&endpoint, bind, msgr1).await?);
            tracing::info!("mon.{} serves {public} as a front monitor", o.name);
        }
        host.look(standing, &replica.borrow(), public, &modes);
        host.front.borrow_mut().expire(clock::now().mono, PATIENCE);
        host.carry_out();
    };
    endpoint.shutdown();
    if let Some(e) = host.link_endpoint.borrow_mut().take() {
        e.shutdown();
    }
    for c in net.connections() {
        net.close(c);
    }
    result
}

/// Creates a cluster in etcd, and waits for an etcd that is still starting. Returns the transaction's outcome.
pub(super) async fn make(store: &mut Store, txn: state::Txn) -> Result<Outcome, MonError> {
    for left in (0..MAKE_TRIES).rev() {
        match store.ask(Op::get(vec![Bytes::from_static(b"meta/format")])).await {
            Err(state::StateError::Unavailable(_)) if left > 0 => tokio::time::sleep(AGAIN).await,
            Err(error) => return Err(MonError::Store { path: "etcd".into(), error }),
            Ok(_) => break,
        }
    }
    store.ask(Op::Txn(txn)).await.map_err(|error| MonError::Store { path: "etcd".into(), error })
}

/// Number of attempts to reach etcd before a cluster is created in it.
const MAKE_TRIES: usize = 150;
