//! Requests of PGs to the monitors (`up_thru`, temporary acting sets, readiness for merges), and PGs to create.
//!
//! Invariant: PGs are created only after the map of their creation has been published.

use super::{Control, Output, PgCreate, Phase};
use crate::core::pgs::Ready;
use base::{Epoch, OsdId, PgId, SpgId};
use cluster::OsdMap;
use cluster::osdmap::interval::children;
use cluster::pool::{pg_mask, stable_mod};
use std::collections::BTreeMap;
use wire::msg::{MOsdAlive, MOsdPgCreate2, MOsdPgCreated, MOsdPgReadyToMerge, MOsdPgTemp};

/// Most PG creations held back for their map.
const CREATES_MAX: usize = 65_536;

/// Requests of PGs that the map does not show yet; see the module.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Requested acting sets.
    pg_temp: BTreeMap<PgId, Vec<OsdId>>,
    up_thru: Epoch,
    /// The `up_thru` that this session's monitor was asked for.
    up_thru_sent: Epoch,
    /// PGs that may be merged with others.
    to_merge: BTreeMap<PgId, Ready>,
}

impl Requests {
    /// Drops requests that a map fulfils, and those for PGs that it does not let this OSD lead.
    pub(super) fn follow(&mut self, map: &OsdMap, me: OsdId) {
        self.pg_temp.retain(|pg, want| {
            let shown = map.pg_temp.get(pg).map(Vec::as_slice).unwrap_or_default();
            let named = map.primary_temp.contains_key(pg);
            (shown != want.as_slice() || named) && map.pg_to_up_acting(*pg).acting_primary == me
        });
    }

    /// A new session's monitor has not been asked for anything.
    pub(super) fn forget_sent(&mut self) {
        self.up_thru_sent = Epoch(0);
    }
}

/// PGs to create, until their map is published.
#[derive(Debug, Default)]
pub(super) struct Creates {
    pgs: BTreeMap<SpgId, PgCreate>,
    epoch: Epoch,
}

impl Control {
    /// Handles the monitor's list of PGs to create.
    pub(super) fn handle_creates(&mut self, m: MOsdPgCreate2) {
        self.creates.epoch = self.creates.epoch.max(m.epoch);
        self.mon.got("osd_pg_creates", m.epoch.0.into());
        for (pgid, stamp) in m.pgs {
            if self.creates.pgs.len() >= CREATES_MAX {
                // The monitor repeats creations that are not confirmed.
                tracing::warn!("too many PG creations at once; the rest follows");
                break;
            }
            let extra = m.pg_extra.get(&pgid).cloned();
            self.creates.pgs.insert(pgid, PgCreate { pgid, stamp, extra });
        }
        if let Some(map) = self.maps.current().cloned() {
            self.release_creates(&map);
        }
    }

    /// Lets PGs be created whose map is published.
    pub(super) fn release_creates(&mut self, map: &OsdMap) {
        if !self.creates.pgs.is_empty() && map.epoch >= self.creates.epoch {
            debug_assert!(map.epoch <= self.sb.newest_map, "a map is published before its PGs are created");
            let all = std::mem::take(&mut self.creates.pgs).into_values().collect();
            self.out.push_back(Output::Create(all));
        }
    }

    /// Handles a PG's request for a map with `up_thru` at `epoch` or later.
    pub fn want_up_thru(&mut self, epoch: Epoch) {
        self.requests.up_thru = self.requests.up_thru.max(epoch);
        self.ask_up_thru();
    }

    /// Asks for the wanted `up_thru`, if the map does not show it.
    pub(super) fn ask_up_thru(&mut self) {
        let Some(map) = self.maps.current() else { return };
        let have = map.info(self.id.whoami).up_thru;
        if self.phase == Phase::Active
            && have < self.requests.up_thru
            && self.requests.up_thru_sent < self.requests.up_thru
        {
            let m = MOsdAlive { paxos: map.epoch.into(), want: self.requests.up_thru };
            if self.mon.send_now(&m) {
                self.requests.up_thru_sent = self.requests.up_thru;
            }
        }
    }

    /// Reports a new PG to the monitor.
    pub fn pg_created(&mut self, pgid: PgId) {
        self.mon.send_now(&MOsdPgCreated { paxos: Epoch(0).into(), pgid });
    }

    /// Handles a PG that is clean and takes no writes, for a merge. The monitor is told once the PG it merges
    /// with is ready too.
    pub fn ready_to_merge(&mut self, pg: PgId, r: Ready) {
        let Some(map) = self.maps.current().cloned() else { return };
        self.requests.to_merge.retain(|p, _| map.pool(p.pool).is_some_and(|p| p.pg_num_pending < p.pg_num));
        let (n, soon) = match map.pool(pg.pool) {
            Some(p) if p.pg_num_pending > 0 && p.pg_num_pending < p.pg_num => (p.pg_num, p.pg_num_pending),
            _ => return,
        };
        self.requests.to_merge.insert(pg, r);
        let target = stable_mod(pg.seed, soon, pg_mask(soon));
        for seed in children(target, soon, n) {
            let (source, target) = (PgId { seed, ..pg }, PgId { seed: target, ..pg });
            if source != pg && target != pg {
                continue;
            }
            let (Some(s), Some(t)) = (self.requests.to_merge.get(&source), self.requests.to_merge.get(&target)) else {
                continue;
            };
            self.mon.send_now(&MOsdPgReadyToMerge {
                paxos: s.epoch.min(t.epoch).into(),
                pgid: source,
                source_version: s.version,
                target_version: t.version,
                last_epoch_started: s.last_epoch_started.min(t.last_epoch_started),
                last_epoch_clean: s.last_epoch_clean.min(t.last_epoch_clean),
                ready: true,
            });
        }
    }

    /// Handles a PG's request for a temporary acting set; an empty one withdraws it.
    pub fn want_pg_temp(&mut self, pg: PgId, osds: Vec<OsdId>) {
        self.requests.pg_temp.insert(pg, osds);
        self.send_pg_temp();
    }

    /// Asks for the wanted acting sets.
    pub(super) fn send_pg_temp(&mut self) {
        let epoch = self.maps.epoch();
        if self.phase != Phase::Active || self.requests.pg_temp.is_empty() {
            return;
        }
        let m =
            MOsdPgTemp { paxos: epoch.into(), map_epoch: epoch, pg_temp: self.requests.pg_temp.clone(), forced: false };
        self.mon.send_now(&m);
    }
}
