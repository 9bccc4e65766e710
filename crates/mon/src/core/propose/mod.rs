//! From pending changes to a proposal: the writes of one proposal at a time.
//!
//! | module | contents |
//! | --- | --- |
//! | `batch` | the writes of one proposal, in several transactions where one would be too large |
//! | `commit` | carries a proposal through: its transactions in order, and what follows them |
//! | `isolate` | proposals with a record that the state store does not take |
//! | `waiter` | actions that follow a commit |
//! | `writer` | the writer of proposals: the one in flight, the names of its transactions, and what these compare |
//!
//! Invariants:
//!  1. A proposal builds on the committed state. The next one begins after its commit, and the state in memory does
//!     not change before.
//!  2. Each map epoch is stored as incremental, which names the checksum of the full map; checkpoints also as full
//!     map (`state::maps`).
//!
//! Tests: assertions (1), `tests/does_the_history_hold_through_crashes.rs` (2).

pub(super) mod batch;
pub(super) mod commit;
pub(super) mod isolate;
pub(super) mod waiter;
pub(super) mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{Epoch, OsdId, PgId, PoolId, errno};
use bytes::Bytes;
use cluster::osdmap::osd_state;
use cluster::{Incremental, MapError, OsdMap};
use wire::types::LogEntry;

use super::MonCore;
use super::pool::purged;
use crate::state::config::CONFIG_HISTORY_STORED;
use crate::state::maps::below;
use crate::state::records::{Bounds, CHOSEN_PRIMARIES, CreatingPool, FORMAT, FORMAT_FEATURES, Growing, key, value};
use crate::state::{Changes, ConfigChange, CreatingPg, Durable, NewMap, Queues};
use batch::Batch;
use commit::Attempt;
use waiter::Waiter;

/// Most epochs removed by one proposal.
pub(super) const TRIM_BATCH: u32 = 250;
/// Chosen primaries that are checked against the acting set with each epoch: the first ones.
const PRIMARIES_CHECKED: usize = 64;

/// Bytes of changed options at which a change becomes another version of the configuration.
const HISTORY_BYTES: usize = 256 << 10;

/// A proposal whose commit is in flight. Plain data.
pub(super) struct Inflight {
    pub(super) attempt: Attempt,
    pub(super) started: base::Mono,
    pub(super) durable: Durable,
    pub(super) waiters: Vec<Waiter>,
}

impl Inflight {
    /// True if the proposal brings an OSD up.
    pub(super) fn brings_up(&self) -> bool {
        self.durable.map.as_ref().is_some_and(|m| !m.inc.new_up_client.is_empty())
    }

    /// True if the proposal takes an OSD down.
    pub(super) fn takes_down(&self) -> bool {
        let down = |s: &u32| *s == 0 || s & osd_state::UP != 0;
        self.durable.map.as_ref().is_some_and(|m| m.inc.new_state.values().any(down))
    }
}

impl MonCore {
    /// Makes used pending keys the keys of their entities.
    fn take_used_keys(&mut self) {
        for (name, key) in self.credentials.take_used() {
            let entry = self.pending.auth(&self.state, &name).filter(|e| e.pending_key.as_ref() == Some(&key));
            if let Some(caps) = entry.map(|e| e.caps.clone()) {
                tracing::info!(entity = %name, "mon: the entity's pending key was used and replaces its key");
                let new = crate::state::AuthEntry { key, pending_key: None, caps };
                self.pending.set_auth(name, Some(new));
            }
        }
    }

    /// Continues work that takes several turns, and starts a commit if there are changes and none is in flight. The
    /// host calls it once per turn, and again soon while [`MonCore::has_more`].
    pub fn flush(&mut self) {
        self.continue_walk();
        self.continue_listings();
        self.continue_deferred();
        self.serve_waiting();
        // Messages that waited for the last commit share the next one.
        let complete = self.intake.may_propose();
        if complete && !self.writer.is_busy() && !self.is_walking() {
            self.propose();
        }
        self.intake.end_turn();
    }

