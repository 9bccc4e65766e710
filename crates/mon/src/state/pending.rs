//! The one proposal under construction.
//!
//! Commands and messages write their changes into [`Pending`]; the core turns it into one transaction and one new map
//! epoch, and answers after the commit.
//!
//! Invariants:
//!  1. Code that decides on pending changes asks `Pending` (`map`, `auth`, `config`, …), which shows committed state
//!     with the pending changes applied; so several commands of one proposal see each other's changes.
//!  2. A command that fails leaves `Pending` as it found it.
//!
//! Tests: `tests/does_a_rehearsal_foretell_the_map.rs` (1, `several_commands_see_each_other`), an assertion in
//! `command` (2).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{AddrKind, AddrVec, AuthName, EntityAddr, Epoch, Now, OsdId, PgId, PoolId, SnapId, Utime};
use bytes::Bytes;
use cluster::osdmap::AddrKey;
use cluster::{Incremental, IntervalSet, MonMap, OsdMap, PgPool};
use mgr::balance::StoredGrowth;
use wire::types::{FsMap, MgrMap};

use super::log::{LogEntry, Prio};
use super::records::{fits, key, value};
use super::{AuthEntry, ClusterState, ConfigKey, Mute};

/// Changes of a proposal beside that of the OSD map. Plain data: [`Pending`] lends it for reading, and a proposal in
/// flight owns it.
#[derive(Default)]
pub struct Changes {
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
    /// The pass that keeps PGs where they are, or its end.
    pub growth: Option<Option<StoredGrowth>>,
}

/// Changes collected for the next commit: read as [`Changes`], made by the methods here.
#[derive(Default)]
pub struct Pending {
    inc: Option<Incremental>,
    preview: Option<Arc<OsdMap>>,
    changes: Changes,
}

impl std::ops::Deref for Pending {
    type Target = Changes;

