//! The newest log entry of each object, for a copy outside the acting set that answers pulls. Its log may have
//! divergent entries beyond the version that the primary needs. The log is decoded once, not for each object.
//!
//! Invariant: the entries are those of the log up to `last_update`, which a copy outside the acting set changes only by
//! a merge or a rewind. An interval ends them.
//!
//! Tests: `tests/recovery.rs`.

use crate::exec::Step;
use crate::log::{LogEntry, LogKind};
use crate::pg::Pg;
use crate::pg::seldom::Part;
use base::{Eversion, HObject};
use std::collections::BTreeMap;
use store::{ObjectStore, Tag};

/// The newest entries of a log; see the module.
#[derive(Debug, Default, PartialEq)]
pub(in crate::pg) struct Newest {
    /// The newest version of the log that was read.
    upto: Eversion,
    of: BTreeMap<HObject, Eversion>,
}

impl Part for Newest {
    const EMPTY: &'static Self = &Self { upto: Eversion { epoch: base::Epoch(0), version: 0 }, of: BTreeMap::new() };

    fn is_empty(&self) -> bool {
        *self == *Self::EMPTY
    }
}

impl Pg {
    /// True if this copy's log has a change of the object after a version.
    pub(super) fn is_changed_after(
        &mut self,
        tag: Tag,
        head: &HObject,
        version: Eversion,
        store: &mut dyn ObjectStore,
    ) -> Step<bool> {
        let upto = self.journal.info().last_update;
        if self.recovery.newest.upto != upto {
            let mut of = BTreeMap::new();
            for (v, r) in store.log_entries(tag, self.env.cid(), Eversion::default())? {
                // Records of failed operations stand for no change.
                if let Ok(e) = LogEntry::from_record(&r)
                    && e.kind != LogKind::Error
                {
                    of.insert(e.soid.head(), v);
                }
            }
            *self.recovery.newest = Newest { upto, of };
        }
        Ok(self.recovery.newest.of.get(head).is_some_and(|v| *v > version))
    }
}
