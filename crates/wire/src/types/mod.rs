//! Structures that messages are made of.
//!
//! One file per subject; names follow Ceph's types, with the original named in each doc comment.

mod base;
mod common;
mod object;

pub use common::*;
pub use object::*;
