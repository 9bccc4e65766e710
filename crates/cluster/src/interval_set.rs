//! Sets of numbers kept as ranges (`interval_set<snapid_t>`): removed and purged snapshots.
//!
//! A set may have a hundred thousand ranges, and each epoch of a map has a version of its own. So the ranges are in
//! chunks that versions share: a clone costs nothing, and a change copies one chunk and the list of chunks.
//!
//! Invariants:
//!  1. Ranges ascend within and across chunks, and neither overlap nor touch.
//!  2. A chunk has 1 to `CHUNK_MAX` ranges. One that shrinks is joined with the next one if both fit into half a
//!     chunk.
//!
//! Tests: below.

use std::sync::Arc;
use wire::codec::{Decode, Encode, Reader, Result, Writer};

/// Most ranges of a chunk. One chunk and the list of chunks are of similar size in a set of 100,000 ranges.
const CHUNK_MAX: usize = 512;

/// Ranges that are encoded at once.
const ENCODED_PART: usize = 64;

/// A range as `(start, length)`.
type Range = (u64, u64);

/// Neighbouring ranges, shared between versions of a set.
#[derive(Clone, Debug, Default)]
struct Chunk {
    ranges: Vec<Range>,
    /// Sum of the lengths.
    size: u64,
}

impl Chunk {
    fn of(ranges: Vec<Range>) -> Arc<Self> {
        let mut c = Self { ranges, size: 0 };
        c.count();
        Arc::new(c)
    }

    fn count(&mut self) {
        // Disjoint ranges have no more than all numbers together.
        self.size = self.ranges.iter().map(|r| r.1).sum();
    }

    fn start(&self) -> u64 {
        self.ranges.first().map_or(0, |r| r.0)
    }
}

/// A set of `u64` as disjoint, non-adjacent ranges. Clones share their ranges; see the module.
#[derive(Clone, Debug, Default)]
pub struct IntervalSet {
    chunks: Arc<Vec<Arc<Chunk>>>,
    /// Number of ranges.
    ranges: usize,
}

impl PartialEq for IntervalSet {
    fn eq(&self, o: &Self) -> bool {
        self.ranges == o.ranges && (Arc::ptr_eq(&self.chunks, &o.chunks) || self.iter().eq(o.iter()))
    }
}

impl Eq for IntervalSet {}

