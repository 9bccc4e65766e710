//! Bugs planted on purpose, to prove that the simulator finds them.
//!
//! Without the feature `planted` [`acts`] is `false` for the compiler, and nothing of a bug is in the program. With it a bug acts
//! on a thread that named it with `plant`, and nowhere else.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// A write is answered when it is applied in memory, before it is durable.
    AckBeforeDurable,
    /// A resent operation is not recognised by its reqid.
    ForgetReqids,
    /// A replica says that a write is durable when it has it in memory.
    ReplicaAcksBeforeDurable,
    /// A new primary serves without waiting until leases of earlier intervals have run out.
    SkipPriorLeases,
    /// Leases know nothing of maps: they are granted to whom the map shows down, bring no maps along, and count although the
    /// receiver has not processed the map they were granted in.
    LeaseWithoutEpoch,
    /// A primary reads on when its leases have run out.
    ReadWithoutLease,
    /// A write is answered before all of the acting set have it.
    AckBeforeReplicas,
    /// A primary takes writes before the map shows its `up_thru`.
    SkipUpThru,
    /// Divergent log entries are kept when the authoritative log lacks them.
    KeepDivergent,
    /// A write below a new snapshot makes no clone.
    ForgetClone,
    /// A PG that is split off knows nothing of what the log says of its objects.
    SplitForgetsLog,
    /// A member takes watches for its own to end when it reads their objects.
    MembersEndWatches,
    /// A copy whose store or log failed tells nobody.
    FailedCopyStays,
    /// Who has the authoritative log is asked for it also when it is down.
    AskDeadForLog,
    /// Who holds a lease counts it as long as who gave it.
    LeaseWithoutMargin,
    /// Whether a log reaches that of the primary is judged by somebody else's.
    TailOfAuthority,
    /// A read at a snapshot answers with the user version of the head.
    HeadVersionAtSnapshot,
    /// An OSD speaks for whatever process the map shows under its number, and listens to any.
    ActAsPredecessor,
    /// An OSD takes a map from other OSDs that leaves out some.
    SkipMaps,
    /// A shard that an overwrite does not touch keeps the attributes of the version before.
    StaleUntouchedShard,
    /// A parity-delta write takes zeros for the data that it replaces.
    DeltaWithoutOld,
    /// The store acknowledges without the flush behind the frame.
    StoreSkipFlush,
    /// The store writes a checkpoint's root without the flush before it.
    StoreSkipRootFlush,
    /// The store gives freed blocks out before the checkpoint that frees them is durable.
    StoreEarlyRelease,
    /// The store's replay takes unconfirmed frames without looking at their data.
    StoreSkipDataCheck,
    /// The store does not count the second reference to a cloned block.
    StoreForgetReference,
    /// The store stores a page as it is, not as it was at the freeze.
    StoreLatePage,
    /// The store frees blocks that a log entry keeps.
    StoreFreeKept,
    /// Opening the store stops at a block of the log that can't be read, also where the log may have ended.
    StoreUnreadableLog,
    /// The store never writes down that its newest frame is durable.
    StoreForgetConfirm,
    /// Opening the store seals the log with a frame that may be the one it takes the place of.
    StoreSealAsCommit,
    /// Opening the store looks for later frames only right behind a break of its log.
    StoreShortLookAhead,
    /// The disk engine takes all writes that have completed for flushed.
    StoreAllFlushed,
    /// A page of metadata of the store's is written where the superblock is.
    StoreStrayPage,
    /// The store puts an omap that outgrows its onode into one leaf, whatever bounds pages above have: as its first versions did. For tests of
    /// what repairs it.
    StoreOmapAsOne,
}

/// Those of the store, which its own tests look for.
pub const STORE: [Bug; 13] = [
    Bug::StoreSkipFlush,
    Bug::StoreSkipRootFlush,
    Bug::StoreEarlyRelease,
    Bug::StoreSkipDataCheck,
    Bug::StoreForgetReference,
    Bug::StoreLatePage,
    Bug::StoreFreeKept,
    Bug::StoreUnreadableLog,
    Bug::StoreForgetConfirm,
    Bug::StoreSealAsCommit,
    Bug::StoreShortLookAhead,
    Bug::StoreAllFlushed,
    Bug::StoreStrayPage,
];

/// All planted bugs of what a cluster does.
pub const ALL: &[Bug] = &[
    Bug::AckBeforeDurable,
    Bug::ForgetReqids,
    Bug::ReplicaAcksBeforeDurable,
    Bug::SkipPriorLeases,
    Bug::LeaseWithoutEpoch,
    Bug::ReadWithoutLease,
    Bug::AckBeforeReplicas,
    Bug::SkipUpThru,
    Bug::KeepDivergent,
    Bug::ForgetClone,
    Bug::SplitForgetsLog,
    Bug::MembersEndWatches,
    Bug::FailedCopyStays,
    Bug::AskDeadForLog,
    Bug::LeaseWithoutMargin,
    Bug::TailOfAuthority,
    Bug::HeadVersionAtSnapshot,
    Bug::ActAsPredecessor,
    Bug::SkipMaps,
    Bug::StaleUntouchedShard,
    Bug::DeltaWithoutOld,
];

#[cfg(feature = "planted")]
thread_local! {
    static ACTING: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Makes `bug` act on this thread from now on, or none.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    ACTING.with(|a| a.set(bug));
}

/// True if the bug acts.
#[cfg(feature = "planted")]
#[must_use]
pub fn acts(bug: Bug) -> bool {
    ACTING.with(|a| a.get() == Some(bug))
}

/// True if the bug acts: never in this build.
#[cfg(not(feature = "planted"))]
#[inline(always)]
#[must_use]
pub const fn acts(_: Bug) -> bool {
    false
}
