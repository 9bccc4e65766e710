//! The right that each message and each subscription needs: the tables behind [`MonCore::may`](crate::core::MonCore),
//! which alone decides whether a session may do something.
//!
//! Each message type is in one of the two tables below, for the monitor or for the manager role; any other type is no
//! message of that role. The tables generate the enums that the core matches on, so a type without a stated right
//! cannot be handled. Commands state their rights in their own tables ([`crate::command::Cmd::needs`]);
//! [`commands`](crate::command::commands) iterates over them.
//!
//! Rights are Ceph's (`Monitor::dispatch_op`, `Monitor::handle_subscribe` and the services' `preprocess_*`), and
//! stricter where Ceph asks for nothing; each such row says so.

use base::EntityKind;
use cluster::caps::Need;
use wire::{Message, WireMessage};

use crate::state::Role;

/// The right that a sender must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// An authenticated session.
    Session,
    /// All of these permissions, at services of the role.
    Caps(&'static [(&'static str, Need)]),
    /// The running session of an OSD: the peer authenticated as the OSD that it announces, and has `osd x`.
    Osd,
    /// A session that authenticated as a daemon of this kind, with `x` at the service of that name.
    Daemon(EntityKind),
    /// The session of the manager that the map shows active: name, global id and `mgr x`.
    ActiveManager,
    /// A right for each item in the message, which its handler checks: subscriptions ([`Topic::right`]), commands
    /// ([`crate::command::Cmd::needs`]), pool operations and removal of snapshots.
    PerItem,
}

impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Session => f.write_str("it needs a session"),
            Self::Caps(all) => {
                f.write_str("it needs caps")?;
                for (i, (service, need)) in all.iter().enumerate() {
                    write!(f, "{} '{service} {need}'", if i == 0 { "" } else { " and" })?;
                }
                Ok(())
            }
            Self::Osd => f.write_str("it needs the running session of an OSD, with caps 'osd x'"),
            Self::Daemon(kind) => write!(f, "it needs the key of a {0} with caps '{0} x'", kind.word()),
            Self::ActiveManager => f.write_str("it needs the session of the active manager"),
            Self::PerItem => f.write_str("the right depends on each item in the message"),
        }
    }
}

/// A message type with its right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The type number.
    pub kind: u16,
    /// Ceph's name of the type.
    pub name: &'static str,
    /// The right that the sender needs.
    pub right: Right,
    /// True if the message may change the state: it waits while a commit is in flight.
    pub writes: bool,
}

macro_rules! messages {
    ($(#[$doc:meta])* $name:ident { $($t:ident: $right:expr, $writes:ident;)* }) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[allow(missing_docs)] // Each is the message of that name.
        pub enum $name { $($t(Box<wire::msg::$t>),)* }

        impl $name {
            /// All messages of the role.
            pub fn rows() -> impl Iterator<Item = Row> {
                const KINDS: &[(u16, Right, bool)] =
                    &[$((<wire::msg::$t as WireMessage>::KIND, $right, messages!(@ $writes))),*];
                KINDS.iter().map(|(kind, right, writes)| Row {
                    kind: *kind,
                    name: wire::msg::registry::name(*kind),
                    right: *right,
                    writes: *writes,
                })
            }

            /// The row of a type; `None` if the role has no such message.
            #[must_use]
            pub fn row(kind: u16) -> Option<Row> {
                Self::rows().find(|r| r.kind == kind)
            }

            /// Decodes a message of the role.
            pub(in crate::core) fn decode(m: &Message) -> wire::codec::Result<Option<Self>> {
                $(if m.header.kind == <wire::msg::$t as WireMessage>::KIND {
                    return Ok(Some(Self::$t(Box::new(wire::msg::$t::from_message(m)?))));
                })*
                Ok(None)
            }
        }
    };
    (@ reads) => { false };
    (@ writes) => { true };
}

const OSD_R: Right = Right::Caps(&[("osd", Need::R)]);
const PG_R: Right = Right::Caps(&[("pg", Need::R)]);

messages! {
    /// Messages to the monitor.
    AtMonitor {
        MPing: Right::Session, reads;
        MMonGetMap: Right::Session, reads;
        MAuth: Right::Session, reads;
        // The configuration of the session's own entity; another entity's needs `config r` (Ceph sends any without a
        // right).
        MGetConfig: Right::PerItem, reads;
        MMonSubscribe: Right::PerItem, reads;
        MMonCommand: Right::PerItem, reads;
        MCommand: Right::PerItem, reads;
        MMonGetVersion: Right::Caps(&[("mon", Need::R)]), reads;
        MStatfs: PG_R, reads;
        MGetPoolStats: PG_R, reads;
        // Ceph asks for nothing.
        MMonGetOsdMap: OSD_R, reads;
        // Ceph asks for nothing.
        MMonGetPurgedSnaps: OSD_R, reads;
        MLog: Right::Caps(&[("log", Need::W)]), writes;
        MPoolOp: Right::PerItem, writes;
        MOsdBoot: Right::Osd, writes;
        MOsdFailure: Right::Osd, writes;
        MOsdAlive: Right::Osd, writes;
        MOsdMarkMeDown: Right::Osd, writes;
        MOsdMarkMeDead: Right::Osd, writes;
        MOsdFull: Right::Osd, writes;
        MOsdPgTemp: Right::Osd, writes;
        MOsdPgCreated: Right::Osd, writes;
        MOsdPgReadyToMerge: Right::Osd, writes;
        MOsdBeacon: Right::Osd, writes;
        MMgrBeacon: Right::Daemon(EntityKind::MGR), writes;
        MMonMgrReport: Right::ActiveManager, writes;
        MMdsBeacon: Right::Daemon(EntityKind::MDS), writes;
        MMdsLoadTargets: Right::Daemon(EntityKind::MDS), writes;
        // The same right as for the command `osd pool rmsnap`.
        MRemoveSnaps: Right::PerItem, writes;
    }
}

messages! {
    /// Messages to the manager.
    AtManager {
        // Any authenticated peer may report as a service; the handler checks its names.
        MMgrOpen: Right::Session, reads;
        MMgrReport: Right::Session, reads;
        MMgrClose: Right::Session, reads;
        // PG statistics count only from an OSD's own session.
        MPgStats: Right::Osd, reads;
        MMgrCommand: Right::PerItem, reads;
        MCommand: Right::PerItem, reads;
    }
}

/// All messages of a role.
pub fn messages(role: Role) -> Vec<Row> {
    match role {
        Role::Mgr => AtManager::rows().collect(),
        Role::Mon | Role::Tell => AtMonitor::rows().collect(),
    }
}

/// The row of a message at a role.
pub(in crate::core) fn row(role: Role, kind: u16) -> Option<Row> {
    match role {
        Role::Mgr => AtManager::row(kind),
        Role::Mon | Role::Tell => AtMonitor::row(kind),
    }
}

/// A topic of subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// `osdmap`
    OsdMap,
    /// `osd_pg_creates`
    PgCreates,
    /// `monmap`
    MonMap,
    /// `mgrmap`
    MgrMap,
    /// `config`
    Config,
    /// `servicemap`
    ServiceMap,
    /// `fsmap`
    FsMap,
    /// `fsmap.user`
    FsMapUser,
    /// `mdsmap`, `mdsmap.ID`
    MdsMap,
    /// `log-LEVEL`
    Log,
    /// `kv:PREFIX`
    Kv,
    /// `mgrdigest`
    MgrDigest,
}

