//! Session state that survives a socket (sequence numbers, cookies, unacknowledged messages), and the decision about a
//! peer that connects while a session with it exists.
//!
//! Invariants:
//!  1. In a lossless session every message stays in `queue` (unnumbered) or in `sent` (numbered) until the peer
//!     acknowledges it, in order.
//!  2. Sequence numbers only grow within a session. A message at or below `in_seq` was delivered already and is dropped.
//!
//! Tests: `tests/do_lossless_sessions_lose_nothing.rs` (`random_breaks_lose_and_repeat_nothing`).

use base::{AddrVec, EntityAddr};
use std::collections::VecDeque;
use wire::Message;

/// State of a session.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) client_cookie: u64,
    pub(crate) server_cookie: u64,
    pub(crate) connect_seq: u64,
    pub(crate) global_seq: u64,
    pub(crate) peer_global_seq: u64,
    pub(crate) in_seq: u64,
    pub(crate) in_acked: u64,
    /// Bytes of messages received since the last acknowledgement.
    pub(crate) unacked_bytes: usize,
    pub(crate) out_seq: u64,
    pub(crate) sent: VecDeque<(u64, Message)>,
    /// Messages at the end of `sent` that are not yet written to the present socket.
    pub(crate) again: usize,
    pub(crate) queue: VecDeque<Message>,
    /// Bytes of the messages in both queues.
    pub(crate) bytes: usize,
    /// Whether the session was open before; the host gets `Open` only once.
    pub(crate) opened: bool,
}

impl Session {
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
