//! The machine of each copy of a PG.
//!
//! A PG of a replicated pool has at most one copy on this OSD. An erasure-coded PG may have several for a time:
//! the present shard, and an earlier one that is not removed yet.

use super::Pgs;
use base::{OsdId, PgId, ShardId, SpgId};
use cluster::{OsdMap, PgPool};
use pg::Pg;
use pg::map::Code;
use std::collections::BTreeMap;

/// Machines by copy; see the module.
#[derive(Default)]
pub(super) struct Copies {
    whole: base::PgTable<rustc_hash::FxBuildHasher>,
    shards: BTreeMap<SpgId, u32>,
}

impl Copies {
    /// Machine of a copy.
    pub(super) fn get(&self, spg: SpgId) -> Option<u32> {
        if spg.shard == ShardId::NONE { self.whole.get(spg.pg) } else { self.shards.get(&spg).copied() }
    }

    /// Machines of all copies of a PG.
    pub(super) fn of(&self, pg: PgId) -> impl Iterator<Item = u32> + '_ {
        let range = SpgId { pg, shard: ShardId(i8::MIN) }..=SpgId { pg, shard: ShardId(i8::MAX) };
        let shards = (!self.shards.is_empty()).then(|| self.shards.range(range).map(|(_, i)| *i));
        self.whole.get(pg).into_iter().chain(shards.into_iter().flatten())
    }

    /// True if the PG has a copy without shard.
    pub(super) fn has_whole(&self, pg: PgId) -> bool {
        self.whole.contains(pg)
    }

    /// True if that copy exists.
    pub(super) fn contains(&self, spg: SpgId) -> bool {
        self.get(spg).is_some()
    }

    pub(super) fn insert(&mut self, spg: SpgId, i: u32) {
        if spg.shard == ShardId::NONE {
            self.whole.insert(spg.pg, i);
        } else {
            self.shards.insert(spg, i);
        }
    }

    pub(super) fn remove(&mut self, spg: SpgId) {
        if spg.shard == ShardId::NONE {
            self.whole.remove(spg.pg);
        } else {
            self.shards.remove(&spg);
        }
    }
}

impl Pgs {
    /// Machine of a PG; among several shards the primary's.
    pub(super) fn machine_of(&self, pg: PgId) -> Option<u32> {
        let leads = |i: &u32| self.pgs.get(*i).is_some_and(Pg::is_primary);
        self.by_pg.of(pg).find(leads).or_else(|| self.by_pg.of(pg).next())
    }
}

/// Erasure code of a pool; `None` if the profile is missing or invalid.
pub(super) fn code_of(map: &OsdMap, p: &PgPool) -> Option<Code> {
    if !p.is_erasure() {
        return None;
    }
    let profile = map.erasure_code_profiles.get(&p.erasure_code_profile)?;
    let text = |key: &str, default: &'static str| profile.get(key).map_or(default, String::as_str).to_owned();
    let number = |key: &str| profile.get(key).and_then(|v| v.parse::<u8>().ok());
    let technique = ec::Technique::from_profile(&text("plugin", "isa"), &text("technique", "reed_sol_van"))?;
    let (k, m) = (number("k")?, number("m")?);
    let chunk = p.stripe_width.checked_div(u32::from(k)).filter(|c| c * u32::from(k) == p.stripe_width)?;
    Some(Code { technique, k, m, chunk })
}

/// The copy of a PG that this OSD leads: with its shard for an erasure-coded PG.
pub(super) fn led_copy(map: &OsdMap, c: SpgId, whoami: OsdId) -> Option<SpgId> {
    let pool = map.pool(c.pg.pool)?;
    let acting = map.pg_to_up_acting(c.pg).acting;
    Some(SpgId { pg: c.pg, shard: map.shard_of(pool, &acting, whoami)? })
}
