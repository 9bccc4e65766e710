//! Transactions: ordered lists of changes that become durable as a whole or not at all.

use crate::api::BLOCK;
use crate::key::{Cid, Oid};
use base::{Eversion, Summed};
use bytes::Bytes;
use std::sync::Arc;

/// One change. Changes of a transaction apply in order. A change of an absent object creates it, except where
/// noted. Attribute names and omap keys are bytes.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "fields are named after what they are; units are bytes")]
pub enum Op {
    /// Make a collection; `bits` of the hash select its objects.
    MakeCollection { cid: Cid, bits: u32 },
    /// Make a collection in the shard of `beside`, so that the two can be merged; otherwise like
    /// `MakeCollection`.
    MakeBeside { cid: Cid, beside: Cid, bits: u32 },
    /// Remove an empty collection with its PG log and info. A collection with undo records is not empty.
    RemoveCollection { cid: Cid },
    /// Make `dst` with the objects of `cid` whose bit-reversed hash is `first` or above, by reference. `dst`
    /// has no log and no info, but gets the undo data of its objects. From now on `bits` of the hash select the
    /// objects of either.
    Split { cid: Cid, dst: Cid, first: u32, bits: u32 },
    /// Merge `cid` into `dst`, the reverse of `Split`. All objects of `cid` must be at `first` or above, all of
    /// `dst` below. `cid` is removed with its log and info. Refused with `EXDEV` if the two are not in one
    /// shard: the caller must copy the objects. Refused with `EBUSY` if `cid` has undo records.
    Merge { cid: Cid, dst: Cid, first: u32, bits: u32 },
    /// Create the object if absent.
    Touch { cid: Cid, oid: Oid },
    /// Write `data` at `off`, growing the object. Empty data only creates the object. Blocks whose checksums `sums`
    /// has are not summed again.
    Write { cid: Cid, oid: Oid, off: u64, data: Bytes, sums: Option<Arc<Summed>> },
    /// Make a range read as zeros, and grow the object if the range ends beyond it (not if `len` is 0). Whole
    /// blocks are freed.
    Zero { cid: Cid, oid: Oid, off: u64, len: u64 },
    /// Set the size; growing leaves a hole.
    Truncate { cid: Cid, oid: Oid, size: u64 },
    /// Remove the object with data, attributes and omap; no error if absent.
    Remove { cid: Cid, oid: Oid },
    /// Set attributes, keeping the others.
    SetAttrs { cid: Cid, oid: Oid, attrs: Vec<(Bytes, Bytes)> },
    /// Remove an attribute if present.
    RmAttr { cid: Cid, oid: Oid, name: Bytes },
    /// Remove all attributes.
    RmAttrs { cid: Cid, oid: Oid },
    /// Make `dst` an exact copy of `src` (data by reference, attributes, omap), replacing `dst`. No-op if `src`
    /// is absent or equals `dst`.
    Clone { cid: Cid, src: Oid, dst: Oid },
    /// Make a range of `dst` equal to a range of `src`, holes included. The range is first cut at the end of
    /// `src`. Both may be one object if the ranges don't overlap. Whole blocks at equal offsets are shared if
    /// one object stems from the other by `Clone`; all else is copied.
    CloneRange { cid: Cid, src: Oid, dst: Oid, src_off: u64, len: u64, dst_off: u64 },
    /// Rename within the collection, replacing `dst`. No-op if `src` is absent or equals `dst`.
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
    /// Record the client's expectation of the object's size and writes. Never fails.
    SetAllocHint { cid: Cid, oid: Oid, object_size: u64, write_size: u64, flags: u32 },
    /// Append an entry to the PG log. Versions must grow. The store does not interpret `entry`.
    LogAppend { cid: Cid, version: Eversion, entry: Bytes },
    /// Drop log entries up to and including version `to`, with their undo records.
    LogTrim { cid: Cid, to: Eversion },
    /// Drop log entries newer than `to` (divergent entries), with their undo records: callers `Undo` first.
    LogRewind { cid: Cid, to: Eversion },
    /// Replace the PG info. The store does not interpret it.
    PgInfo { cid: Cid, info: Bytes },
    /// Keep undo data under this version of the PG's log for the rest of the transaction: blocks of `cid` that
    /// are overwritten, zeroed, cut off or cloned over. [`Op::Undo`] restores them, unless `DropKept`,
    /// `LogTrim` or `LogRewind` drops the record.
    ///
    /// Objects that are removed or replaced as a whole are not kept; rename these instead. At most one `Keep`
    /// per transaction. A version whose record was lost with metadata must not be used again.
    Keep { cid: Cid, version: Eversion },
    /// Restore an object from the undo record of `version`: each block that the transaction with that `Keep`
    /// changed is as before, and the object is at least as large. Truncate it if it was shorter. Later changes
    /// of these blocks are lost, so undo the newest version first.
    ///
    /// Renames in between do not matter, except to another hash with a later split of the collection. Does
    /// nothing without undo data ([`ObjectStore::kept`](crate::ObjectStore::kept) tells).
    Undo { cid: Cid, oid: Oid, version: Eversion },
    /// Drop undo records up to and including version `to`: these log entries can't be undone any more.
    DropKept { cid: Cid, to: Eversion },
}

