//! OSDs that share PGs with this one, as the control machine is told.

use super::Pgs;
use crate::core::control::Report;
use base::OsdId;
use pg::Pg;
use std::collections::BTreeSet;

/// Last report of the members of PGs; see the module.
#[derive(Default)]
pub(super) struct Members {
    /// True if they may have changed since the last report.
    noted: bool,
    /// [`Pgs::pg_peers`] as last reported.
    told: (BTreeSet<OsdId>, BTreeSet<OsdId>),
}

impl Members {
    /// True if the members of PGs may have changed since the last report.
    pub(super) fn is_noted(&self) -> bool {
        self.noted
    }
}

impl Pgs {
    /// OSDs that share PGs with this one on this reactor, and those whose leases PGs led here need.
    #[must_use]
    pub fn pg_peers(&self) -> (BTreeSet<OsdId>, BTreeSet<OsdId>) {
        let led = self.lease_peers();
        let mut all: BTreeSet<OsdId> = self.pgs.values().flat_map(|p| p.others().iter().copied()).collect();
        all.extend(self.pgs.values().flat_map(Pg::up).copied().filter(|o| *o != self.whoami() && *o != OsdId::NONE));
        all.extend(led.iter().copied());
        (all, led)
    }

    /// Reports [`Pgs::pg_peers`], if they have changed since the last report.
    pub fn news_of_pg_peers(&mut self) -> Option<Report> {
        self.members.noted = false;
        let now = self.pg_peers();
        if self.members.told == now {
            return None;
        }
        self.members.told.clone_from(&now);
        Some(Report::PgPeers(now.0, now.1))
    }

    /// OSDs whose leases PGs of this reactor need: the other members of every acting set led here.
    #[must_use]
    pub fn lease_peers(&self) -> BTreeSet<OsdId> {
        self.pgs.values().filter(|p| p.is_member()).flat_map(|p| p.others().iter().copied()).collect()
    }

    /// Has the peers reported once, if they have changed, however many PGs change before the next output.
    pub(crate) fn note_members(&mut self) {
        self.members.noted = true;
    }
}
