//! Inputs of a PG: the events that the host hands in.

use crate::map::MapView;
use crate::merge_msg::MergeMsg;
use crate::moving::Move;
use crate::scrub::ScrubRequest;
use base::errno::Errno;
use base::ledger::Ledger;
use base::{EntityAddr, EntityName, Epoch, Now, OsdId, ReqId, SpgId};
use bytes::Bytes;
use store::Cid;
use wire::msg::{MOsdOp, MPgPeer};
use wire::types::{PgCreateExtra, PgCreateStamp};

/// Number that the host gives to a client session; never reused while the host runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Number of a `copy_from` fetch, unique among those in flight in one PG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FetchId(pub u64);

/// A client's operation with the facts the host knows about its sender. The host has checked the caps.
#[derive(Clone, Debug, PartialEq)]
pub struct OpRequest {
    /// The session that gets the reply.
    pub session: SessionId,
    /// Number for the sender's identity and address. The limits on held operations count all sessions of one owner
    /// together.
    pub owner: u64,
    /// The sender (a client's number is its global id).
    pub client: EntityName,
    /// The sender's address, as shown in watches and named in blocklists.
    pub addr: EntityAddr,
    /// Features of the connection.
    pub features: u64,
    /// Time of arrival.
    pub received: Now,
    /// Time by cause, up to now.
    pub ledger: Ledger,
    /// The message. Boxed, since it takes half a kilobyte and is passed on rather than copied.
    pub msg: Box<MOsdOp>,
}

impl OpRequest {
    /// Identity of the operation; a resend carries the same one.
    #[must_use]
    pub fn reqid(&self) -> ReqId {
        self.msg.reqid_from(self.client)
    }
}

/// Answer to an [`crate::Effect::Fetch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Output of the fetch's `COPY_GET` operation.
    pub data: Bytes,
    /// User version of the source object, from the reply.
    pub user_version: u64,
}

/// An input.
#[derive(Debug)]
pub enum Event {
    /// A newer map. Maps come in order; the host may leave out epochs that change nothing for this PG.
    Map(MapView),
    /// A client's operation.
    Op(Box<OpRequest>),
    /// A session ended: its watches are disconnected, and replies to it are dropped.
    SessionClosed(SessionId),
    /// An event of the store whose tag is this PG's ([`crate::Pg::owns`]).
    Store(store::Event),
    /// A message from another OSD. The host holds it until it has the map of the message.
    Peer {
        /// The sending OSD.
        from: OsdId,
        /// The message.
        msg: Box<MPgPeer>,
    },
    /// A message from another PG of this OSD ([`crate::Effect::Merge`]).
    Merge {
        /// The sending PG.
        from: SpgId,
        /// The message.
        msg: Box<MergeMsg>,
    },
    /// A message about moving the PG to another reactor, from the PG's other machine or from the host.
    Move(Box<Move>),
    /// The session to another OSD was reset, so unanswered messages may be lost. The PG sends them again; receivers
    /// recognise repetitions.
    PeerReset(OsdId),
    /// The leases this OSD holds ([`crate::lease::LeaseView`]) were renewed.
    Leases,
    /// Recover before other PGs. Bits as in `OSD_FORCE_RECOVERY`: 1 recovery, 2 backfill, 4 cancel.
    Force(u8),
    /// Scrub the PG as soon as possible.
    Scrub(ScrubRequest),
    /// Result of a fetch.
    Fetched(FetchId, Result<Fetched, Errno>),
    /// The turn of a long call: its next part runs ([`crate::LongCalls`]).
    Part(u64),
    /// The deadline given by [`crate::Pg::next_deadline`] has come (early is harmless).
    Tick,
    /// The OSD stops: take nothing new. The PG answers [`crate::Effect::Stopped`] when all submitted writes are
    /// durable.
    Stop,
}

/// Parameters of a PG that is to be created (`OSD_PG_CREATE2`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CreateInfo {
    /// Epoch of the creation and its time.
    pub stamp: PgCreateStamp,
    /// History and past intervals as the monitor knows them.
    pub extra: PgCreateExtra,
    /// Number of hash bits that select the PG (`PgPool::pg_bits`).
    pub bits: u32,
    /// Name of the collection, if it differs from the PG's own name.
    pub cid: Option<Cid>,
    /// The newest map.
    pub epoch: Epoch,
}
