//! Transactions: an ordered list of changes that becomes durable as a whole or not at all.

use crate::key::{Cid, Oid};
use base::Eversion;
use bytes::Bytes;

/// One change. Changes of a transaction apply in order. A change of an object that does not exist creates it, except
/// where said otherwise. Attribute names and omap keys are bytes.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "fields are named after what they are; units are bytes")]
pub enum Op {
    /// Make a collection; `bits` of the hash select its objects.
    MakeCollection { cid: Cid, bits: u32 },
    /// Make a collection in the shard of another one, so that they can be joined; else as `MakeCollection`.
    MakeBeside { cid: Cid, beside: Cid, bits: u32 },
    /// Remove an empty collection with its PG log and info. It is not empty while its log keeps something.
    RemoveCollection { cid: Cid },
    /// Make `dst` with the objects of `cid` whose bit-reversed hash is `first` or above, by reference. `dst` has no log and
    /// no info, but what the log keeps of its objects; `bits` of the hash select the objects of either from now on.
    Split { cid: Cid, dst: Cid, first: u32, bits: u32 },
    /// The reverse: `dst` takes over the objects of `cid`, all of which are at `first` or above and all of its own below;
    /// `cid` is gone with its log and info. `EXDEV` if the two are not in one shard: then the objects must be copied. `EBUSY` if the
    /// log of `cid` keeps something.
    Merge { cid: Cid, dst: Cid, first: u32, bits: u32 },
    /// Create if absent.
    Touch { cid: Cid, oid: Oid },
    /// Write `data` at `off`, growing the object. Without data it only creates.
    Write { cid: Cid, oid: Oid, off: u64, data: Bytes },
    /// Make a range read as zero; grows the object if it ends beyond it (not if `len` is 0). Frees whole blocks.
    Zero { cid: Cid, oid: Oid, off: u64, len: u64 },
    /// Set the size; growing leaves a hole.
    Truncate { cid: Cid, oid: Oid, size: u64 },
    /// Remove with data, attributes and omap; no error if absent.
    Remove { cid: Cid, oid: Oid },
    /// Set attributes, keeping others.
    SetAttrs { cid: Cid, oid: Oid, attrs: Vec<(Bytes, Bytes)> },
    /// Remove an attribute if present.
    RmAttr { cid: Cid, oid: Oid, name: Bytes },
    /// Remove all attributes.
    RmAttrs { cid: Cid, oid: Oid },
    /// Make `dst` an exact copy (data by reference, attributes, omap) of `src`, replacing what `dst` was. No-op if
    /// `src` is absent or the same as `dst`.
    Clone { cid: Cid, src: Oid, dst: Oid },
    /// Make a range of `dst` the same as a range of `src`, holes included; the range is first cut at the end of `src`.
    /// Source and destination may be one object if the ranges don't overlap. Blocks are shared where `dst` stems from
    /// `src` or the reverse (by `Clone`), the offsets are equal, and the range covers them whole, else copied.
    CloneRange { cid: Cid, src: Oid, dst: Oid, src_off: u64, len: u64, dst_off: u64 },
    /// Rename within the collection, replacing `dst`. No-op if `src` is absent or the same as `dst`.
    Rename { cid: Cid, src: Oid, dst: Oid },
    /// Set omap entries.
    OmapSet { cid: Cid, oid: Oid, entries: Vec<(Bytes, Bytes)> },
    /// Remove omap keys if present.
    OmapRmKeys { cid: Cid, oid: Oid, keys: Vec<Bytes> },
    /// Remove omap keys in `[first, last)`.
    OmapRmRange { cid: Cid, oid: Oid, first: Bytes, last: Bytes },
    /// Remove all omap keys and the header.
    OmapClear { cid: Cid, oid: Oid },
    /// Set the omap header.
    OmapSetHeader { cid: Cid, oid: Oid, header: Bytes },
    /// What the client expects of the object; never fails.
    SetAllocHint { cid: Cid, oid: Oid, object_size: u64, write_size: u64, flags: u32 },
    /// Append to the PG log. Versions grow. `entry` is opaque here.
    LogAppend { cid: Cid, version: Eversion, entry: Bytes },
    /// Drop log entries with versions up to and including `to`, and what they keep.
    LogTrim { cid: Cid, to: Eversion },
    /// Drop log entries newer than `to` (divergent entries), and what they keep: `Undo` comes first.
    LogRewind { cid: Cid, to: Eversion },
    /// Replace the PG info. Opaque here.
    PgInfo { cid: Cid, info: Bytes },
    /// From here to the end of the transaction, blocks of objects of `cid` that are overwritten, zeroed, cut off or cloned over are kept
    /// under this version of the PG's log, until [`Op::Undo`] puts them back or `DropKept`, `LogTrim` or `LogRewind` goes past it. Not
    /// those of objects that are removed or replaced as a whole: rename what is to be kept of these. At most once in a transaction. A version
    /// of which a record was lost with metadata is not to be used again.
    Keep { cid: Cid, version: Eversion },
    /// Put back what is kept of an object under `version`: each of its blocks that the transaction with that `Keep` changed is what it was before, and the
    /// object at least as large; truncate it if it was shorter. Renaming it in between makes no difference, unless to another hash and the collection is split then. Later changes of these
    /// blocks are lost: undo the newest version first. Does nothing if nothing is kept ([`ObjectStore::kept`](crate::ObjectStore::kept)
    /// tells).
    Undo { cid: Cid, oid: Oid, version: Eversion },
    /// Drop what is kept under versions up to and including `to`: these entries of the log will not be undone any more.
    DropKept { cid: Cid, to: Eversion },
}

