//! Messages on their way in: those that wait for their turn, those that wait for a commit, and those whose changes the
//! next proposal has.
//!
//! | module | contents |
//! | --- | --- |
//! | `deferred` | messages that wait for a commit, bounded in number and bytes |
//! | `turns` | messages that wait for their turn |

mod deferred;
pub mod turns;

use std::collections::VecDeque;

use wire::Message;

use super::MonCore;
use crate::state::ConnKey;
use crate::state::log::{Known, LogEntry};
use deferred::Deferred;
use turns::Turns;

/// Messages and lines from senders that are not proposed yet.
#[derive(Default)]
pub(super) struct Intake {
    /// Messages that wait for a commit.
    deferred: Deferred,
    /// Number of deferred messages that are handled before the next proposal.
    replay: usize,
    /// True while a message of `deferred` or `alone` is handled, which does not wait again.
    replaying: bool,
    /// Messages of a proposal that was too large, each of which gets a proposal of its own.
    alone: VecDeque<(ConnKey, Message)>,
    /// Messages whose answers wait for the proposal under construction.
    contributors: Vec<(ConnKey, Message)>,
    /// Messages that wait for their turn.
    turns: Turns,
    /// Lines of the cluster log that senders may repeat.
    log_known: Known,
}

impl Intake {
    /// The intake of a new process, to whose cluster log these lines were written last.
    pub(super) fn of(lines: &[LogEntry]) -> Self {
        Self { log_known: Known::of(lines), ..Self::default() }
    }

    /// True if messages wait.
    pub(super) fn waits(&self) -> bool {
        !self.deferred.is_empty() || !self.alone.is_empty() || self.turns.has_more()
    }

    /// True if messages can be handled in the next turn.
    pub(super) fn has_more(&self) -> bool {
        self.turns.has_more() || self.replay > 0
    }

    /// True if messages came before a new one and are not handled.
    pub(super) fn has_earlier(&self) -> bool {
        !self.replaying && (self.replay > 0 || self.has_alone())
    }

    /// True if the next proposal has all that it is to have: the messages that waited for the last one, or a single
    /// message.
    pub(super) fn may_propose(&self) -> bool {
        self.replay == 0 || self.has_alone()
    }

    /// True if messages wait for a proposal of their own.
    pub(super) fn has_alone(&self) -> bool {
        !self.alone.is_empty()
    }

    /// True if messages wait for a commit.
    pub(super) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Gives messages proposals of their own.
    pub(super) fn isolate(&mut self, messages: Vec<(ConnKey, Message)>) {
        self.alone.extend(messages);
    }

    /// Notes a message whose answer waits for the proposal under construction.
    pub(super) fn contributes(&mut self, c: ConnKey, m: Message) {
        self.contributors.push((c, m));
    }

    /// Takes the messages whose answers wait for the proposal under construction.
    pub(super) fn take_contributors(&mut self) -> Vec<(ConnKey, Message)> {
        std::mem::take(&mut self.contributors)
    }

    /// Counts work of the current turn.
    pub(super) fn work(&mut self, units: u64) {
        self.turns.work(units);
    }

    /// Counts bytes of an answer.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.turns.sent(bytes);
    }

    /// Ends a turn.
    pub(super) fn end_turn(&mut self) {
        self.turns.end();
    }

    /// Drops the messages of a closed session.
    pub(super) fn forget(&mut self, c: ConnKey) {
        self.deferred.forget(c);
        self.replay = self.replay.min(self.deferred.waiting().0);
        self.turns.forget(c);
        self.alone.retain(|(d, _)| *d != c);
    }

    /// The lines of the cluster log that senders may repeat.
    pub(super) fn log_known(&mut self) -> &mut Known {
        &mut self.log_known
    }
}

impl MonCore {
    /// True if a message that changes something must wait: for a commit, or for messages that came before it.
    pub(super) fn must_wait(&self) -> bool {
        self.writer.is_busy() || self.intake.has_earlier()
    }

    /// Lets a message wait for a commit.
    pub(super) fn defer(&mut self, c: ConnKey, m: Message) {
        if let Some(c) = self.intake.deferred.push(c, m) {
            self.close(c, "too many of its messages wait for a commit".into());
        }
    }

    /// Begins to handle the messages that waited for a commit. The next proposal begins after them.
    pub(super) fn run_deferred(&mut self) {
        self.intake.replay = self.intake.deferred.waiting().0;
        if self.intake.replay == 0 {
            return self.advance_merges();
        }
        self.continue_deferred();
    }

    /// Handles messages that waited for a commit, as many as fit into the turn.
    pub(super) fn continue_deferred(&mut self) {
        if self.intake.replay == 0 || self.writer.is_busy() || self.intake.has_alone() {
            return;
        }
        while self.intake.replay > 0 && self.intake.turns.goes_on() {
            let Some((c, m)) = self.intake.deferred.pop() else {
                self.intake.replay = 0;
                break;
            };
            self.intake.replay -= 1;
            self.intake.work(1 + m.cost() as u64 / (16 << 10));
            self.replay(c, m);
        }
        if self.intake.replay == 0 {
            self.advance_merges();
        }
    }

    /// Handles messages that get a proposal of their own, up to the first one that changes something.
    pub(super) fn next_alone(&mut self) {
        while self.pending.is_empty() && self.intake.turns.goes_on() {
            let ready = self.answers.take_waiters();
            self.run_waiters(ready);
            self.intake.contributors.clear();
            let Some((c, m)) = self.intake.alone.pop_front() else { return };
            self.intake.work(4);
            self.replay(c, m);
        }
    }

    /// Handles a message that has waited, and does not wait again.
    fn replay(&mut self, c: ConnKey, m: Message) {
        self.intake.replaying = true;
        self.message(c, m);
        self.intake.replaying = false;
    }

    /// Number and bytes of messages that wait for a commit or for their turn.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        let (a, b) = (self.intake.deferred.waiting(), self.intake.turns.waiting());
        (a.0 + b.0, a.1 + b.1)
    }
}
