//! Inputs postponed while the machine can't handle them: maps while it loads or changes its collection, messages while it
//! moves. Both are bounded.

use crate::event::SessionId;
use crate::interval::IntervalKey;
use crate::limits::HELD_OPS_MAX;
use crate::map::MapView;
use crate::moving::Postponed;
use crate::pg::Pg;
use crate::pg::mail::held::heaviest;

/// Postpones a map. Of a run of maps that are equal for the PG, only the first and the last are kept: they mark begin and
/// end of its interval. So there are at most two per interval.
pub(in crate::pg) fn postpone_map(kept: &mut Vec<MapView>, map: MapView) {
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

/// Postpones an input while the PG moves, and returns the sessions to be closed.
///
/// Messages of other OSDs are limited to [`HELD_OPS_MAX`]: further ones are dropped, since their senders repeat them.
/// Operations are limited as in [`Held`](super::held::Held): beyond the limit those of the returned sessions are
/// dropped. Messages of this OSD and ends of sessions are always kept.
pub(in crate::pg) fn postpone(kept: &mut Vec<Postponed>, postponed: Postponed) -> Vec<SessionId> {
    let is_peer = |l: &Postponed| matches!(l, Postponed::Peer { .. });
    let is_op = |l: &Postponed| matches!(l, Postponed::Op(_));
    let full = |kind: &dyn Fn(&Postponed) -> bool| {
        kept.len() >= HELD_OPS_MAX && kept.iter().filter(|l| kind(l)).count() >= HELD_OPS_MAX
    };
    if is_peer(&postponed) && full(&is_peer) {
        return Vec::new();
    }
    let mut victims = Vec::new();
    if is_op(&postponed) && full(&is_op) {
        victims = heaviest(kept.iter().filter_map(|l| if let Postponed::Op(r) = l { Some(&**r) } else { None }));
        kept.retain(|l| !matches!(l, Postponed::Op(r) if victims.contains(&r.session)));
    }
    kept.push(postponed);
    victims
}

impl Pg {
    /// Closes sessions whose operations were dropped for want of room.
    pub(in crate::pg) fn close_postponed(&mut self, sessions: Vec<SessionId>) {
        let mut out = std::mem::take(&mut self.mail.outbox);
        self.close_sessions(sessions, &mut out);
        self.mail.outbox = out;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::OpRequest;
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
            since: Epoch(0),
            osds: Rc::new(AllUp),
            blocklist: Rc::new(NoBlocklist),
        }
    }

    #[test]
    fn of_equal_maps_the_first_and_the_last_are_kept() {
        let mut kept = Vec::new();
        for epoch in 1..1000 {
            postpone_map(&mut kept, map(epoch, i32::from(epoch >= 500) + i32::from(epoch == 700)));
        }
        let epochs: Vec<u32> = kept.iter().map(|m| m.epoch.0).collect();
        assert_eq!(epochs, [1, 499, 500, 699, 700, 701, 999]);
    }

    #[test]
    fn inputs_held_for_a_move_are_bounded() {
        let op = |session| {
            Postponed::Op(Box::new(OpRequest {
                session: SessionId(session),
                owner: session,
                client: EntityName::default(),
                addr: EntityAddr::default(),
                features: 0,
                received: Now::default(),
                ledger: base::ledger::Ledger::default(),
                msg: Box::default(),
            }))
        };
        let mut kept = Vec::new();
        assert!(postpone(&mut kept, op(2)).is_empty());
        let closed: Vec<_> = (0..HELD_OPS_MAX).flat_map(|_| postpone(&mut kept, op(1))).collect();
        assert_eq!((kept.len(), closed), (2, vec![SessionId(1)]), "the other one's stays");
        assert!(postpone(&mut kept, Postponed::SessionClosed(SessionId(1))).is_empty());
    }
}
