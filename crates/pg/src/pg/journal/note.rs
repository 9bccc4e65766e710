//! Changes of the info and the log, each by what it means.
//!
//! None of them is a transaction. A change that replay of the log does not restore marks the info as changed, so that a
//! later transaction stores it, or its caller starts `SaveInfo`. A history that another copy sent needs neither: it is
//! sent again.

use super::Journal;
use crate::info::PgInfo;
use crate::interval::{IntervalKey, PastInterval};
use crate::log::{Dup, PgLog};
use crate::stats::StatSum;
use base::{Epoch, Eversion, HObject, ReqId, Utime};
use wire::types::PgHistory;

impl Journal {
    /// Adds the change of a transaction to the statistics.
    #[inline]
    pub(in crate::pg) fn add_stats(&mut self, delta: &StatSum) {
        self.info.stats.add(delta);
    }

    /// Replaces the statistics by an estimate.
    pub(in crate::pg) fn estimate_stats(&mut self, stats: StatSum) {
        self.info.stats = StatSum { estimated: 1, ..stats };
        self.dirty = true;
    }

    /// Takes over what a scrub has counted: the errors that it leaves, of a deep scrub also those of data and the
    /// large omaps, and the copies that it repairs.
    pub(in crate::pg) fn set_scrub_errors(&mut self, shallow: i64, deep: Option<(i64, i64)>, repaired: i64) {
        let s = &mut self.info.stats;
        s.num_shallow_scrub_errors = shallow;
        if let Some((errors, large_omaps)) = deep {
            (s.num_deep_scrub_errors, s.num_large_omap_objects) = (errors, large_omaps);
        }
        s.num_objects_repaired += repaired;
        self.dirty = true;
    }

    /// Takes over the history and the counts that the primary has after a scrub: errors of metadata and of data, large
    /// omaps, repaired objects.
    pub(in crate::pg) fn follow_scrub(&mut self, history: &PgHistory, counts: [i64; 4], delta: &StatSum) {
        self.info.merge_history(history);
        let s = &mut self.info.stats;
        s.add(delta);
        [s.num_shallow_scrub_errors, s.num_deep_scrub_errors, s.num_large_omap_objects, s.num_objects_repaired] =
            counts;
    }

    /// Notes a scrub of the present version in the history; `clean`: it leaves no error.
    pub(in crate::pg) fn scrubbed(&mut self, deep: bool, clean: bool, wall: Utime) {
        let version = self.info.last_update;
        let h = &mut self.info.history;
        h.last_scrub = version;
        h.last_scrub_stamp = wall.max(h.last_scrub_stamp);
        if deep {
            h.last_deep_scrub = version;
            h.last_deep_scrub_stamp = h.last_scrub_stamp;
        }
        if clean {
            h.last_clean_scrub_stamp = h.last_scrub_stamp;
        }
        self.dirty = true;
    }

    /// Begins a PG with the history that the monitor or another copy gives.
    pub(in crate::pg) fn begin(&mut self, history: &PgHistory, past: Vec<PastInterval>, created: Utime) {
        self.info.history = history.clone();
        self.info.past = past;
        self.info.created_stamp = created;
    }

    /// Sets the epoch of the newest map whose effect the info includes.
    pub(in crate::pg) fn set_epoch(&mut self, epoch: Epoch) {
        self.info.epoch = epoch;
    }

    /// Sets the number of the newest report.
    pub(in crate::pg) fn set_reported_seq(&mut self, seq: u64) {
        self.info.reported_seq = seq;
        self.dirty = true;
    }

    /// Merges the history that another copy sent. Returns true if a creation, start or clean epoch grew.
    pub(in crate::pg) fn merge_history(&mut self, theirs: &PgHistory) -> bool {
        self.info.merge_history(theirs)
    }

    /// Follows a map that changes the key of the interval without beginning a new one.
    pub(in crate::pg) fn rename_interval(&mut self, key: IntervalKey) {
        self.info.interval = key;
        self.dirty = true;
    }

    /// Begins a new interval; see [`PgInfo::begin_interval`].
    pub(in crate::pg) fn begin_interval(
        &mut self,
        key: IntervalKey,
        since: Epoch,
        epoch: Epoch,
        over: impl IntoIterator<Item = PastInterval>,
    ) {
        self.info.begin_interval(key, since, epoch, over);
        self.dirty = true;
    }

    /// Begins the first interval that this copy sees.
    pub(in crate::pg) fn begin_first_interval(&mut self, key: IntervalKey, epoch: Epoch) {
        self.info.begin_first_interval(key, epoch);
        self.dirty = true;
    }

    /// Notes in the history that the present interval has started.
    pub(in crate::pg) fn note_start(&mut self) {
        self.info.note_start();
    }

    /// Notes in the history that the PG is clean, and forgets the past intervals. False if that was known.
    pub(in crate::pg) fn note_clean(&mut self, epoch: Epoch) -> bool {
        let PgInfo { history: h, past, .. } = &mut self.info;
        if h.last_epoch_clean >= h.same_interval_since && past.is_empty() {
            return false;
        }
        h.last_epoch_clean = epoch;
        h.last_interval_clean = h.same_interval_since;
        past.clear();
        true
    }

    /// Forgets the past intervals: the primary has told that the PG is clean.
    pub(in crate::pg) fn forget_past(&mut self) {
        self.info.past.clear();
    }

    /// Replaces past intervals of unknown members by those that another copy knows.
    pub(in crate::pg) fn fill_gaps(&mut self, theirs: impl IntoIterator<Item = PastInterval>) {
        let past = &mut self.info.past;
        past.retain(|p| !p.is_unknown());
        for p in theirs {
            if !past.iter().any(|q| q.first == p.first) {
                past.push(p);
            }
        }
        past.sort_by_key(|p| p.first);
        self.dirty = true;
    }

    /// Notes that no present entry can be undone here.
    pub(in crate::pg) fn raise_undo_floor(&mut self) {
        self.info.undo_floor = self.info.last_update;
        self.dirty = true;
    }

    /// Sets the bound up to which backfill has filled this copy; returns the previous one.
    pub(in crate::pg) fn set_backfill_bound(&mut self, upto: HObject) -> HObject {
        self.dirty = true;
        std::mem::replace(&mut self.info.last_backfill, upto)
    }

    /// Lets the info look like that of no copy: what remains of this one is removed.
    pub(in crate::pg) fn void_info(&mut self) {
        self.info.last_update = Eversion::default();
        self.info.last_epoch_started = Epoch(0);
        self.info.last_backfill = HObject::min();
        self.dirty = true;
    }

    /// The request in the log with this id. The first search indexes the log.
    #[inline]
    pub(in crate::pg) fn find_request(&mut self, reqid: &ReqId) -> Option<Dup> {
        self.log.find(reqid)
    }

    /// Replaces the log, as the stored one was.
    pub(in crate::pg) fn set_log(&mut self, log: PgLog) {
        self.log = log;
    }

    /// Removes the entries newer than `to`, as they were removed from the stored log.
    pub(in crate::pg) fn rewind_log(&mut self, to: Eversion) {
        self.log.rewind(to);
    }

    /// Adds entries of the merged log, which begin a new count for the next trim.
    pub(in crate::pg) fn extend_log(&mut self, entries: impl IntoIterator<Item = Dup>) {
        self.log.count_anew();
        for e in entries {
            self.log.push(e);
        }
    }
}
