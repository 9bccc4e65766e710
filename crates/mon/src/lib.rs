//! The monitor and manager roles: a pure core and its host.
//!
//! [`state`] is what the monitor knows, and the proposal under construction. [`command`] serves the commands on it.
//! [`core`] is the state machine above both: sessions, subscriptions, proposals, reports of OSDs. [`host`] joins it to
//! the network, the clock and the state store. The statistics of the manager role are in the crate `mgr`. Design:
//! docs/design/mon-state.md.

#![forbid(unsafe_code)]

pub mod command;
pub mod core;
pub mod host;
pub mod json;
pub mod metrics;
pub mod state;
