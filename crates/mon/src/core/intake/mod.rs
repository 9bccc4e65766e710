//! Messages on their way in: those that wait for their turn, and those that wait for a commit.

pub(super) mod deferred;
pub mod turns;
