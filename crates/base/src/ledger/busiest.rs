//! The objects with the most operations of a window, without all of its objects (Misra-Gries).
//!
//! An operation on an object that has no place reads two cache lines. An object gets its name here with its second
//! operation, or when an operation waits for its lock: most of those that have a place for a while have only one.

use super::window::Object;
use super::{Answered, Cause};

/// Most objects of a window. One with more than a sixteenth of all operations is among them.
const OBJECTS_MAX: usize = 16;

/// The objects; see the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Busiest {
    /// Hashes of the objects, by place.
    hashes: [u32; OBJECTS_MAX],
    /// Operations by place. Places without operations are free.
    ops: [u32; OBJECTS_MAX],
    /// Bits of the places whose object has its name.
    named: u16,
    /// At the same places; its own count of operations is not kept.
    objects: Vec<Object>,
}

impl Busiest {
    /// Counts an operation.
    pub(super) fn add(&mut self, a: &Answered<'_>) {
        let Some(at) = self.known(a).or_else(|| self.place(a.hash)) else { return };
        self.ops[at] = self.ops[at].saturating_add(1);
        let lock_us = u64::from(a.ledger.us(Cause::Lock));
        let waits = a.busy || lock_us > 0;
        if self.named & 1 << at == 0 && (waits || self.ops[at] > 1) {
            self.name(at, a);
        }
        if waits && let Some(o) = self.objects.get_mut(at) {
            o.lock_us += lock_us;
            o.busy += u64::from(a.busy);
        }
    }

    /// The place of an object. Objects of equal hash are told apart once one of them has its name.
    fn known(&self, a: &Answered<'_>) -> Option<usize> {
        let equal = self.hashes.iter().enumerate().filter(|(_, h)| **h == a.hash).map(|(i, _)| i);
        let is = |i: &usize| self.named & 1 << i == 0 || self.objects.get(*i).is_some_and(|o| o.is(a.pool, a.name));
        equal.filter(|i| self.ops[*i] > 0).find(is)
    }

    /// A place for an object that has none; if none is free, every object loses an operation instead.
    fn place(&mut self, hash: u32) -> Option<usize> {
        let Some(at) = self.ops.iter().position(|n| *n == 0) else {
            self.ops.iter_mut().for_each(|n| *n -= 1);
            return None;
        };
        self.named &= !(1 << at);
        self.hashes[at] = hash;
        Some(at)
    }

    #[cold]
    fn name(&mut self, at: usize, a: &Answered<'_>) {
        let new = Object::new(a.pool, a.name);
        self.objects.resize(self.objects.len().max(at + 1), new);
        self.objects[at] = new;
        self.named |= 1 << at;
    }

    /// The objects that have their names, with their operations.
    pub(super) fn all(&self) -> impl Iterator<Item = Object> + '_ {
        let all = self.objects.iter().zip(&self.ops).enumerate();
        let named = all.filter(|(at, (_, n))| **n > 0 && self.named & 1 << at != 0);
        named.map(|(_, (o, n))| o.with_ops(u64::from(*n)))
    }

    /// Forgets all objects; the memory stays.
    pub(super) fn clear(&mut self) {
        self.ops = [0; OBJECTS_MAX];
    }
}
