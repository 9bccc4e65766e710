//! Faults of clusters with several monitors.

use super::{Faults, Undo};
use crate::net::NodeId;
use crate::node::Node;
use crate::node::mons::MonsNode;
use crate::options::Fault;
use crate::world::World;

impl Faults {
    /// The monitor, or a random one of several.
    pub(super) fn mon(&mut self, w: &World) -> NodeId {
        let all = w.ctx.mons();
        if all.len() == 1 { all[0] } else { all[self.rng.below(all.len() as u64) as usize] }
    }

    /// Injects a fault: a monitor stands still, or monitors don't reach each other or the state.
    pub(super) fn monitors(&mut self, kind: Fault, w: &mut World) -> bool {
        let (mon, all) = (self.mon(w), w.ctx.mons());
        match kind {
            Fault::MonPause => {
                if w.is_paused(mon) || w.nodes[mon].inc().is_none() {
                    return false;
                }
                w.pause(mon);
                self.until(w, Undo::Resume(mon));
            }
            Fault::MonApart => {
                let others: Vec<NodeId> = all.into_iter().filter(|m| *m != mon && self.rng.chance(2, 3)).collect();
                self.cut(w, others.into_iter().flat_map(|m| [(mon, m), (m, mon)]).collect());
            }
            Fault::StateCut => self.cut_state(w, vec![mon]),
            Fault::StateLate => {
                let leads = |n: &NodeId| matches!(&w.nodes[*n], Node::Mons(m) if m.leads().is_some());
                let Some(leader) = all.into_iter().find(leads) else { return false };
                each(w, &[leader], MonsNode::hold);
                self.until(w, Undo::Release(leader));
            }
            _ => self.cut_state(w, all),
        }
        true
    }

    fn cut_state(&mut self, w: &mut World, mons: Vec<NodeId>) {
        each(w, &mons, |m| m.cut_off(true));
        self.until(w, Undo::Join(mons));
    }
}

/// Calls `f` for each of these monitors.
pub(super) fn each(w: &mut World, mons: &[NodeId], f: impl Fn(&mut MonsNode)) {
    for m in mons {
        if let Node::Mons(m) = &mut w.nodes[*m] {
            f(m);
        }
    }
}
