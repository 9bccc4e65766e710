//! Several reactors of one OSD: each has PGs and its own store on the one disk.
//!
//! Messages between them wait in the mailbox of each reactor, in order, and are taken out at random times. So one
//! reactor may be many messages ahead of another, as threads are.

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

/// Most reactors of an OSD in a run.
pub const REACTORS_MAX: u16 = 3;
/// Bit position of the store's index in the id of a disk request. A store's own ids have the slot in the lower half
/// and the generation above.
const WHOSE: u32 = 28;

/// A reactor of an OSD.
pub struct Reactor {
    /// The PGs of the reactor.
    pub shard: Shard,
    /// The reactor's store.
    pub store: Store,
    /// The peers that were last reported to the control machine.
    pub pg_peers: (BTreeSet<OsdId>, BTreeSet<OsdId>),
}

/// A message to a reactor from another one or from the control machine, or to the control machine.
#[derive(Clone)]
pub enum Inner {
    /// Handle new maps.
    Maps(Vec<Arc<OsdMap>>, Arc<MapFeed>),
    /// Create these PGs.
    Create(Vec<PgCreate>),
    /// Handle a client's operation.
    Op(Arc<SessionInfo>, Box<MOsdOp>),
    /// Handle the end of a client's session.
    SessionClosed(SessionId),
    /// Handle a message of another OSD.
    Peer(OsdId, Box<MPgPeer>),
    /// Messages sent to that OSD may be lost.
    PeerReset(OsdId),
    /// Handle a message of a PG on another reactor (from, to).
    Kin(SpgId, SpgId, Box<Kin>),
    /// Handle a lease that was granted or received.
    Lease(LeaseUpdate),
    /// Retry recoveries that waited for a reservation.
    Reserved,
    /// Handle a message about a move from the reactor with that index.
    Move(usize, SpgId, Box<Move>),
    /// Let the PG move to that reactor.
    MayMove(PgId, usize),
    /// The decision about a move (from, to): true if the PG is on the new reactor from now on.
    Decided(PgId, (usize, usize), bool),
    /// A reactor has the decision and sends nothing more for the PG to this one.
    MoveSeen(PgId),
    /// The result of a read for a copy.
    Fetched(PgId, FetchId, Result<Fetched, Errno>),
    /// A message to the control machine about PGs that move.
    Moving(Moving),
    /// Finish and stop.
    Stop {
        /// Drop everything, because the store failed.
        abandon: bool,
    },
}

/// A reactor's message to the control machine about PGs that move.
#[derive(Clone, Debug)]
pub enum Moving {
    /// A PG of the reactor with the first index should be on the one with the second.
    Want(usize, PgId, usize),
    /// A PG is ready to move to that reactor; the last field is the `pg_num` of its pool when the PG was held.
    Ready(usize, PgId, u32),
    /// The move of a PG away from that reactor has ended.
    Over(usize, PgId),
    /// The reactor of that index has removed all leftovers of earlier runs.
    Swept(usize),
}

impl Reactor {
    /// Handles a message; true if the OSD may share PGs with other OSDs afterwards.
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
            // The control machine handles these.
            Inner::Moving(_) => {}
            Inner::Stop { abandon: false } => shard.stop(now, store),
            Inner::Stop { abandon: true } => shard.abandon(),
        }
        false
    }
}

/// Mailboxes of the reactors of an OSD, and behind them that of its control machine.
pub struct Mailboxes {
    boxes: Vec<(Time, VecDeque<Inner>)>,
}

impl Mailboxes {
    /// Empty mailboxes.
    #[must_use]
    pub fn new(reactors: usize) -> Self {
        Self { boxes: (0..reactors).map(|_| (0, VecDeque::new())).collect() }
    }

    /// Adds a message and returns the time at which it may be taken out.
    pub fn put(&mut self, to: usize, m: Inner, now: Time, rng: &mut Rng) -> Time {
        // Mostly at once; sometimes the other thread is busy.
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

    /// Takes the next message.
    pub fn take(&mut self, to: usize) -> Option<Inner> {
        self.boxes.get_mut(to)?.1.pop_front()
    }
}

/// The reactor of a PG by its name.
#[must_use]
pub fn reactor_of(pg: PgId, reactors: usize) -> usize {
    layout::reactor_for(layout::shard_for(Cid::Pg(pg.into()), layout::SHARDS), reactors as u16).into()
}

/// The request with the index of its store in its id.
#[must_use]
pub fn disk_id(store: usize, r: IoRequest) -> IoRequest {
    debug_assert!(r.id.0 as u32 >> WHOSE == 0, "fewer requests at a time");
    IoRequest { id: IoId(r.id.0 | (store as u64) << WHOSE), ..r }
}

/// The store of a completion, and the completion with the store's own id.
#[must_use]
pub fn store_id(c: IoCompletion) -> (usize, IoCompletion) {
    let whose = (c.id.0 as u32 >> WHOSE) as usize;
    (whose, IoCompletion { id: IoId(c.id.0 & !(0xf << WHOSE)), ..c })
}
