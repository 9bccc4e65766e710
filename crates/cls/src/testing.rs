//! An in-memory object for tests of classes; its vectors are atomic, as on an OSD.
//!
//! [`MemCtx::exec`] runs one method as a vector of its own. Its writes are kept only if it succeeds. A method that only
//! reads gets `ENOENT` for an absent object without being called, as on an OSD. Data, xattrs and omap are read in their
//! state before the vector; existence and size are current.

use crate::ctx::{ClsError, ClsResult, ObjectCtx, Watcher};
use crate::parts::{Parts, Room};
use crate::registry::find;
use base::errno::{EEXIST, EFBIG, ENODATA, ENOENT, EOPNOTSUPP, Errno};
use base::rng::Rng;
use base::{AddrKind, EntityAddr, EntityKind, EntityName, Utime};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The state of the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemObject {
    /// Data.
    pub data: Vec<u8>,
    /// User xattrs.
    pub xattrs: BTreeMap<Bytes, Bytes>,
    /// Omap header.
    pub header: Bytes,
    /// Omap entries.
    pub omap: BTreeMap<Bytes, Bytes>,
    /// Time of the last change.
    pub mtime: Utime,
}

/// The long calls of a running vector. Nothing runs in a context that is cloned.
#[derive(Debug, Default)]
struct Running(Parts);

impl Clone for Running {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// An object and its environment. The fields are public for tests to set.
#[derive(Clone, Debug)]
pub struct MemCtx {
    /// The object, if it exists.
    pub object: Option<MemObject>,
    /// Current time.
    pub now: Utime,
    /// Name and address of the sender.
    pub origin: (EntityName, EntityAddr),
    /// User version of the PG.
    pub version: u64,
    /// Index of the op in the vector.
    pub subop: u32,
    /// Operations that methods have done on the object so far, which an OSD adds to the op index.
    pub nested: u32,
    /// Watchers of the object.
    pub watchers: Vec<Watcher>,
    /// Snapshot sequence of the object.
    pub snapset_seq: u64,
    /// Snapshot context of the sender.
    pub snapc: (u64, Vec<u64>),
    /// Most entries one `omap_list` returns, to exercise paging.
    pub page: usize,
    /// Entries that `omap_list` has returned so far.
    pub rows_read: usize,
    /// Room of the parts of a long call.
    pub room: Room,
    /// Most entries that one part of a long call has listed for it so far.
    pub part_max: usize,
    /// Parts of long calls that ended before the call did.
    pub pauses: usize,
    /// Entries listed for a long call in the present part.
    listed: usize,
    parts: Running,
    /// Whether log lines are suppressed.
    pub quiet: bool,
    /// The object before the running vector.
    before: Option<Option<MemObject>>,
    rng: Rng,
}

impl Default for MemCtx {
    fn default() -> Self {
        let addr = EntityAddr {
            kind: AddrKind::MSGR2,
            nonce: 7,
            sock: Some(std::net::SocketAddr::from(([127, 0, 0, 1], 1234))),
        };
        Self {
            object: None,
            now: Utime { sec: 1_700_000_000, nsec: 0 },
            origin: (EntityName::new(EntityKind::CLIENT, 4100), addr),
            version: 1,
            subop: 0,
            nested: 0,
            watchers: Vec::new(),
            snapset_seq: 0,
            snapc: (0, Vec::new()),
            page: 3,
            rows_read: 0,
            room: Room::default(),
            part_max: 0,
            pauses: 0,
            listed: 0,
            parts: Running::default(),
            quiet: false,
            before: None,
            rng: Rng::new(1),
        }
    }
}

impl MemCtx {
    /// A context without an object.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends as client `num` from now on.
    pub fn client(&mut self, num: i64) -> &mut Self {
        self.origin.0 = EntityName::new(EntityKind::CLIENT, num);
        self
    }

    /// Advances the time.
    pub fn pass(&mut self, seconds: u32) {
        self.now.sec += seconds;
    }

    /// Runs `class.method` as a vector of its own; an error is the errno.
    pub fn exec(&mut self, class: &str, method: &str, input: impl Into<Bytes>) -> Result<Bytes, Errno> {
        self.exec_full(class, method, input).map(|o| o.out).map_err(|e| match e {
            ClsError::Fail { errno, .. } => errno,
            ClsError::Wait => panic!("memory never waits"),
        })
    }

