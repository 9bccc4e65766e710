//! Ceph's messenger, msgr2.1, as pure state machines: bytes in, messages out.
//!
//! [`Connection`] is one end: the host feeds it bytes, polls its events and writes its slices. [`session`] decides when
//! a peer of a lossless session connects again. [`v1`] is the server end of the older protocol, for clients that have no
//! other, and [`Machine`] either of both. Sockets, timers and the session table belong to the host. Layout and order of
//! frames: docs/design/msgr.md.
//!
//! | module | contents |
//! | --- | --- |
//! | `assembly` | assembling the body of a frame or message, whose length is known, out of input chunks |
//! | `conn` | one connection: the state machine above frames |
//! | `ending` | the end of a socket by an error |
//! | `error` | errors that close a connection |
//! | `frame` | frames: tags, preamble, epilogue and the payloads of control frames |
//! | `machine` | one end of a connection of either protocol |
//! | `policy` | session policies by type of peer, and the limits of every state of a connection |
//! | `pool` | pool of buffers for large frames |
//! | `rx` | input of a connection: turns bytes into verified (and decrypted) frames |
//! | `secure` | AES-128-GCM encryption of the two directions of a connection |
//! | `session` | session state that survives a socket, and the decision about a peer that connects again |
//! | `tx` | output of a connection: encodes frames into a queue of slices for vectored writes |
//! | `v1` | the server end of msgr1, Ceph's messenger before msgr2, for lossy clients |

#![forbid(unsafe_code)]

mod assembly;
pub mod conn;
mod ending;
pub mod error;
pub mod frame;
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
