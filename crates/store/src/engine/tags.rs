//! The state of all tags: what the reads and the prepared transaction of each have brought and reserved.
//!
//! Invariant: no two states of a store have the same id, so a completion for a released tag finds no later use of it.
//!
//! Tests: below.

use super::read::TagState;
use crate::api::Tag;
use rustc_hash::FxHashMap;

/// State of each tag that has not been released.
#[derive(Debug, Default)]
pub(super) struct Tags {
    all: FxHashMap<Tag, TagState>,
    /// Id of the newest state.
    newest: u64,
}

impl Tags {
    /// The state of a tag; a new one if it has none.
    pub(super) fn of(&mut self, tag: Tag) -> &mut TagState {
        let newest = &mut self.newest;
        self.all.entry(tag).or_insert_with(|| {
            *newest += 1;
            TagState::new(*newest)
        })
    }

    pub(super) fn get(&self, tag: Tag) -> Option<&TagState> {
        self.all.get(&tag)
    }

    pub(super) fn get_mut(&mut self, tag: Tag) -> Option<&mut TagState> {
        self.all.get_mut(&tag)
    }

    pub(super) fn remove(&mut self, tag: Tag) -> Option<TagState> {
        self.all.remove(&tag)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &TagState> {
        self.all.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_that_is_used_again_gets_another_state() {
        let mut tags = Tags::default();
        let first = tags.of(Tag(1)).id;
        assert_eq!(tags.of(Tag(1)).id, first);
        let other = tags.of(Tag(2)).id;
        assert!(tags.remove(Tag(1)).is_some());
        let second = tags.of(Tag(1)).id;
        assert!(first != other && second != first && second != other);
    }
}
