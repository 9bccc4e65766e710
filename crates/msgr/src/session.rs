//! Session state that survives a socket (sequence numbers, cookies, unacknowledged messages), and the decision about a
//! peer that connects while a session with it exists.
//!
//! OSDs keep lossless sessions with each other (`Policy::lossless_peer`): what a broken socket lost is written again
//! (`resend`).
//!
//! Invariants:
//!  1. In a lossless session every message stays in `queue` (unnumbered) or in `sent` (numbered) until the peer
//!     acknowledges it, in order.
//!  2. Sequence numbers only grow within a session. A message at or below `in_seq` was delivered already and is dropped.
//!
//! Tests: `tests/do_lossless_sessions_lose_nothing.rs` (`random_breaks_lose_and_repeat_nothing`).

use crate::policy::{UNACKED_BYTES_MAX, UNACKED_MAX};
use base::{AddrVec, EntityAddr};
use std::collections::VecDeque;
use wire::Message;

/// State of a session.
#[derive(Debug, Default)]
pub(crate) struct Session {
    client_cookie: u64,
    /// 0 before the server has accepted the session, and in a lossy one.
    server_cookie: u64,
    connect_seq: u64,
    peer_global_seq: u64,
    in_seq: u64,
    in_acked: u64,
    /// Bytes of messages received since the last acknowledgement.
    unacked_bytes: usize,
    out_seq: u64,
    sent: VecDeque<(u64, Message)>,
    /// Messages at the end of `sent` that are not yet written to the present socket.
    again: usize,
    queue: VecDeque<Message>,
    /// Bytes of the messages in both queues.
    bytes: usize,
    /// Whether the session was open before; the host gets `Open` only once.
    opened: bool,
}

/// The names and numbers by which a client resumes a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resumption {
    pub(crate) client_cookie: u64,
    pub(crate) server_cookie: u64,
    pub(crate) connect_seq: u64,
    pub(crate) msg_seq: u64,
}

impl Session {
    /// A client's session that no server has accepted yet.
    pub(crate) fn with_cookie(client_cookie: u64) -> Self {
        Self { client_cookie, ..Self::default() }
    }

    pub(crate) fn client_cookie(&self) -> u64 {
        self.client_cookie
    }

    pub(crate) fn server_cookie(&self) -> u64 {
        self.server_cookie
    }

    /// Bytes of the messages that the peer has not acknowledged, or that were not sent yet.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The state for [`decide`].
    pub(crate) fn view(&self, lossy: bool, initiator: bool) -> SessionView {
        SessionView {
            lossy,
            initiator,
            opened: self.opened,
            client_cookie: self.client_cookie,
            server_cookie: self.server_cookie,
            peer_global_seq: self.peer_global_seq,
            connect_seq: self.connect_seq,
        }
    }

    // ---- handshakes ----

    /// Client: the next attempt to resume the session, or `None` if no server has accepted it.
    pub(crate) fn resumes(&mut self) -> Option<Resumption> {
        if self.server_cookie == 0 {
            return None;
        }
        self.connect_seq += 1;
        Some(Resumption {
            client_cookie: self.client_cookie,
            server_cookie: self.server_cookie,
            connect_seq: self.connect_seq,
            msg_seq: self.in_seq,
        })
    }

    /// Client: the server counts other connections of this session, and the next attempt goes on from there.
    pub(crate) fn retry(&mut self, connect_seq: u64) {
        self.connect_seq = connect_seq;
    }

    /// Client: the server has accepted a new session.
    pub(crate) fn begins_at(&mut self, peer_global_seq: u64, server_cookie: u64) {
        self.peer_global_seq = peer_global_seq;
        self.accept(server_cookie);
    }

    /// Server: a client asks for a new session.
    pub(crate) fn is_asked_for(&mut self, peer_global_seq: u64, client_cookie: u64) {
        self.peer_global_seq = peer_global_seq;
        self.client_cookie = client_cookie;
    }

    /// The session is a new one, which has this cookie at the server.
    pub(crate) fn accept(&mut self, server_cookie: u64) {
        self.server_cookie = server_cookie;
        self.connect_seq = 0;
    }

    /// Server: a client resumes the session. Returns the number of the last message that arrived here.
    pub(crate) fn continues(&mut self, peer_global_seq: u64, connect_seq: u64) -> u64 {
        self.peer_global_seq = peer_global_seq;
        self.connect_seq = connect_seq;
        self.in_seq
    }

    /// Notes that the session is open; true if it was before.
    pub(crate) fn opens(&mut self) -> bool {
        std::mem::replace(&mut self.opened, true)
    }

    // ---- input ----

