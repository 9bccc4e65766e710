//! The monitor's state, and the one proposal under construction.
//!
//! [`ClusterState`] is the committed state in memory: all of it is also in the state store. Only a commit changes it,
//! except for the fields marked volatile. Commands and messages write their changes into [`Pending`]; the core turns
//! it into one transaction and one new map epoch, and answers after the commit.
//!
//! Invariants:
//!  1. Code that decides on pending changes asks `Pending` (`map`, `auth`, `config`, …), which shows committed state
//!     with the pending changes applied; so several commands of one proposal see each other's changes.
//!  2. A command that fails leaves `Pending` as it found it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::id::Uuid;
use base::{AddrVec, AuthName, EntityKind, EntityName, Epoch, Mono, Now, OsdId, PgId, PoolId, SnapId, Utime};
use bytes::Bytes;
use cluster::{Incremental, IntervalSet, MonMap, OsdMap, PgPool};
use wire::types::{FsMap, HealthCheck, MdsHealth, MgrMap};
use wire::{Features, Message};

use super::access::Principal;
use super::log::{ClusterLog, LogEntry, Prio};
use super::maps::MapHistory;
use super::options::MonOptions;
use crate::command::listing::Listing;
use mgr::Manager;

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

/// One change of the central configuration, in its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// Running number.
    pub version: u64,
    /// Time of the change.
    pub stamp: Utime,
    /// The command that made the change (`config set`, `config reset 5`, …).
    pub name: String,
    /// `who/key`, value before, value after.
    pub diff: Vec<(ConfigKey, Option<String>, Option<String>)>,
}

/// Key of an option: section with mask as written (`global`, `osd`, `osd.0`, `osd/class:ssd`) and option name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigKey {
    /// Section and mask.
    pub who: String,
    /// Name of the option.
    pub name: String,
}

/// The central configuration.
#[derive(Clone, Debug, Default)]
pub struct ConfigDb {
    /// Version of the newest change.
    pub version: u64,
    /// All values.
    pub values: BTreeMap<ConfigKey, String>,
    /// The latest changes, newest last.
    pub history: VecDeque<ConfigChange>,
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

/// A client or daemon session as `mon sessions` and `features` show it (volatile).
#[derive(Clone, Debug)]
pub struct SessionSummary {
    /// The authenticated entity.
    pub name: AuthName,
    /// The entity instance.
    pub entity: EntityName,
    /// The peer's addresses.
    pub addrs: AddrVec,
    /// The features that the peer announced.
    pub features: Features,
    /// The global id of the peer.
    pub global_id: u64,
    /// Time at which the session opened.
    pub since: Utime,
    /// The front monitor that relays the session; `None` for a direct connection.
    pub by: Option<String>,
}

/// Daemons that were refused. Not stored.
#[derive(Clone, Debug, Default)]
pub struct RefusedDaemons {
    /// Newest map that the OSD claimed: this state is older.
    pub ahead: BTreeMap<OsdId, Epoch>,
    /// Reason why the OSD can't work with those that are up.
    pub foreign: BTreeMap<OsdId, String>,
    /// Daemons that came with a wrong key.
    pub keys: super::wrong_keys::WrongKeys,
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
}

impl StoreAnswers {
    /// Counts a commit that ended at `now` and took `took`.
    pub(crate) fn committed(&mut self, took: Duration, now: Mono) {
        self.error = None;
        self.commit_mean = (self.commit_mean * 3 + took) / 4;
        self.committed = now;
    }
}

/// The committed state, and some volatile values.
pub struct ClusterState {
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
    pub kv: BTreeMap<String, Bytes>,
    /// Summaries of the crash reports among the `config-key` entries, by crash id.
    pub crashes: BTreeMap<String, crate::command::CrashSummary>,
    /// Version of the newest `config-key` change.
    pub kv_version: u64,
    /// The FSMap: file systems and MDS daemons.
    pub fsmap: FsMap,
    /// The newest encoded epochs of the FSMap.
    pub fsmaps: BTreeMap<Epoch, Bytes>,
    /// Metadata that each MDS sent at boot, by global id.
    pub mds_metadata: BTreeMap<u64, BTreeMap<String, String>>,
    /// Warnings in the newest beacon of each MDS (volatile).
    pub mds_health: BTreeMap<u64, MdsHealth>,
    /// Cluster log.
    pub log: ClusterLog,
    /// Muted health checks.
    pub mutes: BTreeMap<String, Mute>,
    /// Daemons that were refused (volatile).
    pub refused: RefusedDaemons,
    /// Metadata that each OSD sent at boot.
    pub osd_metadata: BTreeMap<OsdId, BTreeMap<String, String>>,
    /// PGs that no OSD has created yet.
    pub creating: BTreeMap<PgId, CreatingPg>,
    /// Snapshot ids by pool that every PG has purged, or that removals took for themselves.
    pub purged_snaps: BTreeMap<PoolId, IntervalSet>,
    /// State of the manager role: statistics, services (volatile).
    pub mgr: Manager,
    /// Sessions of OSDs with the manager role, by OSD (volatile). Requests go to the newest.
    pub mgr_osds: BTreeMap<OsdId, BTreeSet<u64>>,
    /// Open sessions by connection (volatile).
    pub sessions: BTreeMap<u64, SessionSummary>,
    /// Number of times that a monitor began to lead this cluster, including this time.
    pub term: u64,
    /// The active separate manager's own words (volatile).
    pub separate_mgr: crate::core::mgr_commands::SeparateMgr,
    /// Alerts that a separate manager raised (volatile).
    pub mgr_checks: BTreeMap<String, HealthCheck>,
    /// Running monitors, and the etcd cluster that holds their state.
    pub mons: Mons,
    /// Clock differences of the other monitors (volatile).
    pub clocks: crate::core::clocks::Clocks,
    /// How the state store answers (volatile).
    pub store: StoreAnswers,
    /// Cut links between OSDs.
    pub cuts: crate::core::cuts::Cuts,
    /// Start time of this process (volatile).
    pub started: Now,
    /// Source of keys and ids.
    pub random: Rc<dyn auth::Random>,
}

impl ClusterState {
    /// The running monitors in the order of their ranks. Any one of them is enough to serve.
    #[must_use]
    pub fn quorum(&self) -> Vec<String> {
        let up = |n: &&String| self.mons.up.as_ref().is_none_or(|up| up.contains(*n));
        self.monmap.ranks.iter().filter(up).cloned().collect()
    }

