//! The bodies of messages between the copies of a PG.
//!
//! `codec` has their encodings, written and read side by side. `pg::peering::session` receives them (`take_body`) and
//! repeats those that are not answered.

mod codec;
#[cfg(test)]
mod tests;

use super::piece::Place;
use super::reserve::ReserveMsg;
use crate::info::PgInfo;
use crate::scrub::message::ScrubMsg;
use base::errno::Errno;
use base::{Epoch, Eversion, HObject, OsdId};
use bytes::Bytes;
pub use codec::peek_object;
pub(crate) use codec::{PUSH, encode_write};
use store::Op;
use wire::types::PgHistory;

/// OSDs that may still serve reads by a lease of the sender, each with the remaining milliseconds.
pub type Grants = Vec<(OsdId, u32)>;

/// An object's attributes.
pub type Attrs = Vec<(Bytes, Bytes)>;

/// A byte range of a shard that the primary reads from another copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadItem {
    /// The object or clone.
    pub oid: HObject,
    /// The newest version of the object. The copy may also have an older one, down to `since`.
    pub version: Eversion,
    /// The oldest version with the same bytes: the entries after it, up to `version`, spare the shard.
    pub since: Eversion,
    /// Offset in the shard, in bytes.
    pub off: u64,
    /// Length in bytes.
    pub len: u64,
}

