//! From pending changes to a committed epoch: one transaction at a time.
//!
//! Invariants:
//!  1. A transaction builds on the committed state; the next one is not begun before it is committed.
//!  2. Each map epoch is stored as incremental and as full map, whose checksum the incremental names.
//!  3. What was promised for "after the commit" (answers, maps) is done after it and in the order it was asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Epoch, OsdId, PgId, PoolId, errno};
use bytes::Bytes;
use cluster::osdmap::{CANONICAL, osd_state};
use cluster::{Incremental, MapError, OsdMap};
use state::{Compare, Outcome, Txn};

use wire::types::{LogEntry, MgrMap};

use super::cluster_state::{ConfigChange, CreatingPg, Pending};
use super::log::LOG_KEEP;
use super::records::{CreatingPool, key, value};
use super::waiter::Waiter;
use super::{Effect, MonCore};

/// Epochs removed by one proposal at most.
pub(super) const TRIM_BATCH: u32 = 250;
/// Configuration changes kept in the history.
pub(super) const CONFIG_HISTORY_KEEP: usize = 1000;

struct NewMap {
    map: Arc<OsdMap>,
    inc: Incremental,
    inc_blob: Bytes,
    full_blob: Bytes,
}

/// A proposal on its way to the disk.
pub(super) struct Inflight {
    pub(super) token: u64,
    started: base::Mono,
    map: Option<NewMap>,
    /// Epoch and bytes of a new map of file systems.
    fsmap: Option<(Epoch, Bytes)>,
    changes: Pending,
    config: Option<ConfigChange>,
    log: Vec<LogEntry>,
    oldest: Epoch,
    waiters: Vec<Waiter>,
    /// Taken off the creation queue by this proposal.
    not_creating: Vec<(PgId, CreatingPg)>,
}

impl Inflight {
    /// True if the proposal brings an OSD up.
    pub(super) fn brings_up(&self) -> bool {
        self.map.as_ref().is_some_and(|m| !m.inc.new_up_client.is_empty())
    }
}

impl MonCore {
    /// Pending keys that were used become the entities' keys.
    fn take_used_keys(&mut self) {
        for (name, key, older) in std::mem::take(self.used_keys.get_mut()) {
            let entry = self.pending.auth(&self.state, &name).filter(|e| e.pending_key.as_ref() == Some(&key));
            if let Some(caps) = entry.map(|e| e.caps.clone()) {
                tracing::info!(entity = %name, "the pending key was used and is the key now");
                let new = super::cluster_state::AuthEntry { key, pending_key: None, caps };
                self.replaced_keys.insert(name.clone(), older);
                self.pending.auth.insert(name, Some(new));
            }
        }
    }

    /// Starts a commit if something is pending and none is under way. Called once per loop turn.
    pub fn flush(&mut self) {
        if self.inflight.is_some() {
            return;
        }
        self.take_used_keys();
        if self.pending.is_empty() {
            // Waiters without a change: what they waited for is the case already.
            let ready = std::mem::take(&mut self.waiters);
            self.run_waiters(ready);
            if self.pending.is_empty() {
                return;
            }
        }
        let mut not_creating = self.clear_creating_flags();
        let mut changes = std::mem::take(&mut self.pending);
        let mut waiters = std::mem::take(&mut self.waiters);
        let map = match changes.take_inc().map(|inc| self.new_map(inc)).transpose() {
            Ok(m) => m,
            Err(e) => {
                tracing::error!("mon: a map change does not apply and is dropped: {e}");
                fail_commands(&mut waiters, &e);
                None
            }
        };
        let mut txn = Txn::default();
        txn.compare.push(Compare::Modified(key::OSDMAP_BOUNDS.into(), self.bounds_revision));
        self.put_map(&mut txn, map.as_ref(), &mut not_creating);
        let oldest = self.put_bounds(&mut txn, map.as_ref(), changes.trim_to);
        self.put_small(&mut txn, &changes);
        let fsmap = self.put_fs(&mut txn, &mut changes);
        let config = self.put_config(&mut txn, &changes);
        let log = std::mem::take(&mut changes.log);
        for (i, line) in log.iter().enumerate() {
            let n = self.state.log.next + i as u64;
            txn.put(key::numbered(key::LOG, n), value(line));
            let over = (self.state.log.entries.len() + i + 1).checked_sub(LOG_KEEP + 1);
            if let Some((old, _)) = over.and_then(|o| self.state.log.entries.get(o)) {
                txn.delete(key::numbered(key::LOG, *old));
            }
        }
        let token = self.submit(state::Op::Txn(txn));
        self.inflight = Some(Inflight {
            token,
            started: self.now.mono,
            map,
            fsmap,
            changes,
            config,
            log,
            oldest,
            waiters,
            not_creating,
        });
    }

