//! Commands on the CRUSH map: nodes, rules, and what they look like.
//!
//! | module | contents |
//! | --- | --- |
//! | `edit` | changing the CRUSH hierarchy, its weights, classes, tunables and weight sets |
//! | `rule` | making, renaming and removing CRUSH rules |
//! | `show` | commands that show the CRUSH map |

pub(super) mod edit;
pub(super) mod rule;
pub(super) mod show;
