//! One placement group as a pure state machine: [`Event`]s in, [`Effect`]s out, the store passed in with each call.
//!
//! | module | contents |
//! | --- | --- |
//! | `event`, `effect` | inputs of a PG that the host hands in, and outputs that it carries out |
//! | `pg` | the machine: state, inputs, and their dispatch to the parts |
//! | `exec` | planning of one operation vector against a view of the object |
//! | `object` | metadata of one object: object info, snapshot set, and the cache of both |
//! | `log` | the PG log: one record per write in the write's own transaction, and the index of reqids |
//! | `info` | `PgInfo`: the stored state of a PG beside its objects and log |
//! | `stats` | counters of a PG, and the change that one operation makes to them |
//! | `interval` | runs of epochs in which a PG's mapping does not change, and the PG's memory of past ones |
//! | `map` | the part of an OSD map that one PG needs |
//! | `shards`, `per_peer` | the copies of a PG (whole ones, or shards with an index), and maps by copy or by OSD |
//! | `peer` | messages between the machines of one PG: the body of `MPgPeer` |
//! | `merge_msg` | messages between PGs of one OSD while `pg_num` shrinks |
//! | `moving` | messages between the two machines of a PG while it moves to another reactor |
//! | `sweep` | removal of a collection that belongs to no machine, as after a move |
//! | `lease` | read leases between OSDs, as the PGs of one reactor see them |
//! | `watch` | watches and notifies of a PG while it is active |
//! | `scrub` | the parts of scrub that need no PG: reports of copies, their comparison, findings |
//! | `copies`, `long` | `copy_from` operations that hold content, and class calls in parts; a reactor bounds both |
//! | `keep` | length of a PG's log: the OSD's target for log records, divided among its PGs |
//! | `limits` | all bounds of a PG |
//! | `meter` | counters of the operations of all PGs of a reactor, for `perf dump` |
//! | `pace` | pacing of background work on a reactor, so that it does not slow down clients |
//! | `reserve` | reservations of recovery and backfill on one OSD, shared by its reactors |
//!
//! Invariants:
//!  1. An operation's changes and its log record form one store transaction. The reply leaves when that transaction
//!     is durable, and no reply shows data that is not durable yet.
//!  2. Operations of one session on one object take effect and are answered in the order they came.
//!  3. Behaviour depends only on events, `now` and the store, never on hashing order or a clock.
//!
//! Tests: `tests/order.rs` (1, 2), `tests/peering.rs` and `tests/scenario.rs` (3), which compare runs with recorded
//! ones.
//!
//! Design: docs/design/pg.md.

#![forbid(unsafe_code)]

mod copies;
mod effect;
mod event;
mod exec;
pub mod info;
pub mod interval;
pub mod keep;
pub mod lease;
pub mod limits;
pub mod log;
mod long;
pub mod map;
mod merge_msg;
pub mod meter;
mod moving;
pub mod object;
pub mod pace;
pub mod peer;
mod per_peer;
mod pg;
pub mod reserve;
pub mod scrub;
mod shards;
pub mod stats;
mod sweep;
pub mod watch;

pub use cls::Room;
pub use copies::Copies;
pub use effect::{Effect, Fetch, Lane, LogLevel};
pub use event::{CreateInfo, Event, FetchId, Fetched, OpRequest, SessionId};
pub use exec::{ClassCall, OpAccess, copy_source, index_key as snap_index_key, op_access};
pub use long::{Caller, LongCalls};
pub use map::{MapView, MergeMeta, PoolView};
pub use merge_msg::{MergeMsg, SourceState};
pub use moving::{Handover, Move, Postponed, SECOND, pg_of, staging_cid};
pub use pg::{Child, Pg, PgConfig, Scrubs, State, answer_for_none, is_intake};
pub use shards::{PeerId, ShardSet};
pub use stats::OpDump;
pub use sweep::{Sweep, Swept};
pub use watch::WatchDump;
