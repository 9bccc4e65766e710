//! Test only: every family of decoders, fed with bytes from a peer or a disk that may hold anything.
//!
//! A [`Family`] is a function that takes bytes and must neither panic nor allocate more than its input justifies, and
//! seeds to start from, which come out of the golden vectors. `tests/hostile_bytes.rs` mutates the seeds for a bounded
//! time on stable Rust; `fuzz/` runs the same functions under libFuzzer.

pub mod families;
pub mod meter;
pub mod mutate;
pub mod vectors;

pub use families::{ALL, Family};