    /// Pools all of whose PGs exist now lose the flag that lets OSDs create them.
    fn clear_creating_flags(&mut self) -> Vec<(PgId, CreatingPg)> {
        let done = std::mem::take(&mut self.pending.created_pgs);
        let removed: Vec<(PgId, CreatingPg)> =
            done.iter().filter_map(|pg| Some((*pg, self.state.creating.remove(pg)?))).collect();
        let pools: BTreeSet<PoolId> = removed.iter().map(|(pg, _)| pg.pool).collect();
        for pool in pools {
            let left =
                self.state.creating.range(PgId { pool, seed: 0 }..=PgId { pool, seed: u32::MAX }).next().is_some();
            if !left && let Some(p) = self.pending.pool_mut(&self.state, pool) {
                p.flags &= !cluster::pool::flag::CREATING;
            }
        }
        self.pending.created_pgs = done;
        removed
    }

    fn new_map(&self, mut inc: Incremental) -> Result<NewMap, MapError> {
        inc.epoch = self.state.osdmap.epoch.next();
        inc.modified = self.now.wall;
        inc.encode_features = CANONICAL.0;
        self.tidy(&mut inc)?;
        let map = self.state.osdmap.apply(&inc)?;
        let (full_blob, crc) = map.encode_blob(CANONICAL);
        inc.full_crc = crc;
        let inc_blob = inc.encode_blob(CANONICAL, crc);
        Ok(NewMap { map: Arc::new(map), inc, inc_blob, full_blob })
    }

    /// Completes a change: stamps, and what must go because something else went.
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
        let joined = |pg: &PgId| {
            let p = inc.new_pools.get(&pg.pool).or_else(|| old.pool(pg.pool).map(|p| &**p));
            p.is_some_and(|p| super::pg_num::is_joined(p, pg.seed))
        };
        let gone = |pg: &PgId| inc.old_pools.contains(&pg.pool) || joined(pg);
        let upmap: Vec<PgId> = old.pg_upmap.iter().map(|(k, _)| *k).filter(gone).collect();
        let items: Vec<PgId> = old.pg_upmap_items.iter().map(|(k, _)| *k).filter(gone).collect();
        inc.old_pg_upmap.extend(upmap);
        inc.old_pg_upmap_items.extend(items);
        inc.new_pg_temp.retain(|pg, _| !inc.old_pools.contains(&pg.pool));
        if old.pg_temp.is_empty() && old.primary_temp.is_empty() && inc.new_pg_temp.is_empty() {
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
        for (pg, osd) in next.primary_temp.iter() {
            if next.pool(pg.pool).is_none_or(|p| pg.seed >= p.pg_num) || !next.is_up(*osd) {
                inc.new_primary_temp.insert(*pg, OsdId(-1));
            }
        }
        Ok(())
    }

    fn put_map(&mut self, txn: &mut Txn, map: Option<&NewMap>, not_creating: &mut Vec<(PgId, CreatingPg)>) {
        let Some(m) = map else { return };
        let e = m.map.epoch;
        txn.put(key::full(e), m.full_blob.clone());
        txn.put(key::inc(e), m.inc_blob.clone());
        for (id, p) in &m.inc.new_pools {
            if p.has_flag(cluster::pool::flag::CREATING) && self.state.osdmap.pool(*id).is_none() {
                let c = CreatingPg { created: e, stamp: m.inc.modified };
                self.state.creating.extend((0..p.pg_num).map(|seed| (PgId { pool: *id, seed }, c)));
                self.put_creating(txn, *id);
            }
        }
        for id in &m.inc.old_pools {
            let range = PgId { pool: *id, seed: 0 }..=PgId { pool: *id, seed: u32::MAX };
            not_creating.extend(self.state.creating.range(range).map(|(pg, c)| (*pg, *c)));
            self.state.creating.retain(|pg, _| pg.pool != *id);
            self.put_creating(txn, *id);
            txn.delete(key::purged_pool(*id));
        }
        let mut purged = m.inc.new_purged_snaps.clone();
        purged.retain(|p, _| !m.inc.old_pools.contains(p));
        if !purged.is_empty() {
            txn.put(key::purged_snaps(e), value(&purged));
        }
        for (pool, snaps) in purged {
            let all = self.state.purged_snaps.entry(pool).or_default();
            all.union_of(&snaps);
            txn.put(key::purged_pool(pool), value(all));
        }
    }

    fn put_creating(&self, txn: &mut Txn, pool: PoolId) {
        match CreatingPool::of(pool, &self.state.creating) {
            Some(rec) => txn.put(key::creating(pool), value(&rec)),
            None => txn.delete(key::creating(pool)),
        }
    }

