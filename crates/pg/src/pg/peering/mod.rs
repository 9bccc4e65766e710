//! Peering: the start of an interval, and messages among the copies.
//!
//! - `choose`: the primary learns who has what and who serves
//! - `log_merge`: one log of two
//! - `member`: a copy that another OSD leads
//! - `shards`: what is different where copies are shards
//! - `touched`: which of these lack entries and none of their bytes
//! - `session`: messages among copies, and what is sent again
//! - `failed`: a copy that takes itself out

pub(in crate::pg) mod choose;
pub(in crate::pg) mod failed;
pub(in crate::pg) mod log_merge;
pub(in crate::pg) mod member;
pub(in crate::pg) mod session;
pub(in crate::pg) mod shards;
pub(in crate::pg) mod touched;
