//! Messages of OSDs to the monitor: boot, liveness, failures, placement overrides, created PGs.
//!
//! A message counts only on the OSD's own session (its first, short session announces a client). Most also need the
//! map to show that instance up, with the session's addresses.
//!
//! | module | contents |
//! | --- | --- |
//! | `cuts` | cut links between two OSDs that both reach the monitors and others |
//! | `failure` | failure reports about OSDs, and the decision when to believe them |
//! | `overrides` | removal of overrides of placement that have no effect or are void: temps, upmaps, chosen primaries |
//! | `boot` | boot and shutdown of an OSD |
//! | `creating` | PGs that wait for their creation: which OSD is asked, and with which history |
//! | `liveness` | signs of life of OSDs: the newest beacon of each, and the times since which others are down |
//! | `refused` | OSDs that are marked down because they refused a peer's connection: which of them the map calls dead |
//! | `report` | reports of running OSDs: liveness, fullness, failed peers, requested acting sets |

pub mod cuts;
pub(super) mod failure;
pub(super) mod overrides;

mod boot;
mod creating;
mod liveness;
mod refused;
mod report;

pub(super) use boot::bounded_metadata;
pub(super) use creating::CreatingTargets;
pub(super) use liveness::Liveness;

use base::{AddrVec, Epoch, OsdId};
use cluster::OsdXinfo;
use cluster::osdmap::osd_state;

use super::MonCore;
use super::propose::waiter::Waiter;
use crate::state::{ConnKey, osd};

impl MonCore {
    /// The OSD, if the session is that of the instance that the map shows up. Any other session gets the newest maps.
    fn live_osd(&mut self, c: ConnKey) -> Option<OsdId> {
        let osd = self.osd_session(c)?;
        let addrs = self.sessions.get(&c).map(|s| s.addrs().clone())?;
        let map = &self.state.osdmap;
        if map.is_up(osd) && map.client_addr(osd) == Some(&addrs) {
            return Some(osd);
        }
        let epoch = self.state.osdmap.epoch;
        self.send_maps_reply(c, Epoch(epoch.0.saturating_sub(1)));
        None
    }

    fn addrs_of(&self, c: ConnKey) -> AddrVec {
        self.sessions.get(&c).map(|s| s.addrs().clone()).unwrap_or_default()
    }

    /// Answers with maps above `have`, now or after the pending change is committed.
    pub(super) fn maps_after_commit(&mut self, c: ConnKey, have: Epoch) {
        self.answers.wait(Waiter::Maps(c, have));
    }

    /// The OSD's extra facts with pending changes, for writing.
    pub(super) fn xinfo_mut(&mut self, osd: OsdId) -> &mut OsdXinfo {
        let now = self.state.osdmap.xinfo(osd);
        self.pending.inc_mut(&self.state).new_xinfo.entry(osd).or_insert(now)
    }

    /// True if the pending change already marks the OSD down.
    fn going_down(&self, osd: OsdId) -> bool {
        self.pending.inc().is_some_and(|i| osd::inc_marks_down(i, osd))
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

    /// See [`osd::may_mark_down`].
    pub(super) fn may_mark_down(&self, osd: OsdId) -> bool {
        osd::may_mark_down(&self.state, &self.pending, osd)
    }
}
