//! Changes of the FSMap: one function each, and changes with their side effects.
//!
//! Commands and beacons change the map through `edit::FsEdit`, in the same proposal as the OSD map. [`map`] has the
//! invariants.

pub(crate) mod edit;
pub mod map;

/// Number of FSMap epochs that are kept (`mon_max_mdsmap_epochs`).
pub const EPOCHS_STORED: usize = 500;
