//! Other OSDs: those that share PGs with this one are watched, and leases are asked of them.

use super::{Control, Output, Phase};
use crate::core::heartbeat::Heartbeats;
use crate::core::lease;
use base::planted::{Bug, acts};
use base::{Now, OsdId};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wire::msg::{MOsdLease, MOsdMap};

/// Most bytes of maps that travel with the answer to a lease request. An OSD that lacks more asks the monitor.
const LEASE_MAPS_MAX: usize = 256 << 10;

/// OSDs that share PGs with this one, as each reactor reports them.
#[derive(Debug, Default)]
pub(super) struct PgPeers {
    /// For each reactor: OSDs that share PGs there, and those that share PGs led there.
    reactors: BTreeMap<usize, (BTreeSet<OsdId>, BTreeSet<OsdId>)>,
}

impl PgPeers {
    /// Sets what a reactor reports.
    fn set(&mut self, reactor: usize, all: BTreeSet<OsdId>, led: BTreeSet<OsdId>) {
        self.reactors.insert(reactor, (all, led));
    }

    /// OSDs that share PGs.
    fn all(&self) -> BTreeSet<OsdId> {
        self.reactors.values().flat_map(|(a, _)| a).copied().collect()
    }

    /// Other OSDs than `me` that share PGs led here.
    fn led(&self, me: OsdId) -> BTreeSet<OsdId> {
        self.reactors.values().flat_map(|(_, l)| l).copied().filter(|o| *o != me).collect()
    }
}

impl Control {
    /// Heartbeat machine, for events of its links.
    pub fn heartbeats(&mut self) -> &mut Heartbeats {
        &mut self.hb
    }

    /// Sets the OSDs that share PGs with this one on a reactor, and those that share PGs led there.
    pub fn set_pg_peers(&mut self, reactor: usize, all: BTreeSet<OsdId>, led: BTreeSet<OsdId>, now: Now) {
        self.pg_peers.set(reactor, all, led);
        let Some(map) = self.maps.current().cloned() else { return };
        self.hb.set_pg_peers(self.pg_peers.all());
        self.hb.handle_map(&map, self.phase == Phase::Active || self.rejoin.is_waiting());
        self.leases.set_peers(&self.pg_peers.led(self.id.whoami), &map, now);
    }

    /// Passes on what leases want.
    pub(super) fn take_lease_outputs(&mut self) {
        for o in self.leases.take_outputs() {
            match o {
                lease::Output::WantMap(e) => self.want_map(e),
                o => self.out.push_back(Output::Lease(o)),
            }
        }
    }

    /// Handles the opened control lane to a peer.
    pub fn handle_lane_open(&mut self, osd: OsdId, now: Now) {
        self.leases.handle_open(osd, now);
    }

    /// Handles a peer's request for a lease. Returns the maps that the peer lacks, and the grant if it gets
    /// one.
    pub fn handle_lease_request(
        &mut self,
        from: OsdId,
        m: &MOsdLease,
        now: Now,
    ) -> (Option<MOsdMap>, Option<MOsdLease>) {
        let (Some(map), Some(feed)) = (self.maps.current().cloned(), self.maps.feed()) else { return (None, None) };
        let grant = self.leases.handle_request(from, m, &map, now);
        let maps = feed.share_steps(m.map_epoch).filter(|s| {
            let bytes = s.maps.values().chain(s.incremental_maps.values()).map(Bytes::len).sum::<usize>();
            bytes <= LEASE_MAPS_MAX && !acts(Bug::LeaseWithoutEpoch)
        });
        if m.map_epoch > map.epoch {
            self.want_map(m.map_epoch);
        }
        (maps, grant)
    }

    /// Handles a peer's grant of a lease.
    pub fn handle_lease_grant(&mut self, from: OsdId, m: &MOsdLease, now: Now) {
        self.leases.handle_grant(from, m, now);
    }
}
