//! Whole clusters in one thread: the production machines of monitor, OSDs and clients, and the production store, on
//! virtual time, a simulated network and simulated disks. A run follows from its seed alone.
//!
//! | module | contents |
//! | --- | --- |
//! | `options` | the shape of a run: sizes given by the caller, all else drawn from the seed |
//! | `run` | one run: a cluster is created, works under faults, heals, and is judged |
//! | `node` | hosts of the machines: they connect a core to the simulated network, disk and clock |
//! | `world`, `net`, `queue` | time and processes; connections, cuts and delays; events in order of virtual time |
//! | `faults`, `plots` | faults of the run's kinds, one after another; faults in several steps against one PG |
//! | `load`, `rough` | the operations of all clients; sizes, counts and calls that only some runs have |
//! | `coded`, `several` | erasure-coded pools in runs; the state that several monitors share |
//! | `model`, `content` | an object as clients see it, the reference for histories; its bytes |
//! | `check`, `listing`, `sums` | judges of clients' answers: orders of operations; listings; a user's bucket list |
//! | `oracle`, `compare` | judges of the state: bounded queues, clean PGs; equal copies, byte by byte |
//! | `witness` | a client that changes state by commands while monitors fail |
//! | `files` | the record of MDS daemons' actions, and the oracles about them |
//! | `placement`, `grey`, `study` | an operator's commands; cut links and silent disks; the cost of an OSD's death |
//! | `trace` | a hash over all events, and the last lines as text |
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
