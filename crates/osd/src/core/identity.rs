//! Identity and addresses of an OSD.

use base::id::Uuid;
use base::{AddrVec, OsdId};
use std::collections::BTreeMap;
use wire::msg::PeerFeatures;

/// The four addresses of a running OSD, all with the same nonce.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addrs {
    /// Address for clients, monitors and managers.
    pub public: AddrVec,
    /// Addresses for other OSDs, one per reactor.
    pub cluster: AddrVec,
    /// Address for heartbeats over the cluster network.
    pub hb_back: AddrVec,
    /// Address for heartbeats over the public network.
    pub hb_front: AddrVec,
}

/// Identity and properties that the OSD reports.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Number of the OSD.
    pub whoami: OsdId,
    /// Uuid of the cluster.
    pub fsid: Uuid,
    /// Uuid of the OSD's store.
    pub osd_fsid: Uuid,
    /// Listening addresses.
    pub addrs: Addrs,
    /// Host name.
    pub hostname: String,
    /// CRUSH weight: size in TiB.
    pub crush_weight: f64,
    /// Device class to report ("ssd", "nvme", "hdd").
    pub device_class: String,
    /// True if the OSD places itself in the CRUSH map at start (`osd_crush_update_on_start`).
    pub crush_update_on_start: bool,
    /// CRUSH location, `host=…` `root=…`.
    pub crush_location: Vec<String>,
    /// Metadata for OSD_BOOT.
    pub metadata: BTreeMap<String, String>,
    /// The parts of the messages between OSDs that the OSD announces.
    pub peer_features: PeerFeatures,
}
