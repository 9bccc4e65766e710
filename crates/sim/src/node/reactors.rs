//! Several reactors of one OSD: each has PGs and a store of its own on the one disk.
//!
//! What they say to each other waits in a mailbox for each reactor, in order, and is taken out at times of its own, so that one reactor may
//! be ahead of another one by many messages, as threads are.

use crate::queue::{MS, Time, US};
use base::device::{IoCompletion, IoId, IoRequest};
use base::errno::Errno;
use base::rng::Rng;
use base::{Now, OsdId, PgId, SpgId};
use cluster::OsdMap;
use osd::core::control::PgCreate;
use osd::core::maps::MapFeed;
use osd::core::session::SessionInfo;
use osd::core::shard::Shard;
use pg::lease::LeaseUpdate;
use pg::{FetchId, Fetched, Kin, Move, SessionId};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use store::engine::Store;
use store::{Cid, layout};
use wire::msg::{MOsdOp, MPgPeer};

/// Reactors of a run's OSDs at most.
pub const REACTORS_MAX: u16 = 3;
/// Where a disk request's number says whose it is. A store numbers its requests by slot in the lower half, by generation above.
const WHOSE: u32 = 28;

/// One of them.
pub struct Reactor {
    /// The PGs.
    pub shard: Shard,
    /// Their store.
    pub store: Store,
    /// As the control machine was told.
    pub pg_peers: (BTreeSet<OsdId>, BTreeSet<OsdId>),
}

/// What one reactor, or the control machine, says to another one.
#[derive(Clone)]
pub enum Inner {
    /// New maps.
    Maps(Vec<Arc<OsdMap>>, Arc<MapFeed>),
    /// Make these PGs.
    Create(Vec<PgCreate>),
    /// A client's operation.
    Op(Arc<SessionInfo>, Box<MOsdOp>),
    /// A client's session ended.
    SessionClosed(SessionId),
    /// A message of another OSD.
    Peer(OsdId, Box<MPgPeer>),
    /// What was sent to that OSD may be lost.
    PeerReset(OsdId),
    /// What a PG says to one of another reactor.
    Kin(SpgId, SpgId, Box<Kin>),
    /// A lease was granted or got.
    Lease(LeaseUpdate),
    /// PGs may recover for which there was no place.
    Reserved,
    /// What a PG's machine on that reactor says to the one here.
    Move(usize, SpgId, Box<Move>),
    /// Let that PG go to that reactor.
    MayMove(PgId, usize),
    /// A PG is on another reactor from now on (from, to), or it stays.
    Decided(PgId, (usize, usize), bool),
    /// A reactor has got that and sends nothing here any more for the PG.
    MoveSeen(PgId),
    /// What was read for a copy.
    Fetched(PgId, FetchId, Result<Fetched, Errno>),
    /// To the control machine, of PGs that move.
    Moving(Moving),
    /// Finish and stop; or drop everything, if the store failed.
    Stop {
        /// That is so.
        abandon: bool,
    },
}

/// What a reactor tells the control machine of PGs that move.
#[derive(Clone, Debug)]
pub enum Moving {
    /// A PG of that reactor should be on another one.
    Want(usize, PgId, usize),
    /// It can be decided about a PG that comes to that reactor; PGs of its pool when it was held.
    Ready(usize, PgId, u32),
    /// A PG of that reactor has gone, or stays.
    Over(usize, PgId),
    /// That reactor has nothing left of an earlier run.
    Swept(usize),
}

impl Reactor {
    /// Takes something up; true if other OSDs may share PGs with it now.
    pub fn handle(&mut self, m: Inner, now: Now) -> bool {
        let (shard, store) = (&mut self.shard, &mut self.store);
        match m {
            Inner::Maps(maps, feed) => {
                shard.handle_maps(&maps, feed, now, store);
                return true;
            }
            Inner::Create(pgs) => {
                shard.create(&pgs, now, store);
                return true;
            }
            Inner::Op(s, m) => shard.op(&s, m, now, store),
            Inner::SessionClosed(id) => shard.session_closed(id, now, store),
            Inner::Peer(from, m) => shard.handle_peer(from, m, now, store),
            Inner::PeerReset(osd) => shard.peer_reset(osd, now, store),
            Inner::Kin(from, to, kin) => shard.handle_kin(from, to, kin, now, store),
            Inner::Lease(l) => shard.handle_leases(&[l], now, store),
            Inner::Reserved => shard.reserved(now, store),
            Inner::Move(from, spg, m) => shard.handle_move(from, spg, m, now, store),
            Inner::MayMove(pg, to) => shard.may_move(pg, to, now, store),
            Inner::Decided(pg, way, granted) => shard.decided(pg, way, granted, now, store),
            Inner::MoveSeen(pg) => shard.move_seen(pg, now, store),
            Inner::Fetched(pg, id, r) => shard.fetched(pg, id, r, now, store),
            // That is for the control machine.
            Inner::Moving(_) => {}
            Inner::Stop { abandon: false } => shard.stop(now, store),
            Inner::Stop { abandon: true } => shard.abandon(),
        }
        false
    }
}

/// What waits for the reactors of an OSD, and behind them for its control machine.
pub struct Mailboxes {
    boxes: Vec<(Time, VecDeque<Inner>)>,
}

impl Mailboxes {
    /// Empty ones.
    #[must_use]
    pub fn new(reactors: usize) -> Self {
        Self { boxes: (0..reactors).map(|_| (0, VecDeque::new())).collect() }
    }

    /// Puts something in; it may be taken out at the time returned.
    pub fn put(&mut self, to: usize, m: Inner, now: Time, rng: &mut Rng) -> Time {
        // Mostly at once; now and then the other thread is busy.
        let delay = match rng.below(50) {
            0 => rng.below(200 * MS),
            1..5 => rng.below(2 * MS),
            _ => rng.below(20 * US),
        };
        let Some((last, items)) = self.boxes.get_mut(to) else { return now };
        items.push_back(m);
        *last = (now + delay).max(*last + 1);
        *last
    }

    /// The next one.
    pub fn take(&mut self, to: usize) -> Option<Inner> {
        self.boxes.get_mut(to)?.1.pop_front()
    }
}

/// The reactor of a PG by its name.
#[must_use]
pub fn reactor_of(pg: PgId, reactors: usize) -> usize {
    layout::reactor_for(layout::shard_for(Cid::Pg(pg.into()), layout::SHARDS), reactors as u16).into()
}

/// A request with the number of its store in its own.
#[must_use]
pub fn disk_id(store: usize, r: IoRequest) -> IoRequest {
    debug_assert!(r.id.0 as u32 >> WHOSE == 0, "fewer requests at a time");
    IoRequest { id: IoId(r.id.0 | (store as u64) << WHOSE), ..r }
}

/// Whose completion it is.
#[must_use]
pub fn store_id(c: IoCompletion) -> (usize, IoCompletion) {
    let whose = (c.id.0 as u32 >> WHOSE) as usize;
    (whose, IoCompletion { id: IoId(c.id.0 & !(0xf << WHOSE)), ..c })
}
