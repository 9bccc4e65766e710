//! The OSD's maps: applying new ones, keeping those that clients may lack, and records for the store. Their
//! effects on PGs begin in `pgs::walk` and are decided in `pg::pg::life`.
//!
//! Invariants:
//!  1. The current map moves forward one epoch at a time. It skips epochs only where a monitor says that it has
//!     trimmed them: PGs that miss a map miss intervals, splits and merges.
//!  2. A map in which a pool is older and has fewer PGs is refused, with all later ones: what this OSD has split stays.
//!  3. The records that [`MapHistory::absorb`] returned so far restore the current map.
//!
//! Tests: `tests/boot.rs` for the first and third, `a_restored_map_of_before_a_split_is_refused` for the second.

use base::id::Uuid;
use base::planted::{Bug, acts};
use base::{Epoch, PoolId};
use bytes::Bytes;
use cluster::{Incremental, MapError, OsdMap, PgPool};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};
use wire::Features;
use wire::msg::MOsdMap;

/// Incrementals kept in memory for clients that are behind. A client further behind gets a full map.
const RECENT_MAX: usize = 128;
/// Most incrementals sent in one message (`osd_map_message_max`).
const MESSAGE_MAX: usize = 40;
/// Most epochs between stored full maps; it bounds the incrementals that a start has to apply.
const FULL_EVERY: u32 = 64;

/// A record for the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A full map.
    Full(Epoch, Bytes),
    /// The incremental that leads to this epoch.
    Inc(Epoch, Bytes),
}

/// Sender of maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A monitor, which knows which older maps still exist.
    Monitor,
    /// Another OSD, which keeps only recent maps.
    Osd,
}

/// Result of a message of maps.
#[derive(Debug, Default)]
pub struct Absorbed {
    /// The new maps, oldest first.
    pub maps: Vec<Arc<OsdMap>>,
    /// Records to store.
    pub records: Vec<Record>,
    /// Maps below this epoch may be dropped everywhere.
    pub trim_below: Epoch,
    /// Newest epoch of the sender; missing maps are to be requested.
    pub newest: Epoch,
    /// True if the message had a map that does not follow.
    pub gap: bool,
}

/// Numbers of received maps.
#[derive(Clone, Copy, Debug, Default)]
pub struct MapCounts {
    /// Messages of maps.
    pub messages: u64,
    /// Epochs in these messages.
    pub epochs: u64,
    /// Of those, epochs that were known.
    pub known: u64,
    /// Full maps received.
    pub full: u64,
    /// Incrementals received.
    pub steps: u64,
}

/// A map with the recent incrementals that lead to it, shared with the reactors.
#[derive(Debug)]
pub struct MapFeed {
    /// The map.
    pub map: Arc<OsdMap>,
    recent: Vec<(Epoch, Bytes)>,
    /// Epoch below which maps do not exist any more, according to a monitor.
    trimmed: Epoch,
    /// This OSD has seen every map from this epoch on.
    pub since: Epoch,
    /// First map of the stored incrementals, in the feed of a start.
    base: Option<Arc<OsdMap>>,
    /// The encoded map, for the features of the first client that needed it.
    full: OnceLock<(Features, Bytes)>,
}

impl MapFeed {
    /// Stored maps older than this one, oldest first. At a start they are shown to PGs whose stored info is older.
    /// Error: a stored incremental does not decode or apply.
    pub fn older(&self) -> Result<Vec<Arc<OsdMap>>, MapError> {
        let mut all = Vec::new();
        let mut at = self.base.clone();
        while let Some(m) = at.filter(|m| m.epoch < self.map.epoch) {
            let step = self.recent.iter().find(|(e, _)| *e == m.epoch.next());
            at = match step {
                Some((_, blob)) => Some(Arc::new(m.apply(&Incremental::decode_blob(blob)?)?)),
                None => None,
            };
            all.push(m);
        }
        Ok(all)
    }

