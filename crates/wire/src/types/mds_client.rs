//! News of an MDS for its clients about inodes, directories, leases and snapshot realms.
//!
//! The layouts are those for clients that announce `CEPHFS_FEATURE_REPLY_ENCODING`: with a version and a length, so that
//! fields of newer releases are skipped.

use crate::codec::{Decode, Encode, Reader, Result, Writer};
use crate::macros::{plain, versioned};
use crate::types::StrMap;
use base::Utime;
use bytes::Bytes;
use std::collections::BTreeSet;

plain! {
    /// `ceph_mds_reply_cap`: the capability that a reply gives the client.
    ReplyCap {
        /// Bits that the client holds.
        caps: u32,
        wanted: u32,
        /// Identity of the capability; 0 if there is none.
        cap_id: u64,
        /// Number of the last change; a release names it.
        seq: u32,
        /// Number of the last migration.
        mseq: u32,
        /// Inode of the snapshot realm.
        realm: u64,
        flags: u8,
    }

    /// `ceph_file_layout`: how a file's bytes are spread over objects.
    LegacyLayout {
        /// Bytes that go to one object before the next; 0 if the layout is not set.
        stripe_unit: u32,
        /// Objects that a stripe spans.
        stripe_count: u32,
        object_size: u32,
        cas_hash: u32,
        object_stripe_unit: u32,
        unused: u32,
        pool: u32,
    }

    /// One node of a directory's tree of fragments.
    FragSplit {
        frag: u32,
        by: i32,
    }
}

versioned! {
    /// `quota_info_t`.
    QuotaInfo = "quota_info_t", 1, 1 {
        max_bytes: i64,
        max_files: i64,
    }

    /// `InodeStat`: the attributes of an inode.
    InodeStat = "InodeStat", 5, 1 {
        ino: u64,
        /// Snapshot, or [`base::SnapId::HEAD`].
        snapid: u64,
        rdev: u32,
        version: u64,
        xattr_version: u64,
        cap: ReplyCap,
        layout: LegacyLayout,
        ctime: Utime,
        mtime: Utime,
        atime: Utime,
        time_warp_seq: u32,
        size: u64,
        max_size: u64,
        truncate_size: u64,
        truncate_seq: u32,
        mode: u32,
        uid: u32,
        gid: u32,
        nlink: u32,
        /// Files in the directory.
        files: u64,
        /// Directories in the directory.
        subdirs: u64,
        /// Bytes below the directory.
        rbytes: u64,
        /// Files below the directory.
        rfiles: u64,
        /// Directories below the directory, itself included.
        rsubdirs: u64,
        rctime: Utime,
        fragtree: Vec<FragSplit>,
        symlink: Bytes,
        dir_layout: u64,
        /// An encoded map of names to values; empty if the client has it already.
        xattrs: Bytes,
        inline_version: u64,
        inline_data: Bytes,
        quota: QuotaInfo,
        pool_ns: String,
        btime: Utime,
        change_attr: u64,
        dir_pin: i32 => 2,
        snap_btime: Utime => 3,
        rsnaps: u64 => 4,
        snap_metadata: StrMap => 5,
    }

    /// `LeaseStat`: a lease on a name in a directory.
    LeaseStat = "LeaseStat", 1, 1 {
        mask: u16,
        duration_ms: u32,
        seq: u32,
    }

    /// `DirStat`: one fragment of a directory, and the ranks that have it.
    DirStat = "DirStat", 1, 1 {
        frag: u32,
        auth: i32,
        dist: BTreeSet<i32>,
    }
}

/// `inline_version` of a file whose data is in objects.
pub const INLINE_NONE: u64 = u64::MAX;

/// `SnapRealmInfo`: the snapshots of a realm, without those of its parent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapRealmInfo {
    /// Inode of the realm.
    pub ino: u64,
    /// Snapshot sequence at which the realm was made.
    pub created: u64,
    /// Inode of the parent realm; 0 for the root's.
    pub parent: u64,
    /// Sequence since which it is the parent.
    pub parent_since: u64,
    /// Newest sequence.
    pub seq: u64,
    /// The realm's own snapshots.
    pub my_snaps: Vec<u64>,
    /// Snapshots of earlier parents.
    pub prior_parent_snaps: Vec<u64>,
}

impl Encode for SnapRealmInfo {
    fn encode(&self, w: &mut Writer) {
        for v in [self.ino, self.created, self.parent, self.parent_since, self.seq] {
            w.u64(v);
        }
        w.u32(self.my_snaps.len() as u32);
        w.u32(self.prior_parent_snaps.len() as u32);
        for v in self.my_snaps.iter().chain(&self.prior_parent_snaps) {
            w.u64(*v);
        }
    }
}

impl Decode for SnapRealmInfo {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let (ino, created, parent) = (r.u64()?, r.u64()?, r.u64()?);
        let (parent_since, seq) = (r.u64()?, r.u64()?);
        let (mine, prior) = (r.u32()? as usize, r.u32()? as usize);
        let mut snaps = |n: usize| {
            // No more is allocated than the input holds.
            let mut v = Vec::with_capacity(n.min(r.remaining() / 8));
            for _ in 0..n {
                v.push(r.u64()?);
            }
            Ok(v)
        };
        Ok(Self { ino, created, parent, parent_since, seq, my_snaps: snaps(mine)?, prior_parent_snaps: snaps(prior)? })
    }
}
