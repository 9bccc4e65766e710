//! A map from PG to a number, small enough that a thousand PGs fit the nearest CPU caches, which a hash table
//! of ids does not.
//!
//! A pool has one row for each 64 seeds of which at least one is present. That is a few bytes a PG where an OSD
//! has most PGs of a pool, and one row a PG where it has one in a hundred. Seeds beyond the rows, which only a
//! forged device can name, are kept in a hash map.

use crate::{PgId, PoolId};
use std::collections::HashMap;
use std::hash::BuildHasher;

const ROW: usize = 64;
/// Most rows of a pool.
const ROWS: usize = 1 << 12;
const NONE: u32 = u32::MAX;

/// Numbers by PG; see the module. Holds any number but `u32::MAX`. `H` hashes pools.
#[derive(Debug, Default)]
pub struct PgTable<H> {
    pools: HashMap<PoolId, Vec<Option<Box<Row>>>, H>,
    /// PGs beyond the last row.
    far: HashMap<PgId, u32, H>,
}

#[derive(Debug)]
struct Row {
    at: [u32; ROW],
    len: usize,
}

/// The row of a PG, and its place in the row.
fn place(pg: PgId) -> (usize, usize) {
    (pg.seed as usize / ROW, pg.seed as usize % ROW)
}

impl<H: BuildHasher> PgTable<H> {
    /// The PG's number.
    #[must_use]
    pub fn get(&self, pg: PgId) -> Option<u32> {
        let (row, i) = place(pg);
        if row >= ROWS {
            return self.far.get(&pg).copied();
        }
        let n = *self.pools.get(&pg.pool)?.get(row)?.as_ref()?.at.get(i)?;
        (n != NONE).then_some(n)
    }

    /// True if the PG has a number.
    #[must_use]
    pub fn contains(&self, pg: PgId) -> bool {
        self.get(pg).is_some()
    }

    /// Sets the PG's number.
    pub fn insert(&mut self, pg: PgId, n: u32) {
        let (row, i) = place(pg);
        if row >= ROWS {
            self.far.insert(pg, n);
            return;
        }
        let rows = self.pools.entry(pg.pool).or_default();
        if rows.len() <= row {
            rows.resize_with(row + 1, || None);
        }
        let Some(slot) = rows.get_mut(row) else { return };
        let row = slot.get_or_insert_with(|| Box::new(Row { at: [NONE; ROW], len: 0 }));
        if let Some(at) = row.at.get_mut(i) {
            row.len += usize::from(*at == NONE);
            *at = n;
        }
    }

    /// Removes the PG and returns its number.
    pub fn remove(&mut self, pg: PgId) -> Option<u32> {
        let (row, i) = place(pg);
        if row >= ROWS {
            return self.far.remove(&pg);
        }
        let rows = self.pools.get_mut(&pg.pool)?;
        let slot = rows.get_mut(row)?;
        let row = slot.as_mut()?;
        let n = std::mem::replace(row.at.get_mut(i)?, NONE);
        if n == NONE {
            return None;
        }
        row.len -= 1;
        if row.len == 0 {
            *slot = None;
            while rows.last().is_some_and(Option::is_none) {
                rows.pop();
            }
            if rows.is_empty() {
                self.pools.remove(&pg.pool);
            }
        }
        Some(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::BTreeMap;
    use std::hash::{BuildHasherDefault, DefaultHasher};

    #[test]
    fn a_table_equals_a_map() {
        let mut rng = Rng::new(3);
        let seed = |rng: &mut Rng, n: u32| match n % 3 {
            0 => rng.below(70) as u32,
            1 => rng.below(1000) as u32,
            _ => u32::MAX - rng.below(10) as u32,
        };
        let (mut t, mut m) = (PgTable::<BuildHasherDefault<DefaultHasher>>::default(), BTreeMap::new());
        for n in 0..20_000 {
            let pg = PgId { pool: PoolId(rng.below(3) as i64 - 1), seed: seed(&mut rng, n) };
            if rng.chance(1, 2) {
                t.insert(pg, n);
                m.insert(pg, n);
            } else {
                assert_eq!(t.remove(pg), m.remove(&pg));
            }
            assert_eq!(t.get(pg), m.get(&pg).copied());
        }
        for (pg, n) in &m {
            assert_eq!(t.remove(*pg), Some(*n));
        }
        assert!(t.pools.is_empty() && t.far.is_empty());
    }
}