/// The body of a message; see the module. "Primary" is the primary of the message's interval.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Primary to any copy: what is your state?
    Query,
    /// Answer to `Query`. A copy also sends it unasked to the primary when an interval begins.
    Notify {
        /// Info of the sender's copy.
        info: Box<PgInfo>,
        /// The sender has no copy.
        absent: bool,
        /// Leases that the sender granted.
        grants: Grants,
    },
    /// Primary to the holder of the authoritative log: send the records that I lack.
    GetLog {
        /// The asker's newest version.
        last_update: Eversion,
        /// `last_epoch_started` of the primary's own copy.
        les: Epoch,
        /// Send no records newer than this version.
        upto: Eversion,
    },
    /// Answer to `GetLog`: all records after `since`, up to the requested version.
    Log {
        /// Both logs are the same at least up to here; they may also share later records.
        since: Eversion,
        /// The sender's info as of the newest of these records.
        info: Box<PgInfo>,
        /// The records.
        records: Vec<Bytes>,
    },
    /// Primary to members: the interval starts, with this log.
    Activate {
        /// The new `last_epoch_started`; 0 if there are too few copies to serve.
        les: Epoch,
        /// Version before the first of the records.
        since: Eversion,
        /// The member drops its own log; backfill compares its objects with the primary's.
        reset: bool,
        /// The primary's info.
        info: Box<PgInfo>,
        /// The records.
        records: Vec<Bytes>,
    },
    /// Answer to `Activate`, once durable.
    Activated {
        /// Objects that the member lacks, with the versions it needs.
        missing: Vec<(HObject, Eversion)>,
        /// Most metadata of a transaction that the member's log takes, in bytes; `u64::MAX` if it does not tell.
        frame: u64,
    },
    /// Primary to members: the interval has started, or the PG is clean.
    Started {
        /// The PG's history, with the start of the interval.
        history: Box<PgHistory>,
        /// All copies are complete, so the members forget past intervals.
        clean: bool,
    },
    /// Primary to members: the next write, together with the deferred writes before it. Writes are numbered from 1 in
    /// an interval, without gaps.
    Write {
        /// Number of the first write in the message.
        first: u64,
        /// Number of the last write in the message.
        seq: u64,
        /// Writes up to this number are durable on all members.
        stable: u64,
        /// Members trim their logs up to this version.
        trim: Option<Eversion>,
        /// Log records of the writes.
        records: Vec<Bytes>,
        /// Changes; empty if the receiver gets the object later, by recovery.
        ops: Vec<Op>,
    },
    /// Member to primary: writes up to this number are durable here.
    WriteAck {
        /// Number of the write.
        seq: u64,
    },
    /// Member to primary: the member has the log record of a write but not its object, since its stored data does not
    /// read. Sent ahead of the acknowledgement.
    Lacks {
        /// The objects, with the versions that the member needs.
        objects: Vec<(HObject, Eversion)>,
    },
    /// Primary to a copy: push this object to me.
    Pull {
        /// Head of the object; its clones are meant too.
        head: HObject,
        /// The object is needed as of this log version.
        need: Eversion,
        /// A client waits for the object.
        urgent: bool,
    },
    /// Answer to `Pull` if the copy does not have the object in that version.
    NoPull {
        /// The object.
        head: HObject,
    },
    /// A part of an object. The first part replaces all there is of it.
    Push {
        /// Number of the transfer.
        id: u64,
        /// Number of the part.
        n: u32,
        /// This is the last part.
        last: bool,
        /// No client waits for the object, so both ends let client operations go first.
        background: bool,
        /// Head of the object.
        head: HObject,
        /// Changes that write this part.
        ops: Vec<Op>,
    },
    /// Answer to `Push`: that part is durable.
    PushAck {
        /// Number of the transfer.
        id: u64,
        /// Number of the part.
        n: u32,
    },
    /// Answer to `Push`: the part can't be used. Only to an OSD with [`wire::msg::PeerFeatures::PARTS`].
    PushStop {
        /// Number of the transfer.
        id: u64,
        /// Number of the part.
        n: u32,
        /// Begin anew, since earlier parts are not there; otherwise the object is not wanted.
        again: bool,
    },
    /// A piece of another message, which is repeated until it is heard. Only to an OSD with
    /// [`wire::msg::PeerFeatures::PARTS`].
    Piece {
        /// Where it belongs.
        place: Place,
        /// The piece.
        bytes: Bytes,
    },
    /// Answer to `Piece`: the pieces before this one are there; after the last one, the message is taken.
    Heard {
        /// Number of the message.
        id: u64,
        /// Number of the first piece that is not there.
        next: u32,
    },
    /// Primary to a backfill target: list your objects after `begin`, up to and including `end`.
    Scan {
        /// Exclusive lower bound.
        begin: HObject,
        /// Inclusive upper bound.
        end: HObject,
    },
    /// Answer to `Scan`.
    Digest {
        /// Lower bound, as asked.
        begin: HObject,
        /// The answer covers objects up to and including this one; it may end before the bound that was asked for.
        end: HObject,
        /// Objects with digests of their metadata, in order.
        objects: Vec<(HObject, u64)>,
    },
    /// Primary to a backfill target: all objects up to and including this one are equal to the primary's.
    Backfilled {
        /// The last such object; the end marker when backfill is done.
        upto: HObject,
    },
    /// Primary to members: writes up to this number are durable on all members. Sent when no new write carries this
    /// soon.
    Stable {
        /// Number of the write.
        seq: u64,
    },
    /// Primary to a stray: the PG is clean without you, so remove your copy.
    Remove,
    /// Between primary and members: a scrub message.
    Scrub(Box<ScrubMsg>),
    /// Primary to any copy: which versions do you have of these objects? Asked when an operator gives up unfound
    /// objects.
    Have {
        /// Heads of the objects; their clones are meant too.
        heads: Vec<HObject>,
    },
    /// Answer to `Have`.
    Versions {
        /// The newest version of each object; zero if the copy has nothing of it.
        versions: Vec<(HObject, Eversion)>,
    },
    /// Copy to primary: this copy failed and counts as down.
    Failed {
        /// Error of the failure.
        errno: Errno,
    },
    /// Primary to a shard: read these ranges.
    ShardRead {
        /// Number of the read.
        id: u64,
        /// Number of the attempt; each attempt asks for other ranges.
        n: u32,
        /// The shard answers after it has applied writes up to this number.
        seq: u64,
        /// Also return the attributes of this object and its clones.
        family: Option<HObject>,
        /// Begin the description with this clone, where the page before ended.
        from: Option<HObject>,
        /// The ranges.
        items: Vec<ReadItem>,
    },
    /// Answer to `ShardRead`.
    ShardData {
        /// Number of the read.
        id: u64,
        /// Number of the attempt.
        n: u32,
        /// The object and its clones with their attributes, if the primary asked.
        family: Option<Vec<(HObject, Attrs)>>,
        /// The description goes on with this clone.
        more: Option<HObject>,
        /// The bytes of each range, or the error.
        found: Vec<Result<Bytes, Errno>>,
    },
    /// Primary to a shard that is not a member: undo your entries beyond these records. Such a shard may have entries
    /// that members lack.
    Rewind {
        /// Both logs are the same up to this version.
        since: Eversion,
        /// The records of the primary's log after `since`.
        records: Vec<Bytes>,
    },
    /// Primary, while peering, to the shard with the longest log: which shards do the entries after `since` touch?
    GetTouched {
        /// The version before the first of these entries.
        since: Eversion,
    },
    /// The answer.
    Touched {
        /// As asked.
        since: Eversion,
        /// Newest version of the sender's log.
        upto: Eversion,
        /// Versions of the entries, each with one bit for each touched shard.
        entries: Vec<(Eversion, u32)>,
    },
    /// Between the primary and members: may it recover now?
    Reserve(ReserveMsg),
}
