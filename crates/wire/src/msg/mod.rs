//! Messages, one file per family of the protocol.
//!
//! Names are Ceph's with the abbreviations in camel case: `MOSDOp` is [`MOsdOp`]. The transaction number is part of the
//! message header, not of the front. Set it with [`crate::Message::with_tid`] and read it from the header; only
//! [`MOsdOp`] and [`MOsdOpReply`] have a field for it.
//!
//! | module | contents |
//! | --- | --- |
//! | `backoff` | backoffs: an OSD asks a client to hold operations on a range of objects |
//! | `describe` | descriptions of client operations in the format of Ceph's logs |
//! | `mds` | file-system maps for subscribers, and beacons of MDS daemons |
//! | `mds_client` | messages between a CephFS client and an MDS |
//! | `mgr` | messages of daemons, monitors and clients with the manager |
//! | `mon_session` | session with a monitor: maps, subscriptions, commands, configuration, tickets |
//! | `op_code` | codes of object operations, and the properties encoded in them |
//! | `osd_lease` | `MOsdLease`: renews the read lease between two OSDs |
//! | `osd_map` | `MOSDMap`: encoded OSD maps, which the `cluster` crate decodes |
//! | `osd_mon` | messages between OSDs and their monitor (maps are in `osd_map`) |
//! | `osd_op` | object operations with their arguments and payloads |
//! | `osd_op_messages` | `MOSDOp` and `MOSDOpReply`: the messages that carry operations (`osd_op`) and their results |
//! | `osd_peering` | peering messages between OSDs: notify, query, info, leases |
//! | `osd_ping` | `MOSDPing`: heartbeats between OSDs |
//! | `peer` | messages between the copies of a PG on different OSDs |
//! | `registry` | table of all message types: names for logs, and decoding by type number for tools and tests |
//! | `relay` | messages between the leading monitor and the others |
//! | `watch_notify` | watch and notify events that an OSD sends to clients |

mod backoff;
mod describe;
mod mds;
mod mds_client;
mod mgr;
mod mon_session;
pub mod op_code;
mod osd_lease;
mod osd_map;
mod osd_mon;
pub mod osd_op;
mod osd_op_messages;
mod osd_peering;
mod osd_ping;
mod peer;
pub mod registry;
mod relay;
mod watch_notify;

pub use backoff::*;
pub use describe::Described;
pub use mds::*;
pub use mds_client::*;
pub use mgr::*;
pub use mon_session::*;
pub use op_code::{OpCode, msg_flags, op_flags};
pub use osd_lease::*;
pub use osd_map::*;
pub use osd_mon::*;
pub use osd_op::{OpVec, OsdOp};
pub use osd_op_messages::{MOsdOp, MOsdOpReply};
pub use osd_peering::*;
pub use osd_ping::*;
pub use peer::*;
pub use relay::*;
pub use watch_notify::*;
