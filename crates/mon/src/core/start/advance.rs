//! Continues an OSD map at a later epoch, for a state that is older than the cluster.
//!
//! OSDs take no map below their newest. So a monitor whose state is a backup, or was rebuilt from maps of OSDs, goes on at
//! an epoch that no OSD can have seen. OSDs and clients get that map as a whole. Invariants:
//!  1. The new map differs from the old one in its epoch and in that all OSDs are down: their addresses may be those of
//!     processes that are gone. OSDs that run boot again.
//!  2. The new epoch and its bounds become visible together.
//!  3. No global id is given out that may be in use, and for a while clients keep theirs without their tickets
//!     ([`crate::state::lost_tickets`]): the keys that sealed these may be missing.
//!  4. Monitors that could not write the map refuse the state.
//!
//! Tests: below (1, 2, `all_osds_are_down_in_a_map_that_is_visible_at_once`),
//! `tests/do_clients_come_back_after_a_rebuild.rs` (3), below (4, `earlier_monitors_refuse_a_state_that_was_advanced`).

use std::collections::BTreeMap;

use base::{Epoch, Utime};
use bytes::Bytes;
use cluster::osdmap::osd_state;
use cluster::{Incremental, OsdMap};
use state::{Entry, Write};
use wire::Decode;

use super::load::{LoadError, bounds};
use crate::core::propose::batch::Batch;
use crate::core::propose::put_features;
use crate::state::lost_tickets;
use crate::state::maps::{StoredMaps, below};
use crate::state::records::{Bounds, key, value};

/// Epochs by which a state advances unless told otherwise: more than any cluster makes in a year of backups.
pub const ADVANCE: u32 = 1_000_000;
/// Highest epoch to which a state advances.
const EPOCH_MAX: u32 = 1 << 31;

/// The writes of an advance, in transactions to be made in order, and the new epoch.
#[derive(Debug)]
pub struct Advance {
    /// The transactions.
    pub parts: Vec<Vec<Write>>,
    /// The epoch before.
    pub from: Epoch,
    /// The new epoch.
    pub to: Epoch,
}

/// The newest map of a state, from its records and the maps of `load::map_ranges`. Error: a record or map is missing
/// or does not decode.
pub fn newest(records: &[(Bytes, Entry)], maps: &[(Bytes, Entry)]) -> Result<OsdMap, LoadError> {
    let (b, _) = bounds(records)?;
    let full = StoredMaps::of(maps).full(b.newest)?.ok_or(LoadError::Missing("osdmap/full"))?;
    Ok(OsdMap::decode_blob(&full)?)
}

/// The end of the newest batch of global ids, from a state's records; 0 if it has given out none. Error: the record does
/// not decode.
pub fn global_ids(records: &[(Bytes, Entry)]) -> Result<u64, LoadError> {
    let found = records.iter().find(|(k, _)| k == key::GLOBAL_ID);
    let decode = |e: &Entry| u64::from_bytes(&e.value);
    found.map_or(Ok(0), |(_, e)| decode(e)).map_err(|error| LoadError::Record { key: key::GLOBAL_ID.into(), error })
}

/// The map from which a state goes on whose newest map is `map`: that one, or `kept`, which an OSD has kept, if the state
/// does not know of changes in it. Those show in the epoch, or after an earlier advance in a pool that was changed later.
#[must_use]
pub fn base(map: OsdMap, kept: Option<&OsdMap>) -> OsdMap {
    let unknown = |k: &OsdMap| {
        let changed = |id| map.pools.get(id).map(|p| p.last_change);
        k.epoch > map.epoch || k.pools.iter().any(|(id, p)| changed(id).is_some_and(|at| p.last_change > at))
    };
    match kept.filter(|k| k.fsid == map.fsid && unknown(k)) {
        Some(k) => OsdMap { epoch: k.epoch.max(map.epoch), ..k.clone() },
        None => map,
    }
}

