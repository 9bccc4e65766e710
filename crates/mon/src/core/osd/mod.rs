//! Messages of OSDs to the monitor: boot, liveness, failures, placement overrides, created PGs.
//!
//! A message counts only on the OSD's own session (its first, short session announces a client). Most also need the
//! map to show that instance up, with the session's addresses.

mod boot;
mod creating;
mod refused;
mod report;

pub(super) use boot::bounded_metadata;
pub(super) use creating::CreatingTargets;

use base::{AddrVec, Epoch, OsdId};
use cluster::osdmap::osd_state;
use cluster::{Incremental, OsdXinfo};

use super::MonCore;
use super::session::ConnKey;
use super::waiter::Waiter;
use crate::state::{ClusterState, Pending};

impl MonCore {
    /// The OSD, if the session is that of the instance that the map shows up. Any other session gets the newest maps.
    fn live_osd(&mut self, c: ConnKey) -> Option<OsdId> {
        let osd = self.osd_session(c)?;
        let addrs = self.sessions.get(&c).map(|s| s.addrs.clone())?;
        let map = &self.state.osdmap;
        if map.is_up(osd) && map.client_addr(osd) == Some(&addrs) {
            return Some(osd);
        }
        let epoch = self.state.osdmap.epoch;
        self.send_maps_reply(c, Epoch(epoch.0.saturating_sub(1)));
        None
    }

    fn addrs_of(&self, c: ConnKey) -> AddrVec {
        self.sessions.get(&c).map(|s| s.addrs.clone()).unwrap_or_default()
    }

    /// Answers with maps above `have`, now or after the pending change is committed.
    pub(super) fn maps_after_commit(&mut self, c: ConnKey, have: Epoch) {
        self.waiters.push(Waiter::Maps(c, have));
    }

    /// The OSD's extra facts with pending changes, for writing.
    pub(super) fn xinfo_mut(&mut self, osd: OsdId) -> &mut OsdXinfo {
        let now = self.state.osdmap.xinfo(osd);
        self.pending.inc_mut(&self.state).new_xinfo.entry(osd).or_insert(now)
    }

    /// True if the pending change already marks the OSD down.
    fn going_down(&self, osd: OsdId) -> bool {
        self.pending.inc().is_some_and(|i| inc_marks_down(i, osd))
    }

    /// Marks an OSD down in the pending change; false if it is down or going down already.
    pub(super) fn mark_down(&mut self, osd: OsdId) -> bool {
        if !self.state.osdmap.is_up(osd) || self.going_down(osd) {
            return false;
        }
        *self.pending.inc_mut(&self.state).new_state.entry(osd).or_insert(0) ^= osd_state::UP;
        self.failures.forget_reporter(osd);
        true
    }

    /// True if no flag forbids to mark the OSD down and enough other OSDs are up. An administrator's request obeys
    /// both; `force` skips the ratio.
    pub(super) fn may_mark_down(&self, osd: OsdId) -> bool {
        may_mark_down(&self.state, &self.pending, osd)
    }
}

/// See [`MonCore::may_mark_down`].
pub(crate) fn may_mark_down(state: &ClusterState, pending: &Pending, osd: OsdId) -> bool {
    let map = &state.osdmap;
    if map.has_flag(cluster::osdmap::map_flag::NODOWN) || map.effective_state_bits(osd) & osd_state::NODOWN != 0 {
        tracing::info!("mon: {osd} is not marked down: nodown");
        return false;
    }
    let (all, up, _) = map.osd_counts();
    if all == 0 {
        return false;
    }
    let going = pending.inc().map_or(0, |i| i.new_state.keys().filter(|o| inc_marks_down(i, **o)).count());
    let ratio = (up.saturating_sub(going)) as f64 / all as f64;
    if ratio < state.options.min_up_ratio {
        tracing::warn!("mon: {osd} is not marked down: only {up} of {all} OSDs are up");
        return false;
    }
    true
}

fn inc_marks_down(i: &Incremental, osd: OsdId) -> bool {
    i.new_state.get(&osd).is_some_and(|s| *s == 0 || s & osd_state::UP != 0)
}
