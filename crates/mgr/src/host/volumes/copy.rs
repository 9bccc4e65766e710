//! Copies a tree of a snapshot: directories, files with their holes, symbolic links, owners, modes, times and extended
//! attributes.
//!
//! A copy that was interrupted goes on: a file with the size and the time of its source is complete, because the time
//! is set last. Other files are made anew.

use super::fs::{CHUNK, Fs, is_dir, join, names};
use base::errno::{EEXIST, EINTR, ENAMETOOLONG, ENOENT, Errno};
use bytes::Bytes;
use client::core::mds::request::{Attrs, Cursor, Entry, mode, xattrs};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tokio::task::JoinSet;
use wire::types::InodeStat;

/// Files that are copied at a time.
const FILES: usize = 8;
/// Deepest directory.
const DEPTH_MAX: usize = 1024;
/// Bytes of zeros that are left out.
const HOLE: usize = 64 << 10;
/// Attributes that say where data is or how large it may be; they are not the user's.
const OURS: &[u8] = b"ceph.";

/// Progress of a copy, and the wish to end it.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) canceled: Cell<bool>,
    pub(super) files: Cell<u64>,
    pub(super) bytes: Cell<u64>,
    pub(super) all_files: Cell<u64>,
    pub(super) all_bytes: Cell<u64>,
}

impl Progress {
    fn check(&self) -> Result<(), Errno> {
        if self.canceled.get() { Err(EINTR) } else { Ok(()) }
    }
}

struct Frame {
    from: Bytes,
    to: Bytes,
    inode: InodeStat,
    /// The next part of the directory.
    next: Option<Cursor>,
    /// Names of directories of the last part that are still to be copied.
    dirs: Vec<Bytes>,
}

fn attrs(i: &InodeStat) -> Attrs {
    Attrs {
        mode: Some(i.mode & 0o7777),
        uid: Some(i.uid),
        gid: Some(i.gid),
        times: Some((i.mtime, i.atime)),
        size: None,
    }
}

async fn copy_xattrs(fs: &Fs, from: &InodeStat, to: &[u8]) -> Result<(), Errno> {
    for (name, value) in xattrs(from).unwrap_or_default() {
        if !name.starts_with(OURS) {
            fs.setxattr(to, &name, &value).await?;
        }
    }
    Ok(())
}

/// Copies what is in the directory `from` of a snapshot to the directory `to`, which exists.
pub(super) async fn tree(fs: &Fs, from: &[u8], to: &[u8], progress: &Rc<Progress>) -> Result<(), Errno> {
    let inode = fs.stat(from).await?;
    progress.all_files.set(inode.rfiles);
    progress.all_bytes.set(inode.rbytes);
    let frame = |from: &[u8], to: &[u8], inode: InodeStat| Frame {
        from: Bytes::copy_from_slice(from),
        to: Bytes::copy_from_slice(to),
        inode,
        next: Some(Cursor::default()),
        dirs: Vec::new(),
    };
    let mut stack = vec![frame(from, to, inode)];
    let mut top = true;
    while let Some(f) = stack.last_mut() {
        progress.check()?;
        if let Some(d) = f.dirs.pop() {
            let (from, to) = (join(&f.from, &d), join(&f.to, &d));
            // The attributes in a listing may be behind those that clients had.
            let inode = fs.stat(&from).await?;
            match fs.mkdir(&to, inode.mode & 0o7777 | 0o700).await {
                Ok(()) | Err(EEXIST) => {}
                Err(e) => return Err(e),
            }
            if stack.len() >= DEPTH_MAX {
                return Err(ENAMETOOLONG);
            }
            stack.push(frame(&from, &to, inode));
            top = false;
        } else if let Some(at) = f.next.take() {
            let (entries, next) = fs.page(&f.from, &at).await?;
            f.next = next;
            let (dirs, rest): (Vec<Entry>, Vec<Entry>) =
                entries.into_iter().filter(|e| e.name != "." && e.name != "..").partition(|e| is_dir(&e.inode));
            f.dirs = names(&dirs);
            let (from, to) = (f.from.clone(), f.to.clone());
            files(fs, &from, &to, rest, progress).await?;
        } else if let Some(f) = stack.pop() {
            // Last, because entries change the times.
            copy_xattrs(fs, &f.inode, &f.to).await?;
            let mut a = attrs(&f.inode);
            if stack.is_empty() && top {
                a = Attrs { times: a.times, ..Attrs::default() };
            }
            fs.setattr(&f.to, a).await?;
        }
    }
    Ok(())
}

