//! Assembling the body of a frame or message, whose length is known, out of input chunks.
//!
//! A body that has arrived as a whole is a slice of its chunk. A long one gets a buffer of its own that the socket reads
//! into directly, laid out so that its data segment is page-aligned.
//!
//! Invariant: nothing is allocated for a long body before it was granted; the memory of an incomplete one is at most
//! [`FIRST_BUFFER_BYTES`] or twice what has arrived.
//!
//! Tests: `crates/hostile/tests/do_half_frames_take_little_memory.rs`.

use crate::policy::{DIRECT_BYTES_MIN, FIRST_BUFFER_BYTES};
use crate::pool::{BufPool, PoolBuf};
use base::buf::PAGE;
use bytes::{Buf, Bytes};

/// A front segment of a large frame up to this size in bytes is copied. Otherwise an object name kept in a log would
/// keep the whole write in memory.
const OWN_FRONT_MAX: usize = 4096;

/// Adds input behind what is there.
pub(crate) fn append(chunk: &mut Bytes, b: Bytes) {
    if chunk.is_empty() {
        *chunk = b;
    } else if !b.is_empty() {
        let mut v = Vec::with_capacity(chunk.len() + b.len());
        v.extend_from_slice(chunk);
        v.extend_from_slice(&b);
        *chunk = v.into();
    }
}

#[derive(Debug)]
pub(crate) struct Dest {
    buf: PoolBuf,
    /// Offset of the body in the buffer.
    start: usize,
    /// Present end of the body in the buffer: before that of a long frame, the buffer grows.
    end: usize,
    filled: usize,
}

impl Dest {
    /// A buffer for the first `len` bytes of a body whose data segment, at `data_at`, is to start on a page.
    fn new(pool: &BufPool, len: usize, data_at: usize) -> Self {
        let buf = pool.take(len + PAGE);
        let misfit = (buf.as_ref().as_ptr().addr() + data_at) % PAGE;
        let start = if misfit == 0 { 0 } else { PAGE - misfit };
        Self { buf, start, end: start + len, filled: 0 }
    }

    /// The unfilled part of the buffer.
    fn rest(&mut self) -> &mut [u8] {
        self.buf.bytes_mut().get_mut(self.start + self.filled..self.end).unwrap_or_default()
    }

    /// The body.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.buf.bytes_mut().get_mut(self.start..self.end).unwrap_or_default()
    }

    /// Moves the body to a buffer of twice the length if the present one is full.
    fn grow(&mut self, pool: &BufPool, need: usize, data_at: usize) {
        if self.filled >= need || self.start + self.filled < self.end {
            return;
        }
        let mut larger = Self::new(pool, need.min(2 * self.filled), data_at);
        let have = self.buf.as_ref().get(self.start..self.end).unwrap_or_default();
        if let Some(room) = larger.rest().get_mut(..have.len()) {
            room.copy_from_slice(have);
            larger.filled = have.len();
        }
        *self = larger;
    }
}

/// A body that arrives.
#[derive(Debug)]
pub(crate) struct Assembly {
    need: usize,
    /// Offset of the data segment in the body.
    data_at: usize,
    /// The host has granted the memory.
    granted: bool,
    dest: Option<Dest>,
}

impl Assembly {
    /// A body of `need` bytes whose data segment starts at `data_at`.
    pub(crate) fn new(need: usize, data_at: usize) -> Self {
        Self { need, data_at, granted: false, dest: None }
    }

    /// Its length, if it waits for [`Assembly::grant`].
    pub(crate) fn asks(&self) -> Option<usize> {
        (!self.granted && self.need >= DIRECT_BYTES_MIN).then_some(self.need)
    }

    /// Allows the memory.
    pub(crate) fn grant(&mut self) {
        self.granted = true;
    }

    /// Bytes that have arrived of a granted body, and those of the whole body.
    pub(crate) fn partial(&self) -> Option<(usize, usize)> {
        self.granted.then(|| (self.dest.as_ref().map_or(0, |d| d.filled), self.need))
    }

    /// Buffer to read into, if the body has one of its own.
    pub(crate) fn target(&mut self, pool: &BufPool) -> Option<&mut [u8]> {
        let dest = self.dest.as_mut()?;
        dest.grow(pool, self.need, self.data_at);
        let t = dest.rest();
        if t.is_empty() { None } else { Some(t) }
    }

    /// Reports that `n` bytes were read into [`Assembly::target`].
    pub(crate) fn received(&mut self, n: usize) {
        if let Some(d) = &mut self.dest {
            d.filled += n;
        }
    }

    /// Takes what there is of the body out of `chunk`, and returns the body once it is complete. `free`: the host is not
    /// asked for its memory.
    pub(crate) fn poll(&mut self, chunk: &mut Bytes, pool: &BufPool, free: bool) -> Option<Raw> {
        loop {
            match self.dest.take() {
                Some(mut d) => {
                    while d.filled < self.need && !chunk.is_empty() {
                        d.grow(pool, self.need, self.data_at);
                        let t = d.rest();
                        let n = t.len().min(chunk.len());
                        chunk.copy_to_slice(&mut t[..n]);
                        d.filled += n;
                    }
                    if d.filled < self.need {
                        self.dest = Some(d);
                        return None;
                    }
                    return Some(Raw::Owned(d));
                }
                None if chunk.len() >= self.need => return Some(Raw::Shared(chunk.split_to(self.need))),
                None => {
                    self.granted |= free;
                    if self.need < DIRECT_BYTES_MIN || !self.granted {
                        return None;
                    }
                    let long = self.need > FIRST_BUFFER_BYTES + PAGE;
                    let first = if long { FIRST_BUFFER_BYTES } else { self.need };
                    self.dest = Some(Dest::new(pool, first, self.data_at));
                }
            }
        }
    }

    /// Copies a short front out of a large body.
    pub(crate) fn own_front(&self, front: &mut Bytes) {
        if self.need >= DIRECT_BYTES_MIN && front.len() <= OWN_FRONT_MAX && !front.is_empty() {
            *front = Bytes::copy_from_slice(front);
        }
    }
}

/// Received bytes of a body.
pub(crate) enum Raw {
    Shared(Bytes),
    Owned(Dest),
}

impl Raw {
    /// The same in a buffer of its own.
    pub(crate) fn into_owned(self) -> Self {
        match self {
            Self::Shared(b) => {
                let n = b.len();
                Self::Owned(Dest { filled: n, end: n, buf: PoolBuf::plain(b.to_vec()), start: 0 })
            }
            owned @ Self::Owned(_) => owned,
        }
    }

    /// Shared bytes from offset `skip` of the body on.
    pub(crate) fn freeze(self, skip: usize) -> Bytes {
        match self {
            Self::Shared(b) => b,
            Self::Owned(d) => {
                let (start, end) = (d.start + skip, d.end);
                Bytes::from_owner(d.buf).slice(start.min(end)..end)
            }
        }
    }
}
