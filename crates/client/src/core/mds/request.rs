//! Requests to an MDS, and what its replies say.

use base::{SnapId, Utime};
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::msg::{FilePath, MClientReply, MClientRequest, REQUEST_ARGS};
use wire::types::{DirStat, InodeStat, LeaseStat, SnapContext, SnapRealmInfo};
use wire::{DecodeError, Reader};

type Result<T> = std::result::Result<T, DecodeError>;

/// Inode of the root directory.
pub const ROOT: u64 = 1;
/// Entries of a directory per reply.
pub const PAGE: u32 = 1024;
/// A listing goes on after its last name also if the fragment was split meanwhile.
const BITFLAGS: u32 = 1;
/// Bytes of entries per reply.
const PAGE_BYTES: u32 = 1 << 20;
/// Attributes that `getattr` asks for: owner and mode, links, extended attributes, size and times. The MDS takes them
/// back from clients that may have newer ones.
const STAT_MASK: u32 = 1 << 2 | 1 << 4 | 1 << 6 | 1 << 8;
/// Also the data of a file that is kept in its inode.
const INLINE_MASK: u32 = STAT_MASK | 1 << 11;

/// Numbers of operations (`CEPH_MDS_OP_*`).
pub mod op {
    /// Attributes of a path.
    pub const GETATTR: u32 = 0x101;
    /// Sets an extended attribute.
    pub const SETXATTR: u32 = 0x1105;
    /// Sets mode, owner, times or size.
    pub const SETATTR: u32 = 0x1108;
    /// Makes a file.
    pub const MKNOD: u32 = 0x1201;
    /// Removes a file.
    pub const UNLINK: u32 = 0x1203;
    /// Moves an entry.
    pub const RENAME: u32 = 0x1204;
    /// Makes a directory.
    pub const MKDIR: u32 = 0x1220;
    /// Removes an empty directory.
    pub const RMDIR: u32 = 0x1221;
    /// Makes a symbolic link.
    pub const SYMLINK: u32 = 0x1222;
    /// A part of a directory.
    pub const READDIR: u32 = 0x305;
    /// Makes a snapshot.
    pub const MKSNAP: u32 = 0x1400;
    /// Removes a snapshot.
    pub const RMSNAP: u32 = 0x1401;
    /// A part of the list of snapshots.
    pub const LSSNAP: u32 = 0x402;
    /// Bit of operations that change something.
    pub const WRITE: u32 = 0x1000;
}

/// Bits of `setattr`.
mod set {
    pub(super) const MODE: u32 = 1;
    pub(super) const UID: u32 = 1 << 1;
    pub(super) const GID: u32 = 1 << 2;
    pub(super) const MTIME: u32 = 1 << 3;
    pub(super) const ATIME: u32 = 1 << 4;
    pub(super) const SIZE: u32 = 1 << 5;
}

/// Types of files in modes.
pub mod mode {
    /// Mask of the type.
    pub const TYPE: u32 = 0o170_000;
    /// A directory.
    pub const DIR: u32 = 0o040_000;
    /// A regular file.
    pub const FILE: u32 = 0o100_000;
    /// A symbolic link.
    pub const LINK: u32 = 0o120_000;
}

/// Attributes to set; those that are `None` stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attrs {
    /// Permission bits.
    pub mode: Option<u32>,
    /// User.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Times of the last change and of the last read.
    pub times: Option<(Utime, Utime)>,
    /// Size in bytes.
    pub size: Option<u64>,
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The message, without what the session fills in.
    pub(super) m: MClientRequest,
}

/// Path from the root. Leading slashes would lead to snapshots and are left out.
fn from_root(path: &[u8]) -> FilePath {
    let start = path.iter().position(|b| *b != b'/').unwrap_or(path.len());
    FilePath { ino: ROOT, path: Bytes::copy_from_slice(path.get(start..).unwrap_or_default()) }
}

fn put(args: &mut [u8; REQUEST_ARGS], at: usize, v: &[u8]) {
    if let Some(to) = args.get_mut(at..at + v.len()) {
        to.copy_from_slice(v);
    }
}

impl Request {
    fn new(op: u32, path: &[u8]) -> Self {
        Self { m: MClientRequest { op, path: from_root(path), ..MClientRequest::default() } }
    }

    fn with(mut self, words: &[u32]) -> Self {
        for (i, w) in words.iter().enumerate() {
            put(&mut self.m.args, 4 * i, &w.to_le_bytes());
        }
        self
    }

    /// Path of the directory whose snapshots the request's path leads through, if it has one. An MDS takes such a path only
    /// from that directory on: see [`Request::from_dir`].
    #[must_use]
    pub fn snapshots_of(&self) -> Option<&[u8]> {
        let path = &self.m.path.path;
        let at = path.windows(2).position(|w| w == b"//").filter(|_| self.m.path.ino == ROOT)?;
        path.get(..at)
    }

    /// The request from the directory of [`Request::snapshots_of`] on, which has the inode `ino`.
    #[must_use]
    pub fn from_dir(mut self, ino: u64) -> Self {
        if let Some(dir) = self.snapshots_of().map(<[u8]>::len) {
            self.m.path = FilePath { ino, path: self.m.path.path.slice(dir + 1..) };
        }
        self
    }

