//! Recovery: bringing copies up to date.
//!
//! - `pull_push`: recovery by log
//! - `backfill`: filling a copy whose log does not overlap
//! - `incoming`: pushes into this copy
//! - `reserve`: places on the OSDs that take part
//! - `urgent`: objects that clients wait for
//! - `unreadable`: objects that this copy can't read
//! - `unfound`: objects that no copy has

pub(in crate::pg) mod backfill;
pub(in crate::pg) mod incoming;
pub(in crate::pg) mod pull_push;
pub(in crate::pg) mod reserve;
pub(in crate::pg) mod unfound;
pub(in crate::pg) mod unreadable;
pub(in crate::pg) mod urgent;
