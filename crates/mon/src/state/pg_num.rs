//! Changes of a pool's number of PGs, one step each. `core::pool::pg_num` has their order.

use base::Epoch;
use cluster::PgPool;
use cluster::osdmap::interval::children;

/// Announces merges down to `soon` PGs, as of `epoch`.
pub(crate) fn set_pending(p: &mut PgPool, soon: u32, epoch: Epoch) {
    p.pg_num_pending = soon;
    // Clients before Nautilus do not know that this is a new interval.
    p.last_force_op_resend_prenautilus = epoch;
    p.last_force_op_resend_preluminous = epoch;
    p.last_change = epoch;
}

/// Gives a pool more PGs as of `epoch`.
pub(crate) fn set_pg_num(p: &mut PgPool, pg_num: u32, epoch: Epoch) {
    if p.pg_num != pg_num {
        p.pg_num = pg_num;
        p.pg_num_pending = pg_num;
        // Clients before Nautilus do not know that a split is a new interval.
        p.last_force_op_resend_prenautilus = epoch;
        p.last_force_op_resend_preluminous = epoch;
    }
    p.last_change = epoch;
}

/// True if a PG is about to be merged, as source or target, or is gone by a merge.
pub(crate) fn is_merged(p: &PgPool, seed: u32) -> bool {
    let soon = p.pg_num_pending.min(p.pg_num);
    seed >= soon || soon > 0 && soon < p.pg_num && children(seed, soon, p.pg_num).next().is_some()
}
