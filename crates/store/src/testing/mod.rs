//! For tests of this crate and of those above it: a device with faults, and the comparison of a store with the model.

pub mod compare;
pub mod disk;
pub mod workload;
