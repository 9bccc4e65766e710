//! Acknowledgements of writes: when a member sends them, and the short way by which the primary takes them.
//!
//! A member owes an acknowledgement when a write has become durable, and sends it when the host asks
//! ([`Pg::acknowledge`]): one for all writes that became durable meanwhile. It leaves before any later message to
//! the primary, and at once where the host may not ask any more.
//!
//! Invariant: an acknowledgement names a write up to which all are durable here, and is sent in the interval of that
//! write. What is owed ends with the interval.
//!
//! Tests: `tests/acks.rs`.

use crate::effect::{Effect, Lane};
use crate::peer::Body;
use crate::pg::{Pg, State, Turn};
use crate::shards::PeerId;
use base::{Now, OsdId};
use store::ObjectStore;
use wire::msg::MPgPeer;

/// Code of [`Body::WriteAck`], which is followed by the number of the write.
const WRITE_ACK: u8 = 9;

/// Number of the acknowledged write, if the message is a plain acknowledgement.
fn acknowledged(m: &MPgPeer) -> Option<u64> {
    let (&WRITE_ACK, seq) = m.body.split_first()? else { return None };
    seq.try_into().ok().filter(|_| m.data.is_empty()).map(u64::from_le_bytes)
}

impl Pg {
    /// Notes that writes up to `seq` are durable on this member, and that the primary is to be told.
    pub(in crate::pg) fn owe_ack(&mut self, to: PeerId, seq: u64) {
        // A machine that ends may be gone when the host asks.
        let ends = self.life.is_stopping() || self.relocate.is_busy();
        let Some(f) = &mut self.peers.follower else { return self.send_to(to, &Body::WriteAck { seq }) };
        f.durable_write = seq;
        let owed = std::mem::replace(&mut f.owes, true);
        if ends {
            self.acknowledge_first();
        } else if !owed {
            self.mail.post(Effect::Acknowledge);
        }
    }

    /// The acknowledgement of the writes that have become durable here since the last one, if any. Asked for after
    /// [`Effect::Acknowledge`].
    #[must_use]
    pub fn acknowledge(&mut self) -> Option<Effect> {
        let f = self.peers.follower.as_mut().filter(|f| f.owes)?;
        f.owes = false;
        let seq = f.durable_write;
        let (to, (body, data)) = (self.primary(), Body::WriteAck { seq }.encode());
        let msg = Box::new(self.message(to, body, data));
        Some(Effect::Peer { to: to.osd, lane: Lane::Data, msg })
    }

    /// Sends the acknowledgement that is owed, so that no message to the primary overtakes it.
    #[inline]
    pub(in crate::pg) fn acknowledge_first(&mut self) {
        if self.peers.follower.as_ref().is_some_and(|f| f.owes)
            && let Some(e) = self.acknowledge()
        {
            self.mail.post(e);
        }
    }

    /// Handles a member's acknowledgement of writes of a replicated PG, as [`Pg::handle`] does. False if the message is
    /// another one, or this machine is in another state: then nothing is changed, and the message is an
    /// [`Event::Peer`](crate::Event::Peer).
    pub fn handle_ack(
        &mut self,
        from: OsdId,
        m: &MPgPeer,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(seq) = acknowledged(m) else { return false };
        let serves = *self.life.state() == State::Active && !self.life.is_stopping() && !self.relocate.is_busy();
        let present = m.epoch >= self.journal.info().history.same_interval_since;
        if !serves || !present || self.is_coded() || !self.is_primary() {
            return false;
        }
        self.env.meter().set_now(now.mono);
        let turn = &mut Turn { now, store, out };
        let before = (self.journal.durable(), self.peers.unacked.len());
        let repeats = self.take_ack(PeerId { osd: from, shard: m.from }, seq, turn);
        if repeats || !self.peers.clean || before != (self.journal.durable(), self.peers.unacked.len()) {
            self.after_input(turn);
        } else {
            // Other members are waited for. What a machine has to do or to repeat does not depend on this one.
            self.mail.flush(turn.out);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    /// Only the encoding of an acknowledgement is taken for one.
    #[test]
    fn an_acknowledgement_is_recognised_by_its_encoding() {
        let message = |body: Bytes, data: Bytes| MPgPeer { body, data, ..MPgPeer::default() };
        let (body, data) = Body::WriteAck { seq: 0x0102_0304_0506_0708 }.encode();
        assert_eq!(acknowledged(&message(body.clone(), data)), Some(0x0102_0304_0506_0708));
        for n in 0..body.len() {
            assert_eq!(acknowledged(&message(body.slice(..n), Bytes::new())), None);
        }
        assert_eq!(acknowledged(&message([&body[..], &[0]].concat().into(), Bytes::new())), None);
        assert_eq!(acknowledged(&message(body, Bytes::from_static(b"x"))), None);
        for other in [Body::Stable { seq: 9 }, Body::PushAck { id: 9, n: 9 }, Body::Query, Body::Remove] {
            let (body, data) = other.encode();
            assert_eq!(acknowledged(&message(body, data)), None);
        }
    }
}
