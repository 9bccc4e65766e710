//! Questions to the metadata: what they came to.
//!
//! A question runs over pages as far as they are in memory ([`Meta::ask`]). It gathers which are missing, which it put to their places, and what
//! else whoever changes something must know ([`Needs`]); all of that is in the answer, and nothing stays behind.

use super::Meta;
use crate::superblock::BlobPtr;

/// What a transaction's changes take beside pages in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Blocks of metadata that they touch beside a few pages for each operation.
    pub(crate) touches: u64,
    /// References of an object marked as shared will change.
    pub(crate) shared: bool,
    /// They have keys of an omap that is in leaves, or may come to be.
    pub(crate) leaves: bool,
}

impl Needs {
    /// Of a transaction of which one operation was asked for alone as well.
    pub(crate) fn or(self, o: Self) -> Self {
        let (shared, leaves) = (self.shared || o.shared, self.leaves || o.leaves);
        Self { touches: self.touches.max(o.touches), shared, leaves }
    }
}

/// What a question gathers while it runs.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// Pages found missing.
    pub(super) want: Vec<BlobPtr>,
    /// Pages put to their places: slot and `uniq`.
    pub(super) placed: Placed,
    /// It is asked for changes that may mark objects as shared.
    pub(super) will_share: bool,
    pub(super) needs: Needs,
}

/// Pages that came to their places: slot and `uniq`.
pub(crate) type Placed = Vec<(u32, u64)>;

/// What a question came to.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    Known(T),
    /// These pages have to be read first.
    Missing(Vec<BlobPtr>),
    /// Something stored can't be read or does not hold together.
    Damaged(String),
}

impl Meta {
    /// Runs a question, which gives nothing if something it needs is missing. Pages that it put to their places stay if whoever
    /// asks pins them.
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

    /// What a change found damaged or missing, if it did; the caller stops.
    pub(crate) fn take_damage(&mut self) -> Option<String> {
        self.bad.take()
    }

    /// Changes have been applied: what they looked for is nobody's question.
    pub(crate) fn end_changes(&mut self) {
        self.asking.placed.clear();
        self.asking.want.clear();
    }
}
