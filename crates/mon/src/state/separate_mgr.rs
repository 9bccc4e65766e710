//! The separate manager's own words: its metadata, and the commands of its modules.

use std::collections::BTreeMap;

use wire::types::HealthCheck;

use crate::json::J;

/// Words of the active separate manager.
#[derive(Clone, Debug, Default)]
pub struct SeparateMgr {
    metadata: BTreeMap<String, String>,
    /// Commands by their words.
    commands: BTreeMap<String, MgrCommand>,
    /// The manager that was active before this process began has not been asked for its commands.
    is_to_be_asked: bool,
    /// Alerts that the manager raised.
    checks: BTreeMap<String, HealthCheck>,
}

impl SeparateMgr {
    /// The words at the start of a process, which knows none and has not asked.
    pub(crate) fn at_start() -> Self {
        Self { is_to_be_asked: true, ..Self::default() }
    }

    /// The active manager's metadata.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// The offered commands by their words.
    #[must_use]
    pub fn commands(&self) -> &BTreeMap<String, MgrCommand> {
        &self.commands
    }

    /// The alerts that the manager raised.
    #[must_use]
    pub fn checks(&self) -> &BTreeMap<String, HealthCheck> {
        &self.checks
    }

    /// Sets the metadata of the active manager.
    pub(crate) fn set_metadata(&mut self, metadata: BTreeMap<String, String>) {
        self.metadata = metadata;
    }

    /// Sets the commands that the active manager offers.
    pub(crate) fn offers(&mut self, commands: BTreeMap<String, MgrCommand>) {
        self.commands = commands;
    }

    /// Sets the alerts of the active manager.
    pub(crate) fn set_checks(&mut self, checks: &BTreeMap<String, HealthCheck>) {
        self.checks.clone_from(checks);
    }

    /// The active manager has changed, and tells its commands once it is available; or none is there any more.
    pub(crate) fn changed(&mut self, is_there: bool) {
        self.is_to_be_asked = false;
        self.checks.clear();
        self.commands.clear();
        if !is_there {
            self.metadata.clear();
        }
    }

    /// True once after the start, if the manager that was active before has not told its commands to this process.
    pub(crate) fn take_question(&mut self) -> bool {
        self.commands.is_empty() && std::mem::take(&mut self.is_to_be_asked)
    }
}

/// A command that the active manager offers. Plain data.
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
