//! Changes that time alone brings about, checked once a second: silent OSDs, OSDs down for long, expiring entries,
//! pools that are full or at their quota, purged snapshots, old maps, new service keys.
//!
//! | module | contents |
//! | --- | --- |
//! | `health_log` | changes of the cluster's health as lines of the cluster log |
//! | `scrub` | `mon scrub`: reads the stored state and compares it with the state in memory |

pub(super) mod health_log;
pub(super) mod scrub;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use auth::KeyKind;
use auth::server::AUTH_TICKET_TTL;
use base::{Epoch, OsdId, PoolId};
use cluster::osdmap::{map_flag, osd_state};
use cluster::pool::flag;
use cluster::{IntervalSet, OsdMap, PgPool};

use super::MonCore;
use super::osd::overrides::Overrides;
use super::session::Session;
use crate::state::log::Prio;
use crate::state::{ConnKey, Role};
use mgr::balance::Growth;
use mgr::stats::space;

/// Number of PGs whose purged snapshots a tick compares; the last pool may exceed it.
const PURGE_PGS: u64 = 4096;
/// Interval in seconds at which the versions of daemons are compared.
const VERSIONS_SECONDS: u64 = 60;
/// Interval in seconds at which statistics are sampled for rates.
const SAMPLE_SECONDS: u64 = 2;
/// Most snapshots taken off a removal queue per epoch (`mon_max_snap_prune_per_epoch`).
const MAX_PURGE: u64 = 100_000;
/// Most ranges of snapshots taken off all removal queues per epoch; they are in one record.
const MAX_PURGE_RANGES: usize = 8192;

/// Number of ticks, and work that several of them share.
#[derive(Debug, Default)]
pub(super) struct Ticks {
    /// Ticks since the process began.
    count: u64,
    /// Progress of the pass over overrides of placement.
    overrides: Overrides,
    /// PGs that are held where they are, since OSDs join.
    growth: Growth,
    /// The pass that another monitor began was asked for.
    growth_asked: bool,
    /// The last pool whose purged snapshots were compared.
    purged: PoolId,
    /// Time at which devices are looked at next.
    devices: base::Mono,
    /// Alerts that the cluster log has told of.
    health_log: health_log::HealthLog,
}

impl Ticks {
    /// True in every `n`th second.
    pub(super) fn is_nth(&self, n: u64) -> bool {
        self.count.is_multiple_of(n)
    }

    /// The pass over overrides of placement.
    pub(super) fn overrides(&mut self) -> &mut Overrides {
        &mut self.overrides
    }

    /// The PGs that are held where they are, since OSDs join.
    pub(super) fn growth(&mut self) -> &mut Growth {
        &mut self.growth
    }

    /// True for the first call.
    pub(super) fn asks_for_growth(&mut self) -> bool {
        !std::mem::replace(&mut self.growth_asked, true)
    }

    /// True if it is time to look at devices. Then `every` later it is again.
    pub(super) fn takes_devices(&mut self, now: base::Mono, every: impl FnOnce() -> Duration) -> bool {
        let due = now >= self.devices;
        if due {
            self.devices = now + every();
        }
        due
    }
}

impl MonCore {
    pub(super) fn tick(&mut self) {
        self.ticks.count += 1;
        self.tick_auth();
        self.tick_tickets();
        self.tick_leaving();
        self.tick_audit();
        if self.ticks.is_nth(SAMPLE_SECONDS) {
            self.state.mgr_mut().stats.tick(self.now);
        }
        self.tick_mgr_digest();
        self.tick_services();
        self.tick_postponed_maps();
        self.tick_attempt();
        if self.writer.is_busy() {
            // The other checks build on the committed state; they run again in a second.
            return;
        }
        self.state.wrong_keys_mut().tick(self.credentials.proofs_mut(), self.now.mono);
        self.failures.expire(&self.state.options, self.now.wall);
        let suspects: Vec<OsdId> = self.failures.targets().collect();
        for osd in suspects {
            self.check_failure(osd);
        }
        self.tick_cuts();
        self.tick_silent_mgrs();
        self.tick_beacons();
        self.tick_down_out();
        self.tick_blocklist();
        self.tick_full_pools();
        self.tick_purged_snaps();
        self.tick_pg_num();
        self.tick_growth();
        self.tick_overrides();
        self.tick_balance();
        self.tick_devices();
        self.tick_fs();
        self.tick_mutes();
        if self.ticks.is_nth(VERSIONS_SECONDS) {
            let differ = crate::command::versions_differ(&self.state);
            self.state.note_versions(differ, self.now.mono);
        }
        self.tick_health_log();
        self.tick_trim();
        if self.ticks.is_nth(SAMPLE_SECONDS) {
            self.tick_pgmap_line();
        }
    }

