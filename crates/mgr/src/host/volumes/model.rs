//! A file system in memory, with snapshots, that answers requests as an MDS does. It can lose its client at any change.

use super::fs::{Backend, Local, Object};
use base::errno::{EEXIST, EINVAL, ENOENT, ENOTCONN, ENOTDIR, ENOTEMPTY, Errno};
use base::{PoolId, SnapId, Utime};
use bytes::Bytes;
use client::core::mds::request::{Answer, Entry, ROOT, Request, mode, op};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use wire::msg::FilePath;
use wire::msg::osd_op::Extent;
use wire::types::{INLINE_NONE, InodeStat, LegacyLayout, SnapContext};
use wire::{Features, Writer};

/// The data pools, by number.
pub(super) const POOLS: [(i64, &str); 2] = [(2, "data"), (3, "other")];
/// Bytes of an object.
const OBJECT: u32 = 1 << 16;

#[derive(Clone, Default)]
struct Node {
    inode: InodeStat,
    entries: BTreeMap<Bytes, u64>,
    xattrs: BTreeMap<Bytes, Bytes>,
}

#[derive(Clone, Default)]
struct Tree {
    nodes: BTreeMap<u64, Node>,
    objects: BTreeMap<Bytes, Vec<u8>>,
}

#[derive(Default)]
struct State {
    live: Tree,
    /// Snapshots by directory and name.
    snaps: BTreeMap<(u64, Bytes), (u64, Tree)>,
    last: u64,
    clock: u32,
}

/// The file system; see the module.
pub(super) struct Model {
    state: RefCell<State>,
    /// Changes until the client is lost.
    pub(super) left: Cell<u32>,
    /// Changes so far.
    pub(super) changes: Cell<u32>,
    /// Requests so far.
    pub(super) asked: Cell<u32>,
}

impl Model {
    pub(super) fn new() -> Self {
        let mut s = State { last: 1 << 40, ..State::default() };
        let mut root = Node::default();
        (root.inode.ino, root.inode.mode, root.inode.snapid) = (ROOT, mode::DIR | 0o755, SnapId::HEAD.0);
        root.inode.layout = layout(2);
        s.live.nodes.insert(ROOT, root);
        Self { state: RefCell::new(s), left: Cell::new(u32::MAX), changes: Cell::new(0), asked: Cell::new(0) }
    }

    /// Counts a change; an error once the client is lost.
    fn change(&self) -> Result<(), Errno> {
        let left = self.left.get().checked_sub(1).ok_or(ENOTCONN)?;
        self.left.set(left);
        self.changes.set(self.changes.get() + 1);
        Ok(())
    }

    /// Objects, to see what is left.
    pub(super) fn objects(&self) -> usize {
        self.state.borrow().live.objects.len()
    }
}

fn layout(pool: u32) -> LegacyLayout {
    LegacyLayout { stripe_unit: OBJECT, stripe_count: 1, object_size: OBJECT, pool, ..LegacyLayout::default() }
}

impl State {
    /// Tree, snapshot and inode of a path. As an MDS, which takes the empty name that leads to snapshots only in front.
    fn walk(&self, ino: u64, path: &[u8]) -> Result<(&Tree, u64, u64), Errno> {
        let (mut tree, mut snap, mut at) = (&self.live, SnapId::HEAD.0, ino);
        let mut rest = path;
        if let Some(path) = path.strip_prefix(b"/") {
            let end = path.iter().position(|b| *b == b'/').unwrap_or(path.len());
            let (id, t) = self.snaps.get(&(at, Bytes::copy_from_slice(&path[..end]))).ok_or(ENOENT)?;
            (tree, snap, rest) = (t, *id, path.get(end + 1..).unwrap_or_default());
        }
        for n in rest.split(|b| *b == b'/').filter(|_| !rest.is_empty()) {
            if n.is_empty() {
                return Err(EINVAL);
            }
            let node = tree.nodes.get(&at).ok_or(ENOENT)?;
            if node.inode.mode & mode::TYPE != mode::DIR {
                return Err(ENOTDIR);
            }
            at = *node.entries.get(n).ok_or(ENOENT)?;
        }
        tree.nodes.get(&at).ok_or(ENOENT)?;
        Ok((tree, snap, at))
    }

    /// Directory and name of an entry, which is given in one of two ways: an inode and a name, or a path from the root.
    fn parent_of(&self, p: &FilePath) -> Result<(u64, Bytes), Errno> {
        if p.ino == ROOT { self.parent(&p.path) } else { Ok((p.ino, p.path.clone())) }
    }

    fn parent(&self, path: &[u8]) -> Result<(u64, Bytes), Errno> {
        let cut = path.iter().rposition(|b| *b == b'/');
        let (dir, name) = cut.map_or((&b""[..], path), |i| (&path[..i], &path[i + 1..]));
        Ok((self.walk(ROOT, dir)?.2, Bytes::copy_from_slice(name)))
    }

