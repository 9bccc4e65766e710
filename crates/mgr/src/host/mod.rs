//! Parts of the manager that need a client of the cluster.

pub mod images;
