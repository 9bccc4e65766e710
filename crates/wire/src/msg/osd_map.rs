//! `MOSDMap`: encoded OSD maps, which the `cluster` crate decodes.

use crate::macros::message;
use base::id::Uuid;
use base::{Epoch, PoolId};
use bytes::Bytes;
use std::collections::BTreeMap;

use crate::types::Intervals;

message! {
    /// `MOSDMap`: full and incremental maps by epoch.
    MOsdMap = 41, 4, 3 {
        fsid: Uuid,
        incremental_maps: BTreeMap<Epoch, Bytes>,
        maps: BTreeMap<Epoch, Bytes>,
        /// Oldest epoch that the monitor keeps; receivers may discard older maps.
        cluster_osdmap_trim_lower_bound: Epoch => 2,
        newest_map: Epoch => 2,
        gap_removed_snaps: BTreeMap<PoolId, Intervals> => 4,
    }
}
