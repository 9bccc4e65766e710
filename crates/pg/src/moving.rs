//! What the two machines of a PG say to each other while it moves to another reactor of its OSD.
//!
//! The PG goes on serving where it is, and the other machine is fed like one more copy: with the objects one after the other,
//! and with every change of what it has already. Then the first one holds what comes, says all it knows ([`Move::Switch`]), and
//! the control machine tells every reactor at one place in the row of maps where the PG is from now on. What was held goes
//! along ([`Move::Late`]).
//!
//! At no time do two collections of an OSD have the same name: a PG's is its own name or its [`second_name`], in turns. One that
//! has no PG info, or an empty one, is void: it is not filled yet, or is being removed. While two are not void, both are the
//! same, and neither is served.

use crate::event::{OpRequest, SessionId};
use crate::info::PgInfo;
use crate::kin::Kin;
use crate::log::PgLog;
use crate::pg::MemberState;
use crate::scrub::ScrubRequest;
use crate::stats::Counters;
use crate::watch::WatchTable;
use base::{Epoch, Mono, OsdId, ShardId, SpgId};
use store::{Cid, Op};
use wire::msg::MPgPeer;

/// Instead of a shard's number in the name of a collection: the second name of a PG of whole copies.
pub const SECOND: ShardId = ShardId(101);
/// Added to the shard's number: the second name of a shard.
const SECOND_OF_SHARD: i8 = 64;

/// Shards of a PG, at most.
const SHARDS_MAX: i8 = 32;

/// The other name that the collection of a PG may have.
#[must_use]
pub fn second_name(cid: Cid) -> Cid {
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

/// The PG whose collection that is, whichever of its names it has.
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

/// What came for a PG while it was being moved.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "as the inputs of a PG")]
pub enum Late {
    Op(Box<OpRequest>),
    Peer { from: OsdId, msg: Box<MPgPeer> },
    Kin { from: SpgId, kin: Box<Kin> },
    PeerReset(OsdId),
    SessionClosed(SessionId),
    Force(u8),
    Scrub(ScrubRequest),
}

/// What a machine knows that is not in its collection. It was at rest: nothing was under way.
#[derive(Clone, Debug, PartialEq)]
pub struct Luggage {
    /// The newest map it had handled.
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

impl Luggage {
    /// PGs of the pool.
    #[must_use]
    pub fn pg_num(&self) -> u32 {
        self.info.interval.pg_num
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub enum Move {
    /// Host to source: begin.
    Begin,
    /// Source to target: make the collection.
    Settle {
        /// Its name.
        cid: Cid,
        /// Bits of its hashes.
        bits: u32,
    },
    /// Source to target: changes, as if in the source's collection.
    Load {
        /// Number, from 1 on.
        n: u64,
        /// The changes.
        ops: Vec<Op>,
    },
    /// Target to source: what had numbers up to this one is durable.
    Loaded {
        /// The number; 0: the collection is made.
        n: u64,
        /// The newest map the target has; it keeps that and what follows.
        epoch: Epoch,
    },
    /// Target to source: it can't be.
    Refuse,
    /// Source to target: it is off.
    CallOff,
    /// Source to target: that was all, and nothing changes any more.
    Switch(Box<Luggage>),
    /// Target to host: this machine has all.
    Ready,
    /// Host to both: the PG is the target's from now on, or it is not to be.
    Decided(bool),
    /// Target to source: the collection is whole, and that is durable.
    Arrived,
    /// Host to source: nobody sends anything here any more.
    Flushed,
    /// Source to target: what came meanwhile. The source is done.
    Late(Vec<Late>),
    /// Source's host to target: the source's collection is void.
    Void,
    /// Either to its host: the machine is not needed any more.
    Left {
        /// It made a collection, which is to be removed.
        made: bool,
    },
    /// Target to host: the PG is served here.
    Here,
    /// Source to host: it is off, and the PG stays.
    Stays,
}

impl Move {
    /// For the machine that gives.
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
    fn a_collection_has_two_names_in_turns() {
        for shard in [-1, 0, 1, 31] {
            let spg = SpgId { pg: PgId::new(1, 5), shard: ShardId(shard) };
            let (a, b) = (Cid::Pg(spg), second_name(Cid::Pg(spg)));
            assert_ne!(a, b);
            assert_eq!(second_name(b), a);
            assert_eq!((pg_of(a), pg_of(b)), (Some(spg), Some(spg)));
        }
    }
}
