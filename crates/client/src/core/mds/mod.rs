//! Sessions with the MDS daemons of one file system, and the requests in them.
//!
//! The client keeps no cache: it gives every capability back with the next message, and opens no files. So an MDS has
//! nothing to take back from it, and other clients never wait for it.
//!
//! `request` has the requests to an MDS, and the meaning of its replies.
//!
//! Invariants:
//!  1. Every submitted request ends in exactly one [`Output::Done`].
//!  2. A change that was answered is kept until the MDS says that it is durable. If the MDS fails before, its successor
//!     gets the change again, in the order of the answers and with the inode that the first attempt made.
//!  3. A request is resent with the same number, so that the MDS recognizes it.
//!  4. After a failure of an MDS its session is continued (`MClientReconnect`), so that the successor waits for nobody.
//!
//! Tests: `src/core/mds/tests.rs` (1, `requests_end_with_their_file_system`; 2, 4,
//! `after_a_failure_the_successor_gets_changes_in_order_and_the_rest_later`; 3,
//! `a_lost_connection_to_the_same_daemon_repeats_requests`).

pub mod request;
#[cfg(test)]
mod tests;

use base::errno::{EBLOCKLISTED, EIO, ENOTCONN, Errno};
use base::{EntityAddr, Epoch, Mono, Now};
use bytes::Bytes;
use request::{Answer, Given, Request};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use wire::msg::{
    CapItem, MClientCapRelease, MClientCaps, MClientLease, MClientReconnect, MClientReply, MClientRequest,
    MClientRequestForward, MClientSession, cap_op, lease_action, session_op,
};
use wire::types::{StrMap, mds_state};
use wire::{Features, Message, WireMessage};

/// Pause between two attempts to connect.
const RETRY: Duration = Duration::from_secs(1);
/// Interval at which an open session is renewed; a session without a sign of life for a minute is stale.
const RENEW: Duration = Duration::from_secs(15);
/// Time without a request after which a session is closed.
const IDLE: Duration = Duration::from_secs(20);
/// Time limit for the end of a session.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);
/// Ranks that a file system may have.
const RANKS_MAX: i32 = 256;
/// Bits of file-system features that this client announces: all releases up to Octopus, with replies that have lengths.
const FEATURES: u64 = 0x3fff;
/// Kinds of messages that an MDS counts in a session; its close needs their number.
const COUNTED: [u16; 4] = [MClientCaps::KIND, MClientLease::KIND, SNAP, QUOTA];
/// `MClientSnap`.
const SNAP: u16 = 0x312;
/// `MClientQuota`.
const QUOTA: u16 = 0x314;

/// The daemon of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankInfo {
    /// Rank.
    pub rank: i32,
    /// Global id of the daemon.
    pub gid: u64,
    /// Its address.
    pub addr: EntityAddr,
    /// Its state, one of [`mds_state`].
    pub state: i32,
}

/// Action for the host.
#[derive(Debug)]
pub enum Output {
    /// Connect to the daemon of a rank.
    Connect(i32, EntityAddr),
    /// Drop the connection to a rank.
    Close(i32),
    /// Send a message to a rank, whose connection is open.
    Send(i32, Message),
    /// The request has ended.
    Done(u64, Result<Box<Answer>, Errno>),
    /// The changes of all answers below this one are durable.
    Durable(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No session.
    None,
    /// A session was asked for.
    Opening,
    /// The session is open.
    Open,
    /// The daemon was replaced; its successor is to continue the session.
    Lost,
    /// The successor was told; it has not answered.
    Continuing,
    /// The end of the session was asked for.
    Closing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Down { again: Mono },
    Connecting,
    Up(Features),
}

struct Session {
    gid: u64,
    phase: Phase,
    link: Link,
    /// Messages that the daemon counts; the end of the session names their number.
    pushed: u64,
    renewals: u64,
    renewed: Mono,
    used: Mono,
    /// Time at which the end of the session was asked for.
    closing: Mono,
    /// Capabilities to give back.
    release: Vec<Given>,
}

struct Call {
    req: Request,
    rank: i32,
    /// Times it was sent.
    sent: u8,
    forwards: u8,
    /// The request was done: the inode that it made, and the order of its answer.
    done: Option<(u64, u64)>,
}

/// Sessions and requests of a client in one file system; see the module.
pub struct Machine {
    metadata: StrMap,
    epoch: Epoch,
    ranks: BTreeMap<i32, RankInfo>,
    sessions: BTreeMap<i32, Session>,
    calls: BTreeMap<u64, Call>,
    /// Calls to be sent, by rank.
    unsent: BTreeSet<(i32, u64)>,
    /// Calls without an answer, by rank.
    unanswered: BTreeMap<i32, usize>,
    /// Answered changes that are not durable, by the number of their answer.
    volatile: BTreeMap<u64, u64>,
    next_tid: u64,
    answers: u64,
    out: VecDeque<Output>,
}

impl Machine {
    /// Makes a client that says `metadata` about itself. `first` is the number of its first request.
    #[must_use]
    pub fn new(metadata: StrMap, first: u64) -> Self {
        Self {
            metadata,
            epoch: Epoch(0),
            ranks: BTreeMap::new(),
            sessions: BTreeMap::new(),
            calls: BTreeMap::new(),
            unsent: BTreeSet::new(),
            unanswered: BTreeMap::new(),
            volatile: BTreeMap::new(),
            next_tid: first.max(1),
            answers: 0,
            out: VecDeque::new(),
        }
    }

