//! Faults of an OSD's device and of its copies: slow, failing or full devices, and copies that fail.

use super::{Faults, Undo};
use crate::net::NodeId;
use crate::node::Node;
use crate::options::Fault;
use crate::world::World;
use base::errno::EIO;

/// Most bytes left free on a filled disk: the ratios of the map are 85, 90 and 95 percent.
const FREE_MAX: u64 = 16 << 20;

impl Faults {
    /// Injects a fault of the device or of a copy of `osd`.
    pub(super) fn disks(&mut self, kind: Fault, osd: NodeId, w: &mut World) -> bool {
        match kind {
            Fault::SlowDisk => {
                let factor = 10 << self.rng.below(6);
                let Node::Osd(o) = &mut w.nodes[osd] else { return false };
                o.slow_disk = factor;
                self.until(w, Undo::FastDisk(osd));
            }
            Fault::WriteError => {
                let Node::Osd(o) = &mut w.nodes[osd] else { return false };
                if o.process.is_none() {
                    return false;
                }
                o.disk.write_error = Some(EIO);
                self.until(w, Undo::Restart(osd));
            }
            Fault::Full => {
                let free = if self.rng.chance(1, 3) { 0 } else { self.rng.below(FREE_MAX) };
                let Node::Osd(o) = &mut w.nodes[osd] else { return false };
                if !o.fill(free, &mut w.ctx) {
                    return false;
                }
                self.until(w, Undo::Empty(osd));
            }
            Fault::FailCopy => {
                let n = self.rng.next_u64();
                let Node::Osd(o) = &mut w.nodes[osd] else { return false };
                if !o.fail_copies(Some(n), &mut w.ctx) {
                    return false;
                }
                self.until(w, Undo::Restart(osd));
            }
            other => unreachable!("{other:?} is no fault of a device"),
        }
        true
    }
}
