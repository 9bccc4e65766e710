//! Carries out a plan: makes clusters and pools, runs loads, watches, disturbs, and keeps everything in a folder.
//!
//! Invariants:
//!  1. A cell that has a `result.json` is done and is never measured again in that run.
//!  2. Everything started here ends with the executor: daemons by the kernel, files and control groups when a cluster is
//!     dropped, on every way out but a kill of the process; then `lab clean` finishes.

pub mod clean;
mod conf;
mod deploy;
mod disturb;
mod facts;
mod limits;
mod measure;
mod nodes;
mod observe;
pub mod run;
mod tool;

use super::command::{Cancel, CommandError};
use super::control::ControlError;
use std::path::{Path, PathBuf};

/// Signs in at the cluster of a configuration.
pub type Connect<'a> = dyn Fn(&Path) -> Result<client::Options, String> + Sync + 'a;

/// What the executor works with.
pub struct Tools<'a> {
    /// The `belemnite` program.
    pub binary: PathBuf,
    /// How clusters are reached.
    pub connect: &'a Connect<'a>,
    /// Set when the run is to end.
    pub cancel: &'a Cancel,
    /// Where clusters keep their files.
    pub work: PathBuf,
    /// Leave clusters' files there when they have stopped.
    pub keep: bool,
    /// The monitor's port; daemons use the ones above.
    pub port: u16,
}

/// Why something could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// A file or folder.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A program failed.
    #[error(transparent)]
    Command(CommandError),
    /// The cluster did not do as told.
    #[error(transparent)]
    Control(ControlError),
    /// A limit could not be set.
    #[error(transparent)]
    Limit(#[from] limits::LimitError),
    /// A program is not there.
    #[error("{program} is not installed in {} (Debian: apt install ceph-common ceph-osd ceph-mon ceph-mgr fio)", root.display())]
    Missing {
        /// Its name.
        program: String,
        /// Where it was looked for.
        root: PathBuf,
    },
    /// A cluster could not be made.
    #[error("{what}\n{log}")]
    Cluster {
        /// What failed.
        what: Box<ExecError>,
        /// The last lines of its daemons.
        log: String,
    },
    /// The plan asks for what cannot be done.
    #[error("{0}")]
    Plan(String),
    /// Ctrl-C.
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
    /// The run was cancelled: nothing more is to be tried.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        match self {
            Self::Cancelled => true,
            Self::Cluster { what, .. } => what.is_cancelled(),
            _ => false,
        }
    }
}
