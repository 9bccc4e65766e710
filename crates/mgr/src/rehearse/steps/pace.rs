//! The pace of a change in steps: when the next PGs are let go, which ones, and when to stop.

use super::{PGS_MAX, Record, set_items};
use crate::balance::shard_share;
use base::{OsdId, PgId};
use cluster::osdmap::osd_state;
use cluster::{Incremental, MapError, OsdMap};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Looks at a PG that does not serve after which that is no change of its primary any more.
const LOOKS: u32 = 8;

/// A PG as it reports itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgSeen {
    /// The words of its state.
    pub state: String,
    /// Its up set.
    pub up: Vec<OsdId>,
    /// Its acting set.
    pub acting: Vec<OsdId>,
    /// Bytes of its objects.
    pub bytes: u64,
}

impl PgSeen {
    fn has(&self, word: &str) -> bool {
        self.state.split('+').any(|w| w == word)
    }

    fn is_clean(&self) -> bool {
        self.has("active") && self.has("clean")
    }
}

/// The cluster at one time.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The map.
    pub map: Arc<OsdMap>,
    /// All PGs that have reported.
    pub pgs: BTreeMap<PgId, PgSeen>,
    /// Names of health checks that are errors.
    pub errors: BTreeSet<String>,
}

impl Seen {
    /// PGs that are not clean, or by their reports not where the map places them.
    #[must_use]
    pub fn unclean(&self) -> BTreeSet<PgId> {
        let all = self.map.pools.iter().flat_map(|(id, p)| (0..p.pg_num).map(|seed| PgId { pool: *id, seed }));
        let settled = |pg: PgId, s: &PgSeen| {
            let up = self.map.pg_to_up(pg).0;
            s.up == up.as_slice() && s.acting == up.as_slice()
        };
        let clean = |pg: PgId| self.pgs.get(&pg).is_some_and(|s| s.is_clean() && settled(pg, s));
        all.filter(|pg| !clean(*pg)).collect()
    }

    /// OSDs that are nearly full, or fuller, with each level that they have reached.
    fn nearly_full(&self) -> BTreeSet<(OsdId, u32)> {
        let bits = [osd_state::NEARFULL, osd_state::BACKFILLFULL, osd_state::FULL];
        let all = self.map.osds().flat_map(|o| bits.map(|b| (o, b)));
        all.filter(|(o, b)| self.map.state(*o) & b != 0).collect()
    }

    /// PGs that do not serve; true for those that wait for copies and not for a change of their primary.
    fn inactive(&self) -> BTreeMap<PgId, bool> {
        let waits = |s: &PgSeen| ["peered", "down", "incomplete"].iter().any(|w| s.has(w));
        self.pgs.iter().filter(|(_, s)| !s.has("active")).map(|(pg, s)| (*pg, waits(s))).collect()
    }
}

/// The watch over what a change in steps endangers.
#[derive(Clone, Debug, Default)]
pub struct Danger {
    full: BTreeSet<(OsdId, u32)>,
    errors: BTreeSet<String>,
    inactive: BTreeMap<PgId, u32>,
}

impl Danger {
    /// Begins the watch: what is so already is no reason to stop.
    #[must_use]
    pub fn begin(seen: &Seen) -> Self {
        let inactive = seen.inactive().into_keys().map(|pg| (pg, 0)).collect();
        Self { full: seen.nearly_full(), errors: seen.errors.clone(), inactive }
    }

    /// The reasons to stop; none if all is well.
    pub fn look(&mut self, seen: &Seen) -> Vec<String> {
        let mut out = Vec::new();
        let now = seen.inactive();
        // A PG that did not serve before the start is counted once it has served.
        self.inactive.retain(|pg, _| now.contains_key(pg));
        let mut stopped = Vec::new();
        for (pg, waits) in now {
            match self.inactive.get_mut(&pg) {
                Some(0) => {}
                Some(n) => {
                    *n += 1;
                    if waits || *n >= LOOKS {
                        stopped.push(pg.to_string());
                    }
                }
                None => _ = self.inactive.insert(pg, 1),
            }
        }
        if !stopped.is_empty() {
            let first = stopped.iter().take(4).map(String::as_str).collect::<Vec<_>>().join(", ");
            out.push(format!("{} PGs do not serve ({first})", stopped.len()));
        }
        let full: BTreeSet<OsdId> = seen.nearly_full().difference(&self.full).map(|(o, _)| *o).collect();
        let full: Vec<String> = full.iter().map(OsdId::to_string).collect();
        if !full.is_empty() {
            out.push(format!("{} nearly full", full.join(", ") + if full.len() == 1 { " is" } else { " are" }));
        }
        let errors: Vec<&str> = seen.errors.difference(&self.errors).map(String::as_str).collect();
        if !errors.is_empty() {
            out.push(format!("health reports {}", errors.join(", ")));
        }
        out
    }
}

