//! The kinds of faults, and in which groups seeds draw them.

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// An OSD's process is killed and started again.
    Kill,
    /// An OSD's host loses power: its disk loses unflushed writes.
    PowerCut,
    /// An OSD dies right after one of its next disk requests completed.
    CrashAtStep,
    /// An OSD stops and starts in order.
    Restart,
    /// The monitor dies and starts again.
    MonCrash,
    /// A client dies; the outcome of its operations in flight stays unknown.
    ClientCrash,
    /// A process stands still for a while.
    Pause,
    /// No message passes between two groups of nodes.
    Partition,
    /// Messages pass between two nodes in one direction only.
    OneWay,
    /// An OSD is cut off from the monitor only.
    CutFromMon,
    /// Connections break.
    Reset,
    /// A link is slow for a while.
    Slow,
    /// A disk is slow for a while.
    SlowDisk,
    /// A disk refuses writes until its OSD was started again.
    WriteError,
    /// The wall clock of a node jumps.
    ClockJump,
    /// `osd reweight`.
    Reweight,
    /// `osd out`, later `osd in`.
    OutIn,
    /// `osd down`, although it runs.
    MarkDown,
    /// A cluster flag is set and later unset.
    Flag,
    /// A pool is made, written to and removed.
    PoolChurn,
    /// The pool gets more PGs.
    PgNum,
    /// The pool gets fewer PGs.
    PgShrink,
    /// An OSD is cut off with some clients that get no map either, and the others go on without it.
    Isolate,
    /// Blocks with objects' data on a disk rot: on one OSD of a run only.
    Rot,
    /// A foreign object fills an OSD's store, nearly or to the last block, and is removed again.
    Full,
    /// The members of a PG die one after the other; each comes back when the next has died.
    Turns,
    /// The hosts of all members of a PG lose power at once, and come back one after the other.
    Blackout,
    /// The primary of a PG dies after a while in which clients heard it and other OSDs did not.
    LastWords,
    /// A PG's copy on an OSD fails, as if its log were unreadable; the OSD restarts later.
    FailCopy,
    /// All members of a PG are out, and a stray that is asked for its log dies before it gets the request.
    Exile,
    /// The members of a PG die, except for one that is cut off. It gets the later maps from other OSDs first, and from
    /// the monitor later.
    Hearsay,
    /// One of several monitors stands still.
    MonPause,
    /// No message passes between one of several monitors and some of the others.
    MonApart,
    /// One of several monitors is cut off from the state that they share.
    StateCut,
    /// All monitors are cut off from the state.
    StateGone,
    /// The leader cannot renew its lease, and its requests to the state wait on their way. They arrive when another
    /// monitor is elected, before that has written anything.
    StateLate,
    /// An MDS dies and starts again.
    MdsKill,
    /// An MDS stands still.
    MdsPause,
    /// No message passes between an MDS and the monitors, though OSDs hear it.
    MdsApart,
    /// The file system gets a second rank, and loses it again.
    MdsRanks,
    /// Some messages between OSDs end their session instead of arriving, as one that the receiver refuses does.
    Lose,
    /// No message passes between an OSD and one other, or some, for long, in one direction or both; all reach the
    /// monitors.
    CutPair,
    /// A disk does not answer for up to a minute.
    StuckDisk,
    /// The operator overrides where a PG is, or which copy leads it; later all overrides end.
    Place,
    /// An OSD is away until its copies are elsewhere and the maps since are trimmed. Then it returns alone.
    LongGone,
}

/// Kinds that every seed may draw; one list for all of them, because a new one changes the histories of all seeds.
pub(super) const COMMON: [Fault; 20] = [
    Fault::Kill,
    Fault::PowerCut,
    Fault::CrashAtStep,
    Fault::Restart,
    Fault::MonCrash,
    Fault::ClientCrash,
    Fault::Pause,
    Fault::Partition,
    Fault::OneWay,
    Fault::CutFromMon,
    Fault::Reset,
    Fault::Slow,
    Fault::SlowDisk,
    Fault::WriteError,
    Fault::ClockJump,
    Fault::Reweight,
    Fault::OutIn,
    Fault::MarkDown,
    Fault::Flag,
    Fault::PoolChurn,
];

/// Kinds that are drawn separately, so that the runs of seeds without them do not change.
const APART: [Fault; 25] = [
    Fault::PgNum,
    Fault::PgShrink,
    Fault::Isolate,
    Fault::Rot,
    Fault::Full,
    Fault::Turns,
    Fault::Blackout,
    Fault::LastWords,
    Fault::FailCopy,
    Fault::Exile,
    Fault::Hearsay,
    Fault::MonPause,
    Fault::MonApart,
    Fault::StateCut,
    Fault::StateGone,
    Fault::StateLate,
    Fault::MdsKill,
    Fault::MdsPause,
    Fault::MdsApart,
    Fault::MdsRanks,
    Fault::Lose,
    Fault::CutPair,
    Fault::StuckDisk,
    Fault::Place,
    Fault::LongGone,
];

/// All kinds.
pub fn all_faults() -> impl Iterator<Item = Fault> {
    COMMON.into_iter().chain(APART)
}

/// Faults of monitors that seeds draw. None of them affects an OSD.
pub const OF_MONITORS: [Fault; 5] =
    [Fault::MonCrash, Fault::MonPause, Fault::MonApart, Fault::StateCut, Fault::StateGone];

/// Faults of MDS daemons.
pub const OF_FILES: [Fault; 4] = [Fault::MdsKill, Fault::MdsPause, Fault::MdsApart, Fault::MdsRanks];

/// Faults of several steps against one PG, which are drawn separately.
pub const PLOTS: [Fault; 3] = [Fault::Turns, Fault::Blackout, Fault::LastWords];

impl Fault {
    /// True if the fault moves PGs between OSDs for good, so that their data must follow.
    #[must_use]
    pub fn moves_data(self) -> bool {
        matches!(self, Self::Reweight | Self::OutIn | Self::PgNum | Self::PgShrink | Self::Exile)
    }
}
