//! The monitor and manager roles as one pure state machine: events in, effects out, no I/O and no clock.
//!
//! The host calls [`MonCore::handle`] for each event and then carries out [`MonCore::take_effects`]. Changes are
//! collected in one [`Pending`]; [`MonCore::flush`], called once per turn of the reactor, turns it into a transaction
//! on the state store. While that is in flight, messages that change something wait in order; queries are answered
//! from the committed state. No client is told of a change before it is durable.
//!
//! | room | what |
//! |---|---|
//! | [`session`] | who may open a session and what it may do; keys, ids and proofs of handshakes |
//! | [`intake`] | messages that wait for their turn or for a commit |
//! | `commands` | from a command's message to its answer, and the audit log |
//! | `propose` | from pending changes to durable ones |
//! | `reply` | queries, subscriptions, reads of old records |
//! | [`osd`], [`pool`], [`fs`], [`mgr`] | messages and rules of OSDs, pools, MDS daemons and managers |
//! | `tick` | changes that time alone brings about |
//! | [`start`] | the state of a new process, from its records |
//! | [`quorum`], [`relay`] | several monitors that share a state: who leads, and sessions that others relay |

mod commands;
pub mod fs;
pub mod intake;
pub mod mgr;
pub mod osd;
pub mod pool;
mod propose;
pub mod quorum;
pub mod relay;
mod reply;
pub mod session;
pub mod start;
mod tick;

use std::collections::BTreeMap;

use crate::core::session::{Peer, Session};
use crate::state::ops::OpTracker;
use crate::state::options::MonOptions;
use crate::state::{ClusterState, ConnKey, Pending, Role};
use base::{EntityKind, Now, OsdId};
use intake::Intake;
use osd::failure::FailureReports;
use propose::writer::Writer;
use reply::Answers;
use reply::requests::Requests;
use session::credentials::Credentials;
use session::rights::{AtMonitor, Right};
use state::{Op, Request};
use wire::{Message, WireMessage};

pub use session::auth_host::MonAuthHost;

/// Most host jobs that one session may have in flight.
const JOBS: usize = 64;

