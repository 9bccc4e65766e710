//! Keys and values of one omap leaf, in memory in their stored form: one allocation, and the offset of each
//! entry.
//!
//! A leaf needs little more memory than space on the device. It is read and stored by copying; setting a key
//! moves the entries behind.
//!
//! Invariants:
//!  1. Keys ascend strictly.
//!  2. `at` has the offsets of all entries; `bytes` is the sum of their keys and values.
//!
//! Tests: below.

use super::page::Sum;
use crate::codec::{Get, Malformed, Put};
use std::ops::Range;

/// Least growth of a leaf's allocation in bytes, after the first one.
const GROW_MIN: usize = 512;
/// Bytes that an entry adds to a leaf's size besides key and value.
const ENTRY_BYTES: usize = 8;

/// Entries of one omap leaf; see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leaf {
    /// For each entry: `var` length of the key, `var` length of key and value, key, value.
    buf: Vec<u8>,
    at: Vec<u32>,
    bytes: usize,
}

/// A number in LEB128 and the offset after it; zero beyond the end.
#[inline]
fn var(buf: &[u8], mut at: usize) -> (usize, usize) {
    let (mut v, mut shift) = (0, 0);
    while let Some(b) = buf.get(at) {
        at += 1;
        v |= usize::from(b & 0x7f) << shift;
        shift += 7;
        if b & 0x80 == 0 || shift > 28 {
            break;
        }
    }
    (v, at)
}

/// Encoded length of a number.
fn var_len(v: usize) -> usize {
    (usize::BITS - (v | 1).leading_zeros()).div_ceil(7) as usize
}

fn entry_len(k: usize, v: usize) -> usize {
    var_len(k) + var_len(k + v) + k + v
}

impl Leaf {
    /// Decodes the rest of `r` as a leaf. Verifies lengths and order.
    pub(crate) fn decode(r: &mut Get<'_>) -> Result<Self, Malformed> {
        let n = r.count(2)?;
        let mut out = Self { buf: Vec::new(), at: Vec::with_capacity(n), bytes: 0 };
        out.buf.reserve_exact(r.rest());
        let mut last: Option<&[u8]> = None;
        for _ in 0..n {
            let (klen, len) = (r.var()?, r.var()?);
            if klen > len {
                return r.bad();
            }
            let both = r.take(usize::try_from(len).unwrap_or(usize::MAX))?;
            let (k, v) = both.split_at(klen as usize);
            if last.is_some_and(|l| l >= k) {
                return r.bad();
            }
            last = Some(k);
            out.push(k, v);
        }
        Ok(out)
    }

    pub(crate) fn encode(&self, w: &mut Vec<u8>) {
        w.var(self.at.len() as u64);
        w.extend_from_slice(&self.buf);
    }

