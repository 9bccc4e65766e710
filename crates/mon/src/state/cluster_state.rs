//! The committed state in memory: all of it is also in the state store, except for the parts marked volatile.
//!
//! Everybody reads the fields of [`StateView`] through [`ClusterState`], which gives no other access to them. `commit`
//! has the one change of what is stored, `volatile` those of the parts that are not.
//!
//! Invariant: nothing outside this module changes the state but by its methods.
//!
//! Tests: the first of these does not compile.
//!
//! ```compile_fail,E0596
//! fn change(state: &mut mon::state::ClusterState) {
//!     state.mutes.clear();
//! }
//! ```
//!
//! ```
//! fn read(state: &mut mon::state::ClusterState) -> bool {
//!     state.mutes.is_empty()
//! }
//! ```

pub(crate) mod commit;
mod volatile;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::id::Uuid;
use base::{AuthName, Epoch, Mono, Now, OsdId, PgId, PoolId, Utime};
use bytes::Bytes;

use cluster::{IntervalSet, MonMap, OsdMap};
use mgr::Manager;
use wire::types::{FsMap, MdsHealth, MgrMap};

use super::clocks::Clocks;
use super::config::ConfigDb;
use super::cuts::Cuts;
use super::kv::KvStore;
use super::log::ClusterLog;
use super::maps::MapHistory;
use super::options::MonOptions;
use super::separate_mgr::SeparateMgr;
use super::session::Sessions;
use super::wrong_keys::WrongKeys;

/// Key and caps of one entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthEntry {
    /// The secret key.
    pub key: auth::CryptoKey,
    /// A key that replaces `key` when the entity first uses it (`auth get-or-create-pending`).
    pub pending_key: Option<auth::CryptoKey>,
    /// Service ("mon", "osd", "mgr", "mds") to capability text.
    pub caps: BTreeMap<String, String>,
}

/// A muted health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mute {
    /// Time at which the mute expires; zero for never.
    pub until: Utime,
    /// True if the mute stays after the alert is gone.
    pub sticky: bool,
    /// Summary of the alert when it was muted.
    pub summary: String,
    /// Count of the alert when it was muted; a rise ends the mute.
    pub count: i64,
}

/// A PG that no OSD has created yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreatingPg {
    /// Map epoch of the pool's creation.
    pub created: Epoch,
    /// Time of the pool's creation.
    pub stamp: Utime,
}

/// Daemons that were refused. Not stored.
#[derive(Clone, Debug, Default)]
pub struct RefusedDaemons {
    /// Newest map that the OSD claimed: this state is older.
    pub ahead: BTreeMap<OsdId, Epoch>,
    /// Reason why the OSD can't work with those that are up.
    pub foreign: BTreeMap<OsdId, String>,
    /// Daemons that came with a wrong key.
    pub keys: WrongKeys,
}

/// The running monitors of several, and their etcd cluster.
#[derive(Clone, Debug, Default)]
pub struct Mons {
    /// Running monitors, where several share a state (volatile); `None` for a single monitor.
    pub up: Option<BTreeSet<String>>,
    /// Metadata of the other running monitors, by name.
    pub metadata: BTreeMap<String, BTreeMap<String, String>>,
    /// The condition of the etcd cluster; `None` for a state in a file.
    pub etcd: Option<std::sync::Arc<state::etcd::care::Condition>>,
    /// Number of times that a monitor began to lead this cluster, including this time.
    pub term: u64,
    /// Clock differences of the other monitors (volatile).
    pub clocks: Clocks,
    /// Time since which daemons of this program run in different versions (volatile).
    pub mixed_since: Option<Mono>,
}

/// How the state store answers.
#[derive(Debug, Default)]
pub struct StoreAnswers {
    /// The error of the newest request, until one succeeds.
    pub error: Option<String>,
    /// Mean time of the last few commits, the newest weighing most.
    pub commit_mean: Duration,
    /// Time of the newest commit.
    pub committed: Mono,
    /// Free and all bytes of the file system with the state; `None` for a state in etcd.
    pub space: Option<(u64, u64)>,
}

/// File systems and MDS daemons.
#[derive(Debug, Default)]
pub struct FsState {
    /// The FSMap: file systems and MDS daemons.
    pub map: FsMap,
    /// The newest encoded epochs of the FSMap.
    pub epochs: BTreeMap<Epoch, Bytes>,
    /// Metadata that each MDS sent at boot, by global id.
    pub metadata: BTreeMap<u64, BTreeMap<String, String>>,
    /// Warnings in the newest beacon of each MDS (volatile).
    pub health: BTreeMap<u64, MdsHealth>,
}

