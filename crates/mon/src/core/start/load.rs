//! Builds a running core from the state store, and the first records of a new cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use auth::ServiceKeys;
use base::id::Uuid;
use base::{AddrVec, AuthName, Epoch, Now, OsdId, PoolId, Utime};
use bytes::Bytes;
use cluster::crush::{Bucket, BucketAlg, Rule, Step, Tunables, op};
use cluster::monmap::mon_feature;
use cluster::osdmap::map_flag;
use cluster::{CrushMap, IntervalSet, MapError, MonInfo, MonMap, OsdMap, release};
use state::{Entry, Range, Txn};
use wire::types::{FsMap, MgrMap};
use wire::{Decode, DecodeError, Features};

use crate::core::MonCore;
use crate::core::pool::purged;
use crate::core::session::global_id::GlobalIds;
use crate::state::kv::KvStore;
use crate::state::log::ClusterLog;
use crate::state::maps::{MapHistory, StoredMaps};
use crate::state::options::MonOptions;
use crate::state::records::{
    Bounds, CreatingPool, FEATURES, FORMAT, FORMAT_FEATURES, FORMAT_READ, Growing, key, value,
};
use crate::state::{
    AuthEntry, ClusterState, ConfigDb, ConfigKey, FsState, OsdState, Pending, Role, Sessions, StateView, StoreAnswers,
};

/// Number of incrementals read at start; older ones are read on demand.
const INCREMENTALS_LOADED: u32 = 256;

/// The reason why the state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The store holds no cluster.
    #[error("the state store holds no cluster: record {0} is missing")]
    Missing(&'static str),
    /// The state has another layout.
    #[error("the state store has format {0}; this program reads {FORMAT_READ} to {FORMAT_FEATURES}")]
    Format(u32),
    /// A newer program has written the state, in a layout that this one does not know.
    #[error(
        "the state store was made by a newer version of Belemnite: it has format {0}, this version reads up to \
         {FORMAT_FEATURES}; run the version that made it"
    )]
    NewerFormat(u32),
    /// A newer program has written the state.
    #[error("the state store was {0}")]
    Newer(base::Newer),
    /// The store sent a revision twice, or an older one.
    #[error("the state store sent revision {got} after {have}; revisions must grow")]
    OldRevision {
        /// The newest revision known.
        have: u64,
        /// The revision that the store sent.
        got: u64,
    },
    /// A counter is too close to its overflow.
    #[error("record {key}: {n} is more than any cluster counts")]
    Count {
        /// The key.
        key: String,
        /// The number.
        n: u64,
    },
    /// A record does not decode.
    #[error("record {key}: {error}")]
    Record {
        /// The key of the record.
        key: String,
        /// The reason.
        error: DecodeError,
    },
    /// A map does not decode.
    #[error("OSD map: {0}")]
    Map(#[from] MapError),
}

/// The ranges to read first: everything but the maps, with the bounds of the epochs.
#[must_use]
pub fn ranges() -> Vec<Range> {
    let before_maps = Range { start: Bytes::new(), end: Some(Bytes::from_static(b"osdmap/full/")) };
    let after_maps = Range { start: Bytes::from_static(b"osdmap0"), end: None };
    vec![before_maps, after_maps]
}

/// The ranges to read second, according to the records of the first: those of the newest full map, and the
/// incrementals before it. Error: the bounds of the epochs are missing or do not decode.
pub fn map_ranges(records: &[(Bytes, Entry)]) -> Result<Vec<Range>, LoadError> {
    let b = bounds(records)?.0;
    let h = MapHistory::new(&b);
    let first = b.newest.0.saturating_sub(INCREMENTALS_LOADED).max(b.oldest.0.saturating_add(1));
    let mut ranges = h.ranges_for_fulls(b.newest, b.newest);
    ranges.push(h.range_of_incs(Epoch(first), b.newest));
    Ok(ranges)
}

fn find<'a>(records: &'a [(Bytes, Entry)], k: &'static str) -> Result<&'a Entry, LoadError> {
    records.iter().find(|(x, _)| x == k).map(|(_, e)| e).ok_or(LoadError::Missing(k))
}

fn decode<T: Decode>(k: &[u8], v: &Bytes) -> Result<T, LoadError> {
    T::from_bytes(v).map_err(|error| LoadError::Record { key: String::from_utf8_lossy(k).into_owned(), error })
}

