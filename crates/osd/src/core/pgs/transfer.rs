//! PGs that move to or from another reactor, and their leftovers ([`pg::Move`] describes the steps;
//! `core::moves` decides when).
//!
//! Invariants:
//!  1. Until the decision, the source's reactor has the PG; afterwards the target's has it. A reactor that does
//!     not know the decision yet sends to the source, which passes messages on. The target holds new messages
//!     until no reactor does that any more.
//!  2. One PG moves at a time, and its leftovers are removed before the next one moves.
//!
//! Tests: `tests/moves.rs`.

use super::{Behind, Input, Output, Pgs};
use crate::core::moves::News;
use base::{Epoch, Mono, Now, PgId, SpgId, unreached};
use pg::info::PgInfo;
use pg::{Event, Move, Pg, PgConfig, Sweep, Swept, pg_of};
use std::collections::BTreeMap;
use std::time::Duration;
use store::{Cid, ObjectStore, ReadError, Tag};

/// Pause before a PG that could not move is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(20);

struct Departing {
    pg: PgId,
    cid: Cid,
    index: u32,
    to: usize,
    granted: bool,
    /// Number of reactors that know the decision.
    seen: usize,
    left: bool,
    arrived: bool,
}

struct Arriving {
    pg: PgId,
    index: u32,
    from: usize,
    /// `pg_num` of the pool when the source stopped.
    pg_num: u32,
    granted: bool,
}

/// A collection to be removed, the machine that waits until it is void, and whether its removal ends a
/// departure.
type ToSweep = (Cid, Option<(usize, SpgId)>, bool);

struct Sweeping {
    sweep: Sweep,
    /// Machine that waits until the collection is void.
    tell: Option<(usize, SpgId)>,
    /// True if the collection belongs to the departed PG.
    departed: bool,
}

/// Moves and removals of one reactor; see the module.
#[derive(Default)]
pub(super) struct Transfers {
    reactors: usize,
    moves: bool,
    departing: Option<Departing>,
    arriving: Option<Arriving>,
    sweeps: BTreeMap<u32, Sweeping>,
    begin: Vec<ToSweep>,
    /// Collections found at the start that no PG owns and that are to be removed.
    doomed: Vec<Cid>,
    swept_told: bool,
    not_before: BTreeMap<PgId, Mono>,
}

/// Newest map that the PG of a collection has seen. `None` for a void collection, which has no info: no PG has
/// arrived in it, or its PG has left.
pub(crate) fn seen_by(store: &mut dyn ObjectStore, tag: Tag, cid: Cid) -> Result<Option<Epoch>, ReadError> {
    let info = store.pg_info(tag, cid)?.filter(|i| !i.is_empty());
    // An info that can't be decoded is no reason to remove the collection.
    Ok(info.map(|i| PgInfo::from_blob(&i).map_or(Epoch(0), |i| i.epoch)))
}

impl Pgs {
    /// Sets the number of reactors. With `moves`, PGs are offered to the reactors of their names. `doomed` lists
    /// collections in this store that no PG owns and that are to be removed.
    pub fn share_reactors(&mut self, reactors: usize, moves: bool, doomed: Vec<Cid>) {
        (self.transfers.reactors, self.transfers.moves) = (reactors, moves);
        self.transfers.doomed = doomed;
    }

    /// True if a collection found at the start is a leftover of a PG.
    pub(super) fn is_doomed(&mut self, cid: Cid) -> bool {
        let doomed = self.transfers.doomed.contains(&cid);
        if doomed {
            tracing::info!(collection = ?cid, "removing a collection that a moved PG left behind");
            self.services.reserver().announce_removal(cid);
            self.transfers.begin.push((cid, None, false));
        }
        doomed
    }

    /// True for a machine of a moving PG whose maps this reactor does not handle: splits and merges happen on the
    /// other reactor.
    pub(super) fn is_between(&self, i: u32) -> bool {
        let t = &self.transfers;
        t.arriving.as_ref().is_some_and(|a| a.index == i && !a.granted)
            || t.departing.as_ref().is_some_and(|d| d.index == i && d.granted)
    }