    fn stat(tree: &Tree, snap: u64, ino: u64) -> Result<InodeStat, Errno> {
        let node = tree.nodes.get(&ino).ok_or(ENOENT)?;
        let mut i = node.inode.clone();
        i.snapid = snap;
        let mut w = Writer::new(Features::PACIFIC);
        w.u32(u32::try_from(node.xattrs.len()).unwrap_or(0));
        for (k, v) in &node.xattrs {
            w.blob(k);
            w.blob(v);
        }
        i.xattrs = w.into_bytes();
        Ok(i)
    }

    fn add(&mut self, path: &[u8], m: u32, symlink: &[u8]) -> Result<InodeStat, Errno> {
        let (dir, name) = self.parent(path)?;
        self.last += 1;
        let ino = self.last;
        let parent = self.live.nodes.get_mut(&dir).ok_or(ENOENT)?;
        if parent.entries.contains_key(&name) {
            return Err(EEXIST);
        }
        parent.entries.insert(name, ino);
        let mut layout = parent.inode.layout.clone();
        let nspace = parent.inode.pool_ns.clone();
        let is_dir = m & mode::TYPE == mode::DIR;
        if layout.stripe_unit == 0 {
            layout = self::layout(2);
        }
        let mut n = Node::default();
        self.clock += 1;
        n.inode.ctime = Utime { sec: self.clock, nsec: 0 };
        (n.inode.ino, n.inode.mode, n.inode.inline_version) = (ino, m, INLINE_NONE);
        n.inode.symlink = Bytes::copy_from_slice(symlink);
        if !is_dir {
            (n.inode.layout, n.inode.pool_ns) = (layout, nspace);
        }
        self.live.nodes.insert(ino, n);
        Self::stat(&self.live, SnapId::HEAD.0, ino)
    }

    fn remove(&mut self, path: &FilePath) -> Result<(), Errno> {
        let (dir, name) = self.parent_of(path)?;
        let ino = *self.live.nodes.get(&dir).and_then(|d| d.entries.get(&name)).ok_or(ENOENT)?;
        let snaps = self.snaps.keys().any(|(at, _)| *at == ino);
        if snaps || self.live.nodes.get(&ino).is_some_and(|n| !n.entries.is_empty()) {
            return Err(ENOTEMPTY);
        }
        self.live.nodes.remove(&ino);
        let own = format!("{ino:x}.");
        self.live.objects.retain(|oid, _| !oid.starts_with(own.as_bytes()));
        if let Some(d) = self.live.nodes.get_mut(&dir) {
            d.entries.remove(&name);
        }
        Ok(())
    }

    /// As an MDS, which refuses paths of several names here.
    fn rename(&mut self, from: &FilePath, to: &FilePath) -> Result<(), Errno> {
        if [from, to].iter().any(|p| p.path.is_empty() || p.path.contains(&b'/')) {
            return Err(EINVAL);
        }
        let (old_dir, old) = self.parent_of(from)?;
        let (dir, name) = self.parent_of(to)?;
        let ino = *self.live.nodes.get(&old_dir).and_then(|d| d.entries.get(&old)).ok_or(ENOENT)?;
        if self.live.nodes.get(&dir).is_some_and(|d| d.entries.contains_key(&name)) {
            self.remove(to)?;
        }
        if let Some(d) = self.live.nodes.get_mut(&old_dir) {
            d.entries.remove(&old);
        }
        if let Some(d) = self.live.nodes.get_mut(&dir) {
            d.entries.insert(name, ino);
        }
        Ok(())
    }

    fn setxattr(&mut self, ino: u64, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let text = String::from_utf8_lossy(value).into_owned();
        let n = self.live.nodes.get_mut(&ino).ok_or(ENOENT)?;
        match name {
            b"ceph.quota.max_bytes" => n.inode.quota.max_bytes = text.parse().map_err(|_| EINVAL)?,
            b"ceph.quota.max_files" => n.inode.quota.max_files = text.parse().map_err(|_| EINVAL)?,
            b"ceph.dir.layout.pool" => {
                let id = POOLS.iter().find(|(_, p)| *p == text).ok_or(EINVAL)?.0;
                n.inode.layout = layout(u32::try_from(id).unwrap_or(0));
            }
            b"ceph.dir.layout.pool_namespace" => {
                if n.inode.layout.stripe_unit == 0 {
                    n.inode.layout = layout(2);
                }
                n.inode.pool_ns = text;
            }
            _ => {
                n.xattrs.insert(Bytes::copy_from_slice(name), Bytes::copy_from_slice(value));
            }
        }
        Ok(())
    }

    fn setattr(&mut self, path: &[u8], args: &[u8]) -> Result<(), Errno> {
        let ino = self.walk(ROOT, path)?.2;
        let word = |at: usize| u32::from_le_bytes(args[at..at + 4].try_into().unwrap());
        let (i, mask) = (&mut self.live.nodes.get_mut(&ino).ok_or(ENOENT)?.inode, word(44));
        if mask & 1 != 0 {
            i.mode = i.mode & mode::TYPE | word(0) & 0o7777;
        }
        if mask & 2 != 0 {
            i.uid = word(4);
        }
        if mask & 4 != 0 {
            i.gid = word(8);
        }
        if mask & 8 != 0 {
            i.mtime = Utime { sec: word(12), nsec: word(16) };
        }
        if mask & 32 != 0 {
            i.size = u64::from(word(28)) | u64::from(word(32)) << 32;
            i.mtime = Utime { sec: 99, nsec: 0 };
        }
        Ok(())
    }

