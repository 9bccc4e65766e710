//! Parts of the manager that need a client of the cluster.

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
