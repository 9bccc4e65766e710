//! Pages that differ from what is stored, by level, and what of them is on its way to the device.
//!
//! Invariants:
//!  1. Pieces are numbered in the order in which they are handed over; `written` is the number up to which all are on the device.
//!  2. Epochs count freezes; pages of the epoch before are the running checkpoint's.

use crate::space::Runs;
use bytes::Bytes;

/// Metadata on its way to the device.
#[derive(Debug)]
pub(crate) struct Stored {
    /// Counted over all.
    pub(crate) number: u64,
    pub(crate) runs: Runs,
    pub(crate) data: Bytes,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Writeback {
    /// Counts freezes, from 1.
    pub(super) epoch: u32,
    /// Pages dirtied in this epoch, by level.
    dirty: Vec<Vec<u32>>,
    /// Pages the running checkpoint has yet to look at.
    frozen: u64,
    /// Encoded and not yet handed to the device.
    out: Vec<Stored>,
    out_bytes: usize,
    /// Pieces that were ever in `out`, and how many of them are on the device, with all before them.
    put: u64,
    pub(super) written: u64,
    /// Chunks of block maps of which the changes alone were stored.
    pub(crate) late_chunks: u64,
}

impl Default for Writeback {
    fn default() -> Self {
        let (dirty, out) = (Vec::new(), Vec::new());
        Self { epoch: 1, dirty, frozen: 0, out, out_bytes: 0, put: 0, written: 0, late_chunks: 0 }
    }
}

impl Writeback {
    /// A page of that level is dirty since this epoch.
    pub(super) fn push(&mut self, level: u8, id: u32) {
        let level = usize::from(level);
        if self.dirty.len() <= level {
            self.dirty.resize_with(level + 1, Vec::new);
        }
        if let Some(d) = self.dirty.get_mut(level) {
            d.push(id);
        }
    }

    /// Pages that are dirty, those of the running checkpoint included.
    pub(super) fn pages(&self) -> u64 {
        self.frozen + self.dirty.iter().map(|d| d.len() as u64).sum::<u64>()
    }

    /// Begins the next epoch: the pages dirtied in this one, by level, are the checkpoint's.
    pub(crate) fn freeze(&mut self) -> Vec<Vec<u32>> {
        self.epoch += 1;
        let frozen = std::mem::take(&mut self.dirty);
        self.frozen = frozen.iter().map(|l| l.len() as u64).sum();
        frozen
    }

    /// The running checkpoint has looked at one of its pages.
    pub(crate) fn looked_at_one(&mut self) {
        self.frozen -= 1;
    }

    /// Queues what a checkpoint stores for writing.
    pub(super) fn put(&mut self, runs: Runs, data: Bytes) {
        self.put += 1;
        self.out_bytes += data.len();
        self.out.push(Stored { number: self.put, runs, data });
    }

    /// Number of the last piece.
    pub(super) fn put_so_far(&self) -> u64 {
        self.put
    }

    /// Bytes of what waits to be handed over.
    pub(crate) fn out_bytes(&self) -> usize {
        self.out_bytes
    }

    /// Takes what waits; [`Writeback::give_back`] the room.
    pub(crate) fn take_out(&mut self) -> Vec<Stored> {
        self.out_bytes = 0;
        std::mem::take(&mut self.out)
    }

    pub(crate) fn give_back(&mut self, mut out: Vec<Stored>) {
        out.clear();
        self.out = out;
    }

    /// All pieces up to that number are on the device.
    pub(crate) fn written(&mut self, upto: u64) {
        self.written = self.written.max(upto);
    }
}
