//! Encodings of Ceph's public protocol: primitives, structures and messages.
//!
//! No I/O. Layouts: integers are little-endian; `str`/`blob` are a u32 length and bytes; versioned structures begin
//! with `{u8 version, u8 compat, u32 length}`. Invariants:
//!  1. Decoding never panics and never allocates more than the length of the input justifies.
//!  2. `decode(encode(x)) == x` for every type and every supported feature set.
//!
//! | module | contents |
//! | --- | --- |
//! | `codec` | primitives: reading from and writing to byte buffers |
//! | `features` | feature bits that select encodings |
//! | `frame` | messages above the messenger: a header and up to three payload segments |
//! | `macros` | declarations of structures and messages by field lists, for both directions |
//! | `msg` | messages, one file per family of the protocol |
//! | `types` | structures in messages |
//!
//! Tests: `crates/hostile/tests/hostile_bytes.rs` (1, families `messages`, `structures`),
//! `tests/are_captured_messages_read_to_the_end_and_written_alike.rs` (2), `tests/do_layouts_without_a_capture_hold.rs`
//! (2).

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
