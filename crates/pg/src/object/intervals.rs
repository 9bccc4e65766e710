//! Sets of number ranges: byte ranges that a clone shares with the next newer version of the object, and sets of
//! snapshots.

use wire::{Decode, Encode, Reader, Writer};

/// Ranges `(offset, length)`, ascending, never empty, never touching.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals(Vec<(u64, u64)>);

impl Intervals {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// A set of one range; empty if `len` is 0.
    #[must_use]
    pub fn one(off: u64, len: u64) -> Self {
        let mut s = Self::default();
        s.insert(off, len);
        s
    }

    /// The ranges as `(offset, length)`, ascending.
    #[must_use]
    pub fn as_slice(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// True if the set has no range.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if `x` is in one of the ranges.
    #[must_use]
    pub fn contains(&self, x: u64) -> bool {
        let at = self.0.partition_point(|r| r.0 <= x);
        at.checked_sub(1).and_then(|i| self.0.get(i)).is_some_and(|r| x - r.0 < r.1)
    }

    /// Sum of lengths.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|r| r.1).sum()
    }

    /// Adds a range, cut at `u64::MAX`.
    pub fn insert(&mut self, off: u64, len: u64) {
        let end = off.saturating_add(len);
        if end == off {
            return;
        }
        let first = self.0.partition_point(|r| r.0.saturating_add(r.1) < off);
        let last = self.0.partition_point(|r| r.0 <= end);
        let (mut lo, mut hi) = (off, end);
        for r in self.0.get(first..last).unwrap_or_default() {
            lo = lo.min(r.0);
            hi = hi.max(r.0.saturating_add(r.1));
        }
        self.0.splice(first..last.max(first), [(lo, hi - lo)]);
    }

    /// Removes a range.
    pub fn remove(&mut self, off: u64, len: u64) {
        if len == 0 || self.0.is_empty() {
            return;
        }
        let end = off.saturating_add(len);
        let mut out = Vec::with_capacity(self.0.len() + 1);
        for &(o, l) in &self.0 {
            let e = o.saturating_add(l);
            if e <= off || o >= end {
                out.push((o, l));
                continue;
            }
            if o < off {
                out.push((o, off - o));
            }
            if e > end {
                out.push((end, e - end));
            }
        }
        self.0 = out;
    }

    /// The union of ranges in any order, in the time of sorting them.
    #[must_use]
    pub fn of_ranges(mut ranges: Vec<(u64, u64)>) -> Self {
        ranges.sort_unstable();
        let mut out: Vec<(u64, u64)> = Vec::new();
        for (off, len) in ranges {
            let end = off.saturating_add(len);
            if end == off {
                continue;
            }
            match out.last_mut() {
                Some(l) if off <= l.0.saturating_add(l.1) => l.1 = end.max(l.0.saturating_add(l.1)) - l.0,
                _ => out.push((off, end - off)),
            }
        }
        Self(out)
    }

    /// Adds all of `o`.
    pub fn union(&mut self, o: &Self) {
        match o.0.as_slice() {
            [] => {}
            [one] => self.insert(one.0, one.1),
            all => *self = Self::of_ranges([&self.0[..], all].concat()),
        }
    }

    /// Removes all of `o`, in one pass.
    pub fn subtract(&mut self, o: &Self) {
        if let [one] = o.0.as_slice() {
            return self.remove(one.0, one.1);
        }
        let mut out = Vec::with_capacity(self.0.len() + o.0.len());
        let mut others = o.0.iter().copied().peekable();
        for &(off, len) in &self.0 {
            let (mut from, end) = (off, off.saturating_add(len));
            while let Some(&(x, n)) = others.peek() {
                let upto = x.saturating_add(n);
                if x >= end {
                    break;
                }
                if x > from {
                    out.push((from, x - from));
                }
                from = from.max(upto);
                if upto > end {
                    break;
                }
                others.next();
            }
            if from < end {
                out.push((from, end - from));
            }
        }
        self.0 = out;
    }

    /// The ranges that are in both sets.
    #[must_use]
    pub fn intersection(&self, o: &Self) -> Self {
        let mut out = Self::default();
        let (mut i, mut j) = (0, 0);
        while let (Some(a), Some(b)) = (self.0.get(i), o.0.get(j)) {
            let lo = a.0.max(b.0);
            let (ae, be) = (a.0.saturating_add(a.1), b.0.saturating_add(b.1));
            let hi = ae.min(be);
            if lo < hi {
                out.insert(lo, hi - lo);
            }
            if ae <= be {
                i += 1;
            } else {
                j += 1;
            }
        }
        out
    }
}