    /// Handles what waits only for a proposal; true if there are changes.
    fn collect(&mut self) -> bool {
        self.take_used_keys();
        self.record_own_clients();
        self.judge_refused();
        if self.pending.is_empty() {
            // Without pending changes the waiters' condition already holds.
            let ready = self.answers.take_waiters();
            self.intake.take_contributors();
            self.run_waiters(ready);
        }
        self.next_alone();
        if self.pending.is_empty()
            && self.answers.waiting() == 0
            && !self.intake.has_alone()
            && self.intake.has_deferred()
        {
            self.run_deferred();
        }
        !self.pending.is_empty() && self.intake.may_propose()
    }

    fn propose(&mut self) {
        debug_assert!(!self.writer.is_busy(), "the next proposal begins after the commit of the last one");
        if !self.collect() {
            return;
        }
        self.hold_growth();
        self.mark_growth();
        let mut creating = self.clear_creating_flags();
        let mut pending = std::mem::take(&mut self.pending);
        let mut waiters = self.answers.take_waiters();
        let from = self.intake.take_contributors();
        let mut b = Batch::default();
        self.put_small(&mut b, &pending);
        let fsmap = self.put_fs(&mut b, &mut pending);
        let config = self.put_config(&mut b, &pending);
        self.put_log(&mut b, &pending.log);
        let large = b.too_large();
        if !large.is_empty() {
            return self.isolate(pending, waiters, from, &large);
        }
        self.intake.log_known().proposed();
        let (inc, mut changes) = pending.take();
        let map = match inc.map(|inc| self.new_map(inc)).transpose() {
            Ok(m) => m,
            Err(e) => {
                tracing::error!("mon: dropping a map change that does not apply: {e}");
                fail_commands(&mut waiters, &e);
                changes.taken_snaps.clear();
                None
            }
        };
        self.put_format(&mut b, map.as_ref());
        self.put_map(&mut b, map.as_ref(), &mut creating);
        let purged = self.put_purged(&mut b, map.as_ref(), &mut changes);
        let bounds = self.new_bounds(&mut b, map.as_ref(), changes.trim_to);
        put_creating(&mut b, &creating);
        let log = std::mem::take(&mut changes.log);
        let oldest = bounds.oldest;
        let attempt = self.attempt(b.into_parts(), bounds);
        let durable = Durable { map, fsmap, changes, config, log, oldest, creating, purged };
        self.writer.set_inflight(Inflight { attempt, started: self.now.mono, durable, waiters });
    }

    /// Writes the version of the layout where it changes, with its features.
    fn put_format(&mut self, b: &mut Batch, map: Option<&NewMap>) {
        let old = self.writer.takes_format();
        let has = |m: &OsdMap| !m.pg_upmap_primaries.is_empty();
        if map.is_some_and(|m| has(&m.map)) && !has(&self.state.osdmap) {
            put_features(b);
        } else if old {
            b.head(key::FORMAT, Some(value(&FORMAT)));
        }
    }

    /// Writes lines of the cluster log, and removes those that leave it.
    fn put_log(&self, b: &mut Batch, lines: &[LogEntry]) {
        for (n, line) in (self.state.log.next..).zip(lines) {
            b.put(key::numbered(key::LOG, n), value(line));
        }
        for old in self.state.log.leaving(lines) {
            b.delete(key::numbered(key::LOG, old));
        }
    }

    /// Clears the CREATING flag of pools whose PGs all exist, and returns the remaining creation queues.
    fn clear_creating_flags(&mut self) -> Queues {
        let mut left: BTreeMap<PoolId, BTreeMap<PgId, CreatingPg>> = BTreeMap::new();
        for pg in &self.pending.created_pgs {
            let of_pool = PgId { pool: pg.pool, seed: 0 }..=PgId { pool: pg.pool, seed: u32::MAX };
            let queue = || self.state.osds.creating.range(of_pool).map(|(k, v)| (*k, *v)).collect();
            left.entry(pg.pool).or_insert_with(queue).remove(pg);
        }
        for (pool, queue) in &left {
            if queue.is_empty()
                && let Some(p) = self.pending.pool_mut(&self.state, *pool)
            {
                p.flags &= !cluster::pool::flag::CREATING;
            }
        }
        left.into_iter().map(|(pool, queue)| (pool, CreatingPool::of(pool, &queue))).collect()
    }

