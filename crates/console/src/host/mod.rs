//! Sockets, TLS and the monitor: [`server`] serves HTTP for modules of the manager role, [`app`] is the console's module.

pub mod app;
pub mod certificate;
pub mod server;
pub mod users;
