//! What PGs of one OSD say to each other when a pool gets fewer of them: one gives what it has to another.
//!
//! The target asks each PG that is to be joined to it ([`Kin::Await`]) and hears what that was ([`Kin::Heir`]). If both
//! collections are in one shard of one store they are joined by reference; else the target asks for the objects, a part at a
//! time ([`Kin::Next`], [`Kin::Cargo`]), and the other one removes itself when they are durable ([`Kin::Joined`]).
//!
//! PGs of one name may be joined, split off and joined again by maps that come at once. What is said to a source names the map by which
//! it leaves, so that it is for the right one.

use crate::info::PgInfo;
use crate::per_peer::PerOsd;
use base::{Epoch, Eversion, HObject, Mono};
use bytes::Bytes;
use store::{Cid, Op};

/// What a PG leaves that is joined to another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Heir {
    /// The map that joins them.
    pub epoch: Epoch,
    /// Its collection.
    pub cid: Cid,
    /// It is as it was when all copies were found equal: what it had is what the pool knows of it.
    pub good: bool,
    /// What it was.
    pub info: PgInfo,
    /// Its log; none if it is not good.
    pub records: Vec<(Eversion, Bytes)>,
    /// Its snapshot index.
    pub index: Vec<(Bytes, Bytes)>,
    /// Primaries of older intervals that may count on this OSD's lease.
    pub(crate) granted: PerOsd<Mono>,
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub enum Kin {
    /// Target to source: what do you leave at that map?
    Await(Epoch),
    /// Source to target: that, or there is no such copy here.
    Heir(Option<Box<Heir>>),
    /// Target to source, which leaves by that map: the next part of your objects.
    Next(Epoch),
    /// Source to target: changes that make it, as if in the source's collection.
    Cargo {
        /// The changes.
        ops: Vec<Op>,
        /// Objects that do not read, and of which a part or nothing is there.
        damaged: Vec<HObject>,
        /// There is no more.
        last: bool,
    },
    /// Target to source: nothing of you is needed any more.
    Joined {
        /// The map by which it leaves.
        at: Epoch,
        /// The collection is gone already.
        taken: bool,
    },
}
