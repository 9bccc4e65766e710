//! Inputs of a reactor's PGs from the control machine and from other reactors of the OSD. They are handled in the order
//! in which they were sent.

use super::Pgs;
use crate::core::control::PgCreate;
use crate::core::maps::MapFeed;
use crate::core::session::SessionInfo;
use base::errno::Errno;
use base::{Now, OsdId, PgId, SpgId};
use cluster::OsdMap;
use pg::lease::LeaseUpdate;
use pg::{FetchId, Fetched, MergeMsg, Move, SessionId};
use std::sync::Arc;
use store::ObjectStore;
use wire::msg::{MOsdOp, MPgPeer};

/// Input from the control machine or another reactor.
#[derive(Clone, Debug)]
pub enum Input {
    /// Load the PGs of this reactor. The feed is that of the stored map, if any.
    Load(Option<Arc<MapFeed>>),
    /// New maps in order, and the feed of the last one.
    Maps(Vec<Arc<OsdMap>>, Arc<MapFeed>),
    /// Create these PGs.
    Create(Vec<PgCreate>),
    /// A client's operation for a PG here, from a connection on another reactor.
    Op(Arc<SessionInfo>, Box<MOsdOp>),
    /// A client's session ended.
    SessionClosed(SessionId),
    /// A message of another OSD for a PG here, from a session on another reactor.
    Peer(OsdId, Box<MPgPeer>),
    /// Messages to that OSD may be lost.
    PeerReset(OsdId),
    /// A message of a PG on another reactor to one here.
    Merge(SpgId, SpgId, Box<MergeMsg>),
    /// A lease was granted or received.
    Lease(LeaseUpdate),
    /// PGs of this reactor got recovery reservations.
    Reserved,
    /// A message of the PG's machine on that reactor to the one here.
    Move(usize, SpgId, Box<Move>),
    /// Permission for a PG to move to that reactor.
    MayMove(PgId, usize),
    /// Decision about a PG's move (from, to): true if it moves, false if it stays.
    Decided(PgId, (usize, usize), bool),
    /// A reactor knows the decision and sends nothing more here for the PG.
    MoveSeen(PgId),
    /// Result of a fetch.
    Fetched(PgId, FetchId, Result<Fetched, Errno>),
    /// Change the recovery priority of these PGs, as far as they are led here.
    Force(Arc<Vec<SpgId>>, u8),
    /// Scrub these PGs, as far as they are led here: deep, repair.
    Scrub(Arc<Vec<SpgId>>, bool, bool),
    /// Finish the operations in flight and stop.
    Stop {
        /// Drop the operations instead, because the store failed.
        abandon: bool,
    },
}

impl Input {
    /// True if its sender repeats it, so that a full queue may drop it. Every other input must arrive.
    #[must_use]
    pub fn is_repeated(&self) -> bool {
        matches!(self, Self::Op(..) | Self::Peer(..))
    }
}

impl Pgs {
    /// Takes a client's operation from a connection of this reactor. Returns the reactor that must handle it, with its
    /// input, if that is another one.
    #[must_use]
    pub fn take_op(
        &mut self,
        s: &Arc<SessionInfo>,
        m: Box<MOsdOp>,
        now: Now,
        store: &mut dyn ObjectStore,
    ) -> Option<(usize, Input)> {
        let at = self.place_of_op(&m);
        if at != self.places.index() {
            return Some((at, Input::Op(s.clone(), m)));
        }
        self.op(s, m, now, store);
        None
    }

    /// Takes a message of another OSD from a session of this reactor. Returns the reactor that must handle it, with its
    /// input, if that is another one: the PG was split off there, or the sender has a wrong number of our reactors.
    #[must_use]
    pub fn take_peer(
        &mut self,
        from: OsdId,
        m: Box<MPgPeer>,
        now: Now,
        store: &mut dyn ObjectStore,
    ) -> Option<(usize, Input)> {
        let at = self.place(m.spg);
        if at != self.places.index() {
            return Some((at, Input::Peer(from, m)));
        }
        self.handle_peer(from, m, now, store);
        None
    }

    /// Handles an input.
    pub fn handle(&mut self, input: Input, now: Now, store: &mut dyn ObjectStore) {
        match input {
            Input::Load(feed) => self.load(feed, now, store),
            Input::Maps(maps, feed) => {
                self.handle_maps(&maps, feed, now, store);
                self.note_members();
            }
            Input::Create(pgs) => {
                self.create(&pgs, now, store);
                self.note_members();
            }
            Input::Op(s, m) => self.op(&s, m, now, store),
            Input::SessionClosed(id) => self.session_closed(id, now, store),
            Input::Peer(from, m) => self.handle_peer(from, m, now, store),
            Input::PeerReset(osd) => self.peer_reset(osd, now, store),
            Input::Merge(from, to, msg) => self.handle_merge(from, to, msg, now, store),
            Input::Lease(news) => self.handle_leases(&[news], now, store),
            Input::Reserved => self.reserved(now, store),
            Input::Move(from, spg, m) => self.handle_move(from, spg, m, now, store),
            Input::MayMove(pg, to) => self.may_move(pg, to, now, store),
            Input::Decided(pg, way, granted) => self.decided(pg, way, granted, now, store),
            Input::MoveSeen(pg) => self.move_seen(pg, now, store),
            Input::Fetched(pg, id, r) => self.fetched(pg, id, r, now, store),
            Input::Force(pgs, options) => self.force(&pgs, options, now, store),
            Input::Scrub(pgs, deep, repair) => self.scrub(&pgs, deep, repair, now, store),
            Input::Stop { abandon: false } => self.stop(now, store),
            Input::Stop { abandon: true } => self.abandon(),
        }
    }
}
