//! Changes of `pg_num`.
//!
//! - `split`: the parent of a split
//! - `merge_source`: a PG that is merged into another one
//! - `merge_target`: the PG that takes over
//! - `index`: snapshot indexes of more than one page

pub(in crate::pg) mod index;
pub(in crate::pg) mod merge_source;
pub(in crate::pg) mod merge_target;
pub(in crate::pg) mod split;
