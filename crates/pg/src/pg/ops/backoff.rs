//! Backoffs: while the PG cannot serve and does not know for how long, clients hold its operations, not this OSD.
//!
//! Peering takes moments and operations wait here for it; a PG that is down, has too few copies or cannot be served waits
//! for another OSD or an operator, and what clients would pile up meanwhile is theirs to keep.
//!
//! Invariants:
//!  1. A session is told once; until it is told to go on, every operation it sends to this PG is dropped.
//!  2. No two backoffs that a session knows have the same number, whatever their PGs.
//!  3. Every session that was told to hold is told to go on when the interval ends or the PG goes active; the client
//!     then sends again all it has for this PG. Nothing is told to a session that is closed.
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

/// Who was told to hold, and with what.
#[derive(Debug, Default)]
pub(in crate::pg) struct Backoffs {
    last_id: u64,
    told: BTreeMap<SessionId, Box<MOsdBackoff>>,
}

/// Number of a PG's `n`th backoff. Clients keep backoffs by number, all PGs of a session together, so no two PGs of an OSD,
/// whichever reactor they are on, may use the same one.
fn number(pg: PgId, n: u64) -> u64 {
    (pg.pool.0 as u64 & 0xffff) << 48 | u64::from(pg.seed & 0xff_ffff) << 24 | n & 0xff_ffff
}

impl Backoffs {
    /// No session was told to hold.
    pub(in crate::pg) fn is_empty(&self) -> bool {
        self.told.is_empty()
    }
}

impl Pg {
    /// True while clients should hold operations instead of this PG.
    fn backs_off(&self) -> bool {
        matches!(self.state, State::Down(_) | State::Inactive(_) | State::Peered)
    }

    /// Answers an operation with a backoff if the PG is in a state for it and the client knows backoffs.
    pub(in crate::pg) fn back_off(&mut self, req: &OpRequest, out: &mut Vec<Effect>) -> bool {
        if !self.backs_off() || !Features(req.features).luminous() {
            return false;
        }
        if !self.backoffs.told.contains_key(&req.session) {
            self.backoffs.last_id += 1;
            let (begin, end) = pg_range(self.cfg.spg.pg, self.pool().map_or(1, |p| p.pg_num));
            let block = Box::new(MOsdBackoff {
                pgid: self.cfg.spg,
                map_epoch: self.epoch(),
                op: backoff_op::BLOCK,
                id: number(self.cfg.spg.pg, self.backoffs.last_id),
                begin,
                end,
            });
            self.backoffs.told.insert(req.session, block.clone());
            out.push(Effect::Backoff(req.session, block));
        }
        self.drop_op(req, "the client was told to hold it", out);
        true
    }

    /// Tells everybody to go on.
    pub(in crate::pg) fn release_backoffs(&mut self, out: &mut Vec<Effect>) {
        for (session, mut told) in std::mem::take(&mut self.backoffs.told) {
            told.op = backoff_op::UNBLOCK;
            told.map_epoch = self.epoch();
            out.push(Effect::Backoff(session, told));
        }
    }

    /// True if [`Event::SessionClosed`] would change anything: operations of the session wait here, it was told to hold some, or it watches.
    ///
    /// [`Event::SessionClosed`]: crate::Event::SessionClosed
    #[must_use]
    pub fn knows_session(&self, session: SessionId) -> bool {
        // What a PG on its way to another reactor holds is not looked through.
        let moves = self.depart.is_some() || self.arrive.is_some();
        moves
            || self.backoffs.told.contains_key(&session)
            || self.held.iter().any(|r| r.session == session)
            || self.watches.knows(session)
    }

    /// The session is gone, and its client with what it held.
    pub(in crate::pg) fn forget_backoff(&mut self, session: SessionId) {
        self.backoffs.told.remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use super::number;
    use base::{PgId, PoolId};
    use std::collections::BTreeSet;

    #[test]
    fn pgs_of_a_session_never_share_a_number() {
        let pgs = (1..4).flat_map(|p| (0..300).map(move |seed| PgId { pool: PoolId(p), seed }));
        let all: Vec<u64> = pgs.flat_map(|pg| (1..5).map(move |n| number(pg, n))).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }
}
