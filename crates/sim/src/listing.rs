//! Listings of the pool, as clients make them, and the check of the objects that they name.
//!
//! A listing asks one PG after the other, in order of hashes, for a few objects at a time, and continues from the
//! cursor of each answer. PGs may be split and merged meanwhile, so the PG of the cursor is looked up for each
//! request.

use crate::load::{Load, Outcome, Record, What};
use crate::model::Step;
use crate::queue::Time;
use crate::rough;
use base::errno::{EIO, ENOENT};
use base::{HObject, PgId, PoolId, SnapId, Utime};
use bytes::Bytes;
use client::core::objecter::{Request, What as Target};
use cluster::OsdMap;
use std::collections::{BTreeMap, BTreeSet};
use wire::msg::osd_op::PglsArgs;
use wire::msg::{MOsdOpReply, OpCode, OpVec, OsdOp};
use wire::types::PgNlsReply;
use wire::{Decode as _, Encode as _, Features};

/// A listing in progress.
pub struct Listing {
    pool: PoolId,
    most: u64,
    at: HObject,
    names: BTreeSet<usize>,
}

/// The next step of a listing.
pub enum Next {
    /// Send this request.
    Ask(Box<Request>),
    /// The listing ended: with the objects it named, or an errno.
    Over(Result<BTreeSet<usize>, i32>),
}

impl Listing {
    /// A listing of a pool, with at most `most` objects in an answer.
    #[must_use]
    pub fn new(pool: PoolId, most: u64) -> Self {
        Self { pool, most, at: HObject { pool, ..HObject::min() }, names: BTreeSet::new() }
    }

    /// The next request, under this map.
    #[must_use]
    pub fn ask(&self, map: &OsdMap) -> Next {
        let raw = PgId { pool: self.pool, seed: self.at.hash };
        let Some(pg) = map.raw_pg_to_pg(raw) else { return Next::Over(Err(ENOENT)) };
        let mut op = OsdOp::with_indata(OpCode::PGNLS, self.at.to_bytes(Features::PACIFIC));
        op.set_pgls(PglsArgs { count: self.most, start_epoch: map.epoch.0 });
        Next::Ask(Box::new(Request {
            what: Target::Pg { pg, nspace: Bytes::new() },
            ops: OpVec::from_vec(vec![op]),
            flags: 0,
            snapid: SnapId::HEAD,
            snapc: Default::default(),
            mtime: Utime::ZERO,
        }))
    }

    /// Handles an answer and returns the next step.
    pub fn answer(&mut self, answer: Result<&MOsdOpReply, i32>, map: &OsdMap) -> Next {
        let reply = match answer {
            Ok(r) if r.result >= 0 => r,
            // The PG was merged into another one.
            Err(ENOENT) => return self.ask(map),
            Ok(r) => return Next::Over(Err(r.result)),
            Err(e) => return Next::Over(Err(e)),
        };
        let Some(page) = reply.ops.first().and_then(|o| PgNlsReply::from_bytes(&o.outdata).ok()) else {
            return Next::Over(Err(EIO));
        };
        // A name of no object counts as an object that never exists.
        let modelled = page.entries.iter().filter(|e| !rough::is_called(&e.oid));
        self.names.extend(modelled.map(|e| Load::object_named(&e.oid).unwrap_or(usize::MAX)));
        self.at = page.handle;
        if self.at.max { Next::Over(Ok(std::mem::take(&mut self.names))) } else { self.ask(map) }
    }
}

fn end(r: &Record) -> Time {
    if r.outcome.is_some() { r.done.unwrap_or(Time::MAX) } else { Time::MAX }
}

fn removes(steps: &[Step]) -> bool {
    steps.contains(&Step::Remove)
}

/// Describes listings that name an object that cannot have existed, or omit one that must have. Objects that the
/// operator gave up are left out.
pub fn wrong(all: &[Record], given_up: impl Fn(usize) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut writes: BTreeMap<usize, Vec<(&Record, &[Step])>> = BTreeMap::new();
    for r in all.iter().filter(|r| !matches!(r.outcome, Some(Outcome::Errno(_) | Outcome::Refused(_)))) {
        if let What::Write { steps, .. } = &r.what {
            writes.entry(r.object).or_default().push((r, steps));
        }
    }
    for l in all {
        let (What::List { .. }, Some(Outcome::Listed(names))) = (&l.what, &l.outcome) else { continue };
        let objects: BTreeSet<usize> = writes.keys().chain(names).copied().collect();
        for o in objects.into_iter().filter(|o| !given_up(*o)) {
            let named = names.contains(&o);
            if must_be(writes.get(&o).map_or(&[], |w| w), l).is_some_and(|must| must != named) {
                let what = if named { "names" } else { "does not name" };
                found.push(format!(
                    "listing {} (client {}, {:.6} s to {:.6} s) {what} object-{o}",
                    l.id,
                    l.client,
                    l.call as f64 / 1e9,
                    end(l) as f64 / 1e9,
                ));
            }
        }
    }
    found
}

