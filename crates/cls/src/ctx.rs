//! Access of class methods to their object.

use crate::parts::{Parts, Room};
use base::errno::Errno;
use base::{EntityAddr, EntityName, Utime};
use bytes::Bytes;

/// Error that ends a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClsError {
    /// The operation fails with this negative errno; `out` is returned if the client requested output.
    Fail {
        /// Negative errno.
        errno: Errno,
        /// Output despite the failure; usually empty.
        out: Bytes,
    },
    /// Data is not in memory yet: the caller repeats the method from its start once it is. Methods only pass this on.
    Wait,
}

impl From<Errno> for ClsError {
    fn from(errno: Errno) -> Self {
        Self::Fail { errno, out: Bytes::new() }
    }
}

impl From<wire::DecodeError> for ClsError {
    /// Undecodable input is `EINVAL`.
    fn from(_: wire::DecodeError) -> Self {
        base::errno::EINVAL.into()
    }
}

impl ClsError {
    /// True for a failure with `errno`.
    #[must_use]
    pub fn is(&self, errno: Errno) -> bool {
        matches!(self, Self::Fail { errno: e, .. } if *e == errno)
    }
}

/// Result of a step of a method.
pub type ClsResult<T> = Result<T, ClsError>;

/// A watcher of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watcher {
    /// Entity name of the client.
    pub name: EntityName,
    /// Address of the client.
    pub addr: EntityAddr,
    /// Cookie of the watch.
    pub cookie: u64,
    /// Timeout in seconds: the watch ends without a ping for this time.
    pub timeout: u32,
}

/// The object that a method works on. Later reads of the same operation vector see its writes, which take effect only
/// if the whole vector succeeds.
///
/// An absent object: the OSD answers `ENOENT` to a vector of reads without calling a method. In a vector that may
/// write, `stat`, `getxattr`, `getxattrs`, `snapset_seq` and `omap_get` fail with `ENOENT`; `read`, `omap_header` and
/// `omap_list` return nothing. `remove`, `omap_clear`, `omap_rm*` and `rmxattr` fail with `ENOENT`, `zero` and
/// `truncate` do nothing, and other writes create the object.
///
/// Methods run through [`crate::registry::Method::run`], which enforces their flags.
pub trait ObjectCtx {
    /// True if the object exists.
    fn exists(&mut self) -> ClsResult<bool>;
    /// Size and modification time.
    fn stat(&mut self) -> ClsResult<(u64, Utime)>;
    /// Data of `[off, off + len)`, truncated at the object's end; `len` 0 reads to the end.
    fn read(&mut self, off: u64, len: u64) -> ClsResult<Bytes>;
    /// Creates the object; with `exclusive`, `EEXIST` if it exists.
    fn create(&mut self, exclusive: bool) -> ClsResult<()>;
    /// Removes the object.
    fn remove(&mut self) -> ClsResult<()>;
    /// Writes at `off`. `EFBIG` beyond the OSD's largest object size, also for `truncate`.
    fn write(&mut self, off: u64, data: &[u8]) -> ClsResult<()>;
    /// Replaces the object's data.
    fn write_full(&mut self, data: &[u8]) -> ClsResult<()>;
    /// Sets the object's size.
    fn truncate(&mut self, size: u64) -> ClsResult<()>;
    /// Zeroes a range.
    fn zero(&mut self, off: u64, len: u64) -> ClsResult<()>;

    /// Value of an xattr; `ENODATA` if absent.
    fn getxattr(&mut self, name: &[u8]) -> ClsResult<Bytes>;
    /// All user xattrs.
    fn getxattrs(&mut self) -> ClsResult<Vec<(Bytes, Bytes)>>;
    /// Sets an xattr.
    fn setxattr(&mut self, name: &[u8], value: &[u8]) -> ClsResult<()>;
    /// Removes an xattr if present.
    fn rmxattr(&mut self, name: &[u8]) -> ClsResult<()>;

    /// The omap header; empty if unset.
    fn omap_header(&mut self) -> ClsResult<Bytes>;
    /// Sets the omap header.
    fn omap_set_header(&mut self, header: &[u8]) -> ClsResult<()>;
    /// Value of an omap key; `ENOENT` if absent.
    fn omap_get(&mut self, key: &[u8]) -> ClsResult<Bytes>;
    /// Omap entries in key order, at most `max`, with keys after `start_after` (or from the first if it is empty) that
    /// begin with `prefix`; and whether more follow. May return fewer than `max` although more follow, but at least
    /// one.
    fn omap_list(&mut self, start_after: &[u8], prefix: &[u8], max: usize) -> ClsResult<(Vec<(Bytes, Bytes)>, bool)>;
    /// Omap entries as [`ObjectCtx::omap_list`] returns them, with room for at least one.
    fn omap_part(&mut self, start_after: &[u8], prefix: &[u8], room: Room) -> ClsResult<(Vec<(Bytes, Bytes)>, bool)>;
    /// Progress of the vector's long calls.
    fn parts(&mut self) -> &mut Parts;
    /// Sets omap entries.
    fn omap_set(&mut self, entries: &[(Bytes, Bytes)]) -> ClsResult<()>;
    /// Removes an omap key if present.
    fn omap_rm(&mut self, key: &[u8]) -> ClsResult<()>;
    /// Removes omap keys in `[first, last)`.
    fn omap_rm_range(&mut self, first: &[u8], last: &[u8]) -> ClsResult<()>;
    /// Removes all omap keys and the header.
    fn omap_clear(&mut self) -> ClsResult<()>;

    /// Time of the operation; the same for all methods of a vector and its repetition.
    fn now(&self) -> Utime;
    /// Name and address of the client that sent the operation.
    fn origin(&self) -> (EntityName, EntityAddr);
    /// The PG's user version before this operation (`cls_current_version`); unique for each write of a PG.
    fn current_version(&self) -> u64;
    /// Index of the current op in its vector (`cls_current_subop_num`).
    fn subop_index(&self) -> u32;
    /// Highest snapshot sequence that the object has seen (`cls_get_snapset_seq`).
    fn snapset_seq(&mut self) -> ClsResult<u64>;
    /// The client's snapshot context: sequence and ids, newest first.
    fn snap_context(&self) -> (u64, Vec<u64>);
    /// Watchers of the object.
    fn watchers(&mut self) -> ClsResult<Vec<Watcher>>;
    /// Features of the client's connection.
    fn client_features(&self) -> u64;
    /// A random number; the same when the operation is repeated.
    fn random(&mut self) -> u64;
    /// Writes a line to the OSD's log at debug level.
    fn log(&self, text: &str);
}
