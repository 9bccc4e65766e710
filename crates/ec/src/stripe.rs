//! Layout of an object over shards, and the reads and writes of a partial write.
//!
//! Byte `o` of an object is in stripe `o / (k · chunk)`, in data shard `o / chunk % k`, at `stripe · chunk + o % chunk` of
//! that shard. So a run of the object is one run in each shard it touches. Coding shards hold, at each offset, the code of
//! the data shards' bytes at the same offset.
//!
//! Invariants:
//! - the length of a shard depends on the object's size alone ([`Layout::shard_len`]), in whole blocks;
//! - a shard is zero where the object has no byte, so reads beyond a shard's end return zeros;
//! - reads and writes of a plan are whole blocks ([`BLOCK`]), not whole chunks.
//!
//! Tests: `tests/does_a_layout_hold_for_every_byte.rs`.

use std::ops::Range;

/// Unit in bytes of shard lengths and of a plan's reads and writes; equal to the store's checksum block.
pub const BLOCK: u64 = 4096;

/// Largest object size in bytes of a layout; arithmetic up to it does not overflow.
pub const SIZE_MAX: u64 = 1 << 48;

/// Layout of a pool's objects over shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    k: u64,
    m: u64,
    chunk: u64,
}

/// A range of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Shard: `0..k` data, `k..k + m` coding.
    pub shard: usize,
    /// Byte range in the shard.
    pub range: Range<u64>,
}

/// Method of computing the new bytes of coding shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// From the written bytes alone, without reads.
    Full,
    /// From all data shards; the ranges that the write does not cover are read.
    Reencode,
    /// From the difference; the old bytes of the written ranges and of the coding shards are read.
    Delta,
}

/// Reads and writes of a partial write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritePlan {
    /// Method of computing the coding bytes.
    pub method: Method,
    /// Ranges to read first, at most one per shard, never beyond the shard's current length.
    pub reads: Vec<Part>,
    /// Ranges to write, data shards before coding shards.
    pub writes: Vec<Part>,
}

fn down(x: u64) -> u64 {
    x - x % BLOCK
}

fn up(x: u64) -> u64 {
    x.next_multiple_of(BLOCK)
}

impl Layout {
    /// A layout of `k` data and `m` coding shards with chunks of `chunk` bytes. `None` if a number is zero or above the
    /// code's limit, or if a chunk is not whole blocks.
    #[must_use]
    pub fn new(k: usize, m: usize, chunk: u32) -> Option<Self> {
        let fits = k >= 1 && m >= 1 && k + m <= crate::codec::CHUNKS_MAX;
        let chunk = u64::from(chunk);
        (fits && chunk > 0 && chunk.is_multiple_of(BLOCK)).then_some(Self { k: k as u64, m: m as u64, chunk })
    }

