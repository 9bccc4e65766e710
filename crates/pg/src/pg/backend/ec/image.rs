//! The content of one object after a transaction, and the blocks that each shard must write.
//!
//! Pure. The transaction's changes are laid over the old content. The changed ranges are extended to rows of blocks.
//! Each row is read as far as necessary and then encoded to data and coding blocks.
//!
//! Invariants:
//!  1. Every byte behind the object's new end that stays in a shard is zero, so a shard's content follows from the
//!     object's.
//!  2. Reads and writes cover whole blocks, and reads end at a shard's present end.
//!
//! Tests: below.

use ::ec::stripe::{BLOCK, Layout, Method, Part, WritePlan};
use ::ec::{Codec, CodecError};
use base::planted::{Bug, acts};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;

/// New bytes of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Run {
    Data(Bytes),
    Zero(u64),
}

impl Run {
    fn len(&self) -> u64 {
        match self {
            Self::Data(d) => d.len() as u64,
            Self::Zero(n) => *n,
        }
    }

    fn part(&self, r: Range<u64>) -> Self {
        match self {
            Self::Data(d) => Self::Data(d.slice(r.start as usize..r.end as usize)),
            Self::Zero(_) => Self::Zero(r.end - r.start),
        }
    }
}

/// The content of an object during a transaction; see the module.
#[derive(Clone, Debug, Default)]
pub(in crate::pg) struct Image {
    /// Size of the object that the shards hold.
    old: u64,
    /// Bytes before this offset still belong to the object.
    cut: u64,
    /// Size of the object after the transaction.
    size: u64,
    /// Ranges laid over the old bytes, by offset; they don't overlap.
    over: BTreeMap<u64, Run>,
}

/// A group of rows with its reads and writes.
#[derive(Clone, Debug)]
pub(in crate::pg) struct Rows {
    /// Range of the rows in each shard, in bytes.
    rows: Range<u64>,
    plan: WritePlan,
}

/// New bytes for one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::pg) struct ShardWrite {
    pub shard: usize,
    pub off: u64,
    pub data: Bytes,
}

impl Image {
    /// The content of an object of `size` bytes, without changes.
    pub(in crate::pg) fn of(size: u64) -> Self {
        Self { old: size, cut: size, size, over: BTreeMap::new() }
    }

    /// Size of the object that the shards hold.
    pub(in crate::pg) fn old(&self) -> u64 {
        self.old
    }

    /// Size of the object after the transaction.
    pub(in crate::pg) fn size(&self) -> u64 {
        self.size
    }

    /// True if the object's size changed, also if it was cut and grew again.
    pub(in crate::pg) fn is_resized(&self) -> bool {
        self.size != self.old || self.cut < self.old
    }

    fn clear(&mut self, r: Range<u64>) {
        let first = self.over.range(..r.start).next_back().map(|(o, _)| *o);
        let touched: Vec<u64> = first.into_iter().chain(self.over.range(r.clone()).map(|(o, _)| *o)).collect();
        for off in touched {
            let Some(run) = self.over.get(&off) else { continue };
            let end = off + run.len();
            if end <= r.start {
                continue;
            }
            let run = run.clone();
            self.over.remove(&off);
            if off < r.start {
                self.over.insert(off, run.part(0..r.start - off));
            }
            if end > r.end {
                self.over.insert(r.end, run.part(r.end - off..end - off));
            }
        }
    }

    fn put(&mut self, off: u64, run: Run) {
        let len = run.len();
        if len > 0 {
            self.clear(off..off + len);
            self.over.insert(off, run);
            self.size = self.size.max(off + len);
        }
    }

    /// Applies an `Op::Write`.
    pub(in crate::pg) fn write(&mut self, off: u64, data: Bytes) {
        self.put(off, Run::Data(data));
    }

    /// Applies an `Op::Zero`.
    pub(in crate::pg) fn zero(&mut self, off: u64, len: u64) {
        self.put(off, Run::Zero(len));
    }