fn found<T: Decode>(records: &[(Bytes, Entry)], k: &'static str) -> Result<T, LoadError> {
    decode(k.as_bytes(), &find(records, k)?.value)
}

/// Verifies that this program may read, and with `change` also change, a state with these records. Returns the version of
/// its layout. Error: no version, one that this program does not know, or unknown features.
pub fn check_format(record: impl Fn(&'static str) -> Option<Bytes>, change: bool) -> Result<u32, LoadError> {
    let of = |k: &'static str| record(k).ok_or(LoadError::Missing(k));
    let format: u32 = decode(key::FORMAT.as_bytes(), &of(key::FORMAT)?)?;
    match format {
        FORMAT_READ..=FORMAT => Ok(format),
        FORMAT_FEATURES => {
            let words = of(key::FEATURES)?;
            let words = base::FeatureWords::from_bytes(&words).ok_or(LoadError::Missing(key::FEATURES))?;
            words.check(&FEATURES, change).map_err(LoadError::Newer)?;
            Ok(format)
        }
        0 => Err(LoadError::Format(format)),
        _ => Err(LoadError::NewerFormat(format)),
    }
}

pub(in crate::core) fn bounds(records: &[(Bytes, Entry)]) -> Result<(Bounds, u64), LoadError> {
    let e = find(records, key::OSDMAP_BOUNDS)?;
    Ok((decode(key::OSDMAP_BOUNDS.as_bytes(), &e.value)?, e.modified))
}

/// The parameters of the process.
pub struct Setup {
    /// This monitor's name.
    pub name: String,
    /// Options given on the command line and in the configuration file.
    pub options: MonOptions,
    /// Addresses of the manager role, `None` without one.
    pub mgr_addrs: Option<AddrVec>,
    /// Source of keys.
    pub random: Rc<dyn auth::Random>,
}

/// The state from the store's records.
pub(in crate::core) struct Loaded {
    state: ClusterState,
    service_keys: ServiceKeys,
    global_ids: GlobalIds,
    bounds_revision: u64,
    format: u32,
    /// Pools whose purged snapshots are in the record of an earlier build.
    moved_purged: BTreeSet<PoolId>,
}

impl Loaded {
    /// The state.
    pub(in crate::core) fn state(&self) -> &ClusterState {
        &self.state
    }

    /// Decodes the records (all of [`ranges`]) and maps (all of [`map_ranges`]).
    pub(in crate::core) fn read(
        records: &[(Bytes, Entry)],
        maps: &[(Bytes, Entry)],
        mon_name: String,
        options: MonOptions,
        random: Rc<dyn auth::Random>,
        now: Now,
    ) -> Result<Self, LoadError> {
        let format = check_format(|k| find(records, k).ok().map(|e| e.value.clone()), true)?;
        let (b, bounds_revision) = bounds(records)?;
        let maps = StoredMaps::of(maps);
        let full = maps.full(b.newest)?.ok_or(LoadError::Missing("osdmap/full"))?;
        let osdmap = Arc::new(OsdMap::decode_blob(&full)?);
        // Every state has the time of its creation.
        found::<Utime>(records, key::CREATED)?;
        let mut history = MapHistory::new(&b);
        history.loaded(full, maps.incs);
        let mut state = StateView {
            fsid: found(records, key::FSID)?,
            lost_tickets: None,
            mon_name,
            options,
            osdmap,
            history,
            monmap: found(records, key::MONMAP)?,
            mgrmap: found(records, key::MGRMAP)?,
            auth: BTreeMap::new(),
            config: ConfigDb::default(),
            kv: KvStore::default(),
            // There is no record until the first file system or MDS.
            fs: FsState { map: FsMap { epoch: Epoch(1), ..FsMap::default() }, ..FsState::default() },
            log: ClusterLog::default(),
            mutes: BTreeMap::new(),
            refused: Default::default(),
            osds: OsdState::default(),
            mgr: mgr::Manager::new(now.wall),
            sessions: Sessions::default(),
            separate_mgr: crate::state::separate_mgr::SeparateMgr::at_start(),
            mons: crate::state::Mons::default(),
            store: StoreAnswers::default(),
            started: now,
            random,
        };
        let global_ids = GlobalIds::default();
        let mut service_keys = ServiceKeys::default();
        let moved_purged = load_records(&mut state, records, &global_ids, &mut service_keys)?;
        // A removed pool may have left records.
        let map = Arc::clone(&state.osdmap);
        state.osds.creating.retain(|pg, _| map.pool(pg.pool).is_some());
        state.osds.purged_snaps.retain(|pool, _| map.pool(*pool).is_some());
        if let Some((e, b)) = state.fs.epochs.last_key_value() {
            state.fs.map = decode(&key::fsmap(*e), b)?;
        }
        state.log.next = state.log.next.max(now.wall.sec.into());
        state.options.apply_central(&state.config, &state.mon_name);
        Ok(Self { state: state.into(), service_keys, global_ids, bounds_revision, format, moved_purged })
    }
}

impl MonCore {
    /// A core from its records (all of [`ranges`]) and maps (all of [`map_ranges`]). Error: a missing record, an
    /// unknown format, or a record or map that does not decode.
    pub fn load(
        records: &[(Bytes, Entry)],
        maps: &[(Bytes, Entry)],
        setup: Setup,
        now: Now,
    ) -> Result<Self, LoadError> {
        let loaded = Loaded::read(records, maps, setup.name, setup.options, setup.random, now)?;
        let Loaded { state, service_keys, global_ids, bounds_revision, format, moved_purged } = loaded;
        let state_log: Vec<_> = state.log.newest(crate::state::log::KNOWN_LINES).cloned().collect();
        let mut instance = [0; 8];
        state.random.fill(&mut instance);
        let mut core = Self {
            state,
            pending: Pending::default(),
            writer: crate::core::propose::writer::Writer::new(
                u64::from_le_bytes(instance),
                bounds_revision,
                format < FORMAT,
            ),
            intake: crate::core::Intake::of(&state_log),
            answers: crate::core::Answers::default(),
            requests: crate::core::reply::requests::Requests::default(),
            audit: crate::core::commands::audit::Audit::default(),
            sessions: BTreeMap::new(),
            leaving: BTreeMap::new(),
            credentials: crate::core::session::credentials::Credentials::new(service_keys, global_ids),
            failures: crate::core::osd::failure::FailureReports::default(),
            liveness: crate::core::osd::Liveness::default(),
            creating_targets: crate::core::osd::CreatingTargets::default(),
            merges: BTreeMap::new(),
            mgr_watch: crate::core::mgr::MgrWatch::default(),
            mds_watch: crate::core::fs::MdsWatch::default(),
            effects: Vec::new(),
            ticks: Default::default(),
            ops: crate::state::ops::OpTracker::default(),
            now,
        };
        core.pending.set_moved_purged(moved_purged);
        core.start(setup.mgr_addrs, now);
        Ok(core)
    }

    /// Makes the first changes of a new process: fresh keys and ids, and the addresses of its manager role.
    fn start(&mut self, mgr_addrs: Option<AddrVec>, now: Now) {
        let map = Arc::clone(&self.state.osdmap);
        for osd in map.osds().filter(|o| map.is_down(*o) && map.is_in(*o)) {
            self.liveness.is_down(osd, now.mono);
        }
        self.assign_creating();
        // The term is durable before any client is served (`is_ready`).
        let term = self.state.begin_term();
        self.pending.set_term(term);
        self.close_purged_gaps();
        self.tick_auth();
        if let Some(addrs) = mgr_addrs {
            let name = self.state.mon_name.clone();
            // A number that no client has, because it is below the first batch.
            let gid = crate::core::session::global_id::FIRST - 1;
            // What the role's former holder still does must not reach the OSDs beside this one. A built-in role reaches
            // them only by its clients; its address may be that of this process.
            if [0, gid].contains(&self.state.mgrmap.active_gid) {
                self.pending.end_clients(&self.state, now.wall);
            } else {
                self.pending.end_manager(&self.state, now.wall);
            }
            let m = self.pending.mgrmap_mut(&self.state);
            m.active_addrs = addrs;
            m.active_gid = gid;
            m.active_name = name;
            m.available = true;
            m.active_change = now.wall;
            m.active_mgr_features = Features::PACIFIC.0;
            m.standbys.clear();
            m.services.clear();
        }
        if !self.state.options.external_mgr {
            return;
        }
        if self.state.mgrmap.active_gid == crate::core::session::global_id::FIRST - 1 {
            self.pending.end_clients(&self.state, now.wall);
            let m = self.pending.mgrmap_mut(&self.state);
            *m = MgrMap { epoch: m.epoch, modules: std::mem::take(&mut m.modules), ..MgrMap::default() };
        }
    }

    /// Adds ids that no snapshot has to the purged snapshots of pools whose record is of an earlier build.
    fn close_purged_gaps(&mut self) {
        for (pool, purged) in &self.state.osds.purged_snaps {
            if !self.pending.moved_purged.contains(pool) {
                continue;
            }
            let app = self.state.osdmap.pool(*pool).is_some_and(|p| p.application_metadata.contains_key("cephfs"));
            let gaps = purged::unused(&self.state.osdmap, *pool, purged, app || self.state.fs.map.uses_pool(*pool));
            if !gaps.is_empty() {
                self.pending.set_taken_snaps(*pool, gaps);
            }
        }
    }

    /// Makes this monitor the leader of several: every transaction compares the fence.
    pub fn lead(&mut self, fence: (Bytes, u64)) {
        self.writer.lead(fence);
        // No monitor counts as down before the list is read.
        self.state.join_monitors();
    }

    /// Sets the running monitors, from the leader's membership. An empty list has not been read yet and changes
    /// nothing, since a list always names this monitor.
    pub fn set_monitors_up(&mut self, names: BTreeSet<String>) {
        if !names.is_empty() {
            self.state.set_monitors_up(names);
        }
    }

    /// Sets the metadata of the running monitors. Of those that do not run, what they last told stays.
    pub fn set_monitor_metadata(&mut self, all: BTreeMap<String, BTreeMap<String, String>>) {
        self.state.set_monitor_metadata(all);
    }

    /// Sets the condition of the etcd cluster that holds the state; `None` for a state in a file.
    pub fn set_etcd(&mut self, condition: Option<Arc<state::etcd::care::Condition>>) {
        self.state.set_etcd(condition);
    }

    /// Sets the free and all bytes of the file system with the state; `None` for a state in etcd.
    pub fn set_space(&mut self, space: Option<(u64, u64)>) {
        self.state.set_space(space);
    }

    /// Takes `n` global ids for sessions of another monitor.
    pub fn take_ids(&mut self, n: u64) -> Option<(u64, u64)> {
        self.credentials.ids().take_many(n)
    }

    /// Records that a client authenticated at another monitor with its pending key.
    pub fn key_used(&mut self, name: base::AuthName, key: auth::CryptoKey) {
        self.credentials.pending_key_used(name, key);
    }

    /// True once the first commit is done, so that keys and ids are there and clients may connect.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.credentials.is_ready()
    }
}

