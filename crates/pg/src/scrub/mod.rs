//! The parts of scrub that need no PG: reports of copies, their comparison, and the list of findings.
//!
//! `map` is one copy's report, `compare` finds errors and the authoritative copy, `report` keeps the findings and
//! encodes them for `rados list-inconsistent-*`. `message` is the protocol between OSDs, `slots` bounds the scrubs of
//! an OSD, `due` schedules them, `parity` checks shards against each other. `pg::scrub` is the machine that drives
//! them.
//!
//! Invariants:
//!  1. The comparison depends only on the copies' reports. The order of copies matters only for ties.
//!  2. A copy that could not be read is never the source of a repair.
//!
//! Tests: `tests/compare.rs`.

pub mod compare;
pub mod due;
pub mod map;
pub mod message;
pub mod parity;
pub mod report;
pub mod slots;

pub use due::{Due, ScrubConfig};
pub use slots::ScrubSlots;

/// Kind of a scrub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubRequest {
    /// Also read data and omap.
    pub deep: bool,
    /// Repair the errors that are found.
    pub repair: bool,
    /// An operator asked for the scrub: it waits until it can run.
    pub required: bool,
}

impl ScrubRequest {
    /// A scrub that fulfils both requests.
    #[must_use]
    pub fn or(self, o: Self) -> Self {
        Self { deep: self.deep | o.deep, repair: self.repair | o.repair, required: self.required | o.required }
    }

    /// Name in the cluster log.
    #[must_use]
    pub fn word(self) -> &'static str {
        match (self.repair, self.deep) {
            (true, _) => "repair",
            (_, true) => "deep-scrub",
            _ => "scrub",
        }
    }
}
