//! Bytes of incomplete frames: each is charged before its memory is allocated, to its entity and to the reactor.
//!
//! A frame that does not fit waits; its connection is not read. When bytes come back, the next frame is one of the
//! entity that holds the least, so that a client with a few connections does not wait behind one with hundreds.
//!
//! Invariants:
//!  1. Granted bytes are at most the room that the caller gives, unless a single frame is longer than that.
//!  2. Frames of more than [`LONG`] bytes have at most half of the room, so that usual writes get through.
//!  3. A waiting frame is granted as soon as it fits and none of an entity with fewer bytes does.
//!
//! Tests: below.

use crate::types::ConnId;
use base::AuthName;
use std::collections::HashMap;

/// Frames above this many bytes are long: no client sends them in numbers.
pub(crate) const LONG: usize = 8 << 20;

#[derive(Debug)]
struct Waiting {
    conn: ConnId,
    who: AuthName,
    bytes: usize,
}

/// Table of incomplete frames; see the module.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    granted: usize,
    long: usize,
    by_entity: HashMap<AuthName, usize>,
    waiting: Vec<Waiting>,
}

impl Frames {
    /// Granted bytes.
    pub(crate) fn granted(&self) -> usize {
        self.granted
    }

    /// True if a frame waits for bytes that others hold.
    pub(crate) fn is_short(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn fits(&self, bytes: usize, room: usize) -> bool {
        let long = bytes > LONG && self.long > 0 && self.long + bytes > room / 2;
        (self.granted + bytes <= room && !long) || self.granted == 0
    }

    fn take(&mut self, who: AuthName, bytes: usize) {
        self.granted += bytes;
        self.long += if bytes > LONG { bytes } else { 0 };
        *self.by_entity.entry(who).or_default() += bytes;
    }

    /// Asks for a frame's bytes. True: they are granted. False: the connection waits until [`Frames::next`] names it.
    pub(crate) fn ask(&mut self, conn: ConnId, who: AuthName, bytes: usize, room: usize) -> bool {
        if self.waiting.is_empty() && self.fits(bytes, room) {
            self.take(who, bytes);
            return true;
        }
        self.waiting.push(Waiting { conn, who, bytes });
        false
    }

    /// Grants the bytes of a waiting frame that fits; returns its connection and its bytes.
    pub(crate) fn next(&mut self, room: usize) -> Option<(ConnId, usize)> {
        let held = |w: &Waiting| self.by_entity.get(&w.who).copied().unwrap_or(0);
        let fit = self.waiting.iter().enumerate().filter(|(_, w)| self.fits(w.bytes, room));
        let (at, _) = fit.min_by_key(|(at, w)| (held(w), *at))?;
        let w = self.waiting.remove(at);
        self.take(w.who, w.bytes);
        Some((w.conn, w.bytes))
    }

    /// Gives back the bytes of a granted frame that is complete or will not be.
    pub(crate) fn give_back(&mut self, who: &AuthName, bytes: usize) {
        self.granted = self.granted.saturating_sub(bytes);
        self.long = self.long.saturating_sub(if bytes > LONG { bytes } else { 0 });
        if let Some(n) = self.by_entity.get_mut(who) {
            *n = n.saturating_sub(bytes);
            if *n == 0 {
                self.by_entity.remove(who);
            }
        }
    }

    /// Forgets a waiting connection that has ended.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        self.waiting.retain(|w| w.conn != conn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(name: &str) -> AuthName {
        AuthName::parse(name).unwrap()
    }

    const MIB: usize = 1 << 20;

    #[test]
    fn hundreds_of_half_frames_leave_room_for_another_client() {
        let mut f = Frames::default();
        let room = 512 * MIB;
        let granted = (0..500).filter(|n| f.ask(ConnId(*n), who("client.evil"), 128 * MIB, room)).count();
        assert_eq!(granted, 2, "half of the room, for long frames");
        assert!(!f.ask(ConnId(900), who("client.good"), 4 * MIB, room), "first come, first asked");
        assert_eq!(f.next(room), Some((ConnId(900), 4 * MIB)), "but it holds the least");
        assert_eq!(f.next(room), None);
        assert!(f.granted() <= room);
        f.give_back(&who("client.good"), 4 * MIB);
        f.give_back(&who("client.evil"), 128 * MIB);
        assert_eq!(f.next(room), Some((ConnId(2), 128 * MIB)));
        (0..500).for_each(|n| f.forget(ConnId(n)));
        assert!(!f.is_short());
        (0..2).for_each(|_| f.give_back(&who("client.evil"), 128 * MIB));
        assert_eq!((f.granted(), f.long, f.by_entity.len()), (0, 0, 0));
    }

    #[test]
    fn usual_frames_use_the_whole_room_and_one_always_goes() {
        let mut f = Frames::default();
        let room = 64 * MIB;
        let granted = (0..100).filter(|n| f.ask(ConnId(*n), who("client.a"), 4 * MIB, room)).count();
        assert_eq!((granted, f.granted()), (16, room));
        (0..16).for_each(|_| f.give_back(&who("client.a"), 4 * MIB));
        (0..100).for_each(|n| f.forget(ConnId(n)));
        assert!(f.ask(ConnId(1), who("client.a"), 208 * MIB, room), "longer than the room, but alone");
        assert!(!f.ask(ConnId(2), who("client.b"), 1, room));
    }
}
