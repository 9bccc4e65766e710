//! Keys of the metadata trees: one order for everything a shard stores.
//!
//! `hi` holds the kind in its upper 8 bits and the group below (family of collections, object number,
//! collection number). `lo` is the position inside the group as far as 64 bits can tell. `rest` orders equal
//! positions. A search compares integers, and bytes only where positions tie.

use crate::key::ObjectName;
use base::Eversion;
use bytes::Bytes;
use smallvec::SmallVec;
use std::cmp::Ordering;

/// Records of collections, by collection number.
pub(crate) const COLL: u64 = 1;
/// Onodes, by family and hash order.
pub(crate) const OBJECTS: u64 = 2;
/// Omap entries, by object number and key.
pub(crate) const OMAP: u64 = 3;
/// Chunks of block maps, by object number and chunk.
pub(crate) const MAP: u64 = 4;
/// PG log entries, by collection number and version.
pub(crate) const LOG: u64 = 5;
/// Reference counts of shared blocks, by device block.
pub(crate) const REFS: u64 = 6;
/// Undo records, by collection number and version. (7 and 8 are inner pages.)
pub(crate) const UNDO: u64 = 9;

const KIND_SHIFT: u32 = 56;
/// Mask of a group number; groups must be smaller.
pub(crate) const GROUP_MASK: u64 = (1 << KIND_SHIFT) - 1;

/// Joins kind and group in one word.
pub(crate) fn hi(kind: u64, group: u64) -> u64 {
    kind << KIND_SHIFT | (group & GROUP_MASK)
}

pub(crate) fn kind_of(hi: u64) -> u64 {
    hi >> KIND_SHIFT
}

pub(crate) fn group_of(hi: u64) -> u64 {
    hi & GROUP_MASK
}

/// Lower bound of the keys of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sep {
    pub(crate) hi: u64,
    pub(crate) lo: u64,
    pub(crate) rest: Bytes,
}

impl Sep {
    pub(crate) fn new(hi: u64, lo: u64) -> Self {
        Self { hi, lo, rest: Bytes::new() }
    }
}

/// Part of a key after `lo`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rest<'a> {
    None,
    Bytes(&'a [u8]),
    Oid(&'a ObjectName),
    Num(u64),
}

/// Key to search for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    pub(crate) hi: u64,
    pub(crate) lo: u64,
    pub(crate) rest: Rest<'a>,
}

impl<'a> Key<'a> {
    pub(crate) fn plain(hi: u64, lo: u64) -> Self {
        Self { hi, lo, rest: Rest::None }
    }

    pub(crate) fn object(family: u64, oid: &'a ObjectName) -> Self {
        Self { hi: hi(OBJECTS, family), lo: object_lo(oid), rest: Rest::Oid(oid) }
    }

    pub(crate) fn omap(nid: u64, key: &'a [u8]) -> Self {
        Self { hi: hi(OMAP, nid), lo: omap_lo(key), rest: Rest::Bytes(key) }
    }

    /// Key of a log entry or an undo record.
    pub(crate) fn version(hi: u64, v: Eversion) -> Self {
        Self { hi, lo: log_lo(v), rest: Rest::Num(v.version) }
    }

    /// Order of a separator relative to this key.
    pub(crate) fn cmp_sep(&self, sep: &Sep) -> Ordering {
        (sep.hi, sep.lo).cmp(&(self.hi, self.lo)).then_with(|| self.cmp_rest(&sep.rest))
    }

    /// Order of a separator's `rest` relative to this key, when `hi` and `lo` are equal.
    pub(crate) fn cmp_rest(&self, rest: &[u8]) -> Ordering {
        match self.rest {
            Rest::None if rest.is_empty() => Ordering::Equal,
            Rest::None => Ordering::Greater,
            _ if rest.is_empty() => Ordering::Less,
            Rest::Bytes(b) => rest.cmp(b),
            Rest::Oid(o) => rest.cmp(&oid_bytes(o)[..]),
            Rest::Num(n) => rest.cmp(&n.to_be_bytes()[..]),
        }
    }

    /// A separator at this key.
    pub(crate) fn sep(&self) -> Sep {
        let rest = match self.rest {
            Rest::None => Bytes::new(),
            Rest::Bytes(b) => Bytes::copy_from_slice(b),
            Rest::Oid(o) => Bytes::copy_from_slice(&oid_bytes(o)),
            Rest::Num(n) => Bytes::copy_from_slice(&n.to_be_bytes()),
        };
        Sep { hi: self.hi, lo: self.lo, rest }
    }

    /// Shortest separator between this key and a key of the same group with `lo` at most `left_lo`.
    pub(crate) fn sep_after(&self, left_lo: u64) -> Sep {
        if left_lo < self.lo { Sep::new(self.hi, self.lo) } else { self.sep() }
    }
}

