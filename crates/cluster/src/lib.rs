//! MonMap, OSDMap, CRUSH, pools, placement and capabilities.
//!
//! Pure: no I/O, no clock, no threads. Everything here is a value: a monitor makes the next map out of the last and
//! an incremental, daemons and clients apply the same incremental and must arrive at the same bytes.
//! Invariants:
//!  1. Decoding hostile bytes never panics, loops or allocates more than the input justifies.
//!  2. `decode` then `encode` with the writer's features gives the writer's bytes, checksum included.
//!  3. Placement equals Ceph's for every map: same PG, same OSDs, same primary.
//!
//! Design: docs/design/placement.md.

#![forbid(unsafe_code)]

pub mod caps;
pub mod cow;
pub mod crush;
pub mod interval_set;
pub mod monmap;
pub mod option_table;
pub mod osdmap;
pub mod pool;
pub mod settings;
pub mod units;
pub mod used_options;

pub use caps::{MgrCaps, MonCaps, OsdCaps};
pub use crush::CrushMap;
pub use interval_set::IntervalSet;
pub use monmap::{MonInfo, MonMap, release};
pub use osdmap::{Incremental, OsdInfo, OsdMap, OsdXinfo, UpActing};
pub use pool::PgPool;

/// Why a map could not be made, changed or used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// Bytes that are not a map.
    #[error(transparent)]
    Decode(#[from] wire::DecodeError),
    /// An incremental that does not follow the map.
    #[error("incremental {inc} does not follow map {map}")]
    EpochGap {
        /// Epoch of the map.
        map: base::Epoch,
        /// Epoch of the incremental.
        inc: base::Epoch,
    },
    /// An incremental of another cluster.
    #[error("incremental of cluster {inc} for a map of cluster {map}")]
    OtherCluster {
        /// Cluster of the map.
        map: base::id::Uuid,
        /// Cluster of the incremental.
        inc: base::id::Uuid,
    },
    /// An OSD number outside the map.
    #[error("{osd} is not below max_osd {max}")]
    NoSuchOsd {
        /// The number.
        osd: base::OsdId,
        /// OSDs of the map.
        max: i32,
    },
    /// More OSDs than we take.
    #[error("max_osd {max} is above the limit {limit}")]
    TooManyOsds {
        /// Asked for.
        max: i32,
        /// Limit.
        limit: i32,
    },
    /// Purged snapshots that were never queued for removal.
    #[error("purged snapshots of pool {pool}, which has none queued")]
    NotQueued {
        /// The pool.
        pool: base::PoolId,
    },
    /// The map after an incremental is not the one its maker had.
    #[error("map {epoch} has checksum {got:08x} after the incremental, its maker had {expect:08x}")]
    FullCrc {
        /// Epoch.
        epoch: base::Epoch,
        /// Checksum named in the incremental.
        expect: u32,
        /// Checksum of our encoding.
        got: u32,
    },
}
