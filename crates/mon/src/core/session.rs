//! Sessions: who is connected to which role, and what it subscribed to.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use base::{AddrVec, AuthName, EntityKind, EntityName, Epoch, OsdId, Utime};
use cluster::caps::Need;
use wire::Features;

use super::access::{Access, Principal};
use super::cluster_state::{Role, SessionInfo, SessionSummary};
use super::rights::Right;

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
    /// Addresses it says it listens on (or blank ones).
    pub addrs: AddrVec,
    /// Where its socket comes from.
    pub socket: SocketAddr,
    /// Features both sides have.
    pub features: Features,
    /// Its global id.
    pub global_id: u64,
    /// Caps text at this role's service.
    pub caps: String,
    /// No caps are checked (auth none).
    pub allow_all: bool,
    /// End of the ticket it came with.
    pub expires: Utime,
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
    /// Who it is and what it may do.
    pub principal: Principal,
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
        let principal = Principal { name: peer.name.clone(), socket: peer.socket, access, expires: peer.expires };
        Self {
            peer,
            principal,
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

    /// True if the session has a right. [`Right::PerItem`] is asked for each item and [`Right::ActiveManager`] depends on
    /// the manager map, of which `active` is the manager: neither is given without it.
    #[must_use]
    pub fn has(&self, right: Right, active: (u64, &str)) -> bool {
        let p = &self.principal;
        let daemon = |kind: EntityKind| p.name.kind == kind && p.allows(kind.word(), Need::X);
        match right {
            Right::Session | Right::PerItem => true,
            Right::Caps(all) => all.iter().all(|(service, need)| p.allows(service, *need)),
            // Tickets for the manager carry caps of the manager, where an OSD has none.
            Right::Osd => self.osd().is_some() && (self.peer.role == Role::Mgr || p.allows("osd", Need::X)),
            Right::Daemon(kind) => daemon(kind),
            Right::ActiveManager => daemon(EntityKind::MGR) && active == (self.peer.global_id, p.name.id.as_str()),
        }
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
            principal: self.principal.clone(),
            entity: self.peer.entity,
            addrs: self.peer.addrs.clone(),
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
