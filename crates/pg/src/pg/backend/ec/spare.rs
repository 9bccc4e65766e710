//! Writes that spare shards: which entries touch a shard, and the attributes that it gets nevertheless.

use crate::log::Touch;
use base::planted::{Bug, acts};
use base::{Eversion, HObject, ShardId};
use bytes::Bytes;
use std::collections::BTreeMap;
use store::{Cid, Oid, Op};

/// The shards that each of the newest entries of a log touches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::pg) struct Touched {
    /// Entries after this version.
    pub since: Eversion,
    /// The newest version.
    pub upto: Eversion,
    /// Versions of the entries, oldest first, each with one bit for each touched shard; `u32::MAX`: it may touch all.
    pub entries: Vec<(Eversion, u32)>,
}

impl Touched {
    /// True if the entries can be the end of a log: their versions increase, from after `since` to at most `upto`.
    pub(in crate::pg) fn is_sound(&self) -> bool {
        let mut last = self.since;
        self.entries.iter().all(|(v, _)| *v <= self.upto && std::mem::replace(&mut last, *v) < *v)
    }

    /// The newest version whose bytes a shard has if its log ends at `last`.
    pub(in crate::pg) fn reach(&self, last: Eversion, shard: ShardId) -> Eversion {
        if last < self.since || last >= self.upto {
            return last;
        }
        let mut at = last;
        for (v, shards) in self.entries.iter().filter(|(v, _)| *v > last) {
            if (Touch { shards: *shards, attrs: Vec::new() }).touches(shard) {
                return at;
            }
            at = *v;
        }
        self.upto
    }
}

/// The newest attributes of each object that entries set on a shard which they spare.
#[derive(Debug, Default)]
pub(in crate::pg) struct Spared(BTreeMap<HObject, Vec<(Bytes, Bytes)>>);

impl Spared {
    /// Adds the attributes that the next entry sets.
    pub(in crate::pg) fn set(&mut self, oid: &HObject, attrs: &[(Bytes, Bytes)]) {
        let all = self.0.entry(oid.clone()).or_default();
        all.retain(|(name, _)| !attrs.iter().any(|(n, _)| n == name));
        all.extend_from_slice(attrs);
    }

    /// The changes that set the attributes.
    pub(in crate::pg) fn ops(self, cid: Cid) -> impl Iterator<Item = Op> {
        let stale = acts(Bug::StaleUntouchedShard);
        let all = self.0.into_iter().filter(move |_| !stale);
        all.map(move |(oid, attrs)| Op::SetAttrs { cid, oid: Oid::new(oid), attrs })
    }
}
