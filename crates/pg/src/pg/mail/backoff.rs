//! Backoffs: while the PG cannot serve for an unknown time, clients hold its operations.
//!
//! Peering takes moments, so operations wait for it here. A PG that is down, incomplete or has too few copies waits
//! for another OSD or an operator. Clients then keep the operations that pile up.
//!
//! Invariants:
//!  1. A session gets one backoff. Until its release every operation of the session on this PG is dropped.
//!  2. All backoffs of a session have different numbers, whatever their PGs.
//!  3. Each backoff is released when the interval ends or the PG becomes active; the client then resends its
//!     operations on the PG. A closed session gets no message.
//!
//! Tests: `tests/backoff.rs`.
//!
//! Facts: Ceph's `doc/dev/osd_internals/backoff`, `MOSDBackoff`.

use crate::effect::Effect;
use crate::event::{OpRequest, SessionId};
use crate::exec::pg_range;
use crate::pg::{Pg, State};
use base::PgId;
use std::collections::BTreeMap;
use wire::Features;
use wire::msg::{MOsdBackoff, backoff_op};

/// The sessions with a backoff, each with its message.
#[derive(Debug, Default)]
pub(in crate::pg) struct Backoffs {
    last_id: u64,
    told: BTreeMap<SessionId, Box<MOsdBackoff>>,
}

/// Number of a PG's `n`th backoff. A client keeps the backoffs of a session by number, so PGs of one OSD must not
/// share numbers, also across reactors.
fn number(pg: PgId, n: u64) -> u64 {
    (pg.pool.0 as u64 & 0xffff) << 48 | u64::from(pg.seed & 0xff_ffff) << 24 | n & 0xff_ffff
}

impl Backoffs {
    /// True if no session has a backoff.
    pub(in crate::pg) fn is_empty(&self) -> bool {
        self.told.is_empty()
    }
}

impl Pg {
    /// True while clients should hold operations instead of this PG.
    fn backs_off(&self) -> bool {
        matches!(self.life.state(), State::Down(_) | State::Inactive(_) | State::Peered)
    }

    /// Answers an operation with a backoff if the PG is in a state for it and the client knows backoffs.
    pub(in crate::pg) fn back_off(&mut self, req: &OpRequest, out: &mut Vec<Effect>) -> bool {
        if !self.backs_off() || !Features(req.features).luminous() {
            return false;
        }
        if !self.mail.backoffs.told.contains_key(&req.session) {
            self.mail.backoffs.last_id += 1;
            let (begin, end) = pg_range(self.env.spg().pg, self.pool().map_or(1, |p| p.pg_num));
            let block = Box::new(MOsdBackoff {
                pgid: self.env.spg(),
                map_epoch: self.epoch(),
                op: backoff_op::BLOCK,
                id: number(self.env.spg().pg, self.mail.backoffs.last_id),
                begin,
                end,
            });
            let older = self.mail.backoffs.told.insert(req.session, block.clone());
            debug_assert!(older.is_none(), "a session gets one backoff");
            out.push(Effect::Backoff(req.session, block));
        }
        self.drop_op(req, "the client was told to hold it", out);
        true
    }

    /// Releases all backoffs.
    pub(in crate::pg) fn release_backoffs(&mut self, out: &mut Vec<Effect>) {
        for (session, mut told) in std::mem::take(&mut self.mail.backoffs.told) {
            told.op = backoff_op::UNBLOCK;
            told.map_epoch = self.epoch();
            out.push(Effect::Backoff(session, told));
        }
    }

    /// True if [`Event::SessionClosed`] would change anything: the session has operations without an
    /// answer, a backoff, or a watch.
    ///
    /// [`Event::SessionClosed`]: crate::Event::SessionClosed
    #[must_use]
    pub fn knows_session(&self, session: SessionId) -> bool {
        // The inputs held by a moving PG are not searched.
        let moves = self.relocate.is_busy();
        moves
            || self.mail.backoffs.told.contains_key(&session)
            || self.mail.held().iter().any(|r| r.session == session)
            || self.watches.knows(session)
            || self.has_operation(session)
    }

    /// Drops the backoff of a session that ended.
    pub(in crate::pg) fn forget_backoff(&mut self, session: SessionId) {
        self.mail.backoffs.told.remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use super::number;
    use base::{PgId, PoolId};
    use std::collections::BTreeSet;

    #[test]
    fn pgs_never_share_a_backoff_number() {
        let pgs = (1..4).flat_map(|p| (0..300).map(move |seed| PgId { pool: PoolId(p), seed }));
        let all: Vec<u64> = pgs.flat_map(|pg| (1..5).map(move |n| number(pg, n))).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }
}
