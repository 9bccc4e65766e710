//! Primaries that are chosen by upmap: which clients, OSDs and monitors a map with them needs.
//!
//! Clients before Reef would compute other primaries. Reef's decode such a map by the version of its section, whatever
//! features the connection has.
//!
//! Invariants:
//!  1. No client before Reef has a session while the map has a chosen primary, or `require_min_compat_client` is Reef or
//!     newer.
//!  2. Every OSD that is up under such a map passes it on whole.
//!  3. Every monitor that runs when a primary is chosen can lead after.
//!
//! Tests: `tests/are_primaries_chosen_for_all.rs` (1, 2, `an_entry_waits_for_clients_and_osds_of_reef`; 3,
//! `an_entry_waits_for_all_monitors`).

use base::{EntityKind, OsdId};
use cluster::{OsdMap, release};
use wire::Features;
use wire::msg::PeerFeatures;

use super::records::CHOSEN_PRIMARIES;
use super::{ClusterState, SessionSummary};

/// The oldest release that uses chosen primaries.
pub(crate) const SINCE: u8 = release::REEF;

/// True if the map needs clients that use chosen primaries.
pub(crate) fn needs_new_clients(map: &OsdMap) -> bool {
    !map.pg_upmap_primaries.is_empty() || map.require_min_compat_client >= SINCE
}

/// The features that the map needs of clients, beyond those of every client.
#[must_use]
pub fn client_features(map: &OsdMap) -> Features {
    if needs_new_clients(map) { Features(Features::default().lacks_of_release(SINCE)) } else { Features::default() }
}

/// True if an entity of this kind places objects by the map as a client does.
pub(crate) fn is_client(kind: EntityKind) -> bool {
    !matches!(kind, EntityKind::OSD | EntityKind::MON)
}

/// The reason why a client may not have a session under the map, if there is one.
pub(crate) fn too_old(map: &OsdMap, kind: EntityKind, announced: Features) -> Option<String> {
    let lacks = announced.lacks_of_release(SINCE);
    (is_client(kind) && lacks != 0 && needs_new_clients(map)).then(|| {
        let looks = release_name(announced);
        format!("it looks like {looks} (lacks features {lacks:#x}), and the cluster requires clients of reef or newer")
    })
}

/// Name of the release that a client looks like.
pub(crate) fn release_name(announced: Features) -> &'static str {
    match announced.client_release() {
        0 if announced.has(1 << 58) => "jewel",
        0 => "unknown",
        // Octopus and Pacific look alike.
        16 => "pacific",
        r => release::name(r),
    }
}

/// The clients among the sessions that look older than a release: their number by kind and announced features.
pub(crate) fn older_clients<'a>(
    sessions: impl Iterator<Item = &'a SessionSummary>,
    wanted: u8,
) -> std::collections::BTreeMap<(EntityKind, u64), u64> {
    let mut old = std::collections::BTreeMap::new();
    for s in sessions.filter(|s| is_client(s.name.kind) && s.features.lacks_of_release(wanted) != 0) {
        *old.entry((s.name.kind, s.features.0)).or_default() += 1;
    }
    old
}

/// True if an OSD with these features in the OSD map passes on chosen primaries: ours by their own bit, Ceph's from Reef
/// on.
pub(crate) fn passes_on(features: u64) -> bool {
    let own = PeerFeatures::of_mask(features);
    own.has(PeerFeatures::PRIMARIES) || own == PeerFeatures::NONE && Features(features).serves_release(SINCE)
}

/// Key of the state's features that a monitor reads, in hexadecimal, in its metadata.
pub const STATE_FEATURES: &str = "state_features";

/// Error: the reason why OSDs or monitors do not allow chosen primaries, and what to do.
pub(crate) fn daemons_allow(state: &ClusterState, map: &OsdMap) -> Result<(), String> {
    osds_allow(map)?;
    let reads = |mon: &str| {
        let told = state.mons.metadata.get(mon).and_then(|m| m.get(STATE_FEATURES));
        told.and_then(|f| u64::from_str_radix(f, 16).ok()).is_some_and(|f| f & CHOSEN_PRIMARIES != 0)
    };
    match state.mons.up.iter().flatten().find(|mon| **mon != state.mon_name && !reads(mon)) {
        Some(mon) => Err(format!("mon.{mon} could not lead a cluster with chosen primaries: upgrade and restart it")),
        None => Ok(()),
    }
}

/// Error: the reason why the OSDs do not allow chosen primaries, and what to do.
fn osds_allow(map: &OsdMap) -> Result<(), String> {
    let osds = map.require_osd_release;
    if osds < SINCE {
        return Err(format!(
            "require_osd_release {} < reef, which is required for pg-upmap-primary: OSDs before reef would use other \
             primaries. Try 'ceph osd require-osd-release reef'",
            release::name(osds)
        ));
    }
    match older_osds(map).as_slice() {
        [] => Ok(()),
        [first, more @ ..] => {
            let others = if more.is_empty() { String::new() } else { format!(" and {} others", more.len()) };
            Err(format!("{first}{others} would not pass on chosen primaries: upgrade and restart"))
        }
    }
}

/// The OSDs that are up and would not pass on chosen primaries.
fn older_osds(map: &OsdMap) -> Vec<OsdId> {
    map.osds().filter(|o| map.is_up(*o) && !passes_on(map.xinfo(*o).features)).collect()
}
