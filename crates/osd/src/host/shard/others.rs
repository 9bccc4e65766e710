//! Other OSDs: their messages, and those that share PGs with this reactor.

use super::{ShardHost, Work};
use crate::core::shard::Input;
use crate::host::peers::PeerEvent;
use crate::host::route::{ToControl, ToShard};
use base::OsdId;
use wire::Message;
use wire::WireMessage as _;
use wire::msg::{MOsdMap, MPgPeer, MPgPeers};

/// Bytes that a client's connection may hold while another OSD does not keep up.
const SLOW_BYTES: usize = 4 << 20;

impl ShardHost {
    /// Sends a message of a PG over the data session, so that the order is kept. Leases use another lane.
    pub(super) fn send_peer(&self, to: OsdId, m: MPgPeer) {
        let map = self.core.borrow().newest_map().cloned();
        if let (Some(map), Some(p)) = (map, self.peers()) {
            p.send(to, m, &map);
        }
    }

    pub(super) fn peer_event(&self, e: PeerEvent) {
        match e {
            PeerEvent::Message(from, m) => self.peer_message(from, &m),
            PeerEvent::Slow(slow) => self.routes.all(|| ToShard::Slow(slow)),
            PeerEvent::Reset(osd) => {
                self.strange.borrow_mut().remove(&osd);
                self.work();
                self.routes.inputs(|| Input::PeerReset(osd));
            }
        }
    }

    /// Tells the control machine if the OSDs that share PGs with this reactor have changed.
    pub(super) fn note_pg_peers(&self) {
        let news = self.core.borrow_mut().news_of_pg_peers();
        if let Some(r) = news {
            self.routes.control(ToControl::Report(self.index, r));
        }
    }

    pub(super) fn peer_message(&self, from: OsdId, m: &Message) {
        self.wrote(m.data.len());
        match m.header.kind {
            MPgPeer::KIND => match MPgPeer::from_message(m) {
                Ok(m) => self.later(Work::Peer(from, Box::new(m))),
                Err(error) => self.not_understood(from, &error),
            },
            MPgPeers::KIND => match MPgPeers::from_message(m) {
                Ok(m) => {
                    for m in m.items {
                        self.later(Work::Peer(from, Box::new(m)));
                    }
                }
                Err(error) => self.not_understood(from, &error),
            },
            MOsdMap::KIND => match MOsdMap::from_message(m) {
                Ok(m) => self.routes.control(ToControl::Maps(m)),
                Err(error) => tracing::warn!(osd = from.0, %error, "maps of another OSD not understood"),
            },
            // Other messages are not admitted.
            _ => {}
        }
    }

    /// Logs once per session that an OSD's messages can't be decoded, since an OSD of another build sends many.
    pub(super) fn not_understood(&self, from: OsdId, error: &wire::DecodeError) {
        if self.strange.borrow_mut().insert(from) {
            tracing::error!(osd = from.0, %error, "message of another OSD not understood; all OSDs of a cluster must run the same build");
        }
    }

    pub(super) fn pg_message(&self, from: OsdId, m: Box<MPgPeer>, now: base::Now) {
        let target = self.core.borrow().place(m.spg);
        if target == self.index {
            self.core.borrow_mut().handle_peer(from, m, now, &mut *self.store.borrow_mut());
        } else {
            // The PG was split off on that reactor, or the sender has a wrong number of our reactors.
            self.routes.input(target, Input::Peer(from, m));
        }
    }

    /// Lets clients have less in flight while a reactor's queue for another OSD is too long. Those with little in flight
    /// are served: their operations may need other members.
    pub(super) fn slow(&self, slow: bool) {
        let reactors = self.slow.get();
        self.slow.set(if slow { reactors + 1 } else { reactors.saturating_sub(1) });
        if let Some(ep) = self.endpoint() {
            let usual = net::Limits::default().in_flight_bytes_max;
            ep.set_in_flight_max(if self.slow.get() > 0 { SLOW_BYTES } else { usual });
        }
    }
}
