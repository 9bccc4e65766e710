//! Recovery: bringing copies up to date.
//!
//! - `by_log`: recovery by log: what is left, and the next step
//! - `pull`, `push`: objects that this copy or another one gets
//! - `backfill`: filling a copy whose log does not overlap
//! - `incoming`: pushes into this copy
//! - `rebuild`: the parts of an object that is pushed to a shard
//! - `newest`: the newest log entries of objects
//! - `reserve`: places on the OSDs that take part
//! - `urgent`: objects that clients wait for
//! - `unreadable`: objects that this copy can't read
//! - `unfound`: objects that no copy has
//! - `walk`: the order of pulls and pushes

pub(in crate::pg) mod backfill;
mod by_log;
pub(in crate::pg) mod incoming;
mod newest;
pub(in crate::pg) mod pull;
pub(in crate::pg) mod push;
pub(in crate::pg) mod rebuild;
pub(in crate::pg) mod reserve;
pub(in crate::pg) mod unfound;
pub(in crate::pg) mod unreadable;
pub(in crate::pg) mod urgent;
mod walk;

use crate::pg::idle::{list, tree};
use crate::pg::ops::plan::Plan;
use crate::pg::seldom::{Part, Seldom};
use crate::shards::PeerId;
use base::{Eversion, HObject, Mono, Now};
use newest::Newest;
use pull::PullJob;
use push::Pushing;
use reserve::{Lent, Reservation};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use unfound::Lost;
use unreadable::Damage;
use urgent::Urgent;
use walk::Walks;

/// Missing objects of this copy, and the work to bring it and the other copies up to date.
#[derive(Debug, Default)]
#[repr(C)]
pub(in crate::pg) struct Recovery {
    /// Objects that this copy lacks, with the log version as of which it needs them.
    missing: BTreeMap<HObject, Eversion>,
    /// Objects whose pushes are complete.
    pushed: Vec<HObject>,
    /// The place that this member reserves for its primary.
    lent: Option<Lent>,
    pulls: BTreeMap<HObject, PullJob>,
    /// The newest log entries of objects.
    newest: Seldom<Newest>,
    /// Pushes in progress, by plan.
    pushes: BTreeMap<u64, Pushing>,
    /// The primary's reservation for recovery or backfill.
    reservation: Seldom<Reservation>,
    /// Objects that an operator gives up.
    lost: Seldom<Lost>,
    /// Objects that are unreadable here.
    damage: Seldom<Damage>,
    unfound: BTreeSet<HObject>,
    walks: Seldom<Walks>,
    /// Objects that clients wait for, in order.
    urgent: Seldom<Urgent>,
    /// Plans that wait for recovery, by object.
    waiting: BTreeMap<HObject, VecDeque<Box<Plan>>>,
    /// An operator's request to recover the PG before others: 1 recovery, 2 backfill.
    forced: u8,
}

impl Recovery {
    /// Prefetches what every operation reads.
    #[inline]
    pub(in crate::pg) fn prefetch(&self) {
        base::prefetch(&self.missing);
        base::prefetch(&self.pulls);
    }

    /// Ends the interval. What this copy lacks stays.
    pub(in crate::pg) fn end_interval(&mut self) {
        let Self { missing, pushed, forced, .. } = std::mem::take(self);
        *self = Self { missing, pushed, forced, ..Self::default() };
    }

    /// Objects that this copy lacks, with the log version as of which it needs them.
    pub(in crate::pg) fn missing(&self) -> &BTreeMap<HObject, Eversion> {
        &self.missing
    }

    /// Notes objects that this copy lacks, as they are stored.
    #[inline]
    pub(in crate::pg) fn lacks(&mut self, objects: impl IntoIterator<Item = (HObject, Eversion)>) {
        for (head, need) in objects {
            self.pull_again(&head);
            if let Some(n) = self.newest.used() {
                n.is_asked(need);
            }
            self.missing.insert(head, need);
        }
    }

    /// Notes that this copy has an object now, as it is stored.
    pub(in crate::pg) fn got(&mut self, head: &HObject) {
        self.missing.remove(head);
        self.push_again(head);
    }