    /// Next action for the host.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// True if answered changes are not durable yet.
    #[must_use]
    pub fn has_volatile(&self) -> bool {
        !self.volatile.is_empty()
    }

    /// True if nothing is open and nothing waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.calls.is_empty() && self.sessions.values().all(|s| s.phase == Phase::None)
    }

    /// Takes the newest map of the file system.
    pub fn handle_map(&mut self, now: Now, epoch: Epoch, ranks: &[RankInfo]) {
        self.epoch = epoch;
        self.ranks = ranks.iter().map(|r| (r.rank, *r)).collect();
        for (rank, s) in &mut self.sessions {
            let Some(info) = self.ranks.get(rank) else { continue };
            if info.gid == s.gid {
                continue;
            }
            s.gid = info.gid;
            s.release.clear();
            s.pushed = 0;
            if !matches!(s.link, Link::Down { .. }) {
                self.out.push_back(Output::Close(*rank));
            }
            s.link = Link::Down { again: Mono(0) };
            s.phase = match s.phase {
                Phase::Open | Phase::Lost | Phase::Continuing => Phase::Lost,
                Phase::Closing | Phase::None | Phase::Opening => Phase::None,
            };
            let again = self.calls.iter().filter(|(_, c)| c.rank == *rank && c.done.is_none());
            self.unsent.extend(again.map(|(tid, _)| (*rank, *tid)));
        }
        self.advance(now);
    }

    /// The file system is gone: what waits ends with `ENOTCONN`.
    pub fn handle_gone(&mut self) {
        self.ranks.clear();
        for (rank, s) in std::mem::take(&mut self.sessions) {
            if !matches!(s.link, Link::Down { .. }) {
                self.out.push_back(Output::Close(rank));
            }
        }
        let waited: Vec<u64> = self.calls.iter().filter(|(_, c)| c.done.is_none()).map(|(tid, _)| *tid).collect();
        self.out.extend(waited.into_iter().map(|tid| Output::Done(tid, Err(ENOTCONN))));
        self.calls.clear();
        self.unsent.clear();
        self.unanswered.clear();
        self.forget_volatile();
    }

    /// Submits a request; its number is in [`Output::Done`].
    pub fn submit(&mut self, now: Now, req: Request) -> u64 {
        let tid = self.next_tid;
        self.next_tid += 1;
        self.calls.insert(tid, Call { req, rank: 0, sent: 0, forwards: 0, done: None });
        self.unsent.insert((0, tid));
        *self.unanswered.entry(0).or_default() += 1;
        self.advance(now);
        tid
    }

    /// Asks the daemons to make changes durable now. Returns the number of answers; once [`Output::Durable`] has a
    /// larger one, their changes are durable.
    pub fn sync(&mut self, now: Now) -> u64 {
        self.note_durable();
        if !self.has_volatile() {
            return self.answers;
        }
        for (rank, s) in &mut self.sessions {
            if let (Phase::Open, Link::Up(f)) = (s.phase, s.link) {
                let m = MClientSession {
                    op: session_op::REQUEST_FLUSH_MDLOG,
                    stamp: now.wall,
                    ..MClientSession::default()
                };
                self.out.push_back(Output::Send(*rank, m.to_message(f)));
            }
        }
        self.answers
    }

