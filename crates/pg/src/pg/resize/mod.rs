//! Changes of `pg_num`.
//!
//! - `split`: the parent of a split
//! - `merge_source`: a PG that is merged into another one
//! - `merge_target`: the PG that takes over
//! - `index`: snapshot indexes of more than one page

pub(in crate::pg) mod index;
pub(in crate::pg) mod merge_source;
pub(in crate::pg) mod merge_target;
pub(in crate::pg) mod split;

use crate::pg::idle::list;
use crate::pg::seldom::Seldom;
use crate::reserve::{Counted, Leaver};
use base::{Epoch, SpgId};
use bytes::Bytes;
use merge_source::Sending;
use merge_target::Merges;

/// State of splits and merges. It outlives intervals.
#[derive(Debug, Default)]
pub(in crate::pg) struct Resize {
    /// Number of hash bits that select the PG, after all splits that are done.
    bits: u32,
    /// Number of hash bits that select the PG under the newest map that the host has announced.
    bits_coming: u32,
    /// `pg_num` of the newest map that the host has announced; 0 if unknown.
    pg_num_coming: u32,
    /// Epoch of the stored info at load.
    stored_at: Epoch,
    merges: Seldom<Merges>,
    sending: Option<Box<Sending>>,
    /// Marks the PG's name as taken while its collection is being removed.
    leaver: Option<Box<Leaver>>,
    /// Children of the split in progress.
    awaited: Vec<SpgId>,
    /// Last key up to which a split has moved a long snapshot index.
    index_from: Bytes,
}

impl Resize {
    /// Number of hash bits that select the PG, after all splits that are done.
    pub(in crate::pg) fn bits(&self) -> u32 {
        self.bits
    }

    /// Sets the number of hash bits of a machine that begins.
    pub(in crate::pg) fn set_bits(&mut self, bits: u32) {
        (self.bits, self.bits_coming) = (bits, bits);
    }

    /// Ends a split that can't be done any more; returns its children.
    pub(in crate::pg) fn give_up_split(&mut self) -> Vec<SpgId> {
        self.bits = self.bits_coming.max(self.bits);
        std::mem::take(&mut self.awaited)
    }

    /// Marks the PG's name as taken until the machine is dropped, so that no reactor creates the PG meanwhile.
    pub(in crate::pg) fn take_name(&mut self, reserver: &Counted, spg: SpgId) {
        self.leaver.get_or_insert_with(|| Box::new(reserver.leave(spg)));
    }

    /// Releases unused memory.
    pub(in crate::pg) fn release_memory(&mut self) {
        list(&mut self.awaited);
        self.merges.release_memory();
    }
}
