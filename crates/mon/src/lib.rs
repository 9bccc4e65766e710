//! The monitor and manager roles: a pure core and its host.
//!
//! [`state`] is what the monitor knows, and the proposal under construction. [`command`] serves the commands on it.
//! [`core`] is the state machine above both: sessions, subscriptions, proposals, reports of OSDs. [`host`] joins it to
//! the network, the clock and the state store. The statistics of the manager role are in the crate `mgr`. Design:
//! docs/design/mon-state.md.
//!
//! | module | contents |
//! | --- | --- |
//! | `command` | commands of the monitor and manager roles |
//! | `core` | the monitor and manager roles as one pure state machine: events in, effects out, no I/O and no clock |
//! | `host` | the monitor daemon: one reactor that joins the core to the network, the clock and the state store |
//! | `json` | command output as a tree, rendered as `json`, `json-pretty` and `xml` |
//! | `metrics` | the cluster's metrics for Prometheus, with the names and labels of Ceph's module `prometheus` |
//! | `state` | the monitor's state, below the commands and the core: both use it, and it uses neither |

#![forbid(unsafe_code)]

pub mod command;
pub mod core;
pub mod host;
pub mod json;
pub mod metrics;
pub mod state;
