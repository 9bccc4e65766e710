//! Whole clusters in one thread: the production machines of monitor, OSDs and clients, and the production store, on
//! virtual time, a simulated network and simulated disks. Everything a run does follows from its seed.
//!
//! `options` draws a run's shape from the seed, `run` carries it out, `node` are the hosts of the machines, `net` and
//! `queue` are the world around them, `faults` and `plots` break it, `load` makes the operations, `model` (with `content`) and `check` judge what
//! clients saw, `oracle` what the cluster holds, `trace` remembers what happened, `study` counts what an OSD's death costs.
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
pub mod listing;
pub mod load;
pub mod model;
pub mod net;
pub mod node;
pub mod options;
pub mod oracle;
pub mod plots;
pub mod queue;
pub mod run;
pub mod several;
pub mod study;
pub mod trace;
pub mod witness;
pub mod world;
