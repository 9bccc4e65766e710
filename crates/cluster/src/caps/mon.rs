//! Capabilities at a monitor: services, commands with conditions on their arguments, and the profiles of daemons and
//! clients.
//!
//! ```text
//! caps   = grant { ("," | ";") grant }
//! grant  = "allow" perms ["fsname" NAME] [network] | ["allow"] "profile" NAME [network]
//!        | "allow" "service" NAME perms [network] | "allow" "command" NAME ["with" condition {condition}] [network]
//! ```
//!
//! Permissions without a service open every service but `config-key`.

use super::constraint::{CommandArgs, Constraint, all_hold};
use super::lex::{Cursor, Lex, first_of, grants};
use super::network::{Network, allows};
use super::{CapsError, Need, Perms};
use base::{AuthName, EntityAddr};

/// Parsed capabilities of one session.
#[derive(Clone, Debug, Default)]
pub struct MonCaps {
    grants: Vec<Grant>,
}

#[derive(Clone, Debug)]
struct Grant {
    what: What,
    network: Option<Network>,
    /// File system whose maps the session sees; empty for all.
    fs_name: String,
}

#[derive(Clone, Debug)]
enum What {
    /// Every service except config-key.
    Everywhere(Perms),
    Service(String, Perms),
    Command(String, Vec<Constraint>),
    Profile(Vec<What>),
}

impl MonCaps {
    /// Parses the capability string of the entity `name`. Error: the place where the string is not understood.
    pub fn parse(text: &str, name: &AuthName) -> Result<Self, CapsError> {
        Ok(Self { grants: grants("mon", text, |c| grant(c, name))? })
    }

    /// Capabilities that allow everything.
    #[must_use]
    pub fn allow_all() -> Self {
        Self { grants: vec![Grant { what: What::Everywhere(Perms::ANY), network: None, fs_name: String::new() }] }
    }

    /// True if some grant is `allow *`.
    #[must_use]
    pub fn is_allow_all(&self) -> bool {
        self.grants.iter().any(|g| g.is_allow_all() && g.network.is_none())
    }

    /// True if `need` at `service` is allowed to a client at `addr`. `command` is the prefix of a command with
    /// its arguments, empty for other requests.
    #[must_use]
    pub fn is_capable(
        &self,
        service: &str,
        command: &str,
        args: &(impl CommandArgs + ?Sized),
        need: Need,
        addr: &EntityAddr,
    ) -> bool {
        let here = self.grants.iter().filter(|g| allows(&g.network, addr));
        // `allow *` also opens config-key; permissions for every service do not.
        need.met_by_all(
            here.map(|g| if g.is_allow_all() { Perms::ANY } else { g.what.allowed(service, command, args) }),
        )
    }

    /// True if a grant of a service alone (not of a single command) meets `need`.
    #[must_use]
    pub fn allows_service(&self, service: &str, need: Need, addr: &EntityAddr) -> bool {
        self.is_capable(service, "", &[], need, addr)
    }

    /// File systems to which the session is limited; empty for no limit.
    pub fn fs_names(&self) -> impl Iterator<Item = &str> {
        let limited = !self.grants.iter().any(|g| g.fs_name.is_empty() && !matches!(g.what, What::Command(..)));
        self.grants.iter().filter(move |g| limited && !g.fs_name.is_empty()).map(|g| g.fs_name.as_str())
    }
}

impl Grant {
    fn is_allow_all(&self) -> bool {
        matches!(self.what, What::Everywhere(Perms::ANY))
    }
}

impl What {
    fn allowed(&self, service: &str, command: &str, args: &(impl CommandArgs + ?Sized)) -> Perms {
        match self {
            Self::Profile(all) => Perms(all.iter().fold(0, |have, w| have | w.allowed(service, command, args).0)),
            Self::Service(s, p) if s == service => *p,
            Self::Command(c, cs) if c == command && all_hold(cs, args) => Perms::ALL,
            // Stored keys are secrets: only `*`, which the caller has handled, or a grant for config-key opens
            // them.
            Self::Everywhere(p) if service != "config-key" => *p,
            _ => Perms::default(),
        }
    }
}

