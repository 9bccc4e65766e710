//! Grey failures: links between OSDs that are cut while all reach the monitors, and devices that do not answer.

use super::{Faults, Undo};
use crate::net::NodeId;
use crate::node::{Node, osd_node};
use crate::options::Fault;
use crate::queue::{SEC, Time};
use crate::world::World;

/// Longest cut of a link: the others notice it, and one end leaves and comes back.
const CUT_MAX: Time = 100 * SEC;
/// Longest time for which a device does not answer.
const STUCK_MAX: Time = 60 * SEC;

impl Faults {
    pub(super) fn grey(&mut self, kind: Fault, osd: NodeId, w: &mut World) -> bool {
        if kind == Fault::StuckDisk {
            let Node::Osd(o) = &mut w.nodes[osd] else { return false };
            let lasts = SEC + self.rng.below(STUCK_MAX);
            let new = o.freeze();
            if new {
                self.lasting(w, Undo::Thaw(osd), lasts);
            }
            return new;
        }
        let others: Vec<NodeId> = (0..w.ctx.options.size.osds).map(osd_node).filter(|n| *n != osd).collect();
        if others.is_empty() {
            return false;
        }
        // One OSD, or about a third of them.
        let one = others[self.rng.below(others.len() as u64) as usize];
        let group = self.rng.chance(1, 3);
        let mut links = Vec::new();
        let one_way = self.rng.chance(1, 3);
        for o in others {
            if o == one || group && self.rng.chance(1, 3) {
                links.push((osd, o));
                links.extend((!one_way).then_some((o, osd)));
            }
        }
        w.ctx.line(|| format!("links are cut: {links:?}"));
        for (a, b) in &links {
            w.ctx.net.cut(*a, *b);
        }
        let lasts = 5 * SEC + self.rng.below(CUT_MAX);
        self.lasting(w, Undo::Heal(links), lasts);
        true
    }
}
