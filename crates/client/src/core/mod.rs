//! The client's parts without I/O. Time comes in as an argument; effects are returned as values.

pub mod maps;
pub mod mds;
pub mod mon;
pub mod objecter;
pub mod striping;

use std::time::Duration;

/// First pause between two connection attempts.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// Longest pause between two connection attempts.
const RETRY_MAX: Duration = Duration::from_secs(5);
