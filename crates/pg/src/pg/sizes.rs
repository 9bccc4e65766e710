//! Bounds the memory of a machine, since an OSD has about a thousand idle ones.

use super::*;

#[test]
fn a_machine_is_small() {
    macro_rules! sizes {
        ($($t:ty),* $(,)?) => { [$((size_of::<$t>(), stringify!($t))),*] };
    }
    let mut parts = sizes!(
        Pg,
        PgConfig,
        Life,
        Relocate,
        Surroundings,
        Plans,
        EcState,
        Maps,
        Mail,
        Recovery,
        Peers,
        Journal,
        WatchTable,
        Report,
        Scrub,
        Resize,
        Oid,
        State,
        PgInfo,
        wire::types::PgHistory,
        crate::stats::StatSum,
        crate::log::PgLog,
        crate::object::ContextCache,
        journal::commit::Commit,
        peering::Member,
        recovery::reserve::Reservation,
        Option<recovery::reserve::Lent>,
        recovery::unreadable::Damage,
        recovery::unfound::Lost,
        Counters,
        crate::interval::Prior,
        ops::trim::Trim,
        ops::plan::Plan,
        base::HObject,
        crate::scrub::report::Findings,
    );
    parts.sort_unstable_by(|a, b| b.cmp(a));
    assert!(size_of::<Pg>() <= 2648, "bytes of it and of what is in it: {parts:#?}");
}