impl Topic {
    /// All topics.
    pub const ALL: [Self; 12] = [
        Self::OsdMap,
        Self::PgCreates,
        Self::MonMap,
        Self::MgrMap,
        Self::Config,
        Self::ServiceMap,
        Self::FsMap,
        Self::FsMapUser,
        Self::MdsMap,
        Self::Log,
        Self::Kv,
        Self::MgrDigest,
    ];

    /// The topic of a subscription's name; `None` if there is none.
    #[must_use]
    pub fn of(what: &str) -> Option<Self> {
        Some(match what {
            "osdmap" => Self::OsdMap,
            "osd_pg_creates" => Self::PgCreates,
            "monmap" => Self::MonMap,
            "mgrmap" => Self::MgrMap,
            "config" => Self::Config,
            "servicemap" => Self::ServiceMap,
            "fsmap" => Self::FsMap,
            "fsmap.user" => Self::FsMapUser,
            "mdsmap" => Self::MdsMap,
            "mgrdigest" => Self::MgrDigest,
            w if w.starts_with("mdsmap.") => Self::MdsMap,
            w if w.starts_with("kv:") => Self::Kv,
            w => {
                crate::state::log::Prio::from_word(w.strip_prefix("log-")?)?;
                Self::Log
            }
        })
    }

    /// An example of a subscription's name for the topic.
    #[must_use]
    pub fn example(self) -> &'static str {
        match self {
            Self::OsdMap => "osdmap",
            Self::PgCreates => "osd_pg_creates",
            Self::MonMap => "monmap",
            Self::MgrMap => "mgrmap",
            Self::Config => "config",
            Self::ServiceMap => "servicemap",
            Self::FsMap => "fsmap",
            Self::FsMapUser => "fsmap.user",
            Self::MdsMap => "mdsmap",
            Self::Log => "log-info",
            Self::Kv => "kv:mgr/",
            Self::MgrDigest => "mgrdigest",
        }
    }

    /// The right that a subscriber needs (`Monitor::handle_subscribe`): `mon r` for all topics but the monmap and the
    /// session's own configuration.
    #[must_use]
    pub fn right(self) -> Right {
        match self {
            Self::MonMap | Self::Config => Right::Session,
            Self::MgrMap | Self::ServiceMap | Self::Log => Right::Caps(&[("mon", Need::R)]),
            Self::OsdMap => Right::Caps(&[("mon", Need::R), ("osd", Need::R)]),
            Self::FsMap | Self::FsMapUser | Self::MdsMap => Right::Caps(&[("mon", Need::R), ("mds", Need::R)]),
            // Ceph asks for `osd w` only; but only the OSD has use for it.
            Self::PgCreates => Right::Osd,
            // Ceph asks for `mon r` only, and so gives stored secrets to every reader of the map.
            Self::Kv => Right::Caps(&[("mon", Need::R), ("config-key", Need::R)]),
            // Ceph asks for `mon r` only.
            Self::MgrDigest => Right::Daemon(EntityKind::MGR),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_named() {
        for t in Topic::ALL {
            assert_eq!(Topic::of(t.example()), Some(t));
        }
        for w in ["", "log-", "log-nope", "kv", "osdmap2"] {
            assert_eq!(Topic::of(w), None, "{w}");
        }
    }

    #[test]
    fn a_message_has_one_row() {
        for role in [Role::Mon, Role::Mgr] {
            let rows = messages(role);
            for (i, r) in rows.iter().enumerate() {
                assert_ne!(r.name, "unknown");
                assert!(rows.iter().skip(i + 1).all(|o| o.kind != r.kind), "{} twice", r.name);
                assert_eq!(row(role, r.kind), Some(*r));
            }
        }
    }
}
