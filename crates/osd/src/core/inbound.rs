//! What a message on a client's session asks for: judged, decoded, and not carried out yet.
//!
//! Invariant: nothing of a message is decoded before its sender may send it ([`crate::core::admission`]).

use super::admission::{Door, Lane, Refusal};
use auth::Principal;
use wire::msg::{MCommand, MOsdMap, MOsdOp};
use wire::{DecodeError, Message, WireMessage as _};

/// What a client's message asks for.
#[derive(Debug)]
pub enum Request {
    /// An operation; its caps are asked for by [`crate::core::shard::Shard::op`].
    Op(Box<MOsdOp>),
    /// A command of somebody who may run all of them.
    Command,
    /// Maps of another OSD.
    Maps(Box<MOsdMap>),
    /// Nothing: an acknowledgement of a backoff, or a watcher's ping.
    Nothing,
}

/// Why a message is not carried out.
#[derive(Debug)]
pub enum NotTaken {
    /// Its sender may not send it.
    Refused(Refusal),
    /// An operation that is not understood; the session ends, since its answer would be waited for.
    BadOp(DecodeError),
    /// Maps that are not understood.
    BadMaps(DecodeError),
}

/// Judges and decodes a message that came to the public address.
pub fn from_client(door: &Door, who: &Principal, m: &Message) -> Result<Request, NotTaken> {
    door.admit(Lane::Public, m.header.kind, who).map_err(NotTaken::Refused)?;
    match m.header.kind {
        MOsdOp::KIND => MOsdOp::from_message(m).map(|op| Request::Op(Box::new(op))).map_err(NotTaken::BadOp),
        MCommand::KIND => Ok(Request::Command),
        MOsdMap::KIND => MOsdMap::from_message(m).map(|m| Request::Maps(Box::new(m))).map_err(NotTaken::BadMaps),
        _ => Ok(Request::Nothing),
    }
}
