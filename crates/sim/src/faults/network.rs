//! Faults of the network: links that are cut, slow or lossy, and connections that are reset.

use super::{Faults, Undo};
use crate::net::NodeId;
use crate::options::Fault;
use crate::queue::MS;
use crate::world::{Event, World};

impl Faults {
    /// Injects a fault of the network, most of them at the links of `osd`.
    pub(super) fn network(&mut self, kind: Fault, osd: NodeId, w: &mut World) -> bool {
        match kind {
            Fault::Partition => {
                let n = w.nodes.len();
                let side: Vec<bool> = (0..n).map(|_| self.rng.chance(1, 3)).collect();
                let cut =
                    (0..n).flat_map(|a| (0..n).map(move |b| (a, b))).filter(|(a, b)| side[*a] != side[*b]).collect();
                self.cut(w, cut);
            }
            Fault::OneWay => {
                let other = self.rng.below(w.nodes.len() as u64) as usize;
                if other == osd {
                    return false;
                }
                let cut = if self.rng.chance(1, 2) { vec![(osd, other)] } else { vec![(other, osd)] };
                self.cut(w, cut);
            }
            Fault::CutFromMon => {
                let all = w.ctx.mons().into_iter().flat_map(|m| [(osd, m), (m, osd)]).collect();
                self.cut(w, all);
            }
            Fault::Reset => {
                let one_in = 1 + self.rng.below(4);
                let now = w.ctx.now();
                w.ctx.net.reset(osd, one_in, now);
                for (at, e) in w.ctx.net.take_events() {
                    w.ctx.queue.at(at, Event::Net(e));
                }
            }
            Fault::Slow => {
                let mean = MS << self.rng.below(11);
                let links: Vec<(NodeId, NodeId)> =
                    (0..w.nodes.len()).filter(|n| *n != osd).flat_map(|n| [(osd, n), (n, osd)]).collect();
                for (a, b) in &links {
                    w.ctx.net.set_slow(*a, *b, Some(mean));
                }
                self.until(w, Undo::Fast(links));
            }
            Fault::Lose => {
                let one_in = 3 << self.rng.below(7);
                w.ctx.net.set_losing(osd, Some(one_in));
                self.until(w, Undo::Keep(osd));
            }
            other => unreachable!("{other:?} is no fault of the network"),
        }
        true
    }

    /// Cuts links for a while.
    pub(super) fn cut(&mut self, w: &mut World, links: Vec<(NodeId, NodeId)>) {
        for (a, b) in &links {
            w.ctx.net.cut(*a, *b);
        }
        self.until(w, Undo::Heal(links));
    }
}
