//! Copies of PGs that failed: those that the run made fail, and others.

use base::PgId;
use base::errno::Errno;
use std::collections::BTreeSet;

/// Failed copies of a process; see the module.
#[derive(Default)]
pub(super) struct FailedCopies {
    /// Copies that the run made fail.
    made: BTreeSet<PgId>,
    /// Copies that failed without being made to.
    others: Vec<(PgId, Errno)>,
}

impl FailedCopies {
    /// Notes that the run makes a copy fail.
    pub(super) fn note_made(&mut self, pg: PgId) {
        self.made.insert(pg);
    }

    /// Notes a failed copy. A PG that is split off a failed copy fails with it.
    pub(super) fn note(&mut self, pg: PgId, e: Errno) {
        if !self.made.iter().any(|w| w.pool == pg.pool && descends(pg.seed, w.seed)) {
            self.others.push((pg, e));
        }
    }

    /// Takes the copies that failed without being made to.
    pub(super) fn take(&mut self) -> Vec<(PgId, Errno)> {
        std::mem::take(&mut self.others)
    }
}

/// True if PG `seed` is `ancestor`, or was split off it. Each split gives the child a higher bit.
fn descends(mut seed: u32, ancestor: u32) -> bool {
    while seed != ancestor {
        let Some(bit) = seed.checked_ilog2() else { return false };
        seed &= !(1 << bit);
    }
    true
}
