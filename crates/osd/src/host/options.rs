//! What an OSD is started with.

use auth::{CryptoKey, Method};
use base::id::Uuid;
use base::{EntityAddr, OsdId};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Everything `belemnite osd` reads from the configuration.
#[derive(Clone, Debug)]
pub struct OsdOptions {
    /// Its number.
    pub whoami: OsdId,
    /// The cluster.
    pub fsid: Uuid,
    /// Monitors.
    pub mons: Vec<EntityAddr>,
    /// Its key; none with authentication off.
    pub key: Option<CryptoKey>,
    /// Methods accepted from clients.
    pub methods: Vec<Method>,
    /// File or block device of the store.
    pub block: PathBuf,
    /// Address for clients.
    pub public_ip: IpAddr,
    /// Address for other OSDs.
    pub cluster_ip: IpAddr,
    /// Ports to choose from.
    pub ports: (u16, u16),
    /// Threads that serve.
    pub reactors: usize,
    /// Bytes of memory for the store's metadata and cached blocks, all reactors together (`store_cache_size`).
    pub store_cache: u64,
    /// PGs that were split off move to the reactors their names say (`osd_move_pgs`).
    pub move_pgs: bool,
    /// Tell the device about freed space (`bdev_enable_discard`).
    pub discard: bool,
    /// Take up what the device has become larger by before it is opened (`bdev_grow_at_start`).
    pub grow_at_start: bool,
    /// Bytes that must be free on the file system of a file that has holes before the OSD starts (`osd_file_min_free`).
    pub file_min_free: u64,
    /// A device that does not answer a request for so long has failed (`osd_device_timeout`).
    pub device_timeout: Duration,
    /// Where the admin socket goes, if anywhere.
    pub admin_socket: Option<PathBuf>,
    /// Directory of the OSD, for its metadata.
    pub data_dir: PathBuf,
    /// Place itself in the CRUSH map at start.
    pub crush_update_on_start: bool,
    /// CRUSH location; default: this host below root `default`.
    pub crush_location: Option<Vec<String>>,
    /// Device class; default: by the kind of device.
    pub device_class: Option<String>,
    /// Stop when standard input ends.
    pub supervised: bool,
    /// Prefer no io_uring even where it works.
    pub no_io_uring: bool,
    /// Asks the allocator to give back what is free: called on every reactor now and then while it has little to do.
    pub release_memory: fn(),
    /// The configuration as `config show` prints it.
    pub shown: Vec<(String, String)>,
}
