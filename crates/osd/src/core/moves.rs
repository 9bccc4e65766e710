//! Moves of PGs between reactors. The control machine decides for all reactors which PG moves, and when.
//!
//! A PG's name selects its reactor, but a PG that was split off stays on its parent's reactor. Reactors offer
//! such PGs, and one moves at a time. When the source has sent everything, the decision goes to every reactor
//! through the queues of the maps. So at the same point in the sequence of maps all reactors have the same
//! [`super::places::Places`].
//!
//! [`survey`] settles at the next start what a crash during a move left.
//!
//! Invariant: a PG does not move across a map that changes its pool's `pg_num`, since that determines the place
//! of children.
//!
//! Tests: `one_pg_moves_at_a_time_by_turns_and_not_across_a_split`.

use super::pgs::{Input, seen_by};
use super::places::Found;
use base::errno::EIO;
use base::{Epoch, PgId, SpgId};
use bytes::Bytes;
use cluster::OsdMap;
use std::collections::{BTreeMap, BTreeSet};
use store::{Cid, Event, ObjectStore, Op, ReadError, Tag, Transaction};

/// A reactor's news about PGs that move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// A PG of the reactor belongs on that other one.
    Offer(PgId, usize),
    /// A PG has arrived on the reactor completely, so that its move can be decided.
    Ready {
        /// The PG.
        pg: PgId,
        /// `pg_num` of its pool when the source stopped.
        pg_num: u32,
    },
    /// The move of a PG of the reactor has ended, whether it has gone or stays.
    Over(PgId),
    /// The reactor has removed all leftovers of PGs that were moved before the start.
    Swept,
}

/// Message that the host has to deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// To the PG's reactor: let the PG go.
    Go {
        /// Reactor that has the PG.
        from: usize,
        /// The PG.
        pg: PgId,
        /// Reactor to which the PG moves.
        to: usize,
    },
    /// To all reactors: the place of the PG.
    Decided {
        /// The PG.
        pg: PgId,
        /// Reactor that had the PG.
        from: usize,
        /// Reactor to which the PG was to move.
        to: usize,
        /// True if the PG moves.
        granted: bool,
    },
}

/// Moves of an OSD's PGs; see the module.
#[derive(Debug, Default)]
pub struct Moves {
    reactors: usize,
    /// Reactors that have removed the leftovers of an earlier run.
    swept: BTreeSet<usize>,
    /// PG that each reactor offers, with its target.
    offers: BTreeMap<usize, (PgId, usize)>,
    now: Option<(PgId, usize, usize)>,
    /// `pg_num` of the moving PG's pool, in the newest map published since the move began.
    pg_num: Option<u32>,
    /// True if that number has changed since.
    changed: bool,
    /// Reactor of the latest move.
    last: usize,
    /// Number of PGs that have moved.
    pub moved: u64,
}

impl Told {
    /// The input, for each of the reactors that get it.
    pub fn inputs(self, reactors: usize) -> impl Iterator<Item = (usize, Input)> {
        let (to, input) = match self {
            Self::Go { from, pg, to } => (from..from + 1, Input::MayMove(pg, to)),
            Self::Decided { pg, from, to, granted } => (0..reactors, Input::Decided(pg, (from, to), granted)),
        };
        to.map(move |i| (i, input.clone()))
    }
}

impl Moves {
    /// Moves between this number of reactors.
    #[must_use]
    pub fn new(reactors: usize) -> Self {
        Self { reactors, ..Self::default() }
    }

    /// The moving PG, its source and its target.
    #[must_use]
    pub fn moving(&self) -> Option<(PgId, usize, usize)> {
        self.now
    }

    /// Handles the news of reactor `at`. `map` is the newest published one: all reactors have it in their queues already,
    /// so a decision comes after it.
    pub fn handle(&mut self, at: usize, news: News, map: Option<&OsdMap>) -> Option<Told> {
        match news {
            News::Offer(pg, to) => self.offer(at, pg, to),
            News::Ready { pg, pg_num } => self.ready(pg, at, pg_num, map),
            News::Over(pg) => self.over(at, pg),
            News::Swept => self.swept(at),
        }
    }

    /// Records that a reactor has removed all leftovers of an earlier run.
    pub fn swept(&mut self, reactor: usize) -> Option<Told> {
        self.swept.insert(reactor);
        self.next()
    }

    /// Records a reactor's offer of a PG that belongs on another one.
    pub fn offer(&mut self, reactor: usize, pg: PgId, to: usize) -> Option<Told> {
        self.offers.insert(reactor, (pg, to));
        self.next()
    }

    /// Ends a move, successful or not, after the source reactor is done with the PG.
    pub fn over(&mut self, reactor: usize, pg: PgId) -> Option<Told> {
        if self.now.is_some_and(|(p, from, _)| p == pg && from == reactor) {
            self.now = None;
        }
        self.next()
    }

