//! The PG log: one record per write in the write's own transaction, and the index of request ids made from it.
//!
//! Invariants:
//!  1. Versions grow by one; the newest equals `info.last_update` once durable.
//!  2. Every reply to a write can be given again from its record while the record is kept.
//!  3. Stored info may lag behind the log: replaying newer records on it gives the true info.

use crate::limits::{LOG_DUPS_TRACKED, LOG_ENTRIES_KEPT, LOG_TRIM_BATCH};
use crate::stats::StatSum;
use base::{Epoch, Eversion, HObject, ReqId, Utime};
use bytes::Bytes;
use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use std::collections::VecDeque;
use wire::{DecodeError, Features, Reader, Writer};

/// What a record says happened (`pg_log_entry_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LogKind {
    /// The object changed or was made.
    Modify = 1,
    /// A clone was made.
    Clone = 2,
    /// The object was deleted.
    Delete = 3,
    /// Nothing changed: an operation failed, and a resend must fail alike.
    Error = 4,
}

impl LogKind {
    fn from_u8(v: u8) -> Result<Self, DecodeError> {
        Ok(match v {
            1 => Self::Modify,
            2 => Self::Clone,
            3 => Self::Delete,
            4 => Self::Error,
            v => return Err(DecodeError::BadValue { what: "log record kind", value: v.into() }),
        })
    }
}

/// Result and output of one operation of a vector, kept for resends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpReturn {
    /// Its result.
    pub rval: i32,
    /// Its output.
    pub out: Bytes,
}

/// One record.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEntry {
    /// What happened.
    pub kind: LogKind,
    /// To what.
    pub soid: HObject,
    /// Version of this write.
    pub version: Eversion,
    /// Version of the object before it.
    pub prior_version: Eversion,
    /// What clients see as version.
    pub user_version: u64,
    /// Whose write.
    pub reqid: ReqId,
    /// Client's time.
    pub mtime: Utime,
    /// Result of the vector.
    pub result: i32,
    /// Results of its operations, if the client asked for them.
    pub returns: Vec<OpReturn>,
    /// Snapshots of a clone.
    pub snaps: Vec<u64>,
    /// What it changed in the statistics.
    pub delta: StatSum,
}

const FORMAT: u8 = 1;
const HAS_RETURNS: u8 = 1;
const HAS_SNAPS: u8 = 2;

impl LogEntry {
    /// Stored form.
    #[must_use]
    pub fn to_record(&self) -> Bytes {
        let mut w = Writer::with_capacity(Features::PACIFIC, 160 + self.soid.oid.len());
        w.u8(FORMAT);
        w.u8(self.kind as u8);
        w.u8((u8::from(!self.returns.is_empty()) * HAS_RETURNS) | (u8::from(!self.snaps.is_empty()) * HAS_SNAPS));
        w.put(&self.version);
        w.put(&self.prior_version);
        w.u64(self.user_version);
        w.put(&self.reqid.name);
        w.u64(self.reqid.tid);
        w.i32(self.reqid.inc);
        w.put(&self.mtime);
        w.i32(self.result);
        w.put(&self.soid);
        w.put(&self.delta);
        if !self.returns.is_empty() {
            w.seq(self.returns.iter(), |w, x| {
                w.i32(x.rval);
                w.blob(&x.out);
            });
        }
        if !self.snaps.is_empty() {
            w.put(&self.snaps);
        }
        w.into_bytes()
    }

    /// From the stored form.
    pub fn from_record(b: &Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::shared(b);
        let format = r.u8()?;
        if format != FORMAT {
            return Err(DecodeError::BadValue { what: "log record format", value: format.into() });
        }
        let kind = LogKind::from_u8(r.u8()?)?;
        let bits = r.u8()?;
        let mut e = Self {
            kind,
            version: r.get()?,
            prior_version: r.get()?,
            user_version: r.u64()?,
            reqid: ReqId { name: r.get()?, tid: r.u64()?, inc: r.i32()? },
            mtime: r.get()?,
            result: r.i32()?,
            soid: r.get()?,
            delta: r.get()?,
            returns: Vec::new(),
            snaps: Vec::new(),
        };
        if bits & HAS_RETURNS != 0 {
            e.returns = r.vec_with("op returns", |r| Ok(OpReturn { rval: r.i32()?, out: r.blob()? }))?;
        }
        if bits & HAS_SNAPS != 0 {
            e.snaps = r.get()?;
        }
        Ok(e)
    }

    /// What a resend needs of it.
    #[must_use]
    pub fn dup(&self) -> Dup {
        Dup {
            reqid: self.reqid,
            version: self.version,
            user_version: self.user_version,
            result: self.result,
            returns: (!self.returns.is_empty()).then(|| self.returns.clone().into_boxed_slice()),
        }
    }
}

/// What is remembered of a finished write.
#[derive(Clone, Debug, PartialEq)]
pub struct Dup {
    /// Whose.
    pub reqid: ReqId,
    /// Its version.
    pub version: Eversion,
    /// What clients see as version.
    pub user_version: u64,
    /// Its result.
    pub result: i32,
    /// Results of its operations.
    pub returns: Option<Box<[OpReturn]>>,
}

/// Index of the log: versions kept and the request ids in them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PgLog {
    /// Oldest first; contiguous in the log, but with holes in version numbers where records carry no request.
    entries: VecDeque<Dup>,
    /// Request id to its running number; `first` is the number of `entries[0]`.
    index: HashMap<ReqId, u64, FxBuildHasher>,
    first: u64,
    /// Version before the oldest record.
    pub tail: Eversion,
    /// Version of the newest record.
    pub head: Eversion,
    /// Records kept, and dropped at once, instead of the limits'.
    pub keep: Option<(usize, usize)>,
}

