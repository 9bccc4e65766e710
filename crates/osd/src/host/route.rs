//! What reactors of one OSD say to each other.
//!
//! Every reactor owns a mailbox of [`ToShard`]; the first, which also runs the control machine, one of [`ToControl`].

use super::tracker::HistoryOptions;
use crate::core::control::PgCreate;
use crate::core::maps::MapFeed;
use crate::core::mgr::Stats;
use crate::core::perf::Queries;
use crate::core::scrub::ScrubSettings;
use crate::core::session::SessionInfo;
use crate::core::shard::Ready;
use auth::RotatingKeys;
use base::errno::Errno;
use base::{Epoch, OsdId, PgId, SpgId};
use cluster::OsdMap;
use net::ConnId;
use pg::lease::LeaseUpdate;
use pg::{Fetch, FetchId, Fetched, Kin, LogLevel, Move, SessionId};
use reactor::mailbox;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::sync::Arc;
use wire::Message;
use wire::msg::{MOsdMap, MOsdOp, MPgPeer};

/// Items queued towards a reactor; operations beyond are dropped and clients send them again.
pub(crate) const SHARD_QUEUE_MAX: usize = 65_536;
/// Items queued towards the control machine.
pub(crate) const CONTROL_QUEUE_MAX: usize = 65_536;

/// To the reactor that holds a PG or a connection.
pub(crate) enum ToShard {
    /// Load the PGs of this reactor; the stored map, if there is one.
    Load(Option<Arc<MapFeed>>),
    /// New maps in order, and what to share of the last.
    Maps(Vec<Arc<OsdMap>>, Arc<MapFeed>),
    /// Make these PGs.
    Create(Vec<PgCreate>),
    /// A client's operation for a PG here; its connection is on another reactor.
    Op(Arc<SessionInfo>, Box<MOsdOp>),
    /// A client's session ended.
    SessionClosed(SessionId),
    /// Send on a connection of this reactor.
    Send(ConnId, Message),
    /// Close a client's connection of this reactor.
    Close(ConnId),
    /// That operation of a connection of this reactor will not be answered.
    Dropped(ConnId, u64),
    /// Serve this socket.
    Adopt(TcpStream),
    /// Fresh secrets for checking tickets.
    Keys(RotatingKeys),
    /// A message of another OSD for a PG here; its session is on another reactor.
    Peer(OsdId, Box<MPgPeer>),
    /// What a PG of another reactor says to one here.
    Kin(SpgId, SpgId, Box<Kin>),
    /// What a PG's machine on that reactor says to the one here.
    Move(usize, SpgId, Box<Move>),
    /// Let that PG go to that reactor.
    MayMove(PgId, usize),
    /// A PG is on another reactor from now on (from, to), or it stays.
    Decided(PgId, (usize, usize), bool),
    /// A reactor has got that and sends nothing here any more for the PG.
    MoveSeen(PgId),
    /// What was sent to that OSD may be lost.
    PeerReset(OsdId),
    /// A lease was granted or got.
    Lease(LeaseUpdate),
    /// Connection modes of the cluster.
    Modes(Box<net::modes::Modes>),
    /// Fresh tickets for connecting to other OSDs.
    Tickets(Box<auth::Client>),
    /// Report statistics.
    Collect(bool),
    /// What to count of operations.
    Queries(Arc<Queries>),
    /// Answer with a part of an admin command.
    Inspect(Inspect, tokio::sync::oneshot::Sender<Value>),
    /// Result of a fetch.
    Fetched(PgId, FetchId, Result<Fetched, Errno>),
    /// Which finished operations to keep.
    History(HistoryOptions),
    /// How much background work may take.
    Profile(pg::pace::Profile),
    /// How to scrub.
    ScrubSettings(Box<ScrubSettings>),
    /// Give up objects that nobody has: go back to what there is of them. Answer with what is to be said, if the PG is there.
    MarkLost(PgId, bool, tokio::sync::oneshot::Sender<Option<Result<String, (Errno, String)>>>),
    /// PGs there may recover.
    Reserved,
    /// Recover these PGs, those that are led here, before others.
    Force(Arc<Vec<SpgId>>, u8),
    /// Scrub these PGs, those that are led here: deep, repair.
    Scrub(Arc<Vec<SpgId>>, bool, bool),
    /// Take the store a step further in growing.
    Grow(store::engine::Growth, tokio::sync::oneshot::Sender<super::grow::Outcome>),
    /// Finish what is in flight and stop; or drop it, if the store failed.
    Stop {
        /// That is so.
        abandon: bool,
    },
}

