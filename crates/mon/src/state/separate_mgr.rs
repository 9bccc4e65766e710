//! The separate manager's own words: its metadata, and the commands of its modules.

use std::collections::BTreeMap;

use wire::types::HealthCheck;

use crate::json::J;

/// Words of the active separate manager.
#[derive(Clone, Debug, Default)]
pub struct SeparateMgr {
    /// Its metadata.
    pub metadata: BTreeMap<String, String>,
    /// Its commands by their words.
    pub commands: BTreeMap<String, MgrCommand>,
    /// The manager that was active before this process began has not been asked for its commands.
    pub is_to_be_asked: bool,
    /// Alerts that it raised.
    pub checks: BTreeMap<String, HealthCheck>,
}

/// A command that the active manager offers.
#[derive(Clone, Debug)]
pub struct MgrCommand {
    /// Its signature, as clients take it.
    pub sig: J,
    /// One line of help.
    pub help: String,
    /// The service whose caps are checked.
    pub module: String,
    /// The permission needed: `r`, `rw` or `rwx`.
    pub perm: String,
    /// Ceph's flags, with that of the manager.
    pub flags: u64,
}
