//! What the PG layer sees of a store.
//!
//! Reads never block. Metadata or data that is not in memory makes a read return [`ReadError::Wait`]: the store has
//! started the I/O on behalf of the caller's [`Tag`] and will emit [`Event::Ready`] with it; then the caller repeats the
//! whole read plan, which finds what it read so far pinned, until [`ObjectStore::release`]. Mutation never waits: after
//! [`ObjectStore::prepare`] has returned `Ok`, [`ObjectStore::submit`] applies the transaction to memory at once, so the
//! next read sees it, and [`Event::Durable`] tells when it is on the device. `Durable` events come in order of
//! submission. Submit in the same loop turn as the successful `prepare`; every plan, also one that ended in an error, ends
//! with `release` or `submit`.
//!
//! Rules both implementations follow exactly (the model test compares them):
//!  1. Reads of an object or collection that does not exist give [`ReadError::NoObject`]; `list`, `log_entries` and
//!     `pg_info` of an absent collection too.
//!  2. `prepare` refuses with `Io`: `ENOENT` a change in an absent collection, `EEXIST` making an existing one,
//!     `ENOTEMPTY` removing one that holds objects or keeps something for its log (`EBUSY` joining that one to another), `EFBIG` data beyond [`MAX_OBJECT_SIZE`], `ENOSPC`, and `E2BIG`, a transaction
//!     too large for the log. A refused transaction changed nothing.
//!  3. Removing attributes or omap keys of an absent object does nothing, nor does `Undo`; every other change creates the object. `Clone`,
//!     `CloneRange` and `Rename` with an absent source do nothing.
//!  4. Space is mapped in blocks of [`BLOCK`] bytes: a write maps each block it touches, `Zero` and `Truncate` unmap whole
//!     blocks. `extents` and `allocated` speak of mapped blocks.

use crate::key::{Cid, Oid};
use crate::txn::Transaction;
use base::Eversion;
use base::errno::Errno;
use bytes::Bytes;

/// Bytes of a block, the unit of space and of checksums.
pub const BLOCK: u64 = 4096;
/// Largest size of an object.
pub const MAX_OBJECT_SIZE: u64 = 1 << 32;

/// Names a plan or a transaction of the caller; chosen by the caller, unique among those in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// Why a read gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// I/O was started; repeat after [`Event::Ready`].
    #[error("the store waits for its device")]
    Wait,
    /// No such object.
    #[error("no such object or collection")]
    NoObject,
    /// The device failed or the bytes are not what was written. Never wrong data.
    #[error("{what} ({})", base::errno::name(*errno))]
    Io {
        /// What failed, for the log.
        what: String,
        /// Errno for the client, normally `EIO`.
        errno: Errno,
    },
}

/// Size and identity of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectStat {
    /// Bytes, holes included.
    pub size: u64,
    /// Bytes allocated on the device.
    pub allocated: u64,
    /// Bytes of omap keys and values.
    pub omap: u64,
}

/// Space. With several reactors on a device `total`, `available` and `allocated` are the device's in each store's answer, the
/// others are the store's own: sum those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statfs {
    /// Bytes usable in all.
    pub total: u64,
    /// Bytes free for data.
    pub available: u64,
    /// Bytes allocated to object data.
    pub allocated: u64,
    /// Bytes of the blocks objects map, cut at each object's end; shared blocks count once per object.
    pub stored: u64,
    /// Bytes of omap.
    pub omap: u64,
    /// Bytes of metadata and log.
    pub metadata: u64,
}

/// What the store tells the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Repeat the plan.
    Ready(Tag),
    /// The transaction is durable, or the device refused it (then the store is failed and stays so).
    Durable(Tag, Result<(), Errno>),
    /// The store's condition changed, for health reports.
    Health(Health),
}

impl Event {
    /// Whose plan or transaction it is about; none if it is about the store.
    #[must_use]
    pub fn tag(&self) -> Option<Tag> {
        match self {
            Self::Ready(t) | Self::Durable(t, _) => Some(*t),
            Self::Health(_) => None,
        }
    }
}

/// Condition of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// Serves reads and writes.
    #[default]
    Ok,
    /// Refuses what needs space until something is removed. The host file system being full is this, too.
    Full,
    /// The device failed: no write will be acknowledged any more, reads still try.
    Failed {
        /// What happened, for the log.
        what: String,
        /// Errno of the device.
        errno: Errno,
    },
}

/// Range of omap entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OmapPage {
    /// Entries in key order.
    pub entries: Vec<(Bytes, Bytes)>,
    /// True if more entries follow.
    pub more: bool,
}

