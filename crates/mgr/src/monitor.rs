//! Interface of the manager role to the monitor in the same process.
//!
//! The monitor provides snapshots of its state. The manager makes changes by commands of its own client, as `ceph-mgr`
//! does.

use crate::files::Counted;
use crate::images::rates::Reported;
use auth::CryptoKey;
use base::{AddrVec, AuthName, EntityAddr, Epoch};
pub use client::core::mds::RankInfo;
use cluster::OsdMap;
use std::rc::Rc;
use std::sync::Arc;
use wire::types::PerfMetricQuery;

/// The daemon of a file system's first rank, which collects the counters of all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstRank {
    /// Name of the file system.
    pub fs: String,
    /// Name of the daemon.
    pub daemon: String,
    /// Global id of the daemon; it changes with each restart.
    pub gid: u64,
    /// Address of the daemon.
    pub addr: EntityAddr,
}

/// A file system with a certain name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Its id.
    pub fscid: i32,
    /// Daemons of its ranks.
    pub ranks: Vec<RankInfo>,
}

/// The monitor that the manager belongs to.
pub trait Monitor {
    /// True if the role is the cluster's manager, that is, no separate manager is expected.
    fn is_active(&self) -> bool;
    /// The newest OSD map.
    fn osdmap(&self) -> Arc<OsdMap>;
    /// Entity name of the manager, with its key unless authentication is off.
    fn identity(&self) -> Option<(AuthName, Option<CryptoKey>)>;
    /// Names all clients of the manager in the manager map; the next holder of the role blocklists them. True once the
    /// map names exactly these.
    fn names_clients(&self, clients: Vec<AddrVec>) -> bool;
    /// Value of an option for this process; `None` if it has its default.
    fn option(&self, name: &str) -> Option<String>;
    /// Value of an option stored for a section.
    fn stored_option(&self, who: &str, name: &str) -> Option<String>;
    /// Report period of daemons, in seconds.
    fn report_period(&self) -> u32;
    /// Adds a query to those for which OSDs collect counters.
    fn add_query(&self, q: PerfMetricQuery);
    /// Removes a query.
    fn remove_query(&self, q: &PerfMetricQuery);
    /// Takes the OSDs' reports for a query since the last call.
    fn take_reports(&self, q: &PerfMetricQuery) -> Reported;
    /// The active daemons of first ranks.
    fn first_ranks(&self) -> Vec<FirstRank>;
    /// Replaces the queries for which MDS daemons collect counters, and sends them even if they are unchanged.
    fn ask_mds(&self, queries: Vec<PerfMetricQuery>);
    /// The newest report of an MDS daemon, by name.
    fn mds_counted(&self, daemon: &str) -> Option<Rc<Counted>>;
    /// The file system with a name.
    fn file_system(&self, name: &str) -> Option<FileSystem>;
    /// Ids and names of all file systems.
    fn file_systems(&self) -> Vec<(i32, String)>;
    /// Epoch of a file system's map, and the daemons of its ranks.
    fn ranks(&self, fscid: i32) -> (Epoch, Vec<RankInfo>);
    /// Addresses of the monitors, as clients that mount a file system take them.
    fn mon_addrs(&self) -> Vec<String>;
}
