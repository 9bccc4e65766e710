//! Onodes in memory by slot, with a hint table from object hashes to slots.

use super::object::Object;
use slab::Slab;

/// Entries of the hint table: the least, the most, and the number per object in memory.
const HINTS_MIN: usize = 64;
const HINTS_MAX: usize = 1 << 18;
const HINTS_PER_OBJECT: usize = 4;

/// Number of announced operations whose memory is being prefetched.
pub(super) const FORESEEN: usize = 4;

/// Table of onodes; see the module.
pub(crate) struct Table {
    slots: Slab<Object>,
    /// Slots of recently found objects, by hash. The slot may hold another object now, so users verify it.
    hints: Vec<u32>,
    /// Slots and blocks of the latest announced operations, newest first.
    foreseen: [(u32, u64); FORESEEN],
}

impl Default for Table {
    fn default() -> Self {
        Self { slots: Slab::new(), hints: vec![u32::MAX; HINTS_MIN], foreseen: [(u32::MAX, 0); FORESEEN] }
    }
}

impl Table {
    #[inline]
    pub(crate) fn get(&self, id: usize) -> Option<&Object> {
        self.slots.get(id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: usize) -> Option<&mut Object> {
        self.slots.get_mut(id)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Object)> {
        self.slots.iter_mut()
    }

    pub(crate) fn insert(&mut self, o: Object) -> u32 {
        self.slots.insert(o) as u32
    }

    pub(crate) fn try_remove(&mut self, id: usize) -> Option<Object> {
        self.slots.try_remove(id)
    }

    fn hint_of(&self, hash: u32) -> usize {
        // PGs take up the lower bits.
        (hash.wrapping_mul(0x9e37_79b9) >> (u32::BITS - self.hints.len().ilog2())) as usize
    }

    /// Remembers the slot of an object with this hash.
    pub(super) fn remember(&mut self, hash: u32, id: u32) {
        if self.hints.len() < HINTS_MAX && self.hints.len() < HINTS_PER_OBJECT * self.slots.len() {
            self.hints = vec![u32::MAX; 2 * self.hints.len()];
        }
        let at = self.hint_of(hash);
        if let Some(h) = self.hints.get_mut(at) {
            *h = id;
        }
    }

    /// Slot in which an object with this hash was last found; it may hold another object or none now.
    #[inline]
    pub(super) fn recall(&self, hash: u32) -> u32 {
        self.hints.get(self.hint_of(hash)).copied().unwrap_or(u32::MAX)
    }

    /// Registers an announced operation. Returns the second and the fourth before it, as slot and block.
    pub(super) fn prefetch(&mut self, id: u32, block: u64) -> [(u32, u64); 2] {
        let [a, b, c, d] = self.foreseen;
        self.foreseen = [(id, block), a, b, c];
        [b, d]
    }
}