    /// Message that brings a client from epoch `have` to this map; `None` if the client has it. A client that is
    /// further behind than one message of incrementals gets the newest full map. The message then says that no older
    /// map exists: the client takes it at once and sends its operations again, where it would otherwise ask the monitor
    /// for all maps in between (`Objecter::handle_osd_map`).
    #[must_use]
    pub fn share(&self, have: Epoch, features: Features) -> Option<MOsdMap> {
        if have >= self.map.epoch {
            return None;
        }
        let near = self.map.epoch.0 - have.0 <= MESSAGE_MAX as u32;
        if near && self.steps_from(have) && features.nautilus() {
            return Some(self.steps(have));
        }
        let mut m = self.message();
        m.maps.insert(self.map.epoch, self.full(features));
        m.cluster_osdmap_trim_lower_bound = self.map.epoch;
        Some(m)
    }

    /// The encoded map. Clients of the same features share it, since hundreds may be behind at once.
    fn full(&self, features: Features) -> Bytes {
        let (of, blob) = self.full.get_or_init(|| (features, self.map.encode_blob(features).0));
        if *of == features { blob.clone() } else { self.map.encode_blob(features).0 }
    }

    fn message(&self) -> MOsdMap {
        MOsdMap {
            fsid: self.map.fsid,
            newest_map: self.map.epoch,
            cluster_osdmap_trim_lower_bound: self.trimmed,
            ..MOsdMap::default()
        }
    }

    /// The message with the incrementals after `have`.
    fn steps(&self, have: Epoch) -> MOsdMap {
        let steps = self.recent.iter().filter(|(e, _)| *e > have).take(MESSAGE_MAX);
        MOsdMap { incremental_maps: steps.cloned().collect(), ..self.message() }
    }
}

impl MapFeed {
    fn steps_from(&self, have: Epoch) -> bool {
        have > Epoch(0) && self.recent.first().is_some_and(|(e, _)| *e <= have.next())
    }

    /// The next incrementals for another OSD, which must see every map. `None` if it has this map, or lacks maps
    /// that are not kept here.
    #[must_use]
    pub fn share_steps(&self, have: Epoch) -> Option<MOsdMap> {
        if acts(Bug::SkipMaps) && !self.steps_from(have) {
            return self.share(have, Features::PACIFIC);
        }
        (have < self.map.epoch && self.steps_from(have)).then(|| self.steps(have))
    }
}

/// Maps of an OSD; see the module.
#[derive(Debug)]
pub struct MapHistory {
    fsid: Uuid,
    current: Option<Arc<OsdMap>>,
    recent: VecDeque<(Epoch, Bytes)>,
    last_full: Epoch,
    base: Option<Arc<OsdMap>>,
    trimmed: Epoch,
    since: Epoch,
    recent_max: usize,
    counts: MapCounts,
}

/// A pool that has fewer PGs in `next` than in `cur`, though it was changed last before. No history of a cluster leads
/// there, only a state that was restored. Under such a map PGs would be merged that nobody has prepared, and their
/// objects dropped.
fn older_pool(cur: &OsdMap, next: &OsdMap) -> Option<PoolId> {
    let older = |id: &PoolId, p: &PgPool| {
        cur.pools.get(id).is_some_and(|c| p.pg_num < c.pg_num && p.last_change < c.last_change)
    };
    next.pools.iter().find(|(id, p)| older(id, p)).map(|(id, _)| *id)
}

impl MapHistory {
    /// A history without maps.
    #[must_use]
    pub fn new(fsid: Uuid) -> Self {
        Self {
            fsid,
            current: None,
            recent: VecDeque::new(),
            last_full: Epoch(0),
            base: None,
            trimmed: Epoch(0),
            since: Epoch(0),
            recent_max: RECENT_MAX,
            counts: MapCounts::default(),
        }
    }

    /// Restores the history from stored maps: a full map and the incrementals after it. Error: one of them does not
    /// decode or apply.
    pub fn restore(fsid: Uuid, full: &Bytes, incs: &BTreeMap<Epoch, Bytes>) -> Result<Self, MapError> {
        let mut h = Self::new(fsid);
        let mut map = OsdMap::decode_blob(full)?;
        h.last_full = map.epoch;
        h.since = map.epoch;
        h.base = Some(Arc::new(map.clone()));
        while let Some(blob) = incs.get(&map.epoch.next()) {
            map = map.apply(&Incremental::decode_blob(blob)?)?;
            h.remember(map.epoch, blob.clone());
        }
        h.current = Some(Arc::new(map));
        Ok(h)
    }

