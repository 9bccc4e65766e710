//! Copies get what they lack.
//!
//! - `pull_push`: recovery by log
//! - `backfill`: recovery of a copy whose log does not reach
//! - `reserve`: places on the OSDs that take part
//! - `unreadable`: objects whose bytes do not read here
//! - `unfound`: objects that nobody has

pub(in crate::pg) mod backfill;
pub(in crate::pg) mod pull_push;
pub(in crate::pg) mod reserve;
pub(in crate::pg) mod unfound;
pub(in crate::pg) mod unreadable;
