//! The manager role: a part without I/O, and work done through a client of the cluster.
//!
//! | module | contents |
//! | --- | --- |
//! | `manager` | receives daemons' reports and holds the resulting statistics |
//! | `stats` | statistics of PGs, pools and OSDs, summed from the OSDs' reports (Ceph's `PGMap`) |
//! | `balance` | the balancer: evens out the PGs and bytes of OSDs by upmap items |
//! | `rehearse` | rehearsal of a change of the OSD map: what moves, how long it takes, what it endangers |
//! | `images` | statistics of image I/O, and schedules of work on images |
//! | `files` | statistics of CephFS clients, as `fs perf stats` shows them |
//! | `volumes` | subvolumes of CephFS: names, files and texts, as in Ceph's module |
//! | `monitor` | the interface to the monitor in the same process |
//! | `host` | work by a client of the cluster: tasks, schedules, and commands that need one |
//!
//! The role is off while a separate `ceph-mgr` is active.

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
