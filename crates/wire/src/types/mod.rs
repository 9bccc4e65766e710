//! Structures in messages.
//!
//! One file per subject. Names follow Ceph's types; each doc comment has the original name.
//!
//! | module | contents |
//! | --- | --- |
//! | `base` | encodings of the types in `base` |
//! | `common` | structures that many messages share: paxos header, signed durations, lenient text, feature sets |
//! | `daemon` | structures about daemons: superblock, cluster log, health, services, manager modules |
//! | `mds` | file-system maps (MDS daemons, ranks, pools), and the contents of MDS beacons |
//! | `mds_client` | news of an MDS for its clients about inodes, directories, leases and snapshot realms |
//! | `mds_view` | queries on file-system maps: active, degraded and replacement daemons |
//! | `metric` | performance queries from a manager to OSDs and MDSs (`rbd perf image iotop` and similar) |
//! | `object` | structures of object operations: locator, snapshot context, redirect, and payloads of some operations |
//! | `pg` | metadata of a PG: history, past intervals, info, and the records that OSDs exchange in peering |
//! | `stats` | statistics that OSDs report and monitors sum: objects, PGs, pools, OSDs, and the digest |

mod base;
mod common;
mod daemon;
mod mds;
mod mds_client;
mod mds_view;
mod metric;
mod object;
mod pg;
mod stats;

pub use common::*;
pub use daemon::*;
pub use mds::*;
pub use mds_client::*;
pub use mds_view::*;
pub use metric::*;
pub use object::*;
pub use pg::*;
pub use stats::*;
