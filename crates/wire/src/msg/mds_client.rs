//! Messages between a CephFS client and an MDS.
//!
//! Sources: `src/messages/MClient*.h`, `src/include/ceph_fs.h`.

use crate::codec::{Reader, Result, Writer};
use crate::features::Features;
use crate::frame::WireMessage;
use crate::macros::{message, plain};
use crate::types::StrMap;
use base::{Epoch, Utime};
use bytes::Bytes;

/// Operations of [`MClientSession`].
pub mod session_op {
    /// A client asks for a session.
    pub const REQUEST_OPEN: u32 = 0;
    /// The session is open.
    pub const OPEN: u32 = 1;
    /// A client ends its session.
    pub const REQUEST_CLOSE: u32 = 2;
    /// The session has ended.
    pub const CLOSE: u32 = 3;
    /// A client shows that it is alive.
    pub const REQUEST_RENEWCAPS: u32 = 4;
    /// Answer to it.
    pub const RENEWCAPS: u32 = 5;
    /// The MDS has heard nothing of the client for too long.
    pub const STALE: u32 = 6;
    /// The client shall give capabilities back.
    pub const RECALL_STATE: u32 = 7;
    /// The client answers when all that it sent before is on its way.
    pub const FLUSHMSG: u32 = 8;
    /// Answer to `FLUSHMSG`.
    pub const FLUSHMSG_ACK: u32 = 9;
    /// The file system is read-only from now on.
    pub const FORCE_RO: u32 = 10;
    /// The session is refused.
    pub const REJECT: u32 = 11;
    /// A client waits for the journal.
    pub const REQUEST_FLUSH_MDLOG: u32 = 12;
}

/// Operations of [`MClientCaps`] that a client without capabilities cares for.
pub mod cap_op {
    /// The MDS has taken the inode over from another rank.
    pub const IMPORT: u32 = 4;
}

/// Actions of [`MClientLease`].
pub mod lease_action {
    /// The MDS takes a lease back.
    pub const REVOKE: u8 = 1;
    /// The client has given it up.
    pub const REVOKE_ACK: u8 = 4;
}

plain! {
    /// `ceph_mds_cap_item`: a capability that a client gives up.
    CapItem {
        ino: u64,
        cap_id: u64,
        migrate_seq: u32,
        /// Number in the reply that gave the capability.
        seq: u32,
    }
}

message! {
    /// `MClientRequestForward`: another rank serves the request.
    MClientRequestForward = 25, 1, 1 {
        dest_mds: i32,
        num_fwd: u32,
        /// The client sends it again; else the MDS has passed it on.
        must_resend: bool,
    }

    /// `MClientReply`: the answer to a request, first when it is done and again when it is durable.
    MClientReply = 26, 1, 1 {
        op: u32,
        /// Zero, or a negative errno.
        result: i32,
        mdsmap_epoch: Epoch,
        /// Whether the change is durable.
        safe: bool,
        /// Whether `trace` begins with a directory and a name.
        is_dentry: bool,
        /// Whether `trace` has the inode of the request.
        is_target: bool,
        /// Inodes, as the two fields before say.
        trace: Bytes,
        /// Contents of a directory.
        extra: Bytes,
        /// Snapshot realms of the inode, innermost first.
        snap: Bytes,
    }

    /// `MClientLease`: a lease on a name.
    MClientLease = 0x311, 1, 1 {
        action: u8,
        mask: u16,
        ino: u64,
        first: u64,
        last: u64,
        seq: u32,
        duration_ms: u32,
        dname: Bytes,
    }

    /// `MClientCapRelease`: a client gives capabilities up.
    MClientCapRelease = 0x313, 2, 1 {
        caps: Vec<CapItem>,
        osd_epoch_barrier: Epoch => 2,
    }
}

/// `MClientSession`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MClientSession {
    /// One of [`session_op`].
    pub op: u32,
    /// Sequence number.
    pub seq: u64,
    /// Time of sending.
    pub stamp: Utime,
    /// Capabilities that the client shall keep at most.
    pub max_caps: u32,
    /// Leases that the client shall keep at most.
    pub max_leases: u32,
    /// Facts that the sender tells about itself.
    pub metadata: StrMap,
    /// Feature bits, in bytes.
    pub features: Bytes,
}

impl WireMessage for MClientSession {
    const KIND: u16 = 22;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.u32(self.op);
        w.u64(self.seq);
        w.put(&self.stamp);
        w.u32(self.max_caps);
        w.u32(self.max_leases);
        w.put(&self.metadata);
        w.blob(&self.features);
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, _: &Bytes) -> Result<Self> {
        let mut m = Self {
            op: r.u32()?,
            seq: r.u64()?,
            stamp: r.get()?,
            max_caps: r.u32()?,
            max_leases: r.u32()?,
            ..Self::default()
        };
        if version >= 2 {
            m.metadata = r.get()?;
        }
        if version >= 3 {
            m.features = r.blob()?;
        }
        Ok(m)
    }
}

/// `MClientReconnect` of a client without capabilities: its session shall live on after a restart of the MDS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MClientReconnect {
    /// Number of capabilities.
    pub caps: u32,
    /// The capabilities, the realms, and whether more messages follow.
    pub rest: Bytes,
}

impl MClientReconnect {
    /// A client that holds nothing.
    #[must_use]
    pub fn empty() -> Self {
        // No realms, and no further message.
        Self { caps: 0, rest: Bytes::from_static(&[0; 5]) }
    }
}

impl WireMessage for MClientReconnect {
    const KIND: u16 = 23;
    const VERSION: u16 = 5;
    const COMPAT: u16 = 4;

    fn encode_front(&self, _: &mut Writer) {}

