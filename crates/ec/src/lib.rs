//! Erasure codes: Reed–Solomon codes over GF(2⁸) whose coding chunks equal, byte by byte, those of Ceph's `jerasure` and
//! `isa` plugins for the same profile, and the arithmetic that lays an object out over `k` data and `m` coding shards.
//!
//! Pure: nothing here does I/O. The only `unsafe` of the crate lives in [`kernel`], which multiplies and adds long runs of
//! bytes with the instructions that the processor has.
//!
//! | module | holds |
//! | --- | --- |
//! | [`gf`] | one byte: addition, multiplication, inverse |
//! | [`matrix`] | generator matrices of each technique, inversion |
//! | [`kernel`] | runs of bytes: `dst ^= c · src` |
//! | [`codec`] | chunks: encode, rebuild lost ones, apply the difference of one chunk to a coding chunk |
//! | [`stripe`] | objects: which byte is in which shard, how long a shard is, what a write reads and writes |
//!
//! Invariants:
//! - any `k` of the `k + m` chunks give back all others (tested for every loss pattern of the supported shapes up to 6+4);
//! - all kernels give the same bytes (tested for every coefficient and for lengths around each vector width).
//!
//! Tests: `tests/are_bytes_those_of_ceph.rs`, and below `kernel` (`all_kernels_give_the_products_of_the_field`).

pub mod codec;
pub mod gf;
pub mod kernel;
pub mod matrix;
pub mod stripe;

pub use codec::{Codec, CodecError, Rebuild};
pub use matrix::Technique;
pub use stripe::Layout;
