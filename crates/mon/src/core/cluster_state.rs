//! What the monitor knows, and one proposal under construction.
//!
//! [`ClusterState`] is the committed state held in memory: everything in it is also in the state store. Nothing
//! changes it but a commit (and the volatile parts, marked so). Commands and messages write what they want changed
//! into [`Pending`]; the core turns it into one transaction and one new map epoch, and answers after the commit.
//!
//! Invariants:
//!  1. Code that decides on pending changes asks `Pending` (`map`, `auth`, `config`, …), which shows committed state with
//!     the pending changes applied; so several commands of one proposal see each other.
//!  2. A command that fails leaves `Pending` as it found it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use base::id::Uuid;
use base::{AddrVec, AuthName, EntityKind, EntityName, Epoch, Now, OsdId, PgId, PoolId, Utime};
use bytes::Bytes;
use cluster::{Incremental, IntervalSet, MonMap, OsdMap, PgPool};
use wire::types::{FsMap, HealthCheck, MdsHealth, MgrMap};
use wire::{Features, Message};

use super::access::Principal;
use super::log::{ClusterLog, LogEntry, Prio};
use super::maps::MapHistory;
use super::options::MonOptions;
use mgr::Manager;

/// Key and caps of one entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthEntry {
    /// The secret.
    pub key: auth::CryptoKey,
    /// A key that replaces `key` when the entity first uses it (`auth get-or-create-pending`).
    pub pending_key: Option<auth::CryptoKey>,
    /// Service ("mon", "osd", "mgr", "mds") to capability text.
    pub caps: BTreeMap<String, String>,
}

/// One `config set`/`rm` in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// Running number.
    pub version: u64,
    /// When.
    pub stamp: Utime,
    /// What led to it (`config set`, `config reset 5`, …).
    pub name: String,
    /// `who/key`, value before, value after.
    pub diff: Vec<(ConfigKey, Option<String>, Option<String>)>,
}

/// Whose option: section with mask as written (`global`, `osd`, `osd.0`, `osd/class:ssd`) and option name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigKey {
    /// Section and mask.
    pub who: String,
    /// Option.
    pub name: String,
}

/// The central configuration.
#[derive(Clone, Debug, Default)]
pub struct ConfigDb {
    /// Version of the newest change.
    pub version: u64,
    /// All values.
    pub values: BTreeMap<ConfigKey, String>,
    /// Changes, newest last, bounded.
    pub history: VecDeque<ConfigChange>,
}

/// A muted health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mute {
    /// When it ends by itself; zero for never.
    pub until: Utime,
    /// Stays after the check clears.
    pub sticky: bool,
    /// Summary when muted.
    pub summary: String,
    /// Count when muted: a rise ends the mute.
    pub count: i64,
}

/// A PG that no OSD has created yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreatingPg {
    /// Map epoch of the pool's creation.
    pub created: Epoch,
    /// When that was.
    pub stamp: Utime,
}

/// A client or daemon session as `mon sessions` and `features` show it (volatile).
#[derive(Clone, Debug)]
pub struct SessionSummary {
    /// Who authenticated.
    pub name: AuthName,
    /// Instance.
    pub entity: EntityName,
    /// Source addresses.
    pub addrs: AddrVec,
    /// Features announced.
    pub features: Features,
    /// Global id.
    pub global_id: u64,
    /// When it opened.
    pub since: Utime,
    /// The monitor that it is connected to, if that is another one.
    pub by: Option<String>,
}

