//! Cut links between two OSDs that both reach the monitors and others.
//!
//! Each end of such a link reports the other, and nobody else does. So neither fails by the rule of several reporters,
//! and writes to the PGs of both would wait for as long as the cut lasts. Reports of both ends together name the link
//! and not an OSD: the monitor takes as few OSDs out of service as it needs, one at a time. An OSD that was taken out
//! does not boot before it reaches the peers that it had reported (`osd::core::rejoin`), so a cut causes one change and
//! its repair another.
//!
//! Invariants:
//!  1. A single OSD's reports never take another one out of service: both ends have to report.
//!  2. No OSD is taken out if more PGs would stop to serve than go on.
//!
//! Tests: `tests/is_a_cut_link_told_from_a_failure.rs` (1, `one_end_leaves_once_and_comes_back`; 2,
//! `no_pg_stops_that_would_go_on_otherwise`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::planted::{Bug, acts};
use base::{Epoch, OsdId};
use wire::types::{PgStat, pg_state};

use crate::core::MonCore;
use crate::state::ClusterState;
use crate::state::cuts::names;
use crate::state::log::Prio;

/// Time past the grace before a link counts as cut: reports by other OSDs may come, which tell of an OSD.
pub(in crate::core) const PATIENCE: Duration = Duration::from_secs(5);

/// The effect of taking an OSD out of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Loss {
    /// PGs that would have too few copies and serve now.
    stopped: usize,
    /// PGs that wait for the cut link and would go on.
    freed: usize,
    /// PGs that it leads.
    primaries: usize,
}

impl Loss {
    fn of(state: &ClusterState, osd: OsdId, peers: &BTreeSet<OsdId>) -> Self {
        let map = &state.osdmap;
        let mut loss = Self::default();
        for (id, s) in state.mgr.stats.pgs().filter(|(_, s)| s.acting.contains(&osd)) {
            let others = |s: &PgStat| s.acting.iter().filter(|o| **o != osd && map.is_up(**o)).count();
            let enough = map.pool(id.pool).is_none_or(|p| others(s) >= p.min_size as usize);
            let waits = s.acting.iter().any(|o| peers.contains(o));
            loss.stopped += usize::from(!enough && !waits && s.state() & pg_state::ACTIVE != 0);
            loss.freed += usize::from(enough && waits);
            loss.primaries += usize::from(s.acting_primary == osd);
        }
        loss
    }
}

/// The OSD to take out of service first: an end of the most links, then the one whose absence stops fewer PGs, then the
/// one that leads fewer. `None` if every choice stops more PGs than it frees.
fn choose(state: &ClusterState, links: &BTreeSet<(OsdId, OsdId)>) -> Option<(OsdId, BTreeSet<OsdId>)> {
    let mut ends: BTreeMap<OsdId, BTreeSet<OsdId>> = BTreeMap::new();
    for (a, b) in links {
        ends.entry(*a).or_default().insert(*b);
        ends.entry(*b).or_default().insert(*a);
    }
    let most = ends.values().map(BTreeSet::len).max()?;
    let judged = ends.into_iter().filter(|(_, p)| p.len() == most).map(|(o, p)| (Loss::of(state, o, &p), o, p));
    let judged = judged.filter(|(l, ..)| l.stopped == 0 || l.stopped < l.freed);
    // Of equal OSDs the one with the greater number.
    let best = judged.min_by_key(|(l, o, _)| (l.stopped, l.primaries, -i64::from(o.0)));
    best.map(|(_, o, p)| (o, p))
}

impl MonCore {
    /// Takes an OSD out of service if links are cut.
    pub(in crate::core) fn tick_cuts(&mut self) {
        let map = std::sync::Arc::clone(&self.state.osdmap);
        let grace = self.state.options.osds.heartbeat_grace + PATIENCE;
        let up = |o: &OsdId| map.is_up(*o);
        let links: BTreeSet<_> = self.failures.links(grace, self.now.wall).filter(|(a, b)| up(a) && up(b)).collect();
        self.state.cuts_mut().update(&links, &map);
        let Some((osd, peers)) = choose(&self.state, &links).filter(|_| !acts(Bug::IgnoreCutLinks)) else { return };
        if !self.may_mark_down(osd) {
            return;
        }
        if self.mark_down(osd) {
            let names = names(&peers);
            let text = format!(
                "{osd} is taken out of service: it and {names} do not reach each other, but both reach the monitors"
            );
            self.pending.log(&self.state, self.now, Prio::WARN, "cluster", text);
            self.state.cuts_mut().take_out(osd, peers);
        }
        for (conn, epoch) in self.failures.resolve(osd) {
            self.maps_after_commit(conn, Epoch(epoch));
        }
    }
}
