//! The manager role.
//!
//! [`stats`] adds up what OSDs and MDS daemons report, [`images`] is what the role knows of block images.

#![forbid(unsafe_code)]

pub mod images;
pub mod stats;
