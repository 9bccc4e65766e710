//! What many sessions send over one connection, in turn.
//!
//! Bytes are under way from when they are given to the connection until the other side says that it has taken them.
//!
//! Invariants:
//!  1. No session has more than [`ONE`] bytes under way, and all together no more than [`ALL`], but for one message that is
//!     larger than that.
//!  2. What waits goes out in turn, one message of each session that may send; within a session in order.

use std::collections::{BTreeMap, VecDeque};

use wire::Message;

/// Bytes of one session that may be under way.
pub(super) const ONE: usize = 2 << 20;
/// Bytes of all sessions that may be under way.
pub(super) const ALL: usize = 32 << 20;

#[derive(Default)]
struct Lane {
    under_way: usize,
    queue: VecDeque<Message>,
    queued: usize,
    /// It stands in the row of those that may send.
    in_row: bool,
    /// The session is over; what is under way still counts.
    gone: bool,
}

/// One direction of a connection.
pub(super) struct Share {
    /// Whether the other side says what it has taken. If not, nothing waits.
    limited: bool,
    lanes: BTreeMap<u64, Lane>,
    row: VecDeque<u64>,
    under_way: usize,
}

impl Share {
    pub(super) fn new(limited: bool) -> Self {
        Self { limited, lanes: BTreeMap::new(), row: VecDeque::new(), under_way: 0 }
    }

    /// What the other side does became known.
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

    /// Adds a message; gives the bytes of the session that wait now.
    pub(super) fn push(&mut self, conn: u64, m: Message) -> usize {
        let l = self.lanes.entry(conn).or_default();
        l.queued += m.cost();
        l.queue.push_back(m);
        let queued = l.queued;
        self.stand(conn);
        queued
    }

    /// The next message to send.
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
                // It stands again once something of it was taken.
                continue;
            }
            let m = l.queue.pop_front()?;
            l.queued -= cost;
            if self.limited {
                l.under_way += cost;
                self.under_way += cost;
            }
            self.stand(conn);
            return Some((conn, m));
        }
        None
    }

    /// The other side has taken so much of a session.
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

    /// The session is over.
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

    /// Bytes under way, by session.
    pub(super) fn under_way_by_session(&self) -> Vec<(u64, usize)> {
        self.lanes.iter().filter(|(_, l)| l.under_way > 0).map(|(c, l)| (*c, l.under_way)).collect()
    }

    /// Bytes under way.
    #[cfg(test)]
    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }
}
