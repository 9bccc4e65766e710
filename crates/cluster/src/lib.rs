//! MonMap, OSDMap, CRUSH, pools, placement and capabilities.
//!
//! Pure: no I/O, no clock, no threads. Maps are values. A monitor makes the next map from the last one and an
//! incremental. Daemons and clients apply the same incremental and must arrive at the same bytes.
//!
//! | module | contents |
//! | --- | --- |
//! | `caps` | capabilities of an authenticated name at a monitor, a manager, an OSD and a metadata server |
//! | `cow` | copy-on-write containers: cloning a map of 10,000 OSDs shares everything, and a change copies one chunk |
//! | `crush` | CRUSH: the hierarchy of devices and the rules that pick them |
//! | `interval_set` | sets of numbers kept as ranges (`interval_set<snapid_t>`): removed and purged snapshots |
//! | `monmap` | the map of monitors |
//! | `option_table` | options of Ceph's daemons and clients: names, types, defaults and limits |
//! | `option_texts` | texts about options: those that our daemons use, and those that only our daemons have |
//! | `osdmap` | the OSD map: pools, OSDs, CRUSH and everything that decides where a PG lives |
//! | `pool` | pools: `pg_pool_t` and its parts |
//! | `settings` | options of one running daemon: values by source, the one in force, changes at run time |
//! | `units` | numbers as Ceph prints and parses them: sizes, counts, ages, `printf("%g")` |
//! | `used_options` | ceph's options that our monitors, managers and OSDs use |
//!
//! Invariants:
//!  1. Decoding hostile bytes never panics, loops or allocates more than the input justifies.
//!  2. `decode` then `encode` with the writer's features gives the writer's bytes, checksum included.
//!  3. Placement equals Ceph's for every map: same PG, same OSDs, same primary.
//!
//! Tests: `crates/hostile/tests/hostile_bytes.rs` (1, families `maps`, `crush`, `caps`), `tests/osdmap_vectors.rs` (2,
//! 3), `tests/captured_incrementals.rs` (2), `tests/crush_vectors.rs` (3).
//!
//! Design: docs/design/placement.md.

#![forbid(unsafe_code)]

pub mod caps;
pub mod cow;
pub mod crush;
pub mod interval_set;
pub mod monmap;
pub mod option_table;
pub mod option_texts;
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

/// Error of creating, changing or using a map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// The bytes are not a valid map.
    #[error(transparent)]
    Decode(#[from] wire::DecodeError),
    /// The incremental's epoch is not the next one of the map.
    #[error("incremental {inc} does not follow map {map}")]
    EpochGap {
        /// Epoch of the map.
        map: base::Epoch,
        /// Epoch of the incremental.
        inc: base::Epoch,
    },
    /// The incremental belongs to another cluster.
    #[error("incremental of cluster {inc} for a map of cluster {map}")]
    OtherCluster {
        /// Cluster of the map.
        map: base::id::Uuid,
        /// Cluster of the incremental.
        inc: base::id::Uuid,
    },
    /// The OSD number is outside the map.
    #[error("{osd} is not below max_osd {max}")]
    NoSuchOsd {
        /// The number.
        osd: base::OsdId,
        /// `max_osd` of the map.
        max: i32,
    },
    /// `max_osd` exceeds our limit.
    #[error("max_osd {max} is above the limit {limit}")]
    TooManyOsds {
        /// Requested `max_osd`.
        max: i32,
        /// Limit.
        limit: i32,
    },
    /// The incremental purges snapshots that were never queued for removal.
    #[error("purged snapshots of pool {pool}, which has none queued")]
    NotQueued {
        /// The pool.
        pool: base::PoolId,
    },
    /// The map after the incremental differs from the map of the incremental's author.
    #[error("map {epoch} has checksum {got:08x} after the incremental, its maker had {expect:08x}")]
    FullCrc {
        /// Epoch.
        epoch: base::Epoch,
        /// Checksum in the incremental.
        expect: u32,
        /// Checksum of our encoding.
        got: u32,
    },
}
