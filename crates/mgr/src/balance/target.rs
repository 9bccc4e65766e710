//! The number of PG shards that each OSD should have.
//!
//! By weight, as far as failure domains allow: a host takes one shard of a PG, so a host that has more than its share
//! of the weight is full at one shard per PG, and the others take what is left.

use base::OsdId;
use cluster::osdmap::RuleOsds;
use cluster::{OsdMap, PgPool};
use std::collections::{BTreeMap, BTreeSet};

/// Rounds in which what is beyond a domain's limit is given to the others.
const ROUNDS: usize = 16;

/// The OSDs of one `take` step, with their weights.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// The bucket or OSD that the step takes.
    pub(super) take: i32,
    weights: BTreeMap<OsdId, f64>,
}

impl Group {
    pub(super) fn has(&self, o: OsdId) -> bool {
        self.weights.contains_key(&o)
    }

    /// The OSDs with their weights: that in CRUSH, relative to the other OSDs, times the OSD's own.
    pub(super) fn weights(&self) -> &BTreeMap<OsdId, f64> {
        &self.weights
    }
}

/// The `take` groups of the pool's rule, and the number of PG shards that each OSD should have. `rules` has learnt the
/// rule.
pub(super) fn targets(
    map: &OsdMap,
    p: &PgPool,
    rules: &RuleOsds,
    held: &BTreeMap<OsdId, BTreeSet<u32>>,
) -> (Vec<Group>, BTreeMap<OsdId, f64>) {
    let mut targets = BTreeMap::new();
    let mut groups = Vec::new();
    let Some(rule) = map.crush.rule(p.crush_rule.into()) else { return (groups, targets) };
    let Some(shares) = rules.shares(p.crush_rule) else { return (groups, targets) };
    let mut seen = BTreeSet::new();
    for take in rule.takes().filter(|t| seen.insert(*t)).collect::<Vec<_>>() {
        let mut g = Group { take, weights: BTreeMap::new() };
        let leaves = if take >= 0 { vec![take] } else { map.crush.leaves(take) };
        for o in leaves.into_iter().map(OsdId).filter(|o| !groups.iter().any(|g: &Group| g.has(*o))) {
            let w = shares.get(&o.0).map_or(0.0, |s| f64::from(*s)) * f64::from(map.weight(o));
            if w > 0.0 && map.exists(o) {
                g.weights.insert(o, w);
            }
        }
        let placed: usize = g.weights.keys().map(|o| held.get(o).map_or(0, BTreeSet::len)).sum();
        spread_out(&g, placed as f64, &rule.most_in_buckets(p.size), rules, f64::from(p.pg_num), &mut targets);
        groups.push(g);
    }
    (groups, targets)
}

/// Divides `total` shards among the OSDs of a group.
fn spread_out(
    g: &Group,
    total: f64,
    limits: &[(i32, u32)],
    rules: &RuleOsds,
    pg_num: f64,
    targets: &mut BTreeMap<OsdId, f64>,
) {
    let mut free: BTreeMap<OsdId, f64> = g.weights.clone();
    let mut left = total;
    for round in 0..=ROUNDS {
        let sum: f64 = free.values().sum();
        if sum <= 0.0 || left <= 0.0 {
            break;
        }
        let share = |w: f64| w / sum * left;
        // The bucket that is farthest above its limit, an OSD being a bucket of one shard per PG.
        let mut worst: Option<(f64, f64, Vec<OsdId>)> = None;
        let mut consider = |of: Vec<OsdId>, most: f64| {
            let weight: f64 = of.iter().filter_map(|o| free.get(o)).sum();
            let over = share(weight) / most;
            if over > 1.0 + 1e-9 && worst.as_ref().is_none_or(|w| over > w.0) {
                worst = Some((over, most, of));
            }
        };
        if round < ROUNDS {
            for (kind, n) in limits {
                let mut by: BTreeMap<i32, Vec<OsdId>> = BTreeMap::new();
                for o in free.keys() {
                    if let Some(b) = rules.above(*o, *kind) {
                        by.entry(b).or_default().push(*o);
                    }
                }
                by.into_values().for_each(|of| consider(of, f64::from(*n) * pg_num));
            }
            free.keys().for_each(|o| consider(vec![*o], pg_num));
        }
        let Some((_, most, of)) = worst else {
            targets.extend(free.iter().map(|(o, w)| (*o, share(*w))));
            return;
        };
        let weight: f64 = of.iter().filter_map(|o| free.get(o)).sum();
        for o in of {
            if let Some(w) = free.remove(&o) {
                targets.insert(o, most * w / weight);
            }
        }
        left -= most;
    }
    targets.extend(free.keys().map(|o| (*o, 0.0)));
}
