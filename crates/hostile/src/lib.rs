//! Tests only: all families of decoders, with arbitrary bytes from a peer or a disk.
//!
//! A [`Family`] is a function that takes bytes and must neither panic nor allocate more than its input justifies, with
//! seeds from the golden vectors. `tests/hostile_bytes.rs` mutates the seeds for a bounded time on stable Rust; `fuzz/`
//! runs the same functions under libFuzzer.
//!
//! | module | contents |
//! | --- | --- |
//! | `families` | families of decoders and players, with seeds for each |
//! | `meter` | measures the allocations of code, as the global allocator of a test binary |
//! | `mutate` | mutations that find decoder bugs: changed lengths and counts; pieces cut, duplicated and mixed |
//! | `vectors` | golden vectors as material for seeds: captured streams, their frames and messages |

pub mod families;
pub mod meter;
pub mod mutate;
pub mod vectors;

pub use families::{ALL, Family};
