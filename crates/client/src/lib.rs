//! RADOS client: targeting and resending of operations, tickets.
//!
//! `core` does no I/O: it has the monitor session, and the objecter that targets and resends operations. `host`
//! connects them to sockets on a reactor. It serves our own commands, and the OSD when it reads the source of
//! `copy-from`.

#![forbid(unsafe_code)]

pub mod core;
pub mod host;

pub use host::{Client, ClientError, CommandReply, ObjectRef, Options};