/// Facts about OSDs and their PGs that the map does not have.
#[derive(Debug, Default)]
pub struct OsdState {
    /// Metadata that each OSD sent at boot.
    pub metadata: BTreeMap<OsdId, BTreeMap<String, String>>,
    /// PGs that no OSD has created yet.
    pub creating: BTreeMap<PgId, CreatingPg>,
    /// Snapshot ids by pool that every PG has purged, or that removals took for themselves.
    pub purged_snaps: BTreeMap<PoolId, IntervalSet>,
    /// Cut links between OSDs.
    pub cuts: Cuts,
    /// The pass that keeps PGs where they are, since OSDs join.
    pub growth: Option<mgr::balance::StoredGrowth>,
}

/// The committed state and some volatile values, as they are read. Plain data: only [`ClusterState`] has one after the
/// start, and lends it for reading.
pub struct StateView {
    /// Cluster id.
    pub fsid: Uuid,
    /// Time until which clients keep their ids without their tickets; see [`super::lost_tickets`].
    pub lost_tickets: Option<Utime>,
    /// This monitor's name (`a` of `mon.a`).
    pub mon_name: String,
    /// Options from the command line and configuration.
    pub options: MonOptions,
    /// The newest committed OSD map.
    pub osdmap: Arc<OsdMap>,
    /// Encoded OSD map epochs, full and incremental.
    pub history: MapHistory,
    /// The monmap.
    pub monmap: MonMap,
    /// The manager map.
    pub mgrmap: MgrMap,
    /// Keys and caps.
    pub auth: BTreeMap<AuthName, AuthEntry>,
    /// Central configuration.
    pub config: ConfigDb,
    /// `config-key` store.
    pub kv: KvStore,
    /// File systems and MDS daemons.
    pub fs: FsState,
    /// Cluster log.
    pub log: ClusterLog,
    /// Muted health checks.
    pub mutes: BTreeMap<String, Mute>,
    /// Daemons that were refused (volatile).
    pub refused: RefusedDaemons,
    /// Facts about OSDs and their PGs beside the map.
    pub osds: OsdState,
    /// State of the manager role: statistics, services (volatile).
    pub mgr: Manager,
    /// Open sessions (volatile).
    pub sessions: Sessions,
    /// The active separate manager's own words (volatile).
    pub separate_mgr: SeparateMgr,
    /// Running monitors, and the etcd cluster that holds their state.
    pub mons: Mons,
    /// How the state store answers (volatile).
    pub store: StoreAnswers,
    /// Start time of this process (volatile).
    pub started: Now,
    /// Source of keys and ids.
    pub random: Rc<dyn auth::Random>,
}

/// The state: read as a [`StateView`], changed by a commit or by one of the methods for volatile parts.
pub struct ClusterState {
    view: StateView,
}

impl std::ops::Deref for ClusterState {
    type Target = StateView;

    fn deref(&self) -> &StateView {
        &self.view
    }
}

impl From<StateView> for ClusterState {
    fn from(view: StateView) -> Self {
        Self { view }
    }
}

impl StateView {
    /// The running monitors in the order of their ranks. Any one of them is enough to serve.
    #[must_use]
    pub fn quorum(&self) -> Vec<String> {
        let up = |n: &&String| self.mons.up.as_ref().is_none_or(|up| up.contains(*n));
        self.monmap.ranks.iter().filter(up).cloned().collect()
    }

    /// Ranks of the running monitors.
    #[must_use]
    pub fn quorum_ranks(&self) -> Vec<usize> {
        self.quorum().iter().filter_map(|n| self.monmap.ranks.iter().position(|r| r == n)).collect()
    }

    /// The election epoch for Ceph's tools: odd while there is a quorum, and higher after each start of a leader.
    #[must_use]
    pub fn election_epoch(&self) -> u64 {
        1 + 2 * self.mons.term
    }

    /// The name of the leader; with several monitors this process is it.
    #[must_use]
    pub fn leader(&self) -> String {
        match &self.mons.up {
            Some(_) => self.mon_name.clone(),
            None => self.monmap.ranks.first().unwrap_or(&self.mon_name).clone(),
        }
    }
}

/// The newest OSD map in its stored and sent form.
#[must_use]
pub fn osdmap_blob(state: &StateView) -> bytes::Bytes {
    match state.history.full(state.osdmap.epoch) {
        Some(b) => b.clone(),
        None => state.osdmap.encode_blob(cluster::osdmap::CANONICAL).0,
    }
}
