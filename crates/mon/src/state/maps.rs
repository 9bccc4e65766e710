//! Encoded OSD map epochs: the range stored, the maps in memory, and the ranges to read for others.
//!
//! Invariants:
//!  1. The state store has the incremental of every epoch above the first checkpoint up to `newest`, and the full map
//!     of each checkpoint. The first checkpoint is at most `oldest`.
//!  2. The bytes in memory are those of the store or are made from them, and match the checksum that the incremental
//!     names. An epoch's bytes never change.
//!  3. Incrementals since a checkpoint take no more bytes than it, or are few. So the store holds at most twice the
//!     bytes of its incrementals.
//!
//! Tests: `tests/does_the_history_hold_through_crashes.rs` (1, 2), below (3).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::Epoch;
use bytes::Bytes;
use cluster::{Incremental, MapError, OsdMap};
use state::{Entry, Range};
use wire::Features;

use super::records::{Bounds, key, whole};

/// Incrementals held in memory.
pub const INCREMENTALS_CACHED: usize = 1024;
/// Number of newest full maps held in memory, and also of older ones that were requested.
pub const FULLS_CACHED: usize = 16;
/// Most epochs between two checkpoints.
const CHECKPOINT_EPOCHS: u32 = 256;

/// The range of stored epochs, and the maps held in memory.
#[derive(Clone, Debug, Default)]
pub struct MapHistory {
    /// The oldest epoch kept: the bound below which OSDs may drop maps.
    pub oldest: Epoch,
    /// The newest epoch stored.
    pub newest: Epoch,
    checkpoints: BTreeSet<Epoch>,
    /// Bytes of incrementals since the newest checkpoint.
    since_checkpoint: usize,
    incs: BTreeMap<Epoch, Bytes>,
    fulls: BTreeMap<Epoch, Bytes>,
    fetched: VecDeque<(Epoch, Bytes)>,
}

impl MapHistory {
    /// A history with these bounds, and no maps in memory yet.
    #[must_use]
    pub fn new(b: &Bounds) -> Self {
        Self { oldest: b.oldest, newest: b.newest, checkpoints: b.checkpoints.clone(), ..Self::default() }
    }

