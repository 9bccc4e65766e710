//! Messages, one file per family of the protocol.
//!
//! Names are Ceph's with the words spelled out: `MOSDOp` is [`MOsdOp`]. The transaction number travels in the message
//! header, not in the front: set it with [`crate::Message::with_tid`] and read it from the header, except for
//! [`MOsdOp`] and [`MOsdOpReply`], which hold it.

pub mod osd_op;
pub mod op_code;

pub use op_code::OpCode;
pub use osd_op::{MOsdOp, MOsdOpReply, OpVec, OsdOp};