    /// A leaf with these entries, in order.
    pub(crate) fn of<'a>(entries: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut out = Self::default();
        entries.for_each(|(k, v)| out.push(k, v));
        out
    }

    fn push(&mut self, k: &[u8], v: &[u8]) {
        self.at.push(self.buf.len() as u32);
        self.buf.var(k.len() as u64);
        self.buf.var((k.len() + v.len()) as u64);
        self.buf.extend_from_slice(k);
        self.buf.extend_from_slice(v);
        self.bytes += k.len() + v.len();
    }

    pub(crate) fn len(&self) -> usize {
        self.at.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    pub(crate) fn sum(&self) -> Sum {
        Sum { n: self.at.len() as u64, bytes: self.bytes as u64, omap: 0 }
    }

    /// Size that the bound of a leaf applies to: keys and values, plus a constant per entry.
    pub(crate) fn size(&self) -> usize {
        self.bytes + self.at.len() * ENTRY_BYTES
    }

    /// Bytes of allocated memory.
    pub(crate) fn mem(&self) -> usize {
        self.buf.capacity() + self.at.capacity() * size_of::<u32>()
    }

    /// Offset of an entry; for the number behind the last one, the end of the entries.
    fn start(&self, i: usize) -> usize {
        self.at.get(i).map_or(self.buf.len(), |a| *a as usize)
    }

    /// Key and value of an entry; empty if there is no such entry.
    #[inline]
    pub(crate) fn get(&self, i: usize) -> (&[u8], &[u8]) {
        let (klen, at) = var(&self.buf, self.start(i));
        let (_, at) = var(&self.buf, at);
        let both = self.buf.get(at..self.start(i + 1)).unwrap_or_default();
        both.split_at_checked(klen).unwrap_or_default()
    }

    pub(crate) fn key(&self, i: usize) -> &[u8] {
        self.get(i).0
    }

    /// Entries from number `first` on.
    pub(crate) fn iter_from(&self, first: usize) -> impl Iterator<Item = (&[u8], &[u8])> {
        (first..self.len()).map(|i| self.get(i))
    }

    /// Number of leading entries for whose keys `f` is true.
    pub(crate) fn upto(&self, f: impl Fn(&[u8]) -> bool) -> usize {
        let (mut lo, mut hi) = (0, self.len());
        while lo < hi {
            let mid = lo + (hi - lo) / 2;
            if f(self.key(mid)) {
                lo = mid + 1;
            } else {
                hi = mid;
            }
        }
        lo
    }

    /// Number of the entry with this key, or the number at which it would be inserted.
    pub(crate) fn find(&self, k: &[u8]) -> Result<usize, usize> {
        let i = self.upto(|x| x < k);
        if i < self.len() && self.key(i) == k { Ok(i) } else { Err(i) }
    }

    /// Sets a key. Returns the sums of the entry it replaced.
    pub(crate) fn set(&mut self, k: &[u8], v: &[u8]) -> Sum {
        let found = self.find(k);
        let (i, replaced) = match found {
            Ok(i) => {
                let (k, v) = self.get(i);
                (i, Some(k.len() + v.len()))
            }
            Err(i) => (i, None),
        };
        let from = self.start(i);
        let to = if replaced.is_some() { self.start(i + 1) } else { from };
        let new = entry_len(k.len(), v.len());
        self.make_room(from, to, new);
        let mut w = self.buf.get_mut(from..).unwrap_or_default();
        put_var(&mut w, k.len());
        put_var(&mut w, k.len() + v.len());
        put(&mut w, k);
        put(&mut w, v);
        let rest = i + usize::from(replaced.is_some());
        for a in self.at.get_mut(rest..).unwrap_or_default() {
            *a = (*a as usize + new - (to - from)) as u32;
        }
        if replaced.is_none() {
            if self.at.len() == self.at.capacity() {
                self.at.reserve_exact((self.at.len() / 8).max(GROW_MIN / 16));
            }
            self.at.insert(i, from as u32);
        }
        let gone = replaced.unwrap_or(0);
        self.bytes = self.bytes + k.len() + v.len() - gone;
        Sum { n: u64::from(replaced.is_some()), bytes: gone as u64, omap: 0 }
    }

    /// Changes the length of the bytes `[from, to)` to `len`.
    fn make_room(&mut self, from: usize, to: usize, len: usize) {
        let (old, end) = (to - from, self.buf.len());
        if len > old {
            let more = len - old;
            if end + more > self.buf.capacity() {
                // Grows less than vectors do: many leaves are in memory, and few of them grow.
                self.buf.reserve_exact(more.max(end / 8).max(GROW_MIN));
            }
            self.buf.resize(end + more, 0);
            self.buf.copy_within(to..end, from + len);
        } else {
            self.buf.copy_within(to..end, from + len);
            self.buf.truncate(end - (old - len));
        }
    }

    /// Removes entries. Returns their sums.
    pub(crate) fn remove(&mut self, r: Range<usize>) -> Sum {
        let bytes: usize = r.clone().map(|i| self.get(i)).map(|(k, v)| k.len() + v.len()).sum();
        let (from, to) = (self.start(r.start), self.start(r.end));
        self.buf.drain(from..to);
        self.buf.shrink_to(2 * self.buf.len() + GROW_MIN);
        let n = self.at.drain(r.clone()).count();
        for a in self.at.get_mut(r.start..).unwrap_or_default() {
            *a -= (to - from) as u32;
        }
        self.bytes -= bytes;
        Sum { n: n as u64, bytes: bytes as u64, omap: 0 }
    }

    /// Splits off the entries from number `i` on.
    pub(crate) fn split_off(&mut self, i: usize) -> Self {
        let from = self.start(i);
        let mut out = Self { buf: Vec::new(), at: Vec::new(), bytes: 0 };
        out.buf = self.buf.get(from..).unwrap_or_default().to_vec();
        out.at = self.at.get(i..).unwrap_or_default().iter().map(|a| a - from as u32).collect();
        out.bytes = out.iter_from(0).map(|(k, v)| k.len() + v.len()).sum();
        self.buf.truncate(from);
        self.buf.shrink_to(from + from / 8);
        self.at.truncate(i);
        self.at.shrink_to(i + i / 8);
        self.bytes -= out.bytes;
        out
    }
}

