//! New maps go through the PGs of a reactor a part at a time: a turn in which a thousand PGs see a map is long for the operations behind it.
//!
//! While a walk is under way some PGs have seen a map that others have not. The shard's own map is the one before the walk until all PGs
//! have seen all of its maps, so whatever names one of these maps waits for the end, as do messages and operations for PGs that are not here.
//!
//! Invariants:
//!  1. Every PG sees the maps in order, and one that a map splits off sees that map in the same turn.
//!  2. What makes PGs, moves, joins or stops them waits behind the walk, in the order in which it came; so do further maps.
//!  3. A message of an OSD's instance that a map of the walk no longer shows is dropped, whether or not its PG has seen that map.

use super::{Shard, Views};
use crate::core::control::PgCreate;
use crate::core::maps::MapFeed;
use base::{Now, PgId, SpgId};
use cluster::OsdMap;
use pg::{Event, Kin, Move};
use std::collections::VecDeque;
use std::sync::Arc;
use store::ObjectStore;

/// PGs that see a map in one turn. CRUSH takes some 6 µs for each in a cluster of 10,000 OSDs.
pub const WALK_STEP: usize = 128;

/// What waits for the end of a walk.
pub(super) enum Behind {
    Maps(Vec<Arc<OsdMap>>, Arc<MapFeed>),
    Create(Vec<PgCreate>),
    Kin(SpgId, SpgId, Box<Kin>),
    Move(usize, SpgId, Box<Move>),
    MayMove(PgId, usize),
    Decided(PgId, (usize, usize), bool),
    MoveSeen(PgId),
    Stop,
}

/// See the module.
pub(super) struct Walk {
    /// PGs of a turn.
    step: usize,
    /// What comes with the last of the maps; none if no walk is under way.
    feed: Option<Arc<MapFeed>>,
    /// Maps that no PG has seen.
    maps: VecDeque<Arc<OsdMap>>,
    /// The newest map that a PG has seen.
    views: Option<Views>,
    /// PGs that have not seen that one.
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
    /// Some PGs have not seen all maps that came.
    pub(super) fn is_under_way(&self) -> bool {
        self.feed.is_some()
    }

    /// The newest map that a PG has seen and others may have not.
    pub(super) fn map(&self) -> Option<&Arc<OsdMap>> {
        self.views.as_ref().map(|v| &v.map)
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        *self = Self { step: self.step, ..Self::default() };
    }
}

impl Shard {
    /// Sets how many PGs see a map in one turn.
    pub fn set_walk_step(&mut self, step: usize) {
        self.walk.step = step.max(1);
    }

    /// True if [`Shard::walk_on`] is to be called in another turn.
    #[must_use]
    pub fn is_walking(&self) -> bool {
        self.walk.is_under_way()
    }

    /// The newest map that is known here, though perhaps not to all PGs: where other OSDs are.
    #[must_use]
    pub fn newest_map(&self) -> Option<&Arc<OsdMap>> {
        self.walk.feed.as_ref().or(self.feed.as_ref()).map(|f| &f.map)
    }

    /// New maps, in order; `feed` belongs to the last.
    pub fn handle_maps(&mut self, maps: &[Arc<OsdMap>], feed: Arc<MapFeed>, now: Now, store: &mut dyn ObjectStore) {
        self.now = now;
        if self.is_walking() {
            return self.walk.behind.push_back(Behind::Maps(maps.to_vec(), feed));
        }
        if self.stopping {
            // PGs that a map makes would never end: those that were here were told to, once.
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

    /// Lets the next PGs see the maps that came.
    pub fn walk_on(&mut self, now: Now, store: &mut dyn ObjectStore) {
        self.now = now;
        let mut seen = 0;
        while self.is_walking() && seen < self.walk.step {
            if let Some(i) = self.walk.left.pop_front() {
                seen += self.show_map(i, now, store);
            } else if let Some(map) = self.walk.maps.pop_front() {
                self.begin_map(map);
            } else {
                return self.end_walk(now, store);
            }
        }
        if self.is_walking() && self.walk.left.is_empty() && self.walk.maps.is_empty() {
            self.end_walk(now, store);
        }
    }

    fn begin_map(&mut self, map: Arc<OsdMap>) {
        if let Some(before) = self.walk.map().or(self.feed.as_ref().map(|f| &f.map)) {
            self.places.follow(before, &map);
        }
        self.see_instance(&map);
        self.walk.views = Some(Views::new(&map, self.whoami));
        self.walk.left = self.pgs.numbers().into();
    }

    /// A PG sees the map, and with it what is split off by that. How many they are.
    fn show_map(&mut self, i: u32, now: Now, store: &mut dyn ObjectStore) -> usize {
        let Some(mut views) = self.walk.views.take() else { return 0 };
        let map = views.map.clone();
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

    /// All PGs have seen all maps: what waited for that goes on.
    fn end_walk(&mut self, now: Now, store: &mut dyn ObjectStore) {
        self.walk.views = None;
        let Some(feed) = self.walk.feed.take() else { return };
        self.deliver_born(now, store);
        self.wake_reserved(now, store);
        if feed.map.epoch > self.epoch() {
            self.feed = Some(feed);
        }
        self.forget_asked();
        self.peers_parked_bytes = 0;
        for (from, m) in std::mem::take(&mut self.peers_parked) {
            self.handle_peer(from, m, now, store);
        }
        for (s, m) in self.parked.take() {
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
            Behind::Kin(from, to, kin) => self.handle_kin(from, to, kin, now, store),
            Behind::Move(from, spg, m) => self.handle_move(from, spg, m, now, store),
            Behind::MayMove(pg, to) => self.may_move(pg, to, now, store),
            Behind::Decided(pg, way, granted) => self.decided(pg, way, granted, now, store),
            Behind::MoveSeen(pg) => self.move_seen(pg, now, store),
            Behind::Stop => self.stop(now, store),
        }
    }
}
