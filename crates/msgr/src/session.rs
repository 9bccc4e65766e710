//! What survives a socket: sequence numbers, cookies and messages not yet acknowledged; and the rule that decides what
//! happens when a peer connects while a session with it exists.
//!
//! Invariants:
//!  1. In a lossless session every message is in `queue` (no number yet) or in `sent` (numbered, not acknowledged), in
//!     order, until the peer acknowledges it.
//!  2. Numbers of one direction only grow within a session; a message at or below `in_seq` was delivered and is dropped.

use base::{AddrVec, EntityAddr};
use std::collections::VecDeque;
use wire::Message;

/// Session state.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) client_cookie: u64,
    pub(crate) server_cookie: u64,
    pub(crate) connect_seq: u64,
    pub(crate) global_seq: u64,
    pub(crate) peer_global_seq: u64,
    pub(crate) in_seq: u64,
    pub(crate) in_acked: u64,
    /// Bytes of messages received since then.
    pub(crate) unacked_bytes: usize,
    pub(crate) out_seq: u64,
    pub(crate) sent: VecDeque<(u64, Message)>,
    pub(crate) queue: VecDeque<Message>,
    /// Bytes of both queues.
    pub(crate) bytes: usize,
    /// True once the session was open: `Open` is told to the host only once.
    pub(crate) opened: bool,
}

impl Session {
    pub(crate) fn enqueue(&mut self, m: Message) {
        self.bytes += m.cost();
        self.queue.push_back(m);
    }

    /// What was received is acknowledged by what is sent now: its number.
    pub(crate) fn acknowledge(&mut self) -> u64 {
        self.in_acked = self.in_seq;
        self.unacked_bytes = 0;
        self.in_seq
    }

    /// The peer has everything up to `seq`.
    pub(crate) fn acked(&mut self, seq: u64) {
        while let Some((s, m)) = self.sent.front() {
            if *s > seq {
                break;
            }
            self.bytes = self.bytes.saturating_sub(m.cost());
            self.sent.pop_front();
        }
    }

    /// The peer forgot the session but we keep what it may lack: everything unacknowledged is sent anew with new numbers.
    pub(crate) fn renumber(&mut self) {
        while let Some((_, m)) = self.sent.pop_back() {
            self.queue.push_front(m);
        }
        self.out_seq = 0;
        self.in_seq = 0;
        self.in_acked = 0;
        self.unacked_bytes = 0;
        self.connect_seq = 0;
        self.server_cookie = 0;
    }
}

/// A peer's wish to open or continue a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// It continues (SESSION_RECONNECT) rather than opens (CLIENT_IDENT).
    pub reconnect: bool,
    /// Its addresses.
    pub addrs: AddrVec,
    /// Its cookie.
    pub client_cookie: u64,
    /// The cookie it knows of us.
    pub server_cookie: u64,
    /// Its connection attempts so far.
    pub global_seq: u64,
    /// Connections of this session so far.
    pub connect_seq: u64,
    /// Last message it received.
    pub msg_seq: u64,
}

impl Request {
    /// Address that names the peer in a table of sessions.
    #[must_use]
    pub fn key(&self) -> EntityAddr {
        session_key(&self.addrs)
    }
}

/// The address that names a peer: its msgr2 one, else its first.
#[must_use]
pub fn session_key(addrs: &AddrVec) -> EntityAddr {
    addrs.msgr2().or_else(|| addrs.0.first()).copied().unwrap_or_default()
}

/// What [`decide`] needs to know of an existing session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// Nothing of it survives its socket.
    pub lossy: bool,
    /// We dialled.
    pub initiator: bool,
    /// It was open at least once.
    pub opened: bool,
    /// Client's cookie.
    pub client_cookie: u64,
    /// Server's cookie, 0 if never settled.
    pub server_cookie: u64,
    /// Peer's connection attempts when this session was last connected.
    pub peer_global_seq: u64,
    /// Connections of the session.
    pub connect_seq: u64,
}

/// What to do about a [`Request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A new session; nothing of the peer exists here.
    Fresh,
    /// A new session; the existing one is over, because the peer forgot it (or it was lossy).
    Replace,
    /// The existing session goes on over the new connection.
    Adopt,
    /// Tell the peer that its session is unknown; with `true` it drops its queues too.
    Reset(bool),
    /// Tell the peer the number of connections we know of.
    Retry(u64),
    /// Tell the peer the number of attempts we know of.
    RetryGlobal(u64),
    /// Tell the peer to wait for the connection we are opening.
    Wait,
    /// An old attempt that was overtaken: close it.
    Stale,
}

/// Decides about a peer that connects. `server_policy`: such peers only ever connect to us. `ours` is our own session key.
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
    // Two peers that dial each other at once: both sides pick the same winner by comparing addresses.
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
        // Its earlier ident got lost on the way back.
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
    fn every_case_of_the_table() {
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
