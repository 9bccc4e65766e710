//! Sessions: their peers, roles and subscriptions.

pub(super) mod admission;
pub(super) mod auth_host;
pub(super) mod credentials;
pub(super) mod global_id;
pub(super) mod revoke;
pub mod rights;

use std::collections::BTreeMap;

use base::{AddrVec, EntityKind, EntityName, Epoch, Mono, Now, OsdId, Utime};
use cluster::caps::Need;
use wire::Features;

use crate::state::access::Principal;
use crate::state::{Role, SessionInfo, SessionSummary};
use rights::Right;

/// Most subscriptions of one session.
pub const MAX_SUBSCRIPTIONS: usize = 64;

/// The messenger's facts about an authenticated peer.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The proven identity. A daemon that fetches its configuration authenticates as a client.
    pub principal: auth::Principal,
    /// The peer's entity instance.
    pub entity: EntityName,
    /// The addresses that the peer announces (or blank ones).
    pub addrs: AddrVec,
    /// The features of both sides.
    pub features: Features,
    /// The role that the peer connected to.
    pub role: Role,
}

/// A subscription, standing or one-time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sub {
    /// The next version that the subscriber wants.
    pub next: u64,
    /// True if the subscription ends after one answer.
    pub onetime: bool,
}

/// One session.
#[derive(Debug)]
pub struct Session {
    /// The peer's identity and rights.
    pub principal: Principal,
    /// The peer's entity instance.
    pub entity: EntityName,
    /// The addresses that the peer announces.
    pub addrs: AddrVec,
    /// The features of both sides.
    pub features: Features,
    /// The role that the peer connected to.
    pub role: Role,
    /// The subscriptions by name.
    pub subs: BTreeMap<String, Sub>,
    /// The newest OSD map epoch sent.
    pub osd_epoch: Epoch,
    /// The host name that the peer sent with a subscription.
    pub hostname: String,
    /// The last configuration sent, so that only changes are sent.
    pub config_sent: Option<BTreeMap<String, String>>,
    /// For the manager role: service and name of the daemon that reports on this session.
    pub mgr_daemon: Option<(String, String)>,
    /// Time at which the session opened.
    pub since: Utime,
    /// The same by the monitor's own clock.
    pub opened: Mono,
    /// The front monitor that relays the session; `None` for a direct connection.
    pub by: Option<String>,
}

impl Session {
    /// A new session for a peer.
    #[must_use]
    pub fn new(peer: Peer, now: Now) -> Self {
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
            since: now.wall,
            opened: now.mono,
            by: None,
        }
    }

    /// The OSD whose running session this is; `None` for a daemon's short first session, which announces a client.
    #[must_use]
    pub fn osd(&self) -> Option<OsdId> {
        self.principal.who.osd().filter(|id| self.entity == EntityName::new(EntityKind::OSD, id.0.into()))
    }

    /// True if the session has a right. [`Right::PerItem`] needs only the session here; the handler checks each item.
    /// `active` is the global id and name of the active manager, for [`Right::ActiveManager`].
    #[must_use]
    pub fn has(&self, right: Right, active: (u64, &str)) -> bool {
        let p = &self.principal;
        let daemon = |kind: EntityKind| p.who.name.kind == kind && p.allows(kind.word(), Need::X);
        match right {
            Right::Session | Right::PerItem => true,
            Right::Caps(all) => all.iter().all(|(service, need)| p.allows(service, *need)),
            // A ticket for the manager holds manager caps, of which an OSD has none.
            Right::Osd => self.osd().is_some() && (self.role == Role::Mgr || p.allows("osd", Need::X)),
            Right::Daemon(kind) => daemon(kind),
            Right::ActiveManager => daemon(EntityKind::MGR) && active == (p.who.global_id, p.who.name.id.as_str()),
        }
    }

    /// Service and name of a service daemon (rgw, rbd-mirror, …); `None` for other sessions.
    #[must_use]
    pub fn service_daemon(&self) -> Option<(String, String)> {
        let kind = self.principal.who.kind;
        self.mgr_daemon.clone().filter(|(service, _)| kind == EntityKind::CLIENT && service != kind.word())
    }

    /// The session's data for commands.
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

    /// The session's data for `mon sessions` and `features`.
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
