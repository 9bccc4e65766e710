//! Actions that the PGs of a reactor demand of its host.

use super::Input;
use crate::core::control::Report;
use crate::core::maps::MapFeed;
use crate::core::moves;
use base::errno::Errno;
use base::{Epoch, Eversion, OsdId, PgId};
use bytes::Bytes;
use pg::{Fetch, Lane, SessionId};
use std::sync::Arc;
use store::Tag;
use wire::msg::{MOsdBackoff, MOsdOpReply, MPgPeer, MWatchNotify};

/// Action for the host.
#[derive(Debug)]
pub enum Output {
    /// Answer a client's operation.
    Reply(SessionId, Box<MOsdOpReply>),
    /// Send a message to a watcher or notifier. The last field is the data segment.
    Watch(SessionId, Box<MWatchNotify>, Bytes),
    /// Tell a client to hold its operations on a PG, or to continue.
    Backoff(SessionId, Box<MOsdBackoff>),
    /// The operation of this number will not be answered. With the newest map, for which it was dropped.
    Dropped(SessionId, u64, Option<Arc<MapFeed>>),
    /// Close a session because too many of its operations wait. Its client connects again and resends
    /// unanswered ones.
    Close(SessionId),
    /// Tell the control machine.
    Control(Report),
    /// Send a message to another OSD.
    Peer {
        /// Receiver of the message.
        to: OsdId,
        /// Lane of the message.
        lane: Lane,
        /// The message.
        msg: Box<MPgPeer>,
    },
    /// Pass an input to another reactor.
    Reactor(usize, Input),
    /// Tell the control machine about a PG that moves between reactors. It must arrive.
    Moves(moves::News),
    /// Read an object of another OSD.
    Fetch(PgId, Box<Fetch>),
    /// The copy of a PG on this reactor failed. Other copies are not affected.
    PgFailed(PgId, Errno),
    /// All PGs have finished after [`super::Pgs::stop`].
    Stopped,
    /// Result of the OSD's own transaction or read of this tag.
    Own(Tag, Result<(), Errno>),
    /// The device does not answer, for this reason, or answers again. It must arrive at the control machine.
    Silent(Option<String>),
    /// The store failed, with the reason. It must arrive at the control machine.
    StoreFailed(String),
}

/// An event of the store that is not a PG's; [`crate::core::reactor`] handles it.
#[derive(Debug)]
pub enum StoreNews {
    /// News of the host's own transaction or read of this tag.
    Own(Tag, Result<(), Errno>),
    /// The store failed.
    Failed(Errno, String),
}

/// State of a PG that is ready to be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Map of the PG at that time.
    pub epoch: Epoch,
    /// Newest version of the PG.
    pub version: Eversion,
    /// `last_epoch_started` of its history.
    pub last_epoch_started: Epoch,
    /// `last_epoch_clean` of its history.
    pub last_epoch_clean: Epoch,
}

/// Counters of operations before they reach a PG.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpCounters {
    /// Operations received.
    pub op: u64,
    /// Operations and messages of OSDs that waited for a map.
    pub delayed: u64,
    /// Operations refused for lack of caps.
    pub op_denied: u64,
    /// Operations dropped because another OSD serves them.
    pub op_misdirected: u64,
}
