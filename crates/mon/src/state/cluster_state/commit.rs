//! The change of what is stored: the commit of a durable proposal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::{AuthName, Epoch, Now, PgId, PoolId};
use bytes::Bytes;
use cluster::{Incremental, IntervalSet, OsdMap};

use super::{AuthEntry, ClusterState, StateView};
use crate::state::config::CONFIG_HISTORY_STORED;
use crate::state::fs::EPOCHS_STORED;
use crate::state::log::LogEntry;
use crate::state::pending::Changes;
use crate::state::records::CreatingPool;
use crate::state::{ConfigChange, ConfigKey};

/// A map epoch of a proposal. Plain data.
pub(crate) struct NewMap {
    pub(crate) map: Arc<OsdMap>,
    pub(crate) inc: Incremental,
    pub(crate) inc_blob: Bytes,
    pub(crate) full_blob: Bytes,
    /// True if the full map is stored too.
    pub(crate) checkpoint: bool,
}

/// Creation queues of pools after a proposal; `None` for an empty one.
pub(crate) type Queues = BTreeMap<PoolId, Option<CreatingPool>>;

/// The changes of a proposal, for the commit after it is durable. Plain data.
pub(crate) struct Durable {
    pub(crate) map: Option<NewMap>,
    /// Epoch and bytes of a new FSMap.
    pub(crate) fsmap: Option<(Epoch, Bytes)>,
    pub(crate) changes: Changes,
    pub(crate) config: Vec<ConfigChange>,
    pub(crate) log: Vec<LogEntry>,
    /// The oldest epoch of the OSD map that is stored.
    pub(crate) oldest: Epoch,
    pub(crate) creating: Queues,
    /// Snapshot ids that the proposal adds to the purged ones of each pool.
    pub(crate) purged: BTreeMap<PoolId, IntervalSet>,
}

/// Values that a commit replaced or removed. Plain data.
#[derive(Default)]
pub(crate) struct Replaced {
    /// The last OSD map and the change that ended it, if there is a new one.
    pub(crate) map: Option<(Arc<OsdMap>, Incremental)>,
    /// Names of entities that were added, changed or removed, each with its earlier entry.
    pub(crate) entities: Vec<(AuthName, Option<AuthEntry>)>,
    /// PGs that no longer wait for their creation.
    pub(crate) created: Vec<PgId>,
}

/// Sets or removes the entries that `changes` names.
fn update<K: Ord, V>(of: &mut BTreeMap<K, V>, changes: BTreeMap<K, Option<V>>) {
    for (k, v) in changes {
        match v {
            Some(v) => of.insert(k, v),
            None => of.remove(&k),
        };
    }
}

impl ClusterState {
    /// Takes up a durable proposal, whose transactions took `took` in all.
    pub(crate) fn commit(&mut self, d: Durable, took: Duration, now: Now) -> Replaced {
        let (mut done, s) = (Replaced::default(), &mut self.view);
        s.store.error = None;
        s.store.commit_mean = (s.store.commit_mean * 3 + took) / 4;
        s.store.committed = now.mono;
        for (pool, queue) in d.creating {
            done.created.extend(s.set_creating(pool, queue.as_ref()));
        }
        for (pool, snaps) in d.purged {
            s.osds.purged_snaps.entry(pool).or_default().union_of(&snaps);
        }
        done.map = d.map.map(|m| s.commit_osdmap(m, now));
        if d.oldest != s.history.oldest {
            s.history.trim(d.oldest);
        }
        let c = d.changes;
        s.commit_fs(c.fsmap, d.fsmap);
        update(&mut s.fs.metadata, c.mds_metadata);
        s.commit_config(d.config, c.config);
        for (name, e) in c.auth {
            let old = match e {
                Some(e) => s.auth.insert(name.clone(), e),
                None => s.auth.remove(&name),
            };
            done.entities.push((name, old));
        }
        if !c.kv.is_empty() {
            s.kv.next_version();
        }
        for (k, v) in c.kv {
            s.kv.set(k, v);
        }
        update(&mut s.mutes, c.mutes);
        update(&mut s.osds.metadata, c.osd_metadata);
        if let Some(m) = c.monmap {
            s.monmap = m;
        }
        if let Some(m) = c.mgrmap {
            s.mgrmap = m;
        }
        if let Some(g) = c.growth {
            s.osds.growth = g;
        }
        for line in d.log {
            s.log.push(line);
        }
        done
    }
}

impl StateView {
    /// Sets the PGs of a pool that wait, from its record after a commit. A queue only shrinks once its pool exists.
    /// Returns the PGs that no longer wait.
    fn set_creating(&mut self, pool: PoolId, queue: Option<&CreatingPool>) -> Vec<PgId> {
        let of_pool = PgId { pool, seed: 0 }..=PgId { pool, seed: u32::MAX };
        let mut before = self.osds.creating.range(of_pool).map(|(pg, _)| *pg).peekable();
        if let (None, Some(q)) = (before.peek(), queue) {
            q.add_to(pool, &mut self.osds.creating);
            return Vec::new();
        }
        let gone: Vec<PgId> = before.filter(|pg| !queue.is_some_and(|q| q.waits(pg.seed))).collect();
        for pg in &gone {
            self.osds.creating.remove(pg);
        }
        gone
    }

    fn commit_osdmap(&mut self, m: NewMap, now: Now) -> (Arc<OsdMap>, Incremental) {
        self.history.committed(m.map.epoch, m.inc_blob, m.full_blob, m.checkpoint);
        for id in &m.inc.old_pools {
            self.osds.purged_snaps.remove(id);
        }
        let old = std::mem::replace(&mut self.osdmap, m.map);
        self.mgr.stats.sync(&self.osdmap, now);
        self.mgr.retain_osds(&self.osdmap);
        (old, m.inc)
    }

    fn commit_fs(&mut self, map: Option<wire::types::FsMap>, blob: Option<(Epoch, Bytes)>) {
        if let Some((e, b)) = blob {
            self.fs.epochs.insert(e, b);
            while self.fs.epochs.len() > EPOCHS_STORED {
                self.fs.epochs.pop_first();
            }
        }
        if let Some(m) = map {
            self.fs.map = m;
        }
    }

    fn commit_config(&mut self, versions: Vec<ConfigChange>, values: BTreeMap<ConfigKey, Option<String>>) {
        if versions.is_empty() {
            return;
        }
        update(&mut self.config.values, values);
        for change in versions {
            self.config.version = change.version;
            self.config.history.push_back(change);
            if self.config.history.len() > CONFIG_HISTORY_STORED {
                self.config.history.pop_front();
            }
        }
        self.options.apply_central(&self.config, &self.mon_name);
    }
}
