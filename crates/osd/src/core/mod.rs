//! The pure parts of an OSD.
//!
//! [`control`] is the one machine per OSD that talks to monitor and manager: boot, maps, heartbeats, reports.
//! [`reactor`] is one machine per reactor: its turn, its store and its PGs ([`pgs`]). Neither uses sockets, files or
//! clocks. The other modules are parts of these machines.
//!
//! | the OSD in its cluster | contents |
//! | --- | --- |
//! | `identity` | identity and addresses of an OSD |
//! | `maps`, `mapstore` | new maps and those that clients may lack; storage of the superblock and of maps |
//! | `heartbeat`, `pingtime` | choice of peers, pings, failure reports; ping times of one link |
//! | `rejoin` | return after the OSD was marked down by mistake |
//! | `lease` | read leases between OSDs: a primary answers reads without asking the other members |
//! | `peers` | sessions with other OSDs: the address of each, and the map that ends it |
//! | `mgr`, `collect` | reports to the manager, and the reports of all reactors that they are made of |
//! | `counters` | the tables of an OSD's counters |
//!
//! | clients and their operations | contents |
//! | --- | --- |
//! | `session`, `inbound` | a client's session as the reactors share it; admission and decoding of its messages |
//! | `admission` | the right that every message and every command needs at an OSD, in one table |
//! | `clients`, `known` | a client's connection at its reactor; the newest map of each client |
//! | `unanswered`, `waiting` | operations without an answer yet; operations that wait for a map or their PG |
//! | `queries`, `refused` | counters of operations by the manager's queries; objects whose calls were refused with `EBUSY` |
//!
//! | PGs on reactors | contents |
//! | --- | --- |
//! | `places`, `moves` | the reactor of each PG; moves of PGs between reactors |
//! | `slots` | the PGs of a reactor by number |
//! | `recovery`, `scrub`, `compress` | settings of recovery, of scrubs, and of compression |
//!
//! | the store and its device | contents |
//! | --- | --- |
//! | `own` | transactions of the OSD itself: maps, the superblock, requests of tools |
//! | `memory` | division of an OSD's memory between the store's metadata, data that is read again, and the rest |
//! | `room`, `silence` | judgement of the space that is left; a device that does not answer |
//! | `commits` | latency of the store's commits, sampled |

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
pub mod pgs;
pub mod pingtime;
pub mod places;
pub mod queries;
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
