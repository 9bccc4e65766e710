//! Admission and decoding of messages on a client's session. Executing them is the caller's task.
//!
//! Invariant: a message is decoded only if its sender may send it ([`crate::core::admission`]).

use super::admission::{Door, Lane, Refusal};
use auth::Principal;
use wire::msg::{MCommand, MOsdMap, MOsdOp};
use wire::{DecodeError, Message, WireMessage as _};

/// Decoded request of a client's message.
#[derive(Debug)]
pub enum Request {
    /// An operation. [`crate::core::shard::Shard::op`] checks its caps.
    Op(Box<MOsdOp>),
    /// A command of a principal that may run all commands.
    Command,
    /// Maps from another OSD.
    Maps(Box<MOsdMap>),
    /// No request: an acknowledgement of a backoff, or a watcher's ping.
    Nothing,
}

/// Reason why a message is not executed.
#[derive(Debug)]
pub enum NotTaken {
    /// The sender may not send this message.
    Refused(Refusal),
    /// An operation that can't be decoded. The session must end, since its client would wait for the answer.
    BadOp(DecodeError),
    /// Maps that can't be decoded.
    BadMaps(DecodeError),
}

/// Admits and decodes a message that came to the public address. Error: the sender may not send it, or it does not
/// decode.
pub fn from_client(door: &Door, who: &Principal, m: &Message) -> Result<Request, NotTaken> {
    door.admit(Lane::Public, m.header.kind, who).map_err(NotTaken::Refused)?;
    match m.header.kind {
        MOsdOp::KIND => MOsdOp::from_message(m).map(|op| Request::Op(Box::new(op))).map_err(NotTaken::BadOp),
        MCommand::KIND => Ok(Request::Command),
        MOsdMap::KIND => MOsdMap::from_message(m).map(|m| Request::Maps(Box::new(m))).map_err(NotTaken::BadMaps),
        _ => Ok(Request::Nothing),
    }
}
