//! Messages that wait for their turn.
//!
//! A turn of the core does a bounded amount of work, whatever has arrived: messages count by their kind and length,
//! answers by their bytes. What exceeds a turn waits in a queue of its session. The queues take turns message by
//! message, so a session that sends thousands of commands delays others by one command each.
//!
//! Invariants:
//!  1. The messages of a session are handled in the order of their arrival.
//!  2. A session whose unsent answers reach the host's bound is not served until the host reports them sent
//!     ([`MonCore::output_full`]).
//!  3. A session with `HOLD` waiting messages is held: the host reads no more of it until `RELEASE` are left.
//!
//! Tests: `tests/does_one_sender_cost_others_anything.rs`
//! (`thousands_of_commands_of_one_session_delay_others_by_a_turn`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wire::msg::{MCommand, MGetPoolStats, MMgrCommand, MMonCommand, MMonSubscribe, MPoolOp, MStatfs};
use wire::{Message, WireMessage};

use crate::core::MonCore;
use crate::state::ConnKey;
use base::unreached;

/// Most units of work in a turn; the last message may exceed it. A unit is some 0.1 ms.
pub const WORK_A_TURN: u64 = 256;
/// Most bytes of answers in a turn; the last answer may exceed it.
pub const BYTES_A_TURN: usize = 8 << 20;
/// Units of a command.
const COMMAND: u64 = 4;
/// PGs that a command looks at for a unit.
const PGS_A_UNIT: u64 = 512;
/// Number of waiting messages at which a session is held, and at which it is released.
const HOLD: usize = 256;
const RELEASE: usize = 64;
/// Most waiting messages of one session, and their bytes; what was on its way when the session was held.
const SESSION_MESSAGES: usize = 65_536;
const SESSION_BYTES: usize = 32 << 20;
/// Bytes of all waiting messages beyond which a session with [`LARGE`] bytes of them is closed.
const ALL_BYTES: usize = 512 << 20;
/// See [`ALL_BYTES`].
const LARGE: usize = 1 << 20;

#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Message>,
    bytes: usize,
}

/// The queues, and the work of the current turn.
#[derive(Debug, Default)]
pub(super) struct Turns {
    queues: BTreeMap<ConnKey, Queue>,
    /// Bytes of all waiting messages.
    bytes: usize,
    /// Sessions with waiting messages whose output is not full; the next one first.
    ring: VecDeque<ConnKey>,
    full: BTreeSet<ConnKey>,
    held: BTreeSet<ConnKey>,
    /// Sessions to be held or released.
    holds: Vec<(ConnKey, bool)>,
    spent: (u64, usize),
    /// The most work and the most bytes of one turn.
    most: (u64, usize),
}

impl Turns {
    fn is_over(&self) -> bool {
        self.spent.0 >= WORK_A_TURN || self.spent.1 >= BYTES_A_TURN
    }

    /// True if a new message of the session can be handled now.
    fn may_go(&self, c: ConnKey) -> bool {
        !self.is_over() && !self.full.contains(&c) && !self.queues.contains_key(&c)
    }

    /// True if [`Turns::next`] will return a message in the next turn.
    pub(super) fn has_more(&self) -> bool {
        !self.ring.is_empty()
    }

    /// Counts work of the current turn.
    pub(super) fn work(&mut self, units: u64) {
        self.spent.0 = self.spent.0.saturating_add(units);
    }

