//! The start of a process: its state from the records, and a map that continues at a later epoch.

pub mod advance;
pub mod load;
pub mod reading;
