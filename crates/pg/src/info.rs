//! `PgInfo`: the stored state of a PG beside its objects and log (`pg_info_t`).
//!
//! A write stores the info only every [`INFO_EVERY`] writes, or when another part of it changed. Until then the log
//! records carry enough to bring the info up to date.

use crate::interval::{IntervalKey, PastInterval};
use crate::log::LogEntry;
use crate::map::Mapping;
use crate::object::Intervals;
use crate::stats::StatSum;
use base::{Epoch, Eversion, HObject, Utime};
use bytes::Bytes;
use wire::types::PgHistory;
use wire::{DecodeError, Features, Reader, Writer};

/// Writes between two stored infos.
pub const INFO_EVERY: u32 = 64;

/// The stored state of a PG beside its objects and log; see the module.
#[derive(Clone, Debug, PartialEq)]
pub struct PgInfo {
    /// Newest version.
    pub last_update: Eversion,
    /// Version of the record before the oldest one in the log.
    pub log_tail: Eversion,
    /// Newest user version that clients have seen.
    pub last_user_version: u64,
    /// History of the PG, as peers exchange it.
    pub history: PgHistory,
    /// Intervals since the PG was last clean.
    pub past: Vec<PastInterval>,
    /// The current interval.
    pub interval: IntervalKey,
    /// Statistics.
    pub stats: StatSum,
    /// Time when the PG was created.
    pub created_stamp: Utime,
    /// This OSD has served the PG, so this copy holds the PG's content.
    pub served: bool,
    /// Last `reported_seq`. It is stored so that it grows over restarts within an epoch.
    pub reported_seq: u64,
    /// Last interval in which this copy took part after it started; `history` has the last one that started on all
    /// members.
    pub last_epoch_started: Epoch,
    /// Bound of the backfill: all objects up to and including this one are here; the end marker if the copy is
    /// complete.
    pub last_backfill: HObject,
    /// Only for a shard: entries up to this version can't be undone here. Their objects came by recovery in an
    /// interval that did not start.
    pub undo_floor: Eversion,
    /// The newest map whose effect on `interval` and `past` this info includes.
    pub epoch: Epoch,
}

impl Default for PgInfo {
    fn default() -> Self {
        Self {
            last_update: Eversion::default(),
            log_tail: Eversion::default(),
            last_user_version: 0,
            history: PgHistory::default(),
            past: Vec::new(),
            interval: IntervalKey::default(),
            stats: StatSum::default(),
            created_stamp: Utime::default(),
            served: false,
            reported_seq: 0,
            last_epoch_started: Epoch(0),
            last_backfill: HObject::max(),
            undo_floor: Eversion::default(),
            epoch: Epoch(0),
        }
    }
}

/// Version of the stored form.
const FORMAT: u8 = 3;
/// Stored form without shards: `undo_floor` is absent.
const FORMAT_NO_SHARDS: u8 = 2;
/// Stored form of a PG with a single copy: the copy is complete, and took part in the last interval that started.
const FORMAT_ONE_COPY: u8 = 1;

impl PgInfo {
    /// Encodes the stored form.
    #[must_use]
    pub fn to_blob(&self) -> Bytes {
        let mut w = Writer::with_capacity(Features::PACIFIC, 320);
        w.u8(FORMAT);
        w.put(&self.last_update);
        w.put(&self.log_tail);
        w.u64(self.last_user_version);
        w.put(&self.history);
        w.put(&self.past);
        let m = &self.interval.mapping;
        w.put(&m.up);
        w.put(&m.up_primary);
        w.put(&m.acting);
        w.put(&m.acting_primary);
        w.u32(self.interval.size);
        w.u32(self.interval.min_size);
        w.u32(self.interval.pg_num);
        w.u32(self.interval.pg_num_pending);
        // Once the purged snapshots. The primary learns them from the snapshot index in each interval.
        w.u32(0);
        w.put(&self.stats);
        w.put(&self.created_stamp);
        w.bool(self.served);
        w.u64(self.reported_seq);
        w.put(&self.last_epoch_started);
        w.put(&self.last_backfill);
        w.put(&self.epoch);
        w.put(&self.undo_floor);
        w.into_bytes()
    }

    /// Decodes the stored form.
    ///
    /// # Errors
    ///
    /// If the format is unknown or the bytes are too short.
    pub fn from_blob(b: &Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::shared(b);
        let format = r.u8()?;
        if !matches!(format, FORMAT | FORMAT_NO_SHARDS | FORMAT_ONE_COPY) {
            return Err(DecodeError::BadValue { what: "pg info format", value: format.into() });
        }
        let mut i = Self {
            last_update: r.get()?,
            log_tail: r.get()?,
            last_user_version: r.u64()?,
            history: r.get()?,
            past: r.get()?,
            interval: IntervalKey {
                mapping: Mapping { up: r.get()?, up_primary: r.get()?, acting: r.get()?, acting_primary: r.get()? },
                size: r.u32()?,
                min_size: r.u32()?,
                pg_num: r.u32()?,
                pg_num_pending: r.u32()?,
            },
            stats: {
                // Purged snapshots, in stores of earlier builds.
                r.get::<Intervals>()?;
                r.get()?
            },
            created_stamp: r.get()?,
            served: r.bool()?,
            reported_seq: r.u64()?,
            ..Self::default()
        };
        if format == FORMAT_ONE_COPY {
            i.last_epoch_started = i.history.last_epoch_started;
            i.epoch = i.history.same_interval_since;
        } else {
            i.last_epoch_started = r.get()?;
            i.last_backfill = r.get()?;
            i.epoch = r.get()?;
        }
        if format == FORMAT {
            i.undo_floor = r.get()?;
        }
        Ok(i)
    }

