//! A session with one of the monitors: hunting, subscriptions, commands.
//!
//! Used by clients and daemons alike. The host owns sockets and authentication: the session tells it which address to
//! connect to, and the host reports when the connection is open or closed.
//!
//! Invariants:
//!  1. A subscription, command or version request stays until it is answered or cancelled, and is resent on every new
//!     connection.
//!  2. At most one connection exists or is being made at a time.
//!
//! Tests: below.

use super::{RETRY_MAX, RETRY_MIN};
use base::id::Uuid;
use base::{EntityAddr, Epoch, Mono, Now};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use wire::msg::SubscribeItem;
use wire::msg::{MMonCommand, MMonCommandAck, MMonGetMap, MMonGetVersion, MMonGetVersionReply, MMonMap, MMonSubscribe};
use wire::msg::{MPoolOp, pool_op};
use wire::{Decode as _, Features, Message, WireMessage};

/// Capacity that the output queue keeps.
const ROOM: usize = 16;
/// Time limit of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of a connection attempt while another monitor may answer sooner, as long as Ceph's
/// `mon_client_hunt_interval`. It doubles with each round over all monitors.
const HUNT_TIMEOUT: Duration = Duration::from_secs(3);

/// Action for the host.
#[derive(Debug)]
pub enum Output {
    /// Connect to a monitor; then call [`MonSession::handle_open`] or [`MonSession::handle_closed`].
    Connect(EntityAddr),
    /// Close the connection or abort the attempt.
    Close,
    /// Send a message to the monitor.
    Send(Message),
    /// Pass an event to the owner.
    Event(Event),
}

/// Event for the session's owner.
#[derive(Debug)]
pub enum Event {
    /// A session is open; the owner's per-session state starts anew.
    Open,
    /// The session is closed.
    Closed,
    /// A new monitor map.
    MonMap(Box<cluster::MonMap>),
    /// Answer to a command.
    Command {
        /// Number that [`MonSession::command`] returned.
        tid: u64,
        /// Zero or positive for success, or a negative errno.
        rc: i32,
        /// Status line.
        status: String,
        /// Output.
        out: Bytes,
    },
    /// Answer to a version request.
    Version {
        /// Number that [`MonSession::get_version`] returned.
        tid: u64,
        /// Newest epoch.
        newest: u64,
        /// Oldest epoch kept.
        oldest: u64,
    },
    /// The monitors belong to another cluster than the configuration names; their messages are ignored.
    OtherCluster {
        /// Cluster id in the configuration.
        wanted: Uuid,
        /// Cluster id of the monitors.
        found: Uuid,
    },
    /// Any other message of the monitor.
    Message(Message),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle { retry_at: Mono },
    Connecting { until: Mono },
    Open,
}

/// A client's or daemon's session with the monitors; see the module.
pub struct MonSession {
    hostname: String,
    mons: Vec<EntityAddr>,
    next_mon: usize,
    state: State,
    backoff: Duration,
    /// Connection attempts since the last session.
    attempts: u32,
    monmap_epoch: Epoch,
    fsid: Uuid,
    /// Cluster id in the configuration, if it has one.
    wanted: Option<Uuid>,
    features: Features,
    subs: BTreeMap<String, (u64, bool)>,
    subs_dirty: bool,
    next_tid: u64,
    commands: BTreeMap<u64, (Vec<String>, Bytes)>,
    versions: BTreeMap<u64, String>,
    out: VecDeque<Output>,
}

impl MonSession {
    /// A session with one of `mons`, starting at index `first` (a random number spreads clients).
    #[must_use]
    pub fn new(mons: Vec<EntityAddr>, first: u64, hostname: String) -> Self {
        let n = mons.len().max(1) as u64;
        Self {
            hostname,
            mons,
            next_mon: (first % n) as usize,
            state: State::Idle { retry_at: Mono(0) },
            backoff: RETRY_MIN,
            attempts: 0,
            monmap_epoch: Epoch(0),
            fsid: Uuid::ZERO,
            wanted: None,
            features: Features::PACIFIC,
            subs: BTreeMap::from([("config".to_owned(), (0, false)), ("monmap".to_owned(), (0, false))]),
            subs_dirty: false,
            next_tid: 1,
            commands: BTreeMap::new(),
            versions: BTreeMap::new(),
            out: VecDeque::new(),
        }
    }