    /// Renews service keys in time, and requests the next batch of global ids.
    pub(super) fn tick_auth(&mut self) {
        if self.pending.service_keys.is_none() && !self.writer.is_busy() {
            let mut keys = self.credentials.keys().borrow().clone();
            let random = std::rc::Rc::clone(&self.state.random);
            let ttl = self.state.options.auth.ticket_ttl;
            if keys.tick(self.now.wall, AUTH_TICKET_TTL, ttl, KeyKind::Aes, &*random) {
                self.pending.set_service_keys(keys);
            }
        }
        if let Some(end) = self.credentials.ids().ask() {
            self.pending.set_global_id_end(end);
        }
    }

    /// Closes manager sessions whose ticket expired, as OSDs do; their clients reconnect with a renewed ticket.
    /// Sessions with the monitor stay, because tickets are renewed there.
    fn tick_tickets(&mut self) {
        let now = self.now.wall;
        let is_over = |s: &Session| s.role() == Role::Mgr && s.who().expired(now);
        let over: Vec<ConnKey> = self.sessions.iter().filter(|(_, s)| is_over(s)).map(|(c, _)| *c).collect();
        for c in over {
            self.close(c, "its ticket expired".to_owned());
        }
    }

    fn tick_beacons(&mut self) {
        let now = self.now.mono;
        let map = Arc::clone(&self.state.osdmap);
        for osd in map.osds().filter(|o| map.is_up(*o)) {
            let b = self.liveness.beacon_or_begin(osd, now);
            let limit = self.state.options.osds.report_timeout.max(Duration::from_secs(2 * u64::from(b.interval)));
            if now.since(b.last) > limit && self.may_mark_down(osd) && self.mark_down(osd) {
                let line = format!("{osd} marked down after no beacon for {} seconds", now.since(b.last).as_secs());
                self.pending.log(&self.state, self.now, Prio::INFO, "cluster", line);
            }
        }
    }

    fn tick_down_out(&mut self) {
        let now = self.now.mono;
        let map = Arc::clone(&self.state.osdmap);
        if map.has_flag(map_flag::NOOUT) || self.state.options.osds.down_out_interval.is_zero() {
            return;
        }
        let after = self.state.options.osds.down_out_interval;
        let due: Vec<OsdId> = self.liveness.down(now).filter(|(_, d)| *d >= after).map(|(o, _)| o).collect();
        for osd in due {
            if map.is_up(osd) || map.is_out(osd) {
                self.liveness.is_not_down(osd);
                continue;
            }
            if self.pending.inc().is_some_and(|i| i.new_weight.contains_key(&osd)) {
                continue;
            }
            if self.whole_subtree_is_down(&map, osd) {
                // Each tick checks again, until an OSD of the subtree is up.
                continue;
            }
            let (all, _, inn) = map.osd_counts();
            let ratio = inn.saturating_sub(1) as f64 / all.max(1) as f64;
            if map.effective_state_bits(osd) & osd_state::NOOUT != 0 || ratio < self.state.options.osds.min_in_ratio {
                continue;
            }
            let secs = self.state.options.osds.down_out_interval.as_secs();
            let weight = map.weight(osd);
            self.xinfo_mut(osd).old_weight = weight;
            let inc = self.pending.inc_mut(&self.state);
            inc.new_weight.insert(osd, 0);
            *inc.new_state.entry(osd).or_insert(0) |= osd_state::AUTOOUT & !map.state(osd);
            if inc.new_state.get(&osd) == Some(&0) {
                inc.new_state.remove(&osd);
            }
            // The time stays until the map has the change, so that the change is proposed again if it fails.
            let line = format!("Marking {osd} out (has been down for {secs} seconds)");
            self.pending.log(&self.state, self.now, Prio::INFO, "cluster", line);
        }
    }

