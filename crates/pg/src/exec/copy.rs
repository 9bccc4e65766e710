//! `copy_from`: COPY_GET reads a source object in chunks, for another OSD's client or this one's, and COPY_FROM
//! applies the content. All OSDs are Belemnite's, so the chunk has an encoding of its own.

use super::view::Sums;
use super::{OpCtx, Step, kib};
use crate::limits::{COPY_CHUNK, OBJECT_SIZE_MAX, OMAP_ENTRIES_PER_REQUEST};
use crate::object::ObjectInfo;
use base::errno::{EFBIG, EINVAL, EIO, EOPNOTSUPP, Errno};
use base::{Mono, SnapId, Utime};
use bytes::{Bytes, BytesMut};
use wire::codec::Result as Decoded;
use wire::msg::{OpCode, OsdOp};
use wire::types::ObjectLocator;
use wire::{Decode, Encode, Features, Reader, Writer};

/// Name and locator of the object that an operation copies from; `None` for other operations and undecodable input.
#[must_use]
pub fn copy_source(op: &OsdOp) -> Option<(Bytes, ObjectLocator)> {
    if !matches!(op.op, OpCode::COPY_FROM | OpCode::COPY_FROM2) {
        return None;
    }
    let mut r = Reader::shared(&op.indata);
    Some((r.blob().ok()?, r.get().ok()?))
}

/// `CEPH_OSD_COPY_FROM_FLAG_*`.
const FLAG_TRUNCATE_SEQ: u8 = 0x20;
const FLAGS_KNOWN: u8 = 0x3f;

/// Progress of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// The attributes were sent.
    pub attrs: bool,
    /// Data before this offset was sent.
    pub data: u64,
    /// All data was sent.
    pub data_done: bool,
    /// Omap entries up to this key were sent.
    pub omap: Bytes,
    /// Everything was sent.
    pub done: bool,
}

impl Encode for Cursor {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.bool(self.attrs);
            w.u64(self.data);
            w.bool(self.data_done);
            w.blob(&self.omap);
            w.bool(self.done);
        });
    }
}

impl Decode for Cursor {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("copy cursor", 1, |r, _| {
            Ok(Self { attrs: r.bool()?, data: r.u64()?, data_done: r.bool()?, omap: r.blob()?, done: r.bool()? })
        })
    }
}

/// Answer to one COPY_GET.
#[derive(Clone, Debug, Default, PartialEq)]
struct Chunk {
    next: Cursor,
    size: u64,
    mtime: Utime,
    user_version: u64,
    truncate_seq: u32,
    truncate_size: u64,
    has_omap: bool,
    attrs: Vec<(Bytes, Bytes)>,
    data: Bytes,
    omap_header: Bytes,
    omap: Vec<(Bytes, Bytes)>,
}

impl Encode for Chunk {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.put(&self.next);
            w.u64(self.size);
            w.put(&self.mtime);
            w.u64(self.user_version);
            w.u32(self.truncate_seq);
            w.u64(self.truncate_size);
            w.bool(self.has_omap);
            w.put(&self.attrs);
            w.put(&self.data);
            w.put(&self.omap_header);
            w.put(&self.omap);
        });
    }
}

impl Decode for Chunk {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("copy chunk", 1, |r, _| {
            Ok(Self {
                next: r.get()?,
                size: r.u64()?,
                mtime: r.get()?,
                user_version: r.u64()?,
                truncate_seq: r.u32()?,
                truncate_size: r.u64()?,
                has_omap: r.bool()?,
                attrs: r.get()?,
                data: r.get()?,
                omap_header: r.get()?,
                omap: r.get()?,
            })
        })
    }
}

/// A requested copy: its source.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CopyRequest {
    /// Index of the operation in its vector.
    pub index: u32,
    pub oid: Bytes,
    pub locator: ObjectLocator,
    pub snapid: SnapId,
    pub src_version: u64,
}

/// A copy whose source is being read.
#[derive(Debug)]
pub(crate) struct CopyState {
    pub request: CopyRequest,
    cursor: Cursor,
    got: CopyDone,
    data: BytesMut,
    sums: Sums,
    /// Bytes of data of the source.
    size: usize,
    /// Time of the last question.
    pub asked: Mono,
}

/// The content of a source, or the error of reading it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CopyDone {
    /// Index of the `copy_from` in its vector.
    pub index: u32,
    /// Error if the source could not be read; else 0.
    pub failed: Errno,
    pub mtime: Utime,
    pub user_version: u64,
    pub truncate_seq: u32,
    pub truncate_size: u64,
    pub has_omap: bool,
    pub attrs: Vec<(Bytes, Bytes)>,
    pub data: Bytes,
    pub omap_header: Bytes,
    pub omap: Vec<(Bytes, Bytes)>,
}

