//! Scrub without a PG: what a copy says about its objects, how copies are compared, and what is told of what differs.
//!
//! `map` is one copy's word, `compare` finds what differs between several and which is right, `report` keeps the findings
//! and encodes them as `rados list-inconsistent-*` reads them, `message` is what OSDs say to each other about it, `slots`
//! bounds how many scrubs an OSD takes part in, `due` says when a PG is to be scrubbed. The machine that drives them is `pg::scrub`.
//!
//! Invariants:
//!  1. Comparing is a function of the copies' words only; the order of copies matters for ties, nothing else does.
//!  2. A copy that could not be read is never what others are repaired from.

pub mod compare;
pub mod due;
pub mod map;
pub mod message;
pub mod parity;
pub mod report;
pub mod slots;

pub use due::{Due, ScrubConfig};
pub use slots::ScrubSlots;

/// How a PG is scrubbed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubRequest {
    /// Read data and omap back, too.
    pub deep: bool,
    /// Repair what differs.
    pub repair: bool,
    /// An operator asked for it: it waits until it can be done.
    pub required: bool,
}

impl ScrubRequest {
    /// What does for both.
    #[must_use]
    pub fn or(self, o: Self) -> Self {
        Self { deep: self.deep | o.deep, repair: self.repair | o.repair, required: self.required | o.required }
    }

    /// As the cluster log names it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match (self.repair, self.deep) {
            (true, _) => "repair",
            (_, true) => "deep-scrub",
            _ => "scrub",
        }
    }
}
