//! Messages of other OSDs for PGs without a copy on this OSD.
//!
//! Invariant: an unanswered question is repeated when the session with the asked OSD is reset. An OSD that
//! reports a copy under an older map does so once per interval, and no PG here could repeat the question.
//!
//! Tests: `tests/pgs/main.rs`.

use super::Pgs;
use base::{Now, OsdId, SpgId};
use pg::PeerId;
use pg::peer::{Orphan, ask};
use pg::{CreateInfo, Event, Lane, Pg};
use std::collections::BTreeSet;
use store::ObjectStore;
use wire::msg::MPgPeer;

/// Most messages that wait for the name of a PG to become free. Further ones are dropped.
const LATER_MAX: usize = 1024;

/// Messages and questions about PGs without a copy here; see the module.
#[derive(Default)]
pub(super) struct Orphans {
    /// OSDs and shards that were asked about their copies of PGs to be led here.
    asked: BTreeSet<(PeerId, SpgId)>,
    /// Messages that came for PGs while their copies were removed.
    left: Vec<(OsdId, Box<MPgPeer>)>,
    /// Messages that would create PGs whose names are not free yet.
    later: Vec<(OsdId, Box<MPgPeer>)>,
}

impl Orphans {
    /// Adds messages that a removed copy held. They are handled as messages for a PG without a copy.
    pub(super) fn note_left(&mut self, mut held: Vec<(OsdId, Box<MPgPeer>)>) {
        self.left.append(&mut held);
    }

    /// Takes the messages that removed copies held.
    pub(super) fn take_left(&mut self) -> Vec<(OsdId, Box<MPgPeer>)> {
        std::mem::take(&mut self.left)
    }

    /// Takes the messages that may create their PGs by now.
    pub(super) fn take_later(&mut self) -> Vec<(OsdId, Box<MPgPeer>)> {
        std::mem::take(&mut self.later)
    }

    /// Releases memory of a past burst.
    pub(super) fn shrink_to(&mut self, room: usize) {
        self.left.shrink_to(room);
    }
}

impl Pgs {
    /// Answers the message, creates the copy it announces, or drops it. `m` has no newer map than this reactor.
    pub(super) fn handle_orphan(&mut self, from: OsdId, m: Box<MPgPeer>, now: Now, store: &mut dyn ObjectStore) {
        let Some(map) = self.current.map().cloned() else { return };
        let Some(pg_num) = map.pool(m.spg.pg.pool).map(|p| p.pg_num) else { return };
        if m.spg.pg.seed >= pg_num {
            tracing::debug!(%from, pg = %m.spg, "message for a merged PG ignored");
            return;
        }
        let me = self.whoami();
        let Some(view) = self.current.views(me).map(|mut v| v.of(m.spg.pg)) else { return };
        match pg::peer::orphan(me, &view, from, &m) {
            Orphan::Answer(msg) => self.send_peer(from, Lane::Data, msg),
            Orphan::Ask(msg) => {
                self.orphans.asked.insert((PeerId { osd: from, shard: m.from }, m.spg));
                self.send_peer(from, Lane::Data, msg);
            }
            Orphan::Create(theirs) => {
                let Some(cid) = self.services.free_name(m.spg) else {
                    if self.orphans.later.len() < LATER_MAX {
                        self.orphans.later.push((from, m));
                    }
                    return;
                };
                let cfg = self.config(m.spg);
                let bits = map.pool(m.spg.pg.pool).map_or(0, |p| p.pg_bits(m.spg.pg.seed));
                let how = CreateInfo { bits, cid: Some(cid), epoch: map.epoch, ..CreateInfo::default() };
                let mut machine = Pg::adopt(cfg, how, &theirs, now, store, &mut self.effects);
                machine.set_coming_pg_num(pg_num);
                machine.handle(Event::Map(view), now, store, &mut self.effects);
                machine.handle(Event::Peer { from, msg: m }, now, store, &mut self.effects);
                self.add(cfg, machine);
                for (s, m) in self.parked.take_ops() {
                    self.unpark(&s, m, now, store);
                }
            }
            Orphan::Ignore => {}
        }
    }

    /// Repeats the questions to an OSD, which the reset may have lost.
    pub(super) fn ask_again(&mut self, peer: OsdId) {
        self.forget_asked();
        let epoch = self.epoch();
        let again: Vec<(PeerId, SpgId)> = self.orphans.asked.iter().filter(|(p, _)| p.osd == peer).copied().collect();
        for (to, spg) in again {
            self.send_peer(peer, Lane::Data, ask(spg, to, epoch));
        }
    }

    /// Drops questions about PGs that are here meanwhile, or are not to be led here. The rest concern PGs led
    /// here, so their number is bounded for each asked OSD.
    pub(super) fn forget_asked(&mut self) {
        let me = self.whoami();
        let Some(map) = self.current.map().filter(|_| !self.orphans.asked.is_empty()) else { return };
        self.orphans.asked.retain(|(_, spg)| {
            !self.by_pg.contains(*spg)
                && map.pool(spg.pg.pool).is_some_and(|p| spg.pg.seed < p.pg_num)
                && map.pg_to_up_acting(spg.pg).acting_primary == me
        });
    }
}