    /// The departing PG and its target.
    #[must_use]
    pub fn departing(&self) -> Option<(PgId, usize)> {
        self.transfers.departing.as_ref().map(|d| (d.pg, d.to))
    }

    /// Offers a PG that is not on the reactor of its name to the control machine.
    pub(super) fn offer_move(&mut self, now: Now, store: &dyn ObjectStore) {
        let t = &mut self.transfers;
        if !t.moves || t.reactors < 2 || self.stage.is_stopping() || t.departing.is_some() {
            return;
        }
        t.not_before.retain(|_, at| *at > now.mono);
        let wants = self.pgs.values().find_map(|p| {
            let pg = p.spg().pg;
            let to = self.places.named(pg);
            let may = to != self.places.index() && !t.not_before.contains_key(&pg) && p.may_move(now, store);
            (may && self.by_pg.has_whole(pg)).then_some((pg, to))
        });
        if let Some((pg, to)) = wants {
            self.out.push_back(Output::Moves(News::Offer(pg, to)));
        }
    }

    /// Handles the control machine's permission to move a PG.
    pub fn may_move(&mut self, pg: PgId, to: usize, now: Now, store: &mut dyn ObjectStore) {
        if self.is_walking() {
            return self.wait_behind(Behind::MayMove(pg, to));
        }
        let i = self.by_pg.get(pg.into()).filter(|_| self.transfers.departing.is_none() && !self.stage.is_stopping());
        let Some((i, cid)) = i.and_then(|i| Some((i, self.pgs.get(i)?.cid()))) else {
            return self.out.push_back(Output::Moves(News::Over(pg)));
        };
        self.transfers.departing =
            Some(Departing { pg, cid, index: i, to, granted: false, seen: 0, left: false, arrived: false });
        self.feed_pg(i, Event::Move(Box::new(Move::Begin)), now, store);
    }

    /// Handles a message of the PG's machine on another reactor.
    pub fn handle_move(&mut self, from: usize, spg: SpgId, m: Box<Move>, now: Now, store: &mut dyn ObjectStore) {
        if self.is_walking() {
            return self.wait_behind(Behind::Move(from, spg, m));
        }
        if self.stage.is_stopping() {
            return;
        }
        if m.is_for_source() {
            let Some(d) = self.transfers.departing.as_mut().filter(|d| d.pg == spg.pg) else { return };
            if *m == Move::Arrived {
                d.arrived = true;
                return self.check_departed(now, store);
            }
            let i = d.index;
            return self.feed_pg(i, Event::Move(m), now, store);
        }
        if let Move::Settle { cid, bits } = &*m {
            return self.settle_pg(from, spg, *cid, *bits, now, store);
        }
        let Some(a) = self.transfers.arriving.as_mut().filter(|a| a.pg == spg.pg) else { return };
        if let Move::Switch(l) = &*m {
            a.pg_num = l.pg_num();
        }
        let i = a.index;
        self.feed_pg(i, Event::Move(m), now, store);
    }

    fn settle_pg(&mut self, from: usize, spg: SpgId, cid: Cid, bits: u32, now: Now, store: &mut dyn ObjectStore) {
        tracing::debug!(collection = ?cid, from, "a PG begins to move to this reactor");
        let view = self.current.views(self.whoami()).map(|mut v| v.of(spg.pg));
        let there = |c: &Cid| pg_of(*c) == Some(spg);
        let taken = self.pgs.values().any(|p| p.spg() == spg)
            || self.transfers.arriving.is_some()
            || self.services.reserver().is_collection_being_removed(cid)
            || self.services.reserver().is_being_removed(spg)
            || store.collections().iter().any(|(c, _)| there(c));
        let Some(view) = view.filter(|_| !taken) else {
            return self.send_move(from, spg, Box::new(Move::Refuse));
        };
        let cfg: PgConfig = self.config(spg);
        let mut machine = Pg::arrive(cfg, cid, bits);
        self.equip(&mut machine);
        self.transfers.arriving = Some(Arriving { pg: spg.pg, index: cfg.index, from, pg_num: 0, granted: false });
        self.pgs.insert(cfg.index, machine);
        self.feed_pg(cfg.index, Event::Map(view), now, store);
        self.feed_pg(cfg.index, Event::Move(Box::new(Move::Settle { cid, bits })), now, store);
    }