    /// Applies an `Op::Truncate`.
    pub(in crate::pg) fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.clear(size..self.size.max(size));
            self.cut = self.cut.min(size);
        }
        self.size = size;
    }

    /// The ranges that change, including bytes behind the new end that must become zero.
    fn finish(&mut self, layout: &Layout) -> Vec<Range<u64>> {
        // Old bytes that no longer belong to the object but stay in shards.
        let end = self.size.next_multiple_of(layout.stripe_width()).min(self.old);
        let mut at = self.cut;
        while at < end {
            let next = self.over.range(at..).next().map(|(o, r)| (*o, o + r.len()));
            let inside = self.over.range(..at).next_back().map(|(o, r)| o + r.len()).filter(|e| *e > at);
            if let Some(e) = inside {
                at = e;
                continue;
            }
            let upto = next.map_or(end, |(o, _)| o.min(end));
            if upto > at {
                self.over.insert(at, Run::Zero(upto - at));
            }
            at = next.map_or(end, |(_, e)| e).max(upto);
        }
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (off, r) in &self.over {
            match runs.last_mut() {
                Some(last) if last.end == *off => last.end = off + r.len(),
                _ => runs.push(*off..off + r.len()),
            }
        }
        runs
    }

    /// Plans reads and writes. `delta`: all shards are readable, so a parity delta is possible.
    pub(in crate::pg) fn plan(&mut self, layout: &Layout, delta: bool) -> Vec<Rows> {
        let runs = self.finish(layout);
        let mut all: Vec<(Range<u64>, Range<u64>)> =
            runs.into_iter().map(|run| (rows_of(&layout.parts(&run)), run)).collect();
        all.sort_by_key(|(rows, run)| (rows.start, run.start));
        let mut groups: Vec<(Range<u64>, Vec<Range<u64>>)> = Vec::new();
        for (rows, run) in all {
            match groups.last_mut() {
                Some((r, all)) if rows.start < r.end => {
                    r.start = r.start.min(rows.start);
                    r.end = r.end.max(rows.end);
                    all.push(run);
                }
                _ => groups.push((rows, vec![run])),
            }
        }
        groups
            .into_iter()
            .map(|(rows, runs)| {
                if let [run] = &runs[..] {
                    return Rows { rows, plan: layout.plan_write(self.old, run, delta) };
                }
                // Several ranges in the same rows: the rows are read completely.
                let present = |shard: usize| {
                    let end = rows.end.min(layout.shard_len(self.old, shard));
                    (end > rows.start).then_some(Part { shard, range: rows.start..end })
                };
                let reads = (0..layout.k()).filter_map(present).collect();
                let mut writes: Vec<Part> = Vec::new();
                for p in runs.iter().flat_map(|r| layout.parts(r)) {
                    let r = p.range.start / BLOCK * BLOCK..p.range.end.next_multiple_of(BLOCK);
                    match writes.iter_mut().find(|w| w.shard == p.shard) {
                        Some(w) => w.range = w.range.start.min(r.start)..w.range.end.max(r.end),
                        None => writes.push(Part { shard: p.shard, range: r }),
                    }
                }
                let coding = (layout.k()..layout.shards()).map(|shard| Part { shard, range: rows.clone() });
                writes.extend(coding);
                Rows { rows, plan: WritePlan { method: Method::Reencode, reads, writes } }
            })
            .collect()
    }

    /// The new bytes of one data shard in `range`, in order: the range in the shard, and the bytes, or `None` for zeros.
    fn pieces<'a>(
        &'a self,
        layout: &'a Layout,
        shard: usize,
        range: Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, Option<&'a [u8]>)> + 'a {
        let first = layout.object_offset(shard, range.start);
        let last = layout.object_offset(shard, range.end - 1);
        let before = self.over.range(..first).next_back().map(|(o, _)| *o);
        self.over.range(before.unwrap_or(first)..=last).flat_map(move |(off, run)| {
            let range = range.clone();
            layout.pieces(&(*off..*off + run.len())).filter_map(move |(s, at, within, len)| {
                let (a, b) = (at.max(range.start), (at + len).min(range.end));
                let src = (within + a.saturating_sub(at)) as usize;
                (s == shard && a < b).then(|| match run {
                    Run::Zero(_) => (a..b, None),
                    Run::Data(d) => (a..b, Some(&d[src..src + (b - a) as usize])),
                })
            })
        })
    }

    /// Lays the new bytes of one data shard over `buf`, which holds the shard from offset `from` on.
    fn lay(&self, layout: &Layout, shard: usize, from: u64, buf: &mut [u8]) {
        for (r, bytes) in self.pieces(layout, shard, from..from + buf.len() as u64) {
            let target = &mut buf[(r.start - from) as usize..(r.end - from) as usize];
            match bytes {
                None => target.fill(0),
                Some(bytes) => target.copy_from_slice(bytes),
            }
        }
    }

    /// The new bytes of one data shard in `range`, zero where nothing is new.
    fn gather(&self, layout: &Layout, shard: usize, range: Range<u64>) -> Vec<u8> {
        let mut buf = Vec::with_capacity((range.end - range.start) as usize);
        for (r, bytes) in self.pieces(layout, shard, range.clone()) {
            buf.resize((r.start - range.start) as usize, 0);
            match bytes {
                None => buf.resize((r.end - range.start) as usize, 0),
                Some(bytes) => buf.extend_from_slice(bytes),
            }
        }
        buf.resize((range.end - range.start) as usize, 0);
        buf
    }

    /// Encodes the blocks of `rows`; `read` has the bytes of its reads, in order and complete.
    pub(in crate::pg) fn encode(
        &self,
        layout: &Layout,
        codec: &Codec,
        rows: &Rows,
        read: &[Bytes],
    ) -> Result<Vec<ShardWrite>, CodecError> {
        let len = (rows.rows.end - rows.rows.start) as usize;
        let within = |r: &Range<u64>| (r.start - rows.rows.start) as usize..(r.end - rows.rows.start) as usize;
        // Old bytes of the rows, zero where nothing was read.
        let mut old: Vec<Option<Vec<u8>>> = vec![None; layout.shards()];
        for (p, bytes) in rows.plan.reads.iter().zip(read) {
            let buf = old[p.shard].get_or_insert_with(|| vec![0; len]);
            buf[within(&p.range)].copy_from_slice(bytes);
        }
        let mut out = Vec::with_capacity(rows.plan.writes.len());
        if rows.plan.method == Method::Delta {
            for p in rows.plan.writes.iter().filter(|p| p.shard < layout.k()) {
                let r = within(&p.range);
                let before = old[p.shard].as_ref().map_or_else(|| vec![0; r.len()], |b| b[r.clone()].to_vec());
                let mut new = before.clone();
                self.lay(layout, p.shard, p.range.start, &mut new);
                let of = |old: u8| if acts(Bug::DeltaWithoutOld) { 0 } else { old };
                let diff: Vec<u8> = before.iter().zip(&new).map(|(a, b)| of(*a) ^ b).collect();
                for (c, parity) in old.iter_mut().enumerate().skip(layout.k()) {
                    let parity = parity.get_or_insert_with(|| vec![0; len]);
                    codec.apply(p.shard, &diff, c, &mut parity[r.clone()])?;
                }
                out.push(ShardWrite { shard: p.shard, off: p.range.start, data: new.into() });
            }
            for p in rows.plan.writes.iter().filter(|p| p.shard >= layout.k()) {
                let bytes = old[p.shard].take().unwrap_or_else(|| vec![0; len]);
                out.push(ShardWrite { shard: p.shard, off: p.range.start, data: bytes.into() });
            }
            return Ok(out);
        }
        let mut data: Vec<Vec<u8>> = Vec::with_capacity(layout.k());
        for (shard, had) in old.into_iter().take(layout.k()).enumerate() {
            data.push(match had {
                Some(mut buf) => {
                    self.lay(layout, shard, rows.rows.start, &mut buf);
                    buf
                }
                None => self.gather(layout, shard, rows.rows.clone()),
            });
        }
        let coding = codec.encode_new(&data.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        let all: Vec<Bytes> = data.into_iter().chain(coding).map(Bytes::from).collect();
        for p in &rows.plan.writes {
            out.push(ShardWrite { shard: p.shard, off: p.range.start, data: all[p.shard].slice(within(&p.range)) });
        }
        Ok(out)
    }
}

