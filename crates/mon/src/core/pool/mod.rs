//! Pools: operations of clients, the number of PGs, purged snapshots, and the balancer's moves.
//!
//! | module | contents |
//! | --- | --- |
//! | `balance` | the balancer's run: it gathers the placement of all PGs in steps, chooses moves, and changes the map |
//! | `growth` | keeps PGs with objects where they are when OSDs join; the balancer moves them later, at its pace |
//! | `op` | POOLOP messages: pools and snapshots for librados' older calls and for librbd |
//! | `pg_num` | the manager's part of changing a pool's number of PGs |
//! | `purged` | purged snapshots of pools: their sets in memory, and the records of the sets |
//!
//! Pools that reach a quota get their flags in `core::tick` (`tick_full_pools`); the OSDs' part is `pg::pg::ops::vector`.

pub mod balance;
pub(crate) mod growth;
pub(super) mod op;
pub(crate) mod pg_num;
pub(super) mod purged;
