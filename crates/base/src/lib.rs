//! Ids, epochs, time, addresses, checksums, I/O buffers and tables by PG, shared by every layer.
//!
//! Pure: nothing here does I/O or reads a clock. The only `unsafe` of the crate lives in [`buf`] and [`prefetch`].
//!
//! | module | contents |
//! | --- | --- |
//! | `addr` | addresses of entities: a socket address with protocol kind and nonce |
//! | `buf` | page-aligned buffers for direct I/O |
//! | `counter` | performance counters: definitions with the attributes that Ceph gives them, and values |
//! | `crc` | crc32c (Castagnoli) as Ceph uses it: the seed is the raw register, with no inversion at either end |
//! | `device` | interface between a store core and the engine that executes its device I/O |
//! | `errno` | linux error numbers that travel in replies, always as negative values |
//! | `features` | feature words of stored formats: how a program recognises what a newer one has written |
//! | `flush` | the part of a disk engine that decides what counts as durable, without the I/O |
//! | `hobject` | objects as placement sees them, in the order in which PGs list them |
//! | `id` | identifiers: epochs, OSDs, pools, PGs, snapshots, versions, entities, operations |
//! | `ledger` | the ledger of an operation: its time as a sum of named intervals, and a `Book` that adds ledgers up |
//! | `pgtable` | a map from PG to a number, small enough for the nearest CPU caches |
//! | `planted` | bugs planted on purpose, to prove that the simulator finds them |
//! | `prefetch` | hints to the CPU about memory that will be read soon |
//! | `rng` | a small seeded generator (xoshiro256**) for jitter, simulation and tests |
//! | `size` | sizes as people type and read them, in powers of 1024 |
//! | `sizes` | the table of sizes: what a request may have at each boundary between a client and the devices |
//! | `summed` | bytes that this process has summed, with the checksums of their blocks |
//! | `time` | times as values: pure code gets them as arguments and never asks a clock |
//! | `unreached` | cases that cannot occur |

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