    /// Accepts only the cluster with this id.
    #[must_use]
    pub fn of_cluster(mut self, fsid: Option<Uuid>) -> Self {
        self.wanted = fsid;
        self
    }

    /// The next action for the host.
    pub fn poll_output(&mut self) -> Option<Output> {
        if self.subs_dirty && self.state == State::Open {
            self.subs_dirty = false;
            self.send_subs();
        }
        let next = self.out.pop_front();
        if next.is_none() {
            // Free the memory of a burst.
            self.out.shrink_to(ROOM);
        }
        next
    }

    /// True while a session is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// The cluster's id, zero until the first monitor map.
    #[must_use]
    pub fn fsid(&self) -> Uuid {
        self.fsid
    }

    /// Features of the connection to the monitor.
    #[must_use]
    pub fn features(&self) -> Features {
        self.features
    }

    /// Time of the next [`MonSession::tick`].
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        match self.state {
            State::Idle { retry_at } => Some(retry_at),
            State::Connecting { until } => Some(until),
            State::Open => None,
        }
    }

    /// Advances time: starts or gives up connection attempts.
    pub fn tick(&mut self, now: Now) {
        match self.state {
            State::Idle { retry_at } if now.mono >= retry_at => {
                if let Some(a) = self.mons.get(self.next_mon % self.mons.len().max(1)).copied() {
                    self.next_mon = (self.next_mon + 1) % self.mons.len();
                    self.state = State::Connecting { until: now.mono + self.patience() };
                    self.attempts += 1;
                    self.out.push_back(Output::Connect(a));
                }
            }
            State::Connecting { until } if now.mono >= until => {
                self.out.push_back(Output::Close);
                self.lost(now);
            }
            _ => {}
        }
    }

    /// Time limit of the next connection attempt.
    fn patience(&self) -> Duration {
        let n = u32::try_from(self.mons.len()).unwrap_or(u32::MAX);
        if n <= 1 {
            return CONNECT_TIMEOUT;
        }
        (HUNT_TIMEOUT * (1 << (self.attempts / n).min(2))).min(CONNECT_TIMEOUT)
    }

    fn lost(&mut self, now: Now) {
        self.state = State::Idle { retry_at: now.mono + self.backoff };
        self.backoff = (self.backoff * 2).min(RETRY_MAX);
    }

    /// Reports that the connection is authenticated and open.
    pub fn handle_open(&mut self, features: Features) {
        self.features = features;
        self.state = State::Open;
        self.backoff = RETRY_MIN;
        self.attempts = 0;
        self.send(&MMonGetMap::default());
        self.subs_dirty = false;
        self.send_subs();
        self.out.push_back(Output::Event(Event::Open));
        self.send_commands();
        for (tid, what) in self.versions.clone() {
            self.send(&MMonGetVersion { handle: tid, what });
        }
    }

    /// Reports that the connection was closed or could not be made.
    pub fn handle_closed(&mut self, now: Now) {
        match self.state {
            State::Idle { .. } => {}
            State::Connecting { .. } => self.lost(now),
            State::Open => {
                self.lost(now);
                self.out.push_back(Output::Event(Event::Closed));
            }
        }
    }

    /// Handles a message of the monitor. Error: the message, or a map in it, cannot be decoded.
    pub fn handle_message(&mut self, m: Message) -> Result<(), wire::DecodeError> {
        if self.state != State::Open {
            // Ignore further messages of another cluster's monitors.
            return Ok(());
        }
        match m.header.kind {
            MMonMap::KIND => {
                let map = cluster::MonMap::from_bytes(&MMonMap::from_message(&m)?.monmapbl)?;
                if let Some(wanted) = self.wanted.filter(|w| *w != map.fsid) {
                    // Ends the session with the next tick.
                    self.state = State::Connecting { until: Mono(0) };
                    self.out.push_back(Output::Event(Event::OtherCluster { wanted, found: map.fsid }));
                    return Ok(());
                }
                let first = self.fsid == Uuid::ZERO;
                self.fsid = map.fsid;
                if first {
                    self.send_commands();
                }
                if map.epoch > self.monmap_epoch {
                    self.monmap_epoch = map.epoch;
                    let mons: Vec<_> = map.mons.values().filter_map(|i| i.public_addrs.msgr2().copied()).collect();
                    if !mons.is_empty() {
                        self.mons = mons;
                    }
                    self.subscribe("monmap", u64::from(map.epoch.0) + 1, false);
                    self.subs_dirty = false;
                    self.out.push_back(Output::Event(Event::MonMap(Box::new(map))));
                }
            }
            MMonCommandAck::KIND => {
                let a = MMonCommandAck::from_message(&m)?;
                let tid = m.header.tid;
                if self.commands.remove(&tid).is_some() {
                    self.out.push_back(Output::Event(Event::Command { tid, rc: a.r, status: a.rs.0, out: a.data }));
                }
            }
            MMonGetVersionReply::KIND => {
                let v = MMonGetVersionReply::from_message(&m)?;
                if self.versions.remove(&v.handle).is_some() {
                    let e = Event::Version { tid: v.handle, newest: v.version, oldest: v.oldest_version };
                    self.out.push_back(Output::Event(e));
                }
            }
            _ => self.out.push_back(Output::Event(Event::Message(m))),
        }
        Ok(())
    }

    fn send(&mut self, m: &impl WireMessage) {
        self.out.push_back(Output::Send(m.to_message(self.features)));
    }

    /// Sends a message of the owner if the session is open; returns false otherwise.
    pub fn send_now(&mut self, m: &impl WireMessage) -> bool {
        let open = self.is_open();
        if open {
            self.send(m);
        }
        open
    }

    /// Requests a new self-managed snapshot id, or the removal of one; `None` if the session is not open. The answer is
    /// an [`Event::Message`] with that transaction number, if the session lasts.
    pub fn unmanaged_snap(&mut self, pool: base::PoolId, remove: Option<base::SnapId>) -> Option<u64> {
        let number = u32::try_from(pool.0).ok()?;
        if !self.is_open() || self.fsid == Uuid::ZERO {
            return None;
        }
        let tid = self.tid();
        let m = MPoolOp {
            fsid: self.fsid,
            pool: number,
            op: if remove.is_some() { pool_op::DELETE_UNMANAGED_SNAP } else { pool_op::CREATE_UNMANAGED_SNAP },
            snapid: remove.unwrap_or_default(),
            ..MPoolOp::default()
        };
        self.out.push_back(Output::Send(m.to_message(self.features).with_tid(tid)));
        Some(tid)
    }

    fn send_subs(&mut self) {
        let what = self.subs.iter().map(|(k, (start, once))| (k.clone(), SubscribeItem::new(*start, *once))).collect();
        let m = MMonSubscribe { what, hostname: self.hostname.clone() };
        self.send(&m);
    }

    /// Subscribes to a map or configuration from version `start` on; `once` for a single answer. Replaces the
    /// subscription of the same name.
    pub fn subscribe(&mut self, what: &str, start: u64, once: bool) {
        if self.subs.get(what) != Some(&(start, once)) || once {
            self.subs.insert(what.to_owned(), (start, once));
            self.subs_dirty = true;
        }
    }

    /// Records that version `have` arrived, so that a new session asks for later ones; ends a one-time subscription.
    pub fn got(&mut self, what: &str, have: u64) {
        if let Some((start, once)) = self.subs.get_mut(what) {
            if *once {
                self.subs.remove(what);
            } else {
                *start = (*start).max(have + 1);
            }
        }
    }

    /// Cancels a subscription.
    pub fn unsubscribe(&mut self, what: &str) {
        self.subs.remove(what);
    }

    fn tid(&mut self) -> u64 {
        let t = self.next_tid;
        self.next_tid += 1;
        t
    }

    fn send_command(&mut self, tid: u64, cmd: Vec<String>, input: Bytes) {
        let m = MMonCommand {
            fsid: self.fsid,
            cmd: cmd.into_iter().map(Into::into).collect(),
            data: input,
            ..MMonCommand::default()
        };
        let mut m = m.to_message(self.features);
        m.header.tid = tid;
        self.out.push_back(Output::Send(m));
    }

    /// Sends unanswered commands once the cluster id is known: monitors refuse commands without it.
    fn send_commands(&mut self) {
        if self.fsid != Uuid::ZERO && self.is_open() {
            for (tid, (cmd, input)) in self.commands.clone() {
                self.send_command(tid, cmd, input);
            }
        }
    }

    /// Runs a command (JSON text) with input; [`Event::Command`] has the answer.
    pub fn command(&mut self, json: &str, input: Bytes) -> u64 {
        let tid = self.tid();
        let cmd = vec![json.to_owned()];
        self.commands.insert(tid, (cmd.clone(), input.clone()));
        if self.is_open() && self.fsid != Uuid::ZERO {
            self.send_command(tid, cmd, input);
        }
        tid
    }

    /// Cancels a command: its answer is dropped.
    pub fn cancel_command(&mut self, tid: u64) {
        self.commands.remove(&tid);
    }

    /// Requests the newest and oldest version of a map; [`Event::Version`] has the answer.
    pub fn get_version(&mut self, what: &str) -> u64 {
        let tid = self.tid();
        self.versions.insert(tid, what.to_owned());
        if self.is_open() {
            self.send(&MMonGetVersion { handle: tid, what: what.to_owned() });
        }
        tid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::EntityAddr;

    fn at(ms: u64) -> Now {
        Now { mono: Mono(ms * 1_000_000), wall: base::Utime::ZERO }
    }

    /// The times in milliseconds at which a session gives its first attempts up; no monitor answers.
    fn given_up(mons: u16, attempts: usize) -> Vec<u64> {
        let all =
            (0..mons).map(|i| EntityAddr::msgr2(std::net::SocketAddr::from(([127, 0, 0, 1], 3300 + i)), 0)).collect();
        let (mut s, mut out, mut began) = (MonSession::new(all, 0, String::new()), Vec::new(), 0);
        let mut connected = false;
        for ms in 0..100_000 {
            s.tick(at(ms));
            while let Some(o) = s.poll_output() {
                match o {
                    Output::Connect(_) => {
                        assert!(!std::mem::replace(&mut connected, true), "one connection at a time");
                        began = ms;
                    }
                    Output::Close => {
                        connected = false;
                        out.push(ms - began);
                    }
                    _ => {}
                }
            }
            if out.len() == attempts {
                break;
            }
        }
        out
    }

    #[test]
    fn a_monitor_that_does_not_answer_is_left_sooner_while_there_are_others() {
        assert_eq!(given_up(1, 2), [10_000; 2]);
        assert_eq!(given_up(3, 7), [3_000, 3_000, 3_000, 6_000, 6_000, 6_000, 10_000]);
    }

    #[test]
    fn requests_stay_until_they_are_cancelled() {
        let mon = EntityAddr::msgr2(std::net::SocketAddr::from(([127, 0, 0, 1], 3300)), 0);
        let mut s = MonSession::new(vec![mon], 0, String::new());
        s.fsid = Uuid([1; 16]);
        s.subscribe("osdmap", 1, false);
        let command = s.command("{}", Bytes::new());
        s.get_version("osdmap");
        let mut now = 0;
        // Connects, and gives the kinds of the messages that go to the monitor.
        let mut again = |s: &mut MonSession| {
            let mut connects = 0;
            while connects == 0 {
                now += 100;
                s.tick(at(now));
                connects = std::iter::from_fn(|| s.poll_output()).filter(|o| matches!(o, Output::Connect(_))).count();
            }
            assert_eq!(connects, 1);
            s.handle_open(Features::PACIFIC);
            let all: Vec<Output> = std::iter::from_fn(|| s.poll_output()).collect();
            s.handle_closed(at(now));
            let has = |kind| all.iter().any(|o| matches!(o, Output::Send(m) if m.header.kind == kind));
            [has(MMonSubscribe::KIND), has(MMonCommand::KIND), has(MMonGetVersion::KIND)]
        };
        assert_eq!(again(&mut s), [true; 3]);
        assert_eq!(again(&mut s), [true; 3]);
        s.cancel_command(command);
        assert_eq!(again(&mut s), [true, false, true]);
    }
}
