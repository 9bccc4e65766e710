//! Maps by copy or by OSD for the few other members of a PG: a sorted vector without spare capacity. A B-tree node
//! has room for eleven entries. With two members in each of a thousand PGs such nodes would be most of the PGs'
//! memory.

use crate::shards::PeerId;
use base::OsdId;

/// A map as a sorted vector; iterates in the order of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sorted<K, T>(Vec<(K, T)>);

/// A map by OSD.
pub(crate) type PerOsd<T> = Sorted<OsdId, T>;
/// A map by copy.
pub(crate) type PerPeer<T> = Sorted<PeerId, T>;

impl<K, T> Default for Sorted<K, T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord + Copy, T> Sorted<K, T> {
    fn at(&self, o: K) -> Result<usize, usize> {
        self.0.binary_search_by_key(&o, |(x, _)| *x)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains_key(&self, o: &K) -> bool {
        self.at(*o).is_ok()
    }

    pub(crate) fn get(&self, o: &K) -> Option<&T> {
        self.at(*o).ok().and_then(|i| self.0.get(i)).map(|(_, t)| t)
    }

    pub(crate) fn get_mut(&mut self, o: &K) -> Option<&mut T> {
        self.at(*o).ok().and_then(|i| self.0.get_mut(i)).map(|(_, t)| t)
    }

    /// Sets the value of a key; returns the previous one.
    pub(crate) fn insert(&mut self, o: K, t: T) -> Option<T> {
        match self.at(o) {
            Ok(i) => self.0.get_mut(i).map(|x| std::mem::replace(&mut x.1, t)),
            Err(i) => {
                self.0.reserve_exact(1);
                self.0.insert(i, (o, t));
                None
            }
        }
    }

    pub(crate) fn remove(&mut self, o: &K) -> Option<T> {
        let t = self.at(*o).ok().map(|i| self.0.remove(i).1);
        self.0.shrink_to_fit();
        t
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&K, &mut T) -> bool) {
        self.0.retain_mut(|(o, t)| keep(o, t));
        self.0.shrink_to_fit();
    }

    pub(crate) fn clear(&mut self) {
        self.0 = Vec::new();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &T)> {
        self.0.iter().map(|(o, t)| (o, t))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut T)> {
        self.0.iter_mut().map(|(o, t)| (&*o, t))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(o, _)| o)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, t)| t)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|(_, t)| t)
    }
}

impl<K: Ord + Copy, T> FromIterator<(K, T)> for Sorted<K, T> {
    fn from_iter<I: IntoIterator<Item = (K, T)>>(all: I) -> Self {
        let mut out = Self::default();
        for (o, t) in all {
            out.insert(o, t);
        }
        out
    }
}

impl<K: Ord + Copy, T: Ord + Copy> Sorted<K, T> {
    /// Raises the value of `o` to at least `t`.
    pub(crate) fn raise(&mut self, o: K, t: T) {
        match self.get_mut(&o) {
            Some(x) => *x = (*x).max(t),
            None => drop(self.insert(o, t)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_sorted_without_spare_capacity() {
        let mut m = PerOsd::default();
        for o in [5, 1, 3, 1] {
            m.raise(OsdId(o), o * 10 + i32::try_from(m.0.len()).unwrap());
        }
        assert_eq!(m.iter().map(|(o, t)| (o.0, *t)).collect::<Vec<_>>(), [(1, 13), (3, 32), (5, 50)]);
        assert_eq!(m.insert(OsdId(3), 7), Some(32));
        assert_eq!((m.get(&OsdId(3)), m.get(&OsdId(2)), m.0.capacity()), (Some(&7), None, 3));
        m.retain(|o, _| o.0 != 1);
        assert_eq!((m.remove(&OsdId(5)), m.remove(&OsdId(5)), m.0.capacity()), (Some(50), None, 1));
        for t in m.values_mut() {
            *t += 1;
        }
        assert!(m.contains_key(&OsdId(3)) && m.keys().count() == 1 && m.values().all(|t| *t == 8));
        m.clear();
        assert!(m.is_empty() && m.0.capacity() == 0);
    }
}
