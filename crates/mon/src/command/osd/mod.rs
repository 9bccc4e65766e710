//! Commands on OSDs: their map and its texts, their life, weights and places, and flags that hold them.

pub(super) mod df;
pub(super) mod dump;
pub(super) mod flags;
pub(super) mod life;
pub(super) mod map;
pub(super) mod misc;
pub(super) mod report;
pub(super) mod reweight;
pub(super) mod safe;
pub(super) mod show;
pub(super) mod tree;
pub(super) mod upmap;
