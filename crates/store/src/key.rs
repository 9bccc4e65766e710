//! Names of collections and objects. Collections are keyed by PG and shard, objects have generation and shard,
//! so erasure-coded pools use the same format.

use base::{HObject, ShardId, SpgId};

/// A collection: the objects of one PG (shard), or the OSD's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cid {
    /// The OSD's own objects: superblock, maps, snap index.
    Meta,
    /// Objects of a PG.
    Pg(SpgId),
}

/// An object of a collection (`ghobject_t`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid {
    /// The object or clone.
    pub hobj: HObject,
    /// Generation kept for rollback of erasure-coded writes, else [`Oid::NO_GEN`].
    pub generation: u64,
    /// Erasure-code shard.
    pub shard: ShardId,
}

impl Oid {
    /// Generation of an object that is not kept for rollback.
    pub const NO_GEN: u64 = u64::MAX;

    /// An object of a replicated pool.
    #[must_use]
    pub fn new(hobj: HObject) -> Self {
        Self { hobj, generation: Self::NO_GEN, shard: ShardId::NONE }
    }
}

impl Oid {
    /// A copy with its own allocations. A slice of a network buffer would keep the whole buffer alive.
    pub(crate) fn owned(&self) -> Self {
        let own = |b: &bytes::Bytes| if b.is_empty() { bytes::Bytes::new() } else { bytes::Bytes::copy_from_slice(b) };
        let h = &self.hobj;
        let hobj = HObject { oid: own(&h.oid), key: own(&h.key), nspace: own(&h.nspace), ..*h };
        Self { hobj, generation: self.generation, shard: self.shard }
    }
}

impl From<HObject> for Oid {
    fn from(h: HObject) -> Self {
        Self::new(h)
    }
}
