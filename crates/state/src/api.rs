//! Requests, events and the store trait.

use base::Mono;
use bytes::Bytes;
use std::time::Duration;

/// Longest key in bytes.
pub const MAX_KEY: usize = 4096;
/// Longest value in bytes; writers store longer records in pieces.
pub const MAX_VALUE: usize = 512 << 10;
/// Most bytes of keys and values in one transaction: 1.5 MiB less the overhead of encoding the request.
pub const MAX_TXN_BYTES: usize = (1536 - 64) << 10;
/// Most comparisons, and most writes, in one transaction.
pub const MAX_TXN_OPS: usize = 128;
/// Shortest time to live of a lease; shorter ones are raised to it.
pub const MIN_LEASE: Duration = Duration::from_secs(2);

/// Number chosen by the caller; the reply echoes it.
pub type Token = u64;
/// Number chosen by the caller; identifies a watch of its handle.
pub type WatchId = u64;

/// Identifier of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// Error of a request. Except for [`StateError::Unknown`], nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// A key, value or transaction exceeds its limit.
    #[error("{0} too large")]
    TooLarge(&'static str),
    /// A transaction puts a key twice, or puts and deletes it.
    #[error("a transaction changes one key twice")]
    KeyTwice,
    /// The lease does not exist or has expired.
    #[error("no such lease")]
    NoLease,
    /// The requested revision is compacted; with the oldest readable one (0: unknown).
    #[error("the revision is compacted (oldest: {0})")]
    Compacted(u64),
    /// The requested revision does not exist yet; with the newest one (0: unknown).
    #[error("the revision lies ahead of the store (newest: {0})")]
    Ahead(u64),
    /// The backend refuses the request permanently.
    #[error("state store refuses: {0}")]
    Refused(String),
    /// The backend is unreachable and the request had no effect. Later requests may succeed.
    #[error("state store unavailable: {0}")]
    Unavailable(String),
    /// The request may have taken effect, or may still: the caller must read again before it reports an outcome.
    #[error("state store failed: {0}")]
    Unknown(String),
}

/// A stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Bytes,
    /// Revision that created the key.
    pub created: u64,
    /// Revision that last wrote the key.
    pub modified: u64,
    /// Lease of the key, if any.
    pub lease: Option<LeaseId>,
}

/// Keys from `start` (included) to `end` (excluded; `None` for no bound).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// First key, inclusive.
    pub start: Bytes,
    /// End of the range, exclusive.
    pub end: Option<Bytes>,
}

impl Range {
    /// The range of all keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        Self { start: Bytes::copy_from_slice(prefix), end: prefix_end(prefix) }
    }

    /// The range of a single key.
    #[must_use]
    pub fn key(key: &[u8]) -> Self {
        let mut end = key.to_vec();
        end.push(0);
        Self { start: Bytes::copy_from_slice(key), end: Some(end.into()) }
    }

    /// True if the range contains `key`.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= &self.start[..] && self.end.as_ref().is_none_or(|e| key < &e[..])
    }
}

/// The first key after all keys that begin with `prefix`; `None` if there is none.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Option<Bytes> {
    let mut p = prefix.to_vec();
    while let Some(last) = p.pop() {
        if last < 0xff {
            p.push(last + 1);
            return Some(p.into());
        }
    }
    None
}

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The key was last written by this revision; 0 if it must not exist.
    Modified(Bytes, u64),
    /// The key has this value.
    Value(Bytes, Bytes),
}

/// A write of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Sets a key, optionally under a lease.
    Put(Bytes, Bytes, Option<LeaseId>),
    /// Deletes a key, which need not exist.
    Delete(Bytes),
    /// Deletes all keys of a range.
    DeleteRange(Range),
}

/// A transaction: compare, then write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// Comparisons, all of which must hold.
    pub compare: Vec<Compare>,
    /// Writes, applied atomically if they do. No key is put twice, or put and deleted.
    pub then: Vec<Write>,
}

