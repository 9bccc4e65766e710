//! The monitor's state, below the commands and the core: both use it, and it uses neither.
//!
//! [`ClusterState`] is the committed state in memory, [`Pending`] the one proposal under construction. The other files
//! hold what these are made of, and decisions that need nothing else.
//!
//! | module | contents |
//! | --- | --- |
//! | `access` | the identity of a session's peer, and its access rights |
//! | `balance` | the balancer's decisions: whether it may work, its moves, the change of the map |
//! | `clocks` | the measured clock differences of the other monitors |
//! | `cluster_state` | the committed state in memory |
//! | `config` | the central configuration, and the options in it that apply to a daemon or client |
//! | `crash` | crash reports of daemons among the `config-key` entries, and their summaries |
//! | `cuts` | the cut links between OSDs; `core::osd::cuts` finds them |
//! | `device_life` | lives of devices among the `config-key` entries |
//! | `fs` | changes of the FSMap: one function each, and changes with their side effects |
//! | `kv` | the `config-key` store, with summaries of the crash reports and the lives of devices in it |
//! | `log` | the cluster log: the newest lines of each channel, for `ceph log last` and `log-*` subscribers |
//! | `lost_tickets` | clients of a state that has lost the keys of tickets |
//! | `maps` | encoded OSD map epochs: the range stored, the maps in memory, and the ranges to read for others |
//! | `modules` | modules of managers: those that always run, and those with an address of their own |
//! | `ops` | the op tracker: requests in flight and recent ones, for `dump_ops_in_flight` and `dump_historic_ops` |
//! | `options` | options of the monitor that a user may set, with Ceph's names and this program's defaults |
//! | `osd` | rules for the states of OSDs |
//! | `pending` | the one proposal under construction |
//! | `pg_num` | changes of a pool's number of PGs, one step each |
//! | `primaries` | primaries that are chosen by upmap: which clients and OSDs a map with them needs |
//! | `records` | the monitor's records in the state store: keys and values |
//! | `separate_mgr` | the separate manager's own words: its metadata, and the commands of its modules |
//! | `session` | sessions as commands see them: the sender of a command, and the list of open sessions |
//! | `wrong_keys` | daemons that come with a wrong key, for the alert `DAEMON_KEY_REFUSED` |
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
pub mod device_life;
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
pub mod primaries;
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
