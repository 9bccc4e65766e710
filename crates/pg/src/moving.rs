//! Messages between the two machines of a PG while it moves to another reactor of its OSD.
//!
//! The source machine goes on serving and feeds the target machine like one more copy: objects one after the other,
//! and every change to what the target has. Then the source holds new messages and sends its state
//! ([`Move::Switch`]). The control machine tells every reactor, at one point in the sequence of maps, that the PG is
//! on the target from there on. The source forwards the messages it held ([`Move::Postponed`]).
//!
//! Two collections of an OSD never have the same name: a PG's collection has its own name or its [`staging_cid`], in
//! turns. A collection without a PG info, or with an empty one, is void: it is being filled or removed. While neither
//! is void, both have the same content, and neither is served.

use crate::event::{OpRequest, SessionId};
use crate::info::PgInfo;
use crate::log::PgLog;
use crate::merge_msg::MergeMsg;
use crate::pg::MemberState;
use crate::scrub::ScrubRequest;
use crate::stats::Counters;
use crate::watch::WatchTable;
use base::{Epoch, Mono, OsdId, ShardId, SpgId};
use store::{Cid, Op};
use wire::msg::MPgPeer;

/// The staging name of a replicated PG's collection: this number stands in place of the shard.
pub const SECOND: ShardId = ShardId(101);
/// The staging name of a shard's collection: this is added to the shard.
const SECOND_OF_SHARD: i8 = 64;

/// Most shards of a PG.
const SHARDS_MAX: i8 = 32;

/// The alternative name of a PG's collection; applied twice it gives the first name.
#[must_use]
pub fn staging_cid(cid: Cid) -> Cid {
    match cid {
        Cid::Pg(p) => {
            let shard = match p.shard {
                SECOND => ShardId::NONE,
                ShardId::NONE => SECOND,
                ShardId(s) => ShardId(s ^ SECOND_OF_SHARD),
            };
            Cid::Pg(SpgId { shard, ..p })
        }
        Cid::Meta => Cid::Meta,
    }
}

/// The PG that a collection belongs to, under either of its names; `None` for the meta collection.
#[must_use]
pub fn pg_of(cid: Cid) -> Option<SpgId> {
    match cid {
        Cid::Pg(p) if p.shard == SECOND => Some(SpgId { shard: ShardId::NONE, ..p }),
        Cid::Pg(p) if (SECOND_OF_SHARD..SECOND_OF_SHARD + SHARDS_MAX).contains(&p.shard.0) => {
            Some(SpgId { shard: ShardId(p.shard.0 - SECOND_OF_SHARD), ..p })
        }
        Cid::Pg(p) => Some(p),
        Cid::Meta => None,
    }
}

/// A message that came for a PG while it was moving.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "as the inputs of a PG")]
pub enum Postponed {
    Op(Box<OpRequest>),
    Peer { from: OsdId, msg: Box<MPgPeer> },
    Merge { from: SpgId, msg: Box<MergeMsg> },
    PeerReset(OsdId),
    SessionClosed(SessionId),
    Force(u8),
    Scrub(ScrubRequest),
}

/// State of a machine that is not in its collection. The machine is at rest: no operation is under way.
#[derive(Clone, Debug, PartialEq)]
pub struct Handover {
    /// The newest map that the source has processed.
    pub epoch: Epoch,
    pub(crate) info: PgInfo,
    pub(crate) log: PgLog,
    pub(crate) granted: crate::per_peer::PerOsd<Mono>,
    pub(crate) watches: WatchTable,
    pub(crate) interval: MemberState,
    pub(crate) counters: Counters,
    pub(crate) reported_seq: u64,
    pub(crate) created_told: bool,
    pub(crate) forced: u8,
}

impl Handover {
    /// `pg_num` of the pool.
    #[must_use]
    pub fn pg_num(&self) -> u32 {
        self.info.interval.pg_num
    }
}

/// A message of a move; see the module.
#[derive(Clone, Debug, PartialEq)]
pub enum Move {
    /// Host to source: begin the move.
    Begin,
    /// Source to target: create the collection.
    Settle {
        /// Name of the collection.
        cid: Cid,
        /// Number of hash bits that select the PG.
        bits: u32,
    },
    /// Source to target: changes, written as for the source's collection.
    Load {
        /// Number of the message, from 1 on.
        n: u64,
        /// The changes.
        ops: Vec<Op>,
    },
    /// Target to source: the changes up to this number are durable.
    Loaded {
        /// The number; 0: the collection exists.
        n: u64,
        /// The newest map the target has; the target keeps that one and later ones.
        epoch: Epoch,
    },
    /// Target to source: the target can't take the PG.
    Refuse,
    /// Source to target: the move is cancelled.
    CallOff,
    /// Source to target: all changes were sent, none will follow; this is the source's state.
    Switch(Box<Handover>),
    /// Target to host: the target has all content and state.
    Ready,
    /// Host to both: true: the PG is the target's from here on; false: the move is cancelled.
    Decided(bool),
    /// Target to source: the target's collection is complete and durable.
    Arrived,
    /// Host to source: all messages that reactors sent to the source have arrived.
    Flushed,
    /// Source to target: the messages held by the source, which is done with that.
    Postponed(Vec<Postponed>),
    /// Source's host to target: the source's collection is void.
    Void,
    /// Source or target to its host: the machine is no longer needed.
    Left {
        /// The machine created a collection, which the host must remove.
        made: bool,
    },
    /// Target to host: the target serves the PG.
    Here,
    /// Source to host: the move is cancelled, and the PG stays.
    Stays,
}

impl Move {
    /// True for messages that the target sends to the source.
    #[must_use]
    pub fn is_for_source(&self) -> bool {
        matches!(self, Self::Loaded { .. } | Self::Refuse | Self::Arrived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::PgId;

    #[test]
    fn a_collection_alternates_between_two_names() {
        for shard in [-1, 0, 1, 31] {
            let spg = SpgId { pg: PgId::new(1, 5), shard: ShardId(shard) };
            let (a, b) = (Cid::Pg(spg), staging_cid(Cid::Pg(spg)));
            assert_ne!(a, b);
            assert_eq!(staging_cid(b), a);
            assert_eq!((pg_of(a), pg_of(b)), (Some(spg), Some(spg)));
        }
    }
}
