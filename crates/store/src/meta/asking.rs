//! Questions to the metadata, and their answers.
//!
//! A question runs on the pages in memory ([`Meta::ask`]). It collects the missing pages, the pages it put in
//! place, and other needs of a change ([`Needs`]). All of that is part of the answer, and no state stays
//! behind.

use super::Meta;
use crate::superblock::BlobPtr;

/// Needs of a transaction's changes besides pages in memory. A record: an answer to one question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Metadata blocks that the changes touch, besides a few pages per operation.
    pub(crate) touches: u64,
    /// True if references of an object marked as shared will change.
    pub(crate) shared: bool,
    /// True if an omap in leaves is changed, or an omap may move to leaves.
    pub(crate) leaves: bool,
}

impl Needs {
    /// Joins the needs of a transaction with those of one operation that was asked separately.
    pub(crate) fn or(self, o: Self) -> Self {
        let (shared, leaves) = (self.shared || o.shared, self.leaves || o.leaves);
        Self { touches: self.touches.max(o.touches), shared, leaves }
    }
}

/// State that a question collects while it runs.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// Missing pages.
    want: Vec<BlobPtr>,
    /// Pages put in place: slot and `uniq`.
    placed: Placed,
    /// The question is about changes that may mark objects as shared.
    will_share: bool,
    needs: Needs,
}

impl Asking {
    /// Notes a page that must be read.
    pub(super) fn note_missing(&mut self, page: BlobPtr) {
        self.want.push(page);
    }

    /// Number of missing pages so far.
    pub(super) fn missing(&self) -> usize {
        self.want.len()
    }

    /// Forgets the missing pages beyond the first `n`.
    pub(super) fn forget_missing(&mut self, n: usize) {
        self.want.truncate(n);
    }

    /// Notes a page that was put in place.
    pub(super) fn note_placed(&mut self, id: u32, uniq: u64) {
        self.placed.push((id, uniq));
    }

    /// Begins to add up the needs of a transaction.
    pub(super) fn begin_needs(&mut self) {
        self.needs = Needs::default();
    }

    pub(super) fn needs(&self) -> Needs {
        self.needs
    }

    /// True if the question is about changes that may mark objects as shared.
    pub(super) fn will_share(&self) -> bool {
        self.will_share
    }

    pub(super) fn set_will_share(&mut self, will: bool) {
        self.will_share = will;
    }

    /// Adds metadata blocks that the changes touch.
    pub(super) fn will_touch(&mut self, blocks: u64) {
        self.needs.touches += blocks;
    }

    /// Notes whether a change takes references of a shared object away.
    pub(super) fn will_unref_shared(&mut self, will: bool) {
        self.needs.shared |= will;
    }

    /// Notes whether a change may need leaves of an omap.
    pub(super) fn will_need_leaves(&mut self, will: bool) {
        self.needs.leaves |= will;
    }
}

/// Pages put in place: slot and `uniq`.
pub(crate) type Placed = Vec<(u32, u64)>;

/// Answer to a question.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    Known(T),
    /// These pages must be read first.
    Missing(Vec<BlobPtr>),
    /// A stored structure can't be read or is inconsistent.
    Damaged(String),
}

impl Meta {
    /// Runs a question. `f` returns `None` if a page is missing. The pages that it put in place stay in memory
    /// if the caller pins them.
    pub(crate) fn ask<T>(&mut self, f: impl FnOnce(&mut Self) -> Option<T>) -> (Answer<T>, Placed) {
        self.asking.want.clear();
        let got = f(self);
        let placed = std::mem::take(&mut self.asking.placed);
        let answer = match (got, self.bad.take()) {
            (_, Some(what)) => Answer::Damaged(what),
            (Some(t), None) => Answer::Known(t),
            (None, None) => {
                let mut want = std::mem::take(&mut self.asking.want);
                want.sort_unstable_by_key(|w| w.runs.first().map(|r| r.0));
                want.dedup();
                Answer::Missing(want)
            }
        };
        (answer, placed)
    }

    /// Description of the damage or missing page that a change met, if any; the caller stops.
    pub(crate) fn take_damage(&mut self) -> Option<String> {
        self.bad.take()
    }

    /// Ends changes: drops the lists of pages that they looked up.
    pub(crate) fn end_changes(&mut self) {
        self.asking.placed.clear();
        self.asking.want.clear();
    }
}