/// Continues `map` `by` epochs later, in a state that has given out global ids up to `ids`. Error: the epoch would be
/// too high, or the map cannot be encoded.
pub fn advance(map: &OsdMap, ids: u64, by: u32, now: Utime) -> Result<Advance, LoadError> {
    let to = map.epoch.0.checked_add(by.max(1)).filter(|e| *e < EPOCH_MAX);
    let to = Epoch(to.ok_or(LoadError::Count { key: "osdmap/bounds".into(), n: map.epoch.0.into() })?);
    let mut before = map.clone();
    before.epoch = Epoch(to.0 - 1);
    let mut inc = Incremental::new(map.fsid, to, now);
    let up = map.osds().filter(|o| map.is_up(*o));
    inc.new_state = up.map(|o| (o, osd_state::UP)).collect::<BTreeMap<_, _>>();
    let next = before.apply(&inc)?;
    let (_, full) = crate::core::propose::first_epoch(&next)?;
    let bounds = Bounds { oldest: to, newest: to, checkpoints: [to].into(), writer: (0, 0) };
    let mut b = Batch::default();
    b.head(key::OSDMAP_BOUNDS, Some(value(&bounds)));
    b.head_blob(key::full(to), full);
    b.head(key::GLOBAL_ID, Some(value(&lost_tickets::ids_beyond(ids, now))));
    b.head(key::LOST_TICKETS, Some(value(&now.plus(lost_tickets::LIFE))));
    if !next.pg_upmap_primaries.is_empty() {
        put_features(&mut b);
    }
    below(to).into_iter().for_each(|r| b.remove_range_after(r));
    Ok(Advance { parts: b.into_parts().parts, from: map.epoch, to })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::base::{OsdId, PoolId};
    use cluster::PgPool;
    use std::sync::Arc;

    fn map(epoch: u32, pool_changed: u32, pg_num: u32) -> OsdMap {
        let pool = PgPool { last_change: Epoch(pool_changed), pg_num, ..PgPool::default() };
        OsdMap { epoch: Epoch(epoch), pools: Arc::new([(PoolId(1), Arc::new(pool))].into()), ..OsdMap::default() }
    }

    #[test]
    fn all_osds_are_down_in_a_map_that_is_visible_at_once() {
        let at = |sec| Utime { sec, nsec: 0 };
        let mut inc = Incremental::new(Default::default(), Epoch(8), at(1));
        inc.new_max_osd = 2;
        inc.new_state = [(OsdId(0), osd_state::EXISTS), (OsdId(1), osd_state::EXISTS)].into();
        inc.new_up_client = [(OsdId(1), Default::default())].into();
        let before = map(7, 3, 8).apply(&inc).unwrap();
        assert!(before.is_up(OsdId(1)) && before.is_down(OsdId(0)));
        let a = advance(&before, 100, 1000, at(9)).unwrap();
        assert_eq!((a.from, a.to), (Epoch(8), Epoch(1008)));
        let of = |p: &[Write], k: &Bytes| {
            p.iter().find_map(|w| match w {
                Write::Put(key, v, _) if key == k => Some(v.clone()),
                _ => None,
            })
        };
        let bounds = Bytes::from_static(key::OSDMAP_BOUNDS.as_bytes());
        let head: Vec<_> = a.parts.iter().filter(|p| of(p, &bounds).is_some()).collect();
        assert_eq!(head.len(), 1);
        assert_eq!(Bounds::from_bytes(&of(head[0], &bounds).unwrap()).unwrap().newest, a.to);
        let mut after = OsdMap::decode_blob(&of(head[0], &key::full(a.to)).unwrap()).unwrap();
        assert!(after.is_down(OsdId(0)) && after.is_down(OsdId(1)) && after.exists(OsdId(1)));
        assert_eq!(after.pools, before.pools);
        after.epoch = before.epoch;
        assert_eq!(after.osd_weight, before.osd_weight);
    }

    /// The state's own map may have no chosen primary, and a format that says so.
    #[test]
    fn earlier_monitors_refuse_a_state_that_was_advanced() {
        let writes = |m: &OsdMap| -> BTreeMap<Bytes, Bytes> {
            let parts = advance(m, 100, 1000, Utime { sec: 9, nsec: 0 }).unwrap().parts.into_iter().flatten();
            let put = |w: Write| match w {
                Write::Put(k, v, _) => Some((k, v)),
                _ => None,
            };
            parts.filter_map(put).collect()
        };
        let mut m = map(7, 3, 8);
        assert!(!writes(&m).contains_key(key::FORMAT.as_bytes()));
        m.pg_upmap_primaries.insert(::base::PgId { pool: PoolId(1), seed: 3 }, OsdId(1));
        let all = writes(&m);
        assert_eq!(all[key::FORMAT.as_bytes()], value(&crate::state::records::FORMAT_FEATURES));
        let words = ::base::FeatureWords::from_bytes(&all[key::FEATURES.as_bytes()]).unwrap();
        assert!(words.check(&::base::FeatureWords::default(), false).is_err());
    }

    #[test]
    fn a_state_goes_on_from_what_osds_know_better() {
        let pgs = |m: &OsdMap| (m.epoch.0, m.pools[&PoolId(1)].pg_num);
        let kept = map(53, 40, 16);
        assert_eq!(pgs(&base(map(23, 9, 8), Some(&kept))), (53, 16));
        // It was moved on without that map.
        assert_eq!(pgs(&base(map(1023, 9, 8), Some(&kept))), (1023, 16));
        // The state knows of that change, and of later ones.
        assert_eq!(pgs(&base(map(1053, 40, 16), Some(&kept))), (1053, 16));
        assert_eq!(pgs(&base(map(1060, 1058, 8), Some(&kept))), (1060, 8));
        assert_eq!(pgs(&base(map(60, 58, 8), None)), (60, 8));
        let other = OsdMap { fsid: ::base::id::Uuid([1; 16]), ..kept };
        assert_eq!(pgs(&base(map(23, 9, 8), Some(&other))), (23, 8));
    }
}
