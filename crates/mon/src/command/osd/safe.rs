//! Safety checks before OSDs are stopped, destroyed or purged: the copies that their PGs would have left.
//!
//! Operators and orchestrators act on these answers, so a doubt counts as danger:
//!  1. A PG without a report since this monitor leads is unknown. While any PG is unknown, no OSD is safe.
//!  2. A copy counts only if its OSD is up, has been up since the PG's report, and lacks no objects by that report.
//!  3. An OSD that is down, or has not reported since it came up, is safe to destroy only if all PGs are active+clean.

use crate::command::language::args::parse_osd;
use crate::command::{Cmd, CommandOutcome, Ctx, Refused, Res, cmd, done, flag as cf, invalid, refuse};
use crate::json::J;
use crate::obj;
use crate::state::ClusterState;
use base::{OsdId, PgId, errno};
use cluster::OsdMap;
use std::collections::{BTreeMap, BTreeSet};
use wire::types::{PgStat, pg_state};

/// Most PGs that an answer names in one list. Its numbers count all of them.
const NAMED: usize = 10_000;

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd(
        "osd ok-to-stop ids:String* max:Int[0]?",
        "osd",
        "r",
        cf::MGR,
        ok_to_stop,
        "check whether OSDs can stop without making PGs inactive",
    ),
    cmd(
        "osd safe-to-destroy ids:String*",
        "osd",
        "r",
        cf::MGR,
        |c| safe_to_destroy(c),
        "check whether OSDs can be destroyed without losing copies",
    ),
];

fn ids(c: &Ctx<'_>) -> Res<BTreeSet<OsdId>> {
    let v = c.args.list("ids");
    if v.is_empty() {
        return invalid("must specify one or more OSDs");
    }
    if matches!(v[0].as_str(), "all" | "any" | "*") {
        return Ok(c.state.osdmap.osds().collect());
    }
    v.iter()
        .map(|w| {
            parse_osd(w).ok_or_else(|| {
                Refused::new(errno::EINVAL, format!("Expected option value to be integer, got '{w}'invalid osd id-1"))
            })
        })
        .collect()
}

/// True if a copy of a PG on `o` is as its report says: `o` is up, and has been since.
fn alive(map: &OsdMap, s: &PgStat, o: OsdId) -> bool {
    o != OsdId::NONE && map.is_up(o) && map.info(o).up_from <= s.reported_epoch
}

/// OSDs with all objects of a PG.
fn complete(map: &OsdMap, s: &PgStat) -> Vec<OsdId> {
    let alive = |o: &OsdId| alive(map, s, *o);
    // A clean PG does not list its complete copies.
    if s.state() & pg_state::CLEAN != 0 {
        s.acting.iter().copied().filter(alive).collect()
    } else {
        s.avail_no_missing.iter().map(|x| x.osd).filter(alive).collect()
    }
}

/// True if a PG has all its copies, and serves clients.
fn is_settled(map: &OsdMap, s: &PgStat) -> bool {
    const WANT: u64 = pg_state::ACTIVE | pg_state::CLEAN;
    s.state() & (WANT | pg_state::STALE) == WANT && s.acting.iter().all(|o| *o == OsdId::NONE || alive(map, s, *o))
}

/// PGs of the map that have not reported since this monitor leads.
fn unknown(state: &ClusterState) -> impl Iterator<Item = PgId> + '_ {
    let stats = &state.mgr.stats;
    let silent = move |pg: &PgId| stats.pg(*pg).is_none_or(|s| s.state() == 0);
    state.osdmap.pools.iter().flat_map(|(id, p)| (0..p.pg_num).map(|seed| PgId { pool: *id, seed })).filter(silent)
}

/// The effect of stopping a PG's OSDs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    AlreadyInactive,
    BecomesInactive,
    Degraded,
    MoreDegraded,
}

impl Effect {
    fn of(map: &OsdMap, pg: PgId, s: &PgStat, stop: &BTreeSet<OsdId>) -> Self {
        if s.state() & (pg_state::ACTIVE | pg_state::STALE) != pg_state::ACTIVE {
            return Self::AlreadyInactive;
        }
        let need = map.pool(pg.pool).map_or(1, |p| (p.min_size as usize).max(1));
        let left = |v: &[OsdId]| v.iter().filter(|o| !stop.contains(o)).count();
        let full = complete(map, s);
        let serving: Vec<OsdId> = s.acting.iter().copied().filter(|o| alive(map, s, *o)).collect();
        // A member that lacks objects keeps the PG active, but is no copy. Stopping it takes no copy away.
        let fewer = left(&full) < full.len();
        if left(&serving) < need || fewer && left(&full) < need {
            Self::BecomesInactive
        } else if s.state() & pg_state::DEGRADED != 0 {
            Self::MoreDegraded
        } else {
            Self::Degraded
        }
    }

