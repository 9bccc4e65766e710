//! What an OSD is and where it listens.

use base::id::Uuid;
use base::{AddrVec, OsdId};
use std::collections::BTreeMap;

/// The four addresses of a running OSD, all with the same nonce.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addrs {
    /// For clients, monitors and managers.
    pub public: AddrVec,
    /// For other OSDs.
    pub cluster: AddrVec,
    /// Heartbeats over the cluster network.
    pub hb_back: AddrVec,
    /// Heartbeats over the public network.
    pub hb_front: AddrVec,
}

/// What the OSD says of itself.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its number.
    pub whoami: OsdId,
    /// The cluster.
    pub fsid: Uuid,
    /// Its store.
    pub osd_fsid: Uuid,
    /// Where it listens.
    pub addrs: Addrs,
    /// Host name.
    pub hostname: String,
    /// CRUSH weight: size in TiB.
    pub crush_weight: f64,
    /// Device class to report ("ssd", "nvme", "hdd").
    pub device_class: String,
    /// Whether to place itself in the CRUSH map at start (`osd_crush_update_on_start`).
    pub crush_update_on_start: bool,
    /// CRUSH location, `host=…` `root=…`.
    pub crush_location: Vec<String>,
    /// Metadata for OSD_BOOT.
    pub metadata: BTreeMap<String, String>,
}
