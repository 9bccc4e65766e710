//! The OSD: a pure core and the host that joins it to the reactor.

pub mod core;
pub mod host;