    fn is_bad(self) -> bool {
        matches!(self, Self::AlreadyInactive | Self::BecomesInactive)
    }
}

/// The PGs of each OSD, and the OSDs that may stop together.
struct Stop<'a> {
    state: &'a ClusterState,
    by_osd: BTreeMap<OsdId, Vec<PgId>>,
    osds: BTreeSet<OsdId>,
}

impl<'a> Stop<'a> {
    fn new(state: &'a ClusterState, osds: BTreeSet<OsdId>) -> Self {
        let mut by_osd: BTreeMap<OsdId, Vec<PgId>> = BTreeMap::new();
        for (id, s) in state.mgr.stats.pgs().filter(|(_, s)| s.state() != 0) {
            for o in s.acting.iter().copied().filter(|o| *o != OsdId::NONE) {
                by_osd.entry(o).or_default().push(*id);
            }
        }
        Self { state, by_osd, osds }
    }

    fn effect(&self, pg: PgId) -> Option<Effect> {
        Some(Effect::of(&self.state.osdmap, pg, self.state.mgr.stats.pg(pg)?, &self.osds))
    }

    /// The PGs of the OSDs, with the effect of stopping these.
    fn effects(&self) -> BTreeMap<PgId, Effect> {
        let pgs = self.osds.iter().filter_map(|o| self.by_osd.get(o)).flatten();
        pgs.filter_map(|pg| Some((*pg, self.effect(*pg)?))).collect()
    }

    /// Adds an OSD if it can stop, too.
    fn add(&mut self, o: OsdId) -> bool {
        self.osds.insert(o);
        let pgs = self.by_osd.get(&o).into_iter().flatten();
        let ok = pgs.copied().all(|pg| self.effect(pg).is_none_or(|e| !e.is_bad()));
        if !ok {
            self.osds.remove(&o);
        }
        ok
    }

    /// Adds up OSDs from the neighbourhood of the first one until there are `max`: from its host, then from the next
    /// bucket above, as long as every OSD of a bucket could be added.
    fn extend(&mut self, max: usize) {
        let map = &self.state.osdmap;
        let mut at = self.osds.first().map(|o| o.0);
        while let Some(parent) = at.and_then(|id| map.crush.parent_of(id)) {
            let near: BTreeSet<OsdId> = map.crush.leaves(parent).into_iter().map(OsdId).collect();
            let mut failed = false;
            for o in near {
                if self.osds.len() >= max {
                    return;
                }
                if map.is_up(o) && !self.osds.contains(&o) {
                    failed |= !self.add(o);
                }
            }
            if failed {
                return;
            }
            at = Some(parent);
        }
    }
}

fn ok_to_stop(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let osds = ids(c)?;
    let max = usize::try_from(c.args.int("max").unwrap_or(0)).unwrap_or(0);
    let mut stop = Stop::new(c.state, osds);
    let silent: Vec<PgId> = unknown(c.state).collect();
    let mut effects = stop.effects();
    if silent.is_empty() && !effects.values().any(|e| e.is_bad()) && stop.osds.len() < max {
        stop.extend(max);
        effects = stop.effects();
    }
    let bad = effects.values().filter(|e| e.is_bad()).count();
    let mut j = obj! {
        "ok_to_stop": bad == 0 && silent.is_empty(),
        "osds": stop.osds.iter().map(|o| o.0).collect::<J>(),
        "num_ok_pgs": effects.len() - bad,
        "num_not_ok_pgs": bad,
    };
    if !silent.is_empty() {
        j.put("unknown_pgs", silent.iter().take(NAMED).map(PgId::to_string).collect::<J>());
    }
    let lists = [
        ("bad_already_inactive", Effect::AlreadyInactive),
        ("bad_become_inactive", Effect::BecomesInactive),
        ("ok_become_degraded", Effect::Degraded),
        ("ok_become_more_degraded", Effect::MoreDegraded),
    ];
    for (name, which) in lists {
        let mut of = effects.iter().filter(|(_, e)| **e == which).map(|(id, _)| id.to_string()).peekable();
        if of.peek().is_some() {
            j.put(name, of.take(NAMED).collect::<J>());
        }
    }
    let mut out = c.show_flat(&j)?;
    if bad > 0 || !silent.is_empty() {
        out.rc = errno::EBUSY;
        out.rs = format!("unsafe to stop osd(s) at this time ({bad} PGs are or would become offline)");
        if !silent.is_empty() {
            out.rs += &format!("; {} PGs have unknown state", silent.len());
        }
    }
    Ok(out)
}