    /// As [`MemCtx::exec`], with the return value and any error.
    pub fn exec_full(&mut self, class: &str, method: &str, input: impl Into<Bytes>) -> ClsResult<crate::Output> {
        let m = find(class.as_bytes(), method.as_bytes()).ok_or(ClsError::from(EOPNOTSUPP))?;
        if !m.flags.writes() && self.object.is_none() {
            return Err(ENOENT.into());
        }
        let before = self.object.clone();
        self.before = Some(before.clone());
        let input = input.into();
        let random = self.rng.clone();
        self.parts = Running::default();
        let r = loop {
            self.listed = 0;
            self.parts.0.begin(self.room);
            let r = m.run(self, &input);
            if !(r == Err(ClsError::Wait) && self.parts.0.paused()) {
                break r;
            }
            // As on an OSD, the next part runs the vector anew.
            self.pauses += 1;
            (self.object, self.rng) = (before.clone(), random.clone());
        };
        self.before = None;
        if r.is_err() {
            self.object = before;
        } else if m.flags.writes() {
            self.version += 1;
            if let Some(o) = &mut self.object {
                o.mtime = self.now;
            }
        }
        r
    }

    fn get(&self) -> ClsResult<&MemObject> {
        self.object.as_ref().ok_or(ENOENT.into())
    }

    /// The stored state: the object before the vector.
    fn stored(&self) -> ClsResult<&MemObject> {
        self.before.as_ref().unwrap_or(&self.object).as_ref().ok_or(ENOENT.into())
    }

    fn get_mut(&mut self) -> ClsResult<&mut MemObject> {
        self.object.as_mut().ok_or(ENOENT.into())
    }

