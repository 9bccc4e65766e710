//! Actions that follow when a transaction is durable, divided by the part that runs them: `act_life`, `act_peering`, …

use crate::event::{OpRequest, SessionId};
use crate::exec::WatchEffects;
use crate::info::PgInfo;
use crate::shards::PeerId;
use base::{EntityAddr, EntityName, Epoch, Eversion, HObject, Mono, SpgId};
use bytes::Bytes;
use store::{Cid, Op};
use wire::msg::MOsdOpReply;

pub(in crate::pg) use crate::meter::Class as Kind;

/// Facts for the perf counters, taken when a reply leaves.
#[derive(Clone, Copy, Debug)]
pub(in crate::pg) struct Timing {
    pub kind: Kind,
    pub client: EntityName,
    /// Hash of the object, as the client says it.
    pub hash: u32,
    pub received: Mono,
    pub read: u64,
    pub written: u64,
    pub ledger: base::ledger::Ledger,
}

impl Timing {
    pub(in crate::pg) fn new(kind: Kind, req: &OpRequest, read: u64, written: u64) -> Self {
        Self {
            kind,
            client: req.client,
            hash: req.msg.hash,
            received: req.received.mono,
            read,
            written,
            ledger: req.ledger,
        }
    }
}

/// The answer to a successful write.
#[derive(Clone, Copy, Debug)]
pub(in crate::pg) struct Answer {
    pub kind: Kind,
    pub version: Eversion,
    pub user_version: u64,
    pub read: u64,
    pub written: u64,
    /// The request must be taken up again should the interval end.
    pub repeats: bool,
}

/// An action that runs when a transaction is durable.
#[derive(Debug)]
pub(in crate::pg) enum Action {
    /// Make the reply to a successful write without output from its request, and send it.
    Answer(Box<OpRequest>, Answer),
    /// Send the reply. The request is kept if it must be taken up again should the interval end.
    Reply(SessionId, Box<MOsdOpReply>, Box<Timing>, Option<Box<OpRequest>>),
    Effects(Box<Watched>),
    Life(LifeAction),
    Peering(PeeringAction),
    Recovery(RecoveryAction),
    Scrub(ScrubAction),
    Resize(ResizeAction),
    Relocate(RelocateAction),
}

/// Begin and end of a PG.
#[derive(Debug)]
pub(in crate::pg) enum LifeAction {
    /// The collection exists.
    Created,
    /// A batch of a deleted PG's objects is removed.
    DeletedSome,
    /// The collection is removed.
    DeletedAll,
}

/// Peering, and what members do for their primary.
#[derive(Debug)]
pub(in crate::pg) enum PeeringAction {
    /// The interval of that generation started in that epoch.
    Activated(u64, Epoch),
    /// The start of the interval of that generation is stored.
    StartSaved(u64),
    /// A part of the authoritative log is merged, in the interval of that generation; the rest follows.
    MergedPart(u64, Box<Merge>),
    /// This copy takes part in the interval; tell its primary.
    MemberReady(PeerId),
    /// Divergent entries are undone here; tell the primary that asked.
    Rewound(PeerId),
    /// A write of the primary is durable here; acknowledge it.
    WriteDurable {
        to: PeerId,
        seq: u64,
        /// Time of its receipt.
        received: Mono,
    },
}

/// Bringing copies up to date.
#[derive(Debug)]
pub(in crate::pg) enum RecoveryAction {
    /// A part of a pushed object is durable here; acknowledge it.
    PushDurable { from: PeerId, id: u64, n: u32, last: bool, background: bool, head: Box<HObject> },
    /// An unfound object was given up, in the interval of that generation.
    Lost(u64, Box<HObject>),
}

/// Scrub.
#[derive(Debug)]
pub(in crate::pg) enum ScrubAction {
    /// Bad copies are marked as missing here; tell the scrub's primary.
    Lacks { to: PeerId, n: u64 },
}

/// Changes of `pg_num`.
#[derive(Debug)]
pub(in crate::pg) enum ResizeAction {
    /// A page of a long snapshot index is moved: to children of a split, or to the merge target.
    IndexMoved(Option<Cid>),
    /// A step of preparing the collection for a merge source's objects is done.
    Intake,
    /// The collection is ready for a merge source's objects.
    IntakeReady,
    /// A part of a merge source's objects is durable here.
    ObjectsStored {
        /// Operations of the part that had no room in the same transaction.
        left: Vec<Op>,
        /// This is the last part.
        last: bool,
    },
    /// The merge of that epoch is done; these sources are part of this PG.
    PgsMerged(Epoch, Vec<SpgId>),
}

/// Moves to another reactor.
#[derive(Debug)]
pub(in crate::pg) enum RelocateAction {
    /// Changes from the source machine of a move, up to that number, are durable here.
    Loaded(u64),
    /// The collection of a moved PG is complete and counts.
    Arrived,
}

/// A log to be merged.
#[derive(Debug)]
pub(in crate::pg) struct Merge {
    /// The copy that sent the log.
    pub from: PeerId,
    /// As a member: epoch in which the interval starts. `None`: this is the primary, which goes on with peering.
    pub les: Option<Epoch>,
    /// Version before the first record.
    pub since: Eversion,
    /// Drop this copy's log.
    pub reset: bool,
    /// Info of the sender.
    pub info: PgInfo,
    /// All records after `since`.
    pub records: Vec<Bytes>,
    /// This shard is not a member: it undoes the entries that only its own log has, takes over only entries that spare
    /// it, and reports to the sender.
    pub undo: bool,
}

/// Watch operations of a vector, with the client they belong to.
#[derive(Debug)]
pub(in crate::pg) struct Watched {
    pub effects: WatchEffects,
    pub head: HObject,
    pub session: SessionId,
    pub client: EntityName,
    pub addr: EntityAddr,
    pub user_version: u64,
}

impl Action {
    /// The request that waits with the reply, if it must be taken up again should the interval end.
    pub(in crate::pg) fn request(&self) -> Option<&OpRequest> {
        match self {
            Self::Answer(req, a) => a.repeats.then_some(req),
            Self::Reply(_, _, _, req) => req.as_deref(),
            _ => None,
        }
    }

    /// Takes the request that waits with the reply, as it came. The reply no longer brings it back in the next interval.
    pub(in crate::pg) fn take_request(&mut self) -> Option<Box<OpRequest>> {
        match self {
            Self::Answer(req, a) => std::mem::take(&mut a.repeats).then(|| {
                let mut req = req.clone();
                req.msg.ops.iter_mut().for_each(|op| op.rval = 0);
                req
            }),
            Self::Reply(_, _, _, req) => req.take(),
            _ => None,
        }
    }

    /// Session and number of the operation that the action answers.
    pub(in crate::pg) fn answers(&self) -> Option<(SessionId, u64)> {
        match self {
            Self::Answer(req, _) => Some((req.session, req.msg.tid)),
            Self::Reply(session, reply, ..) => Some((*session, reply.tid)),
            _ => None,
        }
    }

    pub(in crate::pg) fn effects(effects: WatchEffects, head: &HObject, req: &OpRequest, user_version: u64) -> Self {
        let (session, client, addr) = (req.session, req.client, req.addr);
        Self::Effects(Box::new(Watched { effects, head: head.clone(), session, client, addr, user_version }))
    }
}
