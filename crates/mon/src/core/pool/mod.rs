//! Pools: operations of clients, the number of PGs, purged snapshots, and the balancer's moves.

pub mod balance;
pub(crate) mod growth;
pub(super) mod op;
pub(crate) mod pg_num;
pub(super) mod purged;