    /// Sets or removes a `config-key` entry.
    pub(crate) fn set_kv(&mut self, k: String, v: Option<Bytes>) {
        if let Some(id) = crate::command::crash_id(&k) {
            match v.as_ref().and_then(crate::command::CrashSummary::of) {
                Some(s) => self.crashes.insert(id.to_owned(), s),
                None => self.crashes.remove(id),
            };
        }
        match v {
            Some(v) => self.kv.insert(k, v),
            None => self.kv.remove(&k),
        };
    }

    /// Ranks of the running monitors.
    #[must_use]
    pub fn quorum_ranks(&self) -> Vec<usize> {
        self.quorum().iter().filter_map(|n| self.monmap.ranks.iter().position(|r| r == n)).collect()
    }

    /// The election epoch for Ceph's tools: odd while there is a quorum, and higher after each start of a leader.
    #[must_use]
    pub fn election_epoch(&self) -> u64 {
        1 + 2 * self.term
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

/// Changes collected for the next commit.
#[derive(Default)]
pub struct Pending {
    inc: Option<Incremental>,
    preview: Option<Arc<OsdMap>>,
    /// Entities added or changed (`Some`) or removed (`None`).
    pub auth: BTreeMap<AuthName, Option<AuthEntry>>,
    /// Options set or removed.
    pub config: BTreeMap<ConfigKey, Option<String>>,
    /// Text of the configuration history entry.
    pub config_reason: String,
    /// `config-key` entries set or removed.
    pub kv: BTreeMap<String, Option<Bytes>>,
    /// Mutes set or removed.
    pub mutes: BTreeMap<String, Option<Mute>>,
    /// Lines for the cluster log.
    pub log: Vec<LogEntry>,
    /// The new monmap, with its new epoch.
    pub monmap: Option<MonMap>,
    /// The new manager map, with its new epoch.
    pub mgrmap: Option<MgrMap>,
    /// The new FSMap, with its new epoch.
    pub fsmap: Option<FsMap>,
    /// MDS metadata set or removed.
    pub mds_metadata: BTreeMap<u64, Option<BTreeMap<String, String>>>,
    /// OSD metadata set or removed.
    pub osd_metadata: BTreeMap<OsdId, Option<BTreeMap<String, String>>>,
    /// PGs that OSDs reported as created.
    pub created_pgs: Vec<PgId>,
    /// Snapshot ids that removals took for themselves, by pool; they count as purged.
    pub taken_snaps: BTreeMap<PoolId, IntervalSet>,
    /// Pools whose purged snapshots move from the record of an earlier build to the present ones.
    pub moved_purged: BTreeSet<PoolId>,
    /// New rotating service keys.
    pub service_keys: Option<auth::ServiceKeys>,
    /// End of the next batch of global ids.
    pub global_id_end: Option<u64>,
    /// The new term, when a monitor begins to lead.
    pub term: Option<u64>,
    /// The epoch below which OSD maps are removed.
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
            && self.taken_snaps.is_empty()
            && self.moved_purged.is_empty()
            && self.service_keys.is_none()
            && self.global_id_end.is_none()
            && self.term.is_none()
            && self.trim_to.is_none()
    }

    /// The pending map change, if there is one.
    #[must_use]
    pub fn inc(&self) -> Option<&Incremental> {
        self.inc.as_ref()
    }

    /// The pending map change, for writing; created on first use. The core sets its time and checksums.
    pub fn inc_mut(&mut self, state: &ClusterState) -> &mut Incremental {
        self.preview = None;
        self.inc.get_or_insert_with(|| {
            Incremental::new(state.osdmap.fsid, state.osdmap.epoch.next(), state.osdmap.modified)
        })
    }

    /// Sets the upmap items of a PG; without items it has none.
    pub fn set_upmap_items(&mut self, state: &ClusterState, pg: PgId, items: Vec<(OsdId, OsdId)>) {
        let had = state.osdmap.pg_upmap_items.contains_key(&pg);
        let inc = self.inc_mut(state);
        inc.new_pg_upmap_items.remove(&pg);
        inc.old_pg_upmap_items.remove(&pg);
        if !items.is_empty() {
            inc.new_pg_upmap_items.insert(pg, items);
        } else if had {
            inc.old_pg_upmap_items.insert(pg);
        }
    }

    /// The map with the pending change applied; cached until the next `inc_mut`.
    pub fn map(&mut self, state: &ClusterState) -> Arc<OsdMap> {
        let Some(inc) = &self.inc else { return Arc::clone(&state.osdmap) };
        Arc::clone(self.preview.get_or_insert_with(|| {
            // An inapplicable change is dropped by the proposal, with an error in the log, so the committed map
            // stands here.
            state.osdmap.apply(inc).map_or_else(|_| Arc::clone(&state.osdmap), Arc::new)
        }))
    }

    /// An entity with pending changes.
    #[must_use]
    pub fn auth<'a>(&'a self, state: &'a ClusterState, name: &AuthName) -> Option<&'a AuthEntry> {
        match self.auth.get(name) {
            Some(e) => e.as_ref(),
            None => state.auth.get(name),
        }
    }

    /// An option with pending changes.
    #[must_use]
    pub fn config<'a>(&'a self, state: &'a ClusterState, key: &ConfigKey) -> Option<&'a str> {
        match self.config.get(key) {
            Some(e) => e.as_deref(),
            None => state.config.values.get(key).map(String::as_str),
        }
    }

    /// The manager map with pending changes.
    #[must_use]
    pub fn mgrmap<'a>(&'a self, state: &'a ClusterState) -> &'a MgrMap {
        self.mgrmap.as_ref().unwrap_or(&state.mgrmap)
    }

    /// The pending manager map for writing, with the next epoch.
    pub fn mgrmap_mut(&mut self, state: &ClusterState) -> &mut MgrMap {
        self.mgrmap.get_or_insert_with(|| MgrMap { epoch: state.mgrmap.epoch.next(), ..state.mgrmap.clone() })
    }

    /// The pending FSMap for writing, with the next epoch.
    pub fn fsmap_mut(&mut self, state: &ClusterState) -> &mut FsMap {
        self.fsmap.get_or_insert_with(|| FsMap { epoch: state.fsmap.epoch.next(), ..state.fsmap.clone() })
    }

    /// A pool of the pending map for writing: changes go into the incremental. `None` if there is no such pool.
    pub fn pool_mut(&mut self, state: &ClusterState, pool: PoolId) -> Option<&mut PgPool> {
        let current = self.map(state).pool(pool).cloned()?;
        let inc = self.inc_mut(state);
        Some(inc.new_pools.entry(pool).or_insert_with(|| PgPool::clone(&current)))
    }

    /// Queues a snapshot of a pool for removal. As in Ceph the removal takes the pool's next snapshot id. That id
    /// counts as purged at once, so that it leaves no gap between purged snapshots.
    pub fn remove_snap(&mut self, state: &ClusterState, pool: PoolId, snap: SnapId) {
        let epoch = state.osdmap.epoch.next();
        let Some(p) = self.pool_mut(state, pool) else { return };
        p.snaps.remove(&snap.0);
        p.snap_seq = SnapId(p.snap_seq.0 + 1);
        p.snap_epoch = epoch;
        let taken = p.snap_seq.0;
        self.taken_snaps.entry(pool).or_default().insert(taken, 1);
        self.inc_mut(state).new_removed_snaps.entry(pool).or_default().insert(snap.0, 1);
    }

    /// A `config-key` entry with pending changes.
    #[must_use]
    pub fn kv<'a>(&'a self, state: &'a ClusterState, key: &str) -> Option<&'a Bytes> {
        match self.kv.get(key) {
            Some(e) => e.as_ref(),
            None => state.kv.get(key),
        }
    }

    /// Adds a line of this monitor to the cluster log.
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

    /// Takes the pending map change, for the commit.
    pub(crate) fn take_inc(&mut self) -> Option<Incremental> {
        self.preview = None;
        self.inc.take()
    }
}

/// The role that a command was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The monitor (`MON_COMMAND`).
    Mon,
    /// The manager (`MGR_COMMAND`).
    Mgr,
    /// The process itself (`ceph tell mon.x`, `ceph tell mgr.x`).
    Tell,
}

/// The session of a command's sender.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// The sender's identity and rights.
    pub principal: Principal,
    /// The sender's entity instance.
    pub entity: EntityName,
    /// The addresses that the sender announces.
    pub addrs: AddrVec,
    /// The features that the sender announced.
    pub features: Features,
    /// The role that the session is connected to.
    pub role: Role,
    /// The front monitor that relays the session; `None` for a direct connection.
    pub by: Option<String>,
}

