//! The outcome of a command: its answer, the time of the answer, and side effects for the core to carry out.

use std::collections::BTreeMap;

use base::{Epoch, OsdId, PoolId};
use bytes::Bytes;
use wire::Message;

use super::listing::Listing;
use crate::state::SessionInfo;

/// The time at which a command is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At once.
    Now,
    /// After the pending changes are committed.
    Committed,
    /// After a commit: the outcome is discarded and the command dispatched again, because it depends on another
    /// command of the same proposal.
    Retry,
    /// After a read: the outcome is discarded, the full map of the epoch read into `history`, and the command
    /// dispatched again.
    NeedMap(Epoch),
    /// After the host has done the job among the effects ([`CommandEffect::Job`]), which gives the answer.
    Host,
}

/// A side effect of a command, carried out with its answer.
#[derive(Clone, Debug)]
pub enum CommandEffect {
    /// Send to an OSD's manager session (`OSD_SCRUB2`, `OSD_FORCE_RECOVERY`).
    ToOsd(OsdId, Message),
    /// Read the stored state and compare it with the state in memory; the result goes to the cluster log.
    ScrubState,
    /// Drop PG statistics of a removed pool.
    ForgetPool(PoolId),
    /// Put these settings in force (`tell mon.x config set`).
    Settings(Box<cluster::settings::Settings>),
    /// Ask the host to stop the process gracefully (`tell mon.x …`).
    Restart,
    /// Hand work to the host, which gives the answer.
    Job(HostJob),
    /// Change the state of the balancer.
    Balancer(mgr::balance::BalancerChange),
    /// Note the program that carries out a rehearsed change; empty for none.
    Rehearsal(String),
}

/// A command that needs a client of the cluster, so the host runs it.
#[derive(Clone, Debug)]
pub struct HostJob {
    /// The words of the command.
    pub prefix: &'static str,
    /// The arguments as text.
    pub args: BTreeMap<String, String>,
    /// The sender's session.
    pub session: SessionInfo,
}

/// The outcome of a command.
#[derive(Clone, Debug)]
pub struct CommandOutcome {
    /// 0 or a negative errno.
    pub rc: i32,
    /// Status line (the CLI prints it to stderr).
    pub rs: String,
    /// Output.
    pub out: Bytes,
    /// Output that is made in pieces and takes the place of `out`.
    pub listing: Option<Box<Listing>>,
    /// The time of the answer.
    pub when: When,
    /// Side effects.
    pub effects: Vec<CommandEffect>,
}

impl CommandOutcome {
    /// Success with output, answered at once.
    #[must_use]
    pub fn output(out: impl Into<Bytes>) -> Self {
        Self { out: out.into(), ..Self::done("") }
    }

    /// Success with a status line, answered at once.
    #[must_use]
    pub fn done(rs: impl Into<String>) -> Self {
        Self { rc: 0, rs: rs.into(), out: Bytes::new(), listing: None, when: When::Now, effects: Vec::new() }
    }

    /// Success with a status line, answered after the commit.
    #[must_use]
    pub fn committed(rs: impl Into<String>) -> Self {
        Self { when: When::Committed, ..Self::done(rs) }
    }

    /// Failure with a status line, answered at once.
    #[must_use]
    pub fn fail(rc: i32, rs: impl Into<String>) -> Self {
        Self { rc, ..Self::done(rs) }
    }

    /// An outcome that the host gives once it has done `job`.
    #[must_use]
    pub fn host(job: HostJob) -> Self {
        Self { when: When::Host, effects: vec![CommandEffect::Job(job)], ..Self::done("") }
    }

    /// The outcome that dispatches the command again after the commit.
    #[must_use]
    pub fn retry() -> Self {
        Self { when: When::Retry, ..Self::done("") }
    }
}
