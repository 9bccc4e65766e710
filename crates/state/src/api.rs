//! Requests, events and the trait.

use base::Mono;
use bytes::Bytes;
use std::time::Duration;

/// Longest key.
pub const MAX_KEY: usize = 4096;
/// Longest value; a longer record is stored in pieces by its writer.
pub const MAX_VALUE: usize = 512 << 10;
/// Most bytes of keys and values in one transaction: 1.5 MiB less what the encoding of a request adds.
pub const MAX_TXN_BYTES: usize = (1536 - 64) << 10;
/// Most comparisons, and most writes, in one transaction.
pub const MAX_TXN_OPS: usize = 128;
/// Shortest time to live of a lease; a shorter one is raised to this.
pub const MIN_LEASE: Duration = Duration::from_secs(2);

/// Chosen by the caller, echoed in the reply.
pub type Token = u64;
/// Chosen by the caller, names a watch of this handle.
pub type WatchId = u64;

/// A lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// Why a request failed. All but [`StateError::Unknown`] mean that nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Key, value or transaction beyond its bound.
    #[error("{0} too large")]
    TooLarge(&'static str),
    /// One transaction puts a key twice, or puts and removes it.
    #[error("a transaction changes one key twice")]
    KeyTwice,
    /// The lease does not exist (any more).
    #[error("no such lease")]
    NoLease,
    /// The revision asked for is gone; the oldest that is there (0: the store does not say).
    #[error("the revision is compacted (oldest: {0})")]
    Compacted(u64),
    /// The revision asked for is not there yet; the newest (0: the store does not say).
    #[error("the revision lies ahead of the store (newest: {0})")]
    Ahead(u64),
    /// The backend refuses the request, and will again.
    #[error("state store refuses: {0}")]
    Refused(String),
    /// The backend cannot be asked now; the request had no effect. Later ones may succeed.
    #[error("state store unavailable: {0}")]
    Unavailable(String),
    /// The request may have taken effect, or may still: the caller re-reads before it tells anybody of an outcome.
    #[error("state store failed: {0}")]
    Unknown(String),
}

/// A stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Value.
    pub value: Bytes,
    /// Revision that created the key.
    pub created: u64,
    /// Revision that last wrote it.
    pub modified: u64,
    /// Lease it hangs on.
    pub lease: Option<LeaseId>,
}

/// Keys from `start` (included) to `end` (excluded; `None` for no bound).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// First key.
    pub start: Bytes,
    /// Key after the last.
    pub end: Option<Bytes>,
}

impl Range {
    /// All keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        Self { start: Bytes::copy_from_slice(prefix), end: prefix_end(prefix) }
    }

    /// One key.
    #[must_use]
    pub fn key(key: &[u8]) -> Self {
        let mut end = key.to_vec();
        end.push(0);
        Self { start: Bytes::copy_from_slice(key), end: Some(end.into()) }
    }

    /// True if `key` lies within.
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
    /// The key was last written by this revision; 0 means that it does not exist.
    Modified(Bytes, u64),
    /// The key has this value.
    Value(Bytes, Bytes),
}

/// A change of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Sets a key, optionally under a lease.
    Put(Bytes, Bytes, Option<LeaseId>),
    /// Removes a key; fine if it does not exist.
    Delete(Bytes),
    /// Removes all keys of a range.
    DeleteRange(Range),
}

/// Compare, then change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// All must hold.
    pub compare: Vec<Compare>,
    /// Applied if they do, all or none. No key is put twice, or put and removed.
    pub then: Vec<Write>,
}

impl Txn {
    /// Adds a put.
    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.then.push(Write::Put(key.into(), value.into(), None));
    }

    /// Adds a removal.
    pub fn delete(&mut self, key: impl Into<Bytes>) {
        self.then.push(Write::Delete(key.into()));
    }
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Some keys.
    Get {
        /// Which.
        keys: Vec<Bytes>,
        /// As they were at this revision; 0 for now.
        at: u64,
    },
    /// Keys of a range in order, at most `limit` (0 for all).
    Range {
        /// Which.
        range: Range,
        /// How many.
        limit: usize,
        /// From the end.
        reverse: bool,
        /// As they were at this revision; 0 for now.
        at: u64,
    },
    /// A transaction.
    Txn(Txn),
    /// Changes of a range.
    Watch {
        /// Its name.
        id: WatchId,
        /// Which keys.
        range: Range,
        /// The first revision whose changes are wanted; 0 for those after this request.
        from: u64,
    },
    /// No more of them.
    Unwatch(WatchId),
    /// A new lease that lives for at least this long without renewal.
    Grant(Duration),
    /// Renews a lease.
    Renew(LeaseId),
    /// Ends a lease now.
    Revoke(LeaseId),
}

impl Op {
    /// Keys as they are now.
    #[must_use]
    pub fn get(keys: Vec<Bytes>) -> Self {
        Self::Get { keys, at: 0 }
    }

    /// A range as it is now, in order and whole.
    #[must_use]
    pub fn all(range: Range) -> Self {
        Self::Range { range, limit: 0, reverse: false, at: 0 }
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Echoed.
    pub token: Token,
    /// What.
    pub op: Op,
}

/// A request's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// For `Get`, in the order asked.
    Values(Vec<Option<Entry>>),
    /// For `Range`.
    Entries {
        /// The entries found.
        entries: Vec<(Bytes, Entry)>,
        /// True if `limit` cut them short.
        more: bool,
    },
    /// For `Txn`: the comparisons held, and it is durable. [`Reply::revision`] is its own.
    Committed,
    /// For `Txn`: a comparison did not hold, nothing was changed.
    Conflict,
    /// For `Grant`: the lease and how long it lives.
    Lease(LeaseId, Duration),
    /// For the others.
    Done,
}

/// Answer to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request's.
    pub token: Token,
    /// Revision of the store after the request; for a read the one that was read; 0 with an error.
    pub revision: u64,
    /// Its result.
    pub result: Result<Outcome, StateError>,
}

/// A key that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: Bytes,
    /// Its entry now, `None` if it was removed.
    pub entry: Option<Entry>,
}

/// What comes out of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request is done.
    Reply(Reply),
    /// Keys of a watched range changed by one transaction.
    Changed {
        /// The watch.
        watch: WatchId,
        /// The transaction's revision.
        revision: u64,
        /// What changed, each key once.
        changes: Vec<Change>,
    },
    /// A watch has ended: changes after the last event are missing. Its owner reads the range anew and watches again.
    Lost {
        /// The watch.
        watch: WatchId,
        /// Why; [`StateError::Compacted`] if its next revision is gone.
        why: StateError,
    },
}

/// A handle on the state.
pub trait StateStore {
    /// Accepts a request; never blocks.
    fn submit(&mut self, request: Request);

    /// Takes the next event, if one is ready; never blocks.
    fn poll(&mut self) -> Option<Event>;

    /// Tells the time; the leases of a backend in this process expire by it.
    fn tick(&mut self, now: Mono);
}
