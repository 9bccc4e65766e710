//! The state in memory, for tests and simulation: requests take effect on submission, events wait for `poll`.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use base::Mono;
use bytes::Bytes;

use crate::api::{Entry, Event, Range, Request, StateError, StateStore};
use crate::engine::{Engine, Tree};

#[derive(Default)]
pub(crate) struct MemTree(BTreeMap<Bytes, Entry>);

impl Tree for MemTree {
    fn get(&self, key: &[u8]) -> Result<Option<Entry>, StateError> {
        Ok(self.0.get(key).cloned())
    }

    fn range(&self, r: &Range, limit: usize, reverse: bool) -> Result<Vec<(Bytes, Entry)>, StateError> {
        if r.end.as_ref().is_some_and(|e| *e <= r.start) {
            return Ok(Vec::new());
        }
        let end = r.end.as_ref().map_or(Bound::Unbounded, |e| Bound::Excluded(e.clone()));
        let it = self.0.range((Bound::Included(r.start.clone()), end)).map(|(k, e)| (k.clone(), e.clone()));
        let n = if limit == 0 { usize::MAX } else { limit };
        Ok(if reverse { it.rev().take(n).collect() } else { it.take(n).collect() })
    }

    fn put(&mut self, key: &[u8], e: &Entry) -> Result<(), StateError> {
        self.0.insert(Bytes::copy_from_slice(key), e.clone());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), StateError> {
        self.0.remove(key);
        Ok(())
    }

    fn put_meta(&mut self, _: &[u8], _: Option<&[u8]>) -> Result<(), StateError> {
        Ok(())
    }
}

/// A store in memory.
#[derive(Default)]
pub struct MemoryStore {
    tree: MemTree,
    engine: Engine,
    events: VecDeque<Event>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Compacts revisions below a given one.
    pub fn compact(&mut self, revision: u64) {
        self.engine.compact(revision);
    }
}

impl StateStore for MemoryStore {
    fn submit(&mut self, request: Request) {
        let mut out = Vec::new();
        self.engine.run(&mut self.tree, request, &mut out);
        self.events.extend(out);
    }

    fn poll(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn tick(&mut self, now: Mono) {
        if self.engine.tick(now) {
            let mut out = Vec::new();
            // The in-memory tree cannot fail.
            let _ = self.engine.expire(&mut self.tree, &mut out);
            self.events.extend(out);
        }
    }
}
