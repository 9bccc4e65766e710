//! Objects that clients wait for, in the order in which they were first asked for. All steps take logarithmic time:
//! after an outage, clients may wait for tens of thousands of objects.

use crate::pg::seldom::Part;
use base::HObject;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Objects in order of arrival; see the module.
#[derive(Debug, Default)]
pub(in crate::pg) struct Urgent {
    order: BTreeMap<u64, HObject>,
    numbers: BTreeMap<HObject, u64>,
    next: u64,
}

impl Part for Urgent {
    const EMPTY: &'static Self = &Self { order: BTreeMap::new(), numbers: BTreeMap::new(), next: 0 };

    fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

impl Urgent {
    pub(in crate::pg) fn contains(&self, head: &HObject) -> bool {
        self.numbers.contains_key(head)
    }

    /// Adds an object behind the others, unless it is there.
    pub(in crate::pg) fn add(&mut self, head: HObject) {
        if !self.contains(&head) {
            self.order.insert(self.next, head.clone());
            self.numbers.insert(head, self.next);
            self.next += 1;
        }
    }

    pub(in crate::pg) fn remove(&mut self, head: &HObject) {
        if let Some(n) = self.numbers.remove(head) {
            self.order.remove(&n);
        }
    }

    /// The number of an object; later ones have higher numbers.
    pub(super) fn number(&self, head: &HObject) -> Option<u64> {
        self.numbers.get(head).copied()
    }

    /// The object with a number.
    pub(super) fn get(&self, number: u64) -> Option<&HObject> {
        self.order.get(&number)
    }

    /// The lowest number beyond a bound.
    pub(super) fn first(&self, from: Bound<&u64>) -> Option<u64> {
        self.order.range::<u64, _>((from, Bound::Unbounded)).next().map(|(n, _)| *n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn objects_keep_their_order_and_leave_in_any() {
        let o = |n: u64| HObject { oid: Bytes::from(format!("o{n:03}")), ..HObject::min() };
        let mut u = Urgent::default();
        let order = [5, 3, 9, 1, 7];
        order.iter().chain(&[3, 9]).for_each(|n| u.add(o(*n)));
        let all = |u: &Urgent| u.order.values().cloned().collect::<Vec<_>>();
        assert_eq!(all(&u), order.map(o));
        assert_eq!((u.number(&o(9)), u.get(2), u.number(&o(2))), (Some(2), Some(&o(9)), None));
        assert_eq!((u.first(Bound::Unbounded), u.first(Bound::Excluded(&2))), (Some(0), Some(3)));
        u.remove(&o(9));
        u.remove(&o(9));
        u.add(o(9));
        assert_eq!(all(&u), [5, 3, 1, 7, 9].map(o));
        assert_eq!(u.first(Bound::Excluded(&1)), Some(3), "the number of an object that left is free");
        assert!(u.contains(&o(1)) && !u.contains(&o(2)));
        order.iter().for_each(|n| u.remove(&o(*n)));
        assert!(u.is_empty() && u.order.is_empty());
    }
}
