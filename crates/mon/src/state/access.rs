//! The identity of a session's peer, and its access rights.

use base::{AuthName, EntityAddr};
use cluster::caps::{MgrCaps, MonCaps, Need};
use std::collections::BTreeMap;

use super::Role;

/// The authenticated identity of a session's peer, with its rights. Claims of the peer itself are not in it.
#[derive(Clone, Debug)]
pub struct Principal {
    /// The identity from the messenger's handshake.
    pub who: auth::Principal,
    /// The peer's rights at the role of the session: the caps of its ticket, or newer caps of the entity.
    pub access: Access,
}

impl Principal {
    /// A principal at `role` from the messenger's identity.
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

    /// True if a command of a manager module is allowed. With an empty `command` the conditions of grants for modules
    /// are compared with `args` (a pool, a namespace).
    #[must_use]
    pub fn allows_module(&self, module: &str, command: &str, args: &BTreeMap<String, String>, need: Need) -> bool {
        self.access.allows_module(module, command, args, need, &self.addr())
    }
}

/// Capabilities at a monitor or at a manager.
#[derive(Clone, Debug)]
pub enum Access {
    /// Capabilities at a monitor.
    Mon(MonCaps),
    /// Capabilities at a manager.
    Mgr(MgrCaps),
}

impl Access {
    /// True if all is allowed, from every address.
    #[must_use]
    pub fn is_allow_all(&self) -> bool {
        match self {
            Self::Mon(c) => c.is_allow_all(),
            Self::Mgr(c) => c.is_allow_all(),
        }
    }

    /// Access that allows everything.
    #[must_use]
    pub fn all() -> Self {
        Self::Mon(MonCaps::allow_all())
    }

    /// Access that allows nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::Mon(MonCaps::default())
    }

    /// Parses the caps of an entity's ticket or record. Malformed text allows nothing, and is logged.
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

    /// True if a client at `addr` may do `need` at `service`. `command` and `args` belong to a command, or are empty.
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

    /// The file systems that the client is limited to; empty for no limit.
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
