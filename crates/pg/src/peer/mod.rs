//! Messages between the machines of one PG: the body of `MPgPeer`.
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

pub use body::{Attrs, Body, Grants, ReadItem};
pub(crate) use body::{PUSH, encode_write};
pub use orphan::{Orphan, ask, orphan};
pub use payload::{Payload, may_be_sent};
pub use piece::Place;
pub use reserve::ReserveMsg;
pub use txn::{decode_ops, encode_ops};
