//! Messages that are sent in pieces, each repeated until the receiver has it: messages of any length (logs, missing
//! sets), and short ones that nothing else would repeat ([`Pg::send_reliably`]).
//!
//! Invariants:
//!  1. One piece of a message is in flight. It is sent again after a reset of the session and at intervals, until the
//!     receiver says that it has it.
//!  2. The receiver handles a message when all its pieces are there. It answers the last one only if it has taken the
//!     message, and handles a repetition of it once more or not at all: all these messages may come twice, and in any
//!     order.
//!  3. Of the messages with several pieces, [`PIECES_SENT_MAX`] are on their way to a receiver at once; others wait.
//!  4. OSDs without [`PeerFeatures::PARTS`] get no pieces.
//!
//! Tests: `tests/recovery.rs` (1, 2, `one_message_of_each_kind_may_be_lost`), assertions (3, 4).

use crate::limits::{LONG_MESSAGE_MAX, PIECE_BYTES, PIECES_DONE, PIECES_OPEN_MAX, PIECES_SENT_MAX};
use crate::peer::{Body, Place};
use crate::pg::seldom::Part;
use crate::pg::{Pg, State};
use crate::shards::PeerId;
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, VecDeque};
use wire::msg::{MPgPeer, PeerFeatures};

/// A message that is being sent.
#[derive(Debug)]
struct Sending {
    message: (Bytes, Bytes),
    n: u32,
    /// Others to the same receiver go first.
    waits: bool,
}

impl Sending {
    fn place(&self, id: u64) -> Place {
        Place { id, n: self.n, body: self.message.0.len() as u64, data: self.message.1.len() as u64 }
    }

    /// True if the message has several pieces.
    fn is_long(&self) -> bool {
        self.place(0).of() > 1
    }

    /// The piece that is in flight.
    fn piece(&self, id: u64) -> Option<(Bytes, Bytes)> {
        let place = self.place(id);
        let (from, to, apart) = place.range()?;
        let of = if apart { &self.message.1 } else { &self.message.0 };
        let bytes = of.slice(usize::try_from(from).ok()?..usize::try_from(to).ok()?);
        Some(Body::Piece { place, bytes }.encode())
    }
}

/// A message that is arriving.
#[derive(Debug, Default)]
struct Arriving {
    pieces: Vec<Bytes>,
}

/// The messages in pieces, sent and received; see the module.
#[derive(Debug, Default)]
pub(in crate::pg) struct Pieces {
    newest: u64,
    sending: BTreeMap<(PeerId, u64), Sending>,
    arriving: BTreeMap<(PeerId, u64), Arriving>,
    /// The newest messages that were taken.
    taken: VecDeque<(PeerId, u64)>,
}

impl Part for Pieces {
    const EMPTY: &'static Self =
        &Self { newest: 0, sending: BTreeMap::new(), arriving: BTreeMap::new(), taken: VecDeque::new() };

    fn is_empty(&self) -> bool {
        // The numbers of an interval are not used again.
        self.newest == 0 && self.sending.is_empty() && self.arriving.is_empty() && self.taken.is_empty()
    }
}

impl Pieces {
    /// True if pieces wait for an answer.
    pub(in crate::pg) fn awaits(&self) -> bool {
        !self.sending.is_empty()
    }

    /// Forgets the OSDs that are not `here`.
    pub(in crate::pg) fn keep(&mut self, here: impl Fn(PeerId) -> bool) {
        self.sending.retain(|(p, _), _| here(*p));
        self.arriving.retain(|(p, _), _| here(*p));
        self.taken.retain(|(p, _)| here(*p));
    }

    /// Takes a piece; returns the message when it is complete.
    fn take(&mut self, from: PeerId, place: Place, bytes: Bytes) -> Result<Option<(Bytes, Bytes)>, u32> {
        let key = (from, place.id);
        if place.n == 0 && !self.arriving.contains_key(&key) {
            let of_sender = || self.arriving.range((from, 0)..=(from, u64::MAX)).map(|(k, _)| *k);
            if of_sender().count() >= PIECES_OPEN_MAX
                && let Some(oldest) = of_sender().next()
            {
                self.arriving.remove(&oldest);
            }
            self.arriving.insert(key, Arriving::default());
        }
        let Some(a) = self.arriving.get_mut(&key) else { return Err(0) };
        let n = usize::try_from(place.n).unwrap_or(usize::MAX);
        if n > a.pieces.len() {
            return Err(u32::try_from(a.pieces.len()).unwrap_or(0));
        }
        if n == a.pieces.len() {
            a.pieces.push(bytes);
        }
        if (a.pieces.len() as u64) < place.of() {
            return Ok(None);
        }
        let all = self.arriving.remove(&key).unwrap_or_default().pieces;
        self.shrink();
        let bodies = usize::try_from(place.body.div_ceil(PIECE_BYTES as u64)).unwrap_or(usize::MAX).min(all.len());
        let (body, data) = all.split_at(bodies);
        Ok(Some((joined(body), joined(data))))
    }

