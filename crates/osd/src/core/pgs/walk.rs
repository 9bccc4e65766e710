//! Walks: a new map goes through the PGs of a reactor in parts, because a turn in which a thousand PGs see a
//! map would delay the operations behind it.
//!
//! During a walk some PGs have seen a map that others have not. Until all PGs have seen all maps of the walk,
//! the reactor's own map is the one before. So inputs that name a newer map wait for the end of the walk, as do
//! messages and operations for PGs that are not here.
//!
//! Invariants:
//!  1. Every PG sees the maps in order. A PG that a map splits off sees that map in the same turn.
//!  2. Inputs that create, move, merge or stop PGs wait for the end of the walk, in order of arrival; so do
//!     further maps.
//!  3. A message of an instance that a map of the walk no longer shows is dropped, whether or not its PG has
//!     seen that map.
//!
//! Tests: `tests/pgs/main.rs` (`maps_reach_pgs_in_parts_and_later_inputs_wait`).

use super::{Pgs, Views};
use crate::core::control::PgCreate;
use crate::core::maps::MapFeed;
use base::{Epoch, Now, PgId, SpgId, unreached};
use cluster::OsdMap;
use pg::{Event, MergeMsg, Move};
use std::collections::VecDeque;
use std::sync::Arc;
use store::ObjectStore;

/// PGs that see a map in one turn. CRUSH takes some 6 µs for each in a cluster of 10,000 OSDs.
pub const WALK_STEP: usize = 128;

/// An input that waits for the end of a walk.
pub(super) enum Behind {
    Maps(Vec<Arc<OsdMap>>, Arc<MapFeed>),
    Create(Vec<PgCreate>),
    Merge(SpgId, SpgId, Box<MergeMsg>),
    Move(usize, SpgId, Box<Move>),
    MayMove(PgId, usize),
    Decided(PgId, (usize, usize), bool),
    MoveSeen(PgId),
    Stop,
}

/// State of a walk; see the module.
pub(super) struct Walk {
    /// Number of PGs in a turn.
    step: usize,
    /// Feed of the last map of the walk; `None` if no walk is in progress.
    feed: Option<Arc<MapFeed>>,
    /// Maps that no PG has seen.
    maps: VecDeque<Arc<OsdMap>>,
    /// Views of the newest map that a PG has seen.
    views: Option<Views>,
    /// PGs that have not seen that map.
    left: VecDeque<u32>,
    behind: VecDeque<Behind>,
}

impl Default for Walk {
    fn default() -> Self {
        let (maps, left, behind) = Default::default();
        Self { step: WALK_STEP, feed: None, maps, views: None, left, behind }
    }
}

impl Walk {
    /// True while some PGs have not seen all maps that came.
    pub(super) fn is_under_way(&self) -> bool {
        self.feed.is_some()
    }

    /// Newest map that some PGs have seen and others may not.
    pub(super) fn map(&self) -> Option<&Arc<OsdMap>> {
        self.views.as_ref().map(|v| v.map())
    }

    /// Drops the walk and all that waits for it.
    pub(super) fn clear(&mut self) {
        *self = Self { step: self.step, ..Self::default() };
    }
}

impl Pgs {
    /// Sets the number of PGs that see a map in one turn.
    pub fn set_walk_step(&mut self, step: usize) {
        self.walk.step = step.max(1);
    }

    /// True if [`Pgs::walk_on`] must be called in another turn.
    #[must_use]
    pub fn is_walking(&self) -> bool {
        self.walk.is_under_way()
    }

    /// Newest known map, which not all PGs may have seen: for the addresses of other OSDs.
    #[must_use]
    pub fn newest_map(&self) -> Option<&Arc<OsdMap>> {
        self.newest_feed().map(|f| &f.map)
    }

    /// Newest known map, which not all PGs may have seen, with the incrementals that lead to it.
    #[must_use]
    pub fn newest_feed(&self) -> Option<&Arc<MapFeed>> {
        self.walk.feed.as_ref().or(self.current.feed())
    }

