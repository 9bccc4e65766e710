//! Messages between the machines of one PG: the body of `MPgPeer`.
//!
//! | module | contents |
//! | --- | --- |
//! | `body` | the bodies of messages between the copies of a PG |
//! | `orphan` | messages for a PG of which this OSD has no copy |
//! | `payload` | the data segment of a message: payloads of writes, and bulk metadata |
//! | `piece` | positions of pieces in messages that are sent in pieces |
//! | `reserve` | messages between OSDs about reservations of recovery and backfill: the body of `peer::Body::Reserve` |
//! | `txn` | encoding of object changes between OSDs: metadata in the body, payloads of writes by reference beside it |
//!
//! Invariants:
//!  1. Within an interval every message may arrive twice. Receivers answer the second one too, and change nothing.
//!  2. Decoding allocates no more than the message's own size justifies.
//!
//! Tests: `tests/replicated.rs`, `tests/hostile_peers.rs`.

mod body;
mod orphan;
mod payload;
mod piece;
mod reserve;
mod txn;

pub use body::{Attrs, Body, Grants, ReadItem, peek_object};
pub(crate) use body::{PUSH, encode_write};
pub use orphan::{Orphan, ask, orphan};
pub use payload::{Payload, may_be_sent};
pub use piece::Place;
pub use reserve::ReserveMsg;
pub use txn::{decode_ops, encode_ops};
