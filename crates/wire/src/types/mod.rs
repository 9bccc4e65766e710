//! Structures that messages are made of.
//!
//! One file per subject; names follow Ceph's types, with the original named in each doc comment.

mod base;
mod common;
mod daemon;
mod mds;
mod mds_view;
mod metric;
mod object;
mod pg;
mod stats;

pub use common::*;
pub use daemon::*;
pub use mds::*;
pub use mds_view::*;
pub use metric::*;
pub use object::*;
pub use pg::*;
pub use stats::*;
