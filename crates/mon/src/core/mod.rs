//! The monitor as a pure machine: events in, effects out, no I/O and no clock.

pub mod cluster_state;
pub mod log;
pub mod maps;
pub mod options;
