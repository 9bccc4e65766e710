//! Maps of a machine: the newest one, those that wait, and the other members it names.

use super::idle::list;
use super::mail::postponed::postpone_map;
use crate::map::{MapView, PoolView};
use base::{Epoch, OsdId};
use std::rc::Rc;

/// The maps of a machine.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Maps {
    newest: Option<MapView>,
    /// OSDs of the other members of the acting set.
    others: Vec<OsdId>,
    /// Maps received while the machine loads or changes its collection, oldest first.
    early: Vec<MapView>,
}

impl Maps {
    /// Prefetches what every operation reads.
    #[inline]
    pub(super) fn prefetch(&self) {
        base::prefetch(&self.newest);
        base::prefetch(&self.others);
    }

    /// The newest map that the machine has processed.
    pub(super) fn newest(&self) -> Option<&MapView> {
        self.newest.as_ref()
    }

    /// Epoch of the newest map that the machine has processed.
    pub(super) fn epoch(&self) -> Epoch {
        self.newest.as_ref().map_or(Epoch(0), |m| m.epoch)
    }

    /// The pool in the newest map.
    pub(super) fn pool(&self) -> Option<&Rc<PoolView>> {
        self.newest.as_ref().and_then(|m| m.pool.as_ref())
    }

    /// Notes the newest map.
    pub(super) fn follow(&mut self, map: MapView) {
        debug_assert!(self.newest.as_ref().is_none_or(|m| m.epoch <= map.epoch), "maps come in order");
        self.newest = Some(map);
    }

    /// OSDs of the other members of the acting set.
    pub(super) fn others(&self) -> &[OsdId] {
        &self.others
    }

    /// Sets the OSDs of the other members of the acting set.
    pub(super) fn set_others(&mut self, others: Vec<OsdId>) {
        self.others = others;
    }

    /// Keeps a map for later; of equal ones only the first and the last.
    pub(super) fn keep(&mut self, map: MapView) {
        postpone_map(&mut self.early, map);
    }

    /// Keeps a map for later, whatever the ones before.
    pub(super) fn keep_all(&mut self, map: MapView) {
        self.early.push(map);
    }

    /// Puts the map that is being processed ahead of the kept ones.
    pub(super) fn put_first(&mut self, map: MapView) {
        self.early.insert(0, map);
    }

    /// The oldest kept map.
    pub(super) fn first_postponed(&self) -> Option<&MapView> {
        self.early.first()
    }

    /// Drops all kept maps but the newest.
    pub(super) fn keep_last(&mut self) {
        let old = self.early.len().saturating_sub(1);
        self.early.drain(..old);
    }

    /// Epoch of the newest kept map; 0 if there is none.
    pub(super) fn last_postponed(&self) -> Epoch {
        self.early.last().map_or(Epoch(0), |m| m.epoch)
    }

    /// Takes the kept maps.
    pub(super) fn take_postponed(&mut self) -> Vec<MapView> {
        std::mem::take(&mut self.early)
    }

    /// Releases unused memory.
    pub(super) fn release_memory(&mut self) {
        list(&mut self.early);
    }
}
