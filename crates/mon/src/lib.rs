//! The monitor and manager roles: a pure core and its host.
//!
//! [`core`] is the machine: sessions, subscriptions, proposals, what OSDs report. [`command`] serves the commands,
//! [`stats`] adds up what the OSDs report to the manager role, [`images`] is what that role knows of block images, [`host`] joins all of it to the network, the clock and the
//! state store. Design: docs/design/mon-state.md.

#![forbid(unsafe_code)]

pub mod command;
pub mod core;
pub mod host;
pub mod images;
pub mod stats;
