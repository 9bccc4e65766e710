//! RADOS client: targeting, resend, tickets.
//!
//! `core` is pure: the session with the monitors and the objecter that targets and resends operations. `host` joins
//! them to sockets on a reactor; it serves our own commands, and the OSD for reading the source of a copy.

#![forbid(unsafe_code)]

pub mod core;
pub mod host;

pub use host::{Client, ClientError, ObjectRef, Options};