    /// True if the OSD is in a subtree of the limiting type whose OSDs are all down.
    fn whole_subtree_is_down(&self, map: &OsdMap, osd: OsdId) -> bool {
        let Some(limit) = map.crush.type_id(&self.state.options.osds.down_out_subtree_limit) else { return false };
        let mut at = osd.0;
        for _ in 0..cluster::crush::MAX_DEPTH {
            if map.crush.type_of(at) == Some(limit) {
                return map.crush.leaves(at).into_iter().map(OsdId).all(|o| !map.is_up(o));
            }
            match map.crush.parent_of(at) {
                Some(p) => at = p,
                None => return false,
            }
        }
        false
    }

    fn tick_blocklist(&mut self) {
        let now = self.now.wall;
        let map = Arc::clone(&self.state.osdmap);
        let over: Vec<_> = map.blocklist.iter().filter(|(_, until)| **until <= now).map(|(a, _)| *a).collect();
        for a in over {
            let inc = self.pending.inc_mut(&self.state);
            if !inc.new_blocklist.contains_key(&a) && !inc.old_blocklist.contains(&a) {
                inc.old_blocklist.push(a);
            }
        }
        let over: Vec<_> = map.range_blocklist.iter().filter(|(_, until)| **until <= now).map(|(a, _)| *a).collect();
        for a in over {
            let inc = self.pending.inc_mut(&self.state);
            if !inc.new_range_blocklist.contains_key(&a) && !inc.old_range_blocklist.contains(&a) {
                inc.old_range_blocklist.push(a);
            }
        }
    }

    /// Sets the pool flags that follow from quotas and from the fullness of OSDs.
    fn tick_full_pools(&mut self) {
        let map = self.pending.map(&self.state);
        let all = osd_state::FULL | osd_state::BACKFILLFULL | osd_state::NEARFULL;
        // An OSD that is down or out takes no writes: it must not stop those of the others.
        let serves = |o| map.is_up(o) && map.is_in(o);
        let tight: BTreeMap<OsdId, u32> =
            map.osds().filter(|o| serves(*o) && map.state(*o) & all != 0).map(|o| (o, map.state(o))).collect();
        let mut by_rule: BTreeMap<u8, u32> = BTreeMap::new();
        let bits_of = |rule: u8| {
            let osds = space::rule_weights(&map.crush, i32::from(rule));
            osds.keys().fold(0, |bits, o| bits | tight.get(o).copied().unwrap_or(0))
        };
        for (id, pool) in map.pools.iter() {
            let mut bits = 0;
            if !tight.is_empty() {
                bits = *by_rule.entry(pool.crush_rule).or_insert_with(|| bits_of(pool.crush_rule));
            }
            let quota = self.quota_reached(*id, pool);
            let mut want = 0;
            if quota {
                want |= flag::FULL | flag::FULL_QUOTA;
            }
            // Only the worst flag is shown.
            if bits & osd_state::FULL != 0 {
                want |= flag::FULL;
            } else if bits & osd_state::BACKFILLFULL != 0 {
                want |= flag::BACKFILLFULL;
            } else if bits & osd_state::NEARFULL != 0 {
                want |= flag::NEARFULL;
            }
            let mask = flag::FULL | flag::FULL_QUOTA | flag::BACKFILLFULL | flag::NEARFULL;
            if pool.flags & mask == want {
                continue;
            }
            let name = map.pool_name(*id).unwrap_or_default().to_owned();
            if quota && !pool.has_flag(flag::FULL_QUOTA) {
                let line = format!("pool '{name}' is full (reached quota)");
                self.pending.log(&self.state, self.now, Prio::WARN, "cluster", line);
            } else if !quota && pool.has_flag(flag::FULL_QUOTA) {
                let line = format!("pool '{name}' no longer out of quota; removing NO_QUOTA flag");
                self.pending.log(&self.state, self.now, Prio::INFO, "cluster", line);
            }
            if let Some(p) = self.pending.pool_mut(&self.state, *id) {
                p.flags = p.flags & !mask | want;
            }
        }
    }

    /// True if a pool has reached a quota. Until all its PGs have reported, a pool that had reached its quota counts as
    /// if it still had: sums that are not complete prove that much is stored, and never that little is.
    fn quota_reached(&self, id: PoolId, p: &PgPool) -> bool {
        let (max_bytes, max_objects) = (p.quota_max_bytes, p.quota_max_objects);
        if max_bytes == 0 && max_objects == 0 {
            return false;
        }
        let stats = &self.state.mgr.stats;
        let sum = stats.pool(id).stats.sum;
        let at = |n: i64, max: u64| max > 0 && u64::try_from(n).unwrap_or(0) >= max;
        at(sum.num_bytes, max_bytes)
            || at(sum.num_objects, max_objects)
            || p.has_flag(flag::FULL_QUOTA) && !stats.is_complete(id, p.pg_num)
    }