/// The time at which a command is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At once.
    Now,
    /// After the pending changes are committed.
    Committed,
    /// After a commit: the outcome is discarded and the command dispatched again, because it depends on another
    /// command of the same proposal.
    Retry,
    /// After a read: the outcome is discarded, the full map of the epoch read into `history`, and the command
    /// dispatched again.
    NeedMap(Epoch),
    /// After the host has done the job among the effects ([`CommandEffect::Job`]), which gives the answer.
    Host,
}

/// A side effect of a command, carried out with its answer.
#[derive(Clone, Debug)]
pub enum CommandEffect {
    /// Send to an OSD's manager session (`OSD_SCRUB2`, `OSD_FORCE_RECOVERY`).
    ToOsd(OsdId, Message),
    /// Read the stored state and compare it with the state in memory; the result goes to the cluster log.
    ScrubState,
    /// Drop PG statistics of a removed pool.
    ForgetPool(PoolId),
    /// Put these settings in force (`tell mon.x config set`).
    Settings(Box<cluster::settings::Settings>),
    /// Ask the host to stop the process gracefully (`tell mon.x …`).
    Restart,
    /// Hand work to the host, which gives the answer.
    Job(HostJob),
    /// Change the state of the balancer.
    Balancer(mgr::balance::BalancerChange),
    /// Note the program that carries out a rehearsed change; empty for none.
    Rehearsal(String),
}

