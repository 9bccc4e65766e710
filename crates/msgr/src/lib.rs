//! Ceph's messenger, msgr2.1, as pure state machines: bytes in, messages out.
//!
//! [`Connection`] is one end: the host feeds it bytes, polls its events and writes its slices. [`session`] decides when
//! a peer of a lossless session connects again. [`v1`] is the server end of the older protocol, for clients that have no
//! other, and [`Machine`] either of both. Sockets, timers and the session table belong to the host. Layout and order of
//! frames: docs/design/msgr.md.

#![forbid(unsafe_code)]

mod assembly;
pub mod conn;
mod ending;
pub mod error;
pub mod frame;
mod handshake;
mod machine;
pub mod policy;
pub mod pool;
pub mod rx;
pub mod secure;
pub mod session;
pub mod tx;
pub mod v1;

pub use conn::{Config, Connection, Event, Identity, Peer};
pub use error::Error;
pub use machine::{Machine, Protocol};
pub use policy::{FrameLimits, Policies, Policy};
pub use pool::BufPool;
pub use session::{Request, SessionView, Verdict};
