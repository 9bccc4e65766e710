//! Objects as placement sees them, in the order in which PGs list them.

use crate::id::{PoolId, SnapId};
use bytes::Bytes;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// `hobject_t`: an object (or one of its clones) with all that places and orders it.
///
/// Names are bytes: clients may use any. Ordered as Ceph orders objects in a PG: `max` last, then pool, bit-reversed
/// hash, namespace, effective key, name, snap.
#[derive(Clone, Debug)]
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

/// Equality of two names without a call for empty ones. The C library compares short ranges by one masked load; with no
/// byte to load from an empty name's address, which is not mapped, that load takes the processor a hundred times longer.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && (a.is_empty() || a == b)
}

/// Order of two names; see [`same`].
fn order(a: &[u8], b: &[u8]) -> Ordering {
    if a.is_empty() || b.is_empty() { a.len().cmp(&b.len()) } else { a.cmp(b) }
}

/// Compares the numbers first: they differ most often.
impl PartialEq for HObject {
    fn eq(&self, o: &Self) -> bool {
        let numbers = |h: &Self| (h.hash, h.snap, h.pool, h.max);
        numbers(self) == numbers(o)
            && same(&self.oid, &o.oid)
            && same(&self.key, &o.key)
            && same(&self.nspace, &o.nspace)
    }
}

impl Eq for HObject {}

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
            .then_with(|| order(&self.nspace, &o.nspace))
            .then_with(|| {
                // Ceph compares effective keys only if either object has a key of its own.
                if self.key.is_empty() && o.key.is_empty() {
                    Ordering::Equal
                } else {
                    self.effective_key().cmp(o.effective_key())
                }
            })
            .then_with(|| order(&self.oid, &o.oid))
            .then_with(|| self.snap.cmp(&o.snap))
            .then_with(|| order(&self.key, &o.key))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects that differ in one part or several, among them empty names.
    fn some() -> Vec<HObject> {
        let names = [Bytes::new(), Bytes::from_static(b"a"), Bytes::from_static(b"ab")];
        let mut all = Vec::new();
        for oid in &names {
            for key in &names {
                for nspace in &names {
                    for (snap, hash, pool) in [(0, 1, 1), (1, 1, 1), (0, 2, 1), (0, 1, 2)] {
                        let (oid, key, nspace) = (oid.clone(), key.clone(), nspace.clone());
                        let (snap, pool) = (SnapId(snap), PoolId(pool));
                        all.push(HObject { oid, key, nspace, snap, hash, max: false, pool });
                    }
                }
            }
        }
        all
    }

    #[test]
    fn equality_and_order_are_those_of_all_parts() {
        let parts = |h: &HObject| (h.oid.to_vec(), h.key.to_vec(), h.nspace.to_vec(), h.snap, h.hash, h.pool);
        let all = some();
        for a in &all {
            for b in &all {
                assert_eq!(a == b, parts(a) == parts(b), "{a} {b}");
                assert_eq!(a.cmp(b), b.cmp(a).reverse(), "{a} {b}");
                if a == b {
                    assert_eq!(a.cmp(b), Ordering::Equal);
                }
            }
        }
    }
}
