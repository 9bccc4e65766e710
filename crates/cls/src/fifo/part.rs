//! Parts of a fifo: a header followed by entries.
//!
//! An entry is {u64 magic of the part, u64 44, u64 length of the fields between this header and the data, u64 length of
//! the data, u64 index, u32 0} (44 bytes), ENCODE(1,1){time} (14 bytes), and the data. All its lengths come from the
//! disk, unverified.

use super::types::Params;
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{enc, fail, input, stored_as};
use base::Utime;
use base::errno::{EEXIST, EINVAL, EIO, ENOENT, ERANGE};
use bytes::{Bytes, BytesMut};
use wire::codec::Result as Decoded;
use wire::{Decode, Encode, Reader, Writer};

/// Space reserved for the header of a part, in bytes.
pub(super) const HEADER_MAX: u64 = 512;
/// Length of an entry's fixed header in bytes.
const PRE_LEN: u64 = 44;
/// Bytes of an entry besides its data.
pub(super) const OVERHEAD: u64 = PRE_LEN + 14;
/// Bytes read at once.
const READ_AHEAD: u64 = 128 * 1024;
/// Most entries of one reply.
const LIST_MAX: i32 = 512;

/// `part_header`.
#[derive(Clone, Debug)]
struct Header {
    params: Params,
    magic: u64,
    min_ofs: u64,
    last_ofs: u64,
    next_ofs: u64,
    min_index: u64,
    max_index: u64,
    max_time: Utime,
}

impl Encode for Header {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.blob(b""); // A tag, of older releases.
            w.put(&self.params);
            for n in [self.magic, self.min_ofs, self.last_ofs, self.next_ofs, self.min_index, self.max_index] {
                w.u64(n);
            }
            w.put(&self.max_time);
        });
    }
}
impl Decode for Header {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("fifo::part_header", 1, |r, _| {
            r.blob()?;
            Ok(Self {
                params: r.get()?,
                magic: r.u64()?,
                min_ofs: r.u64()?,
                last_ofs: r.u64()?,
                next_ofs: r.u64()?,
                min_index: r.u64()?,
                max_index: r.u64()?,
                max_time: r.get()?,
            })
        })
    }
}

impl Header {
    fn load(c: &mut dyn ObjectCtx) -> ClsResult<Self> {
        stored_as(&c.read(0, HEADER_MAX)?)
    }

    fn store(&self, c: &mut dyn ObjectCtx) -> ClsResult<()> {
        let b = enc(|w| w.put(self));
        if b.len() as u64 > HEADER_MAX {
            return fail(EIO);
        }
        c.write(0, &b)
    }

    fn is_full(&self) -> bool {
        self.next_ofs > self.params.full_at
    }
}

/// One entry.
struct Entry {
    data: Bytes,
    ofs: u64,
    time: Utime,
    index: u64,
}

/// Reads entries one after another.
struct Entries<'a> {
    part: &'a Header,
    ofs: u64,
    buf: BytesMut,
}

impl<'a> Entries<'a> {
    fn new(part: &'a Header, ofs: u64) -> Self {
        Self { part, ofs: ofs.max(part.min_ofs), buf: BytesMut::new() }
    }

    fn at_end(&self) -> bool {
        self.ofs >= self.part.next_ofs
    }

    /// Reads the next `n` bytes into the buffer; `ERANGE` if the part ends before.
    fn fill(&mut self, c: &mut dyn ObjectCtx, n: u64) -> ClsResult<()> {
        let have = self.buf.len() as u64;
        if have < n {
            let b = c.read(self.ofs.saturating_add(have), (n - have).max(READ_AHEAD))?;
            self.buf.extend_from_slice(&b);
        }
        if (self.buf.len() as u64) < n { fail(ERANGE) } else { Ok(()) }
    }

    fn take(&mut self, c: &mut dyn ObjectCtx, n: u64) -> ClsResult<Bytes> {
        self.fill(c, n)?;
        self.ofs += n;
        Ok(self.buf.split_to(n as usize).freeze())
    }

    /// Header length, data length and index of the next entry.
    fn peek(&mut self, c: &mut dyn ObjectCtx) -> ClsResult<(u64, u64, u64, u64)> {
        if self.at_end() {
            return fail(ENOENT);
        }
        self.fill(c, PRE_LEN)?;
        let mut r = Reader::new(&self.buf);
        let (magic, pre, header, data, index) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?, r.u64()?);
        if magic == self.part.magic { Ok((pre, header, data, index)) } else { fail(ERANGE) }
    }

    fn next(&mut self, c: &mut dyn ObjectCtx) -> ClsResult<Entry> {
        let (pre, header, data, index) = self.peek(c)?;
        let ofs = self.ofs;
        // Limit the lengths to what the part can hold, to avoid useless reads.
        let room = self.part.next_ofs.saturating_sub(ofs);
        if pre.saturating_add(header).saturating_add(data) > room {
            return fail(ERANGE);
        }
        self.take(c, pre)?;
        let header = self.take(c, header)?;
        let time = Reader::new(&header).versioned("fifo::entry_header", 1, |r, _| r.get()).or(fail(EIO))?;
        let data = self.take(c, data)?;
        Ok(Entry { data, ofs, time, index })
    }
}

