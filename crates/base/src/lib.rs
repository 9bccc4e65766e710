//! Ids, epochs, time, addresses, checksums, I/O buffers and tables by PG, shared by every layer.
//!
//! Pure: nothing here does I/O or reads a clock. The only `unsafe` of the crate lives in [`buf`] and [`prefetch`].

pub mod addr;
pub mod buf;
pub mod counter;
pub mod crc;
pub mod device;
pub mod errno;
pub mod features;
pub mod flush;
pub mod hobject;
pub mod id;
pub mod ledger;
mod pgtable;
pub mod planted;
mod prefetch;
pub mod rng;
pub mod size;
pub mod sizes;
pub mod summed;
pub mod time;
mod unreached;

pub use addr::{AddrKind, AddrVec, EntityAddr};
pub use features::{FeatureWords, Newer};
pub use hobject::HObject;
pub use id::*;
pub use pgtable::PgTable;
pub use prefetch::{prefetch, prefetch_all};
pub use summed::{SUMMED_MIN, Summed};
pub use time::{Mono, Now, Utime};
pub use unreached::unreached;
