//! The monitor and manager roles as one pure machine: events in, effects out, no I/O and no clock.
//!
//! The host calls [`MonCore::handle`] with what happened and then carries out [`MonCore::take_effects`]. Changes are
//! collected in one [`Pending`]; [`MonCore::flush`], called once per loop turn, turns it into a transaction on the
//! state store. While that commits, messages that would change something wait in order; what only reads is answered
//! from the committed state. Nobody is told of a change before it is durable.

pub mod access;
mod auth_host;
pub mod cluster_state;
mod commands;
pub mod config;
mod failure;
mod global_id;
pub mod load;
pub mod log;
pub mod maps;
mod mgr;
pub mod ops;
pub mod options;
mod osd;
mod perf;
pub(crate) mod pg_num;
mod poolop;
mod propose;
mod query;
pub mod records;
pub mod session;
mod subscribe;
mod tick;
mod waiter;

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use auth::ServiceKeys;
use base::{EntityKind, Epoch, Mono, Now, OsdId};
use cluster::caps::Need;
use cluster_state::{ClusterState, Pending, Role};
use failure::FailureReports;
use global_id::GlobalIds;
use ops::OpTracker;
use propose::Inflight;
use session::{ConnKey, Peer, Session};
use state::{Op, Request};
use waiter::Waiter;
use wire::{Message, WireMessage};

pub use auth_host::MonAuthHost;

/// Messages that may wait for a commit; more closes the connection that sent the one too many.
pub const MAX_DEFERRED: usize = 100_000;

/// The newest OSD map as it is stored and sent.
#[must_use]
pub fn osdmap_blob(state: &ClusterState) -> bytes::Bytes {
    match state.history.full(state.osdmap.epoch) {
        Some(b) => b.clone(),
        None => state.osdmap.encode_blob(cluster::osdmap::CANONICAL).0,
    }
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A peer has signed in.
    Open(ConnKey, Box<Peer>),
    /// It sent something.
    Message(ConnKey, Message),
    /// It is gone.
    Closed(ConnKey),
    /// The state store has answered.
    State(state::Event),
    /// A second has passed.
    Tick,
    /// A job is done: its token, errno, status line and output.
    Answer(u64, i32, String, bytes::Bytes),
}

/// What the host is to do.
#[derive(Debug)]
pub enum Effect {
    /// Send a message.
    Send(ConnKey, Message),
    /// Close a connection; the reason is for the log.
    Close(ConnKey, String),
    /// Ask the state store.
    Submit(Request),
    /// Run a command that needs a client of the cluster; answer with [`Event::Answer`] and the token.
    Job(u64, cluster_state::HostJob),
    /// Give up: the state in the store is not ours any more. The reason is for the log.
    Stop(String),
}

/// What a read of the state store was for.
#[derive(Debug)]
enum Fetch {
    /// Full maps and incrementals for a MON_GET_OSDMAP.
    Maps { conn: ConnKey, fulls: Vec<Epoch>, incs: Vec<Epoch> },
    /// Maps above an epoch for a session.
    Send { conn: ConnKey, fulls: Vec<Epoch>, incs: Vec<Epoch>, missing_fulls: Vec<Epoch>, missing_incs: Vec<Epoch> },
    /// A full map that a command needs, and the command.
    Command { conn: ConnKey, message: Message, epoch: Epoch },
    /// Purged snapshots by epoch.
    Purged { conn: ConnKey, tid: u64, start: Epoch, last: Epoch },
}

/// What beacons said about an OSD.
#[derive(Clone, Copy, Debug)]
struct Beacon {
    last: Mono,
    epoch: Epoch,
    min_last_epoch_clean: Epoch,
    interval: u32,
}

/// The machine.
pub struct MonCore {
    /// Committed state.
    pub state: ClusterState,
    pending: Pending,
    waiters: Vec<Waiter>,
    inflight: Option<Inflight>,
    deferred: VecDeque<(ConnKey, Message)>,
    sessions: BTreeMap<ConnKey, Session>,
    failures: FailureReports,
    joins: BTreeMap<base::PoolId, pg_num::Joins>,
    beacons: BTreeMap<OsdId, Beacon>,
    down_since: BTreeMap<OsdId, Mono>,
    creating_targets: osd::CreatingTargets,
    service_keys: Rc<std::cell::RefCell<ServiceKeys>>,
    global_ids: GlobalIds,
    /// Entities that signed in with their pending key, which replaces the other.
    used_keys: std::cell::RefCell<Vec<(base::AuthName, auth::CryptoKey)>>,
    fetches: BTreeMap<u64, Fetch>,
    jobs: BTreeMap<u64, waiter::CommandReply>,
    /// What OSDs are asked about images.
    perf: crate::images::rates::Queries,
    mgr_beacon: Option<Mono>,
    mgr_digest_sent: Option<Mono>,
    bounds_revision: u64,
    effects: Vec<Effect>,
    next_token: u64,
    ticks: u64,
    /// Requests that wait or were answered lately.
    pub ops: OpTracker,
    commits: (u64, u64),
    now: Now,
}