/// The size of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// So many PGs.
    Pgs(usize),
    /// So much of all data.
    Ratio(f64),
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait: so many PGs are not clean.
    Wait(usize),
    /// Let these PGs go.
    Release(Vec<PgId>),
    /// All PGs were let go: give OSDs their last weights.
    Finish,
    /// All is done.
    Done,
}

/// Decides what is next, and how many bytes the PGs that are held have to copy.
pub fn next(record: &Record, seen: &Seen, step: Step) -> Result<(Next, u64), MapError> {
    let held: Vec<PgId> = record.held(&seen.map).map(|(pg, _)| pg).collect();
    let costs = costs(record, &held, seen)?;
    let left = costs.values().sum::<f64>().round() as u64;
    let counts = |pg: &&PgId| record.pgs.contains_key(*pg) || !record.unclean.contains(*pg);
    let unclean = seen.unclean().iter().filter(counts).count();
    let next = if unclean > 0 {
        Next::Wait(unclean)
    } else if held.is_empty() {
        if record.undo.last_weights(&seen.map).is_empty() { Next::Done } else { Next::Finish }
    } else {
        Next::Release(chosen(&held, &costs, seen, step))
    };
    Ok((next, left))
}

/// Bytes that each held PG has to copy once it is let go.
fn costs(record: &Record, held: &[PgId], seen: &Seen) -> Result<BTreeMap<PgId, f64>, MapError> {
    let map = &seen.map;
    let mut inc = Incremental::new(map.fsid, map.epoch.next(), map.modified);
    for pg in held {
        if let Some(k) = record.pgs.get(pg) {
            set_items(map, &mut inc, *pg, &k.then);
        }
    }
    let free = map.apply(&inc)?;
    let cost = |pg: PgId| {
        let Some(pool) = map.pool(pg.pool) else { return 0.0 };
        let (had, wants) = (map.pg_to_up(pg).0, free.pg_to_up(pg).0);
        let stays = |i: usize, o: &OsdId| if pool.is_erasure() { had.get(i) == Some(o) } else { had.contains(o) };
        let new = wants.iter().enumerate().filter(|(i, o)| **o != OsdId::NONE && !stays(*i, o)).count();
        seen.pgs.get(&pg).map_or(0, |s| s.bytes) as f64 * shard_share(map, pool) * new as f64
    };
    Ok(held.iter().map(|pg| (*pg, cost(*pg))).collect())
}

/// The PGs of a step, at least one.
fn chosen(held: &[PgId], costs: &BTreeMap<PgId, f64>, seen: &Seen, step: Step) -> Vec<PgId> {
    let ratio = match step {
        Step::Pgs(n) => return held.iter().take(n.clamp(1, PGS_MAX)).copied().collect(),
        Step::Ratio(r) => r,
    };
    let copies = |pg: &PgId, s: &PgSeen| {
        seen.map.pool(pg.pool).map_or(0.0, |p| s.bytes as f64 * shard_share(&seen.map, p) * f64::from(p.size))
    };
    let room = ratio * seen.pgs.iter().map(|(pg, s)| copies(pg, s)).sum::<f64>();
    let mut used = 0.0;
    let fits = |pg: &&PgId| {
        used += costs.get(*pg).copied().unwrap_or(0.0);
        used <= room
    };
    let mut out: Vec<PgId> = held.iter().take_while(fits).copied().collect();
    if out.is_empty() {
        out.extend(held.first());
    }
    out
}
