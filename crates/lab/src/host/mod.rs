//! Modules with I/O: the generator's threads and connections, and the executor of plans.

pub mod build;
pub mod command;
pub mod control;
pub mod exec;
pub mod floor;
pub mod generator;
pub mod proc;
pub mod steps;
