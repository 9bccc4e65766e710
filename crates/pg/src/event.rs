//! What goes into a PG.

use crate::kin::Kin;
use crate::map::MapView;
use crate::moving::Move;
use crate::scrub::ScrubRequest;
use base::errno::Errno;
use base::{EntityAddr, EntityName, Epoch, Now, OsdId, ReqId, SpgId};
use bytes::Bytes;
use store::Cid;
use wire::msg::{MOsdOp, MPgPeer};
use wire::types::{PgCreateExtra, PgCreateStamp};

/// A client session as the host numbers them; never reused while the host runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Names a fetch of a `copy_from` among those in flight in one PG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FetchId(pub u64);

/// A client's operation with what the host knows of its sender. Caps were checked.
#[derive(Clone, Debug, PartialEq)]
pub struct OpRequest {
    /// Where the reply goes.
    pub session: SessionId,
    /// Who signed in and from where, as a number: sessions of one owner count together where too much waits.
    pub owner: u64,
    /// The sender (a client's number is its global id).
    pub client: EntityName,
    /// The sender's address, as watches show it and blocklists name it.
    pub addr: EntityAddr,
    /// Features of the connection.
    pub features: u64,
    /// When it came.
    pub received: Now,
    /// The message: half a kilobyte, so it is handed on and not copied.
    pub msg: Box<MOsdOp>,
}

impl OpRequest {
    /// Identity that a resend repeats.
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
    /// A newer map; maps come in order, epochs that change nothing for this PG may be left out.
    Map(MapView),
    /// A client's operation.
    Op(Box<OpRequest>),
    /// A session ended: its watches are disconnected, replies to it are pointless.
    SessionClosed(SessionId),
    /// An event of the store whose tag is this PG's ([`crate::Pg::owns`]).
    Store(store::Event),
    /// A message of another OSD. The host holds it until it has the map of the message.
    Peer {
        /// Whose.
        from: OsdId,
        /// What.
        msg: Box<MPgPeer>,
    },
    /// A message of another PG of this OSD ([`crate::Effect::Kin`]).
    Kin {
        /// Whose.
        from: SpgId,
        /// What.
        kin: Box<Kin>,
    },
    /// A message of the PG's other machine, while it moves to another reactor, or of the host about that.
    Move(Box<Move>),
    /// The session to another OSD was reset: what was sent and not answered may be lost. Receivers notice repetitions.
    PeerReset(OsdId),
    /// The leases this OSD holds ([`crate::lease::LeaseView`]) were renewed.
    Leases,
    /// Recover before other PGs: bits as in `OSD_FORCE_RECOVERY`, 1 recovery, 2 backfill, 4 in its turn again.
    Force(u8),
    /// Scrub it, as soon as it can be done.
    Scrub(ScrubRequest),
    /// Result of a fetch.
    Fetched(FetchId, Result<Fetched, Errno>),
    /// The deadline given by [`crate::Pg::next_deadline`] has come (early is harmless).
    Tick,
    /// The OSD stops: take nothing new; [`crate::Effect::Stopped`] when all that was submitted is durable.
    Stop,
}

/// How a PG comes into being (`OSD_PG_CREATE2`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CreateInfo {
    /// Epoch of the creation and its time.
    pub stamp: PgCreateStamp,
    /// History and past intervals as the monitor knows them.
    pub extra: PgCreateExtra,
    /// How many bits of an object's hash name the PG (`PgPool::pg_bits`).
    pub bits: u32,
    /// The name of its collection, if not its own.
    pub cid: Option<Cid>,
    /// The newest map.
    pub epoch: Epoch,
}
