//! Plans of deployments: from an [inventory](Inventory) and the [facts](Facts) of hosts and cluster to the next
//! [stage](Stage) of steps.
//!
//! Nothing here does I/O. A caller probes the hosts ([`facts::PROBE`]), asks for the next stage, carries it out, and
//! probes again, until the facts are what the inventory says. So a run that was cut short goes on from what is there.
//! [`plan`] shows all stages at once, by the effects that steps have on facts.
//!
//! | module | contents |
//! | --- | --- |
//! | `conf` | texts of the configuration that hosts get |
//! | `facts` | facts of hosts and of the cluster, as a probe and the monitors tell them |
//! | `import` | inventories made from those of cephadm and ceph-ansible |
//! | `inventory` | the inventory: one TOML file that says what a cluster consists of |
//! | `next` | the next stage of a plan: rules in the order in which a cluster is made, changed and taken apart |
//! | `plan` | all stages of a plan, by the effects of their steps |
//! | `problem` | problems that keep a plan from going on, and notes beside it |
//! | `step` | steps of a plan: their words, their times, and their effects on facts |
//! | `upgrade` | upgrades: the release on all hosts, then monitors one by one, then OSDs by host |
//!
//! Invariants:
//!  1. A store is erased only if its OSD is out of the map, or its data is complete elsewhere.
//!  2. The monitors' state is made only if no host has a store of the cluster and the cluster was never made.
//!  3. A majority of the members of etcd, and a monitor, serve after each step.
//!  4. A device that holds anything is never given to an OSD.
//!  5. The steps of a stage do not depend on each other.
//!  6. The monitors' state moves as a whole while no monitor runs, and the old place serves until the new one does.
//!
//! Tests: `tests/plans.rs`.

#![forbid(unsafe_code)]

pub mod conf;
pub mod facts;
pub mod import;
pub mod inventory;
mod next;
mod plan;
mod problem;
mod step;
pub mod upgrade;

pub use facts::{Cluster, ClusterState, Facts, Home, HostFacts, Reach};
pub use inventory::{Inventory, InventoryError};
pub use next::moves::keeps_conf;
pub use next::{Next, Stage, next};
pub use plan::{Planned, plan};
pub use problem::{Problem, notes, problems};
pub use step::{Action, Step, Target};