impl IntervalSet {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges == 0
    }

    /// Ranges as `(start, length)`, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.chunks.iter().flat_map(|c| c.ranges.iter().copied())
    }

    /// Ranges that begin at or above `first`, ascending.
    pub fn starting_from(&self, first: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let at = self.chunk_of(first).unwrap_or(0);
        self.chunks.get(at..).unwrap_or_default().iter().flat_map(move |c| {
            let from = c.ranges.partition_point(|r| r.0 < first);
            c.ranges.get(from..).unwrap_or_default().iter().copied()
        })
    }

    /// Ranges that begin in `first..=last`, ascending.
    pub fn starting_in(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.starting_from(first).take_while(move |r| r.0 <= last)
    }

    /// The last range that begins at or below `x`.
    #[must_use]
    pub fn last_up_to(&self, x: u64) -> Option<(u64, u64)> {
        let c = self.chunks.get(self.chunk_of(x)?)?;
        c.ranges.get(c.ranges.partition_point(|r| r.0 <= x).checked_sub(1)?).copied()
    }

    /// The lowest member at or above `x`.
    #[must_use]
    pub fn first_from(&self, x: u64) -> Option<u64> {
        if self.contains(x) {
            return Some(x);
        }
        self.range_from(x).map(|r| r.0)
    }

    /// The parts of the set's ranges within `start..end`, ascending.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let first = start.checked_sub(1).and_then(|x| self.last_up_to(x));
        let all = first.into_iter().chain(self.starting_from(start)).take_while(move |r| r.0 < end);
        let cut = move |(s, l): Range| (s.max(start), s.saturating_add(l).min(end));
        all.map(cut).filter(|(s, e)| s < e).map(|(s, e)| (s, e - s))
    }

    /// The first number above all members.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.chunks.last().and_then(|c| c.ranges.last()).map_or(0, |(s, l)| s.saturating_add(*l))
    }

    /// True if both are the same version, without a look at the members.
    #[must_use]
    pub fn is_version_of(&self, o: &Self) -> bool {
        Arc::ptr_eq(&self.chunks, &o.chunks)
    }

    fn range_from(&self, x: u64) -> Option<Range> {
        self.starting_from(x).next()
    }

    /// Number of ranges.
    #[must_use]
    pub fn num_intervals(&self) -> usize {
        self.ranges
    }

    /// Number of members.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.chunks.iter().fold(0, |a, c| a.saturating_add(c.size))
    }

    /// Number of members at or above `x`, in the time of one chunk and the list of chunks.
    #[must_use]
    pub fn size_from(&self, x: u64) -> u64 {
        let Some(at) = self.chunk_of(x) else { return self.size() };
        let whole = self.chunks.get(at + 1..).unwrap_or_default();
        let part = self.chunks.get(at).into_iter().flat_map(|c| c.ranges.iter());
        let part = part.map(|(s, l)| s.saturating_add(*l).saturating_sub((*s).max(x)));
        whole.iter().map(|c| c.size).chain(part).fold(0, u64::saturating_add)
    }

    /// True if `x` is a member.
    #[must_use]
    pub fn contains(&self, x: u64) -> bool {
        self.last_up_to(x).is_some_and(|(s, l)| x - s < l)
    }

    /// Members that `before` has not, as ranges, ascending. Chunks that both versions share are not looked at.
    #[must_use]
    pub fn added_since(&self, before: &Self) -> Vec<(u64, u64)> {
        if Arc::ptr_eq(&self.chunks, &before.chunks) {
            return Vec::new();
        }
        let (mut new, mut old) = (Vec::new(), Vec::new());
        let (mut a, mut b) = (At::default(), At::default());
        loop {
            let (ca, cb) = (before.chunks.get(a.chunk), self.chunks.get(b.chunk));
            if let (Some(x), Some(y), 0, 0) = (ca, cb, a.range, b.range)
                && Arc::ptr_eq(x, y)
            {
                (a.chunk, b.chunk) = (a.chunk + 1, b.chunk + 1);
                continue;
            }
            // A changed chunk has most of its ranges in common with the one before.
            let same = a.rest(before).iter().zip(b.rest(self)).take_while(|(x, y)| x == y).count();
            if same > 0 {
                a.pass(same, before);
                b.pass(same, self);
                continue;
            }
            let (x, y) = (a.of(before), b.of(self));
            match (x, y) {
                (None, None) => break,
                (Some(x), y) if y.is_none_or(|y| x.0 <= y.0) => {
                    old.push(x);
                    a.pass(1, before);
                }
                (_, Some(y)) => {
                    new.push(y);
                    b.pass(1, self);
                }
                (Some(_), None) => break,
            }
        }
        let mut out = Self::default();
        new.into_iter().for_each(|(s, l)| out.insert(s, l));
        old.into_iter().for_each(|(s, l)| out.erase(s, l));
        out.iter().collect()
    }

    /// Index of the only chunk that can hold a range that begins at or below `x` and is the last of these.
    fn chunk_of(&self, x: u64) -> Option<usize> {
        self.chunks.partition_point(|c| c.start() <= x).checked_sub(1)
    }

    /// Adds a range that touches no other, or changes the length of the one that begins at `start`.
    fn put(&mut self, start: u64, len: u64) {
        let at = self.chunk_of(start).unwrap_or(0);
        let chunks = Arc::make_mut(&mut self.chunks);
        let Some(slot) = chunks.get_mut(at) else {
            chunks.push(Chunk::of(vec![(start, len)]));
            self.ranges += 1;
            return;
        };
        let c = Arc::make_mut(slot);
        let i = c.ranges.partition_point(|r| r.0 < start);
        match c.ranges.get_mut(i) {
            Some(r) if r.0 == start => {
                c.size = c.size - r.1 + len;
                r.1 = len;
            }
            _ => {
                c.ranges.insert(i, (start, len));
                c.size += len;
                self.ranges += 1;
            }
        }
        let cut = (c.ranges.len() > CHUNK_MAX).then(|| {
            // A set that grows at its end has full chunks.
            let cut = if i + 1 == c.ranges.len() { CHUNK_MAX } else { CHUNK_MAX / 2 };
            let right = c.ranges.split_off(cut);
            c.count();
            right
        });
        if let Some(right) = cut {
            chunks.insert(at + 1, Chunk::of(right));
        }
    }

    /// Removes the range that begins at `start`.
    fn take(&mut self, start: u64) {
        let Some(at) = self.chunk_of(start) else { return };
        let chunks = Arc::make_mut(&mut self.chunks);
        let Some(slot) = chunks.get_mut(at) else { return };
        let c = Arc::make_mut(slot);
        let before = c.ranges.len();
        if let Ok(i) = c.ranges.binary_search_by(|r| r.0.cmp(&start)) {
            c.size -= c.ranges.remove(i).1;
        }
        let left = c.ranges.len();
        self.ranges -= before - left;
        let next = chunks.get(at + 1).map_or(CHUNK_MAX, |n| n.ranges.len());
        if left == 0 {
            chunks.remove(at);
        } else if left + next <= CHUNK_MAX / 2 {
            let joined = chunks.remove(at + 1);
            if let Some(c) = chunks.get_mut(at).map(Arc::make_mut) {
                c.ranges.extend_from_slice(&joined.ranges);
                c.count();
            }
        }
    }

    /// Adds `len` numbers from `start` on, joining adjacent ranges.
    pub fn insert(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let mut from = start;
        let mut end = start.saturating_add(len);
        if let Some((s, l)) = self.last_up_to(start)
            && s.saturating_add(l) >= start
        {
            from = s;
            end = end.max(s.saturating_add(l));
        }
        while let Some((s, l)) = self.range_from(from.saturating_add(1)).filter(|r| r.0 <= end) {
            end = end.max(s.saturating_add(l));
            self.take(s);
        }
        self.put(from, end - from);
    }

    /// Removes `len` numbers from `start` on, whether members or not.
    pub fn erase(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let end = start.saturating_add(len);
        if let Some((s, l)) = start.checked_sub(1).and_then(|x| self.last_up_to(x)) {
            let e = s.saturating_add(l);
            if e > start {
                self.put(s, start - s);
                if e > end {
                    self.put(end, e - end);
                }
            }
        }
        while let Some((s, l)) = self.range_from(start).filter(|r| r.0 < end) {
            self.take(s);
            let e = s.saturating_add(l);
            if e > end {
                self.put(end, e - end);
            }
        }
    }

    /// Adds every member of `o`.
    pub fn union_of(&mut self, o: &Self) {
        if self.is_empty() {
            self.clone_from(o);
            return;
        }
        for (s, l) in o.iter() {
            self.insert(s, l);
        }
    }

    /// Removes every member of `o`.
    pub fn subtract(&mut self, o: &Self) {
        for (s, l) in o.iter() {
            self.erase(s, l);
        }
    }
}

