//! Faults of processes: OSDs, monitors and clients that stop, crash or stand still.

use super::{Faults, Undo};
use crate::net::NodeId;
use crate::node::Node;
use crate::options::Fault;
use crate::world::World;

impl Faults {
    /// Injects a fault of a process: of `osd`, of a monitor, or of a client.
    pub(super) fn processes(&mut self, kind: Fault, osd: NodeId, w: &mut World) -> bool {
        match kind {
            Fault::Kill | Fault::PowerCut => {
                if w.nodes[osd].inc().is_none() || Self::down(w) >= w.ctx.options.size.osds.div_ceil(2) {
                    return false;
                }
                w.crash(osd, kind == Fault::PowerCut);
                self.until(w, Undo::Start(osd));
            }
            Fault::CrashAtStep => {
                let (n, power) = (self.rng.below(40), self.rng.chance(1, 2));
                let Node::Osd(o) = &mut w.nodes[osd] else { return false };
                o.crash_in = Some((n, power));
            }
            Fault::Restart => {
                if w.is_paused(osd) {
                    return false;
                }
                let Node::Osd(o) = &mut w.nodes[osd] else { return false };
                o.stop(&mut w.ctx);
            }
            Fault::MonCrash => {
                let mon = self.mon(w);
                if w.nodes[mon].inc().is_none() {
                    return false;
                }
                w.crash(mon, false);
                self.until(w, Undo::Start(mon));
            }
            Fault::ClientCrash => {
                let c = self.clients[self.rng.below(self.clients.len() as u64) as usize];
                w.crash(c, false);
                self.until(w, Undo::Start(c));
            }
            Fault::Pause => {
                let node = if self.rng.chance(1, 6) { self.mon(w) } else { osd };
                if w.is_paused(node) || w.nodes[node].inc().is_none() {
                    return false;
                }
                w.pause(node);
                self.until(w, Undo::Resume(node));
            }
            other => unreachable!("{other:?} is no fault of a process"),
        }
        true
    }
}
