//! Facts of hosts and of the cluster, as a probe and the monitors tell them.
//!
//! | module | contents |
//! | --- | --- |
//! | `devices` | disks of a host, from `lsblk`'s JSON |
//! | `parse` | parser of a probe's output |

mod devices;
mod parse;

pub use devices::{Device, Holds};
pub use parse::{PROBE, PROBE_BYTES_MAX, ProbeError, parse};

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// All facts that a plan depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The cluster's id, which is chosen before anything is made.
    pub fsid: String,
    /// The program that hosts get.
    pub release: Release,
    /// Digest of the certificate that signs those of etcd.
    pub authority: String,
    /// Hosts of the inventory, and those that an earlier run worked on.
    pub hosts: BTreeMap<String, Reach>,
    /// Hosts that are left alone in this run.
    pub skipped: BTreeSet<String>,
    /// Addresses of hosts that are in no inventory any more.
    pub former: BTreeMap<String, IpAddr>,
    /// The cluster.
    pub cluster: ClusterState,
}

/// The program that hosts get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// A Debian package of this version.
    Package(String),
    /// A program file with this digest (SHA-256, hexadecimal).
    Program(String),
}

impl Default for Release {
    fn default() -> Self {
        Self::Package(String::new())
    }
}

/// A host, if it can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// A host that answers.
    Answers(Box<HostFacts>),
    /// A host that does not answer, with the reason.
    Silent(String),
}

/// State of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// True while it runs.
    pub active: bool,
    /// True if its process has another program file than the installed one.
    pub old_program: bool,
    /// The configuration was written after its process began.
    pub old_conf: bool,
}

/// A store of an OSD with a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFact {
    /// Id of the OSD.
    pub id: u32,
    /// Device or file, without links.
    pub path: String,
}

/// A file that may serve as a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFact {
    /// Its path.
    pub path: String,
    /// True if its start is not zero.
    pub has_data: bool,
}

/// `ceph.conf` of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfFact {
    /// Digest (SHA-256, hexadecimal).
    pub digest: String,
    /// Id of the cluster that it names.
    pub fsid: String,
    /// True if it says that the monitors' state is in etcd.
    pub has_etcd: bool,
}

/// Facts of a host that answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Difference of its clock from that of the machine that asks, in milliseconds.
    pub clock_ms: i64,
    /// The account is root.
    pub is_root: bool,
    /// systemd runs.
    pub has_systemd: bool,
    /// System and its version, such as `debian 12`.
    pub system: String,
    /// Installed packages with their versions, of those that a cluster needs.
    pub packages: BTreeMap<String, String>,
    /// Digest of the installed program (SHA-256, hexadecimal).
    pub program: Option<String>,
    /// `ceph.conf`.
    pub conf: Option<ConfFact>,
    /// True if the key that makes OSDs is there.
    pub has_bootstrap_key: bool,
    /// True if the key of the administrator is there.
    pub has_admin_key: bool,
    /// Digest of the authority of its certificate for etcd.
    pub certificate: Option<String>,
    /// Names of members of etcd with data, and the members with which each was made.
    pub etcd: BTreeMap<String, String>,
    /// Names of monitors with a state in a file.
    pub states: BTreeSet<String>,
    /// Keys of Ceph's daemons: `mds` or `radosgw`, and the id.
    pub keys: BTreeSet<(String, String)>,
    /// Units by name, without `.service`.
    pub units: BTreeMap<String, Unit>,
    /// Devices and files whose stores are not finished.
    pub making: BTreeSet<String>,
    /// Devices that the inventory names, and the devices that these names lead to.
    pub links: BTreeMap<String, String>,
    /// Stores of OSDs with a data directory.
    pub stores: Vec<StoreFact>,
    /// Disks.
    pub devices: Vec<Device>,
    /// Files in the directories that were asked for.
    pub files: Vec<FileFact>,
}

impl HostFacts {
    /// True if a unit runs.
    #[must_use]
    pub fn runs(&self, unit: &str) -> bool {
        self.units.get(unit).is_some_and(|u| u.active)
    }

    /// True if the host has the release.
    #[must_use]
    pub fn has(&self, release: &Release) -> bool {
        match release {
            Release::Package(v) => self.packages.get("belemnite") == Some(v),
            Release::Program(d) => self.program.as_ref() == Some(d),
        }
    }

    /// True if the host has any release.
    #[must_use]
    pub fn has_program(&self) -> bool {
        self.program.is_some() || self.packages.contains_key("belemnite")
    }

