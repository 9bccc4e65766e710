//! Backfill: filling a copy whose log does not overlap the primary's, in hash order, range by range.
//!
//! For each range the primary lists its objects and asks the target for its own, with digests of their metadata.
//! Objects that differ are pushed; objects that only the target has are removed there. When the range is equal, the
//! target stores how far it is, so that backfill resumes after a restart.
//!
//! Invariants:
//!  1. Writes go to objects up to `upto`, and to those pushed or found equal in the present range. For other objects
//!     the target gets the log record only; they are pushed later, in the state that they have at that time.
//!  2. An object that is written in the present range before the target's digest arrives counts as different.
//!  3. A shard gets, and counts as having, only what no later interval can undo. So an object is pushed once its writes
//!     are durable on all members. A range ends once the writes of which the target has only the record are durable on
//!     all members, because the target has no data to undo them.
//!
//! Tests: `tests/recovery.rs`.

use crate::exec::Step;
use crate::limits::{BACKFILL_PUSHES_MAX, BACKFILL_RANGE_COST, PUSHES_SENT_MAX};
use crate::object::{OI_ATTR, ObjectInfo, SS_ATTR};
use crate::peer::Body;
use crate::pg::journal::action::RecoveryAction;
use crate::pg::ops::plan::Plan;
use crate::pg::ops::plan::Verdict;
use crate::pg::ops::work::RecoveryWork;
use crate::pg::ops::work::Work;
use crate::pg::{Pg, Turn};
use crate::shards::PeerId;
use base::errno::EIO;
use base::unreached;
use base::{HObject, SnapId};
use std::collections::{BTreeMap, BTreeSet};
use store::{ObjectStore, Oid, ReadError};

/// Progress of one backfill target.
#[derive(Debug)]
pub(in crate::pg) struct Backfill {
    /// The target has all objects up to and including this one.
    upto: HObject,
    /// The range behind it.
    range: Range,
}

/// Where the present range of a target is.
#[derive(Debug)]
enum Range {
    /// No range: the next one has not begun.
    Next,
    /// The primary lists its objects.
    Listing {
        /// Objects written since.
        dirty: BTreeSet<HObject>,
    },
    /// The target was asked for its objects.
    Asked {
        /// End of the range, inclusive.
        end: HObject,
        /// Digests of the primary's objects.
        mine: BTreeMap<HObject, u64>,
        /// Objects written since the range was listed.
        dirty: BTreeSet<HObject>,
    },
    /// Objects that differ are pushed.
    Filling {
        /// End of the range, inclusive.
        end: HObject,
        /// Objects that are to be pushed.
        todo: BTreeSet<HObject>,
        /// Objects that are being pushed.
        pushing: BTreeSet<HObject>,
        /// All objects of the range are on the target. The range ends when the writes up to this number can't be undone
        /// any more, as far as the target has only their records.
        settles: Option<u64>,
    },
}

impl Backfill {
    pub(in crate::pg) fn new(upto: HObject) -> Self {
        Self { upto, range: Range::Next }
    }

    pub(in crate::pg) fn upto(&self) -> &HObject {
        &self.upto
    }

    /// The range that the target was asked for and has not answered: it begins behind the first object and ends with the
    /// second.
    pub(in crate::pg) fn asked(&self) -> Option<(&HObject, &HObject)> {
        if let Range::Asked { end, .. } = &self.range { Some((&self.upto, end)) } else { None }
    }

    /// True if a write to `head` goes to the target. Otherwise the object is noted as different.
    pub(in crate::pg) fn takes_write(&mut self, head: &HObject) -> bool {
        if *head <= self.upto {
            return true;
        }
        match &mut self.range {
            Range::Next => false,
            // The object may be in the listing or beyond the range, so it is noted in any case.
            Range::Listing { dirty } | Range::Asked { dirty, .. } => {
                dirty.insert(head.clone());
                false
            }
            Range::Filling { end, todo, pushing, .. } => {
                *head <= *end && !todo.contains(head) && !pushing.contains(head)
            }
        }
    }

