//! Steps of a plan: their words, their times, and their effects on facts.
//!
//! `effect` has the effects, by which a plan looks ahead.

mod effect;

use crate::facts::Facts;
use base::size;
use std::net::IpAddr;

/// A device or file for an OSD.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Device or file.
    pub path: String,
    /// Size of a file that is made.
    pub bytes: Option<u64>,
    /// Device class.
    pub class: Option<String>,
}

/// The work of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Installs the release, and packages of the distribution.
    Install(Vec<String>),
    /// Writes configuration, certificates and the administrator's key.
    Configure,
    /// Stops etcd and removes its data, which no cluster uses.
    ClearEtcd,
    /// Starts a member of etcd: one of a new etcd, or one that joins.
    StartEtcd {
        /// The etcd exists.
        existing: bool,
        /// All its members.
        members: Vec<(String, IpAddr)>,
    },
    /// Adds a member to etcd, which is not started yet.
    AddMember(IpAddr),
    /// Removes a member from etcd, by its id.
    RemoveMember(String),
    /// Makes the cluster's state and starts the first monitor.
    MakeState,
    /// Moves the state of the only monitor from its file to etcd; the monitor stops meanwhile.
    StateToEtcd,
    /// Moves the state of the only monitor from etcd to a file; the monitor stops meanwhile.
    StateToFile,
    /// Starts a monitor.
    StartMonitor,
    /// Adds a monitor to the monmap.
    AddMonitor(IpAddr),
    /// Restarts a monitor and waits until it takes part.
    RestartMonitor,
    /// Removes a monitor from the monmap and stops it.
    RemoveMonitor,
    /// Sets an option: section, key, value.
    SetOption(String, String, String),
    /// Gives the host the key that makes OSDs.
    BootstrapKey,
    /// Moves the host in the CRUSH map below these buckets: type and name.
    Place(Vec<(String, String)>),
    /// Makes OSDs.
    CreateOsds(Vec<Target>),
    /// Starts OSDs that have stores.
    StartOsds(Vec<u32>),
    /// Makes a file system.
    MakeFilesystem(String),
    /// Starts a metadata server with a key of its own.
    StartMds,
    /// Starts a gateway with a key of its own.
    StartGateway,
    /// Stops the metadata server and removes its key.
    StopMds,
    /// Stops the gateway and removes its key.
    StopGateway,
    /// Marks OSDs out and waits until their data is elsewhere.
    Drain(Vec<u32>),
    /// Stops OSDs without data, removes them from the maps, and erases their stores: ids and devices.
    Retire(Vec<(u32, Option<String>)>),
    /// Removes the empty host from the CRUSH map.
    DropHost,
    /// Removes configuration and keys from a host that is in no inventory any more.
    Leave,
    /// Sets `noout`.
    HoldOut,
    /// Unsets `noout`.
    ReleaseOut,
    /// Restarts OSDs, and waits until they are up and all PGs are clean.
    RestartOsds(Vec<u32>),
}

/// A step on a host, or on the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Name of the host; empty for the cluster.
    pub host: String,
    /// Its work.
    pub action: Action,
}

fn list<T: std::fmt::Display>(all: impl IntoIterator<Item = T>) -> String {
    all.into_iter().map(|t| t.to_string()).collect::<Vec<_>>().join(", ")
}

fn osds(ids: &[u32]) -> String {
    list(ids.iter().map(|i| format!("osd.{i}")))
}

/// Bytes in a second that a recovering OSD takes, for estimates.
const RECOVERY_BYTES_S: u64 = 50 << 20;

impl Step {
    pub(crate) fn new(host: &str, action: Action) -> Self {
        Self { host: host.into(), action }
    }