    /// Counts bytes of answers.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.spent.1 = self.spent.1.saturating_add(bytes);
    }

    /// Adds a message; false if its session has too many.
    fn push(&mut self, c: ConnKey, m: Message) -> bool {
        let fresh = !self.queues.contains_key(&c);
        let q = self.queues.entry(c).or_default();
        q.bytes += m.cost();
        self.bytes += m.cost();
        q.messages.push_back(m);
        let too_many = q.messages.len() > SESSION_MESSAGES || q.bytes > SESSION_BYTES && q.messages.len() > 1;
        if too_many || self.bytes > ALL_BYTES && q.bytes > LARGE {
            return false;
        }
        if q.messages.len() >= HOLD && self.held.insert(c) {
            self.holds.push((c, true));
        }
        if fresh && !self.full.contains(&c) {
            self.ring.push_back(c);
        }
        true
    }

    /// The next message, if the turn has work left.
    fn next(&mut self) -> Option<(ConnKey, Message)> {
        if self.is_over() {
            return None;
        }
        let c = self.ring.pop_front()?;
        let Some(q) = self.queues.get_mut(&c) else { return unreached("a session in the ring has a queue") };
        let Some(m) = q.messages.pop_front() else { return unreached("a queue has a message, or is removed") };
        q.bytes -= m.cost();
        self.bytes -= m.cost();
        let left = q.messages.len();
        if left == 0 {
            self.queues.remove(&c);
        } else {
            self.ring.push_back(c);
        }
        if left <= RELEASE && self.held.remove(&c) {
            self.holds.push((c, false));
        }
        Some((c, m))
    }

    /// Marks a session whose unsent answers reached their bound, or fell below it.
    fn set_full(&mut self, c: ConnKey, full: bool) {
        if full {
            self.full.insert(c);
            self.ring.retain(|x| *x != c);
        } else if self.full.remove(&c) && self.queues.contains_key(&c) {
            self.ring.push_back(c);
        }
    }

    /// Drops what a closed session has.
    pub(super) fn forget(&mut self, c: ConnKey) {
        self.full.remove(&c);
        self.held.remove(&c);
        if let Some(q) = self.queues.remove(&c) {
            self.bytes -= q.bytes;
            self.ring.retain(|x| *x != c);
        }
    }

    /// True while the turn has work left.
    pub(super) fn goes_on(&self) -> bool {
        !self.is_over()
    }

    /// Ends a turn.
    pub(super) fn end(&mut self) {
        let (work, bytes) = std::mem::take(&mut self.spent);
        self.most = (self.most.0.max(work), self.most.1.max(bytes));
    }

    /// Number and bytes of waiting messages.
    pub(super) fn waiting(&self) -> (usize, usize) {
        self.queues.values().fold((0, 0), |(n, b), q| (n + q.messages.len(), b + q.bytes))
    }
}

impl MonCore {
    /// Handles a message, or adds it to its session's queue.
    pub(in crate::core) fn arrived(&mut self, c: ConnKey, m: Message) {
        if self.intake.turns.may_go(c) {
            self.take_turn(c, m);
        } else if self.sessions.contains_key(&c) && !self.intake.turns.push(c, m) {
            self.close(c, "too many of its messages wait".into());
        }
    }

    fn take_turn(&mut self, c: ConnKey, m: Message) {
        self.intake.work(self.work_of(&m));
        let before = self.state.mgr.stats.walked();
        self.message(c, m);
        let walked = self.state.mgr.stats.walked() - before;
        self.intake.work(walked / PGS_A_UNIT);
    }

    /// The units of work that a message counts as, before its answer is known.
    fn work_of(&self, m: &Message) -> u64 {
        let bytes = m.cost() as u64;
        match m.header.kind {
            MMonCommand::KIND
            | MMgrCommand::KIND
            | MCommand::KIND
            | MPoolOp::KIND
            | MStatfs::KIND
            | MGetPoolStats::KIND => {
                let map = &self.state.osdmap;
                COMMAND + (map.osd_state.len() + map.pools.len()) as u64 / 512 + bytes / (16 << 10)
            }
            MMonSubscribe::KIND => COMMAND / 2,
            _ => 1 + bytes / (64 << 10),
        }
    }

    /// Handles waiting messages, as many as fit into the turn.
    pub(in crate::core) fn serve_waiting(&mut self) {
        while let Some((c, m)) = self.intake.turns.next() {
            self.take_turn(c, m);
        }
    }

    /// Reports that the unsent answers of a session reached the host's bound, or fell below it again.
    pub fn output_full(&mut self, c: ConnKey, full: bool) {
        if self.sessions.contains_key(&c) {
            self.intake.turns.set_full(c, full);
        }
    }

    /// Takes the sessions whose messages the host shall read no longer (true), or again.
    pub fn take_holds(&mut self) -> Vec<(ConnKey, bool)> {
        std::mem::take(&mut self.intake.turns.holds)
    }

    /// The most work, in units, and the most bytes of answers of one turn since the start.
    #[must_use]
    pub fn turn_work(&self) -> (u64, usize) {
        self.intake.turns.most
    }
}
