//! The life of an operation, and of the PG's internal writes.
//!
//! - `admit`: checks of an arriving operation
//! - `backoff`: telling clients to hold operations that can't be served
//! - `held`: operations that wait for the map or the PG, limited per sender
//! - `space`: operations that wait for space
//! - `ended`: operations of ended sessions
//! - `plan`: order per object, and waiting for the store
//! - `long`: class calls that run in parts
//! - `copy`: content of other objects, for `copy_from`
//! - `vector`: from duplicate check to transaction
//! - `commit`: submission, and replies when durable
//! - `expire`: removal of watches
//! - `trim`: removal of clones of removed snapshots

pub(in crate::pg) mod admit;
pub(in crate::pg) mod backoff;
pub(in crate::pg) mod commit;
pub(in crate::pg) mod copy;
pub(in crate::pg) mod ended;
pub(in crate::pg) mod expire;
pub(in crate::pg) mod held;
pub(in crate::pg) mod long;
pub(in crate::pg) mod plan;
pub(in crate::pg) mod space;
pub(in crate::pg) mod trim;
pub(in crate::pg) mod vector;
