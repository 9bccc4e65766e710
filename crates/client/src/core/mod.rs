//! The pure parts of a client. Time comes in as an argument; effects go out as values.

pub mod maps;
pub mod mon;
pub mod objecter;

use std::time::Duration;

/// First pause between two attempts to connect.
const RETRY_MIN: Duration = Duration::from_millis(100);
/// Longest pause.
const RETRY_MAX: Duration = Duration::from_secs(5);
