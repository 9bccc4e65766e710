//! Operations on the files of a file system, by paths.

use crate::volumes::Fail;
use base::errno::{self, EEXIST, EFBIG, EINVAL, ENAMETOOLONG, ENOENT, EOPNOTSUPP, ESTALE, Errno};
use base::{PoolId, SnapId};
use bytes::Bytes;
use client::core::mds::request::{Answer, Attrs, Cursor, Entry, Request, mode};
use client::core::striping::{Layout, object_name};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use wire::msg::osd_op::Extent;
use wire::types::{INLINE_NONE, InodeStat, SnapContext};

/// Longest path.
const PATH_MAX: usize = 64 << 10;
/// Bytes that are read or written at a time.
pub(super) const CHUNK: u64 = 4 << 20;

/// A future without the bounds that threads need.
pub(super) type Local<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Place of a file's data.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) pool: PoolId,
    pub(super) nspace: String,
    pub(super) oid: Bytes,
}

/// The file system below [`Fs`]: its MDS daemons, and the objects of its files.
pub(super) trait Backend {
    fn call(&self, r: Request) -> Local<'_, Result<Box<Answer>, Errno>>;
    /// Waits until answered changes are durable.
    fn sync(&self) -> Local<'_, ()>;
    /// Reads a range at a snapshot; what the object does not have is missing at the end.
    fn read(&self, o: Object, snap: SnapId, e: Extent) -> Local<'_, Result<Bytes, Errno>>;
    fn write(&self, o: Object, snapc: SnapContext, at: u64, data: Bytes) -> Local<'_, Result<(), Errno>>;
    fn pool_name(&self, pool: PoolId) -> Option<String>;
    /// Epoch of the newest OSD map.
    fn osd_epoch(&self) -> u32;
}

/// A file system.
#[derive(Clone)]
pub(super) struct Fs {
    pub(super) backend: Rc<dyn Backend>,
}

/// Status text of an error for which the manager has no words of its own.
pub(super) fn text(what: &str, path: &str, e: Errno) -> Fail {
    (e, format!("error in {what}: {path}: [Errno {}] {}", -e, errno::name(e)))
}

/// Joins a name to a path.
pub(super) fn join(path: &[u8], name: &[u8]) -> Bytes {
    [path, b"/", name].concat().into()
}

/// Copies of the entries' names, which do not keep the answers that they came in.
pub(super) fn names(all: &[Entry]) -> Vec<Bytes> {
    all.iter().map(|e| Bytes::copy_from_slice(&e.name)).collect()
}

/// The layout's pool; `None` if the inode has no layout of its own.
pub(super) fn pool_of(i: &InodeStat) -> Option<PoolId> {
    (i.layout.stripe_unit != 0).then(|| PoolId(i64::from(i.layout.pool)))
}

/// True for a directory.
pub(super) fn is_dir(i: &InodeStat) -> bool {
    i.mode & mode::TYPE == mode::DIR
}

impl Fs {
    /// Runs a request. Its path may lead through the snapshots of a directory, by an empty name: `DIR//SNAPSHOT/FILE`.
    pub(super) async fn call(&self, r: Request) -> Result<Box<Answer>, Errno> {
        if r.message().path.path.len() > PATH_MAX {
            return Err(ENAMETOOLONG);
        }
        match r.snapshots_of().map(<[u8]>::to_vec) {
            Some(dir) => Box::pin(self.on_inode(&dir, |ino| r.clone().from_dir(ino))).await,
            None => self.backend.call(r).await,
        }
    }

    /// Attributes of what is at a path.
    pub(super) async fn stat(&self, path: &[u8]) -> Result<InodeStat, Errno> {
        let a = self.call(Request::getattr(path)).await?;
        a.target.map(|t| *t).ok_or(ENOENT)
    }

    pub(super) async fn mkdir(&self, path: &[u8], mode: u32) -> Result<(), Errno> {
        self.call(Request::mkdir(path, mode)).await.map(|_| ())
    }