/// `Some(true)` if an object existed during the whole listing, `Some(false)` if it never did; `None` if either is
/// possible.
fn must_be(writes: &[(&Record, &[Step])], l: &Record) -> Option<bool> {
    let writes = || writes.iter().copied();
    let wrote = |r: &Record| matches!(r.outcome, Some(Outcome::Wrote(_))) && end(r) < l.call;
    // True if `w` may have happened after the call of `r` and before the listing's end.
    let meanwhile = |r: &Record, w: &Record| w.id != r.id && w.call <= end(l) && end(w) >= r.call;
    let there = |(r, steps): (&Record, &[Step])| {
        let makes = steps.iter().any(makes_an_object) && !removes(steps);
        wrote(r) && makes && !writes().any(|(w, s)| removes(s) && meanwhile(r, w))
    };
    let gone = |(r, steps): (&Record, &[Step])| {
        wrote(r) && steps.last() == Some(&Step::Remove) && !writes().any(|(w, _)| meanwhile(r, w))
    };
    if writes().any(there) {
        Some(true)
    } else if !writes().any(|(w, _)| w.call <= end(l)) || writes().any(gone) {
        Some(false)
    } else {
        None
    }
}

/// True if the object exists after such a step.
fn makes_an_object(s: &Step) -> bool {
    match s {
        Step::Zero { .. } | Step::Truncate { .. } | Step::Remove => false,
        Step::Sums(c) => !c.needs_object(),
        Step::Watch { .. }
        | Step::AssertExists
        | Step::CompareAttr { .. }
        | Step::RemoveAttr { .. }
        | Step::RemoveOmap { .. }
        | Step::ClearOmap
        | Step::Write { .. }
        | Step::WriteFull { .. }
        | Step::Append { .. }
        | Step::Create { .. }
        | Step::SetAttr { .. }
        | Step::SetOmap { .. }
        | Step::Bulk
        | Step::Count { .. }
        | Step::CopyFrom { .. } => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SnapContext;

    fn write(id: u64, call: Time, done: Option<Time>, step: Step) -> Record {
        let what = What::Write { steps: vec![step], snapc: SnapContext::default() };
        Record { id, client: 0, object: 3, call, done, what, outcome: done.map(|_| Outcome::Wrote(id)) }
    }

    fn list(names: &[usize]) -> Record {
        let outcome = Some(Outcome::Listed(names.iter().copied().collect()));
        let what = What::List { most: 3 };
        Record { id: 99, client: 1, object: crate::load::ALL, call: 10, done: Some(20), what, outcome }
    }

    fn faults(writes: Vec<Record>, names: &[usize]) -> usize {
        let all: Vec<Record> = writes.into_iter().chain([list(names)]).collect();
        wrong(&all, |_| false).len()
    }

    #[test]
    fn an_object_that_existed_all_the_time_is_listed() {
        let made = || write(1, 0, Some(1), Step::WriteFull { len: 8 });
        assert_eq!((faults(vec![made()], &[3]), faults(vec![made()], &[])), (0, 1));
        // A removal may happen during the listing.
        for done in [Some(12), Some(30), None] {
            let all = || vec![made(), write(2, 5, done, Step::Remove)];
            assert_eq!((faults(all(), &[3]), faults(all(), &[])), (0, 0));
        }
        let all = || vec![made(), write(2, 5, Some(6), Step::Remove)];
        assert_eq!((faults(all(), &[3]), faults(all(), &[])), (1, 0), "removed before");
        let all = || vec![made(), write(2, 5, Some(6), Step::Remove), write(3, 7, Some(8), Step::WriteFull { len: 8 })];
        assert_eq!((faults(all(), &[3]), faults(all(), &[])), (0, 1), "and there again");
        let all = || vec![write(1, 15, Some(16), Step::WriteFull { len: 8 })];
        assert_eq!((faults(all(), &[3]), faults(all(), &[])), (0, 0), "made meanwhile");
        assert_eq!(faults(vec![], &[3]), 1, "never made");
    }
}
