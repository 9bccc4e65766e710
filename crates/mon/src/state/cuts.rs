//! The cut links between OSDs; `core::osd::cuts` finds them.

use std::collections::{BTreeMap, BTreeSet};

use base::OsdId;
use cluster::OsdMap;

/// The cut links between OSDs. Volatile: another leader hears the reports again, and finds the OSDs down.
#[derive(Clone, Debug, Default)]
pub struct Cuts {
    /// Links whose ends both are in service.
    open: BTreeSet<(OsdId, OsdId)>,
    /// OSDs that were taken out of service, with the peers that they did not reach.
    out: BTreeMap<OsdId, BTreeSet<OsdId>>,
}

impl Cuts {
    /// The links whose ends both are in service.
    #[must_use]
    pub fn open(&self) -> &BTreeSet<(OsdId, OsdId)> {
        &self.open
    }

    /// The OSDs that were taken out of service, with the peers that they did not reach.
    #[must_use]
    pub fn out(&self) -> &BTreeMap<OsdId, BTreeSet<OsdId>> {
        &self.out
    }

    /// Sets the links whose ends both are in service, and forgets OSDs that are back or removed.
    pub(crate) fn update(&mut self, open: &BTreeSet<(OsdId, OsdId)>, map: &OsdMap) {
        self.out.retain(|o, _| map.exists(*o) && map.is_down(*o));
        if *open != self.open {
            self.open.clone_from(open);
        }
    }

    /// Notes that an OSD is taken out of service since it does not reach these peers.
    pub(crate) fn take_out(&mut self, osd: OsdId, peers: BTreeSet<OsdId>) {
        self.open.retain(|(a, b)| *a != osd && *b != osd);
        self.out.insert(osd, peers);
    }
}

/// The OSDs' names for a sentence.
pub fn names(osds: &BTreeSet<OsdId>) -> String {
    osds.iter().map(OsdId::to_string).collect::<Vec<_>>().join(", ")
}