    /// The bounds for the store; the commit adds the writer.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        let checkpoints = self.checkpoints.clone();
        Bounds { oldest: self.oldest, newest: self.newest, checkpoints, writer: (0, 0) }
    }

    /// The incremental that led to `e`, if held.
    #[must_use]
    pub fn inc(&self, e: Epoch) -> Option<&Bytes> {
        self.incs.get(&e)
    }

    /// The full map of `e`, if held.
    #[must_use]
    pub fn full(&self, e: Epoch) -> Option<&Bytes> {
        self.fulls.get(&e).or_else(|| self.fetched.iter().find(|(f, _)| *f == e).map(|(_, b)| b))
    }

    /// Caches an older full map that was made on request.
    pub fn put_fetched(&mut self, e: Epoch, b: Bytes) {
        self.fetched.push_back((e, b));
        if self.fetched.len() > FULLS_CACHED {
            self.fetched.pop_front();
        }
    }

    /// Caches an incremental.
    pub fn put_inc(&mut self, e: Epoch, b: Bytes) {
        self.incs.insert(e, b);
        while self.incs.len() > INCREMENTALS_CACHED {
            self.incs.pop_first();
        }
    }

    /// Caches a full map.
    pub fn put_full(&mut self, e: Epoch, b: Bytes) {
        self.fulls.insert(e, b);
        while self.fulls.len() > FULLS_CACHED {
            self.fulls.pop_first();
        }
    }

    /// Adds the maps that were read at start: the newest full map, and incrementals up to it.
    pub fn loaded(&mut self, newest: Bytes, incs: BTreeMap<Epoch, Bytes>) {
        let last = self.checkpoints.last().copied().unwrap_or_default();
        self.since_checkpoint = incs.range(last.next()..).map(|(_, b)| b.len()).sum();
        self.put_full(self.newest, newest);
        let oldest = self.oldest;
        for (e, b) in incs.into_iter().filter(|(e, _)| *e > oldest) {
            self.put_inc(e, b);
        }
    }

    /// Adds a committed epoch; with `checkpoint` its full map was stored too.
    pub fn committed(&mut self, e: Epoch, inc: Bytes, full: Bytes, checkpoint: bool) {
        debug_assert!(e > self.newest, "an epoch's bytes never change");
        self.newest = e;
        if checkpoint {
            self.checkpoints.insert(e);
            self.since_checkpoint = 0;
        } else {
            self.since_checkpoint += inc.len();
        }
        self.put_inc(e, inc);
        self.put_full(e, full);
    }

    /// True if the epoch after the newest, with maps of these sizes, is to be a checkpoint.
    #[must_use]
    pub fn checkpoint_due(&self, inc: usize, full: usize) -> bool {
        let last = self.checkpoints.last().copied().unwrap_or_default();
        self.newest.next().0.saturating_sub(last.0) >= CHECKPOINT_EPOCHS || self.since_checkpoint + inc >= full
    }

    /// The checkpoints that remain when epochs below `oldest` are removed: the newest one not above it, and the later
    /// ones.
    #[must_use]
    pub fn checkpoints_from(&self, oldest: Epoch) -> BTreeSet<Epoch> {
        match self.checkpoint_of(oldest) {
            Some(c) => self.checkpoints.range(c..).copied().collect(),
            None => self.checkpoints.clone(),
        }
    }

    /// The first epoch that the store still holds records of; 0 if there is none.
    #[must_use]
    pub fn first_stored(&self) -> Epoch {
        self.checkpoints.first().copied().unwrap_or_default()
    }

    /// Drops epochs below `oldest`.
    pub fn trim(&mut self, oldest: Epoch) {
        self.oldest = oldest;
        self.checkpoints = self.checkpoints_from(oldest);
        self.incs = self.incs.split_off(&oldest);
        self.fulls = self.fulls.split_off(&oldest);
    }

    /// The newest checkpoint not above `e`, from which its map is made.
    fn checkpoint_of(&self, e: Epoch) -> Option<Epoch> {
        self.checkpoints.range(..=e).next_back().copied()
    }

    /// The ranges to read for the full maps `first..=last`.
    #[must_use]
    pub fn ranges_for_fulls(&self, first: Epoch, last: Epoch) -> Vec<Range> {
        let from = self.checkpoint_of(first).unwrap_or(first);
        vec![fulls(from, from), incs(from.next(), last)]
    }

    /// The range to read for the incrementals `first..=last`.
    #[must_use]
    pub fn range_of_incs(&self, first: Epoch, last: Epoch) -> Range {
        incs(first, last)
    }
}

fn fulls(first: Epoch, last: Epoch) -> Range {
    Range { start: key::full(first), end: Some(key::full(last.next())) }
}

fn incs(first: Epoch, last: Epoch) -> Range {
    Range { start: key::inc(first), end: Some(key::inc(last.next())) }
}

/// The ranges to remove when `first` becomes the first checkpoint: earlier full maps, incrementals up to its own,
/// and the earlier records of purged snapshots.
#[must_use]
pub fn below(first: Epoch) -> Vec<Range> {
    let full = Range { start: key::full(Epoch(0)), end: Some(key::full(first)) };
    let inc = Range { start: key::inc(Epoch(0)), end: Some(key::inc(first.next())) };
    let purged = Range { start: key::purged_snaps(Epoch(0)), end: Some(key::purged_snaps(first)) };
    vec![full, inc, purged]
}

/// Maps read from the store.
#[derive(Debug, Default)]
pub struct StoredMaps {
    /// Full maps by epoch.
    pub fulls: BTreeMap<Epoch, Bytes>,
    /// Incrementals by epoch.
    pub incs: BTreeMap<Epoch, Bytes>,
}

