//! Metadata of one object: object info, snapshot set, and the cache of both.
//!
//! | module | contents |
//! | --- | --- |
//! | `cache` | bounded cache of decoded object contexts, least recently used out first |
//! | `info` | `ObjectInfo`: the attribute `_` of every object and clone |
//! | `intervals` | sets of number ranges: bytes that a clone shares with the next version, snapshots |
//! | `snapset` | `SnapSet`: the clones of an object, in an attribute of its head or snapdir object |

pub mod cache;
pub mod info;
pub mod intervals;
pub mod snapset;

pub use cache::{ContextCache, ObjectContext};
pub use info::{ObjectInfo, WatchInfo};
pub use intervals::Intervals;
pub use snapset::{CloneEntry, SnapSet};

use base::{HObject, SnapId, SpgId};
use store::Oid;

/// Attribute that holds the [`ObjectInfo`].
pub const OI_ATTR: &[u8] = b"_";
/// Attribute that holds the [`SnapSet`].
pub const SS_ATTR: &[u8] = b"snapset";
/// Prefix of user attributes; it keeps them apart from the PG's own attributes.
pub const USER_ATTR_PREFIX: u8 = b'_';

/// The PG's own objects: the snapshot index, and the missing set.
pub(crate) fn own_objects(spg: SpgId) -> (Oid, Oid) {
    let meta = HObject { pool: spg.pg.pool, hash: spg.pg.seed, snap: SnapId::HEAD, ..HObject::min() };
    let missing = Oid::new(meta.at_snap(SnapId(1)));
    (Oid::new(meta), missing)
}
