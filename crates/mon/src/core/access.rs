//! What a session may do: capabilities at the role it connected to.

use std::collections::BTreeMap;

use base::{AuthName, EntityAddr};
use cluster::caps::{MgrCaps, MonCaps, Need};

use super::cluster_state::Role;

/// Capabilities at a monitor or at a manager.
#[derive(Clone, Debug)]
pub enum Access {
    /// At a monitor.
    Mon(MonCaps),
    /// At a manager.
    Mgr(MgrCaps),
}

impl Access {
    /// Everything is allowed.
    #[must_use]
    pub fn all() -> Self {
        Self::Mon(MonCaps::allow_all())
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
    #[must_use]
    pub fn allows(
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

    /// True if a manager's module may do `need` for a client at `addr`. With `args` (a pool, a namespace) the conditions
    /// of grants for modules count; an empty `command` asks for that.
    #[must_use]
    pub fn allows_module(
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
