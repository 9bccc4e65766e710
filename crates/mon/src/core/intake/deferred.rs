//! Messages that wait for a commit, bounded in number and bytes. Each session has a share. A session that exceeds its
//! share is closed, and other sessions' messages stay.

use std::collections::{BTreeMap, VecDeque};

use wire::Message;

use crate::state::ConnKey;

/// Most waiting messages of one session.
pub(super) const SESSION_MESSAGES: usize = 4096;
/// Most waiting bytes of one session; a single larger message waits alone.
pub(super) const SESSION_BYTES: usize = 16 << 20;
/// Most waiting bytes of all sessions.
pub(super) const ALL_BYTES: usize = 256 << 20;

/// The queue of waiting messages.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    queue: VecDeque<(ConnKey, Message)>,
    /// Number and bytes of waiting messages by session.
    of_session: BTreeMap<ConnKey, (usize, usize)>,
    bytes: usize,
}

impl Deferred {
    /// Adds a message. Returns a session that exceeds its share, or the largest one if all together exceed the bound;
    /// the caller closes it.
    pub(super) fn push(&mut self, c: ConnKey, m: Message) -> Option<ConnKey> {
        let cost = m.cost();
        let (n, bytes) = self.of_session.get(&c).copied().unwrap_or_default();
        if n >= SESSION_MESSAGES || (n > 0 && bytes + cost > SESSION_BYTES) {
            return Some(c);
        }
        self.of_session.insert(c, (n + 1, bytes + cost));
        self.bytes += cost;
        self.queue.push_back((c, m));
        if self.bytes <= ALL_BYTES {
            return None;
        }
        self.of_session.iter().max_by_key(|(_, (_, bytes))| *bytes).map(|(c, _)| *c)
    }

    /// Drops the waiting messages of a session.
    pub(super) fn forget(&mut self, c: ConnKey) {
        if let Some((_, bytes)) = self.of_session.remove(&c) {
            self.bytes -= bytes;
            self.queue.retain(|(d, _)| *d != c);
        }
    }

    /// Takes the oldest message.
    pub(super) fn pop(&mut self) -> Option<(ConnKey, Message)> {
        let (c, m) = self.queue.pop_front()?;
        let cost = m.cost();
        self.bytes -= cost;
        if let Some((n, bytes)) = self.of_session.get_mut(&c) {
            *n -= 1;
            *bytes -= cost;
            if *n == 0 {
                self.of_session.remove(&c);
            }
        }
        Some((c, m))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Number and bytes of waiting messages.
    pub(super) fn waiting(&self) -> (usize, usize) {
        (self.queue.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use wire::{Features, WireMessage};

    fn message(len: usize) -> Message {
        let mut m = wire::msg::MPing::with_text("").to_message(Features::PACIFIC);
        m.data = Bytes::from(vec![0; len]);
        m
    }

    #[test]
    fn a_session_over_its_share_is_closed_and_others_stay() {
        let mut d = Deferred::default();
        assert_eq!(d.push(1, message(10)), None);
        for _ in 0..SESSION_MESSAGES {
            assert_eq!(d.push(2, message(10)), None);
        }
        assert_eq!(d.push(2, message(10)), Some(2));
        d.forget(2);
        assert_eq!(std::iter::from_fn(|| d.pop()).map(|(c, _)| c).collect::<Vec<_>>(), [1]);
        assert_eq!(d.waiting(), (0, 0));
        assert_eq!(d.push(3, message(SESSION_BYTES * 2)), None, "a single message of any size");
        assert_eq!(d.push(3, message(1)), Some(3));
    }

    #[test]
    fn the_total_is_bounded_and_the_largest_session_is_closed() {
        let mut d = Deferred::default();
        assert_eq!(d.push(0, message(SESSION_BYTES - 64)), None);
        let mut c = 1;
        let full = loop {
            match d.push(c, message(SESSION_BYTES - 1000)) {
                None => c += 1,
                Some(c) => break c,
            }
        };
        assert_eq!(full, 0);
        d.forget(full);
        assert!(d.waiting().1 <= ALL_BYTES);
    }
}