    /// The step in words, without its host.
    #[must_use]
    pub fn words(&self) -> String {
        match &self.action {
            Action::Install(p) if p.is_empty() => "install belemnite".into(),
            Action::Install(p) => format!("install belemnite, {}", list(p)),
            Action::Configure => "write configuration and keys".into(),
            Action::ClearEtcd => "remove etcd's data, which no cluster uses".into(),
            Action::StartEtcd { existing: false, .. } => "start a member of the new etcd".into(),
            Action::StartEtcd { .. } => "start its member of etcd".into(),
            Action::AddMember(a) => format!("add the member at {a} to etcd"),
            Action::RemoveMember(id) => format!("remove member {id} from etcd"),
            Action::MakeState => "make the cluster's state, start the first monitor".into(),
            Action::StartMonitor => "start its monitor".into(),
            Action::StateToEtcd => {
                "move the monitors' state from its file to etcd; the monitor stops for seconds".into()
            }
            Action::StateToFile => "move the monitors' state from etcd to a file; the monitor stops for seconds".into(),
            Action::AddMonitor(a) => format!("add the monitor at {a}"),
            Action::RestartMonitor => "restart its monitor".into(),
            Action::RemoveMonitor => "remove its monitor".into(),
            Action::SetOption(who, k, v) => format!("set {k} = {v} for {who}"),
            Action::BootstrapKey => "store the key that makes OSDs".into(),
            Action::Place(to) => {
                format!("move it below {} in the CRUSH map", list(to.iter().map(|(k, v)| format!("{k}={v}"))))
            }
            Action::CreateOsds(t) => format!("make OSDs on {}", list(t.iter().map(|t| &t.path))),
            Action::StartOsds(ids) => format!("start {}", osds(ids)),
            Action::MakeFilesystem(n) => format!("make the file system {n}"),
            Action::StartMds => "start a metadata server".into(),
            Action::StartGateway => "start a gateway".into(),
            Action::StopMds => "stop its metadata server".into(),
            Action::StopGateway => "stop its gateway".into(),
            Action::Drain(ids) => format!("move all data off {}", osds(ids)),
            Action::Retire(all) => {
                let ids: Vec<u32> = all.iter().map(|(i, _)| *i).collect();
                format!("remove {} and erase the stores", osds(&ids))
            }
            Action::DropHost => "remove it from the CRUSH map".into(),
            Action::Leave => "remove configuration and keys".into(),
            Action::HoldOut => "set noout".into(),
            Action::ReleaseOut => "unset noout".into(),
            Action::RestartOsds(ids) => format!("restart {}, wait until all PGs are clean", osds(ids)),
        }
    }

    /// Bytes that move between OSDs because of the step, about.
    #[must_use]
    pub fn moves(&self, f: &Facts) -> u64 {
        let Some(c) = f.cluster() else { return 0 };
        let used = |ids: &[u32]| ids.iter().filter_map(|i| c.osds.get(i)).map(|o| o.used).sum::<u64>();
        match &self.action {
            Action::Drain(ids) => used(ids),
            Action::Place(_) => c.osds.values().filter(|o| o.host == self.host).map(|o| o.used).sum(),
            Action::CreateOsds(t) => {
                let all: u64 = c.osds.values().map(|o| o.used).sum();
                let (new, old) = (t.len() as u64, c.osds.len() as u64);
                all / (new + old).max(1) * new
            }
            _ => 0,
        }
    }

    /// Seconds that the step takes, about: measured on hosts in containers, and for moved bytes a rate of recovery.
    #[must_use]
    pub fn seconds(&self, f: &Facts) -> u64 {
        let fixed = match &self.action {
            Action::Install(p) => 8 + 10 * p.len() as u64,
            Action::Configure | Action::BootstrapKey | Action::Leave | Action::ClearEtcd => 1,
            Action::StartEtcd { .. } | Action::StartMonitor | Action::RemoveMonitor | Action::RestartMonitor => 3,
            Action::MakeState | Action::StateToEtcd | Action::StateToFile => 5,
            Action::CreateOsds(t) => 3 + 2 * t.len() as u64,
            Action::StartOsds(_) | Action::StartMds | Action::StartGateway | Action::MakeFilesystem(_) => 4,
            Action::Retire(t) => 2 + t.len() as u64,
            Action::RestartOsds(_) => 10,
            _ => 1,
        };
        let osds = match &self.action {
            Action::Drain(ids) => ids.len() as u64,
            Action::CreateOsds(t) => t.len() as u64,
            _ => 1,
        };
        fixed + self.moves(f) / (RECOVERY_BYTES_S * osds.max(1))
    }

    /// The step with its host, and the data that it moves.
    #[must_use]
    pub fn line(&self, f: &Facts) -> String {
        let host = if self.host.is_empty() { "cluster" } else { &self.host };
        match self.moves(f) {
            0 => format!("{host}: {}", self.words()),
            n => format!("{host}: {}; about {} move", self.words(), size::show(n)),
        }
    }
}