    /// Writes the range of epochs and removes those below it; gives the oldest that stays.
    fn put_bounds(&self, txn: &mut Txn, map: Option<&NewMap>, trim: Option<Epoch>) -> Epoch {
        let h = &self.state.history;
        let newest = map.map_or(h.newest, |m| m.map.epoch);
        let limit = Epoch(h.oldest.0.saturating_add(TRIM_BATCH));
        let oldest = trim.map_or(h.oldest, |t| t.min(limit).max(h.oldest));
        for e in (h.oldest.0..oldest.0).map(Epoch) {
            txn.delete(key::full(e));
            txn.delete(key::inc(e));
        }
        txn.put(key::OSDMAP_BOUNDS, value(&(oldest, newest)));
        oldest
    }

    fn put_small(&self, txn: &mut Txn, c: &Pending) {
        fn put(txn: &mut Txn, k: Bytes, v: Option<Bytes>) {
            match v {
                Some(v) => txn.put(k, v),
                None => txn.delete(k),
            }
        }
        for (name, e) in &c.auth {
            put(txn, key::auth(name), e.as_ref().map(value));
        }
        for (name, v) in &c.kv {
            put(txn, key::named(key::KV, name), v.clone());
        }
        for (code, m) in &c.mutes {
            put(txn, key::named(key::MUTE, code), m.as_ref().map(value));
        }
        for (osd, m) in &c.osd_metadata {
            put(txn, key::osd_metadata(*osd), m.as_ref().map(value));
        }
        if let Some(m) = &c.mgrmap {
            txn.put(key::MGRMAP, value(m));
        }
        if let Some(k) = &c.service_keys {
            txn.put(key::SERVICE_KEYS, value(k));
        }
        if let Some(n) = c.global_id_end {
            txn.put(key::GLOBAL_ID, value(&n));
        }
        let pools: BTreeSet<PoolId> = c.created_pgs.iter().map(|pg| pg.pool).collect();
        for pool in pools {
            self.put_creating(txn, pool);
        }
    }

    fn put_config(&self, txn: &mut Txn, c: &Pending) -> Option<ConfigChange> {
        if c.config.is_empty() {
            return None;
        }
        let db = &self.state.config;
        let mut change = ConfigChange {
            version: db.version + 1,
            stamp: self.now.wall,
            name: c.config_reason.clone(),
            diff: Vec::new(),
        };
        for (k, v) in &c.config {
            change.diff.push((k.clone(), db.values.get(k).cloned(), v.clone()));
            match v {
                Some(v) => txn.put(key::config(k), v.clone().into_bytes()),
                None => txn.delete(key::config(k)),
            }
        }
        txn.put(key::numbered(key::CONFIG_HISTORY, change.version), value(&change));
        if let Some(old) = change.version.checked_sub(CONFIG_HISTORY_KEEP as u64) {
            txn.delete(key::numbered(key::CONFIG_HISTORY, old));
        }
        Some(change)
    }

    /// The proposal is not durable, or nobody knows: everything is as before it.
    pub(super) fn commit_failed(&mut self, e: &state::StateError) {
        let Some(lost) = self.inflight.take() else { return };
        self.state.creating.extend(lost.not_creating);
        let map = &self.state.osdmap;
        self.state.creating.retain(|pg, _| map.pool(pg.pool).is_some());
        if let Some(m) = lost.map {
            for (pool, snaps) in &m.inc.new_purged_snaps {
                if let Some(all) = self.state.purged_snaps.get_mut(pool) {
                    all.subtract(snaps);
                }
            }
        }
        if lost.changes.global_id_end.is_some() {
            self.global_ids.refused();
        }
        let text = format!("nothing was changed: {e}");
        for w in lost.waiters {
            match w {
                Waiter::Command { to, .. } => self.answer_command(&to, errno::EIO, text.clone(), Bytes::new()),
                Waiter::PoolOp { conn, tid, .. } => self.answer_pool_op(conn, tid, errno::EIO, None),
                Waiter::Again(c, _) | Waiter::Maps(c, _) | Waiter::Booted(c, ..) | Waiter::Send(c, _) => {
                    self.close(c, "the state store failed".into());
                }
            }
        }
        self.run_deferred();
    }