impl PgLog {
    /// Empty; keeps that many records, dropping that many at once, if given.
    #[must_use]
    pub fn keeping(keep: Option<(usize, usize)>) -> Self {
        Self { keep, ..Self::default() }
    }

    /// Empty, for records behind `tail`.
    #[must_use]
    pub fn behind(tail: Eversion, keep: Option<(usize, usize)>) -> Self {
        Self { tail, head: tail, keep, ..Self::default() }
    }

    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds the newest record.
    pub fn push(&mut self, d: Dup) {
        self.head = d.version;
        if d.reqid.tid != 0 {
            self.index.insert(d.reqid, self.first + self.entries.len() as u64);
        }
        self.entries.push_back(d);
    }

    /// The write with that request id, if it is still known.
    #[must_use]
    pub fn find(&self, reqid: &ReqId) -> Option<&Dup> {
        if reqid.tid == 0 || base::planted::acts(base::planted::Bug::ForgetReqids) {
            return None;
        }
        let n = *self.index.get(reqid)?;
        self.entries.get(usize::try_from(n.checked_sub(self.first)?).ok()?)
    }

    /// Version up to which records should be dropped now, if a batch is due.
    #[must_use]
    pub fn trim_target(&self) -> Option<Eversion> {
        let (keep, batch) = self.keep.unwrap_or((LOG_ENTRIES_KEPT + LOG_DUPS_TRACKED, LOG_TRIM_BATCH));
        let over = self.entries.len().checked_sub(keep)?;
        if over < batch.max(1) {
            return None;
        }
        self.entries.get(over - 1).map(|d| d.version)
    }

    /// Forgets records newer than `to`.
    pub fn rewind(&mut self, to: Eversion) {
        while self.entries.back().is_some_and(|d| d.version > to) {
            if let Some(d) = self.entries.pop_back() {
                let n = self.first + self.entries.len() as u64;
                if self.index.get(&d.reqid) == Some(&n) {
                    self.index.remove(&d.reqid);
                }
            }
        }
        self.head = self.entries.back().map_or(self.tail, |d| d.version);
    }

    /// True if `v` is a record's version or the tail: a log that ends there is a prefix of this one.
    #[must_use]
    pub fn has(&self, v: Eversion) -> bool {
        v == self.tail || self.entries.binary_search_by(|d| d.version.cmp(&v)).is_ok()
    }

    /// The newest version of an epoch before `e`, or the tail.
    #[must_use]
    pub fn last_before(&self, e: Epoch) -> Eversion {
        let n = self.entries.partition_point(|d| d.version.epoch < e);
        n.checked_sub(1).and_then(|n| self.entries.get(n)).map_or(self.tail, |d| d.version)
    }

    /// Drops records up to and including `to`.
    pub fn trim(&mut self, to: Eversion) {
        while self.entries.front().is_some_and(|d| d.version <= to) {
            if let Some(d) = self.entries.pop_front() {
                if self.index.get(&d.reqid) == Some(&self.first) {
                    self.index.remove(&d.reqid);
                }
                self.first += 1;
            }
        }
        self.tail = self.tail.max(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{EntityKind, EntityName};

    fn dup(n: u64) -> Dup {
        let reqid = ReqId { name: EntityName::new(EntityKind::CLIENT, 9), tid: n, inc: 0 };
        Dup { reqid, version: Eversion::new(1, n), user_version: n, result: 0, returns: None }
    }

    #[test]
    fn requests_are_found_until_trimmed_in_batches() {
        let mut log = PgLog::default();
        let keep = (LOG_ENTRIES_KEPT + LOG_DUPS_TRACKED) as u64;
        for n in 1..keep + LOG_TRIM_BATCH as u64 {
            log.push(dup(n));
            assert_eq!(log.trim_target(), None);
        }
        log.push(dup(keep + LOG_TRIM_BATCH as u64));
        let to = log.trim_target().unwrap();
        assert_eq!(to.version, LOG_TRIM_BATCH as u64);
        log.trim(to);
        assert_eq!(log.len() as u64, keep);
        assert!(log.find(&dup(100).reqid).is_none());
        assert_eq!(log.find(&dup(101).reqid), Some(&dup(101)));
        assert_eq!(log.find(&dup(keep + 100).reqid).unwrap().user_version, keep + 100);
        assert_eq!(log.tail.version, 100);
    }

    #[test]
    fn records_round_trip() {
        let e = LogEntry {
            kind: LogKind::Modify,
            soid: HObject { oid: Bytes::from_static(b"obj"), ..HObject::min() }.head(),
            version: Eversion::new(7, 12),
            prior_version: Eversion::new(6, 3),
            user_version: 12,
            reqid: dup(4).reqid,
            mtime: Utime { sec: 1, nsec: 2 },
            result: 3,
            returns: vec![OpReturn { rval: 3, out: Bytes::from_static(b"x") }],
            snaps: vec![3, 2],
            delta: StatSum { num_objects: -1, num_bytes: 1 << 33, ..StatSum::default() },
        };
        let b = e.to_record();
        assert_eq!(LogEntry::from_record(&b).unwrap(), e);
        for n in 0..b.len() {
            assert!(LogEntry::from_record(&b.slice(..n)).is_err());
        }
    }
}
