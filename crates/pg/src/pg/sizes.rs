//! Bounds the memory of a machine, since an OSD has about a thousand idle ones.

use super::*;

#[test]
fn a_machine_is_small() {
    macro_rules! sizes {
        ($($t:ty),* $(,)?) => { [$((size_of::<$t>(), stringify!($t))),*] };
    }
    let mut parts = sizes!(
        Pg, PgConfig, Oid, State, Option<MapView>, crate::pg::resize::merge_target::Merges, crate::pg::resize::merge_source::Sending, Option<Leaver>, PgInfo, wire::types::PgHistory,
        crate::stats::StatSum, PgLog, ContextCache, WatchTable, HashMap<HObject, ObjectLock, FxBuildHasher>, Backoffs,
        Commit, Peers, crate::pg::peering::session::Member, crate::pg::recovery::reserve::Reservation, Option<crate::pg::recovery::reserve::Lent>, crate::pg::scrub::lead::Scrub,
        crate::pg::recovery::unreadable::Damage, crate::pg::recovery::unfound::Lost, crate::interval::Prior, Trim, Counters, report::Stamps, Plan, HObject,
        Option<crate::scrub::ScrubRequest>, crate::scrub::report::Findings,
    );
    parts.sort_unstable_by(|a, b| b.cmp(a));
    assert!(size_of::<Pg>() <= 2648, "bytes of it and of what is in it: {parts:#?}");
}