    /// The proposal is durable: take it up, do what was promised, tell those who subscribed.
    pub(super) fn committed(&mut self, revision: u64, outcome: &Outcome) {
        let Some(done) = self.inflight.take() else { return };
        if *outcome != Outcome::Txn(true) {
            self.effects.push(Effect::Stop("another monitor changed the state behind our back".into()));
            return;
        }
        self.state.store_error = None;
        self.bounds_revision = revision;
        self.commits.0 += 1;
        self.commits.1 += self.now.mono.since(done.started).as_nanos() as u64;
        let map_changed = done.map.is_some();
        if let Some(m) = done.map {
            self.state.history.newest = m.map.epoch;
            self.state.history.put_inc(m.map.epoch, m.inc_blob);
            self.state.history.put_full(m.map.epoch, m.full_blob);
            for id in &m.inc.old_pools {
                self.state.purged_snaps.remove(id);
            }
            let old = std::mem::replace(&mut self.state.osdmap, m.map);
            self.state.stats.sync(&self.state.osdmap, self.now);
            self.after_map_change(&old, &m.inc);
        }
        if done.oldest != self.state.history.oldest {
            self.state.history.trim(done.oldest);
        }
        let config_changed = done.config.is_some();
        let mut c = done.changes;
        let fs_changed = done.fsmap.is_some();
        self.take_up_fs(&mut c, done.fsmap);
        self.take_up_config(done.config, &c);
        let mut entities = Vec::new();
        for (name, e) in c.auth {
            let old = match e {
                Some(e) => self.state.auth.insert(name.clone(), e),
                None => self.state.auth.remove(&name),
            };
            entities.push((name, old));
        }
        if !c.kv.is_empty() {
            self.state.kv_version += 1;
        }
        for (k, v) in &c.kv {
            match v {
                Some(v) => self.state.kv.insert(k.clone(), v.clone()),
                None => self.state.kv.remove(k),
            };
        }
        for (code, m) in c.mutes {
            match m {
                Some(m) => self.state.mutes.insert(code, m),
                None => self.state.mutes.remove(&code),
            };
        }
        for (osd, m) in c.osd_metadata {
            match m {
                Some(m) => self.state.osd_metadata.insert(osd, m),
                None => self.state.osd_metadata.remove(&osd),
            };
        }
        if let Some(k) = c.service_keys {
            *self.service_keys.borrow_mut() = k;
        }
        if let Some(end) = c.global_id_end {
            self.global_ids.granted(end);
        }
        let mgr_changed = c.mgrmap.is_some();
        if let Some(m) = c.mgrmap {
            self.take_up_mgrmap(m);
        }
        for line in &done.log {
            self.state.log.push(line.clone());
        }
        if fs_changed {
            // A daemon has the map before the answer to the beacon that led to it.
            self.publish_fsmap();
        }
        self.run_waiters(done.waiters);
        for (name, old) in entities {
            self.entity_changed(&name, old.as_ref());
        }
        if map_changed {
            self.publish_osdmap();
        }
        if mgr_changed {
            self.publish_mgrmap();
        }
        if config_changed {
            self.publish_config();
        }
        if !c.kv.is_empty() {
            self.publish_kv(&c.kv);
        }
        if !done.log.is_empty() {
            self.publish_log(&done.log);
        }
        if fs_changed {
            self.tick_fs();
        }
        self.run_deferred();
    }

    fn take_up_mgrmap(&mut self, m: MgrMap) {
        self.state.mgrmap = m;
    }

    fn take_up_config(&mut self, change: Option<ConfigChange>, c: &Pending) {
        let Some(change) = change else { return };
        let db = &mut self.state.config;
        for (k, v) in &c.config {
            match v {
                Some(v) => db.values.insert(k.clone(), v.clone()),
                None => db.values.remove(k),
            };
        }
        db.version = change.version;
        db.history.push_back(change);
        if db.history.len() > CONFIG_HISTORY_KEEP {
            db.history.pop_front();
        }
        self.state.options.apply_central(&self.state.config, &self.state.mon_name);
    }

    fn run_waiters(&mut self, waiters: Vec<Waiter>) {
        for w in waiters {
            match w {
                Waiter::Command { to, rc, rs, out, effects } => {
                    self.answer_command(&to, rc, rs, out);
                    self.command_effects(effects);
                }
                Waiter::Again(c, m) => self.message(c, m),
                Waiter::PoolOp { conn, tid, rc, data } => self.answer_pool_op(conn, tid, rc, data),
                Waiter::Maps(c, from) => self.send_maps_reply(c, from),
                Waiter::Booted(c, osd, from) => {
                    tracing::info!("mon: {osd} is up");
                    self.send_maps_reply(c, from);
                }
                Waiter::Send(c, m) => self.send(c, m),
            }
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

/// Bytes of the first map of a cluster, as incremental and full.
pub(super) fn first_epoch(map: &OsdMap) -> Result<(Bytes, Bytes), MapError> {
    let (full, crc) = map.encode_blob(CANONICAL);
    let mut inc = Incremental::new(map.fsid, map.epoch, map.modified);
    inc.fullmap = full.clone();
    inc.encode_features = CANONICAL.0;
    inc.full_crc = crc;
    // What others will decode must be what we have.
    OsdMap::decode_blob(&full)?;
    Ok((inc.encode_blob(CANONICAL, crc), full))
}
