//! Copy-on-write containers: cloning a map of 10,000 OSDs shares everything, and a change copies one chunk.
//!
//! [`CowVec`] is a vector indexed by OSD number, [`CowMap`] an ordered map (placement overrides, blocklist).
//!
//! Invariants:
//!  1. Every chunk but the last of a `CowVec` holds exactly `CHUNK` elements.
//!  2. Chunks of a `CowMap` are never empty, and keys ascend strictly within and across chunks.
//!
//! Tests: below.

use std::sync::Arc;

/// Elements of one chunk of a [`CowVec`].
const CHUNK: usize = 128;
/// A chunk of a [`CowMap`] that grows past this is split in two.
const MAP_CHUNK_MAX: usize = 128;

/// A vector that shares chunks between clones.
#[derive(Clone, Debug)]
pub struct CowVec<T> {
    chunks: Arc<Vec<Arc<Vec<T>>>>,
    len: usize,
}

impl<T> Default for CowVec<T> {
    fn default() -> Self {
        Self { chunks: Arc::new(Vec::new()), len: 0 }
    }
}

impl<T> CowVec<T> {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the vector is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Element `i`.
    #[must_use]
    pub fn get(&self, i: usize) -> Option<&T> {
        self.chunks.get(i / CHUNK)?.get(i % CHUNK)
    }

    /// All elements in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|c| c.iter())
    }
}

impl<T: Clone> CowVec<T> {
    /// Mutable element `i`. Its chunk is copied if another clone shares it.
    pub fn get_mut(&mut self, i: usize) -> Option<&mut T> {
        if i >= self.len {
            return None;
        }
        let chunks = Arc::make_mut(&mut self.chunks);
        Arc::make_mut(chunks.get_mut(i / CHUNK)?).get_mut(i % CHUNK)
    }

    /// Appends one element.
    pub fn push(&mut self, v: T) {
        let chunks = Arc::make_mut(&mut self.chunks);
        match chunks.last_mut() {
            Some(c) if c.len() < CHUNK => Arc::make_mut(c).push(v),
            _ => chunks.push(Arc::new(vec![v])),
        }
        self.len += 1;
    }
}

impl<T: Clone + Default> CowVec<T> {
    /// Truncates to `n` elements, or fills up with defaults.
    pub fn resize(&mut self, n: usize) {
        if n < self.len {
            let chunks = Arc::make_mut(&mut self.chunks);
            chunks.truncate(n.div_ceil(CHUNK));
            if let Some(last) = chunks.last_mut()
                && !n.is_multiple_of(CHUNK)
            {
                Arc::make_mut(last).truncate(n % CHUNK);
            }
            self.len = n;
        }
        while self.len < n {
            self.push(T::default());
        }
    }
}

impl<T: Clone> FromIterator<T> for CowVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(it: I) -> Self {
        let mut v = Self::default();
        for x in it {
            v.push(x);
        }
        v
    }
}

impl<T: PartialEq> PartialEq for CowVec<T> {
    fn eq(&self, o: &Self) -> bool {
        self.len == o.len
            && (Arc::ptr_eq(&self.chunks, &o.chunks)
                || self.chunks.iter().zip(o.chunks.iter()).all(|(a, b)| Arc::ptr_eq(a, b) || a == b))
    }
}

/// One chunk of a [`CowMap`].
type MapChunk<K, V> = Arc<Vec<(K, V)>>;

/// An ordered map that shares chunks between clones.
#[derive(Clone, Debug)]
pub struct CowMap<K, V> {
    chunks: Arc<Vec<MapChunk<K, V>>>,
    len: usize,
}

impl<K, V> Default for CowMap<K, V> {
    fn default() -> Self {
        Self { chunks: Arc::new(Vec::new()), len: 0 }
    }
}

impl<K: Ord, V> CowMap<K, V> {
    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the map is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Index of the only chunk that can hold `k`.
    fn chunk_of(&self, k: &K) -> Option<usize> {
        self.chunks.partition_point(|c| c.first().is_some_and(|(f, _)| f <= k)).checked_sub(1)
    }

    /// The value of `k`.
    #[must_use]
    pub fn get(&self, k: &K) -> Option<&V> {
        if self.len == 0 {
            return None;
        }
        let c = self.chunks.get(self.chunk_of(k)?)?;
        let i = c.binary_search_by(|(x, _)| x.cmp(k)).ok()?;
        c.get(i).map(|(_, v)| v)
    }

    /// True if `k` has a value.
    #[must_use]
    pub fn contains_key(&self, k: &K) -> bool {
        self.get(k).is_some()
    }