    /// Notes the arrival of a message with `bytes` of payload to acknowledge. False if it had arrived before.
    pub(crate) fn receives(&mut self, seq: u64, bytes: usize) -> bool {
        if seq <= self.in_seq {
            return false;
        }
        self.in_seq = seq;
        self.unacked_bytes += bytes;
        true
    }

    /// True if messages have arrived that are not acknowledged.
    pub(crate) fn owes_ack(&self) -> bool {
        self.in_seq > self.in_acked
    }

    /// True if the peer holds many messages for an acknowledgement.
    pub(crate) fn owes_much(&self) -> bool {
        self.in_seq.saturating_sub(self.in_acked) >= UNACKED_MAX || self.unacked_bytes >= UNACKED_BYTES_MAX
    }

    // ---- output ----

    /// True if messages wait, so that a new one has to wait behind them.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.queue.is_empty() || self.again > 0
    }

    /// The next message that has no number yet.
    pub(crate) fn next_queued(&mut self) -> Option<Message> {
        let m = self.queue.pop_front()?;
        self.bytes = self.bytes.saturating_sub(m.cost());
        Some(m)
    }

    /// The number of the next message.
    pub(crate) fn next_seq(&mut self) -> u64 {
        self.out_seq += 1;
        self.out_seq
    }

    /// Keeps a numbered message until the peer acknowledges it.
    pub(crate) fn keep(&mut self, seq: u64, m: Message) {
        self.bytes += m.cost();
        self.sent.push_back((seq, m));
    }

    /// All unacknowledged messages are to be written to a new socket.
    pub(crate) fn resend(&mut self) {
        self.again = self.sent.len();
    }

    pub(crate) fn enqueue(&mut self, m: Message) {
        self.bytes += m.cost();
        self.queue.push_back(m);
    }

    /// Returns the sequence number to acknowledge, and counts all received messages as acknowledged.
    pub(crate) fn acknowledge(&mut self) -> u64 {
        self.in_acked = self.in_seq;
        self.unacked_bytes = 0;
        self.in_seq
    }

    /// Drops the messages that the peer has acknowledged, up to `seq`.
    pub(crate) fn acked(&mut self, seq: u64) {
        while let Some((s, m)) = self.sent.front() {
            if *s > seq {
                break;
            }
            self.bytes = self.bytes.saturating_sub(m.cost());
            self.sent.pop_front();
        }
        self.again = self.again.min(self.sent.len());
    }

    /// The next message to write again, to a new socket.
    pub(crate) fn next_again(&mut self) -> Option<(u64, Message)> {
        let at = self.sent.len().checked_sub(self.again)?;
        let next = self.sent.get(at).cloned();
        self.again = self.again.saturating_sub(1);
        next
    }

    /// The peer lost the session but our queue is kept: all unacknowledged messages are resent with new numbers.
    pub(crate) fn renumber(&mut self) {
        while let Some((_, m)) = self.sent.pop_back() {
            self.queue.push_front(m);
        }
        self.again = 0;
        self.out_seq = 0;
        self.in_seq = 0;
        self.in_acked = 0;
        self.unacked_bytes = 0;
        self.connect_seq = 0;
        self.server_cookie = 0;
    }
}

/// Request of a peer to open or resume a lossless session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whether the peer resumes (SESSION_RECONNECT) rather than opens (CLIENT_IDENT).
    pub reconnect: bool,
    /// Addresses of the peer.
    pub addrs: AddrVec,
    /// Client cookie.
    pub client_cookie: u64,
    /// Server cookie, as the peer knows it.
    pub server_cookie: u64,
    /// Global sequence number: the peer's connection attempts so far.
    pub global_seq: u64,
    /// Connections of this session so far.
    pub connect_seq: u64,
    /// Sequence number of the last message that the peer received.
    pub msg_seq: u64,
}

impl Request {
    /// Address that identifies the peer in the session table.
    #[must_use]
    pub fn key(&self) -> EntityAddr {
        session_key(&self.addrs)
    }
}

/// The address that identifies a peer: its first msgr2 address, else its first address.
#[must_use]
pub fn session_key(addrs: &AddrVec) -> EntityAddr {
    addrs.msgr2().or_else(|| addrs.0.first()).copied().unwrap_or_default()
}

/// State of an existing session, for [`decide`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// Whether the session is lossy.
    pub lossy: bool,
    /// Whether this side connected.
    pub initiator: bool,
    /// Whether the session was open at least once.
    pub opened: bool,
    /// Client cookie.
    pub client_cookie: u64,
    /// Server cookie; 0 if the session was never opened.
    pub server_cookie: u64,
    /// The peer's global sequence number when this session was last connected.
    pub peer_global_seq: u64,
    /// Connections of this session so far.
    pub connect_seq: u64,
}

