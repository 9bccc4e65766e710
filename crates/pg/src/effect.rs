//! What comes out of a PG.

use crate::event::{FetchId, SessionId};
use crate::kin::Kin;
use crate::moving::Move;
use crate::pace::Class;
use crate::pg::Child;
use base::errno::Errno;
use base::{Epoch, Eversion, OsdId, SpgId};
use bytes::Bytes;
use wire::msg::{MOsdBackoff, MOsdOpReply, MPgPeer, MWatchNotify, OpVec};
use wire::types::ObjectLocator;

/// A read the host's own client sends for a `copy_from`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Give it back with the result.
    pub id: FetchId,
    /// Source object.
    pub oid: Bytes,
    /// Its pool, namespace and key.
    pub locator: ObjectLocator,
    /// Snapshot to read.
    pub snapid: base::SnapId,
    /// Message flags to send with.
    pub flags: u32,
    /// What to send; the output of the **last** operation is the answer.
    pub ops: OpVec,
}

/// Which way a message to another OSD goes. Messages to one OSD on one lane arrive in order, or the session is reset
/// ([`crate::Event::PeerReset`]); lanes overtake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Small and urgent: heartbeats and leases.
    Control,
    /// All that belongs to a PG: peering, writes, recovery.
    Data,
    /// As [`Lane::Data`], but it waits until [`crate::pace::Pacer`] lets recovery go on; what is sent on `Data` meanwhile
    /// overtakes it.
    Background(Class),
}

/// How much a line of the cluster log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// What goes on.
    Debug,
    /// Something an operator may want to look at.
    Warn,
    /// Something is broken.
    Error,
}

/// An output, in the order in which the host must carry them out.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Close that session: too much of it waits here. Its client connects again and sends again what had no answer.
    Close(SessionId),
    /// Send a reply.
    Reply(SessionId, Box<MOsdOpReply>),
    /// Send a `WATCH_NOTIFY` with that data segment.
    Watch(SessionId, Box<MWatchNotify>, Bytes),
    /// Send a backoff: the client holds its operations on this PG, or goes on and sends them again.
    Backoff(SessionId, Box<MOsdBackoff>),
    /// That operation of the session will not be answered; its client sends it again when told or when the map changes.
    Dropped(SessionId, u64),
    /// The map must show `up_thru` of this OSD at least here before the PG may go active (`OSD_ALIVE`).
    WantUpThru(Epoch),
    /// The acting set that should serve for now (`OSD_PGTEMP`); empty: CRUSH's own.
    WantPgTemp(Vec<OsdId>),
    /// Tell another OSD.
    Peer {
        /// Whom.
        to: OsdId,
        /// Which way.
        lane: Lane,
        /// What.
        msg: Box<MPgPeer>,
    },
    /// An operation or a peer's message waits for this map.
    WantMap(Epoch),
    /// Who else is in the acting set changed, or whether this copy is a member: others' leases may be needed.
    Members,
    /// Tell the monitor that the PG exists (`OSD_PG_CREATED`).
    Created,
    /// Read another object.
    Fetch(Box<Fetch>),
    /// That fetch is not wanted any more.
    CancelFetch(FetchId),
    /// Write a line to the cluster log.
    Log(LogLevel, String),
    /// The split that [`crate::Pg::promise`] was called for is done: each of these is given its part ([`crate::Pg::born`]), or
    /// there is none, as the copy is on its way out.
    Split(Vec<(SpgId, Option<Box<Child>>)>),
    /// Tell another PG of this OSD, on whichever reactor it is; [`crate::answer_for_none`] if it is not here.
    Kin {
        /// Whom.
        to: SpgId,
        /// What.
        kin: Kin,
    },
    /// Tell the machine of this PG on the other reactor, while it moves, or the host; the message says whom.
    Move(Box<Move>),
    /// The PG may be joined with the other one that the map announces: it is clean and takes no writes. Said again and again.
    ReadyToMerge {
        /// Its newest version.
        version: Eversion,
        /// As in its history.
        last_epoch_started: Epoch,
        /// As in its history.
        last_epoch_clean: Epoch,
    },
    /// The PG and its collection are gone; drop the machine.
    Deleted,
    /// All submitted writes are durable and nothing new will be taken.
    Stopped,
    /// The store failed; nothing on it is served until restart.
    Failed(Errno),
    /// This copy of the PG can't go on, and takes no part until restart. It has said so to whoever leads.
    CopyFailed(Errno),
    /// The split that [`crate::Pg::promise`] was called for can't be done, as the copy failed: what was promised fails like it ([`crate::Pg::unborn_failed`]).
    SplitFailed(Vec<SpgId>, Errno),
}
