//! Read leases between OSDs, as the PGs of one reactor see them. `osd::core::lease` grants them; `pg::pg::mail::admit`
//! checks them before each operation.
//!
//! A lease is between two OSDs, not per PG. OSD B asks OSD A and notes the time; A answers with the epoch of its map.
//! Until [`crate::limits::READ_LEASE`] after B asked, A takes part in no interval newer than that epoch. For a PG of
//! both, B may rely on this once B has processed the epoch too. So B, as primary, serves reads while every other
//! member of the acting set has a lease that lasts. A remembers how long B may rely on it and tells a new primary,
//! which waits that long before it serves.
//!
//! Invariant: the host adds a grant to the view before it hands out a map newer than the grant's epoch.
//!
//! Tests: `crates/sim/tests/are_planted_bugs_found.rs` (`leases_of_an_earlier_interval_that_are_not_waited_for`), with
//! the simulator's host. A reactor of the real host gets grants and maps by one queue.

use base::planted::{Bug, acts};
use base::{Epoch, Mono, OsdId};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A lease that another OSD granted to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// End of the lease: the time when this OSD asked, plus the lease.
    pub until: Mono,
    /// Epoch of the granter's map when it answered.
    pub epoch: Epoch,
}

/// A lease that was granted or received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseUpdate {
    /// The named OSD granted a lease to this one.
    Held(OsdId, Held),
    /// This OSD granted a lease to the named one. It ends at this time of the local clock: when the question came,
    /// plus the lease.
    Granted(OsdId, Mono),
}

/// The leases held and granted by this OSD, shared by all PGs of a reactor; see the module.
#[derive(Debug, Default)]
pub struct LeaseView {
    held: RefCell<BTreeMap<OsdId, Held>>,
    granted: RefCell<BTreeMap<OsdId, Mono>>,
}

impl LeaseView {
    /// Records a lease. Returns true if a lease that this OSD holds was renewed.
    pub fn update(&self, u: LeaseUpdate) -> bool {
        match u {
            LeaseUpdate::Held(osd, h) => {
                let mut held = self.held.borrow_mut();
                let slot = held.entry(osd).or_insert(h);
                let newer = h.until >= slot.until;
                if newer {
                    *slot = h;
                }
                newer
            }
            LeaseUpdate::Granted(osd, until) => {
                let mut granted = self.granted.borrow_mut();
                let slot = granted.entry(osd).or_insert(until);
                *slot = (*slot).max(until);
                false
            }
        }
    }

    /// End of the lease that `peer` granted, for a PG whose newest processed map is `epoch`; `None` if no granted
    /// lease counts.
    #[must_use]
    pub fn held_until(&self, peer: OsdId, epoch: Epoch) -> Option<Mono> {
        self.held.borrow().get(&peer).filter(|h| h.epoch <= epoch || acts(Bug::LeaseWithoutEpoch)).map(|h| h.until)
    }

    /// Time until which `peer` may rely on a lease of this OSD.
    #[must_use]
    pub fn granted_until(&self, peer: OsdId) -> Option<Mono> {
        self.granted.borrow().get(&peer).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_counts_once_its_map_is_processed_and_never_shrinks() {
        let v = LeaseView::default();
        assert!(v.update(LeaseUpdate::Held(OsdId(1), Held { until: Mono(50), epoch: Epoch(7) })));
        assert_eq!(v.held_until(OsdId(1), Epoch(6)), None);
        assert_eq!(v.held_until(OsdId(1), Epoch(7)), Some(Mono(50)));
        assert!(!v.update(LeaseUpdate::Held(OsdId(1), Held { until: Mono(40), epoch: Epoch(6) })));
        assert_eq!(v.held_until(OsdId(1), Epoch(7)), Some(Mono(50)));
        v.update(LeaseUpdate::Granted(OsdId(2), Mono(9)));
        v.update(LeaseUpdate::Granted(OsdId(2), Mono(8)));
        assert_eq!(v.granted_until(OsdId(2)), Some(Mono(9)));
    }
}
