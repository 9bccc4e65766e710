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

    /// Adds all of `o`.
    pub fn union(&mut self, o: &Self) {
        for &(a, l) in &o.0 {
            self.insert(a, l);
        }
    }

    /// Removes all of `o`.
    pub fn subtract(&mut self, o: &Self) {
        for &(a, l) in &o.0 {
            self.remove(a, l);
        }
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

impl Encode for Intervals {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.0);
    }
}

impl Decode for Intervals {
    fn decode(r: &mut Reader<'_>) -> wire::codec::Result<Self> {
        let v: Vec<(u64, u64)> = r.get()?;
        let mut s = Self::default();
        for (o, l) in v {
            s.insert(o, l);
        }
        Ok(s)
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
            let mut diff = a.clone();
            diff.subtract(&b);
            let diff = bits(&diff);
            for x in 0..64 {
                assert_eq!(both[x], ma[x] && mb[x]);
                assert_eq!(diff[x], ma[x] && !mb[x]);
                assert_eq!(a.contains(x as u64), ma[x]);
            }
        }
    }
}
