//! The interface of an object store, as the PG layer uses it.
//!
//! Reads never block. If metadata or data is not in memory, a read returns [`ReadError::Wait`]. The store has
//! then started the I/O on behalf of the caller's [`Tag`] and later emits [`Event::Ready`] with it. The caller
//! repeats its whole read plan; the parts read so far stay pinned until [`ObjectStore::release`].
//!
//! Mutation never waits. After [`ObjectStore::prepare`] has returned `Ok`, [`ObjectStore::submit`] applies the
//! transaction to memory at once, so the next read sees it. [`Event::Durable`] reports that it is on the
//! device; `Durable` events come in order of submission. The caller submits in the same loop turn as the
//! successful `prepare`. Every plan, also a failed one, ends with `release` or `submit`.
//!
//! Rules that both implementations follow exactly (the model test compares them):
//!  1. Reads of an absent object or collection return [`ReadError::NoObject`]; so do `list`, `log_entries` and
//!     `pg_info` of an absent collection.
//!  2. `prepare` refuses with `Io` and an errno: `ENOENT` for a change in an absent collection, `EEXIST` for
//!     creating an existing one, `ENOTEMPTY` for removing one with objects or undo records (`EBUSY` for merging
//!     it into another), `EFBIG` for data beyond [`MAX_OBJECT_SIZE`], `ENOSPC`, and `E2BIG` for a transaction
//!     too large for the log. A refused transaction changes nothing.
//!  3. Removing attributes or omap keys of an absent object does nothing, nor does `Undo`. Every other change
//!     creates the object. `Clone`, `CloneRange` and `Rename` with an absent source do nothing.
//!  4. Space is mapped in blocks of [`BLOCK`] bytes: a write maps each block it touches, `Zero` and `Truncate`
//!     unmap whole blocks. `extents` and `allocated` count mapped blocks.

use crate::compress::Compression;
use crate::key::{Cid, Oid};
use crate::txn::Transaction;
use base::errno::Errno;
use base::{Eversion, PoolId};
use bytes::Bytes;

/// Size of a block in bytes, the unit of space and of checksums.
pub const BLOCK: u64 = 4096;
/// Largest size of an object.
pub const MAX_OBJECT_SIZE: u64 = 1 << 32;

/// Id of a plan or transaction, chosen by the caller and unique among those in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// Failure of a read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The store has started I/O; the caller repeats the plan after [`Event::Ready`].
    #[error("the store waits for its device")]
    Wait,
    /// The object or collection does not exist.
    #[error("no such object or collection")]
    NoObject,
    /// The device failed, or the bytes do not match their checksum. The store never returns wrong data.
    #[error("{what} ({})", base::errno::name(*errno))]
    Io {
        /// Description of the failure, for the log.
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

/// Space usage. With several reactors on a device, `total`, `available` and `allocated` are those of the device
/// in each store's answer. The other fields are the store's own, to be summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statfs {
    /// Usable bytes of the device.
    pub total: u64,
    /// Bytes free for data.
    pub available: u64,
    /// Bytes allocated to object data.
    pub allocated: u64,
    /// Bytes of all mapped blocks, cut at each object's end. A shared block counts once per object.
    pub stored: u64,
    /// Bytes of omap.
    pub omap: u64,
    /// Bytes of metadata and log.
    pub metadata: u64,
}

/// Event that the store reports to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The caller can repeat the plan.
    Ready(Tag),
    /// The transaction is durable. An error means that the device refused it; the store has then failed for
    /// good.
    Durable(Tag, Result<(), Errno>),
    /// The store's condition has changed, for health reports.
    Health(Health),
}

impl Event {
    /// Plan or transaction of the event; `None` if the event concerns the store.
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
    /// The store refuses transactions that need space until something is removed. A full host file system
    /// counts as well.
    Full,
    /// The device failed. The store acknowledges no further write; reads are still tried.
    Failed {
        /// Description of the failure, for the log.
        what: String,
        /// Errno of the device.
        errno: Errno,
    },
}

/// Part of an object's omap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OmapPage {
    /// Entries in key order.
    pub entries: Vec<(Bytes, Bytes)>,
    /// True if more entries follow.
    pub more: bool,
}