/// Everything committed, and a few volatile facts.
pub struct ClusterState {
    /// Cluster id.
    pub fsid: Uuid,
    /// When the cluster was made.
    pub created: Utime,
    /// Our own name (`a` of `mon.a`).
    pub mon_name: String,
    /// Options from the command line and configuration.
    pub options: MonOptions,
    /// Newest committed OSD map.
    pub osdmap: Arc<OsdMap>,
    /// Encoded epochs, full and incremental.
    pub history: MapHistory,
    /// Monitors.
    pub monmap: MonMap,
    /// Managers.
    pub mgrmap: MgrMap,
    /// Keys and caps.
    pub auth: BTreeMap<AuthName, AuthEntry>,
    /// Central configuration.
    pub config: ConfigDb,
    /// `config-key` store.
    pub kv: BTreeMap<String, Bytes>,
    /// Version of the newest `config-key` change.
    pub kv_version: u64,
    /// File systems and MDS daemons.
    pub fsmap: FsMap,
    /// Encoded epochs of it, the newest ones.
    pub fsmaps: BTreeMap<Epoch, Bytes>,
    /// What each MDS told at boot.
    pub mds_metadata: BTreeMap<u64, BTreeMap<String, String>>,
    /// Warnings in the newest beacon of each MDS (volatile).
    pub mds_health: BTreeMap<u64, MdsHealth>,
    /// Cluster log.
    pub log: ClusterLog,
    /// Muted health checks.
    pub mutes: BTreeMap<String, Mute>,
    /// What each OSD told at boot.
    pub osd_metadata: BTreeMap<OsdId, BTreeMap<String, String>>,
    /// PGs waiting for their OSD.
    pub creating: BTreeMap<PgId, CreatingPg>,
    /// Snapshots that every PG of a pool has purged.
    pub purged_snaps: BTreeMap<PoolId, IntervalSet>,
    /// What the manager role knows: statistics, services (volatile).
    pub mgr: Manager,
    /// Open sessions by connection (volatile).
    pub sessions: BTreeMap<u64, SessionSummary>,
    /// How often a monitor has begun to lead this cluster, this time included.
    pub term: u64,
    /// What the active separate manager told of itself (volatile).
    pub mgr_metadata: BTreeMap<String, String>,
    /// Alerts that a separate manager raised (volatile).
    pub mgr_checks: BTreeMap<String, HealthCheck>,
    /// Monitors that are there, where several share a state (volatile); `None` for one that is alone.
    pub mons_up: Option<BTreeSet<String>>,
    /// How their clocks differ (volatile).
    pub clocks: super::clocks::Clocks,
    /// Why the newest request to the state store failed, until one succeeds (volatile).
    pub store_error: Option<String>,
    /// Start of this process (volatile).
    pub started: Now,
    /// Source of keys and ids.
    pub random: Rc<dyn auth::Random>,
}

impl ClusterState {
    /// Monitors that are there, in the order of their ranks: each of them can serve, and one is enough.
    #[must_use]
    pub fn quorum(&self) -> Vec<String> {
        let up = |n: &&String| self.mons_up.as_ref().is_none_or(|up| up.contains(*n));
        self.monmap.ranks.iter().filter(up).cloned().collect()
    }

    /// Their ranks.
    #[must_use]
    pub fn quorum_ranks(&self) -> Vec<usize> {
        self.quorum().iter().filter_map(|n| self.monmap.ranks.iter().position(|r| r == n)).collect()
    }

    /// The number that Ceph's tools know as the epoch of the election: odd where a quorum stands, and higher with each
    /// beginning.
    #[must_use]
    pub fn election_epoch(&self) -> u64 {
        1 + 2 * self.term
    }

    /// The monitor that writes: this one, where there are several.
    #[must_use]
    pub fn leader(&self) -> String {
        match &self.mons_up {
            Some(_) => self.mon_name.clone(),
            None => self.monmap.ranks.first().unwrap_or(&self.mon_name).clone(),
        }
    }
}

/// Changes collected for the next commit.
#[derive(Default)]
pub struct Pending {
    inc: Option<Incremental>,
    preview: Option<Arc<OsdMap>>,
    /// Entities added or changed (`Some`) or removed (`None`).
    pub auth: BTreeMap<AuthName, Option<AuthEntry>>,
    /// Options set or removed.
    pub config: BTreeMap<ConfigKey, Option<String>>,
    /// Name for the configuration history entry.
    pub config_reason: String,
    /// `config-key` entries set or removed.
    pub kv: BTreeMap<String, Option<Bytes>>,
    /// Mutes set or removed.
    pub mutes: BTreeMap<String, Option<Mute>>,
    /// Cluster log lines.
    pub log: Vec<LogEntry>,
    /// New map of monitors, epoch included.
    pub monmap: Option<MonMap>,
    /// New manager map, epoch included.
    pub mgrmap: Option<MgrMap>,
    /// New map of file systems, epoch included.
    pub fsmap: Option<FsMap>,
    /// MDS metadata set or removed.
    pub mds_metadata: BTreeMap<u64, Option<BTreeMap<String, String>>>,
    /// OSD metadata set or removed.
    pub osd_metadata: BTreeMap<OsdId, Option<BTreeMap<String, String>>>,
    /// PGs reported as created.
    pub created_pgs: Vec<PgId>,
    /// New rotating service keys.
    pub service_keys: Option<auth::ServiceKeys>,
    /// End of the next batch of global ids.
    pub global_id_end: Option<u64>,
    /// A monitor begins to lead.
    pub term: Option<u64>,
    /// Drop map epochs below this.
    pub trim_to: Option<Epoch>,
}

