//! A ring buffer of entries in an object's data.
//!
//! Layout: u16 0xDEAD, u64 length of the head, `cls_queue_head`, padding up to `head_max`; then the ring up to `size`.
//! An entry is u16 0xBEEF, u64 length, data, and may wrap around the end of the ring. A position is (generation,
//! offset); each wrap increments the generation. The ring is empty if front equals tail; it is full if the offsets are
//! equal and the tail is a generation ahead. The head comes from the disk: arithmetic on it is checked, and an
//! inconsistent head is `EINVAL`. So is urgent data for which the head has no space: it would overwrite entries.

use crate::ctx::{ClsResult, ObjectCtx};
use crate::util::{LIST_BYTES, enc, fail, join};
use base::errno::{EEXIST, EINVAL, ENOSPC};
use bytes::{Bytes, BytesMut};
use std::fmt;
use wire::codec::Result as Decoded;
use wire::{Reader, Writer};

/// Space for the head without urgent data, in bytes.
const HEAD_LEN: u64 = 1024;
const HEAD_MAGIC: u16 = 0xDEAD;
const ENTRY_MAGIC: u16 = 0xBEEF;
/// Length of the header of an entry, and of the head, in bytes.
pub(crate) const OVERHEAD: u64 = 10;
/// Bytes read at once while listing entries.
const READ_AHEAD: u64 = 64 * 1024;
/// Most entries of one listing; it also ends early after [`LIST_BYTES`].
pub(crate) const LIST_MAX: u64 = 8192;

/// `cls_queue_marker`: a position in the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) offset: u64,
    generation: u64,
}

impl Marker {
    /// Parses `<generation>/<offset>`; `None` for anything else, such as the empty marker.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let (generation, offset) = std::str::from_utf8(text).ok()?.split_once('/')?;
        Some(Self { offset: offset.parse().ok()?, generation: generation.parse().ok()? })
    }

    fn encode(self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.u64(self.generation);
            w.u64(self.offset);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("cls_queue_marker", 1, |r, _| {
            let generation = r.u64()?;
            Ok(Self { offset: r.u64()?, generation })
        })
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.generation, self.offset)
    }
}

/// `cls_queue_head`.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    head_max: u64,
    front: Marker,
    tail: Marker,
    /// End of the ring in the object.
    size: u64,
    pub(crate) urgent_max: u64,
    pub(crate) urgent: Bytes,
}

/// Result of a listing.
pub(crate) struct Found {
    pub(crate) entries: Vec<(Bytes, Marker)>,
    pub(crate) next: Marker,
    pub(crate) truncated: bool,
}

