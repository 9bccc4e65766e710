//! The manager's work that needs a client of the cluster.

pub mod images;
