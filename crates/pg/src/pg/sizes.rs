//! How much memory a machine takes by itself: a thousand of them are at rest on an OSD.

use super::*;

#[test]
fn a_machine_is_small() {
    macro_rules! sizes {
        ($($t:ty),* $(,)?) => { [$((size_of::<$t>(), stringify!($t))),*] };
    }
    let mut parts = sizes!(
        Pg, PgConfig, Oid, State, Option<MapView>, join::Joins, leave::Cargo, Option<Leaver>, PgInfo, wire::types::PgHistory,
        crate::stats::StatSum, PgLog, ContextCache, WatchTable, HashMap<HObject, ObjectLock, FxBuildHasher>, Backoffs,
        Commit, Peers, peers::Member, super::reserve::Reservation, Option<super::reserve::Lent>, super::scrub::Scrub,
        super::damage::Damage, super::lost::Lost, crate::interval::Prior, Trim, Counters, report::Stamps, Plan, HObject,
        Option<crate::scrub::ScrubRequest>, crate::scrub::report::Findings,
    );
    parts.sort_unstable_by(|a, b| b.cmp(a));
    assert!(size_of::<Pg>() <= 2560, "bytes of it and of what is in it: {parts:#?}");
}