/// A command that needs a client of the cluster, so the host runs it.
#[derive(Clone, Debug)]
pub struct HostJob {
    /// The words of the command.
    pub prefix: &'static str,
    /// The arguments as text.
    pub args: BTreeMap<String, String>,
    /// The sender's session.
    pub session: SessionInfo,
}

/// The outcome of a command.
#[derive(Clone, Debug)]
pub struct CommandOutcome {
    /// 0 or a negative errno.
    pub rc: i32,
    /// Status line (the CLI prints it to stderr).
    pub rs: String,
    /// Output.
    pub out: Bytes,
    /// Output that is made in pieces and takes the place of `out`.
    pub listing: Option<Box<Listing>>,
    /// The time of the answer.
    pub when: When,
    /// Side effects.
    pub effects: Vec<CommandEffect>,
}

impl CommandOutcome {
    /// Success with output, answered at once.
    #[must_use]
    pub fn output(out: impl Into<Bytes>) -> Self {
        Self { out: out.into(), ..Self::done("") }
    }

    /// Success with a status line, answered at once.
    #[must_use]
    pub fn done(rs: impl Into<String>) -> Self {
        Self { rc: 0, rs: rs.into(), out: Bytes::new(), listing: None, when: When::Now, effects: Vec::new() }
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

    /// An outcome that the host gives once it has done `job`.
    #[must_use]
    pub fn host(job: HostJob) -> Self {
        Self { when: When::Host, effects: vec![CommandEffect::Job(job)], ..Self::done("") }
    }

    /// The outcome that dispatches the command again after the commit.
    #[must_use]
    pub fn retry() -> Self {
        Self { when: When::Retry, ..Self::done("") }
    }
}
