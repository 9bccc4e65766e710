//! Faults of MDS daemons.

use super::{Faults, Undo};
use crate::files::NAME;
use crate::net::NodeId;
use crate::node::Node;
use crate::options::Fault;
use crate::queue::{SEC, Time};
use crate::world::World;

/// Longest time of such a fault: long enough for a takeover.
const LASTS_MAX: Time = 50 * SEC;

impl Faults {
    /// Injects a fault: a daemon dies, stands still or is cut off from the monitors, or the number of ranks changes.
    pub(super) fn files(&mut self, kind: Fault, w: &mut World) -> bool {
        let all: Vec<NodeId> = (0..w.nodes.len()).filter(|n| matches!(w.nodes[*n], Node::Mds(_))).collect();
        if all.is_empty() {
            return false;
        }
        let mds = all[self.rng.below(all.len() as u64) as usize];
        let lasts = SEC + self.rng.below(LASTS_MAX);
        if w.nodes[mds].inc().is_none() || w.is_paused(mds) {
            return false;
        }
        match kind {
            Fault::MdsKill => {
                w.crash(mds, false);
                self.lasting(w, Undo::Start(mds), lasts);
            }
            Fault::MdsPause => {
                w.pause(mds);
                self.lasting(w, Undo::Resume(mds), lasts);
            }
            Fault::MdsApart => {
                let links: Vec<_> = w.ctx.mons().into_iter().flat_map(|m| [(mds, m), (m, mds)]).collect();
                for (a, b) in &links {
                    w.ctx.net.cut(*a, *b);
                }
                self.lasting(w, Undo::Heal(links), lasts);
            }
            _ => {
                let ranks = |n: u32| format!(r#"{{"prefix":"fs set","fs_name":"{NAME}","var":"max_mds","val":"{n}"}}"#);
                self.command(w, &ranks(2));
                self.lasting(w, Undo::Command(ranks(1)), lasts);
            }
        }
        true
    }
}
