//! What comes out of a PG.

use crate::event::{FetchId, SessionId};
use base::Epoch;
use base::errno::Errno;
use bytes::Bytes;
use wire::msg::{MOsdBackoff, MOsdOpReply, MWatchNotify, OpVec};
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

/// An output, in the order in which the host must carry them out.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
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
    /// An operation waits for this map.
    WantMap(Epoch),
    /// Tell the monitor that the PG exists (`OSD_PG_CREATED`).
    Created,
    /// Read another object.
    Fetch(Box<Fetch>),
    /// That fetch is not wanted any more.
    CancelFetch(FetchId),
    /// The PG and its collection are gone; drop the machine.
    Deleted,
    /// All submitted writes are durable and nothing new will be taken.
    Stopped,
    /// The store failed under the PG; it serves nothing until restart.
    Failed(Errno),
}