impl CopyState {
    pub(crate) fn new(request: CopyRequest, asked: Mono) -> Self {
        let got = CopyDone { index: request.index, user_version: request.src_version, ..CopyDone::default() };
        let (cursor, data, sums) = (Cursor::default(), BytesMut::new(), Sums::default());
        Self { request, cursor, got, data, sums, size: 0, asked }
    }

    /// Bytes of what the copy has, of the data that will come, and of the next chunk.
    pub(crate) fn bytes_needed(&self) -> usize {
        self.size.max(self.data.len()) + self.sums.metadata + COPY_CHUNK as usize
    }

    /// Takes memory for all data at once.
    pub(crate) fn reserve(&mut self) {
        self.data.reserve(self.size.saturating_sub(self.data.len()));
    }

    /// Operations that read the next chunk.
    pub(crate) fn next_ops(&self) -> wire::msg::OpVec {
        let mut ops = wire::msg::OpVec::new();
        if self.got.user_version != 0 {
            // All chunks must have the same version.
            let mut op = OsdOp::new(OpCode::ASSERT_VER);
            op.set_assert_ver(self.got.user_version);
            ops.push(op);
        }
        let mut w = Writer::new(Features::PACIFIC);
        w.put(&self.cursor);
        w.u64(COPY_CHUNK);
        ops.push(OsdOp::with_indata(OpCode::COPY_GET, w.into_bytes()));
        ops
    }

    /// Adds a chunk; returns true if it was the last one.
    pub(crate) fn add(&mut self, data: &Bytes) -> Step<bool> {
        let c = Chunk::from_bytes(data).map_err(|_| EIO)?;
        if c.size > OBJECT_SIZE_MAX || (self.data.len() + c.data.len()) as u64 > OBJECT_SIZE_MAX {
            return Err(EFBIG.into());
        }
        if self.got.user_version != 0 && c.user_version != self.got.user_version {
            return Err(base::errno::ERANGE.into());
        }
        if c.next == self.cursor && !c.next.done {
            return Err(EIO.into()); // no progress
        }
        let sized = |v: &[(Bytes, Bytes)]| v.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
        self.sums.payload += c.data.len();
        self.sums.metadata += sized(&c.attrs) + sized(&c.omap) + c.omap_header.len();
        self.sums.entries += c.attrs.len() + c.omap.len() + 1;
        if !self.sums.is_legal() {
            tracing::info!(source = ?self.request, sums = ?self.sums, "copy refused: its source is too large");
            return Err(EFBIG.into());
        }
        self.size = c.size as usize;
        self.got.user_version = c.user_version;
        self.got.mtime = c.mtime;
        self.got.truncate_seq = c.truncate_seq;
        self.got.truncate_size = c.truncate_size;
        self.got.has_omap = c.has_omap;
        self.got.attrs.extend(c.attrs);
        self.data.extend_from_slice(&c.data);
        if !c.omap_header.is_empty() {
            self.got.omap_header = c.omap_header;
        }
        self.got.omap.extend(c.omap);
        self.cursor = c.next;
        Ok(self.cursor.done)
    }

    /// The outcome of a source that could not be read. The vector runs once more and fails with it, so that the
    /// failure is logged as any other.
    pub(crate) fn fail(&self, failed: Errno) -> CopyDone {
        CopyDone { index: self.request.index, failed, ..CopyDone::default() }
    }

    /// The complete content.
    pub(crate) fn finish(self) -> CopyDone {
        CopyDone { data: self.data.freeze(), ..self.got }
    }
}

