//! What is to happen once a proposal is committed.

use base::{Epoch, OsdId};
use bytes::Bytes;
use wire::Message;

use super::cluster_state::CommandEffect;
use super::session::ConnKey;

/// Where the answer to a command goes.
#[derive(Clone, Debug)]
pub(super) struct CommandReply {
    /// Connection.
    pub conn: ConnKey,
    /// Transaction number of the request.
    pub tid: u64,
    /// The request's type, from which that of the answer follows.
    pub kind: u16,
    /// The command's text, echoed by the monitor.
    pub cmd: Vec<wire::types::Text>,
}

/// One thing to do.
#[derive(Clone, Debug)]
pub(super) enum Waiter {
    /// Answer a command.
    Command {
        /// Where.
        to: CommandReply,
        /// Result.
        rc: i32,
        /// Status line.
        rs: String,
        /// Output.
        out: Bytes,
        /// Side effects.
        effects: Vec<CommandEffect>,
    },
    /// Handle a message again, from the start.
    Again(ConnKey, Message),
    /// Answer a pool operation.
    PoolOp {
        /// Where.
        conn: ConnKey,
        /// Transaction number.
        tid: u64,
        /// Result.
        rc: i32,
        /// Payload.
        data: Option<Bytes>,
    },
    /// Send maps above this epoch.
    Maps(ConnKey, Epoch),
    /// An OSD has booted: log it and send maps above this epoch.
    Booted(ConnKey, OsdId, Epoch),
    /// Send a ready message.
    Send(ConnKey, Message),
}
