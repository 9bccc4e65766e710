//! Scrub: comparison of a PG's copies.
//!
//! - `lead`: the primary asks, compares and repairs
//! - `serve`: a copy reports its objects

pub(in crate::pg) mod lead;
pub(in crate::pg) mod serve;
