//! The order of pulls and pushes within a PG (`reserve` has that among PGs): walks through the objects that this copy or
//! members lack.
//!
//! A walk passes over an object that can't be recovered now, and looks at it again when the object is named. So a step
//! of recovery does not look at all objects that are lacked: a PG may have a hundred thousand unfound ones.
//!
//! Invariant: an object that a walk has passed can't be recovered, unless it was named since. [`Pg::next_pull`] and
//! [`Pg::next_push`] assert it in debug builds.
//!
//! Tests: below; `tests/lost.rs` counts what the steps look at.

use super::Recovery;
use super::urgent::Urgent;
use crate::limits::RECOVERY_LOOKS_MAX;
use crate::pg::Pg;
use crate::pg::seldom::Part;
use crate::shards::PeerId;
use base::{HObject, Mono, Now};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

/// Named objects of a walk. With more the walk begins anew.
const NAMED_MAX: usize = 1024;
/// Time until the next step, if one has looked at as many objects as it may.
const PAUSE: Duration = Duration::from_millis(1);
/// Lacked objects up to which debug builds look for one that was passed wrongly.
const CHECKED_MAX: usize = 1024;

/// A walk through keys in their order; see the module.
#[derive(Debug)]
struct Walk<K> {
    /// The last key that was passed in order.
    passed: Option<K>,
    /// Keys up to that one which are to be looked at again.
    named: BTreeSet<K>,
}

impl<K> Walk<K> {
    const NEW: Self = Self { passed: None, named: BTreeSet::new() };
}

impl<K: Ord + Clone> Walk<K> {
    /// The next key to look at. `first` gives the first key beyond the bound.
    fn next(&self, first: impl FnOnce(Bound<&K>) -> Option<K>) -> Option<K> {
        let beyond = self.passed.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        self.named.first().cloned().or_else(|| first(beyond))
    }

    /// Passes the key that [`Walk::next`] gave.
    fn pass(&mut self, key: K) {
        if !self.named.remove(&key) {
            self.passed = Some(key);
        }
    }

    /// Names a key: it is looked at again.
    fn name(&mut self, key: &K) {
        if self.passed.as_ref().is_none_or(|p| key > p) {
            return;
        }
        if self.named.len() < NAMED_MAX {
            self.named.insert(key.clone());
        } else {
            *self = Self::NEW;
        }
    }

    fn is_new(&self) -> bool {
        self.passed.is_none() && self.named.is_empty()
    }
}

/// A walk through objects that clients wait for, by their numbers, and one through all.
#[derive(Debug)]
pub(super) struct Order {
    urgent: Walk<u64>,
    all: Walk<HObject>,
}

impl Order {
    const NEW: Self = Self { urgent: Walk::NEW, all: Walk::NEW };

    /// The next object to look at, with its number if a client waits for it. `first` gives the first of all objects
    /// beyond the bound; without it only objects that clients wait for are looked at.
    fn next(
        &mut self,
        urgent: &Urgent,
        first: Option<impl FnOnce(Bound<&HObject>) -> Option<HObject>>,
    ) -> Option<(HObject, Option<u64>)> {
        while let Some(n) = self.urgent.next(|beyond| urgent.first(beyond)) {
            match urgent.get(n) {
                Some(h) => return Some((h.clone(), Some(n))),
                // Nobody waits for it any more.
                None => self.urgent.pass(n),
            }
        }
        Some((self.all.next(first?)?, None))
    }

    fn pass(&mut self, head: HObject, number: Option<u64>) {
        match number {
            Some(n) => self.urgent.pass(n),
            None => self.all.pass(head),
        }
    }

    /// Names an object, and its number if a client waits for it.
    pub(super) fn name(&mut self, head: &HObject, number: Option<u64>) {
        self.all.name(head);
        if let Some(n) = number {
            self.urgent.name(&n);
        }
    }

    fn is_new(&self) -> bool {
        self.urgent.is_new() && self.all.is_new()
    }
}

/// The walks of a primary.
#[derive(Debug)]
pub(in crate::pg) struct Walks {
    /// Through the objects that this copy lacks.
    pub(super) pulls: Order,
    /// Through those that members lack.
    pub(super) pushes: Order,
    /// Objects at which the present step may still look.
    left: usize,
    /// Time of the next step, if the last one stopped at its limit.
    more_at: Option<Mono>,
    /// Objects that all steps have looked at.
    looks: u64,
}

impl Walks {
    const NEW: Self = Self { pulls: Order::NEW, pushes: Order::NEW, left: 0, more_at: None, looks: 0 };

