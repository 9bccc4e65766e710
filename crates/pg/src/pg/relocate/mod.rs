//! Moves of a PG to another reactor of its OSD.
//!
//! - `out`: the source machine
//! - `in_`: the target machine

pub(in crate::pg) mod in_;
pub(in crate::pg) mod out;
