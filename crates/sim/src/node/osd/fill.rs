//! A foreign object that fills an OSD's store.

use super::{OsdNode, Process};
use crate::world::Ctx;
use base::{HObject, PoolId, SnapId};
use bytes::Bytes;
use osd::core::own::Need;
use store::{Cid, ObjectStore as _, Oid, Op, Transaction};

/// State of the foreign object that fills the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    Never,
    Now,
    /// The object is removed, now or when the OSD starts.
    Before,
}

/// Name of the object that fills the store. It is written in pieces of [`FILLER_PIECE`] bytes.
const FILLER: &[u8] = b"filler";
const FILLER_PIECE: u64 = 256 << 10;
const FILLER_LAST: u64 = 8 << 10;

fn filler() -> Oid {
    let name = HObject { oid: Bytes::from_static(FILLER), snap: SnapId::HEAD, pool: PoolId(-1), ..HObject::min() };
    name.into()
}

impl OsdNode {
    /// Fills the store until `free` bytes are left, or to its end; false if it is already filled or too small.
    pub fn fill(&mut self, free: u64, cx: &mut Ctx) -> bool {
        let Some(p) = self.process.as_mut().filter(|_| self.filled != Filled::Now) else { return false };
        let bytes = p.reactors.first().map_or(0, |r| r.store().statfs().available).saturating_sub(free);
        if bytes < FILLER_PIECE {
            return false;
        }
        self.filled = Filled::Now;
        // The content does not look like a client's data.
        let piece: Bytes = (0..FILLER_PIECE).map(|i| (i ^ i >> 8) as u8).collect::<Vec<u8>>().into();
        let mut write = |off, data| {
            let mut t = Transaction::new();
            t.push(Op::Write { cid: Cid::Meta, oid: filler(), off, data, sums: None });
            if let Some(r) = p.reactors.first_mut() {
                r.submit(t, Need::May);
            }
        };
        for off in (0..bytes).step_by(FILLER_PIECE as usize) {
            write(off, piece.clone());
        }
        if free == 0 {
            // To fill the last block, writes go on until the store refuses them; refused writes are dropped.
            let behind = bytes.next_multiple_of(FILLER_PIECE);
            let last = piece.slice(..FILLER_LAST as usize);
            for off in (0..2 * FILLER_PIECE).step_by(FILLER_LAST as usize) {
                write(behind + off, last.clone());
            }
        }
        cx.line(|| format!("{}: a foreign object fills {bytes} bytes", self.osd));
        self.turn(cx);
        true
    }

    /// Removes the object that fills the store.
    pub fn empty(&mut self, cx: &mut Ctx) {
        if self.filled == Filled::Now {
            self.filled = Filled::Before;
            if let Some(p) = &mut self.process {
                p.remove_filler();
            }
            self.turn(cx);
        }
    }
}

impl Process {
    pub(super) fn remove_filler(&mut self) {
        let mut t = Transaction::new();
        t.push(Op::Remove { cid: Cid::Meta, oid: filler() });
        // The removal makes room for maps that wait for space, and replaces filler writes that still wait.
        if let Some(r) = self.reactors.first_mut() {
            r.make_room(t);
        }
    }
}
