//! Comparing the copies of a PG.
//!
//! - `lead`: the primary asks, compares and repairs
//! - `serve`: what a copy says it has

pub(in crate::pg) mod lead;
pub(in crate::pg) mod serve;
