//! Structures of object operations: locator, snapshot context, redirect, and payloads of some operations.

use crate::codec::{Decode, Encode, Reader, Result, Writer};
use crate::macros::{plain, versioned};
use base::{EntityAddr, EntityName, HObject, PoolId, SnapId};
use bytes::Bytes;

/// `object_locator_t`: pool, namespace and locator key of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectLocator {
    /// Pool.
    pub pool: PoolId,
    /// Locator key; empty to place by name.
    pub key: Bytes,
    /// Namespace.
    pub nspace: Bytes,
    /// Placement hash; -1 to compute it. A PG listing names a PG this way.
    pub hash: i64,
}

impl Default for ObjectLocator {
    fn default() -> Self {
        Self { pool: PoolId(-1), key: Bytes::new(), nspace: Bytes::new(), hash: -1 }
    }
}

impl ObjectLocator {
    /// The default namespace of `pool`, placed by name.
    #[must_use]
    pub fn new(pool: PoolId) -> Self {
        Self { pool, ..Self::default() }
    }
}

impl Encode for ObjectLocator {
    fn encode(&self, w: &mut Writer) {
        // A hash changes the behaviour of older decoders, so it raises the compat version.
        let compat = if self.hash == -1 { 3 } else { 6 };
        w.versioned(6, compat, |w| {
            w.put(&self.pool);
            w.i32(-1);
            w.blob(&self.key);
            w.blob(&self.nspace);
            w.i64(self.hash);
        });
    }
}
impl Decode for ObjectLocator {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("object_locator_t", 6, |r, v| {
            let pool = r.get()?;
            r.i32()?;
            let key = r.blob()?;
            let nspace = if v >= 5 { r.blob()? } else { Bytes::new() };
            let hash = if v >= 6 { r.i64()? } else { -1 };
            Ok(Self { pool, key, nspace, hash })
        })
    }
}

/// `SnapContext`: the snapshots that a write must preserve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapContext {
    /// Newest snapshot that the writer knows; 0 for none.
    pub seq: SnapId,
    /// Existing snapshots, newest first.
    pub snaps: Vec<SnapId>,
}

impl Default for SnapContext {
    fn default() -> Self {
        Self { seq: SnapId(0), snaps: Vec::new() }
    }
}

impl SnapContext {
    /// True if the context obeys Ceph's rule: no snapshot above `seq`, none repeated, newest first.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.snaps.first().is_none_or(|s| *s <= self.seq) && self.snaps.windows(2).all(|w| matches!(w, [a, b] if a > b))
    }
}

impl Encode for SnapContext {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.seq);
        w.put(&self.snaps);
    }
}
impl Decode for SnapContext {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { seq: r.get()?, snaps: r.get()? })
    }
}

/// `request_redirect_t`: location of a redirected object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestRedirect {
    /// Target locator.
    pub locator: ObjectLocator,
    /// Target name; empty for the same name.
    pub object: Bytes,
}

impl Encode for RequestRedirect {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.put(&self.locator);
            w.blob(&self.object);
            w.u32(0);
        });
    }
}
impl Decode for RequestRedirect {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("request_redirect_t", 1, |r, _| Ok(Self { locator: r.get()?, object: r.blob()? }))
    }
}

versioned! {
    /// `watch_item_t`: an entry of a LIST_WATCHERS reply.
    WatchItem = "watch_item_t", 2, 1 {
        name: EntityName,
        cookie: u64,
        timeout_seconds: u32,
        addr: EntityAddr => 2,
    }

    /// `obj_list_watch_response_t`: reply of LIST_WATCHERS.
    ListWatchersReply = "obj_list_watch_response_t", 1, 1 {
        entries: Vec<WatchItem>,
    }

    /// `pg_nls_response_t`: reply of PGNLS.
    PgNlsReply = "pg_nls_response_t", 1, 1 {
        /// Cursor for the next call; the maximum object at the end of the PG.
        handle: HObject,
        entries: Vec<ListObject>,
    }

    /// `clone_info`: a clone (or the head, with the head's snapshot id) in a LIST_SNAPS reply.
    CloneInfo = "clone_info", 1, 1 {
        cloneid: SnapId,
        /// Snapshots that the clone belongs to, ascending.
        snaps: Vec<SnapId>,
        /// Ranges that the clone shares with the next newer one.
        overlap: Vec<(u64, u64)>,
        size: u64,
    }

    /// `obj_list_snap_response_t`: reply of LIST_SNAPS.
    ListSnapsReply = "obj_list_snap_response_t", 2, 1 {
        clones: Vec<CloneInfo>,
        seq: u64 => 2,
    }
}

plain! {
    /// `librados::ListObjectImpl`: one listed object.
    ListObject {
        nspace: Bytes,
        oid: Bytes,
        locator: Bytes,
    }

    /// Argument of NOTIFY: timeout in seconds and payload.
    NotifyArgs {
        /// Always 1.
        prot_ver: u32,
        timeout_seconds: u32,
        payload: Bytes,
    }
}