    fn decode_front(_: &mut Reader<'_>, _: u16, data: &Bytes) -> Result<Self> {
        let mut r = Reader::shared(data);
        Ok(Self { caps: r.u32()?, rest: r.rest() })
    }

    /// An MDS reads the data only.
    fn data(&self) -> Bytes {
        let mut w = Writer::new(Features::PACIFIC);
        w.u32(self.caps);
        w.raw(&self.rest);
        w.into_bytes()
    }
}

/// `MClientCaps`: the MDS changes a client's capability on an inode. Only the head is decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MClientCaps {
    /// Operation.
    pub op: u32,
    /// Inode.
    pub ino: u64,
    /// Inode of the snapshot realm.
    pub realm: u64,
    /// Identity of the capability.
    pub cap_id: u64,
    /// Number of the change.
    pub seq: u32,
    /// Number of the last reply with the capability.
    pub issue_seq: u32,
    /// Bits that the client may hold.
    pub caps: u32,
    /// Bits that it wants.
    pub wanted: u32,
    /// Bits that it has changed.
    pub dirty: u32,
    /// Number of the last migration.
    pub migrate_seq: u32,
    /// The rest of the message.
    pub rest: Bytes,
}

impl WireMessage for MClientCaps {
    const KIND: u16 = 0x310;
    const VERSION: u16 = 12;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.u32(self.op);
        w.u64(self.ino);
        w.u64(self.realm);
        w.u64(self.cap_id);
        for v in [self.seq, self.issue_seq, self.caps, self.wanted, self.dirty, self.migrate_seq] {
            w.u32(v);
        }
        w.raw(&self.rest);
    }

    fn decode_front(r: &mut Reader<'_>, _: u16, _: &Bytes) -> Result<Self> {
        Ok(Self {
            op: r.u32()?,
            ino: r.u64()?,
            realm: r.u64()?,
            cap_id: r.u64()?,
            seq: r.u32()?,
            issue_seq: r.u32()?,
            caps: r.u32()?,
            wanted: r.u32()?,
            dirty: r.u32()?,
            migrate_seq: r.u32()?,
            rest: r.rest(),
        })
    }
}

/// `filepath`: names below an inode. An empty name leads to the snapshots of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilePath {
    /// Inode where the path begins.
    pub ino: u64,
    /// Names, separated by `/`.
    pub path: Bytes,
}

impl FilePath {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u64(self.ino);
        w.blob(&self.path);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.u8()?;
        Ok(Self { ino: r.u64()?, path: r.blob()? })
    }
}

/// Bytes of the arguments in [`MClientRequest`].
pub const REQUEST_ARGS: usize = 48;

/// `MClientRequest`, in the encoding of its version 3, which all releases take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MClientRequest {
    /// All requests before this one are durable.
    pub oldest_client_tid: u64,
    /// The client's map.
    pub mdsmap_epoch: Epoch,
    /// [`MClientRequest::REPLAY`].
    pub flags: u32,
    /// Times it was sent before.
    pub num_retry: u8,
    /// Times it was forwarded.
    pub num_fwd: u8,
    /// Number of capabilities that are released with it, 0.
    pub num_releases: u16,
    /// Operation.
    pub op: u32,
    /// User.
    pub caller_uid: u32,
    /// Group.
    pub caller_gid: u32,
    /// Inode that the first attempt made, in a replay.
    pub ino: u64,
    /// Arguments of the operation.
    pub args: [u8; REQUEST_ARGS],
    /// Path.
    pub path: FilePath,
    /// Second path, or the name of an attribute.
    pub path2: FilePath,
    /// Time of the request.
    pub stamp: Utime,
    /// Data segment: the value of an attribute.
    pub data: Bytes,
}

impl Default for MClientRequest {
    fn default() -> Self {
        Self {
            oldest_client_tid: 0,
            mdsmap_epoch: Epoch(0),
            flags: 0,
            num_retry: 0,
            num_fwd: 0,
            num_releases: 0,
            op: 0,
            caller_uid: 0,
            caller_gid: 0,
            ino: 0,
            args: [0; REQUEST_ARGS],
            path: FilePath::default(),
            path2: FilePath::default(),
            stamp: Utime::ZERO,
            data: Bytes::new(),
        }
    }
}

impl MClientRequest {
    /// The request was done by an MDS that failed before it was durable.
    pub const REPLAY: u32 = 1;
}

impl WireMessage for MClientRequest {
    const KIND: u16 = 24;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;

    fn encode_front(&self, w: &mut Writer) {
        w.u64(self.oldest_client_tid);
        w.put(&self.mdsmap_epoch);
        w.u32(self.flags);
        w.u8(self.num_retry);
        w.u8(self.num_fwd);
        w.u16(self.num_releases);
        w.u32(self.op);
        w.u32(self.caller_uid);
        w.u32(self.caller_gid);
        w.u64(self.ino);
        w.raw(&self.args);
        self.path.encode(w);
        self.path2.encode(w);
        w.put(&self.stamp);
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, data: &Bytes) -> Result<Self> {
        let mut m = Self {
            oldest_client_tid: r.u64()?,
            mdsmap_epoch: r.get()?,
            flags: r.u32()?,
            num_retry: r.u8()?,
            num_fwd: r.u8()?,
            num_releases: r.u16()?,
            op: r.u32()?,
            caller_uid: r.u32()?,
            caller_gid: r.u32()?,
            ino: r.u64()?,
            args: r.array("arguments")?,
            path: FilePath::decode(r)?,
            path2: FilePath::decode(r)?,
            data: data.clone(),
            ..Self::default()
        };
        if version >= 2 && m.num_releases == 0 {
            m.stamp = r.get()?;
        }
        Ok(m)
    }

    fn data(&self) -> Bytes {
        self.data.clone()
    }
}
