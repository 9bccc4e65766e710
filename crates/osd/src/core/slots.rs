//! The PGs of a reactor by number: machines of some KiB each in their own allocation, found by index.
//!
//! Numbers ascend and are never reused; a removed PG leaves an empty slot of one word.

use pg::{Effect, Pg};

/// PGs by number; see the module. Iterates in the order of numbers.
pub(super) struct Slots {
    at: Vec<Option<Box<Pg>>>,
    len: usize,
    /// The next number.
    next: u32,
    /// PGs that owe their primary an acknowledgement ([`pg::Effect::Acknowledge`]).
    owing: Vec<u32>,
}

impl Default for Slots {
    fn default() -> Self {
        // Number 0 stands for the host's own transactions.
        Self { at: Vec::new(), len: 0, next: 1, owing: Vec::new() }
    }
}

impl Slots {
    /// A new number, for a PG or another user of the store.
    pub(super) fn new_number(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn get(&self, i: u32) -> Option<&Pg> {
        self.at.get(i as usize)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, i: u32) -> Option<&mut Pg> {
        self.at.get_mut(i as usize)?.as_deref_mut()
    }

    pub(super) fn insert(&mut self, i: u32, pg: Pg) {
        let i = i as usize;
        if self.at.len() <= i {
            self.at.resize_with(i + 1, || None);
        }
        if let Some(slot) = self.at.get_mut(i)
            && slot.replace(Box::new(pg)).is_none()
        {
            self.len += 1;
        }
    }

    pub(super) fn remove(&mut self, i: u32) -> Option<Box<Pg>> {
        let pg = self.at.get_mut(i as usize)?.take()?;
        self.len -= 1;
        Some(pg)
    }

    /// Notes that a PG owes an acknowledgement.
    pub(super) fn owe(&mut self, i: u32) {
        self.owing.push(i);
    }

    /// The acknowledgement of a PG that owes one; `None`: none is left.
    pub(super) fn pop_owed(&mut self) -> Option<(u32, Option<Effect>)> {
        let i = self.owing.pop()?;
        Some((i, self.get_mut(i).and_then(Pg::acknowledge)))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Pg)> {
        (0..).zip(&self.at).filter_map(|(i, p)| Some((i, p.as_deref()?)))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Pg> {
        self.at.iter().filter_map(Option::as_deref)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Pg> {
        self.at.iter_mut().filter_map(Option::as_deref_mut)
    }

    /// All numbers, for calls that may add and remove PGs.
    pub(super) fn numbers(&self) -> Vec<u32> {
        self.iter().map(|(i, _)| i).collect()
    }
}