/// What an admin command wants to know of every reactor.
#[derive(Clone, Debug)]
pub(crate) enum Inspect {
    /// What the operations of PGs wait for, by client and number.
    Stages,
    /// Operations in flight, with that.
    Ops(Arc<BTreeMap<String, String>>),
    /// The slowest operations of late.
    Historic,
    /// Operations that took very long.
    Slow,
    /// Watches of clients.
    Watchers,
    /// Counters.
    Perf,
    /// How many of the PGs led here are in which state.
    States,
    /// One PG.
    Pg(PgId),
    /// Its objects that nobody has.
    Unfound(PgId),
    /// Which PGs are here.
    Places,
}

/// To the control machine.
pub(crate) enum ToControl {
    /// A PG needs `up_thru`.
    WantUpThru(Epoch),
    /// A PG or client waits for a map.
    WantMap(Epoch),
    /// A line for the cluster log.
    Log(LogLevel, String),
    /// A PG exists.
    PgCreated(PgId),
    /// A PG of that reactor should be on another one.
    WantMove(usize, PgId, usize),
    /// It can be decided about a PG that comes to that reactor; PGs of its pool when it was held.
    MoveReady(usize, PgId, u32),
    /// A PG of that reactor has gone, or stays.
    MoveOver(usize, PgId),
    /// That reactor has nothing left of PGs that were moved before the start.
    Swept(usize),
    /// A PG may be joined with another one.
    ReadyToMerge(PgId, Ready),
    /// Statistics of a reactor, with the lowest `last_epoch_clean` of its PGs.
    Stats(Box<Stats>, Epoch),
    /// Maps that a peer sent.
    Maps(MOsdMap),
    /// Which OSDs share PGs on that reactor, and which of them with PGs led here.
    PgPeers(usize, BTreeSet<OsdId>, BTreeSet<OsdId>),
    /// A PG wants this acting set for a while.
    WantPgTemp(PgId, Vec<OsdId>),
    /// Read an object elsewhere for a PG of that reactor.
    Fetch(usize, PgId, Box<Fetch>),
    /// A `tell` command: reactor and connection to answer, and the message.
    Command(usize, Arc<SessionInfo>, Message),
    /// That reactor has finished after `Stop`.
    Stopped(usize),
    /// The store failed, and how.
    StoreFailed(String),
}

/// Senders to all reactors.
#[derive(Clone)]
pub(crate) struct Routes {
    /// One per reactor.
    pub(crate) shards: Vec<mailbox::Sender<ToShard>>,
    /// To the control machine.
    pub(crate) control: mailbox::Sender<ToControl>,
}

impl Routes {
    /// To one reactor. A full queue drops what its sender repeats: operations, messages of other OSDs, connections. All
    /// else arrives unless the reactor has stopped.
    pub(crate) fn shard(&self, index: usize, item: ToShard) {
        let Some(s) = self.shards.get(index) else { return };
        if !matches!(item, ToShard::Op(..) | ToShard::Peer(..) | ToShard::Adopt(_)) {
            s.push(item);
        } else if let Err(mailbox::SendError::Full(_)) = s.send(item) {
            tracing::warn!(reactor = index, "queue between reactors is full");
        }
    }

    /// To one reactor, and never dropped: what is said of PGs that move. There is one at a time, and what is on its way is bounded.
    pub(crate) fn surely(&self, index: usize, item: ToShard) {
        if let Some(s) = self.shards.get(index) {
            // One that has stopped needs nothing.
            s.push(item);
        }
    }

    /// To all reactors, in order.
    pub(crate) fn all(&self, mut item: impl FnMut() -> ToShard) {
        for i in 0..self.shards.len() {
            self.shard(i, item());
        }
    }

    /// To the control machine, and never dropped.
    pub(crate) fn control_surely(&self, item: ToControl) {
        self.control.push(item);
    }

    /// To the control machine.
    pub(crate) fn control(&self, item: ToControl) {
        if let Err(mailbox::SendError::Full(_)) = self.control.send(item) {
            tracing::warn!("queue towards the control machine is full");
        }
    }
}