/// An event for the core.
#[derive(Debug)]
pub enum Event {
    /// A peer authenticated and its session opened.
    Open(ConnKey, Box<Peer>),
    /// A peer authenticated at another monitor, by that monitor's copy of keys and caps.
    OpenElsewhere(ConnKey, Box<Peer>),
    /// A peer sent a message.
    Message(ConnKey, Message),
    /// A session closed.
    Closed(ConnKey),
    /// The state store answered.
    State(state::Event),
    /// A second has passed.
    Tick,
    /// The host finished a job: its token, errno, status line and output.
    Answer(u64, i32, String, bytes::Bytes),
    /// A module of the manager role serves at this address, or serves no longer. The host repeats it until the
    /// manager map says so.
    Offer(&'static str, Option<String>),
    /// A module of the manager role stores values in the config-key store, unless it has one of them. The host repeats it
    /// until they are there.
    StoreValues([(&'static str, bytes::Bytes); 2]),
    /// The addresses of all clients that the manager role has of its own.
    OwnClients(Vec<base::AddrVec>),
}

/// An effect for the host to carry out.
#[derive(Debug)]
pub enum Effect {
    /// Send a message.
    Send(ConnKey, Message),
    /// Close a connection; the reason is for the log.
    Close(ConnKey, String),
    /// Close the relay links of other monitors; the reason is for the log.
    CloseLinks(String),
    /// Send a request to the state store.
    Submit(Request),
    /// Run a command that needs a client of the cluster; answer with [`Event::Answer`] and the token.
    Job(u64, crate::command::HostJob),
    /// Ask the separate manager; answer with [`Event::Answer`] and the token.
    Forward(u64, Box<::mgr::host::forward::Forward>),
    /// Stop the monitor: another one may write the state. The reason is for the log.
    Stop(String),
}

/// The state machine of the monitor and manager roles. Most fields are parts that own theirs.
pub struct MonCore {
    state: ClusterState,
    pending: Pending,
    writer: Writer,
    intake: Intake,
    answers: Answers,
    requests: Requests,
    audit: commands::audit::Audit,
    sessions: BTreeMap<ConnKey, Session>,
    leaving: session::revoke::Leaving,
    credentials: Credentials,
    failures: FailureReports,
    liveness: osd::Liveness,
    creating_targets: osd::CreatingTargets,
    merges: BTreeMap<base::PoolId, pool::pg_num::Merges>,
    mgr_watch: mgr::MgrWatch,
    mds_watch: fs::MdsWatch,
    effects: Vec<Effect>,
    ticks: tick::Ticks,
    ops: OpTracker,
    now: Now,
}

impl MonCore {
    /// Handles one event.
    pub fn handle(&mut self, event: Event, now: Now) {
        self.now = now;
        match event {
            Event::Open(c, peer) | Event::OpenElsewhere(c, peer) => self.judge_and_open(c, *peer),
            Event::Message(c, m) => self.arrived(c, m),
            Event::Closed(c) => self.closed(c),
            Event::State(e) => self.state_event(e),
            Event::Tick => self.tick(),
            Event::Answer(token, rc, rs, out) => self.job_done(token, rc, rs, out),
            Event::Offer(module, uri) => self.offer(module, uri),
            Event::StoreValues(values) => self.store_values(values),
            Event::OwnClients(clients) => self.take_own_clients(clients),
        }
    }

    /// The committed state.
    #[must_use]
    pub fn state(&self) -> &ClusterState {
        &self.state
    }

    /// Requests in flight, and recent ones.
    #[must_use]
    pub fn ops(&self) -> &OpTracker {
        &self.ops
    }

    /// Changes options of this process, which are not stored.
    pub fn change_options<R>(&mut self, change: impl FnOnce(&mut MonOptions) -> R) -> R {
        self.state.change_options(change)
    }

    /// Makes the state in memory differ from the stored one, for a test.
    #[cfg(feature = "pretend")]
    pub fn pretend(&mut self, change: impl FnOnce(&mut crate::state::StateView)) {
        self.state.pretend(change);
    }

    /// Takes the effects, to be carried out in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// True while a commit is in flight, changes wait for one, or the effects of the last one are not complete.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.writer.is_busy() || !self.pending.is_empty() || self.intake.waits() || self.is_walking()
    }

    /// True if [`MonCore::flush`] has work left for further turns. The host handles other events that are ready and
    /// calls it again, even without an event.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.is_walking() || !self.answers.listings().is_empty() || self.intake.has_more() || self.retries()
    }

    /// Number of open sessions.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Number of commits so far, and their total time in nanoseconds.
    #[must_use]
    pub fn commit_latency(&self) -> (u64, u64) {
        self.writer.commits()
    }

    fn open(&mut self, c: ConnKey, peer: Peer) {
        let session = Session::new(peer, self.now);
        if session.role() == Role::Mon {
            self.state.sessions_mut().insert(c, session.summary());
            self.state.wrong_keys_mut().authenticated(&session.who().name);
        }
        let mgr = session.role() == Role::Mgr;
        if let Some(osd) = session.osd().filter(|_| mgr) {
            self.state.sessions_mut().insert_osd(osd, c);
        }
        self.sessions.insert(c, session);
        if mgr {
            self.mgr_opened(c);
        }
    }

    fn closed(&mut self, c: ConnKey) {
        self.close_service(c);
        let osd = self.sessions.remove(&c).and_then(|s| s.osd());
        self.state.sessions_mut().remove(c, osd);
        if let Some(osd) = osd {
            self.session_of_osd_ended(osd);
        }
        self.leaving.remove(&c);
        self.ops.forget(c);
        self.intake.forget(c);
        self.answers.listings_mut().forget(c);
        self.requests.forget(c);
    }

    /// Handles a message: checks the sender's right, defers it if it must wait for a commit, then dispatches it.
    fn message(&mut self, c: ConnKey, m: Message) {
        let Some(role) = self.sessions.get(&c).map(|s| s.role()) else { return };
        let Some(row) = session::rights::row(role, m.header.kind) else {
            return tracing::debug!("mon: message {} from {} is not for this role", m.header.kind, self.who(c));
        };
        if !self.may(c, row.right, row.name) {
            return;
        }
        if row.writes && self.must_wait() {
            // A message that will be refused does not wait, either.
            if row.right == Right::PerItem && !self.may_pool_message(c, &m) {
                return;
            }
            return self.defer(c, m);
        }
        let (waiters, copy) = (self.answers.waiting(), m.clone());
        let result = match role {
            Role::Mgr => self.mgr_message(c, m),
            Role::Mon | Role::Tell => self.mon_message(c, m),
        };
        if self.answers.waiting() > waiters {
            self.intake.contributes(c, copy);
        }
        if let Err(e) = result {
            self.close(c, format!("malformed message: {e}"));
        }
    }

    /// Dispatches a message at the monitor, from a session that may send it.
    fn mon_message(&mut self, c: ConnKey, m: Message) -> wire::codec::Result<()> {
        let Some(typed) = AtMonitor::decode(&m)? else { return Ok(()) };
        let tid = m.header.tid;
        match typed {
            AtMonitor::MMonGetMap(_) => self.send_monmap(c),
            AtMonitor::MMonSubscribe(x) => self.subscribe(c, *x),
            AtMonitor::MAuth(x) => self.renew_auth(c, *x),
            AtMonitor::MMonGetVersion(x) => self.get_version(c, *x),
            AtMonitor::MStatfs(x) => self.statfs(c, tid, &x),
            AtMonitor::MGetPoolStats(x) => self.get_pool_stats(c, tid, &x),
            AtMonitor::MGetConfig(x) => self.get_config(c, &x),
            AtMonitor::MMonGetOsdMap(x) => self.get_osdmap(c, &x),
            AtMonitor::MMonGetPurgedSnaps(x) => self.get_purged_snaps(c, tid, &x),
            AtMonitor::MPing(_) => self.ping(c),
            AtMonitor::MMonCommand(x) => self.mon_command(c, m, *x),
            AtMonitor::MCommand(x) => self.tell_command(c, m, *x),
            AtMonitor::MLog(x) => self.cluster_log(c, *x),
            AtMonitor::MPoolOp(x) => self.pool_op(c, m, &x),
            AtMonitor::MOsdBoot(x) => self.osd_boot(c, m, *x),
            AtMonitor::MOsdFailure(x) => self.osd_failure(c, &x),
            AtMonitor::MOsdAlive(x) => self.osd_alive(c, &x),
            AtMonitor::MOsdMarkMeDown(x) => self.osd_mark_me_down(c, &x),
            AtMonitor::MOsdMarkMeDead(x) => self.osd_mark_me_dead(c, &x),
            AtMonitor::MOsdFull(x) => self.osd_full(c, &x),
            AtMonitor::MOsdPgTemp(x) => self.osd_pg_temp(c, *x),
            AtMonitor::MOsdPgCreated(x) => self.osd_pg_created(c, &x),
            AtMonitor::MOsdBeacon(x) => self.osd_beacon(c, &x),
            AtMonitor::MMgrBeacon(x) => self.mgr_beacon(c, *x),
            AtMonitor::MMonMgrReport(x) => self.mgr_report_to_mon(c, &x),
            AtMonitor::MOsdPgReadyToMerge(x) => self.osd_pg_ready_to_merge(c, *x),
            AtMonitor::MMdsBeacon(x) => self.mds_beacon(c, *x),
            AtMonitor::MMdsLoadTargets(x) => self.mds_load_targets(c, &x),
            AtMonitor::MRemoveSnaps(x) => self.remove_snaps(c, *x),
        }
        Ok(())
    }

    /// The session of a message that is being handled.
    fn sender(&self, c: ConnKey) -> Option<&Session> {
        let s = self.sessions.get(&c);
        debug_assert!(s.is_some(), "a message is handled only while its session is open");
        s
    }

    fn who(&self, c: ConnKey) -> String {
        self.sessions
            .get(&c)
            .map_or_else(|| "?".into(), |s| format!("{} {} from {}", s.who().name, s.addrs(), s.who().socket))
    }

    fn send(&mut self, c: ConnKey, m: Message) {
        if self.sessions.contains_key(&c) {
            self.intake.sent(m.cost());
            self.effects.push(Effect::Send(c, m));
        }
    }

    /// Sends a typed message, encoded for the peer.
    fn reply(&mut self, c: ConnKey, tid: u64, m: &impl WireMessage) {
        if let Some(s) = self.sessions.get(&c) {
            let m = m.to_message(s.features()).with_tid(tid);
            self.intake.sent(m.cost());
            self.effects.push(Effect::Send(c, m));
        }
    }

    fn close(&mut self, c: ConnKey, why: String) {
        self.effects.push(Effect::Close(c, why));
        self.closed(c);
    }

    fn submit(&mut self, op: Op) -> u64 {
        let token = self.requests.next_token();
        self.effects.push(Effect::Submit(Request { token, op }));
        token
    }

    fn state_event(&mut self, e: state::Event) {
        let state::Event::Reply(r) = e else { return };
        if self.writer.inflight().is_some_and(|i| i.attempt.awaits(r.token)) {
            self.attempt_event(r.revision, r.result);
        } else if let Some(g) = self.requests.take_read(r.token) {
            self.gathered(g, r.result);
        }
    }

    /// True if a session has a right. Every message, subscription and item of one is checked here and nowhere else. A
    /// message without its right is dropped with a line in the log, as in Ceph.
    fn may(&mut self, c: ConnKey, right: Right, what: &str) -> bool {
        let Some(s) = self.sessions.get(&c) else { return false };
        let active = &self.state.mgrmap;
        let ok = s.has(right, (active.active_gid, &active.active_name));
        if !ok {
            if right == Right::Osd && s.who().name.kind == EntityKind::OSD && s.who().kind == EntityKind::CLIENT {
                // An OSD's short first session announces a client.
                tracing::debug!("mon: {what} on a session that is not the OSD's: {}", self.who(c));
            } else {
                self.audit_dropped(c, what, &right.to_string());
            }
        }
        ok
    }

    /// The OSD to whose running instance this session belongs.
    fn osd_session(&self, c: ConnKey) -> Option<OsdId> {
        self.sessions.get(&c)?.osd()
    }
}
