//! Merges of PGs on this OSD: which PG leaves by which map, and their messages to each other ([`pg::MergeMsg`]).
//!
//! Invariant: a machine that leaves is kept apart from later ones of the same name, which may leave too. Each
//! gets its own messages.
//!
//! Tests: `tests/pgs/main.rs` (`two_leaving_pgs_of_one_name_are_kept_apart`).

use super::{Behind, Input, Output, Pgs};
use base::{Now, SpgId};
use cluster::OsdMap;
use pg::{Effect, Event, MergeMsg, Pg};
use store::ObjectStore;

impl Pgs {
    /// Registers the merges of a map that a PG is about to get: the PG may leave, or be the target of others.
    pub(super) fn note_merges(&mut self, i: u32, map: &OsdMap) {
        if self.is_between(i) {
            return;
        }
        let Some(pg) = self.pgs.get(i) else { return };
        let spg = pg.spg();
        let id = spg.pg;
        // A stored PG may have seen a newer map than the stored ones.
        let seen = pg.has_processed(map.epoch);
        if seen || self.resizes.is_leaver(spg, i) {
            return;
        }
        let Some(pg_num) = map.pool(id.pool).map(|p| p.pg_num) else { return };
        if let Some(pg) = self.pgs.get_mut(i) {
            pg.merges_at(map.epoch, pg_num);
        }
        if id.seed >= pg_num && self.by_pg.get(spg) == Some(i) {
            self.by_pg.remove(spg);
            self.resizes.note_leaver(spg, map.epoch, i);
        }
    }

    /// Handles a message of a PG on another reactor, for one that is or was here.
    pub fn handle_merge(&mut self, from: SpgId, to: SpgId, msg: Box<MergeMsg>, now: Now, store: &mut dyn ObjectStore) {
        self.now = now;
        if self.is_walking() {
            return self.wait_behind(Behind::Merge(from, to, msg));
        }
        self.resizes.push_message(from, to, msg);
        self.deliver_born(now, store);
    }

    /// Delivers the messages between PGs.
    pub(super) fn deliver_merges(&mut self, now: Now, store: &mut dyn ObjectStore) {
        while let Some((from, to, msg)) = self.resizes.pop_message() {
            // A message to a PG that leaves must not reach a PG that was split off under its name later.
            let (here, at) = match *msg {
                MergeMsg::Next(e) | MergeMsg::Merged { at: e, .. } | MergeMsg::Await(e) => {
                    let left = self.resizes.leaver_at(to, e);
                    // The PG may leave at a map that has not arrived here.
                    let later = matches!(*msg, MergeMsg::Await(_)) && e > self.places.epoch();
                    let here = left.or_else(|| self.by_pg.get(to).filter(|_| later));
                    (here, self.places.of_leaver(to, e))
                }
                // Other messages go first to a machine that has yet to reach the map by which it leaves.
                _ => {
                    let left = self.resizes.leavers(to).find(|i| self.pgs.get(*i).is_some_and(Pg::has_yet_to_leave));
                    (left.or_else(|| self.by_pg.get(to)), self.places.of(to))
                }
            };
            if let Some(i) = here {
                if let Some(pg) = self.pgs.get_mut(i) {
                    pg.handle(Event::Merge { from, msg }, now, store, &mut self.effects);
                    self.take_effects(i);
                }
            } else if at != self.places.index() {
                self.out.push_back(Output::Reactor(at, Input::Merge(from, to, msg)));
            } else if let Some(Effect::Merge { to: back, msg }) = pg::answer_for_none(from, &msg) {
                self.resizes.push_message(to, back, Box::new(msg));
            }
        }
    }
}