impl OpCtx<'_> {
    pub(super) fn op_copy_get(&mut self, op: &mut OsdOp) -> Step<i32> {
        let mut r = Reader::shared(&op.indata);
        let decoded = (|| -> Decoded<(Cursor, u64)> { Ok((r.get()?, r.u64()?)) })();
        let (mut cursor, max) = decoded.map_err(|_| EINVAL)?;
        let mut left = max.min(COPY_CHUNK);
        let mut c = Chunk {
            size: self.oi.size,
            mtime: self.oi.mtime,
            user_version: self.oi.user_version,
            truncate_seq: self.oi.truncate_seq,
            truncate_size: self.oi.truncate_size,
            has_omap: self.oi.has_omap(),
            ..Chunk::default()
        };
        if !cursor.attrs {
            c.attrs = self.user_attrs()?.into_iter().collect();
            c.omap_header = self.get_omap_header()?;
            cursor.attrs = true;
        }
        if !cursor.data_done {
            c.data = self.view.read(cursor.data, left, self.oi.size)?;
            left -= c.data.len() as u64;
            cursor.data += c.data.len() as u64;
            cursor.data_done = cursor.data >= self.oi.size;
        }
        if cursor.data_done && left > 0 {
            let (entries, more) = self.list_omap(&cursor.omap, b"", OMAP_ENTRIES_PER_REQUEST, left as usize)?;
            if let Some((k, _)) = entries.last() {
                cursor.omap = k.clone();
            }
            c.omap = entries;
            cursor.done = !more;
        }
        c.next = cursor;
        self.count_read(c.data.len());
        op.outdata = c.to_bytes(Features::PACIFIC);
        Ok(0)
    }

    pub(super) fn op_copy_from(&mut self, op: &OsdOp) -> Step<i32> {
        let a = op.copy_from();
        let second = op.op == OpCode::COPY_FROM2;
        if second && a.flags & !FLAGS_KNOWN != 0 {
            return Err(EINVAL.into());
        }
        let mut r = Reader::shared(&op.indata);
        let decoded = (|| -> Decoded<_> {
            let (oid, locator): (Bytes, ObjectLocator) = (r.blob()?, r.get()?);
            let truncate = if second && a.flags & FLAG_TRUNCATE_SEQ != 0 { Some((r.u32()?, r.u64()?)) } else { None };
            Ok((oid, locator, truncate))
        })();
        let (oid, locator, truncate) = decoded.map_err(|_| EINVAL)?;
        let key: &[u8] = if locator.key == oid { b"" } else { &locator.key };
        let own_key: &[u8] = if self.head.key == self.head.oid { b"" } else { &self.head.key };
        if locator.pool == self.head.pool
            && oid == self.head.oid
            && locator.nspace == self.head.nspace
            && key == own_key
            && a.snapid == SnapId::HEAD
        {
            return Err(EINVAL.into());
        }
        let Some(done) = self.copy.done.filter(|d| d.index == self.index) else {
            let src_version = a.src_version;
            self.copy.want = Some(CopyRequest { index: self.index, oid, locator, snapid: a.snapid, src_version });
            return Ok(0);
        };
        if done.failed != 0 {
            return Err(done.failed.into());
        }
        if done.has_omap && self.env.coded.is_some() {
            return Err(EOPNOTSUPP.into());
        }
        self.apply_copy(done, truncate);
        Ok(0)
    }

    /// Replaces the object with the copied content.
    fn apply_copy(&mut self, c: &CopyDone, truncate: Option<(u32, u64)>) {
        let mut data = c.data.clone();
        let (seq, size) = truncate.unwrap_or((c.truncate_seq, c.truncate_size));
        let (seq, kept_size) = super::truncation(seq, size);
        if let Some((_, size)) = truncate {
            data.truncate(usize::try_from(size).unwrap_or(usize::MAX));
        }
        let watchers = std::mem::take(&mut self.oi.watchers);
        let old = self.oi.size;
        if self.exists {
            self.view.remove();
        } else {
            self.exists = true;
            self.oi.reset();
            self.delta.num_objects += 1;
        }
        self.view.touch();
        if !data.is_empty() {
            self.view.write(0, data.clone());
        }
        for (k, v) in &c.attrs {
            self.view.set_attr(super::attr::stored_name(k), v.clone());
        }
        if !c.omap_header.is_empty() {
            self.view.omap_set_header(c.omap_header.clone());
        }
        if !c.omap.is_empty() {
            self.view.omap_set(c.omap.clone());
        }
        self.note_modified(0, old.max(data.len() as u64));
        self.delta.num_bytes += data.len() as i64 - old as i64;
        self.delta.num_wr += 1;
        self.delta.num_wr_kb += kib(data.len() as u64);
        self.bytes_written += data.len() as u64;
        self.oi.watchers = watchers;
        self.oi.size = data.len() as u64;
        self.oi.truncate_seq = seq;
        self.oi.truncate_size = kept_size;
        self.oi.flags = self.oi.flags & !ObjectInfo::OMAP | if c.has_omap { ObjectInfo::OMAP } else { 0 };
        self.omap = c.has_omap;
        self.copy.version = Some(c.user_version);
        self.copy.mtime = Some(c.mtime);
    }
}