    /// The connection to a rank is open.
    pub fn handle_open(&mut self, now: Now, rank: i32, features: Features) {
        let Some(s) = self.sessions.get_mut(&rank) else { return };
        s.link = Link::Up(features);
        if s.phase == Phase::Open {
            // The same daemon: it repeats what it answered, and whether it is durable.
            let again = self.calls.iter().filter(|(_, c)| c.rank == rank);
            self.unsent.extend(again.map(|(tid, _)| (rank, *tid)));
        }
        self.advance(now);
    }

    /// The connection to a rank has ended.
    pub fn handle_closed(&mut self, now: Now, rank: i32) {
        let Some(s) = self.sessions.get_mut(&rank) else { return };
        s.link = Link::Down { again: now.mono + RETRY };
        s.release.clear();
        s.phase = match s.phase {
            Phase::Opening | Phase::Closing => Phase::None,
            Phase::Continuing => Phase::Lost,
            p => p,
        };
    }

    /// Renews sessions, closes idle ones, and connects again.
    pub fn tick(&mut self, now: Now) {
        let volatile = self.has_volatile();
        for (rank, s) in &mut self.sessions {
            if volatile || self.unanswered.get(rank).is_some_and(|n| *n > 0) {
                s.used = now.mono;
            }
            let Link::Up(f) = s.link else { continue };
            let mut send = |op, seq| {
                let m = MClientSession { op, seq, stamp: now.wall, ..MClientSession::default() };
                self.out.push_back(Output::Send(*rank, m.to_message(f)));
            };
            match s.phase {
                Phase::Open if now.mono.since(s.used) >= IDLE => {
                    s.phase = Phase::Closing;
                    s.closing = now.mono;
                    send(session_op::REQUEST_CLOSE, s.pushed);
                }
                // The daemon has sent a message that was on its way, so it did not take the number.
                Phase::Closing if now.mono.since(s.closing) >= CLOSE_LIMIT => {
                    s.phase = Phase::Open;
                    s.used = now.mono;
                }
                Phase::Open if now.mono.since(s.renewed) >= RENEW => {
                    s.renewed = now.mono;
                    s.renewals += 1;
                    send(session_op::REQUEST_RENEWCAPS, s.renewals);
                }
                _ => {}
            }
        }
        self.advance(now);
    }

    /// Connects, opens and continues sessions as the map and the requests need, and sends what can be sent.
    fn advance(&mut self, now: Now) {
        for (rank, n) in &self.unanswered {
            let Some(info) = self.ranks.get(rank).filter(|_| *n > 0) else { continue };
            self.sessions.entry(*rank).or_insert(Session {
                gid: info.gid,
                phase: Phase::None,
                link: Link::Down { again: Mono(0) },
                pushed: 0,
                renewals: 0,
                renewed: now.mono,
                used: now.mono,
                closing: now.mono,
                release: Vec::new(),
            });
        }
        let ranks: Vec<i32> = self.sessions.keys().copied().collect();
        for rank in ranks {
            self.advance_rank(now, rank);
        }
    }

    fn advance_rank(&mut self, now: Now, rank: i32) {
        let Some(info) = self.ranks.get(&rank).copied() else { return };
        let waits = self.unanswered.get(&rank).is_some_and(|n| *n > 0);
        let Some(s) = self.sessions.get_mut(&rank) else { return };
        if s.phase == Phase::Lost && info.state > mds_state::RECONNECT {
            // Its time to continue the session has passed. The changes that were not durable may be lost.
            s.phase = Phase::None;
            self.forget_volatile();
        }
        let Some(s) = self.sessions.get_mut(&rank) else { return };
        let serves = matches!(info.state, mds_state::ACTIVE | mds_state::STOPPING);
        let needed = match s.phase {
            Phase::None => waits && serves,
            Phase::Lost => info.state == mds_state::RECONNECT,
            _ => true,
        };
        let features = match s.link {
            Link::Down { again } => {
                if needed && now.mono >= again {
                    s.link = Link::Connecting;
                    self.out.push_back(Output::Connect(rank, info.addr));
                }
                return;
            }
            Link::Connecting => return,
            Link::Up(f) => f,
        };
        match s.phase {
            Phase::None if needed => {
                s.phase = Phase::Opening;
                s.pushed = 0;
                let m = MClientSession {
                    op: session_op::REQUEST_OPEN,
                    stamp: now.wall,
                    metadata: self.metadata.clone(),
                    features: Bytes::copy_from_slice(&FEATURES.to_le_bytes()),
                    ..MClientSession::default()
                };
                self.out.push_back(Output::Send(rank, m.to_message(features)));
            }
            Phase::Lost if needed => {
                s.phase = Phase::Continuing;
                self.replay(now, rank, features);
                self.out.push_back(Output::Send(rank, MClientReconnect::empty().to_message(features)));
            }
            Phase::Open if serves => self.send_calls(now, rank, features),
            _ => {}
        }
    }

