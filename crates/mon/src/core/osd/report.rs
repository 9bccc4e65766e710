//! Reports of running OSDs: liveness, fullness, failed peers, requested acting sets.

use std::time::Duration;

use base::planted::{Bug, acts};
use base::{Epoch, OsdId};
use cluster::osdmap::osd_state;
use wire::msg::failure_flags::{FAILED, IMMEDIATE};
use wire::msg::{MOsdAlive, MOsdBeacon, MOsdFailure, MOsdFull, MOsdPgCreated, MOsdPgTemp};

use super::super::MonCore;
use super::boot::have;
use super::liveness::Beacon;
use crate::command::has_twice;
use crate::state::ConnKey;
use crate::state::log::Prio;

/// Fullness bits of an OSD's state.
const FULLNESS: u32 = osd_state::FULL | osd_state::NEARFULL | osd_state::BACKFILLFULL;
/// Most PGs taken from one PGTEMP message.
const MAX_PG_TEMP: usize = 100_000;

impl MonCore {
    pub(in super::super) fn osd_alive(&mut self, c: ConnKey, m: &MOsdAlive) {
        let Some(osd) = self.live_osd(c) else { return };
        let have = have(m.paxos.version);
        if self.state.osdmap.info(osd).up_thru >= m.want {
            return self.send_maps_reply(c, have);
        }
        self.raise_up_thru(osd, have);
        self.maps_after_commit(c, have);
    }

    /// Raises `up_thru`: never above the committed epoch, and never lower.
    fn raise_up_thru(&mut self, osd: OsdId, to: Epoch) {
        let to = to.min(self.state.osdmap.epoch);
        if to <= self.state.osdmap.info(osd).up_thru {
            return;
        }
        let slot = self.pending.inc_mut(&self.state).new_up_thru.entry(osd).or_insert(to);
        *slot = (*slot).max(to);
    }

    pub(in super::super) fn osd_beacon(&mut self, c: ConnKey, m: &MOsdBeacon) {
        let Some(osd) = self.live_osd(c) else { return };
        let beacon = Beacon {
            last: self.now.mono,
            epoch: have(m.paxos.version),
            min_last_epoch_clean: m.min_last_epoch_clean,
            interval: u32::try_from(m.osd_beacon_report_interval).unwrap_or(0),
        };
        self.liveness.heard(osd, beacon);
        if m.last_purged_snaps_scrub > self.state.osdmap.xinfo(osd).last_purged_snaps_scrub {
            self.xinfo_mut(osd).last_purged_snaps_scrub = m.last_purged_snaps_scrub;
        }
    }

    pub(in super::super) fn osd_full(&mut self, c: ConnKey, m: &MOsdFull) {
        let Some(osd) = self.live_osd(c) else { return };
        let have = have(m.paxos.version).max(m.map_epoch);
        let current = self.state.osdmap.state(osd) & FULLNESS;
        let want = m.state & FULLNESS;
        if current == want {
            return self.send_maps_reply(c, have);
        }
        let inc = self.pending.inc_mut(&self.state);
        let slot = inc.new_state.entry(osd).or_insert(0);
        // A later report in the same proposal replaces the earlier one.
        *slot = (*slot & !FULLNESS) | (current ^ want);
        tracing::info!("mon: {osd} reports fullness {:#x}, was {:#x}", want, current);
        self.maps_after_commit(c, have);
    }

    pub(in super::super) fn osd_pg_temp(&mut self, c: ConnKey, m: MOsdPgTemp) {
        let Some(osd) = self.live_osd(c) else { return };
        let have = have(m.paxos.version).max(m.map_epoch);
        let map = std::sync::Arc::clone(&self.state.osdmap);
        let mut changed = false;
        for (pg, want) in m.pg_temp.into_iter().take(MAX_PG_TEMP) {
            let Some(pool) = map.pool(pg.pool).filter(|p| pg.seed < p.pg_num) else { continue };
            // An OSD holds one copy, or shards at several places.
            if want.len() > usize::from(pool.size) || !pool.is_erasure() && has_twice(&want) {
                continue;
            }
            if want.iter().any(|o| !map.exists(*o) && *o != OsdId::NONE) {
                continue;
            }
            let now = map.pg_to_up_acting(pg);
            if !m.forced && now.acting_primary != osd {
                continue;
            }
            let current = map.pg_temp.get(&pg).cloned().unwrap_or_default();
            // A request for the up set itself means no override.
            let want = if want.as_slice() == now.up.as_slice() { Vec::new() } else { want };
            let named = map.primary_temp.contains_key(&pg);
            if current == want && !named {
                continue;
            }
            let inc = self.pending.inc_mut(&self.state);
            inc.new_pg_temp.insert(pg, want);
            // The request says nothing about the primary, so the set alone decides, as in Ceph.
            if (named || inc.new_primary_temp.contains_key(&pg)) && !acts(Bug::KeepPrimaryTemp) {
                inc.new_primary_temp.insert(pg, OsdId(-1));
            }
            changed = true;
        }
        if changed {
            self.raise_up_thru(osd, m.map_epoch);
        }
        self.maps_after_commit(c, have);
    }