fn grant(c: &mut Cursor<'_>, name: &AuthName) -> Lex<Grant> {
    let done = |c: &mut Cursor<'_>, what: What, fs_name: String| Ok(Grant { what, network: c.network(), fs_name });
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
                let fs = c.optional(|c| {
                    c.spaces()?;
                    c.lit("fsname")?;
                    c.equals_or_spaces()?;
                    c.word()
                });
                done(c, What::Everywhere(p), fs.unwrap_or_default())
            },
            &|c| {
                c.optional(|c| {
                    c.lit("allow")?;
                    c.spaces()
                });
                c.lit("profile")?;
                c.equals_or_spaces()?;
                let profile = c.word()?;
                done(c, What::Profile(expand(&profile, name)), String::new())
            },
            &|c| {
                c.lit("allow")?;
                c.spaces()?;
                c.lit("service")?;
                c.equals_or_spaces()?;
                let service = c.word()?;
                c.spaces()?;
                let p = c.rwx()?;
                done(c, What::Service(service, p), String::new())
            },
            &|c| {
                c.lit("allow")?;
                c.spaces()?;
                c.lit("command")?;
                c.equals_or_spaces()?;
                let command = c.word()?;
                let conditions = c.optional(|c| {
                    c.spaces()?;
                    c.lit("with")?;
                    c.spaces()?;
                    c.constraints()
                });
                done(c, What::Command(command, conditions.unwrap_or_default()), String::new())
            },
        ],
    )
}

const R: Perms = Perms(Perms::R);
const W: Perms = Perms(Perms::W);
const RW: Perms = Perms(Perms::R | Perms::W);

fn service(s: &str, p: Perms) -> What {
    What::Service(s.to_owned(), p)
}

fn command(c: &str) -> What {
    What::Command(c.to_owned(), Vec::new())
}

fn command_with(c: &str, cs: Vec<Constraint>) -> What {
    What::Command(c.to_owned(), cs)
}

/// Read access to the maps that clients need.
fn client_maps() -> Vec<What> {
    vec![service("mon", R), service("osd", R), service("pg", R)]
}

/// Allows a client to blocklist one dead instance (address with nonce), under the old and the new name of the
/// command. It excludes networks: Ceph's own profiles also match `range`, which lets a client blocklist every
/// other one.
fn blocklist_one() -> Vec<What> {
    [("osd blocklist", "blocklistop"), ("osd blacklist", "blacklistop")]
        .into_iter()
        .map(|(cmd, op)| {
            let one = Constraint::regex("addr", "^[^/]+/[0-9]+$");
            command_with(cmd, vec![Constraint::equal(op, "add"), one, Constraint::absent("range")])
        })
        .collect()
}

/// Access to the daemon's own part of the key store.
fn daemon_private(name: &AuthName) -> Vec<What> {
    let prefix = format!("daemon-private/{name}/");
    ["get", "put", "set", "exists", "delete"]
        .into_iter()
        .map(|op| command_with(&format!("config-key {op}"), vec![Constraint::prefix("key", &prefix)]))
        .collect()
}

/// Reading the maps and creating keys of one kind of entity.
fn bootstrap(entity: &str, caps: &[(&str, &str)]) -> Vec<What> {
    let mut cs = vec![Constraint::prefix("entity", entity)];
    cs.extend(caps.iter().map(|(k, v)| Constraint::equal(k, v)));
    vec![service("mon", R), service("osd", R), command("mon getmap"), command_with("auth get-or-create", cs)]
}

/// Expression for the `caps_osd` that a bootstrap-rbd key may grant.
const RBD_CAPS: &str = "^([ ,]*profile(=|[ ]+)['\"]?rbd[^ ,'\"]*['\"]?([ ]+pool(=|[ ]+)['\"]?[^,'\"]+['\"]?)?)+$";