impl Op {
    /// The collection it changes.
    #[must_use]
    pub fn cid(&self) -> Cid {
        match self {
            Self::MakeCollection { cid, .. }
            | Self::MakeBeside { cid, .. }
            | Self::RemoveCollection { cid }
            | Self::Split { cid, .. }
            | Self::Merge { cid, .. }
            | Self::Touch { cid, .. }
            | Self::Write { cid, .. }
            | Self::Zero { cid, .. }
            | Self::Truncate { cid, .. }
            | Self::Remove { cid, .. }
            | Self::SetAttrs { cid, .. }
            | Self::RmAttr { cid, .. }
            | Self::RmAttrs { cid, .. }
            | Self::Clone { cid, .. }
            | Self::CloneRange { cid, .. }
            | Self::Rename { cid, .. }
            | Self::OmapSet { cid, .. }
            | Self::OmapRmKeys { cid, .. }
            | Self::OmapRmRange { cid, .. }
            | Self::OmapClear { cid, .. }
            | Self::OmapSetHeader { cid, .. }
            | Self::SetAllocHint { cid, .. }
            | Self::LogAppend { cid, .. }
            | Self::LogTrim { cid, .. }
            | Self::LogRewind { cid, .. }
            | Self::Keep { cid, .. }
            | Self::DropKept { cid, .. }
            | Self::Undo { cid, .. }
            | Self::PgInfo { cid, .. } => *cid,
        }
    }

    /// The object it may make, if any.
    #[must_use]
    pub fn target(&self) -> Option<&Oid> {
        match self {
            Self::Clone { dst, .. } | Self::CloneRange { dst, .. } | Self::Rename { dst, .. } => Some(dst),
            _ => self.oid(),
        }
    }

    /// The object it changes, if it changes one and only one.
    #[must_use]
    pub fn oid(&self) -> Option<&Oid> {
        match self {
            Self::Touch { oid, .. }
            | Self::Write { oid, .. }
            | Self::Zero { oid, .. }
            | Self::Truncate { oid, .. }
            | Self::Remove { oid, .. }
            | Self::SetAttrs { oid, .. }
            | Self::RmAttr { oid, .. }
            | Self::RmAttrs { oid, .. }
            | Self::OmapSet { oid, .. }
            | Self::OmapRmKeys { oid, .. }
            | Self::OmapRmRange { oid, .. }
            | Self::OmapClear { oid, .. }
            | Self::OmapSetHeader { oid, .. }
            | Self::SetAllocHint { oid, .. }
            | Self::Undo { oid, .. } => Some(oid),
            _ => None,
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transaction {
    /// The changes, in order.
    pub ops: Vec<Op>,
}

impl Transaction {
    /// Empty.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a change.
    pub fn push(&mut self, op: Op) {
        self.ops.push(op);
    }

    /// True if nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}