    /// Notes that this copy lacks no object, as it is stored.
    pub(in crate::pg) fn lacks_nothing(&mut self) {
        self.missing.clear();
        self.walk_anew();
    }

    /// Sets the objects that this copy lacks, as they are stored.
    pub(in crate::pg) fn set_missing(&mut self, missing: BTreeMap<HObject, Eversion>) {
        self.missing = missing;
        self.newest = Seldom::default();
        self.walk_anew();
    }

    /// Looks at all lacked objects again: any may be one that can be recovered now.
    pub(in crate::pg) fn walk_anew(&mut self) {
        if let Some(w) = self.walks.used() {
            w.begin_anew();
        }
    }

    /// Names an object that may be one to be pulled.
    fn pull_again(&mut self, head: &HObject) {
        if let Some(w) = self.walks.used() {
            w.pulls.name(head, self.urgent.number(head));
        }
    }

    /// Names the objects that could not be pulled in a step, but may be in the next one.
    fn pull_later(&mut self, all: &[HObject]) {
        all.iter().for_each(|h| self.pull_again(h));
    }

    /// Names an object that may be one to be pushed.
    pub(in crate::pg) fn push_again(&mut self, head: &HObject) {
        if let Some(w) = self.walks.used() {
            w.pushes.name(head, self.urgent.number(head));
        }
    }

    /// True if objects whose pushes are complete are to be handled.
    pub(in crate::pg) fn has_pushed(&self) -> bool {
        !self.pushed.is_empty()
    }

    /// Forgets the objects whose pushes are complete.
    pub(in crate::pg) fn drop_pushed(&mut self) {
        self.pushed.clear();
    }

    /// Runs all plans that wait for recovery again.
    pub(in crate::pg) fn wake_all(&mut self) {
        self.pushed.extend(self.waiting.keys().cloned());
    }

    /// Pulls in progress, by object.
    pub(in crate::pg) fn pulls(&self) -> &BTreeMap<HObject, PullJob> {
        &self.pulls
    }

    /// Asks other copies for the objects that are being pulled from copies that failed.
    pub(in crate::pg) fn ask_others_than(&mut self, failed: impl Fn(PeerId) -> bool) {
        let of = self.pulls.iter().filter(|(_, p)| p.source.is_some_and(&failed));
        let all: Vec<HObject> = of.map(|(h, _)| h.clone()).collect();
        all.iter().for_each(|h| self.ask_another(h));
    }

    /// Notes that the asked copy can't send an object.
    fn ask_another(&mut self, head: &HObject) {
        if let Some(p) = self.pulls.get_mut(head) {
            p.ask_another();
            self.pull_again(head);
        }
    }

    /// True if a part of a pulled object is to be applied. The first part of a push decides for it, until the last part
    /// of one was taken.
    pub(in crate::pg) fn takes_part(&mut self, from: PeerId, push: u64, n: u32, head: &HObject) -> bool {
        match self.pulls.get_mut(head) {
            None => false,
            Some(p) if p.taken.is_some_and(|t| t.2) => false,
            Some(p) if n == 0 => {
                p.taken = Some((from, push, false));
                if self.damage.wanted.contains_key(head) {
                    self.damage.replaced.insert(head.clone());
                }
                true
            }
            Some(p) => p.taken == Some((from, push, false)),
        }
    }

    /// Notes that the last part of a push was taken.
    pub(in crate::pg) fn took_last(&mut self, from: PeerId, push: u64, head: &HObject) {
        if let Some(p) = self.pulls.get_mut(head) {
            p.taken = Some((from, push, true));
        }
    }

    /// Pushes in progress, by plan.
    pub(in crate::pg) fn pushes(&self) -> &BTreeMap<u64, Pushing> {
        &self.pushes
    }

    /// Drops a push.
    pub(in crate::pg) fn drop_push(&mut self, id: u64) {
        if let Some(p) = self.pushes.remove(&id) {
            self.push_again(&p.head);
        }
    }

