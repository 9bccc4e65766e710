//! Tests only: all families of decoders, with arbitrary bytes from a peer or a disk.
//!
//! A [`Family`] is a function that takes bytes and must neither panic nor allocate more than its input justifies, with
//! seeds from the golden vectors. `tests/hostile_bytes.rs` mutates the seeds for a bounded time on stable Rust; `fuzz/`
//! runs the same functions under libFuzzer.

pub mod families;
pub mod meter;
pub mod mutate;
pub mod vectors;

pub use families::{ALL, Family};