/// Place of a range in a set.
#[derive(Clone, Copy, Default)]
struct At {
    chunk: usize,
    range: usize,
}

impl At {
    fn of(self, s: &IntervalSet) -> Option<Range> {
        s.chunks.get(self.chunk)?.ranges.get(self.range).copied()
    }

    /// The ranges of the chunk from here on.
    fn rest(self, s: &IntervalSet) -> &[Range] {
        s.chunks.get(self.chunk).and_then(|c| c.ranges.get(self.range..)).unwrap_or_default()
    }

    /// Passes `n` ranges of the chunk.
    fn pass(&mut self, n: usize, s: &IntervalSet) {
        self.range += n;
        if s.chunks.get(self.chunk).is_some_and(|c| self.range >= c.ranges.len()) {
            *self = Self { chunk: self.chunk + 1, range: 0 };
        }
    }
}

impl Encode for IntervalSet {
    fn encode(&self, w: &mut Writer) {
        w.u32(u32::try_from(self.ranges).unwrap_or(u32::MAX));
        // In larger parts, as full maps of many ranges are encoded beside clients' operations.
        let mut part = [0; 16 * ENCODED_PART];
        for ranges in self.chunks.iter().flat_map(|c| c.ranges.chunks(ENCODED_PART)) {
            let (pairs, _) = part.as_chunks_mut::<16>();
            for ((s, l), to) in ranges.iter().zip(pairs) {
                let (a, b) = to.split_at_mut(8);
                a.copy_from_slice(&s.to_le_bytes());
                b.copy_from_slice(&l.to_le_bytes());
            }
            w.raw(part.get(..16 * ranges.len()).unwrap_or_default());
        }
    }
}

