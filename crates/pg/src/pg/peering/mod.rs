//! Peering: the start of an interval, and messages among the copies.
//!
//! - `choose`: the primary collects infos, and chooses the version and the acting set
//! - `log_merge`: merging the authoritative log into a copy's own
//! - `member`: a copy that is not the primary
//! - `pieces`: long messages, and those that must be heard
//! - `resend`: unacknowledged writes that are sent again
//! - `shards`: the differences in erasure-coded PGs
//! - `touched`: shards that lack entries but have current bytes
//! - `session`: messages among copies, and their repetition
//! - `settle`: the acting set to stay in, and a clean PG
//! - `failed`: a copy that failed and takes no part

pub(in crate::pg) mod choose;
pub(in crate::pg) mod failed;
pub(in crate::pg) mod log_merge;
pub(in crate::pg) mod member;
pub(in crate::pg) mod pieces;
pub(in crate::pg) mod resend;
pub(in crate::pg) mod session;
pub(in crate::pg) mod settle;
pub(in crate::pg) mod shards;
pub(in crate::pg) mod touched;
