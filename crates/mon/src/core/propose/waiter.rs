//! Actions that follow a commit.

use base::{Epoch, OsdId};
use bytes::Bytes;
use wire::Message;

use crate::command::CommandEffect;
use crate::state::ConnKey;

/// The address of the answer to a command. Plain data.
#[derive(Clone, Debug)]
pub(in crate::core) struct CommandReply {
    /// The connection that sent the command.
    pub conn: ConnKey,
    /// The transaction id of the request.
    pub tid: u64,
    /// The request's message type, which determines that of the answer.
    pub kind: u16,
    /// The command's text, echoed by the monitor.
    pub cmd: Vec<wire::types::Text>,
}

/// An action that waits for a commit.
#[derive(Clone, Debug)]
pub(in crate::core) enum Waiter {
    /// Answer a command.
    Command {
        /// The address of the answer.
        to: CommandReply,
        /// 0 or a negative errno.
        rc: i32,
        /// The status line.
        rs: String,
        /// The output.
        out: Bytes,
        /// The side effects.
        effects: Vec<CommandEffect>,
    },
    /// Handle a message again, from the start.
    Again(ConnKey, Message),
    /// Answer a pool operation.
    PoolOp {
        /// The connection that sent the operation.
        conn: ConnKey,
        /// The transaction id of the request.
        tid: u64,
        /// 0 or a negative errno.
        rc: i32,
        /// The payload of the answer.
        data: Option<Bytes>,
    },
    /// Send maps above this epoch.
    Maps(ConnKey, Epoch),
    /// Log the boot of an OSD and send it maps above this epoch.
    Booted(ConnKey, OsdId, Epoch),
    /// Send a ready message.
    Send(ConnKey, Message),
}
