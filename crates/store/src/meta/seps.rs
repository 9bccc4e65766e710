//! Separators of an inner page, laid out for searching: kind, group and position in 16 bytes each, side by
//! side. The bytes that break ties, which most separators lack, are kept apart.
//!
//! Invariants: ascending; `rests` is empty or as long as `at`.
//!
//! Tests: below.

use super::key::{Key, Sep};
use bytes::Bytes;
use std::cmp::Ordering;

/// Separators of one inner page; see the module.
#[derive(Debug, Default)]
pub(crate) struct Seps {
    /// `hi`, then `lo`.
    at: Vec<u128>,
    rests: Vec<Bytes>,
}

fn word(hi: u64, lo: u64) -> u128 {
    u128::from(hi) << 64 | u128::from(lo)
}

impl Seps {
    pub(crate) fn with_capacity(n: usize) -> Self {
        Self { at: Vec::with_capacity(n), rests: Vec::new() }
    }

    /// Number of separators not above the key. The key belongs to the last kid among them.
    pub(crate) fn upto(&self, key: &Key<'_>) -> usize {
        let k = word(key.hi, key.lo);
        let from = self.at.partition_point(|s| *s < k);
        let ties = self.at.get(from..).map_or(0, |s| s.partition_point(|s| *s == k));
        match (ties, self.rests.get(from..from + ties)) {
            (0, _) => from,
            (_, Some(rests)) => from + rests.partition_point(|r| key.cmp_rest(r) != Ordering::Greater),
            // None of these separators has tie-breaking bytes, so none is above the key.
            (n, None) => from + n,
        }
    }

    /// Kind and group of a separator.
    pub(crate) fn hi(&self, i: usize) -> Option<u64> {
        self.at.get(i).map(|s| (s >> 64) as u64)
    }

    /// Kind, group and position of a separator.
    pub(crate) fn hi_lo(&self, i: usize) -> Option<(u64, u64)> {
        self.at.get(i).map(|s| ((s >> 64) as u64, *s as u64))
    }

    /// Number of leading separators whose `hi` satisfies `f`.
    pub(crate) fn while_hi(&self, f: impl Fn(u64) -> bool) -> usize {
        self.at.partition_point(|s| f((s >> 64) as u64))
    }

    pub(crate) fn get(&self, i: usize) -> Option<Sep> {
        let (hi, lo) = self.hi_lo(i)?;
        Some(Sep { hi, lo, rest: self.rests.get(i).cloned().unwrap_or_default() })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Sep> + '_ {
        (0..self.at.len()).map_while(|i| self.get(i))
    }

    /// Inserts a separator at index `i`.
    pub(crate) fn insert(&mut self, i: usize, sep: Sep) {
        if self.rests.is_empty() && !sep.rest.is_empty() {
            self.rests = vec![Bytes::new(); self.at.len()];
        }
        if !(self.rests.is_empty() && sep.rest.is_empty()) {
            self.rests.insert(i, sep.rest);
        }
        self.at.insert(i, word(sep.hi, sep.lo));
    }

    pub(crate) fn push(&mut self, sep: Sep) {
        self.insert(self.at.len(), sep);
    }

    pub(crate) fn remove(&mut self, i: usize) -> Option<Sep> {
        let sep = self.get(i)?;
        self.at.remove(i);
        if !self.rests.is_empty() {
            self.rests.remove(i);
        }
        Some(sep)
    }

    /// Splits off the separators from `i` on.
    pub(crate) fn split_off(&mut self, i: usize) -> Self {
        let rests = if self.rests.is_empty() { Vec::new() } else { self.rests.split_off(i) };
        Self { at: self.at.split_off(i), rests }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;

    /// Compares searches with those in a sorted list of whole separators.
    #[test]
    fn separators_are_found_as_in_a_sorted_list() {
        let mut rng = Rng::new(11);
        for _ in 0..300 {
            let (mut row, mut seps) = (Vec::<Sep>::new(), Seps::default());
            let tied = rng.chance(1, 2);
            let word = |rng: &mut Rng| -> Bytes {
                let n = if tied { rng.below(3) } else { 0 };
                (0..n).map(|_| b'a' + rng.below(2) as u8).collect::<Vec<_>>().into()
            };
            for _ in 0..rng.below(40) {
                let sep = Sep { hi: rng.below(3), lo: rng.below(4), rest: word(&mut rng) };
                match row.binary_search(&sep) {
                    Ok(i) => {
                        assert_eq!(seps.remove(i), Some(row.remove(i)));
                    }
                    Err(i) => {
                        row.insert(i, sep.clone());
                        seps.insert(i, sep);
                    }
                }
            }
            assert!(seps.iter().eq(row.iter().cloned()));
            for _ in 0..20 {
                let w = word(&mut rng);
                let mut key = Key::omap(0, &w);
                if !tied {
                    key = Key::plain(0, 0);
                }
                (key.hi, key.lo) = (rng.below(3), rng.below(4));
                assert_eq!(seps.upto(&key), row.partition_point(|s| key.cmp_sep(s) != Ordering::Greater));
            }
            let at = rng.below(row.len() as u64 + 1) as usize;
            let (right, rest) = (seps.split_off(at), row.split_off(at));
            assert!(right.iter().eq(rest) && seps.iter().eq(row));
        }
    }
}
