//! Other OSDs: their messages, sessions and leases.

use super::{Input, Output, Pgs};
use crate::core::control::Report;
use base::{Now, OsdId};
use pg::Event;
use pg::lease::LeaseUpdate;
use store::ObjectStore;
use wire::msg::MPgPeer;

impl Pgs {
    /// Handles a message of another OSD for a PG of this reactor.
    pub fn handle_peer(&mut self, from: OsdId, m: Box<MPgPeer>, now: Now, store: &mut dyn ObjectStore) {
        self.now = now;
        if self.stage.is_stopping() {
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
            if let Some(pg) = self.pgs.get_mut(i)
                && pg.handle_ack(from, &m, now, store, &mut self.effects)
            {
                return self.after_pg(i, now, store);
            }
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

    /// Sends the acknowledgements of writes that have become durable: one for each PG.
    pub(super) fn acknowledge(&mut self) {
        while let Some((i, owed)) = self.pgs.pop_owed() {
            self.effects.extend(owed);
            self.take_effects(i);
        }
    }

    /// Parks a message until the next map.
    pub(super) fn park_peer(&mut self, from: OsdId, m: Box<MPgPeer>) {
        self.stats.count_delayed();
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
            renewed |= self.services.update_lease(*u);
        }
        if !renewed {
            return;
        }
        let waiting: Vec<u32> = self.pgs.iter().filter(|(_, p)| p.waits_for_lease()).map(|(i, _)| i).collect();
        for i in waiting {
            self.feed_pg(i, Event::Leases, now, store);
        }
    }
}
