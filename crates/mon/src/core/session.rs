//! Sessions: who is connected to which role, and what it subscribed to.

use std::collections::BTreeMap;

use base::{AddrVec, AuthName, EntityKind, EntityName, Epoch, OsdId, Utime};
use wire::Features;

use super::access::Access;
use super::cluster_state::{Role, SessionInfo, SessionSummary};

/// A connection, as the host names it.
pub type ConnKey = u64;

/// Subscriptions of one session.
pub const MAX_SUBSCRIPTIONS: usize = 64;

/// What the messenger knows about a peer once it has signed in.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Kind it said it is when it connected. A daemon that fetches its configuration says "client" here.
    pub kind: EntityKind,
    /// Who it authenticated as.
    pub name: AuthName,
    /// Its instance.
    pub entity: EntityName,
    /// Addresses it listens on (or blank ones).
    pub addrs: AddrVec,
    /// Features both sides have.
    pub features: Features,
    /// Its global id.
    pub global_id: u64,
    /// Caps text at this role's service.
    pub caps: String,
    /// No caps are checked (auth none).
    pub allow_all: bool,
    /// Which of the two roles it connected to.
    pub role: Role,
}

/// A standing or one-time wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sub {
    /// Next version it wants.
    pub next: u64,
    /// Gone after one answer.
    pub onetime: bool,
}

/// One session.
#[derive(Debug)]
pub struct Session {
    /// The peer.
    pub peer: Peer,
    /// What it may do.
    pub access: Access,
    /// Its subscriptions.
    pub subs: BTreeMap<String, Sub>,
    /// Newest OSD map sent.
    pub osd_epoch: Epoch,
    /// Host name it told with a subscription.
    pub hostname: String,
    /// Last configuration sent, to send only changes of it.
    pub config_sent: Option<BTreeMap<String, String>>,
    /// Manager role: daemon that opened a report session, service and name.
    pub mgr_daemon: Option<(String, String)>,
    /// When it opened.
    pub since: Utime,
}

impl Session {
    /// A fresh session.
    #[must_use]
    pub fn new(peer: Peer, now: Utime) -> Self {
        let access = if peer.allow_all { Access::all() } else { Access::parse(peer.role, &peer.name, &peer.caps) };
        Self {
            peer,
            access,
            subs: BTreeMap::new(),
            osd_epoch: Epoch(0),
            hostname: String::new(),
            config_sent: None,
            mgr_daemon: None,
            since: now,
        }
    }

    /// The OSD this is the running session of; a daemon's short first session says it is a client and is none.
    #[must_use]
    pub fn osd(&self) -> Option<OsdId> {
        let p = &self.peer;
        if p.kind != EntityKind::OSD || p.name.kind != EntityKind::OSD || p.entity.kind != EntityKind::OSD {
            return None;
        }
        let n: i32 = p.name.id.parse().ok()?;
        (i64::from(n) == p.entity.num && n >= 0).then_some(OsdId(n))
    }

    /// Service and name, if this is the report session of a service daemon (rgw, rbd-mirror, …).
    #[must_use]
    pub fn service_daemon(&self) -> Option<(String, String)> {
        let kind = self.peer.kind;
        self.mgr_daemon.clone().filter(|(service, _)| kind == EntityKind::CLIENT && service != kind.word())
    }

    /// For the commands.
    #[must_use]
    pub fn info(&self, role: Role) -> SessionInfo {
        SessionInfo {
            name: self.peer.name.clone(),
            entity: self.peer.entity,
            addrs: self.peer.addrs.clone(),
            access: self.access.clone(),
            features: self.peer.features,
            role,
        }
    }

    /// For `mon sessions` and `features`.
    #[must_use]
    pub fn summary(&self) -> SessionSummary {
        SessionSummary {
            name: self.peer.name.clone(),
            entity: self.peer.entity,
            addrs: self.peer.addrs.clone(),
            features: self.peer.features,
            global_id: self.peer.global_id,
            since: self.since,
        }
    }
}