    fn new_map(&self, mut inc: Incremental) -> Result<NewMap, MapError> {
        inc.epoch = self.state.osdmap.epoch.next();
        inc.modified = self.now.wall;
        self.tidy(&mut inc)?;
        let map = self.state.osdmap.apply(&inc)?;
        let form = map.canonical_features(&inc);
        inc.encode_features = form.0;
        let (full_blob, crc) = map.encode_blob(form);
        inc.full_crc = crc;
        let inc_blob = inc.encode_blob(form, crc);
        let checkpoint = self.state.history.checkpoint_due(inc_blob.len(), full_blob.len());
        Ok(NewMap { map: Arc::new(map), inc, inc_blob, full_blob, checkpoint })
    }

    /// Completes a change: time stamps, and the removal of entries that depend on removed ones.
    fn tidy(&self, inc: &mut Incremental) -> Result<(), MapError> {
        let old = &self.state.osdmap;
        if !inc.new_up_client.is_empty() || inc.new_state.values().any(|s| *s == 0 || s & osd_state::UP != 0) {
            inc.new_last_up_change = inc.modified;
        }
        if inc.new_weight.iter().any(|(o, w)| (*w == 0) != (old.weight(*o) == 0)) {
            inc.new_last_in_change = inc.modified;
        }
        for pool in &inc.old_pools {
            inc.new_pools.remove(pool);
            inc.new_pool_names.remove(pool);
            inc.new_removed_snaps.remove(pool);
            if let Some(queued) = old.removed_snaps_queue.get(pool) {
                inc.new_purged_snaps.insert(*pool, queued.clone());
            }
        }
        let merged = |pg: &PgId| {
            let p = inc.new_pools.get(&pg.pool).or_else(|| old.pool(pg.pool).map(|p| &**p));
            p.is_some_and(|p| crate::state::pg_num::is_merged(p, pg.seed))
        };
        let gone = |pg: &PgId| inc.old_pools.contains(&pg.pool) || merged(pg);
        let upmap: Vec<PgId> = old.pg_upmap.iter().map(|(k, _)| *k).filter(gone).collect();
        let items: Vec<PgId> = old.pg_upmap_items.iter().map(|(k, _)| *k).filter(gone).collect();
        inc.old_pg_upmap.extend(upmap);
        inc.old_pg_upmap_items.extend(items);
        let primaries: Vec<PgId> = primaries_of_ending(old, inc).filter(gone).collect();
        inc.new_pg_upmap_primary.retain(|pg, _| !inc.old_pools.contains(&pg.pool) && !merged(pg));
        inc.old_pg_upmap_primary.extend(primaries);
        inc.new_pg_temp.retain(|pg, _| !inc.old_pools.contains(&pg.pool));
        let none = old.pg_temp.is_empty() && old.primary_temp.is_empty();
        if none && inc.new_pg_temp.is_empty() && inc.new_primary_temp.is_empty() {
            return Ok(());
        }
        let next = old.apply(inc)?;
        for (pg, set) in next.pg_temp.iter() {
            let pool_ok = next.pool(pg.pool).is_some_and(|p| pg.seed < p.pg_num);
            let alive = set.iter().any(|o| next.is_up(*o));
            if !pool_ok || !alive {
                inc.new_pg_temp.insert(*pg, Vec::new());
            }
        }
        for (n, (pg, osd)) in next.primary_temp.iter().enumerate() {
            let gone = next.pool(pg.pool).is_none_or(|p| pg.seed >= p.pg_num) || !next.is_up(*osd);
            // A tick removes others that have no effect (`overrides`).
            if gone || n < PRIMARIES_CHECKED && next.is_stale_primary_temp(*pg) {
                inc.new_primary_temp.insert(*pg, OsdId(-1));
            }
        }
        Ok(())
    }

