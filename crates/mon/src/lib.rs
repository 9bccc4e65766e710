//! The monitor and manager roles: a pure core and its host.
//!
//! [`core`] is the machine: sessions, subscriptions, proposals, what OSDs report. [`command`] serves the commands,
//! [`host`] joins all of it to the network, the clock and the state store. What the manager role adds up and knows is in the
//! crate `mgr`. Design: docs/design/mon-state.md.

#![forbid(unsafe_code)]

pub mod command;
pub mod core;
pub mod host;