    fn oldest(&self) -> u64 {
        self.calls.iter().find(|(_, c)| c.req.writes()).map_or(self.next_tid, |(t, _)| *t)
    }

    /// Sends a request. `replay`: to the successor of the daemon that did it.
    fn send(&mut self, now: Now, rank: i32, tid: u64, replay: bool, features: Features) {
        let oldest = self.oldest();
        let Some(c) = self.calls.get_mut(&tid) else { return };
        let mut m = c.req.m.clone();
        m.oldest_client_tid = oldest;
        m.mdsmap_epoch = self.epoch;
        m.num_retry = c.sent;
        m.num_fwd = c.forwards;
        m.stamp = now.wall;
        if let (true, Some((ino, _))) = (replay, c.done) {
            m.flags = MClientRequest::REPLAY;
            m.ino = ino;
        }
        c.sent = c.sent.saturating_add(1);
        self.out.push_back(Output::Send(rank, m.to_message(features).with_tid(tid)));
    }

    /// Sends the changes of a failed daemon again, in the order of its answers.
    fn replay(&mut self, now: Now, rank: i32, features: Features) {
        let of_rank = self.calls.iter().filter(|(_, c)| c.rank == rank);
        let mut order: Vec<(u64, u64)> = of_rank.filter_map(|(tid, c)| Some((c.done?.1, *tid))).collect();
        order.sort_unstable();
        for (_, tid) in order {
            self.send(now, rank, tid, true, features);
        }
    }

    fn send_calls(&mut self, now: Now, rank: i32, features: Features) {
        while let Some(key) = self.unsent.range((rank, 0)..=(rank, u64::MAX)).next().copied() {
            self.unsent.remove(&key);
            self.send(now, rank, key.1, false, features);
        }
    }

    /// Takes a call out of the books.
    fn take(&mut self, tid: u64) -> Option<Call> {
        let c = self.calls.remove(&tid)?;
        self.unsent.remove(&(c.rank, tid));
        match c.done {
            None => self.count_answered(c.rank),
            Some((_, answer)) => {
                self.volatile.remove(&answer);
            }
        }
        Some(c)
    }

    fn count_answered(&mut self, rank: i32) {
        if let Some(n) = self.unanswered.get_mut(&rank) {
            *n = n.saturating_sub(1);
        }
    }

    fn forget_volatile(&mut self) {
        self.calls.retain(|_, c| c.done.is_none());
        self.volatile.clear();
        self.note_durable();
    }

    /// Ends all requests of a rank with an error.
    fn fail(&mut self, rank: i32, e: Errno) {
        let ended: Vec<u64> = self.calls.iter().filter(|(_, c)| c.rank == rank).map(|(t, _)| *t).collect();
        for tid in ended {
            if let Some(Call { done: None, .. }) = self.take(tid) {
                self.out.push_back(Output::Done(tid, Err(e)));
            }
        }
        self.note_durable();
    }

    fn note_durable(&mut self) {
        let below = self.volatile.keys().next().copied().unwrap_or(self.answers + 1);
        self.out.push_back(Output::Durable(below));
    }

    /// Takes a message of a rank.
    ///
    /// # Errors
    /// A [`wire::DecodeError`] if it is malformed; the connection should be closed.
    pub fn handle_message(&mut self, now: Now, rank: i32, m: &Message) -> Result<(), wire::DecodeError> {
        let Some(s) = self.sessions.get_mut(&rank) else { return Ok(()) };
        if COUNTED.contains(&m.header.kind) {
            s.pushed += 1;
        }
        match m.header.kind {
            MClientSession::KIND => self.session_message(now, rank, &MClientSession::from_message(m)?),
            MClientReply::KIND => self.reply(rank, m.header.tid, &MClientReply::from_message(m)?)?,
            MClientRequestForward::KIND => self.forward(m.header.tid, &MClientRequestForward::from_message(m)?),
            MClientCaps::KIND => {
                let c = MClientCaps::from_message(m)?;
                if c.op == cap_op::IMPORT {
                    s.release.push(Given { ino: c.ino, cap_id: c.cap_id, mseq: c.migrate_seq, seq: c.seq });
                }
            }
            MClientLease::KIND => {
                let mut l = MClientLease::from_message(m)?;
                if let (lease_action::REVOKE, Link::Up(f)) = (l.action, s.link) {
                    l.action = lease_action::REVOKE_ACK;
                    self.out.push_back(Output::Send(rank, l.to_message(f)));
                }
            }
            _ => {}
        }
        self.release(rank);
        self.advance(now);
        Ok(())
    }