    /// Writes a map epoch and its records.
    fn put_map(&self, b: &mut Batch, map: Option<&NewMap>, creating: &mut Queues) {
        let Some(m) = map else { return };
        let e = m.map.epoch;
        b.head_blob(key::inc(e), m.inc_blob.clone());
        if m.checkpoint {
            b.head_blob(key::full(e), m.full_blob.clone());
        }
        for (id, p) in &m.inc.new_pools {
            if p.has_flag(cluster::pool::flag::CREATING) && self.state.osdmap.pool(*id).is_none() {
                let c = CreatingPg { created: e, stamp: m.inc.modified };
                let queue = (0..p.pg_num).map(|seed| (PgId { pool: *id, seed }, c)).collect();
                creating.insert(*id, CreatingPool::of(*id, &queue));
            }
        }
        for id in &m.inc.old_pools {
            creating.insert(*id, None);
            purged::remove(b, *id);
        }
    }

    /// Writes the purged snapshots of a proposal, and returns what it adds to those of each pool: the snapshots that
    /// the map takes off the removal queue, and the ids that removals took for themselves.
    fn put_purged(&self, b: &mut Batch, map: Option<&NewMap>, c: &mut Changes) -> purged::Sets {
        let mut add = std::mem::take(&mut c.taken_snaps);
        if let Some(m) = map {
            let mut purged = m.inc.new_purged_snaps.clone();
            purged.retain(|p, _| !m.inc.old_pools.contains(p));
            if !purged.is_empty() {
                b.put(key::purged_snaps(m.map.epoch), value(&purged));
            }
            add.retain(|p, _| !m.inc.old_pools.contains(p));
            for (pool, snaps) in purged {
                add.entry(pool).or_default().union_of(&snaps);
            }
        }
        purged::put_moved(b, &self.state.osds.purged_snaps, &add, &c.moved_purged);
        purged::put(b, &self.state.osds.purged_snaps, &add, &c.moved_purged);
        add
    }

    /// The bounds of the stored epochs after the proposal; adds the removal of lower epochs to the batch.
    fn new_bounds(&self, b: &mut Batch, map: Option<&NewMap>, trim: Option<Epoch>) -> Bounds {
        let h = &self.state.history;
        let newest = map.map_or(h.newest, |m| m.map.epoch);
        let limit = Epoch(h.oldest.0.saturating_add(TRIM_BATCH));
        let oldest = trim.map_or(h.oldest, |t| t.min(limit).max(h.oldest));
        let before = h.checkpoints_from(h.oldest);
        let mut checkpoints = h.checkpoints_from(oldest);
        if let Some(first) = checkpoints.first()
            && before.first() != Some(first)
        {
            below(*first).into_iter().for_each(|r| b.remove_range(r));
        }
        checkpoints.extend(map.filter(|m| m.checkpoint).map(|m| m.map.epoch));
        Bounds { oldest, newest, checkpoints, writer: (0, 0) }
    }

    fn put_small(&self, b: &mut Batch, c: &Changes) {
        fn put(b: &mut Batch, k: Bytes, v: Option<Bytes>) {
            match v {
                Some(v) => b.put(k, v),
                None => b.delete(k),
            }
        }
        for (name, e) in &c.auth {
            put(b, key::auth(name), e.as_ref().map(value));
        }
        for (name, v) in &c.kv {
            put(b, key::named(key::KV, name), v.clone());
        }
        for (code, m) in &c.mutes {
            put(b, key::named(key::MUTE, code), m.as_ref().map(value));
        }
        for (osd, m) in &c.osd_metadata {
            put(b, key::osd_metadata(*osd), m.as_ref().map(value));
        }
        if let Some(m) = &c.monmap {
            b.head(key::MONMAP, Some(value(m)));
        }
        if let Some(m) = &c.mgrmap {
            b.put(key::MGRMAP, value(m));
        }
        if let Some(k) = &c.service_keys {
            b.put(key::SERVICE_KEYS, value(k));
        }
        if let Some(n) = c.term {
            b.put(key::TERM, value(&n));
        }
        if let Some(n) = c.global_id_end {
            b.put(key::GLOBAL_ID, value(&n));
        }
        if let Some(g) = &c.growth {
            b.head(key::GROWTH, g.clone().map(|g| value(&Growing(g))));
        }
    }