/// Copies files and links of a directory, some at a time.
async fn files(fs: &Fs, from: &Bytes, to: &Bytes, all: Vec<Entry>, progress: &Rc<Progress>) -> Result<(), Errno> {
    let mut running = JoinSet::new();
    let first = Rc::new(RefCell::new(Ok(())));
    for e in all {
        if running.len() >= FILES {
            // A task reports its error in `first`.
            let _ = running.join_next().await;
        }
        progress.check()?;
        (*first.borrow())?;
        let (fs, progress, first) = (fs.clone(), Rc::clone(progress), Rc::clone(&first));
        let (from, to) = (join(from, &e.name), join(to, &e.name));
        running.spawn_local(async move {
            if let Err(e) = file(&fs, &from, &to, &e.inode, &progress).await {
                *first.borrow_mut() = Err(e);
            }
        });
    }
    while running.join_next().await.is_some() {}
    first.replace(Ok(()))
}

async fn file(fs: &Fs, from: &[u8], to: &[u8], listed: &InodeStat, progress: &Progress) -> Result<(), Errno> {
    match listed.mode & mode::TYPE {
        mode::LINK => {
            let i = fs.stat(from).await?;
            match fs.symlink(&i.symlink, to).await {
                Ok(()) | Err(EEXIST) => {}
                Err(e) => return Err(e),
            }
            fs.setattr(to, Attrs { mode: None, ..attrs(&i) }).await?;
        }
        mode::FILE => regular(fs, from, to, progress).await?,
        // As Ceph's manager: devices, sockets and pipes are left out.
        _ => tracing::debug!("mgr: {} is not copied", String::from_utf8_lossy(from)),
    }
    progress.files.set(progress.files.get() + 1);
    Ok(())
}

async fn regular(fs: &Fs, from: &[u8], to: &[u8], progress: &Progress) -> Result<(), Errno> {
    let src = fs.stat(from).await?;
    match fs.stat(to).await {
        Ok(d) if d.size == src.size && d.mtime == src.mtime && d.mode == src.mode && d.uid == src.uid => {
            progress.bytes.set(progress.bytes.get() + src.size);
            return Ok(());
        }
        Ok(_) | Err(ENOENT) => {}
        Err(e) => return Err(e),
    }
    let (dst, snapc) = fs.make_file(to, src.mode).await?;
    if let Some(data) = fs.inline(from, &src).await? {
        fs.write_range(&dst, &snapc, 0, &data).await?;
    } else {
        let mut at = 0;
        while at < src.size {
            progress.check()?;
            let (len, data) = fs.read_piece(&src, at, src.size.min(at.saturating_add(CHUNK))).await?;
            for (skip, part) in parts(&data) {
                fs.write_range(&dst, &snapc, at + skip as u64, &part).await?;
            }
            at += len.max(1);
            progress.bytes.set(progress.bytes.get() + len);
        }
    }
    copy_xattrs(fs, &src, to).await?;
    if src.size > 0 {
        fs.setattr(to, Attrs { size: Some(src.size), ..Attrs::default() }).await?;
    }
    // Setting the size sets the time, so the times follow.
    fs.setattr(to, attrs(&src)).await
}

/// Parts of data that are not zeros, with their offsets.
fn parts(data: &Bytes) -> Vec<(usize, Bytes)> {
    let mut out: Vec<(usize, Bytes)> = Vec::new();
    let mut begin = None;
    let mut at = 0;
    for block in data.chunks(HOLE) {
        let zero = block.iter().all(|b| *b == 0);
        match (zero, begin) {
            (false, None) => begin = Some(at),
            (true, Some(b)) => {
                out.push((b, data.slice(b..at)));
                begin = None;
            }
            _ => {}
        }
        at += block.len();
    }
    if let Some(b) = begin {
        out.push((b, data.slice(b..at)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_left_out() {
        let mut d = vec![0; 5 * HOLE + 7];
        assert!(parts(&d.clone().into()).is_empty() && parts(&Bytes::new()).is_empty());
        d[HOLE] = 1;
        d[3 * HOLE - 1] = 1;
        d[5 * HOLE + 6] = 1;
        let all = parts(&d.into());
        assert_eq!(all.iter().map(|(at, p)| (*at, p.len())).collect::<Vec<_>>(), [(HOLE, 2 * HOLE), (5 * HOLE, 7)]);
    }
}
