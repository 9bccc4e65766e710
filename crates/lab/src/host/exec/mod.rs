//! Executes a plan: makes clusters and pools, runs loads, samples, disturbs, and stores the results in a folder.
//!
//! | module | contents |
//! | --- | --- |
//! | `clean` | removes the leftovers of a laboratory that was killed: processes, files, network namespaces |
//! | `conf` | the `ceph.conf` of a cluster that the laboratory makes, valid for Ceph's daemons and for Belemnite's |
//! | `daemon` | daemons of a cluster, started on this machine or on a host, and stopped in order |
//! | `deploy` | makes a cluster of Belemnite's or Ceph's daemons, as a plan describes it |
//! | `disturb` | disturbances of a cluster during a measurement, and the repair afterwards |
//! | `facts` | facts about the machine that are recorded with a measurement |
//! | `limits` | CPU and disk limits by control groups, version 2 or 1, whichever the machine has |
//! | `made` | pools and erasure-code profiles that a run makes in a cluster, and their removal |
//! | `measure` | one measurement: a load on a pool, with process, machine and cluster statistics |
//! | `nodes` | nodes: network namespaces on a bridge |
//! | `observe` | samples processes, the machine and the cluster while a cell is measured |
//! | `random` | random values of a run: keys, identities, names |
//! | `remote` | hosts over ssh: a shell on each, and daemons that end with their ssh connection |
//! | `run` | a run: every cell of a plan in turn, with results in a folder from which an interrupted run resumes |
//! | `services` | services on a pool: S3 by Ceph's `radosgw`, files by `ceph-mds` and `ceph-fuse` |
//! | `system` | the system under test, and the place of its programs |
//! | `tool` | command lines of the load tools |
//!
//! Invariants:
//!  1. A cell with a `result.json` is done; the run never measures it again.
//!  2. Everything started here ends with the executor. The kernel kills the daemons; dropping a cluster removes its
//!     files and control groups. If the executor itself is killed, `lab clean` removes them.
//!
//! Tests: `interop/tests/lab.sh`.

pub mod clean;
mod conf;
mod daemon;
mod deploy;
mod disturb;
mod facts;
mod limits;
mod made;
mod measure;
mod nodes;
mod observe;
mod random;
mod remote;
pub mod run;
mod services;
mod system;
mod tool;

use super::command::{Cancel, CommandError};
use super::control::ControlError;
use std::path::{Path, PathBuf};

/// Reads a cluster's configuration and returns the client options for it.
pub type Connect<'a> = dyn Fn(&Path) -> Result<client::Options, String> + Sync + 'a;

/// Environment of the executor.
pub struct Tools<'a> {
    /// The `belemnite` program.
    pub binary: PathBuf,
    /// Makes client options from a cluster's configuration.
    pub connect: &'a Connect<'a>,
    /// Set when the run is to end.
    pub cancel: &'a Cancel,
    /// Directory of the cluster directories.
    pub work: PathBuf,
    /// Keep the cluster directories after the clusters have stopped.
    pub keep: bool,
    /// The monitor's port; the other daemons use ports above it.
    pub port: u16,
}

/// Error of executing a plan.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// A file or directory could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A program failed or could not be run.
    #[error(transparent)]
    Command(CommandError),
    /// A monitor command failed.
    #[error(transparent)]
    Control(ControlError),
    /// A limit could not be set.
    #[error(transparent)]
    Limit(#[from] limits::LimitError),
    /// A program is not installed.
    #[error("{program} is not installed in {} (Debian: apt install ceph-common ceph-osd ceph-mon ceph-mgr fio)", root.display())]
    Missing {
        /// The program's name.
        program: String,
        /// Root directory that was searched.
        root: PathBuf,
    },
    /// A cluster could not be made.
    #[error("{what}\n{log}")]
    Cluster {
        /// The step that failed.
        what: Box<ExecError>,
        /// Last lines of its daemons' logs.
        log: String,
    },
    /// The plan asks for something impossible.
    #[error("{0}")]
    Plan(String),
    /// The run was cancelled by Ctrl-C.
    #[error("cancelled")]
    Cancelled,
}

impl From<ControlError> for ExecError {
    fn from(e: ControlError) -> Self {
        match e {
            ControlError::Cancelled => Self::Cancelled,
            e => Self::Control(e),
        }
    }
}

impl ExecError {
    /// Whether the run was cancelled; then nothing more is tried.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        match self {
            Self::Cancelled => true,
            Self::Cluster { what, .. } => what.is_cancelled(),
            _ => false,
        }
    }
}
