//! What a class method may do to its object.

use base::errno::Errno;
use base::{EntityAddr, EntityName, Utime};
use bytes::Bytes;

/// Why a method ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClsError {
    /// The operation fails with this negative errno; `out` is returned where the client asked for it.
    Fail {
        /// Negative errno.
        errno: Errno,
        /// Output despite the failure, usually empty.
        out: Bytes,
    },
    /// Data is not in memory yet: the caller repeats the method from its start when it is. Methods only pass it on.
    Wait,
}

impl From<Errno> for ClsError {
    fn from(errno: Errno) -> Self {
        Self::Fail { errno, out: Bytes::new() }
    }
}

impl From<wire::DecodeError> for ClsError {
    /// Input that does not decode is `EINVAL`.
    fn from(_: wire::DecodeError) -> Self {
        base::errno::EINVAL.into()
    }
}

impl ClsError {
    /// True if this is a failure with `errno`.
    #[must_use]
    pub fn is(&self, errno: Errno) -> bool {
        matches!(self, Self::Fail { errno: e, .. } if *e == errno)
    }
}

/// Result of a step of a method.
pub type ClsResult<T> = Result<T, ClsError>;

/// A client that watches the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watcher {
    /// Who.
    pub name: EntityName,
    /// From where.
    pub addr: EntityAddr,
    /// The watch's cookie.
    pub cookie: u64,
    /// Seconds without a ping after which the watch ends.
    pub timeout: u32,
}

/// The object a method works on. Writes are seen by later reads of the same operation vector and take effect only if
/// the whole vector succeeds.
///
/// An absent object: the OSD answers `ENOENT` to a vector of reads without calling any method. In a vector that may
/// write, `stat`, `getxattr`, `getxattrs` and `snapset_seq` fail with `ENOENT`, `read` and the omap header are empty, `omap_get` fails
/// with `ENOENT`, `omap_list` is empty; `remove`, `omap_clear`, `omap_rm*` and `rmxattr` fail with `ENOENT`, `zero` and
/// `truncate` do nothing, other writes create it.
///
/// Run a method through [`crate::registry::Method::run`], which holds it to its flags.
pub trait ObjectCtx {
    /// True if the object exists.
    fn exists(&mut self) -> ClsResult<bool>;
    /// Size and modification time.
    fn stat(&mut self) -> ClsResult<(u64, Utime)>;
    /// Data of `[off, off + len)`, cut at the end; `len` 0 reads to the end.
    fn read(&mut self, off: u64, len: u64) -> ClsResult<Bytes>;
    /// Creates the object; with `exclusive` fails with `EEXIST` if it is there.
    fn create(&mut self, exclusive: bool) -> ClsResult<()>;
    /// Removes the object.
    fn remove(&mut self) -> ClsResult<()>;
    /// Writes at `off`; as `truncate`, `EFBIG` past the OSD's largest object.
    fn write(&mut self, off: u64, data: &[u8]) -> ClsResult<()>;
    /// Replaces all data.
    fn write_full(&mut self, data: &[u8]) -> ClsResult<()>;
    /// Sets the size.
    fn truncate(&mut self, size: u64) -> ClsResult<()>;
    /// Makes a range read as zero.
    fn zero(&mut self, off: u64, len: u64) -> ClsResult<()>;

    /// An attribute; `ENODATA` if absent.
    fn getxattr(&mut self, name: &[u8]) -> ClsResult<Bytes>;
    /// All user attributes.
    fn getxattrs(&mut self) -> ClsResult<Vec<(Bytes, Bytes)>>;
    /// Sets an attribute.
    fn setxattr(&mut self, name: &[u8], value: &[u8]) -> ClsResult<()>;
    /// Removes an attribute if present.
    fn rmxattr(&mut self, name: &[u8]) -> ClsResult<()>;

    /// The omap header, empty if unset.
    fn omap_header(&mut self) -> ClsResult<Bytes>;
    /// Sets the omap header.
    fn omap_set_header(&mut self, header: &[u8]) -> ClsResult<()>;
    /// One value; `ENOENT` if the key is absent.
    fn omap_get(&mut self, key: &[u8]) -> ClsResult<Bytes>;
    /// Entries in key order with keys after `start_after` (from the first if empty) that begin with `prefix`, at most
    /// `max`, and whether more follow. May return fewer than `max` although more follow, but at least one.
    fn omap_list(&mut self, start_after: &[u8], prefix: &[u8], max: usize) -> ClsResult<(Vec<(Bytes, Bytes)>, bool)>;
    /// Sets entries.
    fn omap_set(&mut self, entries: &[(Bytes, Bytes)]) -> ClsResult<()>;
    /// Removes a key if present.
    fn omap_rm(&mut self, key: &[u8]) -> ClsResult<()>;
    /// Removes keys in `[first, last)`.
    fn omap_rm_range(&mut self, first: &[u8], last: &[u8]) -> ClsResult<()>;
    /// Removes all keys and the header.
    fn omap_clear(&mut self) -> ClsResult<()>;

    /// Time of the operation (the same for all methods of a vector and for its repetition).
    fn now(&self) -> Utime;
    /// Who sent the operation.
    fn origin(&self) -> (EntityName, EntityAddr);
    /// The PG's user version before this operation (`cls_current_version`): no two writes of a PG have the same.
    fn current_version(&self) -> u64;
    /// Index of the running op in its vector (`cls_current_subop_num`).
    fn subop_index(&self) -> u32;
    /// Highest snap sequence the object has seen (`cls_get_snapset_seq`).
    fn snapset_seq(&mut self) -> ClsResult<u64>;
    /// The client's snap context: sequence and ids, newest first.
    fn snap_context(&self) -> (u64, Vec<u64>);
    /// Clients that watch the object.
    fn watchers(&mut self) -> ClsResult<Vec<Watcher>>;
    /// Features of the client's connection.
    fn client_features(&self) -> u64;
    /// A random number; the same when the operation is repeated.
    fn random(&mut self) -> u64;
    /// Writes a line to the OSD's log at debug level.
    fn log(&self, text: &str);
}
