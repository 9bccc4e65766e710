//! Sets of numbers kept as ranges (`interval_set<snapid_t>`): removed and purged snapshots.

use std::collections::BTreeMap;
use wire::codec::{Decode, Encode, Reader, Result, Writer};

/// A set of `u64` as disjoint, non-adjacent ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSet {
    /// Length of each range, by its start.
    ranges: BTreeMap<u64, u64>,
}

impl IntervalSet {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Ranges as `(start, length)`, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(s, l)| (*s, *l))
    }

    /// Ranges that begin in `first..=last`, ascending.
    pub fn starting_in(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        (first <= last).then(|| self.ranges.range(first..=last)).into_iter().flatten().map(|(s, l)| (*s, *l))
    }

    /// The last range that begins at or below `x`.
    #[must_use]
    pub fn last_up_to(&self, x: u64) -> Option<(u64, u64)> {
        self.ranges.range(..=x).next_back().map(|(s, l)| (*s, *l))
    }

    /// Number of ranges.
    #[must_use]
    pub fn num_intervals(&self) -> usize {
        self.ranges.len()
    }

    /// Number of members.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.ranges.values().fold(0, |a, l| a.saturating_add(*l))
    }

    /// True if `x` is a member.
    #[must_use]
    pub fn contains(&self, x: u64) -> bool {
        self.ranges.range(..=x).next_back().is_some_and(|(s, l)| x - s < *l)
    }

    /// Adds `len` numbers from `start` on, joining adjacent ranges.
    pub fn insert(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let mut from = start;
        let mut end = start.saturating_add(len);
        if let Some((s, l)) = self.ranges.range(..=start).next_back().map(|(s, l)| (*s, *l))
            && s.saturating_add(l) >= start
        {
            from = s;
            end = end.max(s.saturating_add(l));
        }
        while let Some((s, l)) = self.ranges.range(from..=end).next().map(|(s, l)| (*s, *l)) {
            end = end.max(s.saturating_add(l));
            self.ranges.remove(&s);
        }
        self.ranges.insert(from, end - from);
    }

    /// Removes `len` numbers from `start` on, whether members or not.
    pub fn erase(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let end = start.saturating_add(len);
        if let Some((s, l)) = self.ranges.range(..start).next_back().map(|(s, l)| (*s, *l)) {
            let e = s.saturating_add(l);
            if e > start {
                self.ranges.insert(s, start - s);
                if e > end {
                    self.ranges.insert(end, e - end);
                }
            }
        }
        while let Some((s, l)) = self.ranges.range(start..end).next().map(|(s, l)| (*s, *l)) {
            self.ranges.remove(&s);
            let e = s.saturating_add(l);
            if e > end {
                self.ranges.insert(end, e - end);
            }
        }
    }

    /// Adds every member of `o`.
    pub fn union_of(&mut self, o: &Self) {
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

impl Encode for IntervalSet {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.ranges);
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
                // Adjacent ranges are joined: no range ends where the next begins.
                let v: Vec<_> = s.iter().collect();
                assert!(v.windows(2).all(|w| w[0].0 + w[0].1 < w[1].0), "seed {seed}");
                let (a, b) = (rng.below(220), rng.below(220));
                let within: Vec<_> = v.iter().copied().filter(|(s, _)| (a..=b).contains(s)).collect();
                assert_eq!(s.starting_in(a, b).collect::<Vec<_>>(), within, "seed {seed}");
                assert_eq!(s.last_up_to(a), v.iter().copied().rfind(|(s, _)| *s <= a), "seed {seed}");
            }
        }
    }
}