/// Checks a counter from the record `k`. A value that no cluster reaches by counting is an error, since it could
/// overflow.
fn count(k: &Bytes, n: u64) -> Result<u64, LoadError> {
    if n < COUNT_MAX {
        return Ok(n);
    }
    Err(LoadError::Count { key: String::from_utf8_lossy(k).into_owned(), n })
}

/// Upper bound of stored counters.
const COUNT_MAX: u64 = 1 << 62;

/// Loads all records; the result are the pools whose purged snapshots are in the record of an earlier build.
fn load_records(
    s: &mut StateView,
    records: &[(Bytes, Entry)],
    ids: &GlobalIds,
    service_keys: &mut ServiceKeys,
) -> Result<BTreeSet<PoolId>, LoadError> {
    let mut moved = BTreeSet::new();
    for (k, e) in records {
        moved.extend(load_purged(s, k, &e.value)?);
        load_record(s, k, &e.value, ids, service_keys)?;
    }
    Ok(moved)
}

fn load_record(
    s: &mut StateView,
    k: &Bytes,
    v: &Bytes,
    ids: &GlobalIds,
    service_keys: &mut ServiceKeys,
) -> Result<(), LoadError> {
    let Ok(text) = std::str::from_utf8(k) else { return Ok(()) };
    let hex = |prefix: &str| text.strip_prefix(prefix).and_then(|h| u64::from_str_radix(h, 16).ok());
    if let Some(n) = text.strip_prefix(key::AUTH).and_then(AuthName::parse) {
        s.auth.insert(n, decode::<AuthEntry>(k, v)?);
    } else if let Some((who, name)) = text.strip_prefix(key::CONFIG).and_then(|r| r.split_once('\0')) {
        let value = String::from_utf8_lossy(v).into_owned();
        s.config.values.insert(ConfigKey { who: who.to_owned(), name: name.to_owned() }, value);
    } else if let Some(n) = hex(key::CONFIG_HISTORY) {
        s.config.history.push_back(decode(k, v)?);
        s.config.version = s.config.version.max(count(k, n)?);
    } else if let Some(n) = text.strip_prefix(key::KV) {
        s.kv.set(n.to_owned(), Some(v.clone()));
    } else if let Some(n) = hex(key::LOG) {
        s.log.loaded(count(k, n)?, decode(k, v)?);
    } else if let Some(code) = text.strip_prefix(key::MUTE) {
        s.mutes.insert(code.to_owned(), decode(k, v)?);
    } else if let Some(n) = hex(key::OSD_METADATA) {
        s.osds.metadata.insert(OsdId(n as i32), decode(k, v)?);
    } else if let Some(n) = hex(key::FSMAP) {
        s.fs.epochs.insert(Epoch(n as u32), v.clone());
    } else if let Some(n) = hex(key::MDS_METADATA) {
        s.fs.metadata.insert(n, decode(k, v)?);
    } else if let Some(n) = hex(key::CREATING) {
        decode::<CreatingPool>(k, v)?.add_to(PoolId(n as i64), &mut s.osds.creating);
    } else if text == key::SERVICE_KEYS {
        *service_keys = decode(k, v)?;
    } else if text == key::TERM {
        s.mons.term = count(k, decode(k, v)?)?;
    } else if text == key::GROWTH {
        s.osds.growth = Some(decode::<Growing>(k, v)?.0);
    } else if text == key::LOST_TICKETS {
        s.lost_tickets = Some(decode(k, v)?);
    } else if text == key::GLOBAL_ID {
        ids.loaded(count(k, decode(k, v)?)?);
    }
    Ok(())
}

