//! The objects with the most operations of a window, without all of its objects (Misra-Gries).
//!
//! An operation on an object that has no place reads two cache lines: names are compared only where their marks are equal.

use super::window::{Name, Object};
use super::{Cause, Ledger};
use crate::PoolId;
use rustc_hash::FxBuildHasher;
use std::hash::BuildHasher as _;

/// Most objects of a window. One with more than a sixteenth of all operations is among them.
const OBJECTS_MAX: usize = 16;

/// The objects; see the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Busiest {
    /// Marks of the objects, by place.
    marks: [u32; OBJECTS_MAX],
    /// Operations by place. Places without operations are free.
    ops: [u32; OBJECTS_MAX],
    /// At the same places; its own count of operations is not kept.
    objects: Vec<Object>,
}

/// A number that two objects rarely share.
fn mark(pool: PoolId, name: &[u8]) -> u32 {
    (FxBuildHasher.hash_one((pool, name)) >> 32) as u32
}

impl Busiest {
    /// Counts an operation; `busy`: a class refused it with `EBUSY`.
    pub(super) fn add(&mut self, pool: PoolId, name: &[u8], busy: bool, l: &Ledger) {
        let name = Name::cut(name);
        let mark = mark(pool, name);
        let of = |i: &usize| self.ops[*i] > 0 && self.objects.get(*i).is_some_and(|o| o.is(pool, name));
        let known = self.marks.iter().enumerate().filter(|(_, m)| **m == mark).map(|(i, _)| i).find(of);
        let Some(at) = known.or_else(|| self.place(pool, name, mark)) else { return };
        self.ops[at] = self.ops[at].saturating_add(1);
        let lock_us = u64::from(l.us(Cause::Lock));
        if (busy || lock_us > 0)
            && let Some(o) = self.objects.get_mut(at)
        {
            o.lock_us += lock_us;
            o.busy += u64::from(busy);
        }
    }

    /// A place for an object that has none; if none is free, every object loses an operation instead.
    fn place(&mut self, pool: PoolId, name: &[u8], mark: u32) -> Option<usize> {
        let Some(at) = self.ops.iter().position(|n| *n == 0) else {
            self.ops.iter_mut().for_each(|n| *n -= 1);
            return None;
        };
        let new = Object::new(pool, name);
        match self.objects.get_mut(at) {
            Some(o) => *o = new,
            None => self.objects.push(new),
        }
        self.marks[at] = mark;
        Some(at)
    }

    /// The objects with their operations.
    pub(super) fn all(&self) -> impl Iterator<Item = Object> + '_ {
        let counted = self.objects.iter().zip(&self.ops).filter(|(_, n)| **n > 0);
        counted.map(|(o, n)| o.with_ops(u64::from(*n)))
    }

    /// Forgets all objects; the memory stays.
    pub(super) fn clear(&mut self) {
        self.ops = [0; OBJECTS_MAX];
    }
}
