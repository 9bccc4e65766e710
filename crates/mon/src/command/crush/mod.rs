//! Commands on the CRUSH map: nodes, rules, and what they look like.

pub(super) mod edit;
pub(super) mod rule;
pub(super) mod show;
