//! Several reactors of one OSD on one disk.
//!
//! Messages between them wait in the mailbox of each reactor, in order, and are taken out at random times. So one
//! reactor may be many messages ahead of another, as threads are.

use crate::queue::{MS, Time, US};
use base::device::{IoCompletion, IoId, IoRequest};
use base::rng::Rng;
use osd::core::moves::News;
use osd::core::pgs::Input;
use std::collections::VecDeque;

/// Most reactors of an OSD in a run.
pub const REACTORS_MAX: u16 = 3;
/// Bit position of the store's index in the id of a disk request. A store's own ids have the slot in the lower half
/// and the generation above.
const WHOSE: u32 = 28;

/// A message to a reactor from another one or from the control machine, or to the control machine.
#[derive(Clone)]
pub enum Inner {
    /// An input of the reactor's PGs.
    Input(Input),
    /// News of that reactor for the control machine about PGs that move.
    Moves(usize, News),
}

/// Mailboxes of the reactors of an OSD, and behind them that of its control machine.
pub struct Mailboxes {
    boxes: Vec<(Time, VecDeque<Inner>)>,
}

impl Mailboxes {
    /// Empty mailboxes.
    #[must_use]
    pub fn new(reactors: usize) -> Self {
        Self { boxes: (0..reactors).map(|_| (0, VecDeque::new())).collect() }
    }

    /// Adds a message and returns the time at which it may be taken out.
    pub fn put(&mut self, to: usize, m: Inner, now: Time, rng: &mut Rng) -> Time {
        // Mostly at once; sometimes the other thread is busy.
        let delay = match rng.below(50) {
            0 => rng.below(200 * MS),
            1..5 => rng.below(2 * MS),
            _ => rng.below(20 * US),
        };
        let Some((last, items)) = self.boxes.get_mut(to) else { return now };
        items.push_back(m);
        *last = (now + delay).max(*last + 1);
        *last
    }

    /// Takes the next message.
    pub fn take(&mut self, to: usize) -> Option<Inner> {
        self.boxes.get_mut(to)?.1.pop_front()
    }
}

/// The request with the index of its store in its id.
#[must_use]
pub fn disk_id(store: usize, r: IoRequest) -> IoRequest {
    debug_assert!(r.id.0 as u32 >> WHOSE == 0, "fewer requests at a time");
    IoRequest { id: IoId(r.id.0 | (store as u64) << WHOSE), ..r }
}

/// The store of a completion, and the completion with the store's own id.
#[must_use]
pub fn store_id(c: IoCompletion) -> (usize, IoCompletion) {
    let whose = (c.id.0 as u32 >> WHOSE) as usize;
    (whose, IoCompletion { id: IoId(c.id.0 & !(0xf << WHOSE)), ..c })
}
