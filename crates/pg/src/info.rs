//! `PgInfo`: what the store keeps of a PG beside its objects and log (`pg_info_t`).
//!
//! It is written with a write only every [`INFO_EVERY`] writes or when something else in it changed; between, the
//! records of the log carry what is needed to bring it up to date.

use crate::interval::{IntervalKey, PastInterval};
use crate::log::LogEntry;
use crate::map::Mapping;
use crate::object::Intervals;
use crate::stats::StatSum;
use base::{Eversion, Utime};
use bytes::Bytes;
use wire::types::PgHistory;
use wire::{DecodeError, Features, Reader, Writer};

/// Writes between two stored infos.
pub const INFO_EVERY: u32 = 64;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PgInfo {
    /// Newest version.
    pub last_update: Eversion,
    /// Version before the oldest log record.
    pub log_tail: Eversion,
    /// Newest version clients have seen.
    pub last_user_version: u64,
    /// History.
    pub history: PgHistory,
    /// Intervals since the PG was last clean.
    pub past: Vec<PastInterval>,
    /// The current interval.
    pub interval: IntervalKey,
    /// Removed snapshots whose clones are gone here but which the map still lists.
    pub purged_snaps: Intervals,
    /// Statistics.
    pub stats: StatSum,
    /// Time of creation.
    pub created_stamp: Utime,
    /// This OSD has served the PG: what it holds is the PG's content.
    pub served: bool,
    /// Last `reported_seq`, so that it grows over restarts within an epoch.
    pub reported_seq: u64,
}

const FORMAT: u8 = 1;

impl PgInfo {
    /// Stored form.
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
        w.put(&self.purged_snaps);
        w.put(&self.stats);
        w.put(&self.created_stamp);
        w.bool(self.served);
        w.u64(self.reported_seq);
        w.into_bytes()
    }

    /// From the stored form.
    pub fn from_blob(b: &Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::shared(b);
        let format = r.u8()?;
        if format != FORMAT {
            return Err(DecodeError::BadValue { what: "pg info format", value: format.into() });
        }
        Ok(Self {
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
            purged_snaps: r.get()?,
            stats: r.get()?,
            created_stamp: r.get()?,
            served: r.bool()?,
            reported_seq: r.u64()?,
        })
    }

    /// Takes over what a newer record says.
    pub fn replay(&mut self, e: &LogEntry) {
        if e.version > self.last_update {
            self.last_update = e.version;
            self.last_user_version = self.last_user_version.max(e.user_version);
            self.stats.add(&e.delta);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Epoch, OsdId};

    #[test]
    fn stored_form_round_trips() {
        let mut i = PgInfo { last_update: Eversion::new(3, 4), served: true, reported_seq: 9, ..PgInfo::default() };
        i.history.epoch_created = Epoch(3);
        i.interval.mapping.acting = vec![OsdId(2)];
        i.past.push(PastInterval { first: Epoch(1), last: Epoch(2), ..PastInterval::default() });
        i.purged_snaps.insert(4, 2);
        let b = i.to_blob();
        assert_eq!(PgInfo::from_blob(&b).unwrap(), i);
        for n in 0..b.len() {
            assert!(PgInfo::from_blob(&b.slice(..n)).is_err());
        }
    }
}
