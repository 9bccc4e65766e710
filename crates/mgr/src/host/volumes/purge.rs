//! Removes what is in the trash.

use super::fs::{Fs, is_dir, join, names};
use super::group::Group;
use super::locked;
use super::subvolume::{Op, Subvolume};
use crate::host::images::uuid;
use crate::volumes::{TRASH, resolve};
use base::errno::{ENOENT, Errno};
use bytes::Bytes;
use client::core::mds::request::{Cursor, Entry, mode};
use std::cell::Cell;
use std::rc::Rc;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// Files that are removed at a time.
const FILES: usize = 16;
/// Deepest directory below an entry, and longest path, in bytes: what is deeper becomes an entry itself.
const DEPTH_MAX: usize = 256;
const PATH_MAX: usize = 32 << 10;

/// The first `n` entries of the trash that are wanted. A trash that is too long to be read shrinks, too.
pub(super) async fn entries(fs: &Fs, n: usize, wanted: impl Fn(&Bytes) -> bool) -> Result<Vec<Bytes>, Errno> {
    match fs.first(TRASH.as_bytes(), n, |e| Some(e.name).filter(&wanted)).await {
        Err(ENOENT) => Ok(Vec::new()),
        r => r,
    }
}

struct Frame {
    path: Bytes,
    /// Names of directories that are still to be removed.
    dirs: Vec<Bytes>,
}

/// Removes a directory with all in it.
async fn tree(fs: &Fs, path: &[u8]) -> Result<(), Errno> {
    let mut stack = vec![Frame { path: Bytes::copy_from_slice(path), dirs: Vec::new() }];
    while let Some(f) = stack.last_mut() {
        if let Some(d) = f.dirs.pop() {
            let path = join(&f.path, &d);
            if stack.len() >= DEPTH_MAX || path.len() > PATH_MAX {
                // An entry of its own, whose path is short again.
                fs.rename(&path, &join(TRASH.as_bytes(), uuid().as_bytes())).await?;
                continue;
            }
            stack.push(Frame { path, dirs: Vec::new() });
            continue;
        }
        // Always the first part that has something: what was listed before is gone.
        let mut found = Vec::new();
        let mut at = Some(Cursor::default());
        while let (true, Some(from)) = (found.is_empty(), at) {
            let (entries, next) = match fs.page(&f.path, &from).await {
                Err(ENOENT) => break,
                r => r?,
            };
            found = entries.into_iter().filter(|e| e.name != "." && e.name != "..").collect();
            at = next;
        }
        if found.is_empty() {
            match fs.rmdir(&f.path).await {
                Ok(()) | Err(ENOENT) => {}
                Err(e) => return Err(e),
            }
            stack.pop();
            continue;
        }
        let (dirs, files): (Vec<Entry>, Vec<Entry>) = found.into_iter().partition(|e| is_dir(&e.inode));
        f.dirs = names(&dirs);
        let path = f.path.clone();
        unlink(fs, &path, files).await?;
    }
    Ok(())
}

async fn unlink(fs: &Fs, dir: &Bytes, files: Vec<Entry>) -> Result<(), Errno> {
    let first = Rc::new(Cell::new(Ok(())));
    let mut running = JoinSet::new();
    for e in files {
        if running.len() >= FILES {
            // A task reports its error in `first`.
            let _ = running.join_next().await;
        }
        first.get()?;
        let (fs, first, path) = (fs.clone(), Rc::clone(&first), join(dir, &e.name));
        running.spawn_local(async move {
            match fs.unlink(&path).await {
                Ok(()) | Err(ENOENT) => {}
                Err(e) => first.set(Err(e)),
            }
        });
    }
    while running.join_next().await.is_some() {}
    first.get()
}

/// Purges an entry of the trash: a directory, or a link to the trash of a subvolume with retained snapshots.
pub(super) async fn purge(fs: &Fs, lock: &Mutex<()>, name: &[u8]) -> Result<(), Errno> {
    let path = join(TRASH.as_bytes(), name);
    let i = match fs.stat(&path).await {
        Err(ENOENT) => return Ok(()),
        r => r?,
    };
    match i.mode & mode::TYPE {
        mode::DIR => tree(fs, &path).await,
        mode::LINK => {
            let target = String::from_utf8_lossy(&i.symlink).into_owned();
            // Only what a subvolume moved to its trash.
            if let Some((base, _)) =
                target.split_once("/.trash/").filter(|(b, n)| resolve(b).is_some() && !n.contains('/'))
            {
                tree(fs, target.as_bytes()).await?;
                locked(lock, base_of(fs, base)).await??;
            }
            fs.unlink(&path).await
        }
        _ => fs.unlink(&path).await,
    }
}

/// Removes a subvolume of which nothing but its file was left.
async fn base_of(fs: &Fs, base: &str) -> Result<(), Errno> {
    let Some((group, name)) = resolve(base) else { return Ok(()) };
    let s = match Group::open(fs, &group).await {
        Ok(g) => Subvolume::open(fs, &g, &name, Op::Remove).await,
        Err(e) => Err(e),
    };
    let s = match s {
        Ok(s) => s,
        Err((ENOENT, _)) => return Ok(()),
        Err((e, _)) => return Err(e),
    };
    if s.is_purgeable(fs).await.map_err(|(e, _)| e)? { tree(fs, base.as_bytes()).await } else { Ok(()) }
}
