//! Outputs of a PG: the effects that the host carries out (in `osd::core::pgs::ops`).

use crate::event::{FetchId, SessionId};
use crate::merge_msg::MergeMsg;
use crate::moving::Move;
use crate::pace::Class;
use crate::pg::Child;
use base::errno::Errno;
use base::{Epoch, Eversion, OsdId, SpgId};
use bytes::Bytes;
use wire::msg::{MOsdBackoff, MOsdOpReply, MPgPeer, MWatchNotify, OpVec};
use wire::types::ObjectLocator;

/// A read of a `copy_from` source, sent by the host's own client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Number of the fetch; the host returns it with the result.
    pub id: FetchId,
    /// Source object.
    pub oid: Bytes,
    /// Pool, namespace and key of the source object.
    pub locator: ObjectLocator,
    /// Snapshot to read.
    pub snapid: base::SnapId,
    /// Message flags of the request.
    pub flags: u32,
    /// Operations to send; the output of the **last** one is the answer.
    pub ops: OpVec,
}

/// The lane that carries a message to another OSD. Messages to one OSD on one lane arrive in order, or the session is
/// reset ([`crate::Event::PeerReset`]). Lanes overtake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Small and urgent: heartbeats and leases.
    Control,
    /// Traffic of PGs: peering, writes, recovery.
    Data,
    /// As [`Lane::Data`], but the message waits until [`crate::pace::Pacer`] lets recovery go on. Messages sent on
    /// `Data` meanwhile overtake it.
    Background(Class),
}

/// Severity of a line in the cluster log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Normal activity.
    Debug,
    /// A state that an operator may want to look at.
    Warn,
    /// A failure.
    Error,
}

/// An output. The host carries outputs out in their order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Close the session, since too many of its operations wait in this PG. The client reconnects and resends its
    /// unanswered operations.
    Close(SessionId),
    /// Send a reply.
    Reply(SessionId, Box<MOsdOpReply>),
    /// Send a `WATCH_NOTIFY` with that data segment.
    Watch(SessionId, Box<MWatchNotify>, Bytes),
    /// Send a backoff: the client holds its operations on this PG, or resumes and resends them.
    Backoff(SessionId, Box<MOsdBackoff>),
    /// The operation with this tid gets no answer. The client resends it when told, or when the map changes.
    Dropped(SessionId, u64),
    /// Before the PG may become active, the map must show this OSD's `up_thru` at this epoch or later (`OSD_ALIVE`).
    WantUpThru(Epoch),
    /// The acting set that should serve for a time (`OSD_PGTEMP`); empty: the set that CRUSH selects.
    WantPgTemp(Vec<OsdId>),
    /// Send a message to another OSD.
    Peer {
        /// The receiving OSD.
        to: OsdId,
        /// The lane to send on.
        lane: Lane,
        /// The message.
        msg: Box<MPgPeer>,
    },
    /// Writes of the primary became durable here. The host asks for their acknowledgement ([`crate::Pg::acknowledge`])
    /// when it has handed in the store's events that are there: one message acknowledges all of them.
    Acknowledge,
    /// An operation or a peer message in this PG waits for this map epoch.
    WantMap(Epoch),
    /// The other members of the acting set changed, or this copy became or ceased to be a member. The host checks
    /// which OSDs' leases it needs.
    Members,
    /// Report to the monitor that the PG exists (`OSD_PG_CREATED`).
    Created,
    /// Read an object through the host's client.
    Fetch(Box<Fetch>),
    /// Cancel that fetch.
    CancelFetch(FetchId),
    /// Write a line to the cluster log.
    Log(LogLevel, String),
    /// The split that [`crate::Pg::promise`] announced is done. Each listed child gets its part
    /// ([`crate::Pg::born`]); `None` if the copy is being removed.
    Split(Vec<(SpgId, Option<Box<Child>>)>),
    /// Send a message to another PG of this OSD, on any reactor. If that PG is not on this OSD,
    /// [`crate::answer_for_none`] answers.
    Merge {
        /// The receiving PG.
        to: SpgId,
        /// The message.
        msg: MergeMsg,
    },
    /// Send a message about a move to the PG's machine on the other reactor, or to the host; the message's variant
    /// says which.
    Move(Box<Move>),
    /// The PG is clean, takes no writes, and may be merged as the map announces. The PG repeats this until the map
    /// changes.
    ReadyToMerge {
        /// Newest version of the PG.
        version: Eversion,
        /// `last_epoch_started` of the PG's history.
        last_epoch_started: Epoch,
        /// `last_epoch_clean` of the PG's history.
        last_epoch_clean: Epoch,
    },
    /// The PG and its collection are gone; drop the machine.
    Deleted,
    /// All submitted writes are durable, and the PG takes no new ones.
    Stopped,
    /// The store failed. The OSD serves nothing from it until it restarts.
    Failed(Errno),
    /// This copy of the PG failed and takes no part until restart. The primary has been told.
    CopyFailed(Errno),
    /// The copy failed, so the split that [`crate::Pg::promise`] announced can't be done. The promised children fail
    /// as well ([`crate::Pg::fail_with_parent`]).
    SplitFailed(Vec<SpgId>, Errno),
}