    /// Takes snapshots that every PG of a pool has purged off the removal queue.
    fn tick_purged_snaps(&mut self) {
        let map = Arc::clone(&self.state.osdmap);
        let mut ranges = MAX_PURGE_RANGES;
        let begun = self.state.mgr.stats.walked();
        let after = self.ticks.purged;
        let queues = map.removed_snaps_queue.iter();
        // The pools take turns, because the sets of all their PGs may be more than a turn can compare.
        let (later, earlier): (Vec<_>, Vec<_>) = queues.partition(|(pool, _)| **pool > after);
        for (pool, queue) in later.into_iter().chain(earlier) {
            if self.state.mgr.stats.walked() - begun > PURGE_PGS {
                break;
            }
            self.ticks.purged = *pool;
            let Some(p) = map.pool(*pool) else { continue };
            let Some(purged) = self.state.mgr.stats.purged_snaps(*pool, p.pg_num) else { continue };
            let done = first(&mgr::stats::intersection(queue, &purged), MAX_PURGE, ranges);
            if done.is_empty() {
                continue;
            }
            ranges -= done.num_intervals();
            let inc = self.pending.inc_mut(&self.state);
            if !inc.old_pools.contains(pool) {
                inc.new_purged_snaps.insert(*pool, done);
            }
        }
    }

    fn tick_mutes(&mut self) {
        if self.state.mutes.is_empty() {
            return;
        }
        let checks = crate::command::checks(&self.state, self.now);
        for code in crate::command::ended_mutes(&self.state, &checks, self.now) {
            if !self.pending.mutes.contains_key(&code) {
                self.pending.unmute(code);
            }
        }
    }

    /// Removes old epochs that neither PGs, nor OSDs, nor PGs to be created need.
    fn tick_trim(&mut self) {
        let (oldest, newest) = (self.state.history.oldest, self.state.osdmap.epoch);
        let keep = self.state.options.min_osdmap_epochs;
        if newest.0.saturating_sub(oldest.0) <= keep || self.pending.trim_to.is_some() {
            return;
        }
        let map = Arc::clone(&self.state.osdmap);
        let clean = if map.pools.is_empty() { Some(newest) } else { self.state.mgr.stats.min_last_epoch_clean(&map) };
        let Some(mut floor) = clean else { return };
        for osd in map.osds().filter(|o| map.is_up(*o)) {
            match self.liveness.beacon(osd) {
                Some(b) if b.epoch.0 > 0 => {
                    floor = floor.min(b.epoch);
                    if b.min_last_epoch_clean.0 > 0 {
                        floor = floor.min(b.min_last_epoch_clean);
                    }
                }
                _ => return,
            }
        }
        if let Some(created) = self.state.osds.creating.values().map(|c| c.created).min() {
            floor = floor.min(created);
        }
        let to = floor.min(Epoch(newest.0.saturating_sub(keep)));
        if to > oldest {
            self.pending.set_trim_to(to);
        }
    }
}

/// The lowest `n` numbers of a set, in at most `ranges` ranges.
fn first(s: &IntervalSet, n: u64, ranges: usize) -> IntervalSet {
    let mut left = n;
    let mut out = IntervalSet::new();
    for (start, len) in s.iter().take(ranges) {
        let take = len.min(left);
        if take == 0 {
            break;
        }
        out.insert(start, take);
        left -= take;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(r: &[(u64, u64)]) -> IntervalSet {
        let mut s = IntervalSet::new();
        for (a, n) in r {
            s.insert(*a, *n);
        }
        s
    }

    #[test]
    fn sets() {
        let both = mgr::stats::intersection(&set(&[(1, 10), (20, 5)]), &set(&[(5, 17)]));
        assert_eq!(both, set(&[(5, 6), (20, 2)]));
        assert_eq!(first(&set(&[(1, 3), (10, 3)]), 4, 9), set(&[(1, 3), (10, 1)]));
        assert_eq!(first(&set(&[(1, 3), (10, 3)]), 9, 1), set(&[(1, 3)]));
        assert!(first(&set(&[(1, 3)]), 9, 0).is_empty());
    }
}