impl Rows {
    /// The reads, in the order that [`Image::encode`] expects.
    pub(in crate::pg) fn reads(&self) -> &[Part] {
        &self.plan.reads
    }
}

fn rows_of(parts: &[Part]) -> Range<u64> {
    let start = parts.iter().map(|p| p.range.start / BLOCK * BLOCK).min().unwrap_or(0);
    start..parts.iter().map(|p| p.range.end.next_multiple_of(BLOCK)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::ec::Technique;
    use base::rng::Rng;

    /// Shards of an object, encoded as a whole.
    fn shards(layout: &Layout, codec: &Codec, object: &[u8]) -> Vec<Vec<u8>> {
        let size = object.len() as u64;
        let len = layout.shard_len(size, 0) as usize;
        let mut data = vec![vec![0u8; len]; layout.k()];
        for (s, at, within, n) in layout.pieces(&(0..size)) {
            let src = &object[within as usize..(within + n) as usize];
            data[s][at as usize..(at + n) as usize].copy_from_slice(src);
        }
        let mut coding = vec![vec![0u8; len]; layout.shards() - layout.k()];
        let refs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        codec.encode(&refs, &mut coding.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
        let mut all: Vec<Vec<u8>> = data.into_iter().chain(coding).collect();
        for (s, d) in all.iter_mut().enumerate() {
            d.truncate(layout.shard_len(size, s) as usize);
        }
        all
    }

    fn apply(old: &mut Vec<u8>, image: &mut Image, rng: &mut Rng) {
        for _ in 0..=rng.below(3) {
            let off = rng.below(60_000);
            let len = rng.below(20_000);
            match rng.below(4) {
                0 => {
                    old.resize(off as usize, 0);
                    image.truncate(off);
                }
                1 if (off + len) as usize <= old.len() => {
                    old[off as usize..(off + len) as usize].fill(0);
                    image.zero(off, len);
                }
                _ => {
                    let data: Vec<u8> = (0..len).map(|_| rng.below(255) as u8 + 1).collect();
                    if !data.is_empty() && old.len() < (off + len) as usize {
                        old.resize((off + len) as usize, 0);
                    }
                    if !data.is_empty() {
                        old[off as usize..(off + len) as usize].copy_from_slice(&data);
                    }
                    image.write(off, data.into());
                }
            }
        }
    }

    #[test]
    fn any_mix_of_writes_gives_the_shards_of_the_resulting_object() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let (k, m) = [(2, 1), (4, 2), (3, 2)][rng.below(3) as usize];
            let chunk = [4096, 8192][rng.below(2) as usize];
            let layout = Layout::new(k, m, chunk).unwrap();
            let codec = Codec::new(Technique::JerasureVandermonde, k, m).unwrap();
            let mut object: Vec<u8> = (0..rng.below(70_000)).map(|_| rng.below(256) as u8).collect();
            let mut now = shards(&layout, &codec, &object);
            for _ in 0..4 {
                let mut image = Image::of(object.len() as u64);
                apply(&mut object, &mut image, &mut rng);
                assert_eq!(image.size(), object.len() as u64);
                let plan = image.plan(&layout, rng.below(2) == 0);
                let mut writes = Vec::new();
                for rows in &plan {
                    let whole = |range: &std::ops::Range<u64>| {
                        range.start.is_multiple_of(4096) && range.end.is_multiple_of(4096)
                    };
                    assert!(rows.reads().iter().all(|p| whole(&p.range)), "seed {seed}");
                    let read: Vec<Bytes> = rows
                        .reads()
                        .iter()
                        .map(|p| {
                            let r = p.range.start as usize..p.range.end as usize;
                            Bytes::copy_from_slice(&now[p.shard][r])
                        })
                        .collect();
                    writes.extend(image.encode(&layout, &codec, rows, &read).unwrap());
                }
                for w in writes {
                    let end = w.off as usize + w.data.len();
                    assert!(w.off % 4096 == 0 && end.is_multiple_of(4096), "seed {seed}");
                    let s = &mut now[w.shard];
                    s.resize(s.len().max(end), 0);
                    s[w.off as usize..end].copy_from_slice(&w.data);
                }
                for (s, d) in now.iter_mut().enumerate() {
                    d.resize(layout.shard_len(image.size(), s) as usize, 0);
                }
                assert_eq!(now, shards(&layout, &codec, &object), "seed {seed}");
            }
        }
    }
}
