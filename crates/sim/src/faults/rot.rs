//! The fault `Rot`: blocks become unreadable, and objects without a readable copy are given up.

use super::Faults;
use crate::node::{Node, osd_node};
use crate::world::World;

/// Most blocks that rot at once.
const ROTTEN_MAX: u64 = 8;

impl Faults {
    /// Flips bits in blocks with object data, always on the same disk. Metadata is spared: the store reports damaged
    /// metadata too, but then the OSD is lost.
    pub(super) fn rot(&mut self, w: &mut World) -> bool {
        let node = osd_node(self.rotten % w.ctx.options.size.osds);
        let Node::Osd(o) = &mut w.nodes[node] else { return false };
        // Data of clients repeats every eight bytes, and metadata does not.
        let data = |b: &[u8]| b[..8] != [0; 8] && b.iter().zip(&b[8..]).all(|(x, y)| x == y);
        let blocks = o.disk.find(o.space_start(), data);
        if blocks.is_empty() {
            return false;
        }
        for _ in 0..=self.rng.below(ROTTEN_MAX) {
            let block = blocks[self.rng.below(blocks.len() as u64) as usize];
            let bit = self.rng.below(8 * 4096);
            o.disk.flips.insert(block, bit);
            w.ctx.trace.line(w.ctx.queue.now(), || format!("node {node}: block {block} rots"));
        }
        true
    }

    /// Makes rotten blocks readable and restarts the OSD: the newest version of an object may be on that disk only.
    pub fn unrot(&mut self, w: &mut World) {
        let node = osd_node(self.rotten % w.ctx.options.size.osds);
        w.ctx.trace.line(w.ctx.queue.now(), || format!("node {node}: rotten blocks are readable again"));
        if let Node::Osd(o) = &mut w.nodes[node] {
            o.disk.flips.clear();
        }
        w.crash(node, false);
        w.start(node);
    }

    /// Reverts unfound objects to the newest readable version. Earlier reads of these objects need not hold any more.
    pub fn revert(&mut self, w: &mut World) {
        for n in 0..w.ctx.options.size.osds {
            if let Node::Osd(o) = &mut w.nodes[osd_node(n)] {
                self.given_up.extend(o.revert_unfound(&mut w.ctx));
            }
        }
    }
}