    fn next(&mut self) -> Option<Told> {
        if self.now.is_some() || self.swept.len() < self.reactors {
            return None;
        }
        // Reactors take turns.
        let after = self.offers.range(self.last + 1..).next();
        let from = *after.or_else(|| self.offers.iter().next())?.0;
        let (pg, to) = self.offers.remove(&from)?;
        self.last = from;
        self.now = Some((pg, from, to));
        (self.pg_num, self.changed) = (None, false);
        Some(Told::Go { from, pg, to })
    }

    /// Records a map that is published.
    pub fn published(&mut self, map: &OsdMap) {
        if let Some((pg, ..)) = self.now {
            let n = map.pool(pg.pool).map_or(0, |p| p.pg_num);
            self.changed |= self.pg_num.replace(n).is_some_and(|old| old != n);
        }
    }

    /// Decides a move once the target has everything. `pg_num` is that of the pool when the source stopped,
    /// `map` the newest published one.
    pub fn ready(&mut self, pg: PgId, to: usize, pg_num: u32, map: Option<&OsdMap>) -> Option<Told> {
        let (_, from, _) = self.now.filter(|(p, _, t)| *p == pg && *t == to)?;
        let granted = map.and_then(|m| m.pool(pg.pool)).is_some_and(|p| p.pg_num == pg_num && !self.changed);
        self.moved += u64::from(granted);
        Some(Told::Decided { pg, from, to, granted })
    }
}

/// PGs with their reactors, and collections that no PG owns with their reactors.
pub type Survey = (Vec<Found>, Vec<(usize, Cid)>);

/// PGs in the stores of an OSD at its start, before it serves. If a PG has two collections, one is chosen and
/// the other is made void before this returns. So only one counts at a later start, even with another number of
/// reactors. `drive` executes a store's requests.
pub fn survey<S: ObjectStore>(
    stores: &mut [S],
    named: impl Fn(PgId) -> usize,
    mut drive: impl FnMut(&mut S),
) -> Survey {
    let mut held = Vec::new();
    for (i, s) in stores.iter_mut().enumerate() {
        for (cid, _) in s.collections() {
            if pg::pg_of(cid).is_some_and(|p| !pg::is_intake(p.shard)) {
                let seen = loop {
                    match seen_by(s, Tag(0), cid) {
                        Err(ReadError::Wait) => drive(s),
                        // A collection that can't be read must not be removed.
                        Err(_) => break Some(Epoch(0)),
                        Ok(seen) => break seen,
                    }
                };
                s.release(Tag(0));
                held.push((i, cid, seen));
            }
        }
    }
    let (found, doomed) = resolve(&held, named);
    for (i, cid) in &doomed {
        let counts = held.iter().any(|(at, c, seen)| at == i && c == cid && seen.is_some());
        if let Some(s) = stores.get_mut(*i).filter(|_| counts)
            && let Err(error) = make_void(s, *cid, &mut drive)
        {
            tracing::error!(collection = ?cid, ?error, "a PG has two collections, and the old one can't be made void");
        }
    }
    (found, doomed)
}

/// Chooses among collections. `held` has reactor, collection, and the newest map the PG has seen (`None` if
/// void). Two that are not void exist if the OSD ended while a PG was handed over. They are equal, and the one
/// on the reactor that `named` gives is taken. If one has seen a newer map, it has served since, and the other
/// could not be made void.
#[must_use]
fn resolve(held: &[(usize, Cid, Option<Epoch>)], named: impl Fn(PgId) -> usize) -> Survey {
    let mut at: BTreeMap<SpgId, (usize, Cid, Epoch)> = BTreeMap::new();
    let mut doomed = Vec::new();
    for (reactor, cid, seen) in held {
        // Different shards of a PG are independent copies.
        let Some(spg) = pg::pg_of(*cid) else { continue };
        let pg = spg.pg;
        match (seen, at.get(&spg).copied()) {
            (None, _) => doomed.push((*reactor, *cid)),
            (Some(seen), Some(other)) if (other.2, other.0 == named(pg)) >= (*seen, *reactor == named(pg)) => {
                doomed.push((*reactor, *cid));
            }
            (Some(seen), other) => {
                doomed.extend(other.map(|(at, cid, _)| (at, cid)));
                at.insert(spg, (*reactor, *cid, *seen));
            }
        }
    }
    (at.into_iter().map(|(spg, (reactor, _, epoch))| Found { spg, reactor, epoch }).collect(), doomed)
}

