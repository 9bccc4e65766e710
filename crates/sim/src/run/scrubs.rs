//! Scrubs and repairs at the end of a run.

use super::{HEAL_MAX, Run};
use crate::node::osd::ScrubAll;
use crate::node::{Node, osd_node};
use crate::options::Fault;
use crate::oracle;
use crate::queue::{SEC, Time};

/// Longest time of the scrubs of all PGs, without the times for each PG and shard.
const SCRUB_MAX: Time = 600 * SEC;
/// Time added to [`SCRUB_MAX`] for each PG: an OSD takes part in one scrub at a time.
const SCRUB_PG_MAX: Time = 6 * SEC;
/// Time added to [`SCRUB_MAX`] for each shard of erasure-coded PGs. With as many shards as OSDs all scrubs wait for
/// each other.
const SCRUB_SHARD_MAX: Time = 3 * SEC;

impl Run {
    /// Checks that a deep scrub of every PG finds nothing. If disks have rotted, a repair comes first.
    pub(super) fn scrub_all(&mut self) {
        if self.faults.kinds.contains_key(&Fault::Rot) {
            self.scrub(ScrubAll::Repair);
            if self.w.ctx.violations.is_empty() && !self.advance(HEAL_MAX, |w| oracle::unclean(w, None).is_none()) {
                let why = oracle::unclean(&self.w, None).unwrap_or_default();
                self.w.ctx.violation(format!("not clean after a repair: {why}"));
            }
        }
        if self.w.ctx.violations.is_empty() {
            self.scrub(ScrubAll::Look);
        }
    }

    fn scrub(&mut self, how: ScrubAll) {
        for o in 0..self.w.ctx.options.size.osds {
            if let Node::Osd(x) = &mut self.w.nodes[osd_node(o)]
                && let Some(p) = &mut x.process
            {
                p.scrub_all = Some(how);
            }
        }
        let look = how == ScrubAll::Look;
        let pgs: u32 = oracle::map(&self.w).map_or(0, |m| m.pools.values().map(|p| p.pg_num).sum());
        let o = &self.w.ctx.options;
        let each = if o.pool.code.is_some() { o.pool.copies as Time * SCRUB_SHARD_MAX } else { SCRUB_PG_MAX };
        let limit = SCRUB_MAX + Time::from(pgs) * each;
        self.advance(limit, |w| oracle::unscrubbed(w, look).is_none() || look && oracle::scrub_errors(w));
        if self.w.ctx.violations.is_empty()
            && let Some(why) = oracle::unscrubbed(&self.w, look)
        {
            self.w.ctx.violation(format!("scrubs of the healed cluster: {why}"));
        }
    }
}
