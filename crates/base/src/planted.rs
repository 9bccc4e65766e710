//! Bugs planted on purpose, to prove that the simulator finds them.
//!
//! Without the feature `planted`, [`acts`] is the constant `false` and no bug is compiled in. With the feature,
//! a bug acts only on a thread that has named it with `plant`.

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// A write is answered when it is applied in memory, before it is durable.
    AckBeforeDurable,
    /// A resent operation is not recognised by its reqid.
    ForgetReqids,
    /// A replica acknowledges a write that is only in its memory.
    ReplicaAcksBeforeDurable,
    /// A new primary serves without waiting until the leases of earlier intervals have expired.
    SkipPriorLeases,
    /// Leases ignore maps. They are granted to OSDs that the map shows down, bring no maps along, and count
    /// before the receiver has processed the map they were granted in.
    LeaseWithoutEpoch,
    /// A primary goes on reading when its leases have expired.
    ReadWithoutLease,
    /// A write is answered before the whole acting set has it.
    AckBeforeReplicas,
    /// A primary takes writes before the map shows its `up_thru`.
    SkipUpThru,
    /// Divergent log entries are kept when the authoritative log lacks them.
    KeepDivergent,
    /// A write below a new snapshot makes no clone.
    ForgetClone,
    /// A PG that is split off lacks the log entries of its objects.
    SplitForgetsLog,
    /// A replica ends watches itself when it reads the watched objects, which is the primary's task.
    MembersEndWatches,
    /// A copy whose store or log failed reports that to no one.
    FailedCopyStays,
    /// The primary requests the authoritative log even from an OSD that is down.
    AskDeadForLog,
    /// The holder of a lease counts it for as long as the granter does, without the safety margin.
    LeaseWithoutMargin,
    /// The primary compares a peer's log with the tail of the authoritative log instead of its own.
    TailOfAuthority,
    /// A read at a snapshot answers with the user version of the head.
    HeadVersionAtSnapshot,
    /// An OSD speaks for whatever process the map shows under its number, and accepts messages of any.
    ActAsPredecessor,
    /// An OSD accepts from another OSD a full map that skips epochs.
    SkipMaps,
    /// An OSD that skips trimmed maps takes the interval that it knows for the last one before the next map.
    ForgetMapGaps,
    /// A shard that an overwrite spares keeps the attributes of the previous version.
    StaleUntouchedShard,
    /// Peering counts a shard as lacking every entry that its log lacks, even entries that spare it.
    ForgetDeferred,
    /// A parity-delta write takes zeros for the data that it replaces.
    DeltaWithoutOld,
    /// Recovery and backfill give a shard writes that may have to be undone.
    RecoverUnstable,
    /// A leader's transactions carry no fence.
    LeaderWithoutFence,
    /// A front monitor continues with a new watch after one was lost, without reading the changes in between.
    IgnoreWatchGap,
    /// A monitor answers a change of unknown outcome as one that failed.
    UnknownIsFailure,
    /// The addresses of an MDS that loses its rank are not blocklisted.
    MdsWithoutFence,
    /// A receiver ignores the later parts of a push.
    ForgetPush,
    /// The monitor ignores links that are cut between two OSDs.
    IgnoreCutLinks,
    /// An OSD boots again although it misses a peer that it had reported.
    BootDespiteCut,
    /// An OSD does not notice that its device gives no answer.
    IgnoreSilence,
    /// An OSD boots although its device gives no answer.
    BootInSilence,
    /// Writes that wait for space go on waiting when their pool has space again.
    ForgetSpace,
    /// The monitor keeps a temporary primary whatever its PG asks for, and whatever acting set the PG has.
    KeepPrimaryTemp,
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
    /// The store writes a page as it is at the time of the write, not as it was at the freeze.
    StoreLatePage,
    /// The store frees blocks that a log entry keeps.
    StoreFreeKept,
    /// Opening the store stops at an unreadable block of the log even where the log may have ended.
    StoreUnreadableLog,
    /// The store never records that its newest frame is durable.
    StoreForgetConfirm,
    /// Opening the store seals the log with a frame that may equal the one it overwrites.
    StoreSealAsCommit,
    /// Opening the store looks for later frames only directly behind a break of its log.
    StoreShortLookAhead,
    /// The disk engine counts all completed writes as flushed.
    StoreAllFlushed,
    /// The store writes a metadata page over the superblock.
    StoreStrayPage,
    /// The store puts an omap that outgrows its onode into one leaf, whatever the lower bounds of the pages
    /// above. Used by the tests of the repair.
    StoreOmapAsOne,
}

/// Bugs of the store, which the store's tests look for.
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

/// All planted bugs of the cluster's behaviour.
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
    Bug::ForgetMapGaps,
    Bug::StaleUntouchedShard,
    Bug::ForgetDeferred,
    Bug::DeltaWithoutOld,
    Bug::RecoverUnstable,
    Bug::LeaderWithoutFence,
    Bug::IgnoreWatchGap,
    Bug::UnknownIsFailure,
    Bug::MdsWithoutFence,
    Bug::ForgetPush,
    Bug::IgnoreCutLinks,
    Bug::BootDespiteCut,
    Bug::IgnoreSilence,
    Bug::BootInSilence,
    Bug::ForgetSpace,
    Bug::KeepPrimaryTemp,
];

#[cfg(feature = "planted")]
thread_local! {
    static ACTING: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Makes `bug` act on this thread, or no bug.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    ACTING.with(|a| a.set(bug));
}

/// True if the bug acts on this thread.
#[cfg(feature = "planted")]
#[must_use]
pub fn acts(bug: Bug) -> bool {
    ACTING.with(|a| a.get() == Some(bug))
}

/// Always false: this build has no planted bugs.
#[cfg(not(feature = "planted"))]
#[inline(always)]
#[must_use]
pub const fn acts(_: Bug) -> bool {
    false
}
