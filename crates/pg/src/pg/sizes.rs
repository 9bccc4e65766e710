//! How much memory a machine takes by itself: a thousand of them are at rest on an OSD.

use super::*;

#[test]
fn a_machine_is_small() {
    macro_rules! sizes {
        ($($t:ty),* $(,)?) => { $(println!("{:6} {}", size_of::<$t>(), stringify!($t));)* };
    }
    sizes!(
        Pg, PgConfig, Oid, State, Option<MapView>, join::Joins, leave::Cargo, Option<Leaver>, PgInfo, wire::types::PgHistory,
        crate::stats::StatSum, PgLog, ContextCache, WatchTable, HashMap<HObject, ObjectLock, FxBuildHasher>, Backoffs,
        Commit, Peers, peers::Member, super::reserve::Reservation, Option<super::reserve::Lent>, super::scrub::Scrub,
        super::damage::Damage, super::lost::Lost, crate::interval::Prior, Trim, Counters, report::Stamps, Plan, HObject,
        Option<crate::scrub::ScrubRequest>, crate::scrub::report::Findings,
    );
    assert!(size_of::<Pg>() <= 3072, "{}", size_of::<Pg>());
}
