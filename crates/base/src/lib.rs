//! Ids, epochs, time, addresses, checksums and I/O buffers shared by every layer.
//!
//! Pure: nothing here does I/O or reads a clock. The only `unsafe` of the crate lives in [`buf`].

pub mod addr;
pub mod buf;
pub mod crc;
pub mod device;
pub mod errno;
pub mod hobject;
pub mod id;
pub mod planted;
pub mod rng;
pub mod time;

pub use addr::{AddrKind, AddrVec, EntityAddr};
pub use hobject::HObject;
pub use id::*;
pub use time::{Mono, Now, Utime};