/// A store as one reactor uses it. See the module for the contract.
pub trait ObjectStore {
    /// All collections with their hash bits.
    fn collections(&self) -> Vec<(Cid, u32)>;
    /// Size of an object.
    fn stat(&mut self, tag: Tag, cid: Cid, oid: &Oid) -> Result<ObjectStat, ReadError>;
    /// Data of `[off, off + len)`, cut at the object's end; holes read as zeros.
    fn read(&mut self, tag: Tag, cid: Cid, oid: &Oid, off: u64, len: u64) -> Result<Bytes, ReadError>;
    /// Ranges within `[off, off + len)` that hold data (not holes), as `(offset, length)`, ascending, merged.
    fn extents(&mut self, tag: Tag, cid: Cid, oid: &Oid, off: u64, len: u64) -> Result<Vec<(u64, u64)>, ReadError>;
    /// One attribute; `Ok(None)` if the object has none of that name.
    fn attr(&mut self, tag: Tag, cid: Cid, oid: &Oid, name: &[u8]) -> Result<Option<Bytes>, ReadError>;
    /// All attributes in name order.
    fn attrs(&mut self, tag: Tag, cid: Cid, oid: &Oid) -> Result<Vec<(Bytes, Bytes)>, ReadError>;
    /// The omap header, empty if unset.
    fn omap_header(&mut self, tag: Tag, cid: Cid, oid: &Oid) -> Result<Bytes, ReadError>;
    /// One omap value.
    fn omap_get(&mut self, tag: Tag, cid: Cid, oid: &Oid, key: &[u8]) -> Result<Option<Bytes>, ReadError>;
    /// Entries with keys `>= from` (or `> from` if `after`), at most `max_entries` and about `max_bytes`.
    #[allow(clippy::too_many_arguments, reason = "a cursor has that many parts")]
    fn omap_range(
        &mut self,
        tag: Tag,
        cid: Cid,
        oid: &Oid,
        from: &[u8],
        after: bool,
        max_entries: usize,
        max_bytes: usize,
    ) -> Result<OmapPage, ReadError>;
    /// Objects of a collection in hash order with `start <= oid < end`, at most `max`; and where to go on.
    fn list(
        &mut self,
        tag: Tag,
        cid: Cid,
        start: &Oid,
        end: Option<&Oid>,
        max: usize,
    ) -> Result<(Vec<Oid>, Option<Oid>), ReadError>;
    /// PG log entries newer than `after`, oldest first.
    fn log_entries(&mut self, tag: Tag, cid: Cid, after: Eversion) -> Result<Vec<(Eversion, Bytes)>, ReadError>;
    /// The PG info, `None` if never set.
    fn pg_info(&mut self, tag: Tag, cid: Cid) -> Result<Option<Bytes>, ReadError>;
    /// True if something of an object is kept under a version, so that [`Op::Undo`](crate::Op::Undo) can put it back.
    fn kept(&mut self, tag: Tag, cid: Cid, oid: &Oid, version: Eversion) -> Result<bool, ReadError>;

    /// A read or write of an object of this hash, at this offset, will be asked for soon: what it needs may be brought to the
    /// processor. Nothing follows from it but time. Of use if several are foreseen before the first of them is asked for: their
    /// ways to memory overlap.
    fn foresee(&mut self, hash: u32, off: u64) {
        let _ = (hash, off);
    }
    /// Brings into memory what `submit` will need (edge blocks of partial writes, metadata) and checks space.
    /// `Io { errno: ENOSPC }` if the device is too full for it.
    fn prepare(&mut self, tag: Tag, txn: &Transaction) -> Result<(), ReadError>;
    /// As [`ObjectStore::prepare`], for what an OSD itself must write to go on when clients can't: maps, PGs that are made, split,
    /// joined, or start an interval. It may use some of the space that is set aside.
    fn prepare_own(&mut self, tag: Tag, txn: &Transaction) -> Result<(), ReadError> {
        self.prepare(tag, txn)
    }
    /// Applies a prepared transaction; `Event::Durable(tag)` follows.
    fn submit(&mut self, tag: Tag, txn: Transaction);
    /// Ends a plan: what it pinned may go.
    fn release(&mut self, tag: Tag);
    /// The next event, if any.
    fn poll_event(&mut self) -> Option<Event>;
    /// Space.
    fn statfs(&self) -> Statfs;
    /// True if both collections are here and in one shard: then [`Op::Merge`](crate::Op::Merge) can join them.
    fn beside(&self, a: Cid, b: Cid) -> bool;
    /// Objects and bytes stored in a collection (clones included; bytes as in [`Statfs::stored`]; omap bytes are those of
    /// keys and values): `(objects, bytes, omap bytes)`.
    fn collection_usage(&self, cid: Cid) -> (u64, u64, u64);
}
