//! Sessions: who is connected to which role, and what it subscribed to.

use std::collections::BTreeMap;

use base::{AddrVec, EntityKind, EntityName, Epoch, OsdId, Utime};
use cluster::caps::Need;
use wire::Features;

use super::access::Principal;
use super::cluster_state::{Role, SessionInfo, SessionSummary};
use super::rights::Right;

/// A connection, as the host names it.
pub type ConnKey = u64;

/// Subscriptions of one session.
pub const MAX_SUBSCRIPTIONS: usize = 64;

/// What the messenger knows about a peer once it has signed in.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Who it is, as far as it is proven. A daemon that fetches its configuration comes as a client.
    pub principal: auth::Principal,
    /// Its instance.
    pub entity: EntityName,
    /// Addresses it says it listens on (or blank ones).
    pub addrs: AddrVec,
    /// Features both sides have.
    pub features: Features,
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
    /// Who it is and what it may do.
    pub principal: Principal,
    /// Its instance.
    pub entity: EntityName,
    /// Addresses it says it listens on.
    pub addrs: AddrVec,
    /// Features both sides have.
    pub features: Features,
    /// Which of the two roles it connected to.
    pub role: Role,
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
    /// The monitor that it is connected to, if that is another one.
    pub by: Option<String>,
}

impl Session {
    /// A fresh session.
    #[must_use]
    pub fn new(peer: Peer, now: Utime) -> Self {
        Self {
            principal: Principal::new(peer.principal, peer.role),
            entity: peer.entity,
            addrs: peer.addrs,
            features: peer.features,
            role: peer.role,
            subs: BTreeMap::new(),
            osd_epoch: Epoch(0),
            hostname: String::new(),
            config_sent: None,
            mgr_daemon: None,
            since: now,
            by: None,
        }
    }

    /// The OSD this is the running session of; a daemon's short first session says it is a client and is none.
    #[must_use]
    pub fn osd(&self) -> Option<OsdId> {
        self.principal.who.osd().filter(|id| self.entity == EntityName::new(EntityKind::OSD, id.0.into()))
    }

    /// True if the session has a right. [`Right::PerItem`] is asked for each item and [`Right::ActiveManager`] depends on
    /// the manager map, of which `active` is the manager: neither is given without it.
    #[must_use]
    pub fn has(&self, right: Right, active: (u64, &str)) -> bool {
        let p = &self.principal;
        let daemon = |kind: EntityKind| p.who.name.kind == kind && p.allows(kind.word(), Need::X);
        match right {
            Right::Session | Right::PerItem => true,
            Right::Caps(all) => all.iter().all(|(service, need)| p.allows(service, *need)),
            // Tickets for the manager carry caps of the manager, where an OSD has none.
            Right::Osd => self.osd().is_some() && (self.role == Role::Mgr || p.allows("osd", Need::X)),
            Right::Daemon(kind) => daemon(kind),
            Right::ActiveManager => daemon(EntityKind::MGR) && active == (p.who.global_id, p.who.name.id.as_str()),
        }
    }

    /// Service and name, if this is the report session of a service daemon (rgw, rbd-mirror, …).
    #[must_use]
    pub fn service_daemon(&self) -> Option<(String, String)> {
        let kind = self.principal.who.kind;
        self.mgr_daemon.clone().filter(|(service, _)| kind == EntityKind::CLIENT && service != kind.word())
    }

    /// For the commands.
    #[must_use]
    pub fn info(&self, role: Role) -> SessionInfo {
        SessionInfo {
            principal: self.principal.clone(),
            entity: self.entity,
            addrs: self.addrs.clone(),
            features: self.features,
            role,
            by: self.by.clone(),
        }
    }

    /// For `mon sessions` and `features`.
    #[must_use]
    pub fn summary(&self) -> SessionSummary {
        SessionSummary {
            name: self.principal.who.name.clone(),
            entity: self.entity,
            addrs: self.addrs.clone(),
            features: self.features,
            global_id: self.principal.who.global_id,
            since: self.since,
            by: self.by.clone(),
        }
    }
}
