//! Checks leases against true time, which no OSD knows: a holder must stop using a lease before its giver lets it
//! end.

use super::osd_node;
use crate::net::NodeId;
use crate::queue::Time;
use crate::world::{Clock, Ctx};
use osd::core::lease::Output;
use std::collections::BTreeMap;

/// The end of each lease in true time, by giver and holder.
#[derive(Debug, Default)]
pub struct Promises(BTreeMap<(NodeId, NodeId), Time>);

/// Checks an output of an OSD's lease machine.
pub fn look(o: &Output, node: NodeId, clock: &Clock, cx: &mut Ctx) {
    let other = |osd: &base::OsdId| usize::try_from(osd.0).map_or(usize::MAX, osd_node);
    match o {
        Output::Granted(holder, until) => {
            let until = clock.when(*until);
            let given = cx.promises.0.entry((node, other(holder))).or_default();
            *given = until.max(*given);
        }
        Output::Readable(giver, until, _) => {
            let (held, giver) = (clock.when(*until), other(giver));
            let given = cx.promises.0.get(&(giver, node)).copied().unwrap_or(0);
            if held > given {
                cx.violation(format!(
                    "node {node} holds the lease of node {giver} for {} ns longer than it was given",
                    held - given
                ));
            }
        }
        Output::Send(..) | Output::WantMap(_) => {}
    }
}
