//! The manager role: a pure part, and work by a client of the cluster.
//!
//! [`manager`] takes what daemons report, [`stats`] adds it up, [`images`] is what the role knows of block images, [`host`] works
//! on them: tasks, schedules, rates. [`monitor`] is all that the role sees of the monitor whose process it shares.
//! While a separate `ceph-mgr` is active the role is off.

#![forbid(unsafe_code)]

pub mod host;
pub mod images;
pub mod manager;
pub mod monitor;
pub mod stats;

pub use manager::Manager;