impl Pending {
    /// True if a commit would change nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inc.is_none()
            && self.auth.is_empty()
            && self.config.is_empty()
            && self.kv.is_empty()
            && self.mutes.is_empty()
            && self.log.is_empty()
            && self.monmap.is_none()
            && self.mgrmap.is_none()
            && self.fsmap.is_none()
            && self.mds_metadata.is_empty()
            && self.osd_metadata.is_empty()
            && self.created_pgs.is_empty()
            && self.service_keys.is_none()
            && self.global_id_end.is_none()
            && self.term.is_none()
            && self.trim_to.is_none()
    }

    /// The map change under construction, if there is one.
    #[must_use]
    pub fn inc(&self) -> Option<&Incremental> {
        self.inc.as_ref()
    }

    /// The map change under construction, for writing; started on first use. The core sets its time and checksums.
    pub fn inc_mut(&mut self, state: &ClusterState) -> &mut Incremental {
        self.preview = None;
        self.inc.get_or_insert_with(|| {
            Incremental::new(state.osdmap.fsid, state.osdmap.epoch.next(), state.osdmap.modified)
        })
    }

    /// The map with the pending change applied. Shared and remembered until the next `inc_mut`.
    pub fn map(&mut self, state: &ClusterState) -> Arc<OsdMap> {
        let Some(inc) = &self.inc else { return Arc::clone(&state.osdmap) };
        Arc::clone(self.preview.get_or_insert_with(|| {
            // A change that cannot apply is thrown away by the proposal, with an error in the log; nothing sees it.
            state.osdmap.apply(inc).map_or_else(|_| Arc::clone(&state.osdmap), Arc::new)
        }))
    }

    /// An entity as it will be.
    #[must_use]
    pub fn auth<'a>(&'a self, state: &'a ClusterState, name: &AuthName) -> Option<&'a AuthEntry> {
        match self.auth.get(name) {
            Some(e) => e.as_ref(),
            None => state.auth.get(name),
        }
    }

    /// An option as it will be.
    #[must_use]
    pub fn config<'a>(&'a self, state: &'a ClusterState, key: &ConfigKey) -> Option<&'a str> {
        match self.config.get(key) {
            Some(e) => e.as_deref(),
            None => state.config.values.get(key).map(String::as_str),
        }
    }

    /// The manager map as it will be.
    #[must_use]
    pub fn mgrmap<'a>(&'a self, state: &'a ClusterState) -> &'a MgrMap {
        self.mgrmap.as_ref().unwrap_or(&state.mgrmap)
    }

    /// The manager map for writing, one epoch further.
    pub fn mgrmap_mut(&mut self, state: &ClusterState) -> &mut MgrMap {
        self.mgrmap.get_or_insert_with(|| MgrMap { epoch: state.mgrmap.epoch.next(), ..state.mgrmap.clone() })
    }

    /// The map of file systems for writing, one epoch further.
    pub fn fsmap_mut(&mut self, state: &ClusterState) -> &mut FsMap {
        self.fsmap.get_or_insert_with(|| FsMap { epoch: state.fsmap.epoch.next(), ..state.fsmap.clone() })
    }

    /// A pool of the pending map for writing: changes go into the incremental. `None` if there is no such pool.
    pub fn pool_mut(&mut self, state: &ClusterState, pool: PoolId) -> Option<&mut PgPool> {
        let current = self.map(state).pool(pool).cloned()?;
        let inc = self.inc_mut(state);
        Some(inc.new_pools.entry(pool).or_insert_with(|| PgPool::clone(&current)))
    }

    /// A `config-key` entry as it will be.
    #[must_use]
    pub fn kv<'a>(&'a self, state: &'a ClusterState, key: &str) -> Option<&'a Bytes> {
        match self.kv.get(key) {
            Some(e) => e.as_ref(),
            None => state.kv.get(key),
        }
    }

    /// Adds a line to the cluster log in the monitor's name.
    pub fn log(&mut self, state: &ClusterState, now: Now, prio: Prio, channel: &str, msg: impl Into<String>) {
        self.log.push(LogEntry {
            name: AuthName { kind: EntityKind::MON, id: state.mon_name.clone() },
            rank: EntityName::new(EntityKind::MON, 0),
            addrs: state.monmap.mons.get(&state.mon_name).map(|m| m.public_addrs.clone()).unwrap_or_default(),
            stamp: now.wall,
            seq: state.log.next + self.log.len() as u64,
            prio: prio.0,
            msg: msg.into().into(),
            channel: channel.to_owned(),
        });
    }

    /// Takes the map change out, for the commit.
    pub(crate) fn take_inc(&mut self) -> Option<Incremental> {
        self.preview = None;
        self.inc.take()
    }
}