    /// Begins a message that waited, if fewer are being sent to that receiver than may be.
    fn begin_waiting(&mut self, to: PeerId) -> Option<(Bytes, Bytes)> {
        let of_receiver = (to, 0)..=(to, u64::MAX);
        if self.sending.range(of_receiver.clone()).filter(|(_, s)| s.is_long() && !s.waits).count() >= PIECES_SENT_MAX {
            return None;
        }
        let ((_, id), s) = self.sending.range_mut(of_receiver).find(|(_, s)| s.waits)?;
        s.waits = false;
        s.piece(*id)
    }

    /// True if no receiver is sent more long messages at once than it may be.
    fn are_bounded(&self) -> bool {
        let long = |(key, s): (&(PeerId, u64), &Sending)| (s.is_long() && !s.waits).then_some(key.0);
        let all: Vec<PeerId> = self.sending.iter().filter_map(long).collect();
        all.chunk_by(|a, b| a == b).all(|of_one| of_one.len() <= PIECES_SENT_MAX)
    }

    /// Frees the nodes of maps that are empty: each would hold a kilobyte in every idle PG.
    fn shrink(&mut self) {
        if self.sending.is_empty() {
            self.sending = BTreeMap::new();
        }
        if self.arriving.is_empty() {
            self.arriving = BTreeMap::new();
        }
    }

    /// Forgets the messages that were taken, at rest. A repetition of one is handled once more, which all bear.
    pub(in crate::pg) fn forget_taken(&mut self) {
        if !self.awaits() {
            self.taken = VecDeque::new();
        }
    }

    fn taken(&mut self, from: PeerId, id: u64) {
        if self.taken.len() >= PIECES_DONE {
            self.taken.pop_front();
        }
        self.taken.push_back((from, id));
    }
}

fn joined(all: &[Bytes]) -> Bytes {
    match all {
        [] => Bytes::new(),
        [one] => one.clone(),
        _ => {
            let mut b = BytesMut::with_capacity(all.iter().map(Bytes::len).sum());
            all.iter().for_each(|p| b.extend_from_slice(p));
            b.freeze()
        }
    }
}

impl Pg {
    /// Sends a message that nothing else repeats, until the receiver has taken it.
    pub(in crate::pg) fn send_reliably(&mut self, to: PeerId, body: &Body) {
        let features = self.features(to);
        let message = body.encode_for(features);
        if to != self.me() && features.has(PeerFeatures::PARTS) {
            self.send_pieces(to, message);
        } else {
            self.send_encoded(to, message);
        }
    }

    /// Sends a message in pieces. A message that is on its way already is not sent twice.
    pub(in crate::pg) fn send_pieces(&mut self, to: PeerId, message: (Bytes, Bytes)) {
        if message.0.len().saturating_add(message.1.len()) > LONG_MESSAGE_MAX {
            return self.cannot_tell(to, message.0.first().copied(), message.0.len(), message.1.len());
        }
        let head = |b: &Bytes| b.slice(..b.len().min(64));
        let same = |s: &Sending| {
            s.message.0.len() == message.0.len()
                && head(&s.message.0) == head(&message.0)
                && s.message.1.len() == message.1.len()
        };
        let p = &mut *self.peers.pieces;
        let mut s = Sending { message: message.clone(), n: 0, waits: false };
        if s.is_long() {
            let others = || p.sending.range((to, 0)..=(to, u64::MAX)).filter(|(_, s)| s.is_long());
            if others().any(|(_, s)| same(s)) {
                return;
            }
            s.waits = others().count() >= PIECES_SENT_MAX;
        }
        p.newest += 1;
        let id = p.newest;
        let piece = s.piece(id).filter(|_| !s.waits);
        p.sending.insert((to, id), s);
        if let Some(piece) = piece {
            self.send_encoded(to, piece);
        }
    }

    /// The pieces that are in flight, to be sent again.
    pub(in crate::pg) fn unheard_pieces(&self) -> Vec<(PeerId, (Bytes, Bytes))> {
        debug_assert!(self.peers.pieces.are_bounded(), "more long messages are on their way than may be");
        let sent = self.peers.pieces.sending.iter().filter(|(_, s)| !s.waits);
        sent.filter_map(|((p, id), s)| Some((*p, s.piece(*id)?))).collect()
    }

    /// The receiver has all pieces before `next`.
    pub(in crate::pg) fn take_heard(&mut self, from: PeerId, id: u64, next: u32) {
        let Some(p) = self.peers.pieces.used() else { return };
        let Some(s) = p.sending.get_mut(&(from, id)) else { return };
        if next == s.n {
            return;
        }
        if u64::from(next) >= s.place(id).of() {
            p.sending.remove(&(from, id));
            p.shrink();
            let next = p.begin_waiting(from);
            if let Some(piece) = next {
                self.send_encoded(from, piece);
            }
            return;
        }
        s.n = next;
        let piece = s.piece(id);
        if let Some(piece) = piece {
            self.send_encoded(from, piece);
        }
    }

