//! The monitor's state, below the commands and the core: both use it, and it uses neither.
//!
//! [`ClusterState`] is the committed state in memory, [`Pending`] the one proposal under construction. The other files
//! hold what these are made of, and decisions that need nothing else.
//!
//! Invariants:
//!  1. Nothing here names a session's messages or a command. The rules of the tree test the direction of imports.
//!  2. Functions here read the committed state and change only [`Pending`]; a commit changes the state.

pub mod access;
mod cluster_state;
pub mod config;
pub mod fs;
pub mod log;
pub mod lost_tickets;
pub mod maps;
pub mod ops;
pub mod options;
pub mod records;
pub mod wrong_keys;

pub use cluster_state::*;