impl Txn {
    /// Adds a put.
    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.then.push(Write::Put(key.into(), value.into(), None));
    }

    /// Adds a deletion.
    pub fn delete(&mut self, key: impl Into<Bytes>) {
        self.then.push(Write::Delete(key.into()));
    }
}

/// Operation of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads single keys.
    Get {
        /// Keys to read.
        keys: Vec<Bytes>,
        /// Revision to read; 0 for the current one.
        at: u64,
    },
    /// Reads keys of a range in order, at most `limit` (0: unlimited).
    Range {
        /// Range to read.
        range: Range,
        /// Most entries to return.
        limit: usize,
        /// Whether to read in descending order.
        reverse: bool,
        /// Revision to read; 0 for the current one.
        at: u64,
    },
    /// Runs a transaction.
    Txn(Txn),
    /// Watches a range for changes.
    Watch {
        /// Identifier of the watch.
        id: WatchId,
        /// Range to watch.
        range: Range,
        /// First revision whose changes are delivered; 0 for those after this request.
        from: u64,
    },
    /// Cancels a watch.
    Unwatch(WatchId),
    /// Grants a lease that lives at least this long without renewal.
    Grant(Duration),
    /// Renews a lease.
    Renew(LeaseId),
    /// Ends a lease now.
    Revoke(LeaseId),
}

impl Op {
    /// Reads keys at the current revision.
    #[must_use]
    pub fn get(keys: Vec<Bytes>) -> Self {
        Self::Get { keys, at: 0 }
    }

    /// Reads a whole range at the current revision, in order.
    #[must_use]
    pub fn all(range: Range) -> Self {
        Self::Range { range, limit: 0, reverse: false, at: 0 }
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number that the reply echoes.
    pub token: Token,
    /// Operation.
    pub op: Op,
}

/// Result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// For `Get`: entries in the order of the request.
    Values(Vec<Option<Entry>>),
    /// For `Range`: entries in the requested order.
    Entries {
        /// The entries found.
        entries: Vec<(Bytes, Entry)>,
        /// True if `limit` truncated them.
        more: bool,
    },
    /// For `Txn`: committed durably. [`Reply::revision`] is the transaction's.
    Committed,
    /// For `Txn`: a comparison failed; nothing was changed.
    Conflict,
    /// For `Grant`: the lease and its time to live.
    Lease(LeaseId, Duration),
    /// For all other operations.
    Done,
}

/// Reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Number of the request.
    pub token: Token,
    /// Revision of the store after the request; for a read, the revision that was read; 0 with an error.
    pub revision: u64,
    /// Result or error.
    pub result: Result<Outcome, StateError>,
}

/// Change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: Bytes,
    /// New entry; `None` if the key was deleted.
    pub entry: Option<Entry>,
}

/// Event of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Reply to a request.
    Reply(Reply),
    /// A transaction changed keys of a watched range.
    Changed {
        /// Identifier of the watch.
        watch: WatchId,
        /// Revision of the transaction.
        revision: u64,
        /// Changes, one for each key.
        changes: Vec<Change>,
    },
    /// A watch has ended and later changes are missing. The owner reads the range again and starts a new watch.
    Lost {
        /// Identifier of the watch.
        watch: WatchId,
        /// Reason; [`StateError::Compacted`] if the watch's next revision is compacted.
        why: StateError,
    },
}

/// A handle of the state store.
pub trait StateStore {
    /// Submits a request without blocking.
    fn submit(&mut self, request: Request);

    /// Takes the next event without blocking, if there is one.
    fn poll(&mut self) -> Option<Event>;

    /// Reports the time, by which leases of in-process backends expire.
    fn tick(&mut self, now: Mono);

    /// Drops revisions below a given one, for all users of the store. A store without a history does nothing.
    fn compact(&mut self, _revision: u64) {}
}
