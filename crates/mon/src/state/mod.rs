//! The monitor's state, below the commands and the core: both use it, and it uses neither.
//!
//! [`ClusterState`] is the committed state in memory, [`Pending`] the one proposal under construction. The other files
//! hold what these are made of, and decisions that need nothing else.
//!
//! Invariants:
//!  1. Nothing here names a session's messages or a command. The rules of the tree test the direction of imports.
//!  2. Functions here read the committed state and change only [`Pending`]; a commit changes the state.
//!
//! Tests: `xtask/tests/tidy/floors.rs` (1), the types (2): functions here get the state by `&`.

pub mod access;
pub(crate) mod balance;
pub mod clocks;
mod cluster_state;
pub mod config;
pub(crate) mod crash;
pub mod cuts;
pub mod fs;
pub mod kv;
pub mod log;
pub mod lost_tickets;
pub mod maps;
pub(crate) mod modules;
pub mod ops;
pub mod options;
pub(crate) mod osd;
mod pending;
pub(crate) mod pg_num;
pub mod records;
pub mod separate_mgr;
mod session;
pub mod wrong_keys;

pub(crate) use cluster_state::commit::{Durable, NewMap, Queues};
pub use cluster_state::{
    AuthEntry, ClusterState, CreatingPg, FsState, Mons, Mute, OsdState, RefusedDaemons, StateView, StoreAnswers,
    osdmap_blob,
};
pub use config::{ConfigChange, ConfigDb, ConfigKey};
pub use crash::CrashSummary;
pub use pending::{Changes, Pending};
pub use session::{ConnKey, Role, SessionInfo, SessionSummary, Sessions};
