//! Parts of the manager that need a client of the cluster.
//!
//! | module | contents |
//! | --- | --- |
//! | `devices` | health data of drives, asked of OSDs and kept as samples among the config keys |
//! | `drift` | hosts that became worse, asked of one OSD at each address, for `HOST_DRIFT` |
//! | `files` | `fs perf stats`: MDS daemons count operations of clients for as long as clients run the command |
//! | `forward` | commands that a monitor passes on to a separate manager |
//! | `images` | the manager role's work on RBD images: the commands `rbd task …` and `progress` |
//! | `volumes` | contents of file systems: subvolumes, clones, the trash, scheduled snapshots |

mod devices;
mod drift;
mod files;
pub mod forward;
pub mod images;
#[cfg(test)]
mod tests;
mod volumes;

pub use devices::LIGHTS;
pub use drift::DRIFT;
