//! The pure parts of an OSD.
//!
//! [`control`] is the one machine per OSD that talks to monitor and manager: boot, maps, heartbeats, reports.
//! [`reactor`] is one machine per reactor: its turn, its store and its PGs ([`pgs`]). Neither uses sockets, files or
//! clocks.

pub mod admission;
pub mod clients;
pub mod collect;
pub mod commits;
pub mod compress;
pub mod control;
pub mod counters;
pub mod heartbeat;
pub mod identity;
pub mod inbound;
pub mod known;
pub mod lease;
pub mod maps;
pub mod mapstore;
pub mod memory;
pub mod mgr;
pub mod moves;
pub mod own;
pub mod peers;
pub mod perf;
pub mod pgs;
pub mod pingtime;
pub mod places;
pub mod reactor;
pub mod recovery;
pub mod refused;
pub mod rejoin;
pub mod room;
pub mod scrub;
pub mod session;
pub mod silence;
mod slots;
pub mod unanswered;
pub mod waiting;
