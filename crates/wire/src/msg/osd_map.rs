//! `MOSDMap`: OSD maps as blobs; what is in them is the business of the `cluster` crate.

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
        /// Oldest epoch the monitor keeps: older ones may be thrown away.
        cluster_osdmap_trim_lower_bound: Epoch => 2,
        newest_map: Epoch => 2,
        gap_removed_snaps: BTreeMap<PoolId, Intervals> => 4,
    }
}
