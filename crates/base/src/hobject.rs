//! Objects as placement sees them, in the order in which PGs list them.

use crate::id::{PoolId, SnapId};
use bytes::Bytes;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// `hobject_t`: an object (or one of its clones) with all that places and orders it.
///
/// Names are bytes: clients may use any. Ordered as Ceph orders objects in a PG: `max` last, then pool, bit-reversed
/// hash, namespace, effective key, name, snap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HObject {
    /// Name.
    pub oid: Bytes,
    /// Locator key if it differs from the name, else empty.
    pub key: Bytes,
    /// Namespace.
    pub nspace: Bytes,
    /// Head, a clone, or snapdir.
    pub snap: SnapId,
    /// Placement hash.
    pub hash: u32,
    /// True only for the end marker, larger than every object.
    pub max: bool,
    /// Pool; `i64::MIN` in the smallest object.
    pub pool: PoolId,
}

/// Hashes only the placement hash and the snap: the placement hash already covers key, namespace and name.
impl Hash for HObject {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.hash, self.snap).hash(state);
    }
}

impl HObject {
    /// The smallest object.
    #[must_use]
    pub fn min() -> Self {
        Self {
            oid: Bytes::new(),
            key: Bytes::new(),
            nspace: Bytes::new(),
            snap: SnapId(0),
            hash: 0,
            max: false,
            pool: PoolId(i64::MIN),
        }
    }

    /// The end marker.
    #[must_use]
    pub fn max() -> Self {
        Self { max: true, ..Self::min() }
    }

    /// True for the smallest object.
    #[must_use]
    pub fn is_min(&self) -> bool {
        !self.max && self.pool.0 == i64::MIN
    }

    /// Hash with its bits reversed: the sort key within a pool.
    #[must_use]
    pub fn bitwise_key(&self) -> u32 {
        self.hash.reverse_bits()
    }

    /// The locator key if set, else the name.
    #[must_use]
    pub fn effective_key(&self) -> &Bytes {
        if self.key.is_empty() { &self.oid } else { &self.key }
    }

    /// The same object at another snap.
    #[must_use]
    pub fn at_snap(&self, snap: SnapId) -> Self {
        Self { snap, ..self.clone() }
    }

    /// The same object's head.
    #[must_use]
    pub fn head(&self) -> Self {
        self.at_snap(SnapId::HEAD)
    }
}

impl Default for HObject {
    fn default() -> Self {
        Self::min()
    }
}

impl Ord for HObject {
    fn cmp(&self, o: &Self) -> Ordering {
        self.max
            .cmp(&o.max)
            .then_with(|| self.pool.cmp(&o.pool))
            .then_with(|| self.bitwise_key().cmp(&o.bitwise_key()))
            .then_with(|| self.nspace.cmp(&o.nspace))
            .then_with(|| {
                // Ceph compares effective keys only if either object has a key of its own.
                if self.key.is_empty() && o.key.is_empty() {
                    Ordering::Equal
                } else {
                    self.effective_key().cmp(o.effective_key())
                }
            })
            .then_with(|| self.oid.cmp(&o.oid))
            .then_with(|| self.snap.cmp(&o.snap))
            .then_with(|| self.key.cmp(&o.key))
    }
}

impl PartialOrd for HObject {
    fn partial_cmp(&self, o: &Self) -> Option<Ordering> {
        Some(self.cmp(o))
    }
}

impl std::fmt::Display for HObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.max {
            return f.write_str("MAX");
        }
        if self.is_min() {
            return f.write_str("MIN");
        }
        write!(
            f,
            "{}:{:08x}:{}:{}:{}:{}",
            self.pool,
            self.bitwise_key(),
            String::from_utf8_lossy(&self.nspace),
            String::from_utf8_lossy(&self.key),
            String::from_utf8_lossy(&self.oid),
            self.snap
        )
    }
}
