//! Encodings of Ceph's public protocol: primitives, structures and messages.
//!
//! Pure. Layout facts: little-endian integers; `str`/`blob` = u32 length + bytes; versioned structures carry
//! `{u8 version, u8 compat, u32 length}`. Invariants:
//!  1. Decoding never panics and never allocates more than the input's own length justifies.
//!  2. `decode(encode(x)) == x` for every type at every feature set it supports.

#![forbid(unsafe_code)]

pub mod codec;
pub mod features;
pub mod frame;
mod macros;
pub mod msg;
pub mod types;

pub use codec::{Decode, DecodeError, Encode, Reader, Writer};
pub use features::Features;
pub use frame::{Message, MsgHeader, WireMessage};
