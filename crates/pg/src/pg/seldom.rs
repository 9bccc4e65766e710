//! Parts of a machine that most machines never use: they are allocated on first change.
//!
//! Invariant: an unallocated part reads as the empty one. [`Pg::release_memory`] frees a part that is empty again.
//!
//! Tests: below.
//!
//! [`Pg::release_memory`]: super::Pg::release_memory

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};

/// A part that can be allocated on demand.
pub(super) trait Part: Default + 'static {
    /// The empty value.
    const EMPTY: &'static Self;

    /// True if the part equals the empty value.
    fn is_empty(&self) -> bool;
}

/// A part allocated on first change; see the module.
#[derive(Debug)]
pub(super) struct Seldom<T>(Option<Box<T>>);

impl<T> Default for Seldom<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Part> Deref for Seldom<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::EMPTY)
    }
}

impl<T: Part> DerefMut for Seldom<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

impl<T: Part> Seldom<T> {
    /// A part with this content.
    pub(super) fn of(t: T) -> Self {
        Self(if t.is_empty() { None } else { Some(Box::new(t)) })
    }

    /// The part, if it is allocated.
    pub(super) fn used(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    /// Frees the part if it is empty.
    pub(super) fn release_memory(&mut self) {
        if self.0.as_deref().is_some_and(T::is_empty) {
            self.0 = None;
        }
    }
}

impl<K: Ord + 'static> Part for BTreeSet<K> {
    const EMPTY: &'static Self = &Self::new();

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct List(Vec<u8>);

    impl Part for List {
        const EMPTY: &'static Self = &Self(Vec::new());

        fn is_empty(&self) -> bool {
            self.0.is_empty()
        }
    }

    #[test]
    fn a_part_is_allocated_by_a_change_and_freed_when_empty() {
        let mut s = Seldom::<List>::default();
        assert!(s.is_empty() && s.used().is_none() && size_of_val(&s) == size_of::<usize>());
        s.deref_mut().0.push(3);
        s.release_memory();
        assert_eq!(*s, List(vec![3]));
        s.deref_mut().0.clear();
        s.release_memory();
        assert!(s.used().is_none());
    }
}
