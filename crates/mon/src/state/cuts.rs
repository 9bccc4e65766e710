//! The cut links between OSDs; `core::osd::cuts` finds them.

use std::collections::{BTreeMap, BTreeSet};

use base::OsdId;

/// The cut links between OSDs. Volatile: another leader hears the reports again, and finds the OSDs down.
#[derive(Clone, Debug, Default)]
pub struct Cuts {
    /// Links whose ends both are in service.
    pub open: BTreeSet<(OsdId, OsdId)>,
    /// OSDs that were taken out of service, with the peers that they did not reach.
    pub out: BTreeMap<OsdId, BTreeSet<OsdId>>,
}

/// The OSDs' names for a sentence.
pub fn names(osds: &BTreeSet<OsdId>) -> String {
    osds.iter().map(OsdId::to_string).collect::<Vec<_>>().join(", ")
}
