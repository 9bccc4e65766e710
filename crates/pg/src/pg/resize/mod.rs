//! What a change of `pg_num` does to a PG.
//!
//! - `split`: several PGs of one
//! - `merge_source`: a PG that is merged into another one
//! - `merge_target`: the PG that takes over
//! - `index`: snapshot indexes that are longer than a page

pub(in crate::pg) mod index;
pub(in crate::pg) mod merge_source;
pub(in crate::pg) mod merge_target;
pub(in crate::pg) mod split;
