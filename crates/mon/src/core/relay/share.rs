//! Shares one connection between the messages of many sessions, in turn.
//!
//! Bytes are in flight from when they are given to the connection until the other side acknowledges them.
//!
//! Invariants:
//!  1. No session has more than [`ONE`] bytes in flight, and all together have at most [`ALL`], except for a single
//!     larger message.
//!  2. Waiting messages are sent round-robin, one of each session that may send, and in order within a session.
//!
//! Tests: assertions (1), `src/core/relay/tests.rs` (1, `a_share_never_has_more_under_way_than_it_may`; 2,
//! `sessions_share_a_link`).

use std::collections::{BTreeMap, VecDeque};

use wire::Message;

/// Most bytes of one session in flight.
pub(super) const ONE: usize = 2 << 20;
/// Most bytes of all sessions in flight.
pub(super) const ALL: usize = 32 << 20;

#[derive(Default)]
struct Lane {
    under_way: usize,
    queue: VecDeque<Message>,
    queued: usize,
    /// True if the session is in the row of those that may send.
    in_row: bool,
    /// True if the session is over, but some of its bytes are still in flight.
    gone: bool,
}

/// One direction of a connection.
pub(super) struct Share {
    /// True if the other side acknowledges bytes. If not, no message waits.
    limited: bool,
    lanes: BTreeMap<u64, Lane>,
    row: VecDeque<u64>,
    under_way: usize,
}

impl Share {
    pub(super) fn new(limited: bool) -> Self {
        Self { limited, lanes: BTreeMap::new(), row: VecDeque::new(), under_way: 0 }
    }

    /// Sets whether the other side acknowledges bytes.
    pub(super) fn limit(&mut self, limited: bool) {
        if self.limited && !limited {
            self.under_way = 0;
            self.lanes.values_mut().for_each(|l| l.under_way = 0);
            self.lanes.retain(|_, l| !l.gone);
            let waiting: Vec<u64> = self.lanes.iter().filter(|(_, l)| !l.queue.is_empty()).map(|(c, _)| *c).collect();
            waiting.into_iter().for_each(|c| self.stand(c));
        }
        self.limited = limited;
    }

    pub(super) fn is_limited(&self) -> bool {
        self.limited
    }

    fn stand(&mut self, conn: u64) {
        if let Some(l) = self.lanes.get_mut(&conn)
            && !l.in_row
            && !l.queue.is_empty()
        {
            l.in_row = true;
            self.row.push_back(conn);
        }
    }

    /// Queues a message, and returns the session's waiting bytes.
    pub(super) fn push(&mut self, conn: u64, m: Message) -> usize {
        let l = self.lanes.entry(conn).or_default();
        l.queued += m.cost();
        l.queue.push_back(m);
        let queued = l.queued;
        self.stand(conn);
        queued
    }

    /// Bytes of a session that wait.
    pub(super) fn queued(&self, conn: u64) -> usize {
        self.lanes.get(&conn).map_or(0, |l| l.queued)
    }

    /// Takes the next message to send.
    pub(super) fn next(&mut self) -> Option<(u64, Message)> {
        while let Some(conn) = self.row.front().copied() {
            let Some(l) = self.lanes.get_mut(&conn) else {
                self.row.pop_front();
                continue;
            };
            let Some(cost) = l.queue.front().map(Message::cost) else {
                l.in_row = false;
                self.row.pop_front();
                continue;
            };
            if self.limited && self.under_way > 0 && self.under_way + cost > ALL {
                return None;
            }
            self.row.pop_front();
            l.in_row = false;
            if self.limited && l.under_way > 0 && l.under_way + cost > ONE {
                // The session rejoins the row once some of its bytes are acknowledged.
                continue;
            }
            let m = l.queue.pop_front()?;
            l.queued -= cost;
            if self.limited {
                l.under_way += cost;
                self.under_way += cost;
                debug_assert!(l.under_way <= ONE || l.under_way == cost, "a session has its share in flight");
                debug_assert!(self.under_way <= ALL || self.under_way == cost, "all sessions have the link's share");
            }
            self.stand(conn);
            return Some((conn, m));
        }
        None
    }

    /// Handles an acknowledgement of `bytes` of a session, and returns the bytes that were really in flight.
    pub(super) fn taken(&mut self, conn: u64, bytes: u64) -> usize {
        let Some(l) = self.lanes.get_mut(&conn) else { return 0 };
        let n = usize::try_from(bytes).unwrap_or(usize::MAX).min(l.under_way);
        l.under_way -= n;
        self.under_way -= n;
        if l.gone && l.under_way == 0 {
            self.lanes.remove(&conn);
        } else {
            self.stand(conn);
        }
        n
    }

    /// Ends a session and drops its waiting messages.
    pub(super) fn forget(&mut self, conn: u64) {
        if let Some(l) = self.lanes.get_mut(&conn) {
            l.queue.clear();
            l.queued = 0;
            l.gone = true;
            if l.under_way == 0 {
                self.lanes.remove(&conn);
            }
        }
    }

    /// Bytes in flight, by session.
    pub(super) fn under_way_by_session(&self) -> Vec<(u64, usize)> {
        self.lanes.iter().filter(|(_, l)| l.under_way > 0).map(|(c, l)| (*c, l.under_way)).collect()
    }

    /// Bytes in flight.
    #[cfg(test)]
    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }
}