    /// Handles the decision about a move: the PG is on its target from this point in the sequence of maps, or
    /// stays.
    pub fn decided(
        &mut self,
        pg: PgId,
        (from, to): (usize, usize),
        granted: bool,
        now: Now,
        store: &mut dyn ObjectStore,
    ) {
        self.now = now;
        if self.is_walking() {
            return self.wait_behind(Behind::Decided(pg, (from, to), granted));
        }
        if granted {
            self.places.set(pg, to);
        }
        let pg_num = self.current.map().and_then(|m| m.pool(pg.pool)).map_or(0, |p| p.pg_num);
        let me = self.places.index();
        if let Some(d) = self.transfers.departing.as_mut().filter(|d| d.pg == pg && from == me) {
            d.granted = granted;
            let i = d.index;
            if !granted {
                self.feed_pg(i, Event::Move(Box::new(Move::Decided(false))), now, store);
            }
        }
        if let Some(a) = self.transfers.arriving.as_mut().filter(|a| a.pg == pg && to == me) {
            a.granted = granted;
            let i = a.index;
            if granted {
                self.by_pg.insert(pg.into(), i);
                if let Some(p) = self.pgs.get_mut(i) {
                    p.set_coming_pg_num(pg_num);
                }
            }
            self.feed_pg(i, Event::Move(Box::new(Move::Decided(granted))), now, store);
        }
        if granted {
            self.out.push_back(Output::Reactor(from, Input::MoveSeen(pg)));
        }
    }

    /// Handles a reactor's notice that it knows the decision, so that all its earlier messages have arrived.
    pub fn move_seen(&mut self, pg: PgId, now: Now, store: &mut dyn ObjectStore) {
        if self.is_walking() {
            return self.wait_behind(Behind::MoveSeen(pg));
        }
        let Some(d) = self.transfers.departing.as_mut().filter(|d| d.pg == pg) else { return };
        d.seen += 1;
        if d.seen == self.transfers.reactors {
            let i = d.index;
            self.feed_pg(i, Event::Move(Box::new(Move::Flushed)), now, store);
            self.check_departed(now, store);
        }
    }

    /// Sends a message to the PG's machine on another reactor.
    fn send_move(&mut self, to: usize, spg: SpgId, m: Box<Move>) {
        self.out.push_back(Output::Reactor(to, Input::Move(self.places.index(), spg, m)));
    }

    /// Handles a message of a moving machine here.
    pub(super) fn move_effect(&mut self, i: u32, m: Box<Move>) {
        let t = &mut self.transfers;
        if let Some(d) = t.departing.as_mut().filter(|d| d.index == i) {
            match *m {
                Move::Left { .. } => {
                    d.left = true;
                    if let Some(p) = self.pgs.remove(i) {
                        self.forget(p.spg(), i);
                    }
                    self.note_members();
                }
                Move::Stays => {
                    let pg = d.pg;
                    t.departing = None;
                    t.not_before.insert(pg, self.now.mono + AGAIN_AFTER);
                    self.out.push_back(Output::Moves(News::Over(pg)));
                }
                _ => {
                    let (to, pg) = (d.to, d.pg);
                    self.send_move(to, pg.into(), m);
                }
            }
            return;
        }
        let Some(a) = t.arriving.as_ref().filter(|a| a.index == i) else { return };
        match *m {
            Move::Ready => self.out.push_back(Output::Moves(News::Ready { pg: a.pg, pg_num: a.pg_num })),
            Move::Here => t.arriving = None,
            Move::Left { made } => {
                t.arriving = None;
                if let Some(p) = self.pgs.remove(i) {
                    if made {
                        t.begin.push((p.cid(), None, false));
                    }
                    self.forget(p.spg(), i);
                    self.note_members();
                }
            }
            _ => {
                let (to, pg) = (a.from, a.pg);
                self.send_move(to, pg.into(), m);
            }
        }
    }