    /// Makes a directory and those on the way to it.
    pub(super) async fn mkdirs(&self, path: &str, mode: u32) -> Result<(), Errno> {
        let ends = path.match_indices('/').map(|(i, _)| i).filter(|i| *i > 0).chain([path.len()]);
        for end in ends {
            match self.mkdir(path.get(..end).unwrap_or_default().as_bytes(), mode).await {
                Ok(()) | Err(EEXIST) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    pub(super) async fn rmdir(&self, path: &[u8]) -> Result<(), Errno> {
        self.call(Request::rmdir(path)).await.map(|_| ())
    }

    pub(super) async fn unlink(&self, path: &[u8]) -> Result<(), Errno> {
        self.call(Request::unlink(path)).await.map(|_| ())
    }

    pub(super) async fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Errno> {
        let split = |path: &[u8]| {
            let cut = path.iter().rposition(|b| *b == b'/').map_or(0, |i| i + 1);
            let (dir, name) = path.split_at(cut);
            (dir.strip_suffix(b"/").unwrap_or(dir).to_vec(), name.to_vec())
        };
        let ((old_dir, old), (dir, name)) = (split(from), split(to));
        let (old_ino, ino) = (self.stat(&old_dir).await?.ino, self.stat(&dir).await?.ino);
        self.call(Request::rename((old_ino, &old), (ino, &name))).await.map(|_| ())
    }

    pub(super) async fn symlink(&self, target: &[u8], path: &[u8]) -> Result<(), Errno> {
        self.call(Request::symlink(target, path)).await.map(|_| ())
    }

    pub(super) async fn setattr(&self, path: &[u8], a: Attrs) -> Result<(), Errno> {
        self.call(Request::setattr(path, &a)).await.map(|_| ())
    }

    pub(super) async fn setxattr(&self, path: &[u8], name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let epoch = self.backend.osd_epoch();
        self.on_inode(path, |ino| Request::setxattr(ino, name, value, epoch)).await.map(|_| ())
    }

    /// A part of a directory, and the place of the next.
    pub(super) async fn page(&self, path: &[u8], at: &Cursor) -> Result<(Vec<Entry>, Option<Cursor>), Errno> {
        let a = self.call(Request::readdir(path, at)).await?;
        Ok((a.entries, a.next))
    }

    /// Entries of a directory that `keep` selects and names.
    pub(super) async fn list<T>(&self, path: &[u8], keep: impl FnMut(Entry) -> Option<T>) -> Result<Vec<T>, Errno> {
        self.first(path, usize::MAX, keep).await
    }

    /// The first `n` entries of a directory that `keep` selects and names; the rest of the directory is not read.
    pub(super) async fn first<T>(
        &self,
        path: &[u8],
        n: usize,
        mut keep: impl FnMut(Entry) -> Option<T>,
    ) -> Result<Vec<T>, Errno> {
        let mut out = Vec::new();
        let mut at = Some(Cursor::default());
        while let Some(from) = at.filter(|_| out.len() < n) {
            let (entries, next) = self.page(path, &from).await?;
            out.extend(entries.into_iter().filter(|e| e.name != "." && e.name != "..").filter_map(&mut keep));
            at = next;
        }
        out.truncate(n);
        Ok(out)
    }

    /// Names of the directories in a directory.
    pub(super) async fn dirs(&self, path: &[u8]) -> Result<Vec<String>, Errno> {
        self.list(path, |e| is_dir(&e.inode).then(|| String::from_utf8_lossy(&e.name).into_owned())).await
    }

    /// Runs a request on the inode at a path; once more if the MDS has forgotten the inode in between.
    async fn on_inode(&self, path: &[u8], r: impl Fn(u64) -> Request) -> Result<Box<Answer>, Errno> {
        let ino = self.stat(path).await?.ino;
        match self.call(r(ino)).await {
            Err(ESTALE) => {
                let ino = self.stat(path).await?.ino;
                self.call(r(ino)).await
            }
            other => other,
        }
    }

    pub(super) async fn mksnap(&self, path: &[u8], name: &str) -> Result<(), Errno> {
        self.on_inode(path, |ino| Request::mksnap(ino, name.as_bytes())).await.map(|_| ())
    }

    pub(super) async fn rmsnap(&self, path: &[u8], name: &str) -> Result<(), Errno> {
        self.on_inode(path, |ino| Request::rmsnap(ino, name.as_bytes())).await.map(|_| ())
    }

    /// Snapshots of a directory, without those of directories above it.
    pub(super) async fn snaps(&self, path: &[u8]) -> Result<Vec<String>, Errno> {
        let mut out = Vec::new();
        let mut at = Some(Cursor::default());
        while let Some(from) = at {
            let a = self.on_inode(path, |ino| Request::lssnap(ino, &from)).await?;
            let names = a.entries.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned());
            out.extend(names.filter(|n| !n.starts_with('_') && n != "." && n != ".."));
            at = a.next;
        }
        Ok(out)
    }

    /// Reads a range of a file; bytes that no object has are missing at the end.
    pub(super) async fn read_piece(&self, i: &InodeStat, from: u64, end: u64) -> Result<(u64, Bytes), Errno> {
        let layout = Layout::of(i).ok_or(EINVAL)?;
        let p = layout.piece(from, end.min(from.saturating_add(CHUNK)));
        let e = Extent {
            offset: p.at,
            length: p.len,
            truncate_size: layout.truncated(p.object, i.truncate_size),
            truncate_seq: i.truncate_seq,
        };
        let pool = pool_of(i).ok_or(EINVAL)?;
        let o = Object { pool, nspace: i.pool_ns.clone(), oid: object_name(i.ino, p.object) };
        let data = match self.backend.read(o, SnapId(i.snapid), e).await {
            Err(ENOENT) => Bytes::new(),
            r => r?,
        };
        Ok((p.len, data))
    }

    /// Data of a file that is kept in its inode; `None` if it is in objects.
    pub(super) async fn inline(&self, path: &[u8], i: &InodeStat) -> Result<Option<Bytes>, Errno> {
        if i.inline_version == INLINE_NONE || i.size == 0 {
            return Ok(None);
        }
        let a = self.call(Request::getattr_with_data(path)).await?;
        match a.target {
            Some(t) if t.inline_version == INLINE_NONE => Ok(None),
            Some(t) if !t.inline_data.is_empty() => Ok(Some(t.inline_data)),
            _ => Err(EOPNOTSUPP),
        }
    }

    /// Contents of a small file.
    pub(super) async fn read_file(&self, path: &str, most: u64) -> Result<Bytes, Errno> {
        let i = self.stat(path.as_bytes()).await?;
        if i.size > most {
            return Err(EFBIG);
        }
        if let Some(data) = self.inline(path.as_bytes(), &i).await? {
            return Ok(data);
        }
        let mut out = Vec::new();
        while (out.len() as u64) < i.size {
            let (len, data) = self.read_piece(&i, out.len() as u64, i.size).await?;
            let end = out.len() + usize::try_from(len).unwrap_or(0);
            out.extend_from_slice(&data);
            out.resize(end, 0);
        }
        Ok(out.into())
    }

    /// Makes an empty file in place of what is there; its attributes, and the context for its objects.
    pub(super) async fn make_file(&self, path: &[u8], mode: u32) -> Result<(InodeStat, SnapContext), Errno> {
        let made = match self.call(Request::mkfile(path, mode)).await {
            Err(EEXIST) => {
                self.unlink(path).await?;
                self.call(Request::mkfile(path, mode)).await
            }
            r => r,
        }?;
        let Answer { target, snapc, .. } = *made;
        match target {
            Some(t) => Ok((*t, snapc)),
            None => {
                // A repeated answer has no attributes.
                let a = self.call(Request::getattr(path)).await?;
                Ok((a.target.map(|t| *t).ok_or(ENOENT)?, a.snapc))
            }
        }
    }

    /// Writes a range of a file's objects.
    pub(super) async fn write_range(&self, i: &InodeStat, c: &SnapContext, at: u64, data: &Bytes) -> Result<(), Errno> {
        let layout = Layout::of(i).ok_or(EINVAL)?;
        let pool = pool_of(i).ok_or(EINVAL)?;
        let (mut from, end) = (at, at + data.len() as u64);
        while from < end {
            let p = layout.piece(from, end);
            let part = usize::try_from(from - at).unwrap_or(0)..usize::try_from(from - at + p.len).unwrap_or(0);
            let o = Object { pool, nspace: i.pool_ns.clone(), oid: object_name(i.ino, p.object) };
            self.backend.write(o, c.clone(), p.at, data.slice(part)).await?;
            from += p.len;
        }
        Ok(())
    }

    /// Replaces a small file at once: whoever reads it sees all of the old or all of the new contents.
    pub(super) async fn write_file(&self, path: &str, data: Bytes, mode: u32) -> Result<(), Errno> {
        let tmp = format!("{path}.tmp");
        let (i, snapc) = self.make_file(tmp.as_bytes(), mode).await?;
        self.write_range(&i, &snapc, 0, &data).await?;
        self.setattr(tmp.as_bytes(), Attrs { size: Some(data.len() as u64), ..Attrs::default() }).await?;
        self.rename(tmp.as_bytes(), path.as_bytes()).await
    }

    /// Name of the pool of a path: that of the nearest directory with a layout.
    pub(super) async fn ancestor_pool(&self, path: &str) -> Result<String, Errno> {
        let mut at = path;
        loop {
            if let Some(pool) = pool_of(&self.stat(at.as_bytes()).await?) {
                return self.backend.pool_name(pool).ok_or(ENOENT);
            }
            if at.is_empty() {
                return Err(errno::ENODATA);
            }
            at = at.rsplit_once('/').map_or("", |(parent, _)| parent);
        }
    }
}
