//! The work of plans, divided by the part that does it. Each part runs its own: `run_life`, `run_peering`, …

use crate::event::{CreateInfo, OpRequest};
use crate::exec::OpAccess;
use crate::pg::backend::ec::fetch::ShardAsk;
use crate::pg::journal::action::Merge;
use crate::pg::recovery::push::PushJob;
use crate::pg::scrub::serve::ScanJob;
use crate::shards::PeerId;
use crate::watch::Expired;
use base::{Epoch, Eversion, HObject};

/// The work of a plan.
#[derive(Debug)]
pub(in crate::pg) enum Work {
    /// A client's operation.
    Client(Box<OpRequest>, OpAccess),
    /// Removes a watch that timed out or whose client is blocklisted.
    Expire(Expired),
    Trim(TrimWork),
    Life(LifeWork),
    Peering(PeeringWork),
    Recovery(RecoveryWork),
    Resize(ResizeWork),
    Relocate(RelocateWork),
    Scrub(ScrubWork),
    Shard(ShardWork),
}

/// Trimming of removed snapshots.
#[derive(Debug)]
pub(in crate::pg) enum TrimWork {
    /// Scans the snapshot index for clones of a removed snapshot.
    Scan,
    /// Trims one clone.
    Clone(HObject),
}

/// Begin and end of a PG.
#[derive(Debug)]
pub(in crate::pg) enum LifeWork {
    /// Reads info and log.
    Load,
    /// Creates the collection.
    Create(Box<CreateInfo>),
    /// Removes objects of a PG that is being deleted.
    Delete,
    /// Stores the info.
    SaveInfo,
}

/// Peering, and what members do for their primary.
#[derive(Debug)]
pub(in crate::pg) enum PeeringWork {
    /// Records that the interval started.
    Activate,
    /// Stores that the interval has started, before an erasure-coded PG serves.
    SaveStart,
    /// Merges the authoritative log, or the next part of it.
    Merge(Box<Merge>),
    /// Sends this log.
    SendLog { to: PeerId, last_update: Eversion, les: Epoch, upto: Eversion },
    /// Answers the primary's question which shards the entries after `since` touch.
    SendTouched { to: PeerId, since: Eversion },
    /// Tells another shard how far to go back.
    SendRewind { to: PeerId, last_update: Eversion, les: Epoch },
    /// Applies the next write or push from another copy.
    Apply,
}

/// Bringing copies up to date.
#[derive(Debug)]
pub(in crate::pg) enum RecoveryWork {
    /// Pushes an object to another copy.
    Push(Box<PushJob>),
    /// As backfill target: answers with digests of a range.
    Digest { to: PeerId, range: Box<(HObject, HObject)> },
    /// As primary: lists the next range of a backfill target.
    BackfillList(PeerId),
    /// Gives up an unfound object: deletes it, or reverts it to the version of the given copy.
    Lose(HObject, Option<PeerId>),
    /// Reports the versions of objects to the primary.
    Have { to: PeerId, heads: Vec<HObject> },
    /// Stores that an object is missing as of a log version, or that it is present.
    Missing(HObject, Option<Eversion>),
    /// Reads the newest log entries of the objects that this copy lacks.
    ReadLog,
}

/// Changes of `pg_num`.
#[derive(Debug)]
pub(in crate::pg) enum ResizeWork {
    /// Splits the PG into children.
    Split,
    /// As merge source: sends the PG's state to the target.
    Leave,
    /// As merge source: sends the next objects to the target.
    SendObjects,
    /// As merge target: prepares the collection for the source's objects.
    Intake,
    /// As merge target: stores a part of the source's objects; true for the last part.
    StoreObjects(Vec<store::Op>, bool),
    /// As merge target: merges the given collection, the source's own or a copy, into this one.
    MergeFrom(Option<store::Cid>),
}

/// Moves to another reactor.
#[derive(Debug)]
pub(in crate::pg) enum RelocateWork {
    /// As source: begins the move.
    Depart,
    /// As source: sends the next objects.
    Copy,
    /// As target: creates the collection.
    Settle,
    /// As target: applies the next changes from the source.
    Load,
    /// As target: stores the info, so that the collection counts.
    Arrive,
}

/// Scrub.
#[derive(Debug)]
pub(in crate::pg) enum ScrubWork {
    /// Holds an object while its copies are compared.
    Hold,
    /// Lists a range of objects.
    List { to: PeerId, n: u64, range: Box<(HObject, HObject)> },
    /// Reads objects.
    Scan(Box<ScanJob>),
    /// Marks bad copies on this OSD as missing, for a repair.
    Lack { to: PeerId, n: u64, what: Vec<(HObject, Eversion)> },
}

/// Work of a shard for other shards.
#[derive(Debug)]
pub(in crate::pg) enum ShardWork {
    /// Reads ranges of this shard for the primary.
    Read(Box<ShardAsk>),
    /// Drops undo data of writes that are stable.
    DropUndo,
}