    /// Gives back what replies gave.
    fn release(&mut self, rank: i32) {
        let Some(s) = self.sessions.get_mut(&rank) else { return };
        let Link::Up(f) = s.link else { return };
        if s.release.is_empty() {
            return;
        }
        let item = |g: Given| CapItem { ino: g.ino, cap_id: g.cap_id, migrate_seq: g.mseq, seq: g.seq };
        let m = MClientCapRelease { caps: s.release.drain(..).map(item).collect(), ..MClientCapRelease::default() };
        self.out.push_back(Output::Send(rank, m.to_message(f)));
    }

    fn session_message(&mut self, now: Now, rank: i32, m: &MClientSession) {
        let Some(s) = self.sessions.get_mut(&rank) else { return };
        match m.op {
            session_op::OPEN if matches!(s.phase, Phase::Opening | Phase::Continuing) => {
                s.phase = Phase::Open;
                (s.renewed, s.used) = (now.mono, now.mono);
            }
            session_op::CLOSE => {
                let asked = s.phase == Phase::Closing;
                s.phase = Phase::None;
                s.link = Link::Down { again: now.mono };
                self.out.push_back(Output::Close(rank));
                if !asked {
                    // Evicted, or too late to continue. Whether requests on their way were done is not known.
                    self.fail(rank, ENOTCONN);
                }
            }
            session_op::REJECT => {
                s.phase = Phase::None;
                s.link = Link::Down { again: now.mono + RETRY };
                self.out.push_back(Output::Close(rank));
                self.fail(rank, EBLOCKLISTED);
            }
            session_op::STALE => s.renewed = Mono(0),
            session_op::FLUSHMSG => {
                if let Link::Up(f) = s.link {
                    let m = MClientSession { op: session_op::FLUSHMSG_ACK, seq: m.seq, ..MClientSession::default() };
                    self.out.push_back(Output::Send(rank, m.to_message(f)));
                }
            }
            _ => {}
        }
    }

    fn reply(&mut self, rank: i32, tid: u64, m: &MClientReply) -> Result<(), wire::DecodeError> {
        let Some(c) = self.calls.get_mut(&tid) else { return Ok(()) };
        let (answer, caps) = Answer::of(c.req.op(), m)?;
        if let Some(s) = self.sessions.get_mut(&rank) {
            s.release.extend(caps);
        }
        if c.done.is_none() {
            let r = if m.result < 0 { Err(m.result) } else { Ok(Box::new(answer)) };
            let ino = r.as_ref().ok().and_then(|a| a.target.as_ref()).map_or(0, |t| t.ino);
            self.answers += 1;
            c.done = Some((ino, self.answers));
            let at = c.rank;
            self.volatile.insert(self.answers, tid);
            self.count_answered(at);
            self.out.push_back(Output::Done(tid, r));
        }
        if m.safe {
            self.take(tid);
            self.note_durable();
        }
        Ok(())
    }

    fn forward(&mut self, tid: u64, m: &MClientRequestForward) {
        let Some(c) = self.calls.get_mut(&tid) else { return };
        let times = u8::try_from(m.num_fwd).unwrap_or(u8::MAX);
        if times <= c.forwards || c.done.is_some() {
            return;
        }
        c.forwards = times;
        if !(0..RANKS_MAX).contains(&m.dest_mds) || times == u8::MAX {
            self.take(tid);
            self.out.push_back(Output::Done(tid, Err(EIO)));
            return;
        }
        let before = std::mem::replace(&mut c.rank, m.dest_mds);
        self.unsent.remove(&(before, tid));
        self.count_answered(before);
        *self.unanswered.entry(m.dest_mds).or_default() += 1;
        if m.must_resend {
            self.unsent.insert((m.dest_mds, tid));
        }
    }
}
