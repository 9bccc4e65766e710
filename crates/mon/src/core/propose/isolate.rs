//! Proposals with a record that the state store does not take.
//!
//! Changes of many senders share a proposal. If one record is too large, each message of the proposal is handled again
//! in a proposal of its own, and only the one with the record is refused. A record that no message caused is left out.
//! Records are bounded where they enter; this is for those that no bound foresees, such as keys made of long names.

use base::errno;
use bytes::Bytes;

use super::batch::Batch;
use super::waiter::Waiter;
use crate::core::MonCore;
use crate::state::records::fits;
use crate::state::{ConnKey, Pending};
use wire::Message;

/// The start of a key, for people.
fn shown(k: &Bytes) -> String {
    String::from_utf8_lossy(k).chars().take(80).collect::<String>().replace('\0', " ")
}

impl MonCore {
    /// True if messages wait for a proposal of their own and it can begin.
    pub(in crate::core) fn retries(&self) -> bool {
        self.intake.has_alone() && !self.writer.is_busy()
    }

    /// Drops a proposal with records that are too large. Its messages are handled again one by one; a single one is
    /// refused.
    pub(in crate::core) fn isolate(
        &mut self,
        mut pending: Pending,
        waiters: Vec<Waiter>,
        mut from: Vec<(ConnKey, Message)>,
        large: &[Bytes],
    ) {
        let what = large.first().map(shown).unwrap_or_default();
        if pending.global_id_end.is_some() {
            self.credentials.ids().refused();
        }
        self.intake.log_known().proposed();
        match from.len() {
            0 => {
                tracing::error!(record = what, "mon: leaving out a record that the state store would refuse");
                pending.leave_out(large);
                self.pending = pending;
                self.answers.put_back(waiters);
            }
            1 => {
                let (c, _) = from.remove(0);
                tracing::warn!("mon: refusing a change by {}: record {what} is too large", self.who(c));
                self.refuse_all(waiters, errno::EFBIG, &format!("the change is too large for the record {what}"));
            }
            n => {
                tracing::warn!(record = what, "mon: a record is too large; {n} messages get proposals of their own");
                self.intake.isolate(from);
            }
        }
    }

    /// Answers the senders of a proposal that is dropped.
    pub(in crate::core) fn refuse_all(&mut self, waiters: Vec<Waiter>, rc: i32, text: &str) {
        for w in waiters {
            match w {
                Waiter::Command { to, .. } => self.answer_command(&to, rc, text.to_owned(), Bytes::new()),
                Waiter::PoolOp { conn, tid, .. } => self.answer_pool_op(conn, tid, rc, None),
                Waiter::Again(c, _) | Waiter::Maps(c, _) | Waiter::Booted(c, ..) | Waiter::Send(c, _) => {
                    self.close(c, text.to_owned());
                }
            }
        }
    }
}

impl Batch {
    /// Keys of records that the state store does not take.
    pub(in crate::core) fn too_large(&self) -> Vec<Bytes> {
        self.writes().filter(|(k, v)| !fits(k, v.map_or(0, Bytes::len))).map(|(k, _)| k.clone()).collect()
    }
}
