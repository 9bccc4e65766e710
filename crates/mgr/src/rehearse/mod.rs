//! Rehearsal of a change of the OSD map: what moves, how full OSDs get, how long it takes, and what it endangers.
//!
//! [`settle`] follows a change to the map on which the cluster comes to rest: with what the balancer holds in place, after
//! the removal of upmaps that have become void, and with `pg_num` at its target. [`rehearse`] places every PG on the maps
//! before and after by the production mapping and compares that with where the data is. [`hosts_like`] makes the change
//! by which hosts join. Changes by commands come from the monitor, which runs the commands themselves.
//!
//! | module | contents |
//! | --- | --- |
//! | `grow` | the change by which new hosts join that are like a present one |
//! | `moves` | the copies that a change makes and leaves behind, and the copies that PGs have meanwhile |
//! | `report` | the result of a rehearsal: sums, the verdict with its reasons, a text and a tree |
//! | `settle` | from a change of the map to the map on which the cluster comes to rest |
//! | `steps` | a rehearsed change that is carried out in steps, and can be undone until it is committed |
//!
//! Invariants:
//!  1. Bytes are counted once for each copy or shard that is made where there is none.
//!  2. A copy counts as present only if the PG's report says that it is complete and its OSD is up in the map.
//!  3. What is not known (PGs without a report, OSDs without a size) is named, not left out.
//!
//! Tests: `src/rehearse/tests.rs` (1, `random_changes_move_what_the_model_says`; 2,
//! `copies_that_are_not_there_yet_do_not_serve`; 3, `moves_without_end_are_named`).

mod grow;
mod moves;
mod report;
mod settle;
pub mod steps;
#[cfg(test)]
mod tests;

pub use grow::{Grown, hosts_like};
pub use report::{Report, Verdict, duration};
pub use settle::{Settled, settle};

use base::{OsdId, PgId, PoolId};
use cluster::OsdMap;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes a second that an OSD is taken to receive if no rate was measured.
pub const ASSUMED_RATE: u64 = 50 << 20;

/// A PG by its report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgFacts {
    /// Bytes of its objects, with their keys and values.
    pub bytes: u64,
    /// OSDs with a complete copy, for coded pools by shard with holes.
    pub holders: Vec<OsdId>,
    /// True while it serves.
    pub active: bool,
}

/// The size and use of an OSD's store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OsdFacts {
    /// Bytes.
    pub total: u64,
    /// Bytes in use.
    pub used: u64,
}

/// The rate of recovery with which times are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Given by the operator, for the cluster.
    Given(u64),
    /// Measured in this cluster, so many seconds ago.
    Measured {
        /// Bytes a second.
        bytes: u64,
        /// Age of the measurement in seconds.
        age: u64,
    },
    /// [`ASSUMED_RATE`] for each OSD.
    Assumed,
}

/// The balancer's hold on PGs when OSDs join.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hold {
    /// Pools that are held; empty for all.
    pub pools: BTreeSet<PoolId>,
    /// The part of all objects that the balancer moves at a time.
    pub at_once: f64,
}

/// Knowledge of the cluster beside its map.
#[derive(Clone, Debug)]
pub struct Facts {
    /// PGs that have reported.
    pub pgs: BTreeMap<PgId, PgFacts>,
    /// OSDs with a known size.
    pub osds: BTreeMap<OsdId, OsdFacts>,
    /// Bytes that stores use for each byte of objects.
    pub overhead: f64,
    /// The rate of recovery.
    pub rate: Rate,
    /// The hold on PGs when OSDs join; `None` if it is off.
    pub hold: Option<Hold>,
}

impl Facts {
    /// True if a PG is held where it is when OSDs join.
    fn is_held(&self, pg: PgId) -> bool {
        let pools = self.hold.as_ref().map(|h| &h.pools);
        pools.is_some_and(|p| p.is_empty() || p.contains(&pg.pool)) && self.pgs.get(&pg).is_some_and(|s| s.bytes > 0)
    }
}

/// The overhead of stores: bytes that are in use for data per byte of objects, at least 1. What little data uses says
/// nothing: below a thousandth of the space it is 1.
#[must_use]
pub fn overhead(used_for_data: u64, of_objects: f64, space: u64) -> f64 {
    const MOST: f64 = 4.0;
    if of_objects * 1000.0 < space as f64 || of_objects <= 0.0 {
        return 1.0;
    }
    (used_for_data as f64 / of_objects).clamp(1.0, MOST)
}

/// Compares the map before a change with the one after it.
#[must_use]
pub fn rehearse(before: &OsdMap, settled: &Settled, facts: &Facts) -> Report {
    let mut report = Report::new(before, &settled.map, facts);
    moves::count(before, &settled.map, facts, &mut report);
    if let Some(free) = &settled.free {
        let mut all = Report::new(before, free, facts);
        moves::count(before, free, facts, &mut all);
        report.held = Some((settled.held, all.bytes.saturating_sub(report.bytes)));
    }
    report.judge(before, &settled.map, facts);
    report
}
