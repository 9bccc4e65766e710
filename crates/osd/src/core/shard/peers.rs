//! Other OSDs: their messages, sessions and leases.

use super::{Input, Output, Shard};
use crate::core::control::Report;
use base::{Now, OsdId};
use pg::lease::LeaseUpdate;
use pg::{Event, Pg};
use std::collections::BTreeSet;
use store::ObjectStore;
use wire::msg::MPgPeer;

impl Shard {
    /// Handles a message of another OSD for a PG of this reactor.
    pub fn handle_peer(&mut self, from: OsdId, m: Box<MPgPeer>, now: Now, store: &mut dyn ObjectStore) {
        self.now = now;
        if self.stopping {
            tracing::debug!(%from, pg = %m.spg, "message of a peer dropped");
            return;
        }
        if m.epoch > self.epoch() {
            self.report(Report::WantMap(m.epoch));
            return self.park_peer(from, m);
        }
        if !self.is_of_instance(from, &m) {
            return tracing::debug!(%from, pg = %m.spg, up_from = %m.up_from, "message of an old instance of an OSD dropped");
        }
        if let Some(i) = self.by_pg.get(m.spg) {
            return self.feed_pg(i, Event::Peer { from, msg: m }, now, store);
        }
        if !self.places.is_here(m.spg) {
            return self.out.push_back(Output::Reactor(self.places.of(m.spg), Input::Peer(from, m)));
        }
        if self.is_walking() {
            // The PG may be split off, or belong to another OSD, by a map that not all PGs here have seen.
            return self.park_peer(from, m);
        }
        self.handle_orphan(from, m, now, store);
    }

    /// Parks a message until the next map.
    pub(super) fn park_peer(&mut self, from: OsdId, m: Box<MPgPeer>) {
        self.counters.delayed += 1;
        self.parked.push_peer(from, m);
    }

    /// Handles a reset session to another OSD: messages in flight may be lost.
    pub fn peer_reset(&mut self, peer: OsdId, now: Now, store: &mut dyn ObjectStore) {
        let all = self.pgs.numbers();
        for i in all {
            self.feed_pg(i, Event::PeerReset(peer), now, store);
        }
        self.ask_again(peer);
    }

    /// Handles granted and received leases. A grant must be passed before any map newer than its epoch.
    pub fn handle_leases(&mut self, news: &[LeaseUpdate], now: Now, store: &mut dyn ObjectStore) {
        let mut renewed = false;
        for u in news {
            renewed |= self.leases.update(*u);
        }
        if !renewed {
            return;
        }
        let waiting: Vec<u32> = self.pgs.iter().filter(|(_, p)| p.waits_for_lease()).map(|(i, _)| i).collect();
        for i in waiting {
            self.feed_pg(i, Event::Leases, now, store);
        }
    }

    /// OSDs that share PGs with this one on this reactor, and those whose leases PGs led here need.
    #[must_use]
    pub fn pg_peers(&self) -> (BTreeSet<OsdId>, BTreeSet<OsdId>) {
        self.members_noted.set(false);
        let led = self.lease_peers();
        let mut all: BTreeSet<OsdId> = self.pgs.values().flat_map(|p| p.others().iter().copied()).collect();
        all.extend(self.pgs.values().flat_map(Pg::up).copied().filter(|o| *o != self.whoami && *o != OsdId::NONE));
        all.extend(led.iter().copied());
        (all, led)
    }

    /// Reports [`Shard::pg_peers`], if they have changed since the last report.
    pub fn news_of_pg_peers(&mut self) -> Option<Report> {
        let now = self.pg_peers();
        if self.told_peers == now {
            return None;
        }
        self.told_peers.clone_from(&now);
        Some(Report::PgPeers(now.0, now.1))
    }

    /// OSDs whose leases PGs of this reactor need: the other members of every acting set led here.
    #[must_use]
    pub fn lease_peers(&self) -> BTreeSet<OsdId> {
        self.pgs.values().filter(|p| p.is_member()).flat_map(|p| p.others().iter().copied()).collect()
    }

    /// Reports once that the peers may have changed, however many PGs change before the host asks.
    pub(super) fn note_members(&mut self) {
        if !self.members_noted.replace(true) {
            self.out.push_back(Output::Members);
        }
    }
}