/// Payload bytes of a record in the log beside those of its operations.
pub(crate) const RECORD_BYTES: usize = 16;
/// Payload bytes of a record per operation, besides the data of the operation.
const OP_BYTES: usize = 256;
/// Bytes of map per block in a record: the checksum, and in the worst case a run per block.
const BLOCK_RECORD_BYTES: usize = 16;

impl Op {
    /// Upper bound on the bytes that the operation takes in a frame of a store's log; see
    /// [`ObjectStore::frame_max`](crate::ObjectStore::frame_max).
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        self.cost().1
    }

    /// Upper bound on the blocks and log bytes of the operation.
    pub(crate) fn cost(&self) -> (u64, usize) {
        let blocks = |off: u64, len: u64| if len == 0 { 0 } else { (off + len - 1) / BLOCK - off / BLOCK + 1 };
        let pairs = |p: &[(Bytes, Bytes)]| p.iter().map(|(k, v)| k.len() + v.len() + 10).sum::<usize>();
        let names = |o: &Oid| o.hobj.oid.len() + o.hobj.key.len() + o.hobj.nspace.len();
        let (blocks, bytes) = match self {
            Self::Write { off, data, .. } => (blocks(*off, data.len() as u64), 0),
            Self::Zero { .. } => (2, 0),
            Self::Truncate { .. } => (1, 0),
            Self::CloneRange { dst_off, len, src, dst, .. } => {
                (blocks(*dst_off, *len) * 2 + 2, 2 * (names(src) + names(dst)))
            }
            Self::Clone { src, dst, .. } | Self::Rename { src, dst, .. } => (0, names(src) + names(dst)),
            Self::SetAttrs { attrs: p, .. } | Self::OmapSet { entries: p, .. } => (0, pairs(p)),
            Self::RmAttr { name, .. } => (0, name.len()),
            Self::OmapRmKeys { keys, .. } => (0, keys.iter().map(|k| k.len() + 10).sum()),
            Self::OmapRmRange { first, last, .. } => (0, first.len() + last.len()),
            Self::OmapSetHeader { header, .. } => (0, header.len()),
            Self::LogAppend { entry, .. } => (0, entry.len()),
            Self::PgInfo { info, .. } => (0, info.len()),
            _ => (0, 0),
        };
        (blocks, OP_BYTES + bytes + self.oid().map_or(0, names) + blocks as usize * BLOCK_RECORD_BYTES)
    }

    /// Collection that the operation changes.
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

    /// Object that the operation may create, if any.
    #[must_use]
    pub fn target(&self) -> Option<&Oid> {
        match self {
            Self::Clone { dst, .. } | Self::CloneRange { dst, .. } | Self::Rename { dst, .. } => Some(dst),
            _ => self.oid(),
        }
    }

    /// Object that the operation changes, if it is exactly one.
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

/// An ordered list of changes; see the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transaction {
    /// The changes, in order.
    pub ops: Vec<Op>,
}

impl Transaction {
    /// A transaction without changes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a change.
    pub fn push(&mut self, op: Op) {
        self.ops.push(op);
    }

    /// True if there are no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_small() {
        assert!(size_of::<Op>() <= 104);
    }
}