    /// Writes changed options and the history of the change. A long change is several versions, each with a record
    /// that the state store takes.
    fn put_config(&self, b: &mut Batch, c: &Changes) -> Vec<ConfigChange> {
        let db = &self.state.config;
        let mut changes: Vec<ConfigChange> = Vec::new();
        let mut bytes = 0;
        for (k, v) in &c.config {
            let old = db.values.get(k).cloned();
            let len = |v: &Option<String>| v.as_ref().map_or(0, String::len);
            bytes += k.who.len() + k.name.len() + len(&old) + len(v) + 32;
            if changes.is_empty() || bytes > HISTORY_BYTES {
                bytes = 0;
                changes.push(ConfigChange {
                    version: db.version + 1 + changes.len() as u64,
                    stamp: self.now.wall,
                    name: c.config_reason.clone(),
                    diff: Vec::new(),
                });
            }
            if let Some(last) = changes.last_mut() {
                last.diff.push((k.clone(), old, v.clone()));
            }
            match v {
                Some(v) => b.put(key::config(k), v.clone().into_bytes()),
                None => b.delete(key::config(k)),
            }
        }
        for change in &changes {
            b.put(key::numbered(key::CONFIG_HISTORY, change.version), value(change));
            if let Some(old) = change.version.checked_sub(CONFIG_HISTORY_STORED as u64) {
                b.delete(key::numbered(key::CONFIG_HISTORY, old));
            }
        }
        changes
    }
}

/// Marks the state as one with chosen primaries, which earlier programs refuse.
pub(super) fn put_features(b: &mut Batch) {
    let words = base::FeatureWords { incompat: CHOSEN_PRIMARIES, ..Default::default() };
    b.head(key::FORMAT, Some(value(&FORMAT_FEATURES)));
    b.head(key::FEATURES, Some(Bytes::copy_from_slice(&words.to_bytes())));
}

/// The PGs with chosen primaries of those pools that a change removes or changes, or in which PGs are about to be merged.
fn primaries_of_ending<'a>(old: &'a OsdMap, inc: &Incremental) -> impl Iterator<Item = PgId> + use<'a> {
    let merging = old.pools.iter().filter(|(_, p)| p.pg_num_pending < p.pg_num).map(|(id, _)| *id);
    let pools: BTreeSet<PoolId> = inc.old_pools.iter().chain(inc.new_pools.keys()).copied().chain(merging).collect();
    pools.into_iter().flat_map(|pool| {
        let first = PgId { pool, seed: 0 };
        let of_pool = old.pg_upmap_primaries.iter_from(&first).map(|(pg, _)| *pg).take_while(|pg| pg.pool == pool);
        of_pool.collect::<Vec<_>>()
    })
}

fn put_creating(b: &mut Batch, queues: &Queues) {
    for (pool, queue) in queues {
        match queue {
            Some(rec) => b.put(key::creating(*pool), value(rec)),
            None => b.delete_after(key::creating(*pool)),
        }
    }
}

fn fail_commands(waiters: &mut [Waiter], e: &MapError) {
    for w in waiters {
        match w {
            Waiter::Command { rc, rs, out, effects, .. } => {
                *rc = errno::EINVAL;
                *rs = format!("the change does not apply: {e}");
                *out = Bytes::new();
                effects.clear();
            }
            Waiter::PoolOp { rc, data, .. } => {
                *rc = errno::EINVAL;
                *data = None;
            }
            _ => {}
        }
    }
}

/// The first map of a cluster, encoded as incremental and as full map.
pub(super) fn first_epoch(map: &OsdMap) -> Result<(Bytes, Bytes), MapError> {
    let mut inc = Incremental::new(map.fsid, map.epoch, map.modified);
    let form = map.canonical_features(&inc);
    let (full, crc) = map.encode_blob(form);
    inc.fullmap = full.clone();
    inc.encode_features = form.0;
    inc.full_crc = crc;
    // Other readers must be able to decode the map.
    OsdMap::decode_blob(&full)?;
    Ok((inc.encode_blob(form, crc), full))
}