    /// Takes a piece. Returns the message if this was its last one.
    pub(in crate::pg) fn take_piece(&mut self, from: PeerId, place: Place, bytes: Bytes) -> Option<(Bytes, Bytes)> {
        if !place.is_sound(bytes.len()) {
            tracing::warn!(pg = %self.env.spg(), %from, ?place, "a piece of a message that can't exist; ignored");
            return None;
        }
        if self.peers.pieces.taken.contains(&(from, place.id)) {
            self.heard(from, place);
            return None;
        }
        match self.peers.pieces.take(from, place, bytes) {
            Ok(whole @ Some(_)) => whole,
            Ok(None) => {
                self.send_to(from, &Body::Heard { id: place.id, next: place.n.saturating_add(1) });
                None
            }
            Err(next) => {
                self.send_to(from, &Body::Heard { id: place.id, next });
                None
            }
        }
    }

    /// Tells the sender that a message in pieces is taken.
    pub(in crate::pg) fn heard(&mut self, from: PeerId, place: Place) {
        if !self.peers.pieces.taken.contains(&(from, place.id)) {
            self.peers.pieces.taken(from, place.id);
        }
        let next = u32::try_from(place.of()).unwrap_or(u32::MAX);
        self.send_to(from, &Body::Heard { id: place.id, next });
    }

    /// True if this copy can take the message now. Otherwise its sender is to repeat it.
    pub(in crate::pg) fn can_take(&self, body: &Body) -> bool {
        match body {
            Body::Started { .. } | Body::Backfilled { .. } => self.peers.follower.is_some(),
            Body::Rewind { .. } => *self.life.state() == State::Stray && !self.peers.merging,
            Body::Remove => self.mail.held().is_empty(),
            _ => true,
        }
    }

    /// Drops a message that no receiver would accept: its connection would be reset, again and again.
    pub(in crate::pg) fn cannot_tell(&mut self, to: PeerId, code: Option<u8>, body: usize, data: usize) {
        tracing::error!(pg = %self.env.spg(), %to, ?code, body, data, "a message is too large for another OSD and is not sent; the PG waits until that OSD has the newest version");
        debug_assert!(
            !self.understands(to, PeerFeatures::PARTS),
            "{body} and {data} bytes for an OSD that takes pieces"
        );
    }
}

/// True if a message with this body and data goes in pieces, if the receiver takes them. A write does not, since later
/// ones must not overtake it.
pub(in crate::pg) fn is_long(m: &MPgPeer) -> bool {
    let most = if Body::is_part(&m.body) { 2 * PIECE_BYTES } else { MPgPeer::DATA_MAX };
    m.body.len() > 2 * PIECE_BYTES || m.data.len() > most
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::OsdId;

    fn all(body: usize, data: usize) -> (Bytes, Bytes) {
        let of = |n: usize, x: usize| (0..n).map(|i| ((i / 1000) * x) as u8).collect::<Vec<u8>>().into();
        (of(body, 3), of(data, 7))
    }

    #[test]
    fn a_message_of_any_length_arrives_as_it_was() {
        let from = PeerId::from(OsdId(1));
        for (body, data) in [(0, 0), (1, 0), (PIECE_BYTES, 1), (PIECE_BYTES + 1, PIECE_BYTES), (3 * PIECE_BYTES, 0)] {
            let message = all(body, data);
            let mut s = Sending { message: message.clone(), n: 0, waits: false };
            let mut p = Pieces::default();
            let of = s.place(7).of();
            for n in 0..of {
                s.n = n as u32;
                let place = s.place(7);
                let (from_, to, apart) = place.range().unwrap();
                let bytes = if apart { &message.1 } else { &message.0 }.slice(from_ as usize..to as usize);
                assert!(place.is_sound(bytes.len()) && !place.is_sound(bytes.len() + 1));
                if n > 0 {
                    assert_eq!(Pieces::default().take(from, place, bytes.clone()), Err(0), "it begins anew");
                }
                // Each piece comes twice.
                let first = p.take(from, place, bytes.clone());
                if n + 1 == of {
                    assert_eq!(first, Ok(Some(message.clone())));
                } else {
                    assert_eq!((first, p.take(from, place, bytes)), (Ok(None), Ok(None)));
                }
            }
            assert!(p.arriving.is_empty());
        }
        assert!(!Place { id: 1, n: 0, body: LONG_MESSAGE_MAX as u64, data: 1 }.is_sound(PIECE_BYTES));
        assert!(!Place { id: 1, n: 1, body: 5, data: 0 }.is_sound(5));
    }

    #[test]
    fn arriving_messages_are_bounded() {
        let mut p = Pieces::default();
        let long = |id| Place { id, n: 0, body: 3 * PIECE_BYTES as u64, data: 0 };
        for id in 0..100 {
            assert_eq!(p.take(OsdId(1).into(), long(id), Bytes::new()), Ok(None));
            p.taken(OsdId(1).into(), id);
        }
        assert_eq!((p.arriving.len(), p.taken.len()), (PIECES_OPEN_MAX, PIECES_DONE));
    }
}
