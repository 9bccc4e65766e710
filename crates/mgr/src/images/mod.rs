//! Image I/O statistics and schedules of the manager role, without I/O. The host ([`crate::host::images`]) connects
//! them to a client of the cluster.
//!
//! | module | contents |
//! | --- | --- |
//! | `rates` | image I/O: the query sent to OSDs, and the sums and rates of their reports (`rbd perf image …`) |
//! | `schedule` | schedules of repeated work on images, by pool, namespace or image (`rbd … schedule`) |

pub mod rates;
pub mod schedule;