    /// The primary's reservation for recovery or backfill.
    pub(in crate::pg) fn reservation(&self) -> &Reservation {
        &self.reservation
    }

    /// Time of the next step, if it depends on time.
    pub(in crate::pg) fn deadline(&self) -> Option<Mono> {
        let (reserved, more) = (self.reservation.deadline(), self.walks.deadline());
        reserved.into_iter().chain(more).min()
    }

    /// The time of a step may have come.
    pub(in crate::pg) fn tick(&mut self, now: Now) {
        if let Some(w) = self.walks.used() {
            w.tick(now);
        }
    }

    /// True if this member reserves a place for its primary.
    pub(in crate::pg) fn lends(&self) -> bool {
        self.lent.is_some()
    }

    /// True if an operator has given up the object.
    pub(in crate::pg) fn is_given_up(&self, head: &HObject) -> bool {
        self.lost.from.contains_key(head)
    }

    /// True if this copy lacks objects that no copy has.
    pub(in crate::pg) fn lacks_unfound(&self) -> bool {
        !self.unfound.is_empty()
    }

    /// Looks for sources of objects anew: another copy has told what it has, and may have objects that no other has.
    pub(in crate::pg) fn search_again(&mut self, coded: bool) {
        for p in self.pulls.values_mut() {
            p.refused.clear();
        }
        self.unfound.clear();
        if let Some(l) = self.lost.used() {
            l.forget_deletions();
        }
        self.walk_anew();
        if let Some(d) = self.damage.used().filter(|_| coded) {
            d.hopeless.clear();
        }
    }

    /// True if a client waits for the object.
    pub(in crate::pg) fn is_urgent(&self, head: &HObject) -> bool {
        self.urgent.contains(head)
    }

    /// Plans that wait for recovery.
    pub(in crate::pg) fn waiting_plans(&self) -> impl Iterator<Item = &Box<Plan>> {
        self.waiting.values().flatten()
    }

    /// Takes the plans that wait for recovery.
    pub(in crate::pg) fn take_waiting(&mut self) -> impl Iterator<Item = Box<Plan>> {
        std::mem::take(&mut self.waiting).into_values().flatten()
    }

    /// Drops the waiting plans that `keep` refuses, and returns their number. Objects that nobody waits for then lose
    /// their precedence.
    pub(in crate::pg) fn retain_waiting(&mut self, keep: impl Fn(&Plan) -> bool) -> u64 {
        let mut dropped = 0;
        let mut free: Vec<HObject> = Vec::new();
        for (head, queue) in &mut self.waiting {
            let before = queue.len();
            queue.retain(|p| keep(p));
            dropped += (before - queue.len()) as u64;
            if queue.is_empty() {
                free.push(head.clone());
            }
        }
        for head in free {
            self.waiting.remove(&head);
            self.urgent.remove(&head);
        }
        dropped
    }

    /// An operator's request to recover the PG before others: 1 recovery, 2 backfill.
    pub(in crate::pg) fn forced(&self) -> u8 {
        self.forced
    }

    /// Sets an operator's request to recover the PG before others.
    pub(in crate::pg) fn set_forced(&mut self, forced: u8) {
        self.forced = forced;
    }

    /// True if no recovery is under way.
    pub(in crate::pg) fn is_quiet(&self) -> bool {
        self.pushed.is_empty()
            && self.pulls.is_empty()
            && self.pushes.is_empty()
            && self.waiting.is_empty()
            && self.reservation.is_idle()
    }

    /// Releases unused memory.
    pub(in crate::pg) fn release_memory(&mut self) {
        list(&mut self.pushed);
        tree(&mut self.missing);
        self.lost.release_memory();
        self.damage.release_memory();
        self.newest = Seldom::default();
        self.reservation.release_memory();
        self.urgent.release_memory();
        if self.urgent.is_empty()
            && let Some(w) = self.walks.used()
        {
            w.forget_urgent();
        }
        self.walks.release_memory();
        tree(&mut self.pulls);
        tree(&mut self.pushes);
        tree(&mut self.waiting);
    }
}
