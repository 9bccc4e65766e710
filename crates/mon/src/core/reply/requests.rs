//! Requests to the state store and to the host that are under way, by token.

use std::collections::BTreeMap;

use super::fetch::Gather;
use crate::core::propose::waiter::CommandReply;
use crate::state::ConnKey;

/// Requests under way.
pub(in crate::core) struct Requests {
    /// The newest token.
    token: u64,
    /// Reads of the state for sessions.
    reads: BTreeMap<u64, Gather>,
    /// Commands that the host answers.
    jobs: BTreeMap<u64, CommandReply>,
}

impl Default for Requests {
    fn default() -> Self {
        Self { token: 1 << 32, reads: BTreeMap::new(), jobs: BTreeMap::new() }
    }
}

impl Requests {
    /// A fresh token.
    pub(in crate::core) fn next_token(&mut self) -> u64 {
        self.token += 1;
        self.token
    }

    /// Adds a read with its token.
    pub(in crate::core) fn add_read(&mut self, token: u64, read: Gather) {
        self.reads.insert(token, read);
    }

    /// Takes the read that was answered.
    pub(in crate::core) fn take_read(&mut self, token: u64) -> Option<Gather> {
        self.reads.remove(&token)
    }

    /// The reads under way.
    pub(in crate::core) fn reads(&self) -> impl Iterator<Item = &Gather> {
        self.reads.values()
    }

    /// Adds a command that the host answers, and returns its token.
    pub(in crate::core) fn add_job(&mut self, to: CommandReply) -> u64 {
        let token = self.next_token();
        self.jobs.insert(token, to);
        token
    }

    /// Takes the command that the host answered.
    pub(in crate::core) fn take_job(&mut self, token: u64) -> Option<CommandReply> {
        self.jobs.remove(&token)
    }

    /// Number of commands that the host is to answer.
    pub(in crate::core) fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// Number of commands of a session that the host is to answer.
    pub(in crate::core) fn jobs_of(&self, conn: ConnKey) -> usize {
        self.jobs.values().filter(|j| j.conn == conn).count()
    }

    /// Forgets the commands of a session that closed.
    pub(in crate::core) fn forget(&mut self, conn: ConnKey) {
        self.jobs.retain(|_, to| to.conn != conn);
    }
}
