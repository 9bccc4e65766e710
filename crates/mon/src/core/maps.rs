//! Encoded OSD map epochs: which there are, and those held in memory.
//!
//! Invariants:
//!  1. Every epoch from `oldest` to `newest` is in the state store, full and (above `oldest`) incremental.
//!  2. The bytes held here are those of the store; an epoch's bytes never change.

use std::collections::{BTreeMap, VecDeque};

use base::Epoch;
use bytes::Bytes;

/// Incrementals held in memory.
pub const INCREMENTALS_HELD: usize = 1024;
/// Newest full maps held in memory, and as many older ones that were asked for.
pub const FULLS_HELD: usize = 16;

/// The epochs.
#[derive(Clone, Debug, Default)]
pub struct MapHistory {
    /// Oldest epoch stored: the bound below which OSDs may drop maps.
    pub oldest: Epoch,
    /// Newest epoch stored.
    pub newest: Epoch,
    incs: BTreeMap<Epoch, Bytes>,
    fulls: BTreeMap<Epoch, Bytes>,
    fetched: VecDeque<(Epoch, Bytes)>,
}

impl MapHistory {
    /// Of these epochs, with none in memory yet.
    #[must_use]
    pub fn new(oldest: Epoch, newest: Epoch) -> Self {
        Self { oldest, newest, ..Self::default() }
    }

    /// The incremental that led to `e`, if held.
    #[must_use]
    pub fn inc(&self, e: Epoch) -> Option<&Bytes> {
        self.incs.get(&e)
    }

    /// The full map of `e`, if held.
    #[must_use]
    pub fn full(&self, e: Epoch) -> Option<&Bytes> {
        self.fulls.get(&e).or_else(|| self.fetched.iter().find(|(f, _)| *f == e).map(|(_, b)| b))
    }

    /// Remembers an older full map that was read from the store for someone.
    pub fn put_fetched(&mut self, e: Epoch, b: Bytes) {
        self.fetched.push_back((e, b));
        if self.fetched.len() > FULLS_HELD {
            self.fetched.pop_front();
        }
    }

    /// Remembers an incremental.
    pub fn put_inc(&mut self, e: Epoch, b: Bytes) {
        self.incs.insert(e, b);
        while self.incs.len() > INCREMENTALS_HELD {
            self.incs.pop_first();
        }
    }

    /// Remembers a full map.
    pub fn put_full(&mut self, e: Epoch, b: Bytes) {
        self.fulls.insert(e, b);
        while self.fulls.len() > FULLS_HELD {
            self.fulls.pop_first();
        }
    }

    /// Forgets epochs below `oldest`.
    pub fn trim(&mut self, oldest: Epoch) {
        self.oldest = oldest;
        self.incs = self.incs.split_off(&oldest);
        self.fulls = self.fulls.split_off(&oldest);
    }
}
