//! A rehearsed change that is carried out in steps, and can be undone until it is committed.
//!
//! The monitor makes the change together with upmap items that hold PGs with objects where they are ([`plan`]). Then PGs
//! are let go, some at a time, each after the ones before are clean ([`next`]). [`Record`] is what the monitors keep: what
//! the maps had before ([`Undo`]), and the held PGs. A PG is held while its items are those of the record, so a step
//! changes the map and not the record.
//!
//! An OSD that goes out keeps the weight [`HELD_WEIGHT`] until its last PG was let go: an upmap item to an OSD that is out
//! has no effect.
//!
//! | module | contents |
//! | --- | --- |
//! | `claim` | the claim of the one program that carries a change out: others are refused while it is heard of |
//! | `crush` | the way back for the CRUSH map: the map before, and the items that changed |
//! | `pace` | the pace of a change in steps: when the next PGs are let go, which ones, and when to stop |
//! | `plan` | the plan of a change in steps: the PGs that are held, the way back, and what moves at once |
//! | `undo` | the way back for everything else but upmap items: weights, affinities, pools |
//!
//! Invariants:
//!  1. A record undoes all of a change, or none is made ([`Undo::of`]).
//!  2. What others have changed since is told ([`Record::differences`]) before it is overwritten.
//!
//! Tests: `src/rehearse/steps/tests.rs` (1,
//! `a_change_in_steps_ends_where_the_command_alone_would_and_undo_brings_all_back`,
//! `changes_without_a_way_back_are_refused`; 2, `changes_of_others_are_told`).

mod claim;
mod crush;
mod pace;
mod plan;
#[cfg(test)]
mod tests;
mod undo;

pub use claim::{CLAIM_MAX, Claim};
pub use crush::CrushUndo;
pub use pace::{Danger, Next, PgSeen, Seen, Step, next};
pub use plan::{Plan, plan};
pub use undo::{Undo, WeightUndo};

use base::{OsdId, PgId};
use cluster::{Incremental, OsdMap};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The weight of an OSD that goes out, until its PGs have left: CRUSH chooses it for one PG in 65,536.
pub const HELD_WEIGHT: u32 = 1;
/// Most PGs of a record.
pub const PGS_MAX: usize = 16_384;
/// Differences that a text names.
const NAMED: usize = 8;

/// Upmap items of a PG: pairs of OSDs, from and to.
pub type Items = Vec<(i32, i32)>;

/// The upmap items of a PG before, during and after a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub was: Items,
    /// While the PG is held; `None` for a PG that is not held and loses items by the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Items>,
    /// Once it is let go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub then: Items,
}

/// A change that was carried out and is not committed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The words of the command.
    pub command: String,
    /// The program that carried it out: its host and number.
    pub by: String,
    /// Time of the change, in seconds since 1970.
    pub since: u64,
    /// The epoch of the map before.
    pub epoch: u32,
    /// The way back.
    pub undo: Undo,
    /// PGs whose upmap items change.
    #[serde(with = "by_name")]
    pub pgs: BTreeMap<PgId, Kept>,
    /// PGs that were not clean before: a step does not wait for them.
    #[serde(with = "names")]
    pub unclean: BTreeSet<PgId>,
}

/// The upmap items of a PG.
fn items_of(map: &OsdMap, pg: PgId) -> Items {
    map.pg_upmap_items.get(&pg).map_or_else(Items::new, |v| v.iter().map(|(a, b)| (a.0, b.0)).collect())
}

/// True for a PG of the map that is not about to be merged.
fn is_there(map: &OsdMap, pg: PgId) -> bool {
    map.pool(pg.pool).is_some_and(|p| pg.seed < p.pg_num.min(p.pg_num_pending))
}

/// Sets the upmap items of a PG in a change of `map`.
pub fn set_items(map: &OsdMap, inc: &mut Incremental, pg: PgId, items: &Items) {
    inc.new_pg_upmap_items.remove(&pg);
    inc.old_pg_upmap_items.remove(&pg);
    if !items.is_empty() {
        inc.new_pg_upmap_items.insert(pg, items.iter().map(|(a, b)| (OsdId(*a), OsdId(*b))).collect());
    } else if map.pg_upmap_items.contains_key(&pg) {
        inc.old_pg_upmap_items.insert(pg);
    }
}

impl Record {
    /// The PGs that are held under a map.
    pub fn held<'a>(&'a self, map: &'a OsdMap) -> impl Iterator<Item = (PgId, &'a Kept)> + 'a {
        let holds = |pg: PgId, k: &Kept| k.hold.as_ref().is_some_and(|h| *h != k.then && *h == items_of(map, pg));
        self.pgs.iter().map(|(pg, k)| (*pg, k)).filter(move |(pg, k)| is_there(map, *pg) && holds(*pg, k))
    }

    /// Values that are neither those of the change nor those once its PGs were let go: someone else has set them.
    #[must_use]
    pub fn differences(&self, map: &OsdMap) -> Vec<String> {
        let mut out = self.undo.differences(map);
        for (pg, k) in self.pgs.iter().filter(|(pg, _)| is_there(map, **pg)) {
            let now = items_of(map, *pg);
            if !now.is_empty() && now != k.was && now != k.then && k.hold.as_ref() != Some(&now) {
                let pairs: Vec<String> = now.iter().map(|(a, b)| format!("{a}->{b}")).collect();
                out.push(format!("pg {pg} has the upmap items [{}]", pairs.join(",")));
            }
        }
        out
    }

    /// Adds to `inc`, the next change of `map`, what brings everything back. Error: a text, if that would remove OSDs.
    pub fn bring_back(&self, map: &OsdMap, inc: &mut Incremental) -> Result<(), String> {
        self.undo.bring_back(map, inc)?;
        for (pg, k) in self.pgs.iter().filter(|(pg, _)| is_there(map, **pg)) {
            if items_of(map, *pg) != k.was {
                set_items(map, inc, *pg, &k.was);
            }
        }
        Ok(())
    }
}

/// A list for people: its first entries.
#[must_use]
pub fn shortened(all: &[String]) -> String {
    let more = all.len().saturating_sub(NAMED);
    let text = all.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
    if more == 0 { text } else { format!("{text}; and {more} more") }
}

/// PGs by their names, in JSON.
mod by_name {
    use super::{BTreeMap, Kept, PgId};
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(m: &BTreeMap<PgId, Kept>, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(m.iter().map(|(pg, k)| (pg.to_string(), k)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<PgId, Kept>, D::Error> {
        let all = BTreeMap::<String, Kept>::deserialize(d)?;
        let pg = |s: &str| PgId::parse(s).ok_or_else(|| D::Error::custom(format!("{s}: no PG")));
        all.into_iter().map(|(s, k)| Ok((pg(&s)?, k))).collect()
    }
}

/// A set of PGs by their names, in JSON.
mod names {
    use super::{BTreeSet, PgId};
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(m: &BTreeSet<PgId>, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(m.iter().map(PgId::to_string))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeSet<PgId>, D::Error> {
        let all = Vec::<String>::deserialize(d)?;
        all.iter().map(|s| PgId::parse(s).ok_or_else(|| D::Error::custom(format!("{s}: no PG")))).collect()
    }
}