    /// Begins both walks anew: any object may be one that can be recovered.
    pub(super) fn begin_anew(&mut self) {
        (self.pulls, self.pushes, self.more_at) = (Order::NEW, Order::NEW, None);
    }

    /// Begins the walks through objects that clients wait for anew: the numbers begin anew.
    pub(super) fn forget_urgent(&mut self) {
        (self.pulls.urgent, self.pushes.urgent) = (Walk::NEW, Walk::NEW);
    }

    /// Begins a step.
    pub(super) fn begin_step(&mut self) {
        (self.left, self.more_at) = (RECOVERY_LOOKS_MAX, None);
    }

    /// True if the step may look at another object. Otherwise another step follows.
    fn may_look(&mut self, now: Now) -> bool {
        if self.left == 0 {
            self.more_at = Some(now.mono + PAUSE);
            return false;
        }
        self.left -= 1;
        self.looks += 1;
        true
    }

    /// True if the step has stopped at its limit.
    pub(super) fn has_more(&self) -> bool {
        self.more_at.is_some()
    }

    /// Time of the next step, if the last one stopped at its limit.
    pub(super) fn deadline(&self) -> Option<Mono> {
        self.more_at
    }

    /// The time of the next step has come.
    pub(super) fn tick(&mut self, now: Now) {
        self.more_at = self.more_at.filter(|t| *t > now.mono);
    }
}

impl Default for Walks {
    fn default() -> Self {
        Self::NEW
    }
}

impl Part for Walks {
    const EMPTY: &'static Self = &Self::NEW;

    fn is_empty(&self) -> bool {
        self.pulls.is_new() && self.pushes.is_new() && self.more_at.is_none()
    }
}

impl Recovery {
    /// True if the object is lacked here, and no copy was asked for it.
    fn may_ask(&self, head: &HObject) -> bool {
        self.missing.contains_key(head)
            && !self.unfound.contains(head)
            && self.pulls.get(head).is_none_or(|p| p.source.is_none())
    }
}

impl Pg {
    /// The next object that may be pulled now: one that clients wait for, or with `may` any. It stays the next one until
    /// it is being pulled or unfound. Objects that may be pulled without being named go to `later`; the caller names
    /// them after the step.
    pub(super) fn next_pull(&mut self, may: bool, later: &mut Vec<HObject>, now: Now) -> Option<HObject> {
        loop {
            let r = &mut self.recovery;
            let missing = &r.missing;
            let first = |from: Bound<&HObject>| {
                missing.range::<HObject, _>((from, Bound::Unbounded)).next().map(|(h, _)| h.clone())
            };
            let Some((head, number)) = r.walks.pulls.next(&r.urgent, may.then_some(first)) else {
                debug_assert!(!may || self.has_passed_pulls(), "an object that may be pulled was passed");
                return None;
            };
            if !r.walks.may_look(now) {
                return None;
            }
            if r.may_ask(&head) {
                if self.may_pull(&head) {
                    return Some(head);
                }
                later.push(head.clone());
            }
            self.recovery.walks.pulls.pass(head, number);
        }
    }

    /// True if no object may be pulled now; looks at all.
    fn has_passed_pulls(&self) -> bool {
        let r = &self.recovery;
        r.missing.len() > CHECKED_MAX || r.missing.keys().all(|h| !r.may_ask(h) || !self.may_pull(h))
    }

    /// The members to which an object may be pushed now.
    fn pushable_to(&self, head: &HObject) -> impl Iterator<Item = PeerId> {
        let r = &self.recovery;
        let here = !r.missing.contains_key(head);
        let lacking = self.peers.members().iter().filter(move |(_, m)| here && m.missing.contains_key(head));
        let busy = move |o| r.pushes.values().any(|p| p.to == o && p.head == *head);
        lacking.map(|(o, _)| *o).filter(move |o| !r.damage.bars(head, *o) && !busy(*o))
    }

    /// The next object that may be pushed now, with the member: one that clients wait for, or with `may` any. It stays
    /// the next one until it is being pushed to all members that lack it.
    pub(super) fn next_push(&mut self, may: bool, now: Now) -> Option<(PeerId, HObject)> {
        loop {
            let (members, r) = (self.peers.members(), &mut self.recovery);
            let first = |from: Bound<&HObject>| {
                let of =
                    members.values().filter_map(|m| m.missing.range::<HObject, _>((from, Bound::Unbounded)).next());
                of.map(|(h, _)| h).min().cloned()
            };
            let Some((head, number)) = r.walks.pushes.next(&r.urgent, may.then_some(first)) else {
                debug_assert!(!may || self.has_passed_pushes(), "an object that may be pushed was passed");
                return None;
            };
            if !r.walks.may_look(now) {
                return None;
            }
            let to = self.pushable_to(&head).next();
            if let Some(to) = to {
                return Some((to, head));
            }
            self.recovery.walks.pushes.pass(head, number);
        }
    }

