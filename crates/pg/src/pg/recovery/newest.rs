//! The newest log entry of each object: whether an object exists that only other copies have, and whether the object of
//! a copy outside the acting set is newer than the needed one. The log is decoded once, not for each object and page.
//!
//! Invariant: the entries are those of the log up to `upto`. In an interval a log only grows: that of a copy outside the
//! acting set by a merge, that of a member by writes, which wait for objects that the primary lacks. An object that comes
//! to be lacked at a later version makes the log be read anew.
//!
//! Tests: `tests/recovery.rs`, `tests/listing.rs`, `tests/left_behind.rs`.

use super::Recovery;
use crate::exec::Step;
use crate::exec::list::{Lacked, Lacking};
use crate::log::{LogEntry, LogKind};
use crate::pg::ops::plan::{Stage, Verdict};
use crate::pg::ops::work::{RecoveryWork, Work};
use crate::pg::seldom::Part;
use crate::pg::{Pg, Turn};
use base::{Eversion, HObject, SnapId};
use std::collections::BTreeMap;
use store::{ObjectStore, Tag};

/// The newest entries of a log; see the module.
#[derive(Debug, Default, PartialEq)]
pub(in crate::pg) struct Newest {
    /// The newest version of the log that was read; zero if none was, or if it does not suffice any more.
    upto: Eversion,
    /// The log is being read.
    reading: bool,
    of: BTreeMap<HObject, Last>,
}

/// The newest entries of one object.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Last {
    /// The newest entry of the head or a clone.
    version: Eversion,
    /// True if the head's newest entry is a deletion; `None`: the log has only entries of clones.
    deleted: Option<bool>,
}

impl Part for Newest {
    const EMPTY: &'static Self =
        &Self { upto: Eversion { epoch: base::Epoch(0), version: 0 }, reading: false, of: BTreeMap::new() };

    fn is_empty(&self) -> bool {
        *self == *Self::EMPTY
    }
}

impl Newest {
    fn add(&mut self, version: Eversion, e: &LogEntry) {
        let last = self.of.entry(e.soid.head()).or_default();
        last.version = version;
        if e.soid.snap == SnapId::HEAD {
            last.deleted = Some(e.kind == LogKind::Delete);
        }
    }

    /// Notes that an object is lacked as of this version.
    pub(super) fn is_asked(&mut self, need: Eversion) {
        if need > self.upto {
            self.upto = Eversion::default();
        }
    }
}

impl Lacking for Recovery {
    fn has(&self, head: &HObject) -> bool {
        self.missing.contains_key(head)
    }

    fn between<'a>(
        &'a self,
        start: &HObject,
        end: Option<&'a HObject>,
    ) -> Box<dyn Iterator<Item = (&'a HObject, Lacked)> + 'a> {
        let state = |head: &HObject| match self.is_deleted(head) {
            Some(true) => Lacked::Deleted,
            _ if self.unfound.contains(head) => Lacked::Unfound,
            Some(false) => Lacked::Elsewhere,
            None => Lacked::Unsure,
        };
        let from = self.missing.range::<HObject, _>(start..);
        Box::new(from.map(|(h, _)| h).take_while(move |h| end.is_none_or(|e| *h < e)).map(move |h| (h, state(h))))
    }
}

impl Recovery {
    /// True if the newest entry of a lacked head is a deletion; `None` if the log does not tell, or was not read.
    pub(in crate::pg) fn is_deleted(&self, head: &HObject) -> Option<bool> {
        self.newest.of.get(head).filter(|_| self.newest.upto > Eversion::default())?.deleted
    }
}

impl Pg {
    /// Reads the log, if that is necessary to know the newest entries of all lacked objects.
    pub(in crate::pg) fn read_newest(&mut self, tag: Tag, store: &mut dyn ObjectStore) -> Step<()> {
        if self.recovery.newest.upto > Eversion::default() {
            return Ok(());
        }
        self.read_newest_again(tag, store)
    }

    fn read_newest_again(&mut self, tag: Tag, store: &mut dyn ObjectStore) -> Step<()> {
        let mut all = Newest { upto: self.journal.info().last_update, ..Newest::default() };
        for (v, r) in store.log_entries(tag, self.env.cid(), Eversion::default())? {
            // Records of failed operations stand for no change.
            if let Ok(e) = LogEntry::from_record(&r)
                && e.kind != LogKind::Error
            {
                all.add(v, &e);
            }
        }
        *self.recovery.newest = all;
        Ok(())
    }

    /// True if the newest entries of all lacked objects are known. Otherwise the log is being read, and recovery goes on
    /// after that.
    pub(super) fn knows_newest(&mut self, turn: &mut Turn<'_>) -> bool {
        if self.recovery.newest.upto == Eversion::default() && !self.recovery.newest.reading {
            self.recovery.newest.reading = true;
            self.start_work(Work::Recovery(RecoveryWork::ReadLog), None, turn);
        }
        self.recovery.newest.upto > Eversion::default() || self.journal.info().last_update == Eversion::default()
    }

    pub(super) fn run_read_log(&mut self, id: u64, turn: &mut Turn<'_>) -> Verdict {
        match self.read_newest(self.tag(id), turn.store) {
            Ok(()) => Verdict::Done,
            Err(crate::exec::Stop::Wait) => Verdict::Park(Stage::Reading),
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }

    /// True if this copy's log has a change of the object after a version.
    pub(super) fn is_changed_after(
        &mut self,
        tag: Tag,
        head: &HObject,
        version: Eversion,
        store: &mut dyn ObjectStore,
    ) -> Step<bool> {
        if self.recovery.newest.upto != self.journal.info().last_update {
            self.read_newest_again(tag, store)?;
        }
        Ok(self.recovery.newest.of.get(head).is_some_and(|l| l.version > version))
    }
}