fn make_void<S: ObjectStore>(store: &mut S, cid: Cid, drive: &mut impl FnMut(&mut S)) -> Result<(), ReadError> {
    let (tag, txn) = (Tag(0), Transaction { ops: vec![Op::PgInfo { cid, info: Bytes::new() }] });
    while let Err(e) = store.prepare(tag, &txn) {
        if e != ReadError::Wait {
            store.release(tag);
            return Err(e);
        }
        drive(store);
    }
    store.submit(tag, txn);
    drive(store);
    let mut said = Err(EIO);
    while let Some(e) = store.poll_event() {
        if let Event::Durable(t, r) = e
            && t == tag
        {
            said = r;
        }
    }
    said.map_err(|errno| ReadError::Io { what: "a collection's info".into(), errno })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::PoolId;
    use cluster::PgPool;
    use std::sync::Arc;

    fn map(pg_num: u32) -> OsdMap {
        let mut m = OsdMap::default();
        Arc::make_mut(&mut m.pools).insert(PoolId(1), PgPool { pg_num, ..PgPool::default() }.into());
        m
    }

    #[test]
    fn one_pg_moves_at_a_time_by_turns_and_not_across_a_split() {
        let pg = |s| PgId::new(1, s);
        let mut m = Moves::new(2);
        assert_eq!(m.offer(0, pg(3), 1), None, "nobody knows what is left of an earlier run");
        assert_eq!(m.swept(0), None);
        assert_eq!(m.swept(1), Some(Told::Go { from: 0, pg: pg(3), to: 1 }));
        assert_eq!(m.offer(0, pg(5), 1), None);
        assert_eq!(m.offer(1, pg(2), 0), None);
        assert_eq!(
            m.ready(pg(3), 1, 4, Some(&map(8))),
            Some(Told::Decided { pg: pg(3), from: 0, to: 1, granted: false })
        );
        assert_eq!(m.over(0, pg(3)), Some(Told::Go { from: 1, pg: pg(2), to: 0 }));
        assert_eq!(m.ready(pg(3), 1, 8, Some(&map(8))), None, "that is over");
        assert_eq!(
            m.ready(pg(2), 0, 8, Some(&map(8))),
            Some(Told::Decided { pg: pg(2), from: 1, to: 0, granted: true })
        );
        assert_eq!(m.over(1, pg(2)), Some(Told::Go { from: 0, pg: pg(5), to: 1 }));
        assert_eq!((m.moving(), m.moved), (Some((pg(5), 0, 1)), 1));
        // The PG was merged and split off again meanwhile, so it is another one.
        [8, 8, 4, 8].iter().for_each(|n| m.published(&map(*n)));
        assert!(matches!(m.ready(pg(5), 1, 8, Some(&map(8))), Some(Told::Decided { granted: false, .. })));
        assert_eq!(m.offer(0, pg(5), 1), None);
        assert!(matches!(m.over(0, pg(5)), Some(Told::Go { .. })));
        [8, 8].iter().for_each(|n| m.published(&map(*n)));
        assert!(matches!(m.ready(pg(5), 1, 8, Some(&map(8))), Some(Told::Decided { granted: true, .. })));
    }

    #[test]
    fn two_shards_of_a_pg_are_both_kept() {
        let shard = |n| Cid::Pg(SpgId { pg: PgId::new(1, 4), shard: base::ShardId(n) });
        let seen = Some(Epoch(9));
        let held = [(0, shard(0), seen), (0, shard(2), seen), (0, pg::staging_cid(shard(2)), None)];
        let (places, doomed) = resolve(&held, |_| 0);
        assert_eq!(places.len(), 2);
        assert_eq!(doomed, [(0, pg::staging_cid(shard(2)))]);
    }

    #[test]
    fn of_two_collections_of_a_pg_one_is_kept() {
        let named = |pg: PgId| pg.seed as usize % 2;
        let a = |s| Cid::Pg(PgId::new(1, s).into());
        let b = |s| pg::staging_cid(a(s));
        let seen = |e| Some(Epoch(e));
        let held = [
            (0, a(1), seen(9)),
            (1, b(1), None),
            (0, a(3), seen(9)),
            (1, b(3), seen(9)),
            (1, a(5), seen(9)),
            (0, b(5), None),
            (0, a(2), seen(9)),
            (0, a(7), seen(9)),
            (1, b(7), seen(8)),
            (1, a(4), seen(7)),
            (0, b(4), seen(7)),
        ];
        let (places, doomed) = resolve(&held, named);
        let at = |s, reactor, e| Found { spg: PgId::new(1, s).into(), reactor, epoch: Epoch(e) };
        assert_eq!(places, [at(1, 0, 9), at(2, 0, 9), at(3, 1, 9), at(4, 0, 7), at(5, 1, 9), at(7, 0, 9)]);
        assert_eq!(doomed, [(1, b(1)), (0, a(3)), (0, b(5)), (1, b(7)), (1, a(4))]);
    }
}
