//! Messages between the reactors of one OSD.
//!
//! Every reactor owns a mailbox of [`ToReactor`]; the first, which also runs the control machine, one of [`ToControl`].

use super::ledger::LedgerPart;
use super::tracker::HistoryOptions;
use crate::core::compress::Defaults;
use crate::core::control::Report;
use crate::core::maps::MapFeed;
use crate::core::mgr::Stats;
use crate::core::moves;
use crate::core::pgs::Input;
use crate::core::queries::Queries;
use crate::core::scrub::ScrubSettings;
use crate::core::session::SessionInfo;
use auth::RotatingKeys;
use base::counter::Section;
use base::errno::Errno;
use base::{Epoch, PgId};
use net::ConnId;
use pg::Fetch;
use reactor::mailbox;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::Message;
use wire::msg::MOsdMap;

/// Most items queued for a reactor. Further operations are dropped, and clients resend them.
pub(crate) const REACTOR_QUEUE_MAX: usize = 65_536;
/// Most items queued for the control machine.
pub(crate) const CONTROL_QUEUE_MAX: usize = 65_536;

/// Message to the reactor that holds a PG or a connection.
pub(crate) enum ToReactor {
    /// Handle an input of the PGs here.
    Input(Input),
    /// Send on a connection of this reactor.
    Send(ConnId, Message),
    /// Close a client's connection of this reactor.
    Close(ConnId),
    /// An operation of a connection of this reactor will not be answered. With the newest map of the PG's reactor.
    Dropped(ConnId, u64, Option<Arc<MapFeed>>),
    /// Serve this socket.
    Adopt(net::descriptors::Accepted),
    /// Fresh secrets for checking tickets.
    Keys(RotatingKeys),
    /// A reactor's queue for another OSD has become too long, or none of that reactor's is.
    Slow(bool),
    /// Fresh tickets for connecting to other OSDs.
    Tickets(Box<auth::Client>),
    /// Apply a setting.
    Set(Setting),
    /// Answer a question.
    Ask(Ask),
    /// File blocks that the store asked for are there (true), or could not be allocated.
    Filled(bool),
}

/// Setting of a reactor.
#[derive(Clone)]
pub(crate) enum Setting {
    /// Connection modes of the cluster.
    Modes(Box<net::modes::Modes>),
    /// Queries for which operations are counted.
    Queries(Arc<Queries>),
    /// Settings for the history of finished operations.
    History(HistoryOptions),
    /// Give freed blocks back to the device.
    Discard(bool),
    /// Bytes for data in memory, of all reactors together, beside those of the store.
    DataMemory(u64),
    /// Options for the compression of pools.
    Compression(Defaults),
    /// Share of background work.
    Profile(pg::pace::Profile),
    /// Settings for scrubs.
    Scrubs(Box<ScrubSettings>),
}

/// Question to a reactor, or an operator's order that it answers.
pub(crate) enum Ask {
    /// Report statistics to the control machine.
    Stats(bool),
    /// Counters of this reactor and its histograms.
    Counters(tokio::sync::oneshot::Sender<Counted>),
    /// A part of an admin command.
    Inspect(Inspect, tokio::sync::oneshot::Sender<Value>),
    /// Where the time of the operations of a span went.
    Ledger(Duration, tokio::sync::oneshot::Sender<LedgerPart>),
    /// Write a checkpoint. The answer is the number of checkpoints so far; `None`: there is nothing to write.
    Checkpoint(tokio::sync::oneshot::Sender<Option<u64>>),
    /// Give up the unfound objects of a PG; with the flag, revert to an older version of them. The answer is
    /// for the operator, `None` if the PG is not here.
    MarkLost(PgId, bool, tokio::sync::oneshot::Sender<Option<Result<String, (Errno, String)>>>),
    /// Take the store through a step of growing.
    Grow(store::engine::Growth, tokio::sync::oneshot::Sender<super::grow::Outcome>),
}

/// Counters of a reactor by section, and counts of its histograms.
pub(crate) type Counted = (Vec<Section>, [Vec<u64>; 4]);

