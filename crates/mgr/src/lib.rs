//! The manager role: a part without I/O, and work done through a client of the cluster.
//!
//! [`manager`] receives daemons' reports and [`stats`] sums them. [`images`] has image statistics and schedules,
//! [`files`] statistics of file system clients, [`volumes`] names and files of subvolumes; [`host`] runs tasks and
//! schedules and answers commands that need a client. [`rehearse`] tells what a change of the map would do. [`monitor`]
//! is the interface to the monitor in the same process. The role is off while a separate `ceph-mgr`
//! is active.

#![forbid(unsafe_code)]

pub mod balance;
pub mod files;
pub mod host;
pub mod images;
pub mod manager;
pub mod monitor;
pub mod rehearse;
pub mod stats;
pub mod volumes;

pub use manager::Manager;