    /// All entries in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.chunks.iter().flat_map(|c| c.iter().map(|(k, v)| (k, v)))
    }

    /// Entries from `k` on, in key order.
    pub fn iter_from<'a>(&'a self, k: &'a K) -> impl Iterator<Item = (&'a K, &'a V)> {
        let at = self.chunk_of(k).unwrap_or(0);
        self.chunks.get(at..).unwrap_or_default().iter().flat_map(move |c| {
            let from = c.partition_point(|(x, _)| x < k);
            c.get(from..).unwrap_or_default().iter().map(|(k, v)| (k, v))
        })
    }

    /// All keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(k, _)| k)
    }
}

impl<K: Ord + Clone, V: Clone> CowMap<K, V> {
    /// Sets the value of `k`.
    pub fn insert(&mut self, k: K, v: V) -> Option<V> {
        let at = self.chunk_of(&k).unwrap_or(0);
        let chunks = Arc::make_mut(&mut self.chunks);
        let Some(slot) = chunks.get_mut(at) else {
            chunks.push(Arc::new(vec![(k, v)]));
            self.len += 1;
            return None;
        };
        let c = Arc::make_mut(slot);
        match c.binary_search_by(|(x, _)| x.cmp(&k)) {
            Ok(i) => c.get_mut(i).map(|e| std::mem::replace(&mut e.1, v)),
            Err(i) => {
                c.insert(i, (k, v));
                self.len += 1;
                if c.len() > MAP_CHUNK_MAX {
                    // Decoding in order always appends, so the left chunk stays full.
                    let cut = if i + 1 == c.len() { MAP_CHUNK_MAX } else { c.len() / 2 };
                    let right = c.split_off(cut);
                    chunks.insert(at + 1, Arc::new(right));
                }
                None
            }
        }
    }

    /// Removes `k`.
    pub fn remove(&mut self, k: &K) -> Option<V> {
        let at = self.chunk_of(k)?;
        let i = self.chunks.get(at)?.binary_search_by(|(x, _)| x.cmp(k)).ok()?;
        let chunks = Arc::make_mut(&mut self.chunks);
        let c = Arc::make_mut(chunks.get_mut(at)?);
        let (_, v) = c.remove(i);
        if c.is_empty() {
            chunks.remove(at);
        }
        self.len -= 1;
        Some(v)
    }
}

impl<K: Ord + Clone, V: Clone> FromIterator<(K, V)> for CowMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(it: I) -> Self {
        let mut m = Self::default();
        for (k, v) in it {
            m.insert(k, v);
        }
        m
    }
}

impl<K: PartialEq + Ord, V: PartialEq> PartialEq for CowMap<K, V> {
    fn eq(&self, o: &Self) -> bool {
        self.len == o.len && (Arc::ptr_eq(&self.chunks, &o.chunks) || self.iter().eq(o.iter()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;
    use std::collections::BTreeMap;

    #[test]
    fn map_equals_a_btree() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut m = CowMap::default();
            let mut model = BTreeMap::new();
            let mut old = Vec::new();
            for step in 0..3000u64 {
                let k = rng.below(700);
                if rng.chance(3, 5) {
                    assert_eq!(m.insert(k, step), model.insert(k, step), "seed {seed}");
                } else {
                    assert_eq!(m.remove(&k), model.remove(&k), "seed {seed}");
                }
                if step % 500 == 0 {
                    old.push((m.clone(), model.clone()));
                }
                let probe = rng.below(700);
                assert_eq!(m.get(&probe), model.get(&probe), "seed {seed}");
            }
            old.push((m, model));
            for (m, model) in old {
                assert_eq!(m.len(), model.len());
                assert!(m.iter().eq(model.iter()), "seed {seed}");
                assert!(m.chunks.iter().all(|c| !c.is_empty()), "seed {seed}");
                let from = rng.below(700);
                assert!(m.iter_from(&from).eq(model.range(from..)), "seed {seed} from {from}");
            }
        }
    }

    fn has_full_chunks(v: &CowVec<u32>) -> bool {
        let (last, full) = v.chunks.split_last().unwrap();
        full.iter().all(|c| c.len() == CHUNK) && !last.is_empty()
    }

    #[test]
    fn vec_resizes_and_keeps_old_clones() {
        let mut v: CowVec<u32> = (0..300).collect();
        let old = v.clone();
        *v.get_mut(129).unwrap() = 7;
        v.resize(130);
        assert_eq!((v.len(), v.get(129), v.get(130)), (130, Some(&7), None));
        assert!(has_full_chunks(&v));
        v.resize(400);
        assert_eq!((v.len(), v.get(399), v.iter().count()), (400, Some(&0), 400));
        assert!(has_full_chunks(&v));
        v.resize(128);
        assert_eq!(v.iter().count(), 128);
        v.push(9);
        assert_eq!(v.get(128), Some(&9));
        assert!(has_full_chunks(&v));
        assert!(old.iter().copied().eq(0..300));
    }
}