/// Information that an admin command requests from every reactor.
#[derive(Clone, Debug)]
pub(crate) enum Inspect {
    /// The stage of each operation in a PG, by client and number.
    Stages,
    /// Operations in flight, with these stages.
    Ops(Arc<BTreeMap<String, String>>),
    /// The slowest recent operations.
    Historic,
    /// Operations that took very long.
    Slow,
    /// Watches of clients.
    Watchers,
    /// Number of PGs led here, by state.
    States,
    /// One PG.
    Pg(PgId),
    /// Unfound objects of a PG.
    Unfound(PgId),
    /// PGs of this reactor.
    Places,
    /// Sizes of caches.
    Caches,
    /// Times of the next scrubs of PGs led here.
    Scrubs,
    /// Pools of the PGs here.
    Pools,
    /// True if this PG is led here; nothing if it is not here.
    Leads(PgId),
    /// The endpoints of this reactor for clients and for other OSDs, as pairs of name and part.
    Messengers,
}

/// Message to the control machine.
pub(crate) enum ToControl {
    /// A report of that reactor.
    Report(usize, Report),
    /// News of that reactor about PGs that move.
    Moves(usize, moves::News),
    /// Statistics of a reactor, with the lowest `last_epoch_clean` of its PGs.
    Stats(Box<Stats>, Epoch),
    /// A reactor has too little space for growing writes, or enough again.
    Short(usize, bool),
    /// The device does not answer a reactor, for this reason, or answers again.
    Silent(usize, Option<String>),
    /// Maps that a peer sent.
    Maps(MOsdMap),
    /// Read an object of another OSD for a PG of that reactor.
    Fetch(usize, PgId, Box<Fetch>),
    /// A `tell` command: reactor and session to answer, and the message.
    Command(usize, Arc<SessionInfo>, Message),
    /// A reactor has finished after `Stop`.
    Stopped(usize),
    /// The store failed, with the reason.
    StoreFailed(String),
}

/// Senders to all reactors.
#[derive(Clone)]
pub(crate) struct Routes {
    /// One per reactor.
    pub(crate) reactors: Vec<mailbox::Sender<ToReactor>>,
    /// Sender to the control machine.
    pub(crate) control: mailbox::Sender<ToControl>,
}

impl Routes {
    /// Sends to one reactor. A full queue drops items that their sender repeats: operations, messages of other
    /// OSDs, connections. All others arrive unless the reactor has stopped.
    pub(crate) fn reactor(&self, index: usize, item: ToReactor) {
        let Some(s) = self.reactors.get(index) else { return };
        let droppable = match &item {
            ToReactor::Input(i) => i.is_repeated(),
            item => matches!(item, ToReactor::Adopt(_)),
        };
        if !droppable {
            s.push(item);
        } else if let Err(mailbox::SendError::Full(_)) = s.send(item) {
            tracing::warn!(reactor = index, "queue between reactors is full");
        }
    }

    /// Sends an input to the PGs of one reactor.
    pub(crate) fn input(&self, index: usize, input: Input) {
        self.reactor(index, ToReactor::Input(input));
    }

    /// Sends an input to the PGs of all reactors, in order.
    pub(crate) fn inputs(&self, mut input: impl FnMut() -> Input) {
        self.all(|| ToReactor::Input(input()));
    }

    /// Sends a setting to all reactors.
    pub(crate) fn set(&self, s: &Setting) {
        self.all(|| ToReactor::Set(s.clone()));
    }

    /// Sends to all reactors, in order.
    pub(crate) fn all(&self, mut item: impl FnMut() -> ToReactor) {
        for i in 0..self.reactors.len() {
            self.reactor(i, item());
        }
    }

    /// Sends to the control machine without ever dropping.
    pub(crate) fn control_surely(&self, item: ToControl) {
        self.control.push(item);
    }

    /// Sends to the control machine. A full queue drops the item.
    pub(crate) fn control(&self, item: ToControl) {
        if let Err(mailbox::SendError::Full(_)) = self.control.send(item) {
            tracing::warn!("queue towards the control machine is full");
        }
    }
}
