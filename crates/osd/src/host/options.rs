//! Start options of an OSD.

use crate::core::memory::Memory;
use auth::{CryptoKey, Method};
use base::id::Uuid;
use base::{EntityAddr, OsdId};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// All settings that `belemnite osd` reads from the configuration.
#[derive(Clone, Debug)]
pub struct OsdOptions {
    /// Number of the OSD.
    pub whoami: OsdId,
    /// Uuid of the cluster.
    pub fsid: Uuid,
    /// Addresses of the monitors.
    pub mons: Vec<EntityAddr>,
    /// Key of the OSD; `None` with authentication off.
    pub key: Option<CryptoKey>,
    /// Authentication methods accepted from clients.
    pub methods: Vec<Method>,
    /// File that [`OsdOptions::key`] was read from. It is read again when the monitor refuses the key.
    pub keyring: Option<PathBuf>,
    /// Device of the store.
    pub device: DeviceOptions,
    /// Place in the CRUSH map.
    pub crush: CrushOptions,
    /// IP address for clients.
    pub public_ip: IpAddr,
    /// IP address for other OSDs.
    pub cluster_ip: IpAddr,
    /// First and last port to choose from.
    pub ports: (u16, u16),
    /// Serve msgr1 to clients, too (`ms_bind_msgr1`).
    pub msgr1: bool,
    /// Number of reactor threads.
    pub reactors: usize,
    /// Memory for all reactors together (`osd_memory_target`, `store_cache_size`).
    pub memory: Memory,
    /// Move split-off PGs to the reactors of their names (`osd_move_pgs`).
    pub move_pgs: bool,
    /// Longest time for which a reactor looks for work before it sleeps (`osd_busy_poll`).
    pub busy_poll: Duration,
    /// NUMA node whose processors and memory the OSD uses, if it is bound to one (`osd_numa_node`). Error: the reason why
    /// it is bound to none although the option names one.
    pub numa: Result<Option<reactor::numa::Node>, String>,
    /// Path of the admin socket, if any.
    pub admin_socket: Option<PathBuf>,
    /// Directory of the OSD, for its metadata.
    pub data_dir: PathBuf,
    /// Stop when standard input ends.
    pub supervised: bool,
    /// Makes the allocator return free memory to the system. Every reactor calls it from time to time while it
    /// has little to do.
    pub release_memory: fn(),
    /// Configuration as `config show` prints it.
    pub shown: Vec<(String, String)>,
}

/// Settings of the device of the store.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// File or block device of the store.
    pub path: PathBuf,
    /// Discard freed space on the device (`bdev_enable_discard`).
    pub discard: bool,
    /// Extend the store to an enlarged device before it is opened (`bdev_grow_at_start`).
    pub grow_at_start: bool,
    /// Free bytes of a sparse file's file system below which no growing write is accepted (`osd_file_min_free`).
    pub file_min_free: u64,
    /// Used part of the store above which none is (`osd_failsafe_full_ratio`).
    pub failsafe_full_ratio: f64,
    /// Time without an answer after which the device counts as failed (`osd_device_timeout`).
    pub timeout: Duration,
    /// Do not use io_uring, even where it works.
    pub no_io_uring: bool,
}

/// Settings of the OSD's place in the CRUSH map.
#[derive(Clone, Debug)]
pub struct CrushOptions {
    /// Place the OSD in the CRUSH map at start.
    pub update_on_start: bool,
    /// CRUSH location; default: this host below root `default`.
    pub location: Option<Vec<String>>,
    /// Device class; default: by the kind of device.
    pub device_class: Option<String>,
}