    fn check_departed(&mut self, now: Now, store: &mut dyn ObjectStore) {
        if let Some(d) = self.transfers.departing.as_ref().filter(|d| d.left && d.arrived) {
            let (cid, tell) = (d.cid, (d.to, d.pg.into()));
            self.transfers.begin.push((cid, Some(tell), true));
            self.pump_sweeps(now, store);
        }
    }

    /// Begins pending removals.
    pub(super) fn pump_sweeps(&mut self, now: Now, store: &mut dyn ObjectStore) {
        if self.stage.is_stopping() {
            return self.transfers.begin.clear();
        }
        for (cid, tell, departed) in std::mem::take(&mut self.transfers.begin) {
            // A collection that was not completely created does not exist.
            if !store.collections().iter().any(|(c, _)| *c == cid) {
                continue;
            }
            let index = self.pgs.new_number();
            tracing::debug!(collection = ?cid, "removing a collection");
            let mut sweep = Sweep::new(cid, index, self.pacing.pacer().clone(), self.services.reserver());
            let said = sweep.run(now.mono, store);
            self.transfers.sweeps.insert(index, Sweeping { sweep, tell, departed });
            self.swept(index, said, store);
        }
        self.tell_swept();
    }

    /// Reports once that all leftovers found at the start are removed.
    fn tell_swept(&mut self) {
        if !self.transfers.swept_told && self.transfers.sweeps.is_empty() && self.current.map().is_some() {
            self.transfers.swept_told = true;
            self.out.push_back(Output::Moves(News::Swept));
        }
    }

    fn swept(&mut self, i: u32, said: Option<Swept>, store: &dyn ObjectStore) {
        let Some(s) = self.transfers.sweeps.get_mut(&i) else { return unreached("the removal is under way") };
        match said {
            Some(Swept::Void) => {
                if let Some((to, spg)) = s.tell.take() {
                    self.send_move(to, spg, Box::new(Move::Void));
                }
            }
            Some(Swept::Gone) => {
                let departed = s.departed;
                self.transfers.sweeps.remove(&i);
                if let Some(d) = self.transfers.departing.take_if(|_| departed) {
                    self.out.push_back(Output::Moves(News::Over(d.pg)));
                    // Offers the next PG at once.
                    self.offer_move(self.now, store);
                }
                self.tell_swept();
            }
            // The waiting PG is not served before the next start.
            Some(Swept::Failed) => {
                if let Some((_, spg)) = s.tell {
                    return self.out.push_back(Output::PgFailed(spg.pg, base::errno::EIO));
                }
                // The collection is void, but its name stays taken; other PGs may move.
                if let Some(d) = self.transfers.departing.take_if(|_| std::mem::take(&mut s.departed)) {
                    self.out.push_back(Output::Moves(News::Over(d.pg)));
                }
            }
            None => {}
        }
    }

    /// Retries removals that failed for lack of space.
    pub(super) fn retry_sweeps(&mut self, now: Now, store: &mut dyn ObjectStore) {
        let stuck: Vec<u32> =
            self.transfers.sweeps.iter().filter(|(_, s)| s.sweep.is_stuck()).map(|(i, _)| *i).collect();
        for i in stuck {
            self.sweep_event(i, None, now, store);
        }
        self.pump_sweeps(now, store);
    }

    /// Passes an event of the store or the pacer to a removal. Returns false if it belongs to none.
    pub(super) fn sweep_event(
        &mut self,
        i: u32,
        e: Option<&store::Event>,
        now: Now,
        store: &mut dyn ObjectStore,
    ) -> bool {
        self.now = now;
        let Some(s) = self.transfers.sweeps.get_mut(&i) else { return false };
        let said = match e {
            Some(e) => s.sweep.handle(e, now.mono, store),
            None => s.sweep.run(now.mono, store),
        };
        let goes_on = said == Some(Swept::Void);
        self.swept(i, said, store);
        if goes_on && let Some(s) = self.transfers.sweeps.get_mut(&i) {
            let said = s.sweep.run(now.mono, store);
            self.swept(i, said, store);
        }
        true
    }

    /// Ends all moves because the OSD stops.
    pub(super) fn stop_transfers(&mut self) {
        (self.transfers.departing, self.transfers.arriving) = (None, None);
        self.transfers.sweeps.clear();
        self.transfers.begin.clear();
    }
}