    /// True if anything of a cluster is left on the host.
    #[must_use]
    pub fn is_used(&self) -> bool {
        let runs = self.units.values().any(|u| u.active);
        runs || self.conf.is_some() || !self.etcd.is_empty() || !self.states.is_empty() || !self.stores.is_empty()
    }
}

/// The cluster, if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClusterState {
    /// A cluster that was never made.
    #[default]
    Absent,
    /// A cluster that was made, and no monitor answers; with the reason.
    Silent(String),
    /// A cluster whose monitors answer.
    Answers(Box<Cluster>),
}

/// Place of the monitors' state. The configuration of the monitor's host decides: with it the monitor starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// No cluster was made, or no host says.
    Unknown,
    /// A file on this host.
    File(String),
    /// The etcd on the monitors' hosts.
    Etcd,
}

/// A member of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id in hexadecimal.
    pub id: String,
    /// Address of its peers.
    pub address: IpAddr,
    /// True if it was started at least once.
    pub started: bool,
    /// True if it answers.
    pub healthy: bool,
}

/// An OSD in the map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsdFacts {
    /// Its host in the CRUSH map.
    pub host: String,
    /// True if it is up.
    pub up: bool,
    /// True if it is in.
    pub is_in: bool,
    /// True if its data is not known to be complete elsewhere.
    pub needed: bool,
    /// Size of its store in bytes.
    pub bytes: u64,
    /// Bytes in use.
    pub used: u64,
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolFacts {
    /// Name of the pool.
    pub name: String,
    /// Number of copies or shards.
    pub size: usize,
    /// Type of the CRUSH buckets that each hold at most one of them: `osd`, `host`, `rack`, …
    pub domain: String,
}

/// A cluster whose monitors answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Monitors in the monmap by name.
    pub monitors: BTreeMap<String, IpAddr>,
    /// Monitors that take part.
    pub quorum: BTreeSet<String>,
    /// Members of etcd with the monitors' state; none if the state is in a file.
    pub etcd: Vec<Member>,
    /// OSDs by id.
    pub osds: BTreeMap<u32, OsdFacts>,
    /// CRUSH buckets above each host, by type.
    pub places: BTreeMap<String, BTreeMap<String, String>>,
    /// Pools.
    pub pools: Vec<PoolFacts>,
    /// File systems.
    pub filesystems: BTreeSet<String>,
    /// Options that the monitors keep: section and key, with the value.
    pub options: BTreeMap<(String, String), String>,
    /// All PGs are active and clean.
    pub is_clean: bool,
    /// `noout` is set.
    pub noout: bool,
    /// `noout` was set by an upgrade that has not ended.
    pub noout_is_ours: bool,
}

impl Facts {
    /// Facts of a host that answers.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&HostFacts> {
        match self.hosts.get(name)? {
            Reach::Answers(h) => Some(h),
            Reach::Silent(_) => None,
        }
    }

    /// Facts of a host that answers, to be changed.
    pub(crate) fn host_mut(&mut self, name: &str) -> Option<&mut HostFacts> {
        match self.hosts.get_mut(name)? {
            Reach::Answers(h) => Some(h),
            Reach::Silent(_) => None,
        }
    }

    /// The cluster, if its monitors answer.
    #[must_use]
    pub fn cluster(&self) -> Option<&Cluster> {
        match &self.cluster {
            ClusterState::Answers(c) => Some(c),
            _ => None,
        }
    }

    /// Hosts with a monitor that starts with its state in a file.
    pub(crate) fn files(&self) -> impl Iterator<Item = &str> {
        let all = self.hosts.keys().filter_map(|n| Some((n, self.host(n)?)));
        let starts = |h: &HostFacts| h.conf.as_ref().is_some_and(|c| !c.has_etcd && c.fsid == self.fsid);
        all.filter(move |(n, h)| h.states.contains(*n) && starts(h)).map(|(n, _)| n.as_str())
    }

    /// The place of the monitors' state.
    #[must_use]
    pub fn home(&self) -> Home {
        if matches!(self.cluster, ClusterState::Absent) { Home::Unknown } else { self.stated_home() }
    }

    /// The place of the monitors' state as configurations of hosts state it, also before the cluster is known.
    #[must_use]
    pub fn stated_home(&self) -> Home {
        if let Some(n) = self.files().next() {
            return Home::File(n.to_owned());
        }
        let mut confs = self.hosts.keys().filter_map(|n| self.host(n)?.conf.as_ref());
        if confs.any(|c| c.has_etcd && c.fsid == self.fsid) { Home::Etcd } else { Home::Unknown }
    }

    pub(crate) fn cluster_mut(&mut self) -> Option<&mut Cluster> {
        match &mut self.cluster {
            ClusterState::Answers(c) => Some(c),
            _ => None,
        }
    }
}