    /// Operation.
    #[must_use]
    pub fn op(&self) -> u32 {
        self.m.op
    }

    /// The message as it is sent, for models of an MDS.
    #[must_use]
    pub fn message(&self) -> &MClientRequest {
        &self.m
    }

    /// True if the request changes something.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.m.op & op::WRITE != 0
    }

    /// Attributes of what is at `path`; symbolic links are not followed.
    #[must_use]
    pub fn getattr(path: &[u8]) -> Self {
        Self::new(op::GETATTR, path).with(&[STAT_MASK])
    }

    /// The same, with the data of small files that are kept in their inode.
    #[must_use]
    pub fn getattr_with_data(path: &[u8]) -> Self {
        Self::new(op::GETATTR, path).with(&[INLINE_MASK])
    }

    /// Makes a directory.
    #[must_use]
    pub fn mkdir(path: &[u8], mode: u32) -> Self {
        Self::new(op::MKDIR, path).with(&[mode])
    }

    /// Makes an empty file.
    #[must_use]
    pub fn mkfile(path: &[u8], mode: u32) -> Self {
        Self::new(op::MKNOD, path).with(&[mode::FILE | mode & !mode::TYPE])
    }

    /// Makes a symbolic link at `path`.
    #[must_use]
    pub fn symlink(target: &[u8], path: &[u8]) -> Self {
        let mut r = Self::new(op::SYMLINK, path);
        r.m.path2.path = Bytes::copy_from_slice(target);
        r
    }

    /// Removes an empty directory.
    #[must_use]
    pub fn rmdir(path: &[u8]) -> Self {
        Self::new(op::RMDIR, path)
    }

    /// Removes a file or link.
    #[must_use]
    pub fn unlink(path: &[u8]) -> Self {
        Self::new(op::UNLINK, path)
    }

    /// Moves the entry `from` of a directory to `to`, each with the inode of its directory: an MDS refuses longer paths.
    #[must_use]
    pub fn rename(from: (u64, &[u8]), to: (u64, &[u8])) -> Self {
        let entry = |(ino, name): (u64, &[u8])| FilePath { ino, path: Bytes::copy_from_slice(name) };
        let mut r = Self::new(op::RENAME, b"");
        (r.m.path, r.m.path2) = (entry(to), entry(from));
        r
    }

    /// Sets an extended attribute, real or virtual, of the inode `ino`: for virtual ones an MDS does not look at the rest
    /// of a path. `osd_epoch` is an OSD map that has the pools that `value` names.
    #[must_use]
    pub fn setxattr(ino: u64, name: &[u8], value: &[u8], osd_epoch: u32) -> Self {
        let mut r = Self::new(op::SETXATTR, b"").with(&[0, osd_epoch]);
        r.m.path.ino = ino;
        r.m.path2.path = Bytes::copy_from_slice(name);
        r.m.data = Bytes::copy_from_slice(value);
        r
    }

    /// Sets attributes.
    #[must_use]
    pub fn setattr(path: &[u8], a: &Attrs) -> Self {
        let mut r = Self::new(op::SETATTR, path);
        let mut mask = 0;
        let mut word = |at: usize, v: Option<u32>, bit: u32| {
            if let Some(v) = v {
                put(&mut r.m.args, at, &v.to_le_bytes());
                mask |= bit;
            }
        };
        word(0, a.mode, set::MODE);
        word(4, a.uid, set::UID);
        word(8, a.gid, set::GID);
        if let Some((mtime, atime)) = a.times {
            word(12, Some(mtime.sec), set::MTIME);
            word(16, Some(mtime.nsec), set::MTIME);
            word(20, Some(atime.sec), set::ATIME);
            word(24, Some(atime.nsec), set::ATIME);
        }
        if let Some(size) = a.size {
            word(28, Some(size as u32), set::SIZE);
            word(32, Some((size >> 32) as u32), set::SIZE);
        }
        put(&mut r.m.args, 44, &mask.to_le_bytes());
        r
    }

    /// A part of a directory; `snaps`: of its snapshots, whose inode is then needed instead of a path.
    #[must_use]
    pub fn readdir(path: &[u8], from: &Cursor) -> Self {
        let mut r = Self::new(op::READDIR, path).with(&[from.frag, PAGE, PAGE_BYTES, BITFLAGS]);
        r.m.path2.path = from.last.clone();
        r
    }

    /// A part of the snapshots of the directory `ino`.
    #[must_use]
    pub fn lssnap(ino: u64, from: &Cursor) -> Self {
        let mut r = Self::new(op::LSSNAP, b"").with(&[0, PAGE, PAGE_BYTES]);
        r.m.path.ino = ino;
        r.m.path2.path = from.last.clone();
        r
    }

    fn snap(op: u32, ino: u64, name: &[u8]) -> Self {
        let mut r = Self::new(op, b"");
        // An empty name leads to the snapshots.
        r.m.path = FilePath { ino, path: [b"/", name].concat().into() };
        r
    }

    /// Makes a snapshot of the directory `ino`.
    #[must_use]
    pub fn mksnap(ino: u64, name: &[u8]) -> Self {
        Self::snap(op::MKSNAP, ino, name)
    }

    /// Removes a snapshot of the directory `ino`.
    #[must_use]
    pub fn rmsnap(ino: u64, name: &[u8]) -> Self {
        Self::snap(op::RMSNAP, ino, name)
    }
}

