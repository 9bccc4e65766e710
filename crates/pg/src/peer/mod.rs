//! Messages between the machines of one PG: the body of `MPgPeer`.
//!
//! Invariants:
//!  1. Within an interval every message may arrive twice. Receivers answer the second one too, and change nothing.
//!  2. Decoding allocates no more than the message's own size justifies.

mod body;
mod orphan;
mod reserve;
mod txn;

pub use body::{Attrs, Body, Grants, ReadItem};
pub(crate) use body::{PUSH, encode_write};
pub use orphan::{Orphan, ask, orphan};
pub use reserve::ReserveMsg;
pub use txn::{decode_ops, encode_ops};

use bytes::{Bytes, BytesMut};

/// Joins payloads into one data segment; one payload is not copied.
#[must_use]
pub fn join(mut data: Vec<Bytes>) -> Bytes {
    match data.len() {
        0 => Bytes::new(),
        1 => data.swap_remove(0),
        _ => {
            let mut all = BytesMut::with_capacity(data.iter().map(Bytes::len).sum());
            for d in data {
                all.extend_from_slice(&d);
            }
            all.freeze()
        }
    }
}