    /// Newest map.
    #[must_use]
    pub fn current(&self) -> Option<&Arc<OsdMap>> {
        self.current.as_ref()
    }

    /// Epoch of the newest map, 0 if there is none.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.current.as_ref().map_or(Epoch(0), |m| m.epoch)
    }

    /// Numbers of maps received since the start.
    #[must_use]
    pub fn counts(&self) -> MapCounts {
        self.counts
    }

    fn remember(&mut self, e: Epoch, blob: Bytes) {
        if self.recent.back().is_some_and(|(last, _)| last.next() != e) {
            self.recent.clear();
        }
        self.recent.push_back((e, blob));
        while self.recent.len() > self.recent_max {
            self.recent.pop_front();
        }
    }

    /// Limits the incrementals kept for clients to `steps`, for simulations.
    pub fn keep_recent(&mut self, steps: usize) {
        self.recent_max = steps;
    }

    /// Feed for the reactors, which share it with clients.
    #[must_use]
    pub fn feed(&self) -> Option<Arc<MapFeed>> {
        let map = self.current.clone()?;
        Some(Arc::new(MapFeed {
            map,
            recent: self.recent.iter().cloned().collect(),
            trimmed: self.trimmed,
            since: self.since,
            base: self.base.clone(),
            full: OnceLock::new(),
        }))
    }

    /// Applies a message of maps. Maps of another cluster are an error, and known epochs are skipped. Maps that
    /// do not follow are left out, and the monitor is asked for those between.
    pub fn absorb(&mut self, m: &MOsdMap, from: Source) -> Result<Absorbed, MapError> {
        let mut out =
            Absorbed { trim_below: m.cluster_osdmap_trim_lower_bound, newest: m.newest_map, ..Absorbed::default() };
        if m.fsid != self.fsid {
            return Err(MapError::OtherCluster { map: self.fsid, inc: m.fsid });
        }
        if from == Source::Monitor {
            self.trimmed = self.trimmed.max(m.cluster_osdmap_trim_lower_bound);
        }
        let mut epochs: Vec<Epoch> = m.maps.keys().chain(m.incremental_maps.keys()).copied().collect();
        epochs.sort_unstable();
        epochs.dedup();
        self.counts.messages += 1;
        self.counts.epochs += epochs.len() as u64;
        self.counts.known += epochs.iter().filter(|e| **e <= self.epoch()).count() as u64;
        self.counts.full += m.maps.len() as u64;
        self.counts.steps += m.incremental_maps.len() as u64;
        for e in epochs {
            if e <= self.epoch() {
                continue;
            }
            let map = match (&self.current, m.incremental_maps.get(&e), m.maps.get(&e)) {
                (Some(cur), Some(blob), _) if cur.epoch.next() == e => {
                    let map = cur.apply(&Incremental::decode_blob(blob)?)?;
                    self.remember(e, blob.clone());
                    out.records.push(Record::Inc(e, blob.clone()));
                    map
                }
                (_, _, Some(full)) => {
                    match self.take_full(e, full, from, m.cluster_osdmap_trim_lower_bound, &mut out)? {
                        Some(map) => map,
                        None => continue,
                    }
                }
                (None, Some(blob), None) => match self.take_first(e, blob, &mut out)? {
                    Some(map) => map,
                    None => continue,
                },
                _ => {
                    out.gap = true;
                    continue;
                }
            };
            let map = Arc::new(map);
            // The base map is needed at a start only.
            self.base = None;
            if e.0 >= self.last_full.0 + FULL_EVERY {
                self.last_full = e;
                out.records.push(Record::Full(e, map.encode_blob(Features::PACIFIC).0));
            }
            self.current = Some(map.clone());
            out.maps.push(map);
        }
        Ok(out)
    }

    /// Takes a whole map; `bound`: the epoch below which the cluster has none. `None` if it is left out: it skips maps
    /// that exist, or is from an old copy of the monitors' state.
    fn take_full(
        &mut self,
        e: Epoch,
        full: &Bytes,
        from: Source,
        bound: Epoch,
        out: &mut Absorbed,
    ) -> Result<Option<OsdMap>, MapError> {
        let cur = self.current.as_ref();
        let next = cur.map_or(e, |c| c.epoch.next());
        // This is the oldest existing map, or an older one.
        let trimmed = from == Source::Monitor && e <= bound;
        if e > next && !trimmed && !acts(Bug::SkipMaps) {
            tracing::debug!(have = self.epoch().0, epoch = e.0, ?from, "OSD map that skips epochs ignored");
            out.gap = true;
            return Ok(None);
        }
        if e > next {
            tracing::warn!(have = self.epoch().0, epoch = e.0, "OSD map skips epochs that the monitor has trimmed");
        }
        let map = OsdMap::decode_blob(full)?;
        if let Some(id) = cur.and_then(|cur| older_pool(cur, &map)) {
            tracing::error!(
                have = self.epoch().0,
                epoch = e.0,
                pool = id.0,
                "OSD map refused: it has fewer PGs of a pool than this OSD, from before their split, so the \
                 monitors' state is an old copy; stop the monitors, and run `belemnite state advance --osd` \
                 with the store of this OSD"
            );
            return Ok(None);
        }
        if cur.is_none() || e > next && !acts(Bug::ForgetMapGaps) {
            self.since = e;
        }
        self.recent.clear();
        self.last_full = e;
        out.records.push(Record::Full(e, full.clone()));
        Ok(Some(map))
    }

    /// Takes the first map of a cluster: an incremental that carries the whole map. `None` if it does not.
    fn take_first(&mut self, e: Epoch, blob: &Bytes, out: &mut Absorbed) -> Result<Option<OsdMap>, MapError> {
        let inc = Incremental::decode_blob(blob)?;
        if inc.fullmap.is_empty() {
            return Ok(None);
        }
        let full = inc.fullmap.clone();
        let map = OsdMap::decode_blob(&full)?;
        self.last_full = e;
        out.records.push(Record::Full(e, full));
        Ok(Some(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Utime;

    const FSID: Uuid = Uuid([7; 16]);
    const POOL: PoolId = PoolId(1);

    fn full(map: &OsdMap) -> MOsdMap {
        MOsdMap {
            fsid: FSID,
            newest_map: map.epoch,
            cluster_osdmap_trim_lower_bound: map.epoch,
            maps: [(map.epoch, map.encode_blob(Features::PACIFIC).0)].into(),
            ..MOsdMap::default()
        }
    }

    /// `map` at a later epoch, with the pool changed there.
    fn with_pgs(map: &OsdMap, epoch: u32, pg_num: u32) -> OsdMap {
        let mut inc = Incremental::new(FSID, Epoch(epoch), Utime::default());
        let pool = map.pools.get(&POOL).map(|p| (**p).clone()).unwrap_or_default();
        inc.new_pools.insert(POOL, PgPool { pg_num, pgp_num: pg_num, pg_num_pending: pg_num, ..pool });
        inc.new_pool_names.insert(POOL, "p".into());
        let mut before = map.clone();
        before.epoch = Epoch(epoch - 1);
        before.apply(&inc).unwrap()
    }

    #[test]
    fn a_restored_map_of_before_a_split_is_refused() {
        let empty = OsdMap { fsid: FSID, ..OsdMap::default() };
        let exported = with_pgs(&empty, 2, 8);
        let split = with_pgs(&exported, 9, 16);
        let mut h = MapHistory::new(FSID);
        h.absorb(&full(&split), Source::Monitor).unwrap();

        let restored = OsdMap { epoch: Epoch(1009), ..exported.clone() };
        for from in [Source::Monitor, Source::Osd] {
            assert!(h.absorb(&full(&restored), from).unwrap().maps.is_empty());
        }
        // The next map of that monitor does not follow.
        assert!(h.absorb(&full(&OsdMap { epoch: Epoch(1010), ..exported }), Source::Monitor).unwrap().maps.is_empty());
        assert_eq!(h.epoch(), Epoch(9));

        // A restored map of after the split is taken, and one of a cluster that has merged the PGs meanwhile.
        let advanced = OsdMap { epoch: Epoch(2009), ..split.clone() };
        assert_eq!(h.absorb(&full(&advanced), Source::Monitor).unwrap().maps.len(), 1);
        let merged = OsdMap { epoch: Epoch(3000), ..with_pgs(&split, 30, 8) };
        assert_eq!(h.absorb(&full(&merged), Source::Monitor).unwrap().maps.len(), 1);
    }
}
