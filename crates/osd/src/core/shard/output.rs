//! What a shard wants done.

use crate::core::session::SessionInfo;
use base::errno::Errno;
use base::{Epoch, Eversion, OsdId, PgId, SpgId};
use bytes::Bytes;
use pg::{Fetch, Kin, Lane, LogLevel, Move, SessionId};
use std::sync::Arc;
use wire::msg::{MOsdBackoff, MOsdOp, MOsdOpReply, MPgPeer, MWatchNotify};

/// What the host has to do.
#[derive(Debug)]
pub enum Output {
    /// Answer an operation.
    Reply(SessionId, Box<MOsdOpReply>),
    /// Tell a watcher or notifier; the last is the data segment.
    Watch(SessionId, Box<MWatchNotify>, Bytes),
    /// Tell a client to hold its operations on a PG, or to go on.
    Backoff(SessionId, Box<MOsdBackoff>),
    /// That operation will not be answered.
    Dropped(SessionId, u64),
    /// Close that session: too much of it waits. Its client connects again and repeats what had no answer.
    Close(SessionId),
    /// The map must show `up_thru`.
    WantUpThru(Epoch),
    /// A newer map is needed.
    WantMap(Epoch),
    /// The acting set that should serve a PG for now; empty: CRUSH's own.
    WantPgTemp(PgId, Vec<OsdId>),
    /// Tell another OSD.
    Peer {
        /// Whom.
        to: OsdId,
        /// Which way.
        lane: Lane,
        /// What.
        msg: Box<MPgPeer>,
    },
    /// Write a line to the cluster log.
    Log(LogLevel, String),
    /// A message for a PG that is on another reactor.
    PeerElsewhere(usize, OsdId, Box<MPgPeer>),
    /// What one PG says to another one of this OSD, which is on another reactor.
    KinElsewhere(usize, SpgId, SpgId, Box<Kin>),
    /// A PG of this reactor should be on that one.
    WantMove(PgId, usize),
    /// What a PG's machine says to the one on that reactor.
    Move(usize, SpgId, Box<Move>),
    /// A PG that comes here from there can be decided about.
    MoveReady {
        /// Which one.
        pg: PgId,
        /// From where.
        from: usize,
        /// PGs of its pool when it was held.
        pg_num: u32,
    },
    /// Nothing more is sent to that reactor for a PG that has moved.
    MoveSeen(usize, PgId),
    /// A PG that was to go has gone, or stays.
    MoveOver(PgId),
    /// Nothing is left of PGs that were moved before the start.
    Swept,
    /// A PG may be joined with another one.
    ReadyToMerge(PgId, Ready),
    /// PGs of that reactor may recover: [`super::Shard::reserved`].
    Reserved(usize),
    /// An operation for a PG that is on another reactor.
    OpElsewhere(usize, Arc<SessionInfo>, Box<MOsdOp>),
    /// [`super::Shard::pg_peers`] may have changed.
    Members,
    /// A PG exists.
    Created(PgId),
    /// Read an object elsewhere.
    Fetch(PgId, Box<Fetch>),
    /// The copy of a PG on this reactor failed, which is no word on the others.
    PgFailed(PgId, Errno),
    /// All PGs have finished after [`super::Shard::stop`].
    Stopped,
}

/// What a PG that may be joined with another one says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The map it had then.
    pub epoch: Epoch,
    /// Its newest version.
    pub version: Eversion,
    /// As in its history.
    pub last_epoch_started: Epoch,
    /// As in its history.
    pub last_epoch_clean: Epoch,
}

/// Counters of operations, for `perf dump`.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpCounters {
    /// Operations received.
    pub op: u64,
    /// Those that read.
    pub op_r: u64,
    /// Those that write.
    pub op_w: u64,
    /// Bytes received.
    pub op_in_bytes: u64,
    /// Bytes sent.
    pub op_out_bytes: u64,
    /// Refused for want of caps.
    pub op_denied: u64,
    /// Dropped because another OSD serves them.
    pub op_misdirected: u64,
}
