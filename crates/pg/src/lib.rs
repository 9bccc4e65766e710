//! One placement group as a pure state machine: [`Event`]s in, [`Effect`]s out, the store passed in with each call.
//!
//! `pg` is the machine: life, intervals, admission, planning, commit. `exec` plans operation vectors against a view
//! of one object. `object` is an object's metadata. `log` and `info` are the stored state of the PG. `watch` has
//! watches and notifies, `scrub` compares copies, `interval` and `map` hold the machine's view of the cluster.
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