    /// Handles new maps, in order; `feed` belongs to the last.
    pub fn handle_maps(&mut self, maps: &[Arc<OsdMap>], feed: Arc<MapFeed>, now: Now, store: &mut dyn ObjectStore) {
        self.now = now;
        if self.is_walking() {
            return self.walk.behind.push_back(Behind::Maps(maps.to_vec(), feed));
        }
        if self.stage.is_stopping() {
            // A stopping reactor must not get new PGs: only PGs that were here have been told to stop.
            return;
        }
        let mut newest = self.epoch();
        for map in maps {
            if map.epoch > newest {
                newest = map.epoch;
                self.walk.maps.push_back(map.clone());
            }
        }
        self.walk.feed = Some(feed);
        self.walk_on(now, store);
    }

    /// Shows the maps to the next PGs.
    pub fn walk_on(&mut self, now: Now, store: &mut dyn ObjectStore) {
        self.now = now;
        let mut seen = 0;
        while self.is_walking() && seen < self.walk.step {
            if let Some(i) = self.walk.left.pop_front() {
                seen += self.show_map(i, now, store);
            } else if let Some(map) = self.walk.maps.pop_front() {
                self.begin_map(map, store);
            } else {
                return self.end_walk(now, store);
            }
        }
        if self.is_walking() && self.walk.left.is_empty() && self.walk.maps.is_empty() {
            self.end_walk(now, store);
        }
    }

    fn begin_map(&mut self, map: Arc<OsdMap>, store: &mut dyn ObjectStore) {
        self.compression.follow(&map, store);
        if let Some(before) = self.walk.map().or(self.current.map()) {
            self.places.follow(before, &map);
        }
        self.see_instance(&map);
        let since = self.walk.feed.as_ref().map_or(Epoch(0), |f| f.since.min(map.epoch));
        self.walk.views = Some(self.current.views_of(&map, self.whoami(), since));
        self.walk.left = self.pgs.numbers().into();
    }

    /// Shows the map to a PG and to those it splits off. Returns their number.
    fn show_map(&mut self, i: u32, now: Now, store: &mut dyn ObjectStore) -> usize {
        let Some(mut views) = self.walk.views.take() else { return unreached("a map goes through the PGs") };
        let map = views.map().clone();
        self.note_merges(i, &map);
        let mut these = vec![i];
        these.extend(self.promise_children(i, &mut views));
        for i in &these {
            let Some(pg) = self.pgs.get_mut(*i) else { continue };
            let view = views.of(pg.spg().pg);
            pg.handle(Event::Map(view), now, store, &mut self.effects);
            self.take_effects(*i);
        }
        self.walk.views = Some(views);
        these.len()
    }

    /// Ends the walk after all PGs have seen all maps, and handles the inputs that waited.
    fn end_walk(&mut self, now: Now, store: &mut dyn ObjectStore) {
        self.walk.views = None;
        let Some(feed) = self.walk.feed.take() else { return unreached("a walk ends once") };
        self.deliver_born(now, store);
        self.wake_reserved(now, store);
        if feed.map.epoch > self.epoch() {
            self.current.set(Some(feed));
        }
        self.forget_asked();
        for (from, m) in self.parked.take_peers() {
            self.handle_peer(from, m, now, store);
        }
        for (s, m) in self.parked.take_ops() {
            self.unpark(&s, m, now, store);
        }
        self.note_members();
        while let Some(b) = self.walk.behind.pop_front() {
            self.take_up(b, now, store);
            if self.is_walking() {
                return;
            }
        }
    }

    /// Keeps an input until the walk is over.
    pub(super) fn wait_behind(&mut self, b: Behind) {
        self.walk.behind.push_back(b);
    }

    fn take_up(&mut self, b: Behind, now: Now, store: &mut dyn ObjectStore) {
        match b {
            Behind::Maps(maps, feed) => self.handle_maps(&maps, feed, now, store),
            Behind::Create(pgs) => self.create(&pgs, now, store),
            Behind::Merge(from, to, msg) => self.handle_merge(from, to, msg, now, store),
            Behind::Move(from, spg, m) => self.handle_move(from, spg, m, now, store),
            Behind::MayMove(pg, to) => self.may_move(pg, to, now, store),
            Behind::Decided(pg, way, granted) => self.decided(pg, way, granted, now, store),
            Behind::MoveSeen(pg) => self.move_seen(pg, now, store),
            Behind::Stop => self.stop(now, store),
        }
    }
}