    /// Number of data shards.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k as usize
    }

    /// Number of all shards.
    #[must_use]
    pub fn shards(&self) -> usize {
        (self.k + self.m) as usize
    }

    /// Bytes of an object in one stripe.
    #[must_use]
    pub fn stripe_width(&self) -> u64 {
        self.k * self.chunk
    }

    /// The data shard with a byte of the object, and the offset in that shard.
    #[must_use]
    pub fn locate(&self, offset: u64) -> (usize, u64) {
        let (stripe, within) = (offset / self.stripe_width(), offset % self.stripe_width());
        ((within / self.chunk) as usize, stripe * self.chunk + within % self.chunk)
    }

    /// Object offset of the byte at `offset` of a data shard.
    #[must_use]
    pub fn object_offset(&self, shard: usize, offset: u64) -> u64 {
        offset / self.chunk * self.stripe_width() + shard as u64 * self.chunk + offset % self.chunk
    }

    /// Number of bytes before object offset `end` in data shard `shard`. With the object's size as `end`, the shard is
    /// zero from there on; callers that assemble unread blocks fill them with zeros from there.
    #[must_use]
    pub fn bytes_before(&self, shard: usize, end: u64) -> u64 {
        let shard = shard as u64;
        let (stripe, within) = (end / self.stripe_width(), end % self.stripe_width());
        stripe * self.chunk + within.saturating_sub(shard * self.chunk).min(self.chunk)
    }

    /// Length in bytes of a shard of an object of `size` bytes. Coding shards are as long as data shard 0, the longest.
    #[must_use]
    pub fn shard_len(&self, size: u64, shard: usize) -> u64 {
        let shard = if shard < self.k() { shard } else { 0 };
        up(self.bytes_before(shard, size.min(SIZE_MAX)))
    }

    /// The range of a data shard that a run of the object covers; may be empty.
    #[must_use]
    pub fn shard_range(&self, shard: usize, run: &Range<u64>) -> Range<u64> {
        let from = self.bytes_before(shard, run.start.min(run.end));
        from..self.bytes_before(shard, run.end).max(from)
    }

    /// The ranges of data shards that hold a run of the object, without rounding.
    #[must_use]
    pub fn parts(&self, run: &Range<u64>) -> Vec<Part> {
        let part = |shard| Part { shard, range: self.shard_range(shard, run) };
        (0..self.k()).map(part).filter(|p| !p.range.is_empty()).collect()
    }

    /// The pieces of a run of the object, in object order: data shard, offset in the shard, offset in the run, length.
    pub fn pieces(&self, run: &Range<u64>) -> impl Iterator<Item = (usize, u64, u64, u64)> + use<> {
        let (layout, start, end) = (*self, run.start, run.end);
        let mut at = start;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (shard, offset) = layout.locate(at);
            let len = (layout.chunk - at % layout.chunk).min(end - at);
            let piece = (shard, offset, at - start, len);
            at += len;
            Some(piece)
        })
    }

    /// The object range to overwrite with zeros before an object shrinks from `old` to `new` bytes: bytes behind the
    /// new end that remain within a shard or contribute to a coding shard.
    #[must_use]
    pub fn tail(&self, old: u64, new: u64) -> Range<u64> {
        let end = new.next_multiple_of(self.stripe_width()).min(old);
        new..end.max(new)
    }

    /// Plans a write of `run` to an object of `size` bytes with the method that reads the fewest blocks. In a tie
    /// `Delta` wins, as it touches fewer shards. `allow_delta` is false if the old coding bytes are not available.
    #[must_use]
    pub fn plan_write(&self, size: u64, run: &Range<u64>, allow_delta: bool) -> WritePlan {
        let mut written: Vec<Part> = self.parts(run);
        for p in &mut written {
            p.range = down(p.range.start)..up(p.range.end);
        }
        // Rows of blocks in which a data shard changes, and therefore every coding shard.
        let rows = written.iter().map(|p| p.range.start).min().unwrap_or(0)
            ..written.iter().map(|p| p.range.end).max().unwrap_or(0);
        let present = |shard: usize, r: Range<u64>| {
            let end = r.end.min(self.shard_len(size, shard));
            (end > r.start).then_some(Part { shard, range: r.start..end })
        };
        let blocks = |parts: &[Part]| parts.iter().map(|p| p.range.end - p.range.start).sum::<u64>();
        // Re-encoding reads the part of these rows that the write does not cover, of each data shard. A shard that is
        // written in the middle of the rows is read as one range.
        let reencode: Vec<Part> = (0..self.k())
            .filter_map(|shard| {
                let new = self.covered(shard, size, run);
                let missing = if new.is_empty() {
                    rows.clone()
                } else {
                    let front = rows.start < new.start;
                    let back = new.end < rows.end;
                    match (front, back) {
                        (false, false) => return None,
                        (true, false) => rows.start..new.start,
                        (false, true) => new.end..rows.end,
                        (true, true) => rows.clone(),
                    }
                };
                present(shard, missing)
            })
            .collect();
        let delta: Vec<Part> = written
            .iter()
            .filter_map(|p| present(p.shard, p.range.clone()))
            .chain((self.k()..self.shards()).filter_map(|s| present(s, rows.clone())))
            .collect();
        let (method, reads) = if reencode.is_empty() {
            (Method::Full, reencode)
        } else if allow_delta && blocks(&delta) <= blocks(&reencode) {
            (Method::Delta, delta)
        } else {
            (Method::Reencode, reencode)
        };
        let coding = (self.k()..self.shards()).map(|shard| Part { shard, range: rows.clone() });
        let writes = if rows.is_empty() { Vec::new() } else { written.into_iter().chain(coding).collect() };
        WritePlan { method, reads, writes }
    }

    /// The whole blocks of a data shard that the write provides completely: blocks within the run, and blocks whose
    /// other bytes lie behind the object's old end and are zero.
    fn covered(&self, shard: usize, size: u64, run: &Range<u64>) -> Range<u64> {
        let r = self.shard_range(shard, run);
        let old_end = self.bytes_before(shard, size);
        let end = if r.end >= old_end { up(r.end) } else { down(r.end) };
        let start = if down(r.start) >= old_end { down(r.start) } else { up(r.start) };
        if r.is_empty() { 0..0 } else { start..end.max(start) }
    }
}
