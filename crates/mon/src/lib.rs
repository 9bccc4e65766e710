//! The monitor and manager roles: a pure core and its host.
//!
//! [`core`] is the state machine: sessions, subscriptions, proposals, reports of OSDs. [`command`] serves the
//! commands. [`host`] joins them to the network, the clock and the state store. The statistics of the manager role
//! are in the crate `mgr`. Design: docs/design/mon-state.md.

#![forbid(unsafe_code)]

pub mod command;
pub mod core;
pub mod host;
pub mod metrics;
