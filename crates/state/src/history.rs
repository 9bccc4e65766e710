//! The latest revisions of an in-process store, for watches and reads of the past.
//!
//! Kept in memory and bounded, so it starts empty with the process. Revisions below the floor are compacted.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::api::{Change, Entry, Range, StateError};

/// Most revisions kept.
const REVISIONS: usize = 1024;
/// Most bytes of keys and values kept.
const BYTES: usize = 8 << 20;

/// Change of one key in one revision.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) key: Bytes,
    pub(crate) before: Option<Entry>,
    pub(crate) after: Option<Entry>,
}

impl Step {
    fn bytes(&self) -> usize {
        let of = |e: &Option<Entry>| e.as_ref().map_or(0, |e| e.value.len());
        self.key.len() + of(&self.before) + of(&self.after)
    }

    fn change(&self) -> Change {
        Change { key: self.key.clone(), entry: self.after.clone() }
    }
}

#[derive(Default)]
pub(crate) struct History {
    steps: VecDeque<(u64, Vec<Step>)>,
    bytes: usize,
    /// Oldest readable revision; changes after it are known.
    floor: u64,
}

impl History {
    /// An empty history of a store at `revision`.
    pub(crate) fn at(revision: u64) -> Self {
        Self { floor: revision, ..Self::default() }
    }

    pub(crate) fn push(&mut self, revision: u64, steps: Vec<Step>) {
        self.bytes += steps.iter().map(Step::bytes).sum::<usize>();
        self.steps.push_back((revision, steps));
        while self.steps.len() > REVISIONS || self.bytes > BYTES {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((revision, steps)) = self.steps.pop_front() {
            self.bytes -= steps.iter().map(Step::bytes).sum::<usize>();
            self.floor = revision;
        }
    }

    /// Compacts revisions below `revision`.
    pub(crate) fn compact(&mut self, revision: u64) {
        while self.steps.front().is_some_and(|(r, _)| *r <= revision) {
            self.drop_oldest();
        }
        self.floor = self.floor.max(revision);
    }

    /// Changes of a range from revision `from` on, by revision.
    pub(crate) fn since(&self, from: u64, range: &Range) -> Result<Vec<(u64, Vec<Change>)>, StateError> {
        if from <= self.floor {
            return Err(StateError::Compacted(self.floor));
        }
        let later = self.steps.iter().filter(|(r, _)| *r >= from);
        let of = |steps: &[Step]| steps.iter().filter(|s| range.contains(&s.key)).map(Step::change).collect::<Vec<_>>();
        Ok(later.map(|(r, steps)| (*r, of(steps))).filter(|(_, c)| !c.is_empty()).collect())
    }

    /// Changes the entries of a range from their current state to that at revision `at`.
    pub(crate) fn rewind(
        &self,
        at: u64,
        range: &Range,
        now: Vec<(Bytes, Entry)>,
    ) -> Result<BTreeMap<Bytes, Entry>, StateError> {
        if at < self.floor {
            return Err(StateError::Compacted(self.floor));
        }
        let mut all: BTreeMap<Bytes, Entry> = now.into_iter().collect();
        for (_, steps) in self.steps.iter().rev().take_while(|(r, _)| *r > at) {
            for s in steps.iter().rev().filter(|s| range.contains(&s.key)) {
                match &s.before {
                    Some(e) => all.insert(s.key.clone(), e.clone()),
                    None => all.remove(&s.key),
                };
            }
        }
        Ok(all)
    }
}
