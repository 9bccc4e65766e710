//! Instances of OSDs: telling the process that the map shows from earlier ones.
//!
//! A map shows an OSD's number and addresses, and no two processes share addresses. Messages sent under a map
//! that shows another process in this one's place would be taken for messages of that process.
//!
//! Invariants:
//!  1. No message goes to other OSDs under a map that does not show this process up. The map that first shows
//!     it up starts a new interval for every PG it is a member of, so nothing is missed.
//!  2. A message of another instance than the newest map shows is dropped. No interval with the present
//!     instance depends on it.
//!
//! Tests: `tests/pgs/main.rs` (`messages_of_an_ended_instance_are_ignored`).

use super::{Input, Output, Pgs};
use base::planted::{Bug, acts};
use base::{AddrVec, Epoch, OsdId, SpgId};
use cluster::OsdMap;
use pg::{Lane, PgConfig};
use wire::msg::MPgPeer;

/// This process in the maps.
#[derive(Debug, Default)]
pub(super) struct Instance {
    whoami: OsdId,
    /// Seed of the choices that PGs draw.
    seed: u64,
    /// Public addresses of this process. Without addresses, it takes any process that a map shows for itself.
    addrs: Option<AddrVec>,
    /// Epoch since which this process is up, in the map whose effects are being executed; `None` if it is not
    /// up.
    up_from: Option<Epoch>,
}

impl Instance {
    /// Process of that OSD, which no map shows yet.
    pub(super) fn new(whoami: OsdId, seed: u64) -> Self {
        Self { whoami, seed, addrs: None, up_from: None }
    }

    /// Identity of the PG's machine of that number.
    fn config(&self, spg: SpgId, index: u32) -> PgConfig {
        PgConfig { spg, whoami: self.whoami, index, seed: self.seed ^ u64::from(index) << 32 }
    }
}

impl Pgs {
    /// Number of the OSD.
    #[must_use]
    pub fn whoami(&self) -> OsdId {
        self.instance.whoami
    }

    /// Identity of a new PG's machine.
    pub(super) fn config(&mut self, spg: SpgId) -> PgConfig {
        let index = self.pgs.new_number();
        self.instance.config(spg, index)
    }

    /// Sets the public addresses by which this process recognises itself in maps.
    pub fn set_addrs(&mut self, addrs: AddrVec) {
        self.instance.addrs = Some(addrs);
    }

    /// Sets the map under which the following messages are sent.
    pub(super) fn see_instance(&mut self, map: &OsdMap) {
        let me = self.instance.whoami;
        let ours = |a: &AddrVec| map.client_addr(me) == Some(a) || acts(Bug::ActAsPredecessor);
        let up = map.is_up(me) && self.instance.addrs.as_ref().is_none_or(ours);
        self.instance.up_from = up.then(|| map.info(me).up_from);
    }

    /// Sends a message to another OSD, if this process may speak.
    pub(super) fn send_peer(&mut self, to: OsdId, lane: Lane, mut msg: Box<MPgPeer>) {
        let Some(up_from) = self.instance.up_from else {
            return tracing::debug!(%to, pg = %msg.spg, "message to another OSD dropped: no map shows this process up");
        };
        if msg.epoch < up_from {
            // The sending PG has not seen the map that shows this process up.
            return tracing::debug!(%to, pg = %msg.spg, epoch = %msg.epoch, "message to another OSD dropped: its map is too old");
        }
        msg.up_from = up_from;
        if to == self.instance.whoami {
            // The receiver is another shard of the PG on this OSD.
            return self.out.push_back(Output::Reactor(self.places.of(msg.spg), Input::Peer(to, msg)));
        }
        if let Lane::Background(class) = lane {
            self.send_paced(class, to, msg);
        } else {
            self.out.push_back(Output::Peer { to, lane, msg });
        }
    }

    /// True if a message, which has no newer map than this reactor, comes from the instance that the map shows.
    pub(super) fn is_of_instance(&self, from: OsdId, m: &MPgPeer) -> bool {
        let Some(map) = self.current.map() else { return false };
        let shows = |map: &OsdMap| map.is_up(from) && map.info(from).up_from == m.up_from;
        acts(Bug::ActAsPredecessor) || shows(map) && self.walk.map().is_none_or(|m| shows(m))
    }
}
