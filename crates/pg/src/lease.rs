//! Read leases between OSDs, as the PGs of one reactor see them. They are granted in the OSD (`osd::core::lease`), and asked for
//! before each operation in `pg::ops::admit`.
//!
//! A lease is between two OSDs, not per PG. B asks A and notes when; A answers with the epoch of its map. Until
//! [`crate::limits::READ_LEASE`] after B asked, B may count A as not taking part in anything newer than that epoch: for
//! a PG that both serve this holds once B has processed the epoch too. So B, as primary, serves reads while every other
//! member of the acting set has a lease that lasts. A remembers until when B may count on it, and tells a new primary,
//! which waits that long before it serves.
//!
//! Invariant: who fills the view tells of a grant before it hands out a map newer than the grant's epoch.

use base::planted::{Bug, acts};
use base::{Epoch, Mono, OsdId};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A lease somebody gave this OSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Lasts until then: when this OSD asked, plus the lease.
    pub until: Mono,
    /// The granter's map when it answered.
    pub epoch: Epoch,
}

/// News about leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseUpdate {
    /// That OSD gave this one a lease.
    Held(OsdId, Held),
    /// This OSD gave that one a lease, which ends then by our clock: when it was asked, plus the lease.
    Granted(OsdId, Mono),
}

/// See the module. Shared by all PGs of a reactor.
#[derive(Debug, Default)]
pub struct LeaseView {
    held: RefCell<BTreeMap<OsdId, Held>>,
    granted: RefCell<BTreeMap<OsdId, Mono>>,
}

impl LeaseView {
    /// Takes news in. True if a lease that is held was renewed.
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

    /// Until when `peer`'s lease lasts for a PG whose newest processed map is `epoch`; `None` if it gave none that counts.
    #[must_use]
    pub fn held_until(&self, peer: OsdId, epoch: Epoch) -> Option<Mono> {
        self.held.borrow().get(&peer).filter(|h| h.epoch <= epoch || acts(Bug::LeaseWithoutEpoch)).map(|h| h.until)
    }

    /// Until when `peer` may count on this OSD.
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