    /// A listing in two parts at most.
    fn list(&self, r: &Request, snaps: bool) -> Result<Answer, Errno> {
        let m = r.message();
        let mut all = Vec::new();
        if snaps {
            for (at, name) in self.snaps.keys() {
                if *at == m.path.ino {
                    all.push(Entry { name: name.clone(), inode: Self::stat(&self.live, SnapId::HEAD.0, *at)? });
                }
            }
        } else {
            let (tree, snap, ino) = self.walk(m.path.ino, &m.path.path)?;
            for (name, ino) in &tree.nodes.get(&ino).ok_or(ENOENT)?.entries {
                all.push(Entry { name: name.clone(), inode: Self::stat(tree, snap, *ino)? });
            }
        }
        Ok(Answer { entries: all, ..Answer::default() })
    }

    fn snap(&mut self, ino: u64, path: &[u8], make: bool) -> Result<(), Errno> {
        let key = (ino, Bytes::copy_from_slice(path.strip_prefix(b"/").ok_or(EINVAL)?));
        if !make {
            return self.snaps.remove(&key).map(|_| ()).ok_or(ENOENT);
        }
        if self.snaps.contains_key(&key) {
            return Err(EEXIST);
        }
        self.last += 1;
        self.snaps.insert(key, (self.last, self.live.clone()));
        Ok(())
    }

    fn run(&mut self, r: &Request) -> Result<Answer, Errno> {
        let m = r.message();
        let word = u32::from_le_bytes(m.args[..4].try_into().unwrap());
        let path = &m.path.path[..];
        let mut a = Answer::default();
        match m.op {
            op::GETATTR => {
                let (tree, snap, ino) = self.walk(m.path.ino, path)?;
                a.target = Some(Box::new(Self::stat(tree, snap, ino)?));
            }
            op::MKDIR => a.target = Some(Box::new(self.add(path, mode::DIR | word, b"")?)),
            op::MKNOD => a.target = Some(Box::new(self.add(path, word, b"")?)),
            op::SYMLINK => a.target = Some(Box::new(self.add(path, mode::LINK | 0o777, &m.path2.path)?)),
            op::RMDIR | op::UNLINK => self.remove(&m.path)?,
            op::RENAME => self.rename(&m.path2, &m.path)?,
            // Virtual attributes are those of the inode, whatever path follows.
            op::SETXATTR => self.setxattr(m.path.ino, &m.path2.path, &m.data)?,
            op::SETATTR => self.setattr(path, &m.args)?,
            op::READDIR => a = self.list(r, false)?,
            op::LSSNAP => a = self.list(r, true)?,
            op::MKSNAP | op::RMSNAP => self.snap(m.path.ino, path, m.op == op::MKSNAP)?,
            _ => return Err(EINVAL),
        }
        Ok(a)
    }
}

impl Backend for Model {
    fn call(&self, r: Request) -> Local<'_, Result<Box<Answer>, Errno>> {
        Box::pin(async move {
            // As over a network, others run in between.
            tokio::task::yield_now().await;
            self.asked.set(self.asked.get() + 1);
            if r.writes() {
                self.change()?;
            } else if self.left.get() == 0 {
                return Err(ENOTCONN);
            }
            self.state.borrow_mut().run(&r).map(Box::new)
        })
    }

    fn sync(&self) -> Local<'_, ()> {
        Box::pin(async {})
    }

    fn read(&self, o: Object, snap: SnapId, e: Extent) -> Local<'_, Result<Bytes, Errno>> {
        Box::pin(async move {
            let s = self.state.borrow();
            let found = s.snaps.values().find(|(id, _)| *id == snap.0).map_or(&s.live, |(_, t)| t);
            let data = found.objects.get(&o.oid).ok_or(ENOENT)?;
            let (from, to) = (e.offset as usize, (e.offset + e.length) as usize);
            Ok(Bytes::copy_from_slice(data.get(from.min(data.len())..to.min(data.len())).unwrap_or_default()))
        })
    }

    fn write(&self, o: Object, _: SnapContext, at: u64, data: Bytes) -> Local<'_, Result<(), Errno>> {
        Box::pin(async move {
            self.change()?;
            let mut s = self.state.borrow_mut();
            let to = s.live.objects.entry(o.oid).or_default();
            let end = at as usize + data.len();
            to.resize(end.max(to.len()), 0);
            to[at as usize..end].copy_from_slice(&data);
            Ok(())
        })
    }

    fn pool_name(&self, pool: PoolId) -> Option<String> {
        POOLS.iter().find(|(id, _)| *id == pool.0).map(|(_, n)| (*n).to_owned())
    }

    fn osd_epoch(&self) -> u32 {
        1
    }
}
