//! The plans of all tags.
//!
//! Invariant: no two plans of a store have the same id, so a completion of a released plan finds no other one.
//!
//! Tests: below.

use super::read::Plan;
use crate::api::Tag;
use rustc_hash::FxHashMap;

/// State of each tag that has not been released.
#[derive(Debug, Default)]
pub(super) struct Plans {
    all: FxHashMap<Tag, Plan>,
    /// Id of the newest plan.
    newest: u64,
}

impl Plans {
    /// The plan of a tag; a new one if it has none.
    pub(super) fn of(&mut self, tag: Tag) -> &mut Plan {
        let newest = &mut self.newest;
        self.all.entry(tag).or_insert_with(|| {
            *newest += 1;
            Plan::new(*newest)
        })
    }

    pub(super) fn get(&self, tag: Tag) -> Option<&Plan> {
        self.all.get(&tag)
    }

    pub(super) fn get_mut(&mut self, tag: Tag) -> Option<&mut Plan> {
        self.all.get_mut(&tag)
    }

    pub(super) fn remove(&mut self, tag: Tag) -> Option<Plan> {
        self.all.remove(&tag)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Plan> {
        self.all.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_that_is_used_again_gets_another_plan() {
        let mut plans = Plans::default();
        let first = plans.of(Tag(1)).id;
        assert_eq!(plans.of(Tag(1)).id, first);
        let other = plans.of(Tag(2)).id;
        assert!(plans.remove(Tag(1)).is_some());
        let second = plans.of(Tag(1)).id;
        assert!(first != other && second != first && second != other);
    }
}
