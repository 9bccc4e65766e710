//! Messages between PGs of one OSD while `pg_num` shrinks: a source PG gives its content to a target PG.
//!
//! The target asks each source ([`MergeMsg::Await`]), which answers with its state ([`MergeMsg::State`]). If both collections
//! are in one shard of one store, they are merged by reference. Else the target asks for the objects, a part at a
//! time ([`MergeMsg::Next`], [`MergeMsg::Objects`]), and the source removes itself when they are durable ([`MergeMsg::Merged`]).
//!
//! Successive maps may merge PGs, split them off and merge them again under one name. So messages to a source carry
//! the epoch of the merge that they belong to.

use crate::info::PgInfo;
use crate::per_peer::PerOsd;
use base::{Epoch, Eversion, HObject, Mono};
use bytes::Bytes;
use store::{Cid, Op};

/// State that a merge source hands to its target.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceState {
    /// Epoch of the merge.
    pub epoch: Epoch,
    /// The source's collection.
    pub cid: Cid,
    /// The source is unchanged since all copies were found equal, so its log and objects are the pool's state.
    pub good: bool,
    /// The source's info.
    pub info: PgInfo,
    /// The source's log; empty if it is not good.
    pub records: Vec<(Eversion, Bytes)>,
    /// The source's snapshot index.
    pub index: Vec<(Bytes, Bytes)>,
    /// Primaries of older intervals that may count on this OSD's lease.
    pub(crate) granted: PerOsd<Mono>,
}

/// A message between merge source and target; see the module.
#[derive(Clone, Debug, PartialEq)]
pub enum MergeMsg {
    /// Target to source: what is your state at this epoch of the merge?
    Await(Epoch),
    /// Source to target: the state; `None` if this OSD has no such copy.
    State(Option<Box<SourceState>>),
    /// Target to source: send the next part of your objects, for the merge at this epoch.
    Next(Epoch),
    /// Source to target: changes that rebuild objects, written as for the source's collection.
    Objects {
        /// The changes.
        ops: Vec<Op>,
        /// Objects that the source can't read; the target has them in part or not at all.
        damaged: Vec<HObject>,
        /// This is the last part.
        last: bool,
    },
    /// Target to source: the target needs nothing more.
    Merged {
        /// Epoch of the merge.
        at: Epoch,
        /// The target took the collection over, so it is gone.
        taken: bool,
    },
}