impl MonCore {
    /// Takes one event.
    pub fn handle(&mut self, event: Event, now: Now) {
        self.now = now;
        match event {
            Event::Open(c, peer) => self.open(c, *peer),
            Event::Message(c, m) => self.message(c, m),
            Event::Closed(c) => self.closed(c),
            Event::State(e) => self.state_event(e),
            Event::Tick => self.tick(),
            Event::Answer(token, rc, rs, out) => self.job_done(token, rc, rs, out),
        }
    }

    /// Takes what is to be done. The order matters.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// True while a commit is under way or changes wait for one.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.inflight.is_some() || !self.pending.is_empty() || !self.deferred.is_empty()
    }

    /// Number of open sessions.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Commits so far, and the nanoseconds they took together.
    #[must_use]
    pub fn commit_latency(&self) -> (u64, u64) {
        self.commits
    }

    fn open(&mut self, c: ConnKey, peer: Peer) {
        let session = Session::new(peer, self.now.wall);
        if session.peer.role == Role::Mon {
            self.state.sessions.insert(c, session.summary());
        }
        let mgr = session.peer.role == Role::Mgr;
        self.sessions.insert(c, session);
        if mgr {
            self.mgr_opened(c);
        }
    }

    fn closed(&mut self, c: ConnKey) {
        if let Some((service, daemon)) = self.sessions.remove(&c).and_then(|s| s.service_daemon()) {
            self.forget_service(&service, &daemon);
        }
        self.state.sessions.remove(&c);
        self.ops.forget(c);
        self.deferred.retain(|(d, _)| *d != c);
    }

    fn message(&mut self, c: ConnKey, m: Message) {
        let Some(role) = self.sessions.get(&c).map(|s| s.peer.role) else { return };
        let result = match role {
            Role::Mgr => self.mgr_message(c, m),
            Role::Mon | Role::Tell => self.mon_message(c, m),
        };
        if let Err(e) = result {
            self.close(c, format!("malformed message: {e}"));
        }
    }

    fn mon_message(&mut self, c: ConnKey, m: Message) -> wire::codec::Result<()> {
        use wire::msg::*;
        match m.header.kind {
            MMonGetMap::KIND => self.send_monmap(c),
            MMonSubscribe::KIND => self.subscribe(c, MMonSubscribe::from_message(&m)?),
            MAuth::KIND => self.renew_auth(c, MAuth::from_message(&m)?),
            MMonGetVersion::KIND => self.get_version(c, MMonGetVersion::from_message(&m)?),
            MStatfs::KIND => self.statfs(c, m.header.tid, &MStatfs::from_message(&m)?),
            MGetPoolStats::KIND => self.get_pool_stats(c, m.header.tid, &MGetPoolStats::from_message(&m)?),
            MGetConfig::KIND => self.get_config(c, &MGetConfig::from_message(&m)?),
            MMonGetOsdMap::KIND => self.get_osdmap(c, &MMonGetOsdMap::from_message(&m)?),
            MMonGetPurgedSnaps::KIND => self.get_purged_snaps(c, m.header.tid, &MMonGetPurgedSnaps::from_message(&m)?),
            MPing::KIND => self.ping(c),
            MMonCommand::KIND | MCommand::KIND => self.command_message(c, m)?,
            MLog::KIND
            | MPoolOp::KIND
            | MOsdBoot::KIND
            | MOsdFailure::KIND
            | MOsdAlive::KIND
            | MOsdMarkMeDown::KIND
            | MOsdMarkMeDead::KIND
            | MOsdFull::KIND
            | MOsdPgTemp::KIND
            | MOsdPgCreated::KIND
            | MOsdPgReadyToMerge::KIND
            | MOsdBeacon::KIND
            | MMgrBeacon::KIND
            | MMonMgrReport::KIND => {
                self.writing_message(c, m)?;
            }
            MMdsBeacon::KIND => {
                let b = MMdsBeacon::from_message(&m)?;
                // Beacons come every few seconds; the first one says it.
                if b.seq <= 1 {
                    tracing::warn!("mon: {} is an MDS and stays out: file systems are not served yet", self.who(c));
                }
            }
            kind => tracing::debug!("mon: message {} from {} is not for a monitor", kind, self.who(c)),
        }
        Ok(())
    }

    /// Messages that may change the state: they wait while a commit is under way.
    fn writing_message(&mut self, c: ConnKey, m: Message) -> wire::codec::Result<()> {
        use wire::msg::*;
        if self.inflight.is_some() {
            self.defer(c, m);
            return Ok(());
        }
        match m.header.kind {
            MLog::KIND => self.cluster_log(c, MLog::from_message(&m)?),
            MPoolOp::KIND => {
                let op = MPoolOp::from_message(&m)?;
                self.pool_op(c, m, &op);
            }
            MOsdBoot::KIND => {
                let boot = MOsdBoot::from_message(&m)?;
                self.osd_boot(c, m, boot);
            }
            MOsdFailure::KIND => self.osd_failure(c, &MOsdFailure::from_message(&m)?),
            MOsdAlive::KIND => self.osd_alive(c, &MOsdAlive::from_message(&m)?),
            MOsdMarkMeDown::KIND => self.osd_mark_me_down(c, &MOsdMarkMeDown::from_message(&m)?),
            MOsdMarkMeDead::KIND => self.osd_mark_me_dead(c, &MOsdMarkMeDead::from_message(&m)?),
            MOsdFull::KIND => self.osd_full(c, &MOsdFull::from_message(&m)?),
            MOsdPgTemp::KIND => self.osd_pg_temp(c, MOsdPgTemp::from_message(&m)?),
            MOsdPgCreated::KIND => self.osd_pg_created(c, &MOsdPgCreated::from_message(&m)?),
            MOsdBeacon::KIND => self.osd_beacon(c, &MOsdBeacon::from_message(&m)?),
            MMgrBeacon::KIND => self.mgr_beacon(c, MMgrBeacon::from_message(&m)?),
            MMonMgrReport::KIND => self.mgr_report_to_mon(c, &MMonMgrReport::from_message(&m)?),
            MOsdPgReadyToMerge::KIND => {
                self.osd_pg_ready_to_merge(c, MOsdPgReadyToMerge::from_message(&m)?);
            }
            kind => tracing::warn!("mon: {} from {} is not supported", wire::msg::registry::name(kind), self.who(c)),
        }
        Ok(())
    }

    fn defer(&mut self, c: ConnKey, m: Message) {
        if self.deferred.len() >= MAX_DEFERRED {
            self.close(c, "too many messages wait for a commit".into());
        } else {
            self.deferred.push_back((c, m));
        }
    }

    fn who(&self, c: ConnKey) -> String {
        self.sessions.get(&c).map_or_else(|| "?".into(), |s| format!("{} {}", s.peer.name, s.peer.addrs))
    }

    fn send(&mut self, c: ConnKey, m: Message) {
        if self.sessions.contains_key(&c) {
            self.effects.push(Effect::Send(c, m));
        }
    }

    /// Sends a typed message, encoded for the peer.
    fn reply(&mut self, c: ConnKey, tid: u64, m: &impl WireMessage) {
        if let Some(s) = self.sessions.get(&c) {
            let m = m.to_message(s.peer.features).with_tid(tid);
            self.effects.push(Effect::Send(c, m));
        }
    }

    fn close(&mut self, c: ConnKey, why: String) {
        self.effects.push(Effect::Close(c, why));
        self.closed(c);
    }

    fn submit(&mut self, op: Op) -> u64 {
        self.next_token += 1;
        self.effects.push(Effect::Submit(Request { token: self.next_token, op }));
        self.next_token
    }

    fn state_event(&mut self, e: state::Event) {
        let state::Event::Reply(r) = e else { return };
        let outcome = match r.result {
            Ok(o) => o,
            Err(e) => return self.store_failed(r.token, &e),
        };
        if self.inflight.as_ref().is_some_and(|i| i.token == r.token) {
            self.committed(r.revision, &outcome);
        } else if let Some(f) = self.fetches.remove(&r.token) {
            self.fetched(f, outcome);
        }
    }

    /// A request to the store failed. What it held is refused; peers whose request has no refusal are disconnected and
    /// come again. Later requests may succeed.
    fn store_failed(&mut self, token: u64, e: &state::StateError) {
        tracing::error!("mon: {e}");
        self.state.store_error = Some(e.to_string());
        if self.inflight.as_ref().is_some_and(|i| i.token == token) {
            self.commit_failed(e);
        } else if let Some(f) = self.fetches.remove(&token) {
            let (Fetch::Maps { conn, .. }
            | Fetch::Send { conn, .. }
            | Fetch::Command { conn, .. }
            | Fetch::Purged { conn, .. }) = f;
            self.close(conn, "the state store failed".into());
        }
    }

    /// Takes up the messages that waited for a commit.
    fn run_deferred(&mut self) {
        for (c, m) in std::mem::take(&mut self.deferred) {
            self.message(c, m);
        }
        self.advance_joins();
    }

    /// True if the session may act as the service's rwx bits say; a message without permission is dropped with a line
    /// in the log, as Ceph does.
    fn allowed(&self, c: ConnKey, service: &str, need: Need) -> bool {
        let Some(s) = self.sessions.get(&c) else { return false };
        let addr = s.peer.addrs.0.first().copied().unwrap_or_default();
        let ok = s.access.allows(service, "", &BTreeMap::new(), need, &addr);
        if !ok {
            tracing::warn!("mon: {} lacks caps on {service}", self.who(c));
        }
        ok
    }

    /// The OSD whose running session this is, if it may speak as one.
    fn osd_session(&self, c: ConnKey) -> Option<OsdId> {
        let s = self.sessions.get(&c)?;
        let Some(osd) = s.osd() else {
            if s.peer.name.kind == EntityKind::OSD {
                tracing::debug!("mon: OSD message on a session that is not the OSD's: {}", self.who(c));
            }
            return None;
        };
        self.allowed(c, "osd", Need::X).then_some(osd)
    }
}