/// Loads a record of purged snapshots; the result is the pool whose snapshots are in the record of an earlier build.
fn load_purged(s: &mut StateView, k: &Bytes, v: &Bytes) -> Result<Option<PoolId>, LoadError> {
    let Some(rest) = std::str::from_utf8(k).ok().and_then(|t| t.strip_prefix(key::PURGED_POOL)) else {
        return Ok(None);
    };
    let (pool, block) = rest.split_once('/').map_or((rest, None), |(p, b)| (p, Some(b)));
    let Ok(pool) = u64::from_str_radix(pool, 16).map(|n| PoolId(n as i64)) else { return Ok(None) };
    s.osds.purged_snaps.entry(pool).or_default().union_of(&decode::<IntervalSet>(k, v)?);
    Ok(block.is_none().then_some(pool))
}

/// CRUSH type of hosts.
const DOMAIN_HOST: i32 = 1;

/// The parameters of a new cluster.
pub struct NewCluster {
    /// The cluster's id.
    pub fsid: Uuid,
    /// The first monitor's name.
    pub mon_name: String,
    /// The first monitor's addresses.
    pub mon_addrs: AddrVec,
    /// Further monitors.
    pub others: Vec<(String, AddrVec)>,
    /// The first keys and caps.
    pub auth: BTreeMap<AuthName, AuthEntry>,
    /// Time of creation.
    pub now: Utime,
}

