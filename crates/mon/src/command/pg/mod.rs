//! Commands on PGs: what they are and where, and requests to their OSDs.

pub(super) mod dump;
pub(super) mod getmap;
pub(super) mod scrub;
pub(super) mod show;