/// Ranges in the order in which they were noted, from time to time merged.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeLog {
    all: Vec<(u64, u64)>,
    /// Ranges that the last merge left.
    merged: usize,
}

/// Number of noted ranges from which on they are merged.
const LOG_MERGED: usize = 4096;

impl RangeLog {
    pub(crate) fn note(&mut self, ranges: &[(u64, u64)]) {
        if self.all.len() + ranges.len() > 2 * self.merged + LOG_MERGED {
            self.all = Intervals::of_ranges(std::mem::take(&mut self.all)).0;
            self.merged = self.all.len();
        }
        self.all.extend_from_slice(ranges);
    }

    /// Number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Drops all but the first `n`; false if a merge has put them together with later ones.
    #[must_use]
    pub(crate) fn truncate(&mut self, n: usize) -> bool {
        let separate = self.merged <= n && n <= self.all.len();
        if separate {
            self.all.truncate(n);
        }
        separate
    }

    /// The union of all ranges.
    pub(crate) fn into_set(self) -> Intervals {
        Intervals::of_ranges(self.all)
    }
}

impl Encode for Intervals {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.0);
    }
}

impl Decode for Intervals {
    fn decode(r: &mut Reader<'_>) -> wire::codec::Result<Self> {
        Ok(Self::of_ranges(r.get()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_empty_range_is_kept_at_u64_max() {
        let mut s = Intervals::one(0, 4);
        s.insert(u64::MAX, 5);
        assert_eq!(s.as_slice(), [(0, 4)]);
        s.insert(u64::MAX - 1, 5);
        assert_eq!(s.as_slice(), [(0, 4), (u64::MAX - 1, 1)]);
    }

    #[test]
    fn noted_ranges_are_merged_and_the_newest_can_be_dropped() {
        let mut log = RangeLog::default();
        for n in 0..20_000u64 {
            log.note(&[(n % 5000 * 3, 2)]);
            assert!(log.len() <= 2 * 5000 + LOG_MERGED);
            let before = log.len();
            log.note(&[(1 << 40, 1)]);
            assert!(log.len() <= before || log.truncate(before));
        }
        let set = log.into_set();
        assert_eq!(set.as_slice().iter().filter(|r| r.0 < 1 << 40).count(), 5000);
    }

    #[test]
    fn equals_a_bitmap() {
        let mut rng = base::rng::Rng::new(7);
        for _ in 0..200 {
            let (mut a, mut b) = (Intervals::default(), Intervals::default());
            let (mut ma, mut mb) = ([false; 64], [false; 64]);
            for _ in 0..rng.below(12) {
                let (o, l) = (rng.below(50), rng.below(14));
                let add = rng.chance(2, 3);
                let (s, m) = if rng.chance(1, 2) { (&mut a, &mut ma) } else { (&mut b, &mut mb) };
                if add {
                    s.insert(o, l)
                } else {
                    s.remove(o, l)
                }
                for x in o..o + l {
                    m[x as usize] = add;
                }
            }
            let bits = |s: &Intervals| {
                let mut m = [false; 64];
                for &(o, l) in s.as_slice() {
                    assert!(l > 0);
                    for x in o..o + l {
                        m[x as usize] = true;
                    }
                }
                assert!(s.as_slice().windows(2).all(|w| w[0].0 + w[0].1 < w[1].0), "merged and ascending");
                m
            };
            assert_eq!(bits(&a), ma);
            assert_eq!(bits(&b), mb);
            let both = bits(&a.intersection(&b));
            let mut log = RangeLog::default();
            log.note(a.as_slice());
            log.note(b.as_slice());
            let mut all = a.clone();
            all.union(&b);
            assert_eq!(log.into_set(), all);
            let all = bits(&all);
            let mut diff = a.clone();
            diff.subtract(&b);
            let diff = bits(&diff);
            for x in 0..64 {
                assert_eq!(both[x], ma[x] && mb[x]);
                assert_eq!(diff[x], ma[x] && !mb[x]);
                assert_eq!(all[x], ma[x] || mb[x]);
                assert_eq!(a.contains(x as u64), ma[x]);
            }
        }
    }
}
