//! Whole clusters in one thread: the production machines of monitor, OSDs and clients, and the production store, on
//! virtual time, a simulated network and simulated disks. A run follows from its seed alone.
//!
//! `options` draws a run's shape from the seed, and `run` carries it out. `node` has the hosts of the machines; `net`
//! and `queue` are the world around them. `faults` and `plots` break it, and `load` makes the operations. `model`
//! (with `content`) and `check` judge the answers of clients, `oracle` the state of the cluster, `files` what MDS daemons
//! do. `trace` records events, `placement` follows an operator's commands, `grey` measures cut links and
//! silent disks, and `study` measures the cost of an OSD's death.
//!
//! Invariants:
//!  1. No clock, no thread, no I/O, no randomness but the seed's: the same seed gives the same trace hash.
//!  2. A node learns of others only by messages and of its disk only by completions.
//!
//! Design: docs/design/simulation.md.

#![forbid(unsafe_code)]

pub mod check;
pub mod coded;
pub mod compare;
pub mod content;
pub mod faults;
pub mod files;
pub mod grey;
pub mod listing;
pub mod load;
pub mod model;
pub mod net;
pub mod node;
pub mod options;
pub mod oracle;
pub mod placement;
pub mod plots;
pub mod queue;
pub mod rough;
pub mod run;
pub mod several;
pub mod study;
pub mod sums;
pub mod trace;
pub mod witness;
pub mod world;
