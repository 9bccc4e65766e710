//! What the manager role knows and plans about block images: their I/O as OSDs report it, and what is due when. Pure; the
//! host ([`crate::host::images`]) joins it to a client of the cluster.

pub mod rates;
pub mod schedule;