impl Head {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("cls_queue_head", 1, |r, _| {
            Ok(Self {
                head_max: r.u64()?,
                front: Marker::decode(r)?,
                tail: Marker::decode(r)?,
                size: r.u64()?,
                urgent_max: r.u64()?,
                urgent: r.blob()?,
            })
        })
    }

    fn is_sound(&self) -> bool {
        let inside = |m: Marker| (self.head_max..=self.size).contains(&m.offset);
        inside(self.front) && inside(self.tail)
    }

    /// Loads the head of the queue; `EINVAL` if there is none.
    pub(crate) fn load(c: &mut dyn ObjectCtx) -> ClsResult<Self> {
        let mut b = c.read(0, HEAD_LEN)?;
        let mut r = Reader::new(&b);
        let (Ok(HEAD_MAGIC), Ok(len)) = (r.u16(), r.u64()) else { return fail(EINVAL) };
        if len > HEAD_LEN - OVERHEAD && b.len() as u64 == HEAD_LEN {
            let more = c.read(HEAD_LEN, len - (HEAD_LEN - OVERHEAD))?;
            b = join(&b, &more);
        }
        let body = b.slice(OVERHEAD as usize..);
        match Self::decode(&mut Reader::shared(&body)) {
            Ok(h) if h.is_sound() => Ok(h),
            _ => fail(EINVAL),
        }
    }

    pub(crate) fn store(&self, c: &mut dyn ObjectCtx) -> ClsResult<()> {
        let head = enc(|w| {
            w.versioned(1, 1, |w| {
                w.u64(self.head_max);
                self.front.encode(w);
                self.tail.encode(w);
                w.u64(self.size);
                w.u64(self.urgent_max);
                w.blob(&self.urgent);
            });
        });
        let all = enc(|w| {
            w.u16(HEAD_MAGIC);
            w.u64(head.len() as u64);
            w.raw(&head);
        });
        if all.len() as u64 > self.head_max {
            return fail(EINVAL);
        }
        c.write(0, &all)
    }

    /// Makes a queue of `size` bytes; `EEXIST` if the object has one.
    pub(crate) fn init(c: &mut dyn ObjectCtx, size: u64, urgent_max: u64, urgent: Bytes) -> ClsResult<()> {
        match Self::load(c) {
            Ok(_) => return fail(EEXIST),
            Err(e) if e.is(EINVAL) => {}
            Err(e) => return Err(e),
        }
        let Some(head_max) = HEAD_LEN.checked_add(urgent_max) else { return fail(EINVAL) };
        let Some(end) = head_max.checked_add(size) else { return fail(EINVAL) };
        let start = Marker { offset: head_max, generation: 0 };
        Self { head_max, front: start, tail: start, size: end, urgent_max, urgent }.store(c)
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.size - self.head_max
    }

    /// Free bytes for entries with their headers.
    pub(crate) fn free(&self) -> u64 {
        if self.is_full() {
            0
        } else if self.tail.offset >= self.front.offset {
            (self.size - self.tail.offset) + (self.front.offset - self.head_max)
        } else {
            self.front.offset - self.tail.offset
        }
    }

    fn is_full(&self) -> bool {
        self.front.offset == self.tail.offset && self.tail.generation == self.front.generation.wrapping_add(1)
    }

    /// Moves a position at the end of the ring to its start.
    fn wrapped(&self, m: Marker) -> Marker {
        if m.offset == self.size {
            Marker { offset: self.head_max, generation: m.generation.wrapping_add(1) }
        } else {
            m
        }
    }

    /// Writes entries at the tail; `ENOSPC` unless all fit, and for a full ring also without entries, as in Ceph.
    pub(crate) fn enqueue(&mut self, c: &mut dyn ObjectCtx, entries: &[Bytes]) -> ClsResult<()> {
        let len: u64 = entries.iter().map(|data| OVERHEAD + data.len() as u64).sum();
        if self.is_full() || len > self.free() {
            return fail(ENOSPC);
        }
        let all = enc(|w| {
            for data in entries {
                w.u16(ENTRY_MAGIC);
                w.u64(data.len() as u64);
                w.raw(data);
            }
        });
        // At most two writes, however many entries there are.
        let (a, b) = all.split_at(len.min(self.size - self.tail.offset) as usize);
        for part in [a, b].into_iter().filter(|p| !p.is_empty()) {
            c.write(self.tail.offset, part)?;
            self.tail = self.wrapped(Marker { offset: self.tail.offset + part.len() as u64, ..self.tail });
        }
        Ok(())
    }

    /// Lists up to `max` entries, at most [`LIST_MAX`], from `start` (default: the front) to `end` (default: the tail).
    pub(crate) fn list(
        &self,
        c: &mut dyn ObjectCtx,
        start: Option<Marker>,
        end: Option<Marker>,
        max: u64,
    ) -> ClsResult<Found> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        let max = max.min(LIST_MAX);
        let mut at = start.filter(|m| m.offset != 0).unwrap_or(self.front);
        if self.front == self.tail {
            return Ok(Found { entries, next: self.front, truncated: false });
        }
        let mut reader =
            RingReader { head: self, at: at.offset, left: self.bytes_from(at.offset)?, buf: BytesMut::new() };
        while reader.unread() > 0 && end != Some(at) {
            if entries.len() as u64 == max || bytes >= LIST_BYTES {
                return Ok(Found { entries, next: at, truncated: at != self.tail });
            }
            let header = reader.take(c, OVERHEAD)?;
            let mut r = Reader::new(&header);
            let (Ok(ENTRY_MAGIC), Ok(len)) = (r.u16(), r.u64()) else { return fail(EINVAL) };
            let data = reader.take(c, len)?;
            bytes += data.len();
            entries.push((data, at));
            at = self.forward(at, OVERHEAD.saturating_add(len));
        }
        let next = if reader.unread() > 0 { at } else { self.tail };
        Ok(Found { entries, next, truncated: next != self.tail })
    }

    /// Bytes of entries from an offset to the tail.
    fn bytes_from(&self, offset: u64) -> ClsResult<u64> {
        let (front, tail) = (self.front.offset, self.tail.offset);
        let bytes = if tail > front {
            tail.checked_sub(offset)
        } else if offset >= front {
            self.size.checked_sub(offset).and_then(|n| n.checked_add(tail - self.head_max))
        } else {
            // The range from tail to front is empty.
            Some(tail.saturating_sub(offset))
        };
        match bytes {
            Some(n) if offset >= self.head_max => Ok(n),
            _ => fail(EINVAL),
        }
    }

    /// The position `n` bytes further, at most one turn.
    fn forward(&self, m: Marker, n: u64) -> Marker {
        let to_end = self.size - m.offset;
        if n < to_end {
            Marker { offset: m.offset + n, ..m }
        } else {
            Marker { offset: self.head_max + (n - to_end), generation: m.generation.wrapping_add(1) }
        }
    }

    /// Removes entries up to a position; `EINVAL` unless it lies between the front and one turn ahead.
    pub(crate) fn remove(&mut self, c: &mut dyn ObjectCtx, end: Option<Marker>) -> ClsResult<()> {
        if self.front == self.tail {
            return Ok(());
        }
        let Some(end) = end.filter(|e| (self.head_max..=self.size).contains(&e.offset)) else { return fail(EINVAL) };
        let front = self.front;
        if end.generation == front.generation && end.offset >= front.offset {
            if end.offset > front.offset {
                c.zero(front.offset, end.offset - front.offset)?;
            }
        } else if end.generation == front.generation.wrapping_add(1) && end.offset <= front.offset {
            c.zero(front.offset, self.size - front.offset)?;
            if end.offset > self.head_max {
                c.zero(self.head_max, end.offset - self.head_max)?;
            }
        } else {
            return fail(EINVAL);
        }
        self.front = self.wrapped(end);
        Ok(())
    }
}

/// Reads the ring sequentially, with read-ahead.
struct RingReader<'a> {
    head: &'a Head,
    /// Offset of the next read.
    at: u64,
    /// Bytes not yet read from the object.
    left: u64,
    buf: BytesMut,
}

impl RingReader<'_> {
    fn unread(&self) -> u64 {
        self.left + self.buf.len() as u64
    }

    /// Takes the next `n` bytes; `EINVAL` if the ring ends before.
    fn take(&mut self, c: &mut dyn ObjectCtx, n: u64) -> ClsResult<Bytes> {
        if n > self.unread() {
            return fail(EINVAL);
        }
        while (self.buf.len() as u64) < n {
            if self.at == self.head.size {
                self.at = self.head.head_max;
            }
            let want = (n - self.buf.len() as u64).max(READ_AHEAD).min(self.left).min(self.head.size - self.at);
            let b = c.read(self.at, want)?;
            if b.len() as u64 != want {
                return fail(EINVAL);
            }
            self.buf.extend_from_slice(&b);
            self.at += want;
            self.left -= want;
        }
        Ok(self.buf.split_to(n as usize).freeze())
    }
}