/// Place in a directory listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    frag: u32,
    last: Bytes,
}

/// Bits of a fragment that select entries.
const FRAG_BITS: u32 = 24;
/// The reply has the rest of the fragment.
const FRAG_END: u16 = 1;

impl Cursor {
    /// The place after a reply; `None` at the end.
    fn after(frag: u32, flags: u16, last: Option<&Entry>) -> Option<Self> {
        if flags & FRAG_END == 0
            && let Some(last) = last
        {
            return Some(Self { frag, last: last.name.clone() });
        }
        let (bits, value) = ((frag >> FRAG_BITS).min(FRAG_BITS), frag & ((1 << FRAG_BITS) - 1));
        let next = value.checked_add(1_u32 << (FRAG_BITS - bits)).filter(|v| bits > 0 && *v < 1 << FRAG_BITS)?;
        Some(Self { frag: bits << FRAG_BITS | next, last: Bytes::new() })
    }
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Name.
    pub name: Bytes,
    /// Attributes. Size and times of files may be behind those that clients have.
    pub inode: InodeStat,
}

/// Contents of a reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Inode of the request.
    pub target: Option<Box<InodeStat>>,
    /// Snapshot context for writes to the inode's objects.
    pub snapc: SnapContext,
    /// Entries of a directory.
    pub entries: Vec<Entry>,
    /// Where the listing goes on; `None` at its end.
    pub next: Option<Cursor>,
}

/// A capability that a reply gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) ino: u64,
    pub(super) cap_id: u64,
    pub(super) mseq: u32,
    pub(super) seq: u32,
}

fn given(i: &InodeStat, out: &mut Vec<Given>) {
    if i.snapid == SnapId::HEAD.0 && i.cap.cap_id != 0 {
        out.push(Given { ino: i.ino, cap_id: i.cap.cap_id, mseq: i.cap.mseq, seq: i.cap.seq });
    }
}

/// The context that the realms of an inode make: own snapshots, those of parents since they are parents, and those of
/// earlier parents.
fn context(realms: &[SnapRealmInfo]) -> SnapContext {
    let (mut snaps, mut seq) = (std::collections::BTreeSet::new(), 0);
    // From the root's realm inwards.
    for (i, r) in realms.iter().enumerate().rev() {
        let parents = if i + 1 < realms.len() { std::mem::take(&mut snaps) } else { Default::default() };
        snaps = r.my_snaps.iter().chain(&r.prior_parent_snaps).copied().collect();
        snaps.extend(parents.into_iter().filter(|s| *s >= r.parent_since));
        seq = r.seq;
    }
    SnapContext { seq: SnapId(seq), snaps: snaps.into_iter().rev().map(SnapId).collect() }
}

impl Answer {
    /// Takes a reply apart, and collects the capabilities that it gives.
    pub(super) fn of(op: u32, m: &MClientReply) -> Result<(Self, Vec<Given>)> {
        let mut caps = Vec::new();
        let mut a = Self::default();
        let mut r = Reader::shared(&m.trace);
        if m.is_dentry {
            let dir: InodeStat = r.get()?;
            given(&dir, &mut caps);
            r.get::<DirStat>()?;
            r.blob()?;
            r.get::<LeaseStat>()?;
        }
        if m.is_target {
            let target: InodeStat = r.get()?;
            given(&target, &mut caps);
            a.target = Some(Box::new(target));
        }
        let mut r = Reader::shared(&m.snap);
        let mut realms = Vec::new();
        while !r.is_empty() {
            realms.push(r.get()?);
        }
        a.snapc = context(&realms);
        if matches!(op, op::READDIR | op::LSSNAP) && m.result == 0 {
            let mut r = Reader::shared(&m.extra);
            let dir: DirStat = r.get()?;
            let (n, flags) = (r.u32()?, r.u16()?);
            for _ in 0..n {
                let name = r.blob()?;
                r.get::<LeaseStat>()?;
                let inode: InodeStat = r.get()?;
                given(&inode, &mut caps);
                a.entries.push(Entry { name, inode });
            }
            a.next = Cursor::after(dir.frag, flags, a.entries.last());
        }
        Ok((a, caps))
    }
}

/// Extended attributes of an inode.
///
/// # Errors
/// A [`wire::DecodeError`] if they are malformed.
pub fn xattrs(i: &InodeStat) -> Result<BTreeMap<Bytes, Bytes>> {
    if i.xattrs.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut r = Reader::shared(&i.xattrs);
    Ok(r.vec_with("xattrs", |r| Ok((r.blob()?, r.blob()?)))?.into_iter().collect())
}
