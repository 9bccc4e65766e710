//! A PG moves to another reactor of its OSD.
//!
//! - `out`: the machine that gives
//! - `in_`: the machine that takes

pub(in crate::pg) mod in_;
pub(in crate::pg) mod out;
