//! The life of an operation, and of the writes that the PG makes by itself.
//!
//! - `admit`: what happens to one that arrives
//! - `backoff`: clients hold what cannot be served
//! - `held`: what waits for the map or the PG, bounded for each sender
//! - `plan`: order per object, and waiting for the store
//! - `vector`: from duplicate check to transaction
//! - `commit`: submitting, and answering when it is durable
//! - `expire`: watches whose time is up
//! - `trim`: clones of removed snapshots

pub(in crate::pg) mod admit;
pub(in crate::pg) mod backoff;
pub(in crate::pg) mod commit;
pub(in crate::pg) mod expire;
pub(in crate::pg) mod held;
pub(in crate::pg) mod plan;
pub(in crate::pg) mod trim;
pub(in crate::pg) mod vector;
