//! The laboratory: a load generator, plans of measurements, their statistics and reports.
//!
//! [`load`] describes a load: where each operation goes, when it starts, what bytes it carries. [`plan`] describes
//! measurements; [`host`] carries them out. Everything outside [`host`] does no I/O and reads no clock.

#![forbid(unsafe_code)]

pub mod findings;
pub mod host;
pub mod load;
pub mod plan;
pub mod report;
pub mod result;
pub mod stats;