    fn deref(&self) -> &Changes {
        &self.changes
    }
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
            && self.growth.is_none()
    }

    /// The pending map change and the number of other changes of each kind, to see in assertions whether there are new
    /// ones.
    pub(crate) fn extent(&self) -> (Option<Incremental>, [usize; 15]) {
        let some = |is: bool| usize::from(is);
        let n = [
            self.auth.len(),
            self.config.len(),
            self.kv.len(),
            self.mutes.len(),
            self.log.len(),
            self.mds_metadata.len(),
            self.osd_metadata.len(),
            self.created_pgs.len(),
            self.taken_snaps.len(),
            some(self.monmap.is_some()),
            some(self.mgrmap.is_some()),
            some(self.fsmap.is_some()),
            some(self.service_keys.is_some()),
            some(self.trim_to.is_some()),
            some(self.growth.is_some()),
        ];
        (self.inc.clone(), n)
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

    /// Blocklists addresses at the OSDs until a time, and returns the OSD map epoch from which this holds. An address
    /// without port and nonce is left out, because it would name all processes of its host.
    pub(crate) fn fence(&mut self, state: &ClusterState, addrs: &AddrVec, until: Utime) -> Epoch {
        let inc = self.inc_mut(state);
        for a in addrs.0.iter().filter(|a| a.sock.is_some_and(|s| s.port() != 0 || a.nonce != 0)) {
            let key = AddrKey(EntityAddr { kind: AddrKind::ANY, ..*a });
            inc.old_blocklist.retain(|k| *k != key);
            inc.new_blocklist.insert(key, until);
        }
        inc.epoch
    }

    /// Ends the role of the active manager; the map has none afterwards. Its addresses and those of its clients are
    /// blocklisted, so that what it still does cannot reach the OSDs beside its successor.
    pub(crate) fn end_manager(&mut self, state: &ClusterState, now: Utime) {
        self.end_clients(state, now);
        let addrs = self.mgrmap(state).active_addrs.clone();
        let epoch = self.fence(state, &addrs, now.plus(state.options.mgr_blocklist));
        let m = self.mgrmap_mut(state);
        m.active_gid = 0;
        m.active_name.clear();
        m.active_addrs = AddrVec::default();
        m.active_change = now;
        m.active_mgr_features = 0;
        m.available = false;
        m.services.clear();
        m.last_failure_osd_epoch = epoch;
    }

    /// Blocklists the clients in the manager map, and takes them out of it.
    pub(crate) fn end_clients(&mut self, state: &ClusterState, now: Utime) {
        let clients = self.mgrmap(state).clients.clone();
        let until = now.plus(state.options.mgr_blocklist);
        let epochs: Vec<Epoch> = clients.iter().map(|a| self.fence(state, a, until)).collect();
        if let Some(epoch) = epochs.last() {
            let m = self.mgrmap_mut(state);
            m.clients.clear();
            m.client_names.clear();
            m.last_failure_osd_epoch = *epoch;
        }
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

    /// Sets the chosen primary of a PG; `None` for none.
    pub fn set_upmap_primary(&mut self, state: &ClusterState, pg: PgId, osd: Option<OsdId>) {
        let had = state.osdmap.pg_upmap_primaries.contains_key(&pg);
        let inc = self.inc_mut(state);
        inc.new_pg_upmap_primary.remove(&pg);
        inc.old_pg_upmap_primary.remove(&pg);
        if let Some(osd) = osd {
            inc.new_pg_upmap_primary.insert(pg, osd);
        } else if had {
            inc.old_pg_upmap_primary.insert(pg);
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
        self.changes.mgrmap.get_or_insert_with(|| MgrMap { epoch: state.mgrmap.epoch.next(), ..state.mgrmap.clone() })
    }

    /// The pending FSMap for writing, with the next epoch.
    pub fn fsmap_mut(&mut self, state: &ClusterState) -> &mut FsMap {
        self.changes.fsmap.get_or_insert_with(|| FsMap { epoch: state.fs.map.epoch.next(), ..state.fs.map.clone() })
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
        self.changes.taken_snaps.entry(pool).or_default().insert(taken, 1);
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
        let seq = state.log.next + self.log.len() as u64;
        self.changes.log.push(super::log::of_monitor(state, &state.mon_name, now, prio, channel, msg.into(), seq));
    }

    /// Adds a line of another daemon to the cluster log.
    pub fn add_log(&mut self, line: LogEntry) {
        self.changes.log.push(line);
    }

    /// Adds or changes an entity, or removes it (`None`).
    pub fn set_auth(&mut self, name: AuthName, entry: Option<AuthEntry>) {
        self.changes.auth.insert(name, entry);
    }

    /// Sets an option, or removes it (`None`).
    pub fn set_config(&mut self, key: ConfigKey, value: Option<String>) {
        self.changes.config.insert(key, value);
    }

    /// Changes options in place of all others that are pending; `reason` is the text of the history entry.
    pub fn replace_config(&mut self, changes: BTreeMap<ConfigKey, Option<String>>, reason: String) {
        (self.changes.config, self.changes.config_reason) = (changes, reason);
    }

    /// Sets the text of the configuration history entry.
    pub fn set_config_reason(&mut self, reason: String) {
        self.changes.config_reason = reason;
    }

    /// Sets a `config-key` entry, or removes it (`None`).
    pub fn set_kv(&mut self, key: String, value: Option<Bytes>) {
        self.changes.kv.insert(key, value);
    }

    /// Mutes an alert.
    pub fn mute(&mut self, code: String, mute: Mute) {
        self.changes.mutes.insert(code, Some(mute));
    }

    /// Ends the mute of an alert.
    pub fn unmute(&mut self, code: String) {
        self.changes.mutes.insert(code, None);
    }

    /// Sets the new monmap, which has its new epoch.
    pub fn set_monmap(&mut self, map: MonMap) {
        self.changes.monmap = Some(map);
    }

    /// Sets the metadata of an MDS, or removes it (`None`).
    pub fn set_mds_metadata(&mut self, gid: u64, metadata: Option<BTreeMap<String, String>>) {
        self.changes.mds_metadata.insert(gid, metadata);
    }

    /// Sets the metadata of an OSD, or removes it (`None`).
    pub fn set_osd_metadata(&mut self, osd: OsdId, metadata: Option<BTreeMap<String, String>>) {
        self.changes.osd_metadata.insert(osd, metadata);
    }

    /// Notes that an OSD has created a PG.
    pub(crate) fn pg_created(&mut self, pg: PgId) {
        self.changes.created_pgs.push(pg);
    }

    /// Sets the snapshot ids of a pool that count as purged.
    pub(crate) fn set_taken_snaps(&mut self, pool: PoolId, snaps: IntervalSet) {
        self.changes.taken_snaps.insert(pool, snaps);
    }

    /// Sets the pools whose purged snapshots move to the present records.
    pub(crate) fn set_moved_purged(&mut self, pools: BTreeSet<PoolId>) {
        self.changes.moved_purged = pools;
    }

    /// Sets the rotating service keys.
    pub(crate) fn set_service_keys(&mut self, keys: auth::ServiceKeys) {
        self.changes.service_keys = Some(keys);
    }

    /// Sets the end of the next batch of global ids.
    pub(crate) fn set_global_id_end(&mut self, end: u64) {
        self.changes.global_id_end = Some(end);
    }

    /// Sets the term of this leader.
    pub(crate) fn set_term(&mut self, term: u64) {
        self.changes.term = Some(term);
    }

    /// Sets the epoch below which OSD maps are removed.
    pub(crate) fn set_trim_to(&mut self, epoch: Epoch) {
        self.changes.trim_to = Some(epoch);
    }

    /// Sets the pass that keeps PGs where they are.
    pub(crate) fn set_growth(&mut self, growth: Option<StoredGrowth>) {
        self.changes.growth = Some(growth);
    }

    /// Takes the pending map change.
    pub(crate) fn take_inc(&mut self) -> Option<Incremental> {
        self.preview = None;
        self.inc.take()
    }

    /// Completes the new FSMap for its commit at `now`, and returns it.
    pub(crate) fn sealed_fsmap(&mut self, now: Utime) -> Option<&FsMap> {
        let m = self.changes.fsmap.as_mut()?;
        super::fs::map::seal(m, now);
        Some(m)
    }

    /// Leaves out the records with these keys, which the state store does not take.
    pub(crate) fn leave_out(&mut self, large: &[Bytes]) {
        let keeps = |k: Bytes| !large.contains(&k);
        let c = &mut self.changes;
        c.auth.retain(|n, _| keeps(key::auth(n)));
        c.kv.retain(|n, _| keeps(key::named(key::KV, n)));
        c.mutes.retain(|n, _| keeps(key::named(key::MUTE, n)));
        c.osd_metadata.retain(|o, _| keeps(key::osd_metadata(*o)));
        c.mds_metadata.retain(|n, _| keeps(key::numbered(key::MDS_METADATA, *n)));
        c.config.retain(|k, _| keeps(key::config(k)));
        c.log.retain(|l| fits(b"", value(l).len()));
        if large.iter().any(|k| k.starts_with(key::CONFIG_HISTORY.as_bytes())) {
            c.config.clear();
        }
        if c.fsmap.as_ref().is_some_and(|m| !keeps(key::fsmap(m.epoch))) {
            c.fsmap = None;
        }
        if !keeps(Bytes::from_static(key::MGRMAP.as_bytes())) {
            c.mgrmap = None;
        }
        if !keeps(Bytes::from_static(key::MONMAP.as_bytes())) {
            c.monmap = None;
        }
    }

    /// Takes the lines for the cluster log.
    pub(crate) fn take_log(&mut self) -> Vec<LogEntry> {
        std::mem::take(&mut self.changes.log)
    }

    /// Takes all changes for a proposal: that of the map, and the others.
    pub(crate) fn take(&mut self) -> (Option<Incremental>, Changes) {
        self.preview = None;
        (self.inc.take(), std::mem::take(&mut self.changes))
    }
}
