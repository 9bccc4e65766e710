//! Sessions as commands see them: the sender of a command, and the list of open sessions.

use std::collections::{BTreeMap, BTreeSet};

use base::{AddrVec, AuthName, EntityName, OsdId, Utime};
use wire::Features;

use super::access::Principal;

/// A connection's key, chosen by the host.
pub type ConnKey = u64;

/// The role that a command was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The monitor (`MON_COMMAND`).
    Mon,
    /// The manager (`MGR_COMMAND`).
    Mgr,
    /// The process itself (`ceph tell mon.x`, `ceph tell mgr.x`).
    Tell,
}

/// The session of a command's sender.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// The sender's identity and rights.
    pub principal: Principal,
    /// The sender's entity instance.
    pub entity: EntityName,
    /// The addresses that the sender announces.
    pub addrs: AddrVec,
    /// The features of both sides, which select encodings.
    pub features: Features,
    /// The role that the session is connected to.
    pub role: Role,
    /// The front monitor that relays the session; `None` for a direct connection.
    pub by: Option<String>,
}

/// A client or daemon session as `mon sessions` and `features` show it (volatile).
#[derive(Clone, Debug)]
pub struct SessionSummary {
    /// The authenticated entity.
    pub name: AuthName,
    /// The entity instance.
    pub entity: EntityName,
    /// The peer's addresses.
    pub addrs: AddrVec,
    /// The features that the peer announced.
    pub features: Features,
    /// The global id of the peer.
    pub global_id: u64,
    /// Time at which the session opened.
    pub since: Utime,
    /// The front monitor that relays the session; `None` for a direct connection.
    pub by: Option<String>,
}

/// Open sessions. Not stored.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    all: BTreeMap<ConnKey, SessionSummary>,
    /// Sessions of OSDs with the manager role, by OSD.
    of_osds: BTreeMap<OsdId, BTreeSet<ConnKey>>,
}

impl Sessions {
    /// The open sessions with the monitor.
    pub fn values(&self) -> impl Iterator<Item = &SessionSummary> {
        self.all.values()
    }

    /// Adds a session with the monitor, or replaces what was known of it.
    pub(crate) fn insert(&mut self, c: ConnKey, s: SessionSummary) {
        self.all.insert(c, s);
    }

    /// Adds a session of an OSD with the manager role.
    pub(crate) fn insert_osd(&mut self, osd: OsdId, c: ConnKey) {
        self.of_osds.entry(osd).or_default().insert(c);
    }

    /// Removes a session, which may be one of `osd` with the manager role.
    pub(crate) fn remove(&mut self, c: ConnKey, osd: Option<OsdId>) {
        self.all.remove(&c);
        if let Some(osd) = osd
            && let Some(all) = self.of_osds.get_mut(&osd)
        {
            all.remove(&c);
            if all.is_empty() {
                self.of_osds.remove(&osd);
            }
        }
    }

    /// The newest session of an OSD with the manager role, which gets requests.
    #[must_use]
    pub fn newest_of(&self, osd: OsdId) -> Option<ConnKey> {
        self.of_osds.get(&osd)?.last().copied()
    }
}
