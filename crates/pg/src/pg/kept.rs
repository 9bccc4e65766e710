//! What is kept while a machine can't take it: maps while it loads or changes its collection, inputs while it moves. Both are bounded.

use super::Pg;
use crate::effect::Effect;
use crate::interval::IntervalKey;
use crate::limits::HELD_OPS_MAX;
use crate::map::MapView;
use crate::moving::Late;

/// Keeps a map. Of a run of maps that are the same to the PG the first one and the last one are needed: when its interval began, and how it ended.
/// So there are no more than two for each interval, which count as past intervals do.
pub(super) fn keep_map(kept: &mut Vec<MapView>, map: MapView) {
    let same = |a: &MapView, b: &MapView| {
        a.pool.is_some() == b.pool.is_some() && a.up_from == b.up_from && IntervalKey::of(a) == IntervalKey::of(b)
    };
    if let [.., a, b] = kept.as_slice()
        && same(a, b)
        && same(b, &map)
    {
        kept.pop();
    }
    kept.push(map);
}

/// Keeps an input; it comes back if there are too many. What this OSD says to itself, and sessions that end, are always kept.
pub(super) fn keep_late(kept: &mut Vec<Late>, late: Late) -> Option<Late> {
    if kept.len() >= HELD_OPS_MAX && matches!(late, Late::Op(_) | Late::Peer { .. }) {
        return Some(late);
    }
    kept.push(late);
    None
}

impl Pg {
    /// There was no room for it: clients send operations again when the map or the session changes, OSDs whatever has no answer.
    pub(super) fn refuse_late(&mut self, refused: Option<Late>) {
        if let Some(Late::Op(r)) = refused {
            tracing::warn!(pg = %self.cfg.spg, limit = HELD_OPS_MAX, "too many operations wait for a move, dropping");
            self.counters.dropped += 1;
            self.outbox.push(Effect::Dropped(r.session, r.msg.tid));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{OpRequest, SessionId};
    use crate::map::{AllUp, Mapping, NoBlocklist, PoolView};
    use base::{EntityAddr, EntityName, Epoch, Now, OsdId};
    use std::rc::Rc;

    fn map(epoch: u32, lead: i32) -> MapView {
        let v = vec![OsdId(lead)];
        MapView {
            epoch: Epoch(epoch),
            flags: 0,
            pool: Some(Rc::new(PoolView { size: 1, pg_num: 1, ..PoolView::default() })),
            mapping: Mapping { up: v.clone(), up_primary: OsdId(lead), acting: v, acting_primary: OsdId(lead) },
            up_thru: Epoch(1),
            up_from: Epoch(1),
            osds: Rc::new(AllUp),
            blocklist: Rc::new(NoBlocklist),
        }
    }

    #[test]
    fn a_run_of_maps_takes_two() {
        let mut kept = Vec::new();
        for epoch in 1..1000 {
            keep_map(&mut kept, map(epoch, i32::from(epoch >= 500) + i32::from(epoch == 700)));
        }
        let epochs: Vec<u32> = kept.iter().map(|m| m.epoch.0).collect();
        assert_eq!(epochs, [1, 499, 500, 699, 700, 701, 999]);
    }

    #[test]
    fn what_is_held_for_a_move_is_bounded() {
        let op = || {
            Late::Op(Box::new(OpRequest {
                session: SessionId(1),
                client: EntityName::default(),
                addr: EntityAddr::default(),
                features: 0,
                received: Now::default(),
                msg: Box::default(),
            }))
        };
        let mut kept = Vec::new();
        let refused = (0..HELD_OPS_MAX + 10).filter(|_| keep_late(&mut kept, op()).is_some()).count();
        assert_eq!((kept.len(), refused), (HELD_OPS_MAX, 10));
        assert!(keep_late(&mut kept, Late::SessionClosed(SessionId(1))).is_none());
    }
}