    /// True if this copy has no writes and took part in no interval.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.last_update == Eversion::default() && self.last_epoch_started.0 == 0
    }

    /// True if backfill has filled this copy; objects of the missing set may still be absent.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.last_backfill.max
    }

    /// Merges the history that another copy or the monitor sent. Returns true if a creation, start or clean epoch
    /// grew.
    pub fn merge_history(&mut self, o: &PgHistory) -> bool {
        let h = &mut self.history;
        let before = (h.last_epoch_started, h.last_epoch_clean, h.epoch_created);
        if h.epoch_created < o.epoch_created {
            h.epoch_created = o.epoch_created;
        }
        if h.last_epoch_started < o.last_epoch_started {
            h.last_epoch_started = o.last_epoch_started;
        }
        h.last_interval_started = h.last_interval_started.max(o.last_interval_started);
        h.last_epoch_clean = h.last_epoch_clean.max(o.last_epoch_clean);
        h.last_interval_clean = h.last_interval_clean.max(o.last_interval_clean);
        h.last_epoch_split = h.last_epoch_split.max(o.last_epoch_split);
        h.last_epoch_marked_full = h.last_epoch_marked_full.max(o.last_epoch_marked_full);
        if o.last_scrub_stamp > h.last_scrub_stamp {
            h.last_scrub = o.last_scrub;
            h.last_scrub_stamp = o.last_scrub_stamp;
        }
        if o.last_deep_scrub_stamp > h.last_deep_scrub_stamp {
            h.last_deep_scrub = o.last_deep_scrub;
            h.last_deep_scrub_stamp = o.last_deep_scrub_stamp;
        }
        if o.last_clean_scrub_stamp > h.last_clean_scrub_stamp {
            h.last_clean_scrub_stamp = o.last_clean_scrub_stamp;
        }
        before != (h.last_epoch_started, h.last_epoch_clean, h.epoch_created)
    }

    /// Begins an interval by a map of `epoch`. `over`: the intervals that end with it. `since`: its first epoch, another
    /// one than `epoch` if only an OSD has restarted.
    pub(crate) fn begin_interval(
        &mut self,
        key: IntervalKey,
        since: Epoch,
        epoch: Epoch,
        over: impl IntoIterator<Item = PastInterval>,
    ) {
        let old = std::mem::replace(&mut self.interval, key).mapping;
        // Peering asks only about intervals since the last one that started.
        let started = self.history.last_epoch_started;
        self.past.retain(|p| p.last >= started);
        self.past.extend(over);
        let (h, new) = (&mut self.history, &self.interval.mapping);
        h.same_interval_since = since;
        if old.up != new.up || since != epoch {
            h.same_up_since = since;
        }
        if old.acting_primary != new.acting_primary || since != epoch {
            h.same_primary_since = since;
        }
    }

    /// Sets the key of the first interval that this copy sees; the history of an older copy stays.
    pub(crate) fn begin_first_interval(&mut self, key: IntervalKey, epoch: Epoch) {
        self.interval = key;
        let h = &mut self.history;
        if h.same_interval_since.0 == 0 {
            (h.same_interval_since, h.same_up_since, h.same_primary_since) = (epoch, epoch, epoch);
        }
    }

    /// Notes in the history that the present interval has started.
    pub(crate) fn note_start(&mut self) {
        self.history.last_epoch_started = self.last_epoch_started;
        self.history.last_interval_started = self.history.same_interval_since;
    }

    /// Applies a log record newer than `last_update`: versions and, unless a split gave the object to another PG,
    /// statistics.
    pub fn replay(&mut self, e: &LogEntry, is_mine: bool) {
        if e.version > self.last_update {
            self.last_update = e.version;
            self.last_user_version = self.last_user_version.max(e.user_version);
            if is_mine {
                self.stats.add(&e.delta);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::OsdId;
    use wire::Encode as _;

    #[test]
    fn stored_form_round_trips() {
        let mut i = PgInfo { last_update: Eversion::new(3, 4), served: true, reported_seq: 9, ..PgInfo::default() };
        i.history.epoch_created = Epoch(3);
        i.interval.mapping.acting = vec![OsdId(2)];
        i.past.push(PastInterval { first: Epoch(1), last: Epoch(2), ..PastInterval::default() });
        let b = i.to_blob();
        assert_eq!(PgInfo::from_blob(&b).unwrap(), i);
        for n in 0..b.len() {
            assert!(PgInfo::from_blob(&b.slice(..n)).is_err());
        }
        // The form of a single copy: complete, and the last to have taken part.
        i.history.last_epoch_started = Epoch(5);
        let b = i.to_blob();
        let tail = i.last_epoch_started.to_bytes(Features::PACIFIC).len() * 2
            + i.last_backfill.to_bytes(Features::PACIFIC).len()
            + i.undo_floor.to_bytes(Features::PACIFIC).len();
        let old: Bytes = [&[FORMAT_ONE_COPY][..], &b[1..b.len() - tail]].concat().into();
        let read = PgInfo::from_blob(&old).unwrap();
        assert!(read.is_complete() && read.last_epoch_started == Epoch(5) && read.last_update == i.last_update);
    }
}
