//! Structures in messages.
//!
//! One file per subject. Names follow Ceph's types; each doc comment has the original name.

mod base;
mod common;
mod daemon;
mod mds;
mod mds_client;
mod mds_view;
mod metric;
mod object;
mod pg;
mod stats;

pub use common::*;
pub use daemon::*;
pub use mds::*;
pub use mds_client::*;
pub use mds_view::*;
pub use metric::*;
pub use object::*;
pub use pg::*;
pub use stats::*;