    fn make(&mut self) -> &mut MemObject {
        self.object.get_or_insert_default()
    }
}

fn own(b: &[u8]) -> Bytes {
    Bytes::copy_from_slice(b)
}

/// The OSD's `osd_max_object_size`.
fn inside(size: u64) -> ClsResult<usize> {
    if size > 128 << 20 { Err(EFBIG.into()) } else { Ok(size as usize) }
}

impl ObjectCtx for MemCtx {
    fn exists(&mut self) -> ClsResult<bool> {
        Ok(self.object.is_some())
    }
    fn stat(&mut self) -> ClsResult<(u64, Utime)> {
        self.nested += 1;
        self.get().map(|o| (o.data.len() as u64, o.mtime))
    }
    fn read(&mut self, off: u64, len: u64) -> ClsResult<Bytes> {
        self.nested += 1;
        let Some(o) = &self.object else { return Ok(Bytes::new()) };
        let size = o.data.len() as u64;
        let end = if len == 0 { size } else { off.saturating_add(len).min(size) };
        if off >= end {
            return Ok(Bytes::new());
        }
        let data = &self.stored()?.data;
        let end = data.len().min(end as usize);
        Ok(data.get(off as usize..end).map(own).unwrap_or_default())
    }
    fn create(&mut self, exclusive: bool) -> ClsResult<()> {
        self.nested += 1;
        if exclusive && self.object.is_some() {
            return Err(EEXIST.into());
        }
        self.make();
        Ok(())
    }
    fn remove(&mut self) -> ClsResult<()> {
        self.nested += 1;
        self.object.take().map(|_| ()).ok_or(ENOENT.into())
    }
    fn write(&mut self, off: u64, data: &[u8]) -> ClsResult<()> {
        self.nested += 1;
        let end = inside(off.saturating_add(data.len() as u64))?;
        let o = self.make();
        if o.data.len() < end {
            o.data.resize(end, 0);
        }
        o.data[off as usize..end].copy_from_slice(data);
        Ok(())
    }
    fn write_full(&mut self, data: &[u8]) -> ClsResult<()> {
        self.nested += 1;
        self.make().data = data.to_vec();
        Ok(())
    }
    fn truncate(&mut self, size: u64) -> ClsResult<()> {
        self.nested += 1;
        let size = inside(size)?;
        if let Some(o) = &mut self.object {
            o.data.resize(size, 0);
        }
        Ok(())
    }
    fn zero(&mut self, off: u64, len: u64) -> ClsResult<()> {
        self.nested += 1;
        if let Some(o) = &mut self.object {
            let size = o.data.len() as u64;
            let (a, b) = (off.min(size) as usize, off.saturating_add(len).min(size) as usize);
            o.data[a..b].fill(0);
        }
        Ok(())
    }
    fn getxattr(&mut self, name: &[u8]) -> ClsResult<Bytes> {
        self.nested += 1;
        self.stored()?.xattrs.get(name).cloned().ok_or(ENODATA.into())
    }
    fn getxattrs(&mut self) -> ClsResult<Vec<(Bytes, Bytes)>> {
        self.nested += 1;
        Ok(self.stored()?.xattrs.iter().map(|(k, v)| (k.clone(), v.clone())).collect())
    }
    fn setxattr(&mut self, name: &[u8], value: &[u8]) -> ClsResult<()> {
        self.nested += 1;
        self.make().xattrs.insert(own(name), own(value));
        Ok(())
    }
    fn rmxattr(&mut self, name: &[u8]) -> ClsResult<()> {
        self.nested += 1;
        self.get_mut()?.xattrs.remove(name);
        Ok(())
    }
    fn omap_header(&mut self) -> ClsResult<Bytes> {
        self.nested += 1;
        Ok(self.stored().map(|o| o.header.clone()).unwrap_or_default())
    }
    fn omap_set_header(&mut self, header: &[u8]) -> ClsResult<()> {
        self.nested += 1;
        self.make().header = own(header);
        Ok(())
    }
    fn omap_get(&mut self, key: &[u8]) -> ClsResult<Bytes> {
        self.nested += 1;
        self.stored()?.omap.get(key).cloned().ok_or(ENOENT.into())
    }
    fn omap_list(&mut self, start_after: &[u8], prefix: &[u8], max: usize) -> ClsResult<(Vec<(Bytes, Bytes)>, bool)> {
        self.nested += 1;
        let Ok(o) = self.stored() else { return Ok((Vec::new(), false)) };
        let from = match start_after {
            after if prefix > after => Bound::Included(prefix),
            [] => Bound::Unbounded,
            after => Bound::Excluded(after),
        };
        let mut it = o.omap.range::<[u8], _>((from, Bound::Unbounded)).take_while(|(k, _)| k.starts_with(prefix));
        let max = max.min(self.page);
        let page: Vec<_> = it.by_ref().take(max).map(|(k, v)| (k.clone(), v.clone())).collect();
        let more = it.next().is_some();
        self.rows_read += page.len();
        Ok((page, more))
    }
    fn omap_part(&mut self, after: &[u8], prefix: &[u8], room: Room) -> ClsResult<(Vec<(Bytes, Bytes)>, bool)> {
        let (mut rows, mut more) = self.omap_list(after, prefix, room.entries)?;
        let (mut bytes, mut n) = (0, 0);
        while n < rows.len() && bytes < room.bytes {
            bytes += rows[n].0.len() + rows[n].1.len();
            n += 1;
        }
        more |= n < rows.len();
        rows.truncate(n);
        self.listed += rows.len();
        self.part_max = self.part_max.max(self.listed);
        Ok((rows, more))
    }
    fn parts(&mut self) -> &mut Parts {
        &mut self.parts.0
    }
    fn omap_set(&mut self, entries: &[(Bytes, Bytes)]) -> ClsResult<()> {
        self.nested += 1;
        self.make().omap.extend(entries.iter().cloned());
        Ok(())
    }
    fn omap_rm(&mut self, key: &[u8]) -> ClsResult<()> {
        self.nested += 1;
        self.get_mut()?.omap.remove(key);
        Ok(())
    }
    fn omap_rm_range(&mut self, first: &[u8], last: &[u8]) -> ClsResult<()> {
        self.nested += 1;
        self.get_mut()?.omap.retain(|k, _| k < first || k >= last);
        Ok(())
    }
    fn omap_clear(&mut self) -> ClsResult<()> {
        self.nested += 1;
        let o = self.get_mut()?;
        o.omap.clear();
        o.header = Bytes::new();
        Ok(())
    }
    fn now(&self) -> Utime {
        self.now
    }
    fn origin(&self) -> (EntityName, EntityAddr) {
        self.origin
    }
    fn current_version(&self) -> u64 {
        self.version
    }
    fn subop_index(&self) -> u32 {
        self.subop + self.nested
    }
    fn snapset_seq(&mut self) -> ClsResult<u64> {
        self.get().map(|_| self.snapset_seq)
    }
    fn snap_context(&self) -> (u64, Vec<u64>) {
        self.snapc.clone()
    }
    fn watchers(&mut self) -> ClsResult<Vec<Watcher>> {
        Ok(self.watchers.clone())
    }
    fn client_features(&self) -> u64 {
        wire::Features::PACIFIC.0
    }
    fn random(&mut self) -> u64 {
        self.rng.next_u64()
    }
    fn log(&self, text: &str) {
        if !self.quiet {
            eprintln!("cls: {text}");
        }
    }
}
