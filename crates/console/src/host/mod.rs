//! Sockets, TLS and the monitor: [`server`] serves HTTP for modules of the manager role, [`app`] is the console's module.
//!
//! `certificate` makes a self-signed certificate for TLS. `users` has the clients of the monitor, one for each user's key.

pub mod app;
pub mod certificate;
pub mod server;
pub mod users;
