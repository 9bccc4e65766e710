//! Who holds a session and what it may do.

use base::{AuthName, EntityAddr};
use cluster::caps::{MgrCaps, MonCaps, Need};
use std::collections::BTreeMap;

use super::cluster_state::Role;

/// Who is at the other end of a session, as authentication found it. What a peer says about itself is not in it.
#[derive(Clone, Debug)]
pub struct Principal {
    /// As the messenger made it where the handshake ended.
    pub who: auth::Principal,
    /// What it may do at the role it connected to: the caps it came with, or those it was given since.
    pub access: Access,
}

impl Principal {
    /// From what the messenger found, at a role.
    #[must_use]
    pub fn new(who: auth::Principal, role: Role) -> Self {
        let access = if who.caps.allow_all { Access::all() } else { Access::parse(role, &who.name, &who.caps.text()) };
        Self { who, access }
    }

    fn addr(&self) -> EntityAddr {
        self.who.socket_addr()
    }

    /// True if `need` at `service` is allowed.
    #[must_use]
    pub fn allows(&self, service: &str, need: Need) -> bool {
        self.access.allows(service, "", &BTreeMap::new(), need, &self.addr())
    }

    /// True if a command of `service` with these arguments is allowed.
    #[must_use]
    pub fn allows_command(&self, service: &str, command: &str, args: &BTreeMap<String, String>, need: Need) -> bool {
        self.access.allows(service, command, args, need, &self.addr())
    }

    /// True if a command of a manager's module is allowed. With an empty `command` the conditions of grants for modules
    /// count against `args` (a pool, a namespace).
    #[must_use]
    pub fn allows_module(&self, module: &str, command: &str, args: &BTreeMap<String, String>, need: Need) -> bool {
        self.access.allows_module(module, command, args, need, &self.addr())
    }
}

/// Capabilities at a monitor or at a manager.
#[derive(Clone, Debug)]
pub enum Access {
    /// At a monitor.
    Mon(MonCaps),
    /// At a manager.
    Mgr(MgrCaps),
}

impl Access {
    /// True if everything is allowed, from everywhere.
    #[must_use]
    pub fn is_allow_all(&self) -> bool {
        match self {
            Self::Mon(c) => c.is_allow_all(),
            Self::Mgr(c) => c.is_allow_all(),
        }
    }

    /// Everything is allowed.
    #[must_use]
    pub fn all() -> Self {
        Self::Mon(MonCaps::allow_all())
    }

    /// Nothing is allowed.
    #[must_use]
    pub fn none() -> Self {
        Self::Mon(MonCaps::default())
    }

    /// Parses the text of an entity's ticket or record. Text that does not parse allows nothing, and is logged.
    #[must_use]
    pub fn parse(role: Role, name: &AuthName, text: &str) -> Self {
        let (parsed, nothing) = match role {
            Role::Mgr => (MgrCaps::parse(text).map(Self::Mgr), Self::Mgr(MgrCaps::default())),
            Role::Mon | Role::Tell => (MonCaps::parse(text, name).map(Self::Mon), Self::Mon(MonCaps::default())),
        };
        parsed.unwrap_or_else(|e| {
            tracing::warn!("mon: caps of {name} do not parse and allow nothing: {e}");
            nothing
        })
    }

    /// True if `need` at `service` is allowed to a client at `addr`; `command` and its arguments are those of a command, or
    /// empty.
    fn allows(
        &self,
        service: &str,
        command: &str,
        args: &BTreeMap<String, String>,
        need: Need,
        addr: &EntityAddr,
    ) -> bool {
        match self {
            Self::Mon(c) => c.is_capable(service, command, args, need, addr),
            Self::Mgr(c) => c.is_capable(service, "", command, args, need, addr),
        }
    }

    /// File systems that a client is limited to; none: not limited.
    #[must_use]
    pub fn fs_names(&self) -> Vec<&str> {
        match self {
            Self::Mon(c) => c.fs_names().collect(),
            Self::Mgr(_) => Vec::new(),
        }
    }

    fn allows_module(
        &self,
        module: &str,
        command: &str,
        args: &BTreeMap<String, String>,
        need: Need,
        addr: &EntityAddr,
    ) -> bool {
        match self {
            Self::Mon(c) => c.is_capable("mgr", command, args, need, addr),
            Self::Mgr(c) => c.is_capable("mgr", module, command, args, need, addr),
        }
    }
}
