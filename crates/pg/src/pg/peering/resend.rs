//! Unacknowledged writes that are sent again, after a reset of the session or because none was acknowledged for a while.
//!
//! Invariants:
//!  1. At most [`RESEND_BYTES`] of them, or one, are on the way to a member.
//!  2. A member gets writes in order: new ones, and parts of objects, which may contain them, wait until all earlier
//!     ones are sent.
//!
//! Tests: `tests/recovery.rs` (`unacknowledged_writes_are_sent_again_in_windows`).

use crate::limits::RESEND_BYTES;
use crate::pg::Pg;
use crate::pg::ops::work::RecoveryWork;
use crate::pg::ops::work::Work;
use crate::pg::peering::{Peers, Unacked};
use crate::shards::PeerId;
use base::unreached;
use bytes::Bytes;

/// Progress of sending unacknowledged writes again, [`RESEND_BYTES`] at a time.
#[derive(Debug)]
pub(in crate::pg) struct Again {
    /// Number of the next write to be sent.
    next: u64,
    /// Bytes of those that were sent again and are not acknowledged.
    bytes: usize,
}

impl Unacked {
    /// The message for member `p`; none if the write is deferred there.
    fn message(&self, p: PeerId) -> Option<&(Bytes, Bytes)> {
        if self.bare_for.contains(&p) { self.bare.as_ref() } else { self.full.to(p) }
    }

    /// Bytes of the message for member `p`.
    pub(in crate::pg) fn bytes(&self, p: PeerId) -> usize {
        self.message(p).map_or(0, |(body, data)| body.len() + data.len())
    }
}

impl Pg {
    /// Begins to send a member's unacknowledged writes again, after a reset of the session or because none was
    /// acknowledged for a while. Returns the first of them.
    pub(in crate::pg) fn writes_again(&mut self, to: PeerId, reset: bool) -> Vec<(Bytes, Bytes)> {
        let Some(m) = self.peers.members.get_mut(&to) else { return Vec::new() };
        let moves = m.acked > std::mem::replace(&mut m.seen, m.acked);
        if !reset && moves {
            return Vec::new();
        }
        m.again = Some(Again { next: m.acked + 1, bytes: 0 });
        self.more_again(to)
    }

    /// The next writes to be sent again to a member, up to [`RESEND_BYTES`] in flight.
    fn more_again(&mut self, to: PeerId) -> Vec<(Bytes, Bytes)> {
        let Peers { members, unacked, .. } = &mut self.peers;
        let mut messages = Vec::new();
        let Some(m) = members.get_mut(&to) else { return unreached("writes are sent to a member") };
        let first = unacked.front().map_or(u64::MAX, |u| u.seq);
        let Some(a) = &mut m.again else { return unreached("writes are sent to it again") };
        let mut at = usize::try_from(a.next.saturating_sub(first)).unwrap_or(usize::MAX);
        while a.bytes < RESEND_BYTES {
            let Some(u) = unacked.get(at) else {
                m.again = None;
                break;
            };
            messages.extend(u.message(to).cloned());
            a.bytes += u.bytes(to);
            a.next = u.seq + 1;
            at += 1;
        }
        messages
    }

    /// Goes on to send writes again after `bytes` of them were acknowledged, and then the parts of objects that waited.
    pub(in crate::pg) fn go_on_again(&mut self, to: PeerId, bytes: usize) {
        let Some(m) = self.peers.members.get_mut(&to) else { return unreached("the member has acknowledged") };
        let Some(a) = &mut m.again else { return unreached("writes are sent to it again") };
        a.bytes = a.bytes.saturating_sub(bytes);
        a.next = a.next.max(m.acked + 1);
        if a.bytes > RESEND_BYTES / 2 {
            return;
        }
        let mut messages = self.more_again(to);
        if !self.is_sent_again(to) {
            messages.extend(self.parts_sent().filter(|(o, _)| *o == to).map(|(_, m)| m));
        }
        for m in messages {
            self.send_encoded(to, m);
        }
    }

    /// True if writes to a member wait for earlier ones that are sent again. Parts of objects wait, too: they may
    /// contain these writes.
    pub(in crate::pg) fn is_sent_again(&self, to: PeerId) -> bool {
        self.peers.members.get(&to).is_some_and(|m| m.again.is_some())
    }

    /// Parts of pushes that are not acknowledged.
    pub(in crate::pg) fn parts_sent(&self) -> impl Iterator<Item = (PeerId, (Bytes, Bytes))> {
        self.recovery.pushes().keys().filter_map(|id| match self.plans.get(*id).map(|p| &p.work) {
            Some(Work::Recovery(RecoveryWork::Push(j))) => Some((j.to, j.sent.clone()?)),
            _ => None,
        })
    }
}