/// Rights of a profile; empty for an unknown one.
fn expand(profile: &str, name: &AuthName) -> Vec<What> {
    match profile {
        "read-only" => vec![What::Everywhere(R)],
        "read-write" => vec![What::Everywhere(RW)],
        "mon" => [vec![service("mon", Perms::ALL), service("log", Perms::ALL)], daemon_private(name)].concat(),
        "osd" => [
            vec![service("osd", Perms::ALL), service("mon", R), service("pg", RW), service("log", W)],
            daemon_private(name),
        ]
        .concat(),
        "mds" => [
            vec![
                service("mds", Perms::ALL),
                service("mon", R),
                service("osd", R),
                command("osd pool rmsnap"),
                command("osd blocklist"),
                command("osd blacklist"),
                service("log", W),
            ],
            daemon_private(name),
        ]
        .concat(),
        "mgr" => [
            vec![
                service("mgr", Perms::ALL),
                service("log", RW),
                service("mon", RW),
                service("mds", RW),
                service("fs", RW),
                service("osd", RW),
                // Keys of the daemons that the manager deploys.
                service("auth", Perms::ALL),
                service("config-key", RW),
                service("config", RW),
                // Commands for device health and telemetry.
                command("smart"),
                command("heap"),
                command("dump_mempools"),
            ],
            daemon_private(name),
        ]
        .concat(),
        "bootstrap-osd" => vec![
            service("mon", R),
            service("osd", R),
            command("mon getmap"),
            command("osd new"),
            command("osd purge-new"),
        ],
        "bootstrap-mds" => {
            bootstrap("mds.", &[("caps_mon", "allow profile mds"), ("caps_osd", "allow rwx"), ("caps_mds", "allow")])
        }
        "bootstrap-mgr" => bootstrap("mgr.", &[("caps_mon", "allow profile mgr")]),
        "bootstrap-rgw" => bootstrap("client.rgw.", &[("caps_mon", "allow rw"), ("caps_osd", "allow rwx")]),
        "bootstrap-rbd" | "bootstrap-rbd-mirror" => {
            let mon = if profile == "bootstrap-rbd" { "profile rbd" } else { "profile rbd-mirror" };
            vec![
                service("mon", R),
                command_with(
                    "auth get-or-create",
                    vec![
                        Constraint::prefix("entity", "client."),
                        Constraint::equal("caps_mon", mon),
                        Constraint::regex("caps_osd", RBD_CAPS),
                    ],
                ),
            ]
        }
        "fs-client" => [vec![service("mds", R)], client_maps()].concat(),
        "simple-rados-client" => client_maps(),
        // This profile is newer than the command's old name, so it lacks that name.
        "simple-rados-client-with-blocklist" => [client_maps(), blocklist_one().into_iter().take(1).collect()].concat(),
        // Ceph's read-only profile may blocklist as well. Readers take no locks, so they do not need that here.
        "rbd" | "rbd-read-only" => {
            let blocklist = if profile == "rbd-read-only" { Vec::new() } else { blocklist_one() };
            [client_maps(), blocklist].concat()
        }
        "rbd-mirror" => [
            client_maps(),
            blocklist_one(),
            vec![command_with("config-key get", vec![Constraint::prefix("key", "rbd/mirror/")])],
        ]
        .concat(),
        // Rights of the peer cluster's daemon in this cluster.
        "rbd-mirror-peer" => [
            client_maps(),
            blocklist_one(),
            vec![
                command_with("config-key get", vec![Constraint::regex("key", "rbd/mirror/[^/]+")]),
                command_with("config-key set", vec![Constraint::prefix("key", "rbd/mirror/peer/")]),
            ],
        ]
        .concat(),
        "cephfs-mirror" => [
            vec![service("mds", R)],
            client_maps(),
            vec![command_with("config-key get", vec![Constraint::prefix("key", "cephfs/mirror/peer/")])],
        ]
        .concat(),
        "crash" => vec![service("mon", R)],
        "role-definer" => vec![service("mon", R), service("auth", Perms::ALL)],
        _ => Vec::new(),
    }
}