impl NewCluster {
    /// The transaction that writes the first records into an empty store; its CRUSH rule puts copies on different
    /// hosts. Error: the first OSD map cannot be encoded and decoded again.
    pub fn records(&self) -> Result<Txn, MapError> {
        self.records_for(DOMAIN_HOST)
    }

    /// As [`NewCluster::records`], with the failure domain of the first rule as a CRUSH type number (0: OSDs, 1:
    /// hosts).
    pub fn records_for(&self, domain: i32) -> Result<Txn, MapError> {
        let mut monmap = MonMap {
            fsid: self.fsid,
            epoch: Epoch(1),
            last_changed: self.now,
            created: self.now,
            persistent_features: mon_feature::PACIFIC_ALL,
            optional_features: 0,
            min_mon_release: release::PACIFIC,
            ..MonMap::default()
        };
        monmap.add(MonInfo { name: self.mon_name.clone(), public_addrs: self.mon_addrs.clone(), ..MonInfo::default() });
        for (name, addrs) in &self.others {
            monmap.add(MonInfo { name: name.clone(), public_addrs: addrs.clone(), ..MonInfo::default() });
        }
        let osdmap = self.first_osdmap(domain);
        let (inc, full) = crate::core::propose::first_epoch(&osdmap)?;
        let mut t = Txn::default();
        // Neither a cluster nor a part of an import.
        for k in [key::FORMAT, key::IMPORT] {
            t.compare.push(state::Compare::Modified(Bytes::from_static(k.as_bytes()), 0));
        }
        t.put(key::FORMAT, value(&FORMAT));
        t.put(key::FSID, value(&self.fsid));
        t.put(key::CREATED, value(&self.now));
        t.put(key::MONMAP, value(&monmap));
        t.put(key::MGRMAP, value(&MgrMap { epoch: Epoch(1), ..MgrMap::default() }));
        let (oldest, newest) = (osdmap.epoch, osdmap.epoch);
        let bounds = Bounds { oldest, newest, checkpoints: [newest].into(), writer: (0, 0) };
        t.put(key::OSDMAP_BOUNDS, value(&bounds));
        t.put(key::full(osdmap.epoch), full);
        t.put(key::inc(osdmap.epoch), inc);
        for (name, e) in &self.auth {
            t.put(key::auth(name), value(e));
        }
        Ok(t)
    }