impl Decode for IntervalSet {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let n = r.count(16, "interval_set")?;
        let mut s = Self::new();
        for _ in 0..n {
            let (a, l) = (r.u64()?, r.u64()?);
            s.insert(a, l);
        }
        Ok(s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;
    use std::collections::BTreeSet;

    /// The invariants of the module.
    fn check(s: &IntervalSet) {
        let v: Vec<_> = s.iter().collect();
        // Adjacent ranges are joined: no range ends where the next begins.
        assert!(v.windows(2).all(|w| w[0].0 + w[0].1 < w[1].0));
        assert_eq!(v.len(), s.num_intervals());
        for c in s.chunks.iter() {
            assert!(!c.ranges.is_empty() && c.ranges.len() <= CHUNK_MAX);
            assert_eq!(c.size, c.ranges.iter().map(|r| r.1).sum::<u64>());
        }
    }

    #[test]
    fn equals_a_set_of_numbers() {
        for seed in 0..30 {
            let mut rng = Rng::new(seed);
            let (mut s, mut model) = (IntervalSet::new(), BTreeSet::new());
            for _ in 0..300 {
                let (a, l) = (rng.below(200), rng.below(12));
                if rng.chance(1, 2) {
                    s.insert(a, l);
                    model.extend(a..a + l);
                } else {
                    s.erase(a, l);
                    for x in a..a + l {
                        model.remove(&x);
                    }
                }
                assert!((0..220).all(|x| s.contains(x) == model.contains(&x)), "seed {seed}");
                assert_eq!(s.size(), model.len() as u64, "seed {seed}");
                check(&s);
                let v: Vec<_> = s.iter().collect();
                let (a, b) = (rng.below(220), rng.below(220));
                let within: Vec<_> = v.iter().copied().filter(|(s, _)| (a..=b).contains(s)).collect();
                assert_eq!(s.starting_in(a, b).collect::<Vec<_>>(), within, "seed {seed}");
                assert_eq!(s.last_up_to(a), v.iter().copied().rfind(|(s, _)| *s <= a), "seed {seed}");
                assert_eq!(s.first_from(a), model.range(a..).next().copied(), "seed {seed}");
                assert_eq!(s.size_from(a), model.range(a..).count() as u64, "seed {seed}");
                assert_eq!(s.end(), model.last().map_or(0, |x| x + 1), "seed {seed}");
                let cut: Vec<u64> = s.within(a, b).flat_map(|(s, l)| s..s + l).collect();
                assert!(cut.iter().eq(model.range(a.min(b)..b)), "seed {seed}");
            }
        }
    }

    #[test]
    fn versions_of_many_chunks_tell_what_was_added() {
        for seed in 0..8 {
            let mut rng = Rng::new(seed);
            let (mut s, mut model) = (IntervalSet::new(), BTreeSet::new());
            let mut versions = vec![(s.clone(), model.clone())];
            for n in 0..12_000u64 {
                let a = if rng.chance(1, 3) { rng.below(9_000) } else { n * 2 };
                if rng.chance(4, 5) {
                    s.insert(a, 1);
                    model.insert(a);
                } else {
                    let l = 1 + rng.below(9);
                    s.erase(a, l);
                    for x in a..a + l {
                        model.remove(&x);
                    }
                }
                if n % 1_000 == 0 {
                    versions.push((s.clone(), model.clone()));
                }
            }
            versions.push((s, model));
            for w in [1, 4].map(|by| versions.windows(by + 1)).into_iter().flatten() {
                let ((a, ma), (b, mb)) = (w.first().unwrap(), w.last().unwrap());
                check(b);
                let added: Vec<u64> = b.added_since(a).into_iter().flat_map(|(s, l)| s..s + l).collect();
                assert!(added.iter().eq(mb.difference(ma)), "seed {seed}");
                let gone: Vec<u64> = a.added_since(b).into_iter().flat_map(|(s, l)| s..s + l).collect();
                assert!(gone.iter().eq(ma.difference(mb)), "seed {seed}");
                assert!(b.iter().flat_map(|(s, l)| s..s + l).eq(mb.iter().copied()), "an older version stays");
            }
        }
    }

    #[test]
    fn ranges_end_at_the_last_number() {
        let mut s = IntervalSet::new();
        s.insert(u64::MAX - 1, 9);
        s.insert(0, 4);
        assert_eq!(s.iter().collect::<Vec<_>>(), [(0, 4), (u64::MAX - 1, 1)]);
        assert_eq!((s.first_from(4), s.first_from(u64::MAX)), (Some(u64::MAX - 1), None));
        s.erase(0, u64::MAX);
        assert!(s.is_empty() && s.chunks.is_empty());
    }

    /// A version of 100,000 ranges costs hardly more than one of ten: its change copies one chunk.
    #[test]
    fn versions_share_all_chunks_but_the_changed_ones() {
        let mut s = IntervalSet::new();
        (0..100_000).for_each(|n| s.insert(3 * n, 1));
        let before = s.clone();
        s.insert(150_001, 1);
        s.erase(0, 1);
        let shared = s.chunks.iter().filter(|c| before.chunks.iter().any(|b| Arc::ptr_eq(b, c))).count();
        assert!(s.chunks.len() <= 100_000 / CHUNK_MAX + 3, "{} chunks", s.chunks.len());
        assert!(shared + 3 >= s.chunks.len(), "{shared} of {}", s.chunks.len());
        assert_eq!(s.added_since(&before), [(150_001, 1)]);
        assert_eq!(before.added_since(&s), [(0, 1)]);
        (0..100_000).rev().filter(|n| n % 512 != 0).for_each(|n| s.erase(3 * n, 1));
        assert!(s.num_intervals() < CHUNK_MAX / 2 && s.chunks.len() <= 2, "{} chunks", s.chunks.len());
    }
}
