//! Names of collections and objects. Collections are keyed by PG and shard, objects have generation and shard,
//! so erasure-coded pools use the same format.

use base::{HObject, ShardId, SpgId};
use std::sync::Arc;

/// A collection: the objects of one PG (shard), or the OSD's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cid {
    /// The OSD's own objects: superblock, maps, snap index.
    Meta,
    /// Objects of a PG.
    Pg(SpgId),
}

/// The name of an object of a collection (`ghobject_t`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// The object or clone.
    pub hobj: HObject,
    /// Generation kept for rollback of erasure-coded writes, else [`Oid::NO_GEN`].
    pub generation: u64,
    /// Erasure-code shard.
    pub shard: ShardId,
}

/// A shared [`ObjectName`]. Most changes of a transaction concern the same object; sharing its name keeps a change small
/// and its copies cheap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid(Arc<ObjectName>);

impl Oid {
    /// Generation of an object that is not kept for rollback.
    pub const NO_GEN: u64 = u64::MAX;

    /// An object of a replicated pool.
    #[must_use]
    pub fn new(hobj: HObject) -> Self {
        ObjectName { hobj, generation: Self::NO_GEN, shard: ShardId::NONE }.into()
    }

    /// True if both share one name, so that they need not be compared.
    #[must_use]
    pub(crate) fn is_same(&self, o: &Self) -> bool {
        Arc::ptr_eq(&self.0, &o.0)
    }

    /// The same object in another generation.
    #[must_use]
    pub fn at_generation(&self, generation: u64) -> Self {
        ObjectName { generation, ..(**self).clone() }.into()
    }
}

impl std::ops::Deref for Oid {
    type Target = ObjectName;

    fn deref(&self) -> &ObjectName {
        &self.0
    }
}

impl ObjectName {
    /// A copy with its own allocations. A slice of a network buffer would keep the whole buffer alive.
    pub(crate) fn owned(&self) -> Self {
        let own = |b: &bytes::Bytes| if b.is_empty() { bytes::Bytes::new() } else { bytes::Bytes::copy_from_slice(b) };
        let h = &self.hobj;
        let hobj = HObject { oid: own(&h.oid), key: own(&h.key), nspace: own(&h.nspace), ..*h };
        Self { hobj, generation: self.generation, shard: self.shard }
    }
}

impl From<ObjectName> for Oid {
    fn from(name: ObjectName) -> Self {
        Self(Arc::new(name))
    }
}

impl From<HObject> for Oid {
    fn from(h: HObject) -> Self {
        Self::new(h)
    }
}
