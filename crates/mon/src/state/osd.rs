//! Rules for the states of OSDs.

use base::OsdId;
use cluster::Incremental;
use cluster::osdmap::osd_state;

use super::{ClusterState, Pending};

/// True if no flag forbids to mark the OSD down and enough other OSDs are up. An administrator's request obeys both;
/// `force` skips the ratio.
pub(crate) fn may_mark_down(state: &ClusterState, pending: &Pending, osd: OsdId) -> bool {
    let map = &state.osdmap;
    if map.has_flag(cluster::osdmap::map_flag::NODOWN) || map.effective_state_bits(osd) & osd_state::NODOWN != 0 {
        tracing::info!("mon: {osd} is not marked down: nodown");
        return false;
    }
    let (all, up, _) = map.osd_counts();
    if all == 0 {
        return false;
    }
    let going = pending.inc().map_or(0, |i| i.new_state.keys().filter(|o| inc_marks_down(i, **o)).count());
    let ratio = (up.saturating_sub(going)) as f64 / all as f64;
    if ratio < state.options.osds.min_up_ratio {
        tracing::warn!("mon: {osd} is not marked down: only {up} of {all} OSDs are up");
        return false;
    }
    true
}

/// True if the change marks the OSD down.
pub(crate) fn inc_marks_down(i: &Incremental, osd: OsdId) -> bool {
    i.new_state.get(&osd).is_some_and(|s| *s == 0 || s & osd_state::UP != 0)
}