/// The result of a check whether OSDs can be destroyed.
#[derive(Default)]
struct Destroy {
    safe: Vec<i32>,
    /// OSDs to which PGs are mapped.
    active: Vec<i32>,
    /// OSDs about which nothing is known, while not all PGs are active+clean.
    missing: Vec<i32>,
    /// OSDs that hold PGs of earlier intervals, while not all PGs are active+clean.
    stored: Vec<i32>,
    /// Number of PGs mapped to the OSDs.
    pgs: usize,
}

impl Destroy {
    /// Error: EAGAIN while PGs are unknown.
    fn check(state: &ClusterState, osds: &BTreeSet<OsdId>) -> Res<Self> {
        let map = &state.osdmap;
        let silent = unknown(state).count();
        // OSDs that do not exist hold nothing, whatever the PGs' states.
        if silent > 0 && osds.iter().any(|o| map.exists(*o)) {
            return refuse(errno::EAGAIN, format!("{silent} pgs have unknown state; cannot draw any conclusions"));
        }
        let mut mapped: BTreeMap<OsdId, usize> = BTreeMap::new();
        let mut settled = true;
        for (_, s) in state.mgr.stats.pgs() {
            settled &= is_settled(map, s);
            let up = s.up.iter().filter(|o| !s.acting.contains(o));
            for o in s.acting.iter().chain(up).filter(|o| osds.contains(o)) {
                *mapped.entry(*o).or_default() += 1;
            }
        }
        let mut d = Self::default();
        for o in osds {
            let n = mapped.get(o).copied().unwrap_or(0);
            let list = if !map.exists(*o) {
                &mut d.safe
            } else if n > 0 {
                d.pgs += n;
                &mut d.active
            } else {
                match state.mgr.stats.held_pgs(*o, map) {
                    _ if settled => &mut d.safe,
                    None => &mut d.missing,
                    Some(0) => &mut d.safe,
                    Some(_) => &mut d.stored,
                }
            };
            list.push(o.0);
        }
        Ok(d)
    }

    /// Error: EBUSY or EAGAIN with the reasons why not all of the OSDs are safe to destroy.
    fn verdict(&self) -> Res<()> {
        let text = |v: &[i32]| v.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
        let mut s = String::new();
        if self.active.is_empty() && self.missing.is_empty() && self.stored.is_empty() {
            return Ok(());
        }
        if !self.safe.is_empty() {
            s += &format!("OSD(s) {} are safe to destroy without reducing data durability. ", text(&self.safe));
        }
        if !self.active.is_empty() {
            s += &format!("OSD(s) {} have {} pgs currently mapped to them. ", text(&self.active), self.pgs);
        }
        if !self.missing.is_empty() {
            s += &format!(
                "OSD(s) {} have no reported stats, and not all PGs are active+clean; we cannot draw any conclusions. ",
                text(&self.missing)
            );
        }
        if !self.stored.is_empty() {
            s += &format!(
                "OSD(s) {} last reported they still store some PG data, and not all PGs are active+clean; we cannot be sure they aren't still needed.",
                text(&self.stored)
            );
        }
        let busy = !self.active.is_empty() || !self.stored.is_empty();
        refuse(if busy { errno::EBUSY } else { errno::EAGAIN }, s)
    }
}

/// Error: the reason why destroying `o` may reduce the durability of data.
pub(in crate::command) fn check_destroy(state: &ClusterState, o: OsdId) -> Res<()> {
    Destroy::check(state, &BTreeSet::from([o]))?.verdict()
}

fn safe_to_destroy(c: &Ctx<'_>) -> Res<CommandOutcome> {
    let osds = ids(c)?;
    let d = Destroy::check(c.state, &osds)?;
    let list = |v: &[i32]| v.iter().copied().collect::<J>();
    let tree = || {
        obj! {
            "safe_to_destroy": list(&d.safe),
            "active": list(&d.active),
            "missing_stats": list(&d.missing),
            "stored_pgs": list(&d.stored),
        }
    };
    // A structured format lists the findings; the plain form is a verdict with its errno.
    let verdict = || {
        d.verdict()?;
        let all = osds.iter().map(|o| o.0.to_string()).collect::<Vec<_>>().join(",");
        done(format!("OSD(s) {all} are safe to destroy without reducing data durability."))
    };
    c.tree("osds", tree).text(verdict)
}