    /// The OSD map of epoch 1: no OSDs, the default CRUSH hierarchy and rule, the flags and ratios of a new Pacific
    /// cluster.
    fn first_osdmap(&self, domain: i32) -> OsdMap {
        let profile = [("k", "2"), ("m", "2"), ("plugin", "jerasure"), ("technique", "reed_sol_van")];
        let profile = profile.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        OsdMap {
            fsid: self.fsid,
            epoch: Epoch(1),
            created: self.now,
            modified: self.now,
            flags: map_flag::FRESH,
            crush: Arc::new(default_crush(domain)),
            erasure_code_profiles: Arc::new([("default".to_owned(), profile)].into()),
            nearfull_ratio: 0.85,
            backfillfull_ratio: 0.90,
            full_ratio: 0.95,
            require_min_compat_client: release::LUMINOUS,
            require_osd_release: release::PACIFIC,
            ..OsdMap::default()
        }
    }
}

/// The CRUSH map of a new cluster: an empty root `default`, and a rule that puts copies into different subtrees of
/// type `domain` (1: hosts; 0: OSDs).
fn default_crush(domain: i32) -> CrushMap {
    const TYPES: [&str; 12] =
        ["osd", "host", "chassis", "rack", "row", "pdu", "pod", "room", "datacenter", "zone", "region", "root"];
    const ROOT: u16 = 11;
    let domain = domain.clamp(0, TYPES.len() as i32 - 1);
    let choose = if domain == 0 { op::CHOOSE_FIRSTN } else { op::CHOOSELEAF_FIRSTN };
    let steps = vec![Step::new(op::TAKE, -1, 0), Step::new(choose, 0, domain), Step::new(op::EMIT, 0, 0)];
    CrushMap {
        buckets: vec![Some(Arc::new(Bucket::new(-1, ROOT, BucketAlg::Straw2)))],
        rules: vec![Some(Rule { ruleset: 0, kind: cluster::pool::kind::REPLICATED, min_size: 1, max_size: 10, steps })],
        type_names: (0..).zip(TYPES).map(|(i, n)| (i, n.to_owned())).collect(),
        item_names: [(-1, "default".to_owned())].into(),
        rule_names: [(0, "replicated_rule".to_owned())].into(),
        tunables: Tunables::JEWEL,
        ..CrushMap::default()
    }
}

/// The role of a listener of the host, by its entity kind.
#[must_use]
pub fn role_of(kind: base::EntityKind) -> Role {
    if kind == base::EntityKind::MGR { Role::Mgr } else { Role::Mon }
}
