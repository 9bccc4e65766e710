//! Capabilities at a manager: services, modules and commands.
//!
//! ```text
//! caps   = grant { ("," | ";") grant }
//! grant  = "allow" perms [network] | ["allow"] "profile" NAME [condition {condition}] [network]
//!        | "allow" "service" NAME perms [network]
//!        | "allow" "module" NAME ["with" condition {condition}] perms [network]
//!        | "allow" "command" NAME ["with" condition {condition}] [network]
//! ```

use super::constraint::{CommandArgs, Constraint, all_hold};
use super::lex::{Cursor, Lex, first_of, grants};
use super::network::{Network, allows};
use super::{CapsError, Need, Perms};
use base::EntityAddr;

/// Parsed capabilities of one session.
#[derive(Clone, Debug, Default)]
pub struct MgrCaps {
    grants: Vec<Grant>,
}

#[derive(Clone, Debug)]
struct Grant {
    what: What,
    network: Option<Network>,
}

#[derive(Clone, Debug)]
enum What {
    Everywhere(Perms),
    Service(String, Perms),
    Module(String, Vec<Constraint>, Perms),
    Command(String, Vec<Constraint>),
    Nothing,
}

impl MgrCaps {
    /// Parses a capability string. Unlike the other services', an unknown profile is an error.
    pub fn parse(text: &str) -> Result<Self, CapsError> {
        Ok(Self { grants: grants("mgr", text, grant)? })
    }

    /// Capabilities that allow everything.
    #[must_use]
    pub fn allow_all() -> Self {
        Self { grants: vec![Grant { what: What::Everywhere(Perms::ANY), network: None }] }
    }

    /// True if some grant is `allow *`.
    #[must_use]
    pub fn is_allow_all(&self) -> bool {
        self.grants.iter().any(|g| g.is_allow_all() && g.network.is_none())
    }

    /// True if `need` is allowed to a client at `addr`: for a service, for a module, or for a command with
    /// arguments. Those that do not apply are empty.
    #[must_use]
    pub fn is_capable(
        &self,
        service: &str,
        module: &str,
        command: &str,
        args: &(impl CommandArgs + ?Sized),
        need: Need,
        addr: &EntityAddr,
    ) -> bool {
        let here = self.grants.iter().filter(|g| allows(&g.network, addr));
        need.met_by_all(here.map(|g| g.what.allowed(service, module, command, args)))
    }
}

impl Grant {
    fn is_allow_all(&self) -> bool {
        matches!(self.what, What::Everywhere(Perms::ANY))
    }
}

impl What {
    fn allowed(&self, service: &str, module: &str, command: &str, args: &(impl CommandArgs + ?Sized)) -> Perms {
        match self {
            Self::Everywhere(p) => *p,
            Self::Service(s, p) if s == service => *p,
            // When a command is given, its module checks the arguments itself.
            Self::Module(m, cs, p) if m == module && (!command.is_empty() || all_hold(cs, args)) => *p,
            Self::Command(c, cs) if c == command && all_hold(cs, args) => Perms::ANY,
            _ => Perms::default(),
        }
    }
}

fn grant(c: &mut Cursor<'_>) -> Lex<Grant> {
    first_of(
        c,
        &[
            &|c| {
                c.lit("allow")?;
                c.spaces()?;
                let p = c.rwx()?;
                if c.rest().starts_with(|x: char| x.is_ascii_alphanumeric()) {
                    return c.fail("the end of the permissions");
                }
                Ok(Grant { what: What::Everywhere(p), network: c.network() })
            },
            &|c| {
                c.optional(|c| {
                    c.lit("allow")?;
                    c.spaces()
                });
                c.lit("profile")?;
                c.equals_or_spaces()?;
                let start = *c;
                let profile = c.word()?;
                let conditions = conditions_after_space(c);
                match expand(&profile, conditions) {
                    Some(what) => Ok(Grant { what, network: c.network() }),
                    None => start.fail(super::UNKNOWN_PROFILE),
                }
            },
            &|c| {
                c.lit("allow")?;
                c.spaces()?;
                c.lit("service")?;
                c.equals_or_spaces()?;
                let service = c.word()?;
                c.spaces()?;
                Ok(Grant { what: What::Service(service, c.rwx()?), network: c.network() })
            },
            &|c| {
                c.lit("allow")?;
                c.spaces()?;
                c.lit("module")?;
                c.equals_or_spaces()?;
                let module = c.word()?;
                let conditions = with_conditions(c);
                c.spaces()?;
                Ok(Grant { what: What::Module(module, conditions, c.rwx()?), network: c.network() })
            },
            &|c| {
                c.lit("allow")?;
                c.spaces()?;
                c.lit("command")?;
                c.equals_or_spaces()?;
                let command = c.word()?;
                Ok(Grant { what: What::Command(command, with_conditions(c)), network: c.network() })
            },
        ],
    )
}

fn conditions_after_space(c: &mut Cursor<'_>) -> Vec<Constraint> {
    c.optional(|c| {
        c.spaces()?;
        c.constraints()
    })
    .unwrap_or_default()
}

fn with_conditions(c: &mut Cursor<'_>) -> Vec<Constraint> {
    c.optional(|c| {
        c.spaces()?;
        c.lit("with")?;
        c.spaces()?;
        c.constraints()
    })
    .unwrap_or_default()
}

/// Rights of a profile; `None` if it is unknown or has conditions on keys that it does not take.
fn expand(profile: &str, conditions: Vec<Constraint>) -> Option<What> {
    Some(match profile {
        "read-only" => What::Everywhere(Perms(Perms::R)),
        "read-write" => What::Everywhere(Perms(Perms::R | Perms::W)),
        "crash" => What::Command("crash post".to_owned(), Vec::new()),
        // Profiles that Ceph knows and that have no rights at a manager.
        "osd" | "mds" | "rgw" => What::Nothing,
        "rbd" | "rbd-read-only" => {
            if conditions.iter().any(|c| c.key != "pool" && c.key != "namespace") {
                return None;
            }
            let p = if profile == "rbd" { Perms::R | Perms::W } else { Perms::R };
            What::Module("rbd_support".to_owned(), conditions, Perms(p))
        }
        _ => return None,
    })
}