    /// True if none of the remaining objects of the present range can be sent.
    pub(in crate::pg) fn is_stuck(&self, barred: impl Fn(&HObject) -> bool) -> bool {
        match &self.range {
            Range::Filling { todo, pushing, .. } => pushing.is_empty() && !todo.is_empty() && todo.iter().all(barred),
            _ => false,
        }
    }

    /// Puts an object back that could not be pushed.
    pub(in crate::pg) fn put_back(&mut self, head: &HObject) {
        if let Range::Filling { todo, pushing, .. } = &mut self.range
            && pushing.remove(head)
        {
            todo.insert(head.clone());
        }
    }

    pub(in crate::pg) fn pushed(&mut self, head: &HObject) {
        if let Range::Filling { pushing, .. } = &mut self.range {
            pushing.remove(head);
        }
    }

    /// Takes the primary's list of the range's objects, which ends with `end`.
    fn listed(&mut self, mine: BTreeMap<HObject, u64>, end: HObject) {
        let Range::Listing { dirty } = std::mem::replace(&mut self.range, Range::Next) else {
            return unreached("a range is listed once");
        };
        self.range = Range::Asked { end, mine, dirty };
    }

    /// Takes the target's list of its objects after `begin`, which ends with `upto`.
    fn answered(&mut self, begin: &HObject, upto: HObject, theirs: Vec<(HObject, u64)>) {
        if self.asked().is_none_or(|(b, _)| b != begin) {
            return;
        }
        let Range::Asked { end, mut mine, dirty } = std::mem::replace(&mut self.range, Range::Next) else {
            return unreached("the range was asked for");
        };
        let end = end.min(upto);
        mine.retain(|h, _| *h <= end);
        let theirs: BTreeMap<HObject, u64> = theirs.into_iter().filter(|(h, _)| *h > *begin && *h <= end).collect();
        let mut todo: BTreeSet<HObject> =
            mine.iter().filter(|(h, d)| theirs.get(h) != Some(d)).map(|(h, _)| h.clone()).collect();
        todo.extend(theirs.into_keys().filter(|h| !mine.contains_key(h)));
        todo.extend(dirty.into_iter().filter(|h| *h <= end));
        self.range = Range::Filling { end, todo, pushing: BTreeSet::new(), settles: None };
    }
}