fn put_var(w: &mut &mut [u8], mut v: usize) {
    while v >= 0x80 {
        put(w, &[v as u8 | 0x80]);
        v >>= 7;
    }
    put(w, &[v as u8]);
}

fn put(w: &mut &mut [u8], b: &[u8]) {
    if let Some((to, rest)) = std::mem::take(w).split_at_mut_checked(b.len()) {
        to.copy_from_slice(b);
        *w = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;
    use std::collections::BTreeMap;

    fn same(l: &Leaf, m: &BTreeMap<Vec<u8>, Vec<u8>>) {
        assert!(l.iter_from(0).eq(m.iter().map(|(k, v)| (&k[..], &v[..]))));
        let bytes: usize = m.iter().map(|(k, v)| k.len() + v.len()).sum();
        assert_eq!((l.sum().n, l.sum().bytes), (m.len() as u64, bytes as u64));
        let mut w = Vec::new();
        l.encode(&mut w);
        let mut r = Get::new(&w);
        assert_eq!(&Leaf::decode(&mut r).unwrap(), l);
        assert_eq!(r.rest(), 0);
    }

    #[test]
    fn a_leaf_is_an_ordered_map() {
        for seed in 0..30 {
            let mut rng = Rng::new(seed);
            let (mut l, mut m) = (Leaf::default(), BTreeMap::new());
            for _ in 0..400 {
                let mut k = vec![0; rng.below(3) as usize];
                rng.fill(&mut k);
                k.extend(vec![b'k'; [0, 1, 130][rng.below(3) as usize]]);
                match rng.below(8) {
                    0..=4 => {
                        let v = vec![seed as u8; [0, 1, 100, 200, 20_000][rng.below(5) as usize]];
                        let gone = l.set(&k, &v);
                        let old = m.insert(k.clone(), v);
                        let bytes = old.as_ref().map_or(0, |o| k.len() + o.len());
                        assert_eq!((gone.n, gone.bytes), (u64::from(old.is_some()), bytes as u64));
                    }
                    5 | 6 => {
                        let at = l.find(&k);
                        assert_eq!(at.is_ok(), m.contains_key(&k));
                        let from = at.unwrap_or_else(|i| i);
                        let to = (from + rng.below(4) as usize).min(l.len());
                        l.remove(from..to);
                        for k in m.keys().skip(from).take(to - from).cloned().collect::<Vec<_>>() {
                            m.remove(&k);
                        }
                    }
                    _ => {
                        let at = rng.below(l.len() as u64 + 1) as usize;
                        let upper = l.split_off(at);
                        let rest = m.split_off(&m.keys().nth(at).cloned().unwrap_or(vec![255; 300]));
                        same(&upper, &rest);
                        if rng.chance(1, 2) {
                            (l, m) = (upper, rest);
                        }
                    }
                }
                same(&l, &m);
            }
        }
    }

    #[test]
    fn unordered_or_cut_leaves_are_refused() {
        let all = [(&b"a"[..], &b"1"[..]), (b"b", b"2")];
        let mut w = Vec::new();
        Leaf::of(all.into_iter()).encode(&mut w);
        for n in 0..w.len() {
            assert!(Leaf::decode(&mut Get::new(&w[..n])).is_err());
        }
        for twice in [[all[1], all[0]], [all[0], all[0]]] {
            let mut w = Vec::new();
            Leaf::of(twice.into_iter()).encode(&mut w);
            assert!(Leaf::decode(&mut Get::new(&w)).is_err());
        }
        // The length of the key exceeds that of key and value.
        assert!(Leaf::decode(&mut Get::new(&[1, 2, 1, b'a'])).is_err());
    }
}
