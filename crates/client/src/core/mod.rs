//! The pure parts of a client. Time comes in as an argument; effects go out as values.

pub mod maps;
pub mod mon;
pub mod objecter;