impl StoredMaps {
    /// Collects maps from the entries of ranges, which are in order within each range. A damaged map is left out and
    /// logged.
    #[must_use]
    pub fn of(entries: &[(Bytes, Entry)]) -> Self {
        let mut me = Self::default();
        for (i, (k, e)) in entries.iter().enumerate() {
            let Ok(text) = std::str::from_utf8(k) else { continue };
            let (to, hex) = if let Some(h) = text.strip_prefix("osdmap/full/") {
                (&mut me.fulls, h)
            } else if let Some(h) = text.strip_prefix("osdmap/inc/") {
                (&mut me.incs, h)
            } else {
                continue;
            };
            // Keys of pieces are longer.
            let Some(epoch) = (hex.len() == 8).then(|| u32::from_str_radix(hex, 16).ok()).flatten() else { continue };
            let rest = entries.get(i + 1..).unwrap_or_default();
            let pieces = rest.iter().take_while(|(p, _)| p.starts_with(k) && p.len() > k.len()).map(|(_, e)| &e.value);
            match whole(&e.value, pieces) {
                Some(b) => drop(to.insert(Epoch(epoch), b)),
                None => tracing::error!("mon: the stored map {text} is damaged"),
            }
        }
        me
    }

    /// The full map of an epoch: stored, or made from an older one and incrementals. `None` if a map is missing.
    /// Error: an incremental that does not apply.
    pub fn full(&self, e: Epoch) -> Result<Option<Bytes>, MapError> {
        if let Some(b) = self.fulls.get(&e) {
            return Ok(Some(b.clone()));
        }
        let Some((from, blob)) = self.fulls.range(..e).next_back() else { return Ok(None) };
        let mut map = OsdMap::decode_blob(blob)?;
        for at in from.0 + 1..=e.0 {
            let Some(b) = self.incs.get(&Epoch(at)) else { return Ok(None) };
            let inc = Incremental::decode_blob(b)?;
            map = map.apply(&inc)?;
            if at == e.0 {
                let (blob, got) = map.encode_blob(Features(inc.encode_features));
                if got != inc.full_crc {
                    return Err(MapError::FullCrc { epoch: e, expect: inc.full_crc, got });
                }
                return Ok(Some(blob));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incrementals_outweigh_no_checkpoint() {
        let first = Bounds { oldest: Epoch(1), newest: Epoch(1), checkpoints: [Epoch(1)].into(), writer: (0, 0) };
        let full = Bytes::from(vec![0; 1000]);
        let (mut h, mut stored) = (MapHistory::new(&first), vec![(Epoch(1), 0, true)]);
        for n in 0..1500u32 {
            // Short ones are few by their number, longer ones by their bytes.
            let inc = Bytes::from(vec![0; if n < 600 { 1 } else { 50 + n as usize % 300 }]);
            let (e, due) = (h.newest.next(), h.checkpoint_due(inc.len(), full.len()));
            stored.push((e, inc.len(), due));
            h.committed(e, inc, full.clone(), due);
        }
        for part in stored.split(|(.., checkpoint)| *checkpoint) {
            assert!(part.len() < CHECKPOINT_EPOCHS as usize, "{} epochs without a checkpoint", part.len());
            assert!(part.iter().map(|(_, n, _)| n).sum::<usize>() < full.len());
        }
        let checkpoints: BTreeSet<Epoch> = stored.iter().filter(|(.., c)| *c).map(|(e, ..)| *e).collect();
        assert_eq!(h.bounds().checkpoints, checkpoints);
        assert!(checkpoints.len() > 100, "{}", checkpoints.len());
        h.trim(Epoch(300));
        assert!(h.first_stored() <= h.oldest && h.inc(Epoch(299)).is_none());
    }
}
