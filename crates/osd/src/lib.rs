//! The OSD: a pure core and the host that joins it to the reactor.

#![forbid(unsafe_code)]

pub mod core;
pub mod host;