/// Decision about a [`Request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Open a new session; there is no other with this peer.
    Fresh,
    /// Open a new session and drop the existing one, which the peer lost or which was lossy.
    Replace,
    /// Resume the existing session over the new connection.
    Adopt,
    /// Tell the peer that its session is unknown; with `true` it also drops its queues.
    Reset(bool),
    /// Tell the peer our connection sequence number.
    Retry(u64),
    /// Tell the peer our record of its global sequence number.
    RetryGlobal(u64),
    /// Tell the peer to wait for the connection that we are opening.
    Wait,
    /// Close the connection: it is an older attempt than the current one.
    Stale,
}

/// Decides about a connecting peer. `server_policy`: such peers connect to us and never the reverse. `ours` is our
/// session key.
#[must_use]
pub fn decide(
    req: &Request,
    existing: Option<SessionView>,
    reset_check: bool,
    server_policy: bool,
    ours: EntityAddr,
) -> Verdict {
    let Some(e) = existing else {
        return if req.reconnect { Verdict::Reset(reset_check) } else { Verdict::Fresh };
    };
    // When two peers connect to each other at once, both pick the same winner by comparing addresses.
    let incoming_wins = server_policy || req.key() < ours;
    if req.reconnect {
        if e.client_cookie != req.client_cookie {
            return Verdict::Reset(reset_check);
        }
        if e.server_cookie == 0 {
            return Verdict::Reset(false);
        }
        if e.peer_global_seq > req.global_seq {
            return Verdict::RetryGlobal(e.peer_global_seq);
        }
        if e.connect_seq > req.connect_seq {
            return Verdict::Retry(e.connect_seq);
        }
        if e.server_cookie != req.server_cookie {
            return Verdict::Reset(reset_check);
        }
        return Verdict::Adopt;
    }
    if e.peer_global_seq > req.global_seq {
        return Verdict::Stale;
    }
    if e.lossy {
        return Verdict::Replace;
    }
    match (e.initiator, e.opened) {
        // The server's answer to the client's ident got lost.
        (false, _) if e.client_cookie == req.client_cookie => Verdict::Adopt,
        (false, _) => Verdict::Replace,
        (true, true) => Verdict::Replace,
        (true, false) if incoming_wins => Verdict::Adopt,
        (true, false) => Verdict::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::EntityAddr;

    fn addr(port: u16) -> EntityAddr {
        EntityAddr::msgr2(([127, 0, 0, 1], port).into(), 7)
    }

    fn ident(port: u16) -> Request {
        Request {
            reconnect: false,
            addrs: addr(port).into(),
            client_cookie: 11,
            server_cookie: 0,
            global_seq: 5,
            connect_seq: 0,
            msg_seq: 0,
        }
    }

    fn known() -> SessionView {
        SessionView {
            lossy: false,
            initiator: false,
            opened: true,
            client_cookie: 11,
            server_cookie: 22,
            peer_global_seq: 5,
            connect_seq: 3,
        }
    }

    #[test]
    fn every_case_of_the_design_documents_table() {
        let d = |r: &Request, e: Option<SessionView>| decide(r, e, true, false, addr(100));
        let i = ident(1);
        assert_eq!(d(&i, None), Verdict::Fresh);
        assert_eq!(d(&i, Some(SessionView { peer_global_seq: 6, ..known() })), Verdict::Stale);
        assert_eq!(d(&i, Some(SessionView { lossy: true, ..known() })), Verdict::Replace);
        assert_eq!(d(&i, Some(SessionView { client_cookie: 9, ..known() })), Verdict::Replace);
        assert_eq!(d(&i, Some(known())), Verdict::Adopt);
        let racing = SessionView { initiator: true, opened: false, ..known() };
        assert_eq!(d(&ident(1), Some(racing)), Verdict::Adopt, "smaller address wins");
        assert_eq!(d(&ident(200), Some(racing)), Verdict::Wait);
        assert_eq!(d(&ident(200), Some(SessionView { opened: true, ..racing })), Verdict::Replace);

        let r = Request { reconnect: true, server_cookie: 22, connect_seq: 4, ..i };
        assert_eq!(d(&r, None), Verdict::Reset(true));
        assert_eq!(d(&r, Some(known())), Verdict::Adopt);
        assert_eq!(d(&r, Some(SessionView { client_cookie: 9, ..known() })), Verdict::Reset(true));
        assert_eq!(d(&r, Some(SessionView { server_cookie: 0, ..known() })), Verdict::Reset(false));
        assert_eq!(d(&r, Some(SessionView { server_cookie: 9, ..known() })), Verdict::Reset(true));
        assert_eq!(d(&r, Some(SessionView { peer_global_seq: 8, ..known() })), Verdict::RetryGlobal(8));
        assert_eq!(d(&r, Some(SessionView { connect_seq: 7, ..known() })), Verdict::Retry(7));
    }
}
