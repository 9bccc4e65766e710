//! The OSD: a pure core and the host that joins it to the reactor.
//!
//! `core` has the machines without I/O: the control machine, and the reactor with its PGs. `host` is the process: it joins
//! the machines to threads, sockets and the disk.

#![forbid(unsafe_code)]

pub mod core;
pub mod host;