    pub(in super::super) fn osd_pg_created(&mut self, c: ConnKey, m: &MOsdPgCreated) {
        if self.osd_session(c).is_none() {
            return;
        }
        if self.state.osds.creating.contains_key(&m.pgid) {
            self.pending.pg_created(m.pgid);
        }
    }

    pub(in super::super) fn osd_failure(&mut self, c: ConnKey, m: &MOsdFailure) {
        let Some(reporter) = self.live_osd(c) else { return };
        let map = std::sync::Arc::clone(&self.state.osdmap);
        let (target, have) = (m.target_osd, have(m.paxos.version).max(m.epoch));
        if m.fsid != self.state.fsid {
            return;
        }
        let current = map.is_up(target)
            && map.client_addr(target) == Some(&m.target_addrs)
            && map.info(target).up_from <= m.epoch;
        if !current {
            // The reporter has an old map.
            return self.send_maps_reply(c, have);
        }
        if m.flags & FAILED == 0 {
            self.failures.cancel(target, reporter);
            return;
        }
        let text = format!("{target} reported failed by {reporter}");
        tracing::debug!("mon: {text}");
        let failed_for = Duration::from_secs(u64::try_from(m.failed_for).unwrap_or(0));
        let domain = self.failure_domain(reporter);
        self.failures.report(target, reporter, domain, failed_for, self.now.wall, (c, have.0));
        if m.flags & IMMEDIATE != 0 {
            if self.may_mark_down(target) && self.mark_down(target) {
                self.refused_connection(target);
                let text = format!("{target} reported immediately failed by {reporter}");
                self.pending.log(&self.state, self.now, Prio::INFO, "cluster", text);
            }
            for (conn, epoch) in self.failures.resolve(target) {
                self.maps_after_commit(conn, Epoch(epoch));
            }
        } else {
            self.check_failure(target);
        }
    }

    /// The CRUSH node that counts as one witness: the reporter's host, or the reporter itself.
    fn failure_domain(&self, osd: OsdId) -> i32 {
        let crush = &self.state.osdmap.crush;
        let level = crush.type_id(&self.state.options.osds.reporter_subtree).unwrap_or(0);
        let mut at = osd.0;
        for _ in 0..cluster::crush::MAX_DEPTH {
            if crush.type_of(at) == Some(level) {
                return at;
            }
            match crush.parent_of(at) {
                Some(p) => at = p,
                None => break,
            }
        }
        osd.0
    }

    /// Marks an OSD down if the reports about it suffice.
    pub(in super::super) fn check_failure(&mut self, target: OsdId) {
        let map = std::sync::Arc::clone(&self.state.osdmap);
        let Some(v) = self.failures.verdict(&map, &self.state.options, target, self.now.wall) else { return };
        if !self.may_mark_down(target) {
            return;
        }
        if self.mark_down(target) {
            let loc: Vec<String> =
                map.crush.full_location(target.0).into_iter().rev().map(|(t, n)| format!("{t}={n}")).collect();
            let text = format!(
                "{target} failed ({}) ({} reporters from different {} after {:.6} >= grace {:.6})",
                loc.join(","),
                v.reporters,
                self.state.options.osds.reporter_subtree,
                v.failed_for,
                v.grace
            );
            self.pending.log(&self.state, self.now, Prio::INFO, "cluster", text);
        }
        for (conn, epoch) in self.failures.resolve(target) {
            self.maps_after_commit(conn, Epoch(epoch));
        }
    }
}
