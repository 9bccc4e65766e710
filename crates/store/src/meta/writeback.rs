//! Dirty pages by level, and encoded metadata in flight to the device.
//!
//! Invariants:
//!  1. Pieces are numbered in the order in which they are handed over. `written` is the number up to which all
//!     are on the device.
//!  2. Epochs count freezes. Pages dirtied in an earlier epoch belong to the running checkpoint.
//!
//! Tests: an assertion (1), `tests/histories.rs` (2; planted bug `StoreLatePage`).

use crate::space::Runs;
use bytes::Bytes;

/// Encoded metadata to be written.
#[derive(Debug)]
pub(crate) struct Stored {
    /// Number of the piece, counted over all pieces.
    pub(crate) number: u64,
    pub(crate) runs: Runs,
    pub(crate) data: Bytes,
}

/// Write-back state; see the module.
#[derive(Debug)]
pub(crate) struct Writeback {
    /// Number of freezes, from 1.
    epoch: u32,
    /// Pages dirtied in this epoch, by level.
    dirty: Vec<Vec<u32>>,
    /// Number of pages that the running checkpoint has yet to process.
    frozen: u64,
    /// Encoded pieces that the device has not got yet.
    out: Vec<Stored>,
    out_bytes: usize,
    /// Number of pieces queued so far. `written` counts those on the device, with all before them.
    put: u64,
    written: u64,
    /// Block maps of which only the changes were stored.
    delta_chunks: u64,
}

impl Default for Writeback {
    fn default() -> Self {
        let (dirty, out) = (Vec::new(), Vec::new());
        Self { epoch: 1, dirty, frozen: 0, out, out_bytes: 0, put: 0, written: 0, delta_chunks: 0 }
    }
}

impl Writeback {
    /// Number of freezes, from 1.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Number of pieces on the device, with all before them.
    pub(super) fn written_upto(&self) -> u64 {
        self.written
    }

    /// Block maps of which only the changes were stored.
    pub(crate) fn delta_chunks(&self) -> u64 {
        self.delta_chunks
    }

    pub(super) fn count_delta_chunk(&mut self) {
        self.delta_chunks += 1;
    }

    /// Registers a page of this level as dirty in the present epoch.
    pub(super) fn push(&mut self, level: u8, id: u32) {
        let level = usize::from(level);
        if self.dirty.len() <= level {
            self.dirty.resize_with(level + 1, Vec::new);
        }
        if let Some(d) = self.dirty.get_mut(level) {
            d.push(id);
        }
    }

    /// Number of dirty pages, including those of the running checkpoint.
    pub(super) fn pages(&self) -> u64 {
        self.frozen + self.dirty.iter().map(|d| d.len() as u64).sum::<u64>()
    }

    /// Begins the next epoch. Returns the pages dirtied in this one, by level, which the checkpoint has to
    /// store.
    pub(crate) fn freeze(&mut self) -> Vec<Vec<u32>> {
        self.epoch += 1;
        let frozen = std::mem::take(&mut self.dirty);
        self.frozen = frozen.iter().map(|l| l.len() as u64).sum();
        frozen
    }

    /// Counts a page that the running checkpoint has processed.
    pub(crate) fn looked_at_one(&mut self) {
        self.frozen -= 1;
    }

    /// Queues metadata of a checkpoint for writing.
    pub(super) fn put(&mut self, runs: Runs, data: Bytes) {
        self.put += 1;
        self.out_bytes += data.len();
        self.out.push(Stored { number: self.put, runs, data });
    }

    /// Number of the last queued piece.
    pub(super) fn put_so_far(&self) -> u64 {
        self.put
    }

    /// Bytes of the queued pieces.
    pub(crate) fn out_bytes(&self) -> usize {
        self.out_bytes
    }

    /// Takes the queued pieces. [`Writeback::give_back`] returns the vector for reuse.
    pub(crate) fn take_out(&mut self) -> Vec<Stored> {
        self.out_bytes = 0;
        std::mem::take(&mut self.out)
    }

    pub(crate) fn give_back(&mut self, mut out: Vec<Stored>) {
        out.clear();
        self.out = out;
    }

    /// Registers that all pieces up to this number are on the device.
    pub(crate) fn written(&mut self, upto: u64) {
        debug_assert!(upto <= self.put, "piece {upto} is on the device, of {} handed over", self.put);
        self.written = self.written.max(upto);
    }
}
