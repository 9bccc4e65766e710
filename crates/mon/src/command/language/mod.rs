//! The language of commands: signatures and arguments in, trees, tables and outcomes out.

pub mod args;
pub(super) mod describe;
pub(crate) mod listing;
pub(super) mod outcome;
pub(super) mod render;
pub mod sig;
pub mod text;
