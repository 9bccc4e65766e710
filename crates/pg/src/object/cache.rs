//! Bounded cache of decoded object contexts, least recently used out first.
//!
//! Invariants:
//!  1. An entry equals what the store holds after the last submitted transaction.
//!  2. Order of eviction depends only on the order of use, never on hashing.
//!
//! Tests: `tests/model.rs` (1), below (2).

use super::{ObjectInfo, SnapSet};
use base::HObject;
use base::unreached;
use bytes::Bytes;
use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;
use std::hash::BuildHasher;
use std::rc::Rc;

/// Cached metadata of one object: head and clones.
#[derive(Clone, Debug, Default)]
pub struct ObjectContext {
    /// The head exists.
    pub exists: bool,
    /// Info of the head; blank if absent.
    pub oi: ObjectInfo,
    /// The object's clones.
    pub ss: SnapSet,
    /// Sequence number of the last submitted write to the object, 0 if none. Replies wait until that write is
    /// durable.
    pub last_write: u64,
}

const NIL: u32 = u32::MAX;

fn hash_of(head: &HObject) -> u64 {
    FxBuildHasher.hash_one(head)
}

#[derive(Debug)]
struct Slot {
    key: HObject,
    value: Rc<ObjectContext>,
    newer: u32,
    older: u32,
}

/// The cache of object contexts; see the module. Keys are heads.
#[derive(Debug)]
pub struct ContextCache {
    /// Positions in `slots`, hashed by key.
    index: HashTable<u32>,
    slots: Vec<Slot>,
    newest: u32,
    oldest: u32,
    free: Vec<u32>,
    max: usize,
    /// Largest `last_write` of the evicted entries. The last write of an uncached object may be as new as this.
    evicted_write: u64,
}

impl ContextCache {
    /// Changes the capacity of an empty cache.
    pub fn bound(&mut self, max: usize) {
        self.max = max.max(1);
    }

    /// An empty cache for at most `max` objects.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            index: HashTable::new(),
            slots: Vec::new(),
            newest: NIL,
            oldest: NIL,
            free: Vec::new(),
            max: max.max(1),
            evicted_write: 0,
        }
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// True if there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The entry of `head`, now the most recently used.
    pub fn get(&mut self, head: &HObject) -> Option<Rc<ObjectContext>> {
        let at = self.find(head)?;
        if self.newest != at {
            self.unlink(at);
            self.push_newest(at);
        }
        self.slots.get(at as usize).map(|s| Rc::clone(&s.value))
    }

    /// Sets the entry of `head`. The name is copied, so that the entry does not keep a whole message alive.
    pub fn put(&mut self, head: &HObject, value: Rc<ObjectContext>) {
        if let Some(at) = self.find(head) {
            if let Some(s) = self.slots.get_mut(at as usize) {
                s.value = value;
            }
            if self.newest != at {
                self.unlink(at);
                self.push_newest(at);
            }
            return;
        }
        if self.index.len() >= self.max {
            self.evict();
        }
        let key = HObject {
            oid: Bytes::copy_from_slice(&head.oid),
            key: Bytes::copy_from_slice(&head.key),
            nspace: Bytes::copy_from_slice(&head.nspace),
            ..head.clone()
        };
        let slot = Slot { key, value, newer: NIL, older: NIL };
        let at = if let Some(at) = self.free.pop() {
            if let Some(s) = self.slots.get_mut(at as usize) {
                *s = slot;
            }
            at
        } else {
            self.slots.push(slot);
            (self.slots.len() - 1) as u32
        };
        self.index.insert_unique(hash_of(head), at, |&i| self.slots.get(i as usize).map_or(0, |s| hash_of(&s.key)));
        self.push_newest(at);
    }

    /// Drops the entry of one object.
    pub fn remove(&mut self, head: &HObject) {
        if let Some(at) = self.find(head) {
            self.forget(at);
        }
    }

    /// Drops all entries; the bound for uncached objects stays.
    pub fn clear(&mut self) {
        let (max, evicted) = (self.max, self.evicted_write);
        *self = Self::new(max);
        self.evicted_write = evicted;
    }

    /// Upper bound for the sequence number of the last write to an uncached object.
    #[must_use]
    pub fn unknown_write(&self) -> u64 {
        self.evicted_write
    }

    fn find(&self, head: &HObject) -> Option<u32> {
        self.index.find(hash_of(head), |&at| self.slots.get(at as usize).is_some_and(|s| s.key == *head)).copied()
    }

    /// Drops an entry and frees its slot.
    fn forget(&mut self, at: u32) {
        let Some(hash) = self.slots.get(at as usize).map(|s| hash_of(&s.key)) else {
            return unreached("the slot of an entry exists");
        };
        if let Ok(e) = self.index.find_entry(hash, |&i| i == at) {
            e.remove();
        }
        self.unlink(at);
        self.free.push(at);
    }

    fn evict(&mut self) {
        let at = self.oldest;
        let Some(s) = self.slots.get(at as usize) else { return unreached("a full cache has an oldest entry") };
        self.evicted_write = self.evicted_write.max(s.value.last_write);
        self.forget(at);
    }

    fn unlink(&mut self, at: u32) {
        let Some((newer, older)) = self.slots.get(at as usize).map(|s| (s.newer, s.older)) else {
            return unreached("the slot of an entry exists");
        };
        match self.slots.get_mut(newer as usize) {
            Some(n) => n.older = older,
            None => self.newest = older,
        }
        match self.slots.get_mut(older as usize) {
            Some(o) => o.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn push_newest(&mut self, at: u32) {
        let was = self.newest;
        if let Some(s) = self.slots.get_mut(at as usize) {
            s.newer = NIL;
            s.older = was;
        }
        match self.slots.get_mut(was as usize) {
            Some(n) => n.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(n: u8) -> HObject {
        HObject { oid: Bytes::copy_from_slice(&[n]), ..HObject::min() }.head()
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut c = ContextCache::new(3);
        for n in 0..3 {
            c.put(&name(n), Rc::new(ObjectContext { last_write: n.into(), ..ObjectContext::default() }));
        }
        assert!(c.get(&name(0)).is_some());
        c.put(&name(3), Rc::default());
        assert!(c.get(&name(1)).is_none(), "1 was the oldest");
        assert_eq!(c.unknown_write(), 1);
        assert!(c.get(&name(0)).is_some());
        assert!(c.get(&name(2)).is_some());
        c.remove(&name(0));
        c.put(&name(4), Rc::default());
        assert_eq!(c.len(), 3);
        assert!(c.get(&name(2)).is_some() && c.get(&name(3)).is_some() && c.get(&name(4)).is_some());
    }
}