/// Which of the two roles a command came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Monitor (`MON_COMMAND`).
    Mon,
    /// Manager (`MGR_COMMAND`).
    Mgr,
    /// `ceph tell mon.x` or `ceph tell mgr.x`.
    Tell,
}

/// Who asks.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// Who it is and what it may do.
    pub principal: Principal,
    /// Instance.
    pub entity: EntityName,
    /// Addresses it says are its own.
    pub addrs: AddrVec,
    /// Features of the peer.
    pub features: Features,
    /// Which role it speaks to.
    pub role: Role,
    /// The monitor that it is connected to, if that is another one.
    pub by: Option<String>,
}

/// When to answer a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At once.
    Now,
    /// After the pending changes are committed.
    Committed,
    /// Throw the outcome away, dispatch the command again after the pending changes are committed (it depends on
    /// something that another command of the same proposal created).
    Retry,
    /// Throw the outcome away, load the full map of that epoch into `history`, dispatch again.
    NeedMap(Epoch),
    /// When the host has done the job that is among the effects ([`CommandEffect::Job`]); it gives the answer.
    Host,
}

/// Something beside the answer that a command wants done once it is answered.
#[derive(Clone, Debug)]
pub enum CommandEffect {
    /// Send to an OSD's manager session (`OSD_SCRUB2`, `OSD_FORCE_RECOVERY`).
    ToOsd(OsdId, Message),
    /// Read the stored state and compare it with what is served; the result goes to the cluster log.
    ScrubState,
    /// Drop PG statistics of a removed pool.
    ForgetPool(PoolId),
    /// Take up these settings (`tell mon.x config set`).
    Settings(Box<cluster::settings::Settings>),
    /// Ask the host to stop the process in order (`tell mon.x …`).
    Restart,
    /// Work for the host, which gives the answer.
    Job(HostJob),
}

/// A command that needs a client of the cluster: the host runs it.
#[derive(Clone, Debug)]
pub struct HostJob {
    /// The command's words.
    pub prefix: &'static str,
    /// Its arguments as text.
    pub args: BTreeMap<String, String>,
    /// Who asks.
    pub session: SessionInfo,
}

/// Result of a command.
#[derive(Clone, Debug)]
pub struct CommandOutcome {
    /// 0 or a negative errno.
    pub rc: i32,
    /// Status line (the CLI prints it to stderr).
    pub rs: String,
    /// Output.
    pub out: Bytes,
    /// When to answer.
    pub when: When,
    /// Side effects.
    pub effects: Vec<CommandEffect>,
}

impl CommandOutcome {
    /// Success with output, answered at once.
    #[must_use]
    pub fn output(out: impl Into<Bytes>) -> Self {
        Self { rc: 0, rs: String::new(), out: out.into(), when: When::Now, effects: Vec::new() }
    }

    /// Success with a status line, answered at once.
    #[must_use]
    pub fn done(rs: impl Into<String>) -> Self {
        Self { rc: 0, rs: rs.into(), out: Bytes::new(), when: When::Now, effects: Vec::new() }
    }

    /// Success with a status line, answered after the commit.
    #[must_use]
    pub fn committed(rs: impl Into<String>) -> Self {
        Self { when: When::Committed, ..Self::done(rs) }
    }

    /// Failure with a status line, answered at once.
    #[must_use]
    pub fn fail(rc: i32, rs: impl Into<String>) -> Self {
        Self { rc, ..Self::done(rs) }
    }

    /// Answered by the host once it has done `job`.
    #[must_use]
    pub fn host(job: HostJob) -> Self {
        Self { when: When::Host, effects: vec![CommandEffect::Job(job)], ..Self::done("") }
    }

    /// Dispatch again after the commit.
    #[must_use]
    pub fn retry() -> Self {
        Self { when: When::Retry, ..Self::done("") }
    }
}
