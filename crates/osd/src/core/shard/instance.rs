//! Which instance of an OSD speaks: the one that the map shows, or one before it.
//!
//! A map names an OSD and where it is; a process knows its own addresses, which no other process has. What a PG says under a map that
//! shows another process in this one's place would be taken for that process's word.
//!
//! Invariants:
//!  1. Nothing is said to other OSDs under a map that does not show this process up. The map that does so changes the interval of every PG
//!     whose members others count on, so nothing is missed.
//!  2. What another instance said than the newest map here shows is dropped: no interval that this instance of it is part of has heard it.

use super::{Output, Shard};
use base::planted::{Bug, acts};
use base::{AddrVec, Epoch, OsdId};
use cluster::OsdMap;
use pg::Lane;
use wire::msg::MPgPeer;

/// This process in the maps.
#[derive(Debug, Default)]
pub(super) struct Instance {
    /// Its public addresses. Without any it takes every process that a map shows for itself.
    addrs: Option<AddrVec>,
    /// Since when it is up, under the map whose effects are carried out; none if it is not.
    up_from: Option<Epoch>,
}

impl Shard {
    /// This process's public addresses, by which it knows itself in maps.
    pub fn set_addrs(&mut self, addrs: AddrVec) {
        self.instance.addrs = Some(addrs);
    }

    /// What follows is said under this map.
    pub(super) fn see_instance(&mut self, map: &OsdMap) {
        let ours = |a: &AddrVec| map.client_addr(self.whoami) == Some(a) || acts(Bug::ActAsPredecessor);
        let up = map.is_up(self.whoami) && self.instance.addrs.as_ref().is_none_or(ours);
        self.instance.up_from = up.then(|| map.info(self.whoami).up_from);
    }

    /// Tells another OSD, if this one may speak.
    pub(super) fn send_peer(&mut self, to: OsdId, lane: Lane, mut msg: Box<MPgPeer>) {
        let Some(up_from) = self.instance.up_from else {
            return tracing::debug!(%to, pg = %msg.spg, "not said: no map shows this process up");
        };
        if msg.epoch < up_from {
            // Its PG has not seen the map that shows this process up.
            return tracing::debug!(%to, pg = %msg.spg, epoch = %msg.epoch, "not said: of a map before this process was up");
        }
        msg.up_from = up_from;
        if to == self.whoami {
            // One shard of a PG to another one that this OSD had before.
            return self.out.push_back(Output::PeerElsewhere(self.places.of(msg.spg), to, msg));
        }
        if let Lane::Background(class) = lane {
            self.held[class as usize].push_back((to, msg));
            self.release_held();
        } else {
            self.out.push_back(Output::Peer { to, lane, msg });
        }
    }

    /// A message of no newer map than the one here is of the instance that this shows.
    pub(super) fn is_of_instance(&self, from: OsdId, m: &MPgPeer) -> bool {
        let Some(map) = self.feed.as_ref().map(|f| &f.map) else { return false };
        let shows = |map: &OsdMap| map.is_up(from) && map.info(from).up_from == m.up_from;
        acts(Bug::ActAsPredecessor) || shows(map) && self.walk.map().is_none_or(|m| shows(m))
    }
}
