//! The buffer into which sockets are read, shared by all connections of a reactor. What was received is split off and
//! belongs to its messages; the rest of the buffer receives more.
//!
//! Buffers are used again, since fresh memory costs a page fault per 4 KiB: as much CPU as receiving into it.
//!
//! Invariants:
//!  1. At most [`SPENT_MAX`] buffers wait for their messages to end.
//!  2. A buffer is used again only when nothing refers to its former contents.
//!
//! Tests: below.

use bytes::BytesMut;
use std::collections::VecDeque;

/// Bytes of a new buffer. It is replaced when less than [`READ_MIN`] of it is free.
const READ_BUF: usize = 256 * 1024;
const READ_MIN: usize = 32 * 1024;
/// Most buffers that are kept while messages refer to them.
const SPENT_MAX: usize = 8;

/// The shared buffer; see the module.
#[derive(Debug, Default)]
pub(crate) struct ReadBuf {
    now: BytesMut,
    /// Buffers without room, in the order in which they were filled.
    spent: VecDeque<BytesMut>,
}

impl ReadBuf {
    /// The buffer, empty, with room for `pending` bytes and a read.
    pub(super) fn with_room(&mut self, pending: usize) -> &mut BytesMut {
        self.now.clear();
        if self.now.capacity() < pending + READ_MIN {
            self.renew(pending + READ_BUF);
        }
        &mut self.now
    }

    fn renew(&mut self, bytes: usize) {
        if self.now.try_reclaim(bytes) {
            return;
        }
        // Of the buffers that are free, the one filled last is most likely in the CPU cache.
        let free = self.spent.iter_mut().rposition(|b| b.try_reclaim(bytes));
        let next = free.and_then(|i| self.spent.remove(i)).unwrap_or_else(|| BytesMut::with_capacity(bytes));
        if self.spent.len() == SPENT_MAX {
            self.spent.pop_front();
        }
        self.spent.push_back(std::mem::replace(&mut self.now, next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    /// Receives `n` bytes and returns them as a message would hold them.
    fn receive(b: &mut ReadBuf, n: usize) -> Bytes {
        let now = b.with_room(0);
        now.resize(n, 7);
        now.split().freeze()
    }

    #[test]
    fn buffers_are_used_again_when_their_messages_have_ended() {
        let mut b = ReadBuf::default();
        let mut places = std::collections::BTreeSet::new();
        let mut held = VecDeque::new();
        for i in 0..10_000 {
            let m = receive(&mut b, 20_000);
            places.insert(m.as_ptr() as usize);
            held.push_back(m);
            if i >= 40 {
                held.pop_front();
            }
        }
        // 40 messages of 20 kB are in four buffers, and each has twelve places.
        assert!(places.len() <= 6 * 13, "{}", places.len());
    }

    #[test]
    fn bytes_of_a_message_are_not_overwritten() {
        let mut b = ReadBuf::default();
        let old: Vec<Bytes> = (0..100u8)
            .map(|i| {
                let now = b.with_room(usize::from(i));
                now.resize(30_000, i);
                now.split().freeze()
            })
            .collect();
        assert!(old.iter().zip(0u8..).all(|(m, i)| m.iter().all(|x| *x == i)));
        assert!(b.spent.len() <= SPENT_MAX);
    }
}