/// Mixes a value into a digest.
fn mix(h: u64, v: u64) -> u64 {
    (h ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// Objects of a list, grouped by head.
pub(in crate::pg) type Families = Vec<(HObject, Vec<Oid>)>;

impl Pg {
    /// Handles the durability of a transaction of recovery.
    pub(in crate::pg) fn act_recovery(&mut self, a: RecoveryAction, turn: &mut Turn<'_>) {
        match a {
            RecoveryAction::PushDurable { from, id, n, last, background, head } => {
                self.push_durable(from, id, n, last, background, &head, turn);
            }
            RecoveryAction::Lost(generation, head) => self.lost_durable(generation, &head, turn),
        }
    }

    /// Runs work of recovery.
    pub(in crate::pg) fn run_recovery(&mut self, plan: &mut Plan, turn: &mut Turn<'_>) -> Verdict {
        let id = plan.id;
        match &plan.work {
            Work::Recovery(RecoveryWork::Push(_)) => self.run_push(plan, turn),
            Work::Recovery(RecoveryWork::Digest { to, range }) => self.run_digest(id, *to, &range.0, &range.1, turn),
            Work::Recovery(RecoveryWork::BackfillList(to)) => self.run_backfill_list(id, *to, turn),
            Work::Recovery(RecoveryWork::Lose(head, keep)) => self.run_lose(id, head, *keep, turn),
            Work::Recovery(RecoveryWork::Have { to, heads }) => self.run_have(id, *to, heads, turn),
            Work::Recovery(RecoveryWork::Missing(head, need)) => self.run_missing(id, head, *need, turn),
            Work::Recovery(RecoveryWork::ReadLog) => self.run_read_log(id, turn),
            _ => unreached("each part runs its own work"),
        }
    }

    /// Objects after `begin`, up to and including `end`, at most `max` families. The second value is the last object
    /// to which the list is complete.
    pub(in crate::pg) fn families(
        &self,
        id: u64,
        begin: &HObject,
        end: &HObject,
        max: usize,
        store: &mut dyn ObjectStore,
    ) -> Step<(Families, HObject)> {
        let tag = self.tag(id);
        // A family ends with its snapdir, which sorts after the clones and the head.
        let mut from = if begin.is_min() {
            Oid::new(HObject::min()).at_generation(0)
        } else {
            Oid::new(begin.at_snap(SnapId::SNAPDIR))
        };
        let mut all: Families = Vec::new();
        loop {
            let (page, next) = store.list(tag, self.env.cid(), &from, None, 128)?;
            for o in page {
                let head = o.hobj.head();
                if o.hobj.oid.is_empty() || head <= *begin || o.generation != Oid::NO_GEN {
                    continue;
                }
                if head > *end {
                    return Ok((all, end.clone()));
                }
                match all.last_mut() {
                    Some((h, v)) if *h == head => v.push(o),
                    _ => {
                        if all.len() >= max {
                            let upto = all.last().map_or_else(|| end.clone(), |(h, _)| h.clone());
                            return Ok((all, upto));
                        }
                        all.push((head, vec![o]));
                    }
                }
            }
            match next {
                Some(n) => from = n,
                None => return Ok((all, end.clone())),
            }
        }
    }

    /// Digests of objects' metadata. Equal metadata gives equal digests; different metadata gives, but for chance,
    /// different ones.
    fn digests(
        &self,
        id: u64,
        begin: &HObject,
        end: &HObject,
        max: usize,
        store: &mut dyn ObjectStore,
    ) -> Step<(Vec<(HObject, u64)>, HObject)> {
        let tag = self.tag(id);
        let (families, upto) = self.families(id, begin, end, max, store)?;
        let mut out = Vec::with_capacity(families.len());
        for (head, objects) in families {
            let mut h = 1;
            for o in objects {
                h = mix(h, o.hobj.snap.0);
                for name in [OI_ATTR, SS_ATTR] {
                    match store.attr(tag, self.env.cid(), &o, name) {
                        Ok(Some(a)) if name == OI_ATTR => {
                            let v = ObjectInfo::from_attr(&a).map(|i| i.version).unwrap_or_default();
                            h = mix(mix(h, v.epoch.0.into()), v.version);
                        }
                        Ok(Some(a)) => h = mix(h, u64::from(base::crc::crc32c(base::crc::SEED, &a))),
                        Ok(None) | Err(ReadError::NoObject) => h = mix(h, 3),
                        // Equal to no digest of another copy: the push replaces the object, or finds it unreadable.
                        Err(ReadError::Io { errno: EIO, .. }) => {
                            h = mix(h, !u64::from(self.env.whoami().0.unsigned_abs()))
                        }
                        Err(e) => return Err(e.into()),
                    }
                }
            }
            out.push((head, h));
        }
        Ok((out, upto))
    }

    /// Advances every backfill target.
    pub(in crate::pg) fn pump_backfill(&mut self, turn: &mut Turn<'_>) {
        let targets: Vec<PeerId> =
            self.peers.members().iter().filter(|(_, m)| m.backfill.is_some()).map(|(o, _)| *o).collect();
        for o in targets {
            self.pump_target(o, turn);
        }
    }

    fn pump_target(&mut self, o: PeerId, turn: &mut Turn<'_>) {
        let class = self.recovery_class();
        let sent = self.pushes_sent(Some(o));
        if self.range_settles(o) {
            return;
        }
        let Some(b) = self.peers.backfill_of(o) else { return };
        let (end, todo, pushing) = match &mut b.range {
            Range::Next => {
                if self.env.pacer().take(class, BACKFILL_RANGE_COST, self.env.index(), turn.now.mono) {
                    b.range = Range::Listing { dirty: BTreeSet::new() };
                    self.start_work(Work::Recovery(RecoveryWork::BackfillList(o)), None, turn);
                }
                return;
            }
            Range::Listing { .. } | Range::Asked { .. } => return,
            Range::Filling { end, todo, pushing, .. } => (end, todo, pushing),
        };
        if todo.is_empty() && pushing.is_empty() {
            let end = end.clone();
            (b.upto, b.range) = (end.clone(), Range::Next);
            let done = end.max;
            self.send_reliably(o, &Body::Backfilled { upto: end });
            if done {
                tracing::info!(pg = %self.env.spg(), target = %o, "backfill is complete");
                self.peers.filled(o);
            } else {
                self.pump_target(o, turn);
            }
            return;
        }
        let mut start = Vec::new();
        let damage = &self.recovery.damage;
        while pushing.len() < BACKFILL_PUSHES_MAX + sent
            && sent < PUSHES_SENT_MAX
            && let Some(h) = todo.iter().find(|h| !damage.bars(h, o)).cloned()
        {
            todo.remove(&h);
            pushing.insert(h.clone());
            start.push(h);
        }
        for h in start {
            if !self.start_push(o, h.clone(), None, turn)
                && let Some(b) = self.peers.backfill_of(o)
            {
                b.put_back(&h);
            }
        }
    }

    /// True if all objects of the range are on the target, but one of them has a write that may have to be undone and
    /// of which the target has only the record.
    fn range_settles(&mut self, o: PeerId) -> bool {
        let seq = self.peers.seq();
        let Some(b) = self.peers.backfill_of(o) else { return false };
        let Range::Filling { end, todo, pushing, settles } = &mut b.range else { return false };
        if !todo.is_empty() || !pushing.is_empty() {
            return false;
        }
        let (seq, end) = (*settles.get_or_insert(seq), if end.max { u32::MAX } else { end.bitwise_key() });
        self.may_be_undone(seq, |u| u.bare_for.contains(&o) && u.hash.reverse_bits() <= end)
    }

    pub(in crate::pg) fn run_backfill_list(&mut self, id: u64, o: PeerId, turn: &mut Turn<'_>) -> Verdict {
        let Some(upto) = self.peers.members().get(&o).and_then(|m| m.backfill.as_ref()).map(|b| b.upto.clone()) else {
            return Verdict::Done;
        };
        // Objects written since the range began are compared again in any case.
        match self.digests(id, &upto, &HObject::max(), self.env.reserver().backfill_range(), turn.store) {
            Ok((found, end)) => {
                if let Some(b) = self.peers.backfill_of(o) {
                    b.listed(found.into_iter().collect(), end.clone());
                    self.send_to(o, &Body::Scan { begin: upto, end });
                }
                Verdict::Done
            }
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }

    /// As a backfill target: answers with the digests of a range.
    pub(in crate::pg) fn run_digest(
        &mut self,
        id: u64,
        to: PeerId,
        begin: &HObject,
        end: &HObject,
        turn: &mut Turn<'_>,
    ) -> Verdict {
        match self.digests(id, begin, end, 2 * self.env.reserver().backfill_range(), turn.store) {
            Ok((objects, upto)) => {
                self.send_to(to, &Body::Digest { begin: begin.clone(), end: upto, objects });
                Verdict::Done
            }
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }

    pub(in crate::pg) fn take_digest(
        &mut self,
        from: PeerId,
        begin: &HObject,
        upto: HObject,
        objects: Vec<(HObject, u64)>,
    ) {
        let Some(b) = self.peers.backfill_of(from) else { return };
        b.answered(begin, upto, objects);
    }

    /// Estimated number of objects that the targets lack: the share of hashes that are not filled.
    pub(in crate::pg) fn left_to_backfill(&self) -> i64 {
        let all = self.journal.info().stats.num_objects;
        self.peers
            .members()
            .values()
            .filter_map(|m| m.backfill.as_ref())
            .map(|b| {
                let seen = if b.upto.is_min() { 0 } else { u64::from(b.upto.bitwise_key()) };
                let bits = self.pool().map_or(1, |p| u64::from(p.pg_num.max(1)));
                let span = (u64::from(u32::MAX) + 1) / bits;
                let within = seen % span.max(1);
                all - (i128::from(all) * i128::from(within) / i128::from(span.max(1))) as i64
            })
            .sum()
    }
}