    /// True if no object may be pushed now; looks at all.
    fn has_passed_pushes(&self) -> bool {
        let members = || self.peers.members().values().map(|m| &m.missing);
        members().map(|m| m.len()).sum::<usize>() > CHECKED_MAX
            || members().flat_map(|m| m.keys()).all(|h| self.pushable_to(h).next().is_none())
    }

    /// Number of objects at which recovery has looked in this interval, to see whether they can be recovered.
    #[must_use]
    pub fn recovery_looks(&self) -> u64 {
        self.recovery.walks.looks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(n: u32) -> HObject {
        HObject { hash: n.reverse_bits(), oid: n.to_string().into(), ..HObject::min() }.head()
    }

    type Objects = BTreeSet<HObject>;

    fn next(o: &mut Order, urgent: &Urgent, all: &Objects) -> Option<(HObject, Option<u64>)> {
        let first = |from: Bound<&HObject>| all.range::<HObject, _>((from, Bound::Unbounded)).next().cloned();
        o.next(urgent, Some(first))
    }

    /// Looks at all that is left; returns the order.
    fn rest(o: &mut Order, urgent: &Urgent, all: &Objects) -> Vec<HObject> {
        let mut seen = Vec::new();
        while let Some((h, n)) = next(o, urgent, all) {
            o.pass(h.clone(), n);
            seen.push(h);
        }
        seen
    }

    #[test]
    fn each_object_is_passed_once_and_named_ones_again() {
        let mut all: Objects = (0..5000).map(|n| object(2 * n)).collect();
        let (mut o, none) = (Order::NEW, Urgent::default());
        o.name(&object(4), None);
        assert_eq!(rest(&mut o, &none, &all), all.iter().cloned().collect::<Vec<_>>());
        assert!(rest(&mut o, &none, &all).is_empty());
        // Named ones come first. One that is added behind the last one needs no name.
        let late = [object(3), object(20)];
        let last = HObject { oid: "z".into(), ..all.last().unwrap().clone() };
        all.extend(late.iter().cloned());
        all.insert(last.clone());
        late.iter().for_each(|h| o.name(h, None));
        let mut want: Vec<HObject> = late.into();
        want.sort();
        want.push(last);
        assert_eq!(rest(&mut o, &none, &all), want);
        // Too many are named.
        all.iter().take(NAMED_MAX + 1).for_each(|h| o.name(h, None));
        assert!(o.is_new());
        assert_eq!(rest(&mut o, &none, &all).len(), all.len());
    }

    #[test]
    fn objects_that_clients_wait_for_come_first_and_once() {
        let all: Objects = (0..100).map(object).collect();
        let (mut o, mut urgent) = (Order::NEW, Urgent::default());
        let waited = [7, 3, 90].map(object);
        waited.iter().for_each(|h| urgent.add(h.clone()));
        let none = None::<fn(Bound<&HObject>) -> Option<HObject>>;
        assert_eq!(o.next(&urgent, none), Some((object(7), Some(0))));
        let seen = rest(&mut o, &urgent, &all);
        assert_eq!((&seen[..3], seen.len()), (&waited[..], 103));
        assert!(o.next(&urgent, none).is_none());
        // One of them is named, another one is not waited for any more.
        o.name(&object(3), Some(1));
        o.name(&object(7), Some(0));
        urgent.remove(&object(7));
        let mut want = vec![object(3), object(7), object(3)];
        want[1..].sort();
        assert_eq!(rest(&mut o, &urgent, &all), want);
        urgent.add(object(50));
        assert_eq!(rest(&mut o, &urgent, &all), [object(50)]);
    }

    #[test]
    fn a_step_looks_at_a_limited_number_and_another_one_follows() {
        let (mut w, now) = (Walks::NEW, Now::default());
        w.begin_step();
        let looks = std::iter::from_fn(|| w.may_look(now).then_some(())).count();
        assert_eq!((looks, w.has_more(), w.looks), (RECOVERY_LOOKS_MAX, true, RECOVERY_LOOKS_MAX as u64));
        let at = w.deadline().unwrap();
        w.tick(now);
        assert_eq!(w.deadline(), Some(at));
        w.tick(Now { mono: at, ..now });
        assert!(w.deadline().is_none() && w.is_empty());
        w.begin_step();
        assert!(w.may_look(now) && !w.has_more());
    }
}