/// A store as one reactor uses it. See the module for the contract.
pub trait ObjectStore {
    /// Ids of all collections, with their hash bits.
    fn collections(&self) -> Vec<(Cid, u32)>;
    /// Size of an object.
    fn stat(&mut self, tag: Tag, cid: Cid, oid: &Oid) -> Result<ObjectStat, ReadError>;
    /// Data of `[off, off + len)`, cut at the object's end. Holes read as zeros.
    fn read(&mut self, tag: Tag, cid: Cid, oid: &Oid, off: u64, len: u64) -> Result<Bytes, ReadError>;
    /// Like [`ObjectStore::read`], with the crc32c of the data from [`base::crc::SEED`] where it follows from checksums
    /// that were verified.
    fn read_summed(
        &mut self,
        tag: Tag,
        cid: Cid,
        oid: &Oid,
        off: u64,
        len: u64,
    ) -> Result<(Bytes, Option<u32>), ReadError> {
        self.read(tag, cid, oid, off, len).map(|b| (b, None))
    }
    /// Like [`ObjectStore::read`], and what is on the device is read there even if the store has it in memory: for
    /// scrub, which looks for rot. Data whose write is still in flight comes from memory: a scrub of it verifies
    /// memory only. Holds for the tag until its release.
    fn read_device(&mut self, tag: Tag, cid: Cid, oid: &Oid, off: u64, len: u64) -> Result<Bytes, ReadError> {
        self.read(tag, cid, oid, off, len)
    }
    /// Ranges within `[off, off + len)` that hold data (not holes), as `(offset, length)`, ascending, merged.
    fn extents(&mut self, tag: Tag, cid: Cid, oid: &Oid, off: u64, len: u64) -> Result<Vec<(u64, u64)>, ReadError>;
    /// Value of one attribute; `Ok(None)` if the object has no such attribute.
    fn attr(&mut self, tag: Tag, cid: Cid, oid: &Oid, name: &[u8]) -> Result<Option<Bytes>, ReadError>;
    /// All attributes in name order.
    fn attrs(&mut self, tag: Tag, cid: Cid, oid: &Oid) -> Result<Vec<(Bytes, Bytes)>, ReadError>;
    /// The omap header, empty if unset.
    fn omap_header(&mut self, tag: Tag, cid: Cid, oid: &Oid) -> Result<Bytes, ReadError>;
    /// Value of one omap key.
    fn omap_get(&mut self, tag: Tag, cid: Cid, oid: &Oid, key: &[u8]) -> Result<Option<Bytes>, ReadError>;
    /// Omap entries with keys `>= from` (or `> from` if `after`), at most `max_entries` and about `max_bytes`.
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
    /// Objects of a collection in hash order with `start <= oid < end`, at most `max`, and the start of the
    /// next call.
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
    /// True if the undo record of a version has data of the object, so that [`Op::Undo`](crate::Op::Undo) can
    /// restore it.
    fn kept(&mut self, tag: Tag, cid: Cid, oid: &Oid, version: Eversion) -> Result<bool, ReadError>;

    /// Hints that the caller will soon read or write an object of this hash, at this offset. The store may
    /// prefetch the memory it needs into the CPU caches, which pays if several are announced before the first
    /// is used. There is no other effect.
    fn prefetch(&mut self, hash: u32, off: u64) {
        let _ = (hash, off);
    }
    /// Hint: the operations announced by [`Self::prefetch`] come now, and no other one before them.
    fn prefetch_rest(&mut self) {}
    /// Sets how data that is written to a pool's objects from now on is compressed; `None`: not at all. Readers see no
    /// difference. A store that can't compress does nothing.
    fn set_compression(&mut self, pool: PoolId, how: Option<Compression>) {
        let _ = (pool, how);
    }
    /// Pools with compressed data: bytes before compression, and bytes on the device. A shared block counts once per
    /// object.
    fn compressed(&self) -> Vec<(PoolId, u64, u64)> {
        Vec::new()
    }
    /// Brings into memory what `submit` will need (edge blocks of partial writes, metadata) and reserves space.
    /// Returns `Io { errno: ENOSPC }` if the device is too full.
    fn prepare(&mut self, tag: Tag, txn: &Transaction) -> Result<(), ReadError>;
    /// Like [`ObjectStore::prepare`], for transactions that an OSD needs to go on when client writes are
    /// refused: maps, and PGs that are created, split, merged, or start an interval. These may use some of the
    /// reserved space.
    fn prepare_own(&mut self, tag: Tag, txn: &Transaction) -> Result<(), ReadError> {
        self.prepare(tag, txn)
    }
    /// Applies a prepared transaction. `Event::Durable(tag)` follows.
    fn submit(&mut self, tag: Tag, txn: Transaction);
    /// Prepares and submits a transaction. Its errors are those of [`ObjectStore::prepare`], with the transaction.
    fn apply(&mut self, tag: Tag, txn: Transaction) -> Result<(), (ReadError, Transaction)> {
        match self.prepare(tag, &txn) {
            Ok(()) => {
                self.submit(tag, txn);
                Ok(())
            }
            Err(e) => Err((e, txn)),
        }
    }
    /// Ends a plan and unpins its data.
    fn release(&mut self, tag: Tag);
    /// The next event, if any.
    fn poll_event(&mut self) -> Option<Event>;
    /// Space usage.
    fn statfs(&self) -> Statfs;
    /// Most bytes of a transaction's operations, each counted with [`crate::Op::frame_bytes`]; more is `E2BIG`.
    fn frame_max(&self) -> usize {
        usize::MAX
    }
    /// True while writes of clients that need space are to be refused, whatever the map says.
    fn is_short(&self) -> bool {
        false
    }
    /// True if both collections are in one shard of this store, so that [`Op::Merge`](crate::Op::Merge) can
    /// merge them.
    fn beside(&self, a: Cid, b: Cid) -> bool;
    /// `(objects, bytes, omap bytes)` of a collection, clones included. Bytes are as in [`Statfs::stored`],
    /// omap bytes those of keys and values.
    fn collection_usage(&self, cid: Cid) -> (u64, u64, u64);
}