pub(super) fn init(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (_tag, params) =
        input(i, |r| r.versioned("fifo::op::init_part", 1, |r, _| Ok((r.blob()?, r.get::<Params>()?))))?;
    let size = crate::util::optional(c.stat())?.map_or(0, |(size, _)| size);
    if size > 0 {
        let old = Header::load(c)?;
        return if old.params == params { Ok(Output::default()) } else { fail(EEXIST) };
    }
    let magic = c.random();
    let part = Header {
        params,
        magic,
        min_ofs: HEADER_MAX,
        last_ofs: 0,
        next_ofs: HEADER_MAX,
        min_index: 0,
        max_index: 0,
        max_time: c.now(),
    };
    part.store(c).map(Output::from)
}

/// Appends entries until the part is full; returns their number.
pub(super) fn push(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (_tag, entries, total) =
        input(i, |r| r.versioned("fifo::op::push_part", 1, |r, _| Ok((r.blob()?, r.get::<Vec<Bytes>>()?, r.u64()?))))?;
    let mut part = Header::load(c)?;
    let with_overhead = (entries.len() as u64).saturating_mul(OVERHEAD).saturating_add(total);
    if with_overhead > part.params.part_max {
        return fail(EINVAL);
    }
    if part.is_full() {
        return fail(ERANGE);
    }
    // The header may come from a hostile client.
    let fits = |a: u64, b: u64| a.checked_add(b).is_some();
    if !fits(part.next_ofs, with_overhead) || !fits(part.max_index, entries.len() as u64) {
        return fail(EIO);
    }
    if entries.is_empty() || entries.iter().map(|e| e.len() as u64).sum::<u64>() != total {
        return fail(EINVAL);
    }
    let now = c.now();
    let start = part.next_ofs;
    let mut pushed = 0;
    let b = enc(|w| {
        for data in &entries {
            if part.is_full() {
                break;
            }
            for n in [part.magic, PRE_LEN, OVERHEAD - PRE_LEN, data.len() as u64, part.max_index] {
                w.u64(n);
            }
            w.u32(0);
            w.versioned(1, 1, |w| w.put(&now));
            w.raw(data);
            part.last_ofs = part.next_ofs;
            part.next_ofs += OVERHEAD + data.len() as u64;
            part.max_index += 1;
            pushed += 1;
        }
    });
    part.max_time = now;
    c.write(start, &b)?;
    part.store(c)?;
    Ok(Output { ret: pushed, out: Bytes::new() })
}

/// Removes entries up to an offset; a full part that becomes empty is removed.
pub(super) fn trim(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (_tag, ofs, exclusive) = input(i, |r| {
        r.versioned("fifo::op::trim_part", 1, |r, _| Ok((r.get::<Option<Bytes>>()?, r.u64()?, r.bool()?)))
    })?;
    let mut part = Header::load(c)?;
    if ofs < part.min_ofs || (exclusive && ofs == part.min_ofs) {
        return Ok(Output::default());
    }
    if ofs >= part.next_ofs {
        if part.is_full() {
            return c.remove().map(Output::from);
        }
        part.min_ofs = part.next_ofs;
        part.min_index = part.max_index;
    } else {
        let before = part.clone();
        let mut entries = Entries::new(&before, ofs);
        if exclusive {
            let (_, _, _, index) = entries.peek(c)?;
            part.min_index = index;
        } else {
            part.min_index = entries.next(c)?.index.wrapping_add(1);
        }
        part.min_ofs = entries.ofs;
    }
    part.store(c).map(Output::from)
}

/// Lists entries after the one at an offset.
pub(super) fn list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (_tag, ofs, max) = input(i, |r| {
        r.versioned("fifo::op::list_part", 1, |r, _| Ok((r.get::<Option<Bytes>>()?, r.u64()?, r.i32()?)))
    })?;
    let part = Header::load(c)?;
    let mut entries = Entries::new(&part, ofs);
    if ofs >= part.min_ofs && !entries.at_end() {
        entries.next(c)?;
    }
    let mut found = Vec::new();
    for _ in 0..max.min(LIST_MAX) {
        if entries.at_end() {
            break;
        }
        found.push(entries.next(c)?);
    }
    let more = !entries.at_end();
    Ok(enc(|w| {
        w.versioned(1, 1, |w| {
            w.blob(b"");
            w.seq(found.iter(), |w, e| {
                w.versioned(1, 1, |w| {
                    w.blob(&e.data);
                    w.u64(e.ofs);
                    w.put(&e.time);
                });
            });
            w.bool(more);
            w.bool(part.is_full());
        });
    })
    .into())
}

pub(super) fn get_info(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    input(i, |r| r.versioned("fifo::op::get_part_info", 1, |_, _| Ok(())))?;
    let part = Header::load(c)?;
    Ok(enc(|w| w.versioned(1, 1, |w| w.put(&part))).into())
}
