//! Image I/O statistics and schedules of the manager role, without I/O. The host ([`crate::host::images`]) connects
//! them to a client of the cluster.

pub mod rates;
pub mod schedule;
