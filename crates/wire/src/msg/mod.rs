//! Messages, one file per family of the protocol.
//!
//! Names are Ceph's with the abbreviations in camel case: `MOSDOp` is [`MOsdOp`]. The transaction number is part of the
//! message header, not of the front. Set it with [`crate::Message::with_tid`] and read it from the header; only
//! [`MOsdOp`] and [`MOsdOpReply`] have a field for it.

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