const POOL_BIAS: i64 = 1 << 30;
const LAST_POOL: i64 = 2 * POOL_BIAS - 1;

/// `(max, pool, bit-reversed hash)` as one number. Pools beyond 30 bits share one number without hash; `rest`
/// tells them apart.
pub(crate) fn object_lo(o: &ObjectName) -> u64 {
    let h = &o.hobj;
    let pool = h.pool.0.saturating_add(POOL_BIAS);
    let top = u64::from(h.max) << 63;
    match pool {
        ..=0 => top,
        1..LAST_POOL => top | (pool as u64) << 32 | u64::from(h.bitwise_key()),
        _ => top | (LAST_POOL as u64) << 32,
    }
}

/// The first eight bytes of the key.
pub(crate) fn omap_lo(key: &[u8]) -> u64 {
    let mut b = [0; 8];
    let n = key.len().min(8);
    b[..n].copy_from_slice(&key[..n]);
    u64::from_be_bytes(b)
}

pub(crate) fn log_lo(v: Eversion) -> u64 {
    u64::from(v.epoch.0) << 32 | v.version.min(u64::from(u32::MAX))
}

/// Bytes whose order is that of objects with equal pool and hash.
fn oid_bytes(o: &ObjectName) -> SmallVec<[u8; 128]> {
    let mut w = SmallVec::new();
    let mut name = |b: &[u8]| {
        for c in b {
            w.push(*c);
            if *c == 0 {
                w.push(0xff);
            }
        }
        w.extend_from_slice(&[0, 0]);
    };
    let h = &o.hobj;
    name(&(h.pool.0 as u64 ^ 1 << 63).to_be_bytes());
    name(&h.bitwise_key().to_be_bytes());
    name(&h.nspace);
    name(h.effective_key());
    name(&h.oid);
    w.extend_from_slice(&h.snap.0.to_be_bytes());
    let mut name = |b: &[u8]| {
        for c in b {
            w.push(*c);
            if *c == 0 {
                w.push(0xff);
            }
        }
        w.extend_from_slice(&[0, 0]);
    };
    name(&h.key);
    w.extend_from_slice(&o.generation.to_be_bytes());
    w.push(o.shard.0 as u8 ^ 0x80);
    w
}

/// Bounds of a page's keys: at or above the first, below the second.
pub(crate) type Bounds<'a> = (Option<&'a Sep>, Option<&'a Sep>);

/// True if a search for the key leads to these bounds.
pub(crate) fn inside(k: &Key<'_>, (start, end): Bounds<'_>) -> bool {
    start.is_none_or(|s| k.cmp_sep(s) != Ordering::Greater) && end.is_none_or(|e| k.cmp_sep(e) == Ordering::Greater)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;
    use base::{HObject, PoolId, SnapId};

    #[test]
    fn encoded_objects_compare_as_objects_do() {
        let mut rng = Rng::new(5);
        let word = |rng: &mut Rng| -> Bytes {
            (0..rng.below(3)).map(|_| [0u8, 1, b'a', 0xff][rng.below(4) as usize]).collect::<Vec<_>>().into()
        };
        let one = |rng: &mut Rng| ObjectName {
            hobj: HObject {
                oid: word(rng),
                key: if rng.chance(1, 2) { word(rng) } else { Bytes::new() },
                nspace: word(rng),
                snap: SnapId(rng.below(2)),
                hash: rng.below(3) as u32,
                max: rng.chance(1, 20),
                pool: PoolId([-5, 1, 2, i64::MAX, i64::MAX - 1][rng.below(5) as usize]),
            },
            generation: if rng.chance(1, 2) { crate::key::Oid::NO_GEN } else { rng.below(3) },
            shard: base::ShardId(rng.below(3) as i8 - 1),
        };
        for _ in 0..20_000 {
            let (a, b) = (one(&mut rng), one(&mut rng));
            let (ka, kb) = (Key::object(1, &a), Key::object(1, &b));
            assert_eq!(ka.sep().cmp(&kb.sep()), a.cmp(&b), "{a:?} {b:?}");
            assert_eq!(kb.cmp_sep(&ka.sep()), a.cmp(&b));
            if ka.lo <= kb.lo && a < b {
                let s = kb.sep_after(ka.lo);
                assert!(ka.cmp_sep(&s) == Ordering::Greater && kb.cmp_sep(&s) != Ordering::Greater);
            }
        }
    }

    #[test]
    fn omap_keys_compare_as_bytes_do() {
        let mut rng = Rng::new(6);
        for _ in 0..20_000 {
            let mut k = || -> Vec<u8> { (0..rng.below(11)).map(|_| rng.below(2) as u8).collect() };
            let (a, b) = (k(), k());
            if a.is_empty() {
                continue;
            }
            assert_eq!(Key::omap(1, &b).cmp_sep(&Key::omap(1, &a).sep()), a.cmp(&b));
        }
    }
}
