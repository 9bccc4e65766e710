//! Sessions: their peers, roles and subscriptions.
//!
//! | module | contents |
//! | --- | --- |
//! | `admission` | decides whether a session may open, by the state at that moment |
//! | `auth_host` | the monitor's data for handshakes: keys, caps, service keys and fresh global ids |
//! | `credentials` | rotating service keys, fresh global ids, and the proofs of peers |
//! | `global_id` | global ids: numbers of sessions that are never given out twice |
//! | `revoke` | applies changes of keys and caps to open sessions |
//! | `rights` | the right that each message and each subscription needs |

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
use rights::{Right, Topic};

/// Most subscriptions of one session.
pub const MAX_SUBSCRIPTIONS: usize = 64;

/// The messenger's facts about an authenticated peer. Plain data.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The proven identity. A daemon that fetches its configuration authenticates as a client.
    pub principal: auth::Principal,
    /// The peer's entity instance.
    pub entity: EntityName,
    /// The addresses that the peer announces (or blank ones).
    pub addrs: AddrVec,
    /// The features that the peer announced; from a front monitor of an earlier version, those of both sides.
    pub features: Features,
    /// The role that the peer connected to.
    pub role: Role,
}

/// A subscription, standing or one-time. Plain data.
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
    principal: Principal,
    /// The peer's entity instance.
    entity: EntityName,
    /// The addresses that the peer announces.
    addrs: AddrVec,
    /// The features that the peer announced.
    announced: Features,
    /// The role that the peer connected to.
    role: Role,
    /// The subscriptions by name.
    subs: BTreeMap<String, Sub>,
    /// The newest OSD map epoch sent.
    osd_epoch: Epoch,
    /// The host name that the peer sent with a subscription.
    hostname: String,
    /// The last configuration sent, so that only changes are sent.
    config_sent: Option<BTreeMap<String, String>>,
    /// For the manager role: service and name of the daemon that reports on this session.
    mgr_daemon: Option<(String, String)>,
    /// Time at which the session opened, be it at another monitor.
    since: Utime,
    /// Time by the leader's own clock at which the session opened, be it at another monitor.
    opened: Mono,
    /// The front monitor that relays the session; `None` for a direct connection.
    by: Option<String>,
}

impl Session {
    /// A new session for a peer.
    #[must_use]
    pub fn new(peer: Peer, now: Now) -> Self {
        Self {
            principal: Principal::new(peer.principal, peer.role),
            entity: peer.entity,
            addrs: peer.addrs,
            announced: peer.features,
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

    /// The identity and rights of the peer.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The identity that the peer proved.
    #[must_use]
    pub fn who(&self) -> &auth::Principal {
        &self.principal.who
    }

    /// The peer's entity instance.
    #[must_use]
    pub fn entity(&self) -> EntityName {
        self.entity
    }

    /// The addresses that the peer announces.
    #[must_use]
    pub fn addrs(&self) -> &AddrVec {
        &self.addrs
    }

    /// The features of both sides, which select encodings.
    #[must_use]
    pub fn features(&self) -> Features {
        self.announced & Features::PACIFIC
    }

    /// The features that the peer announced.
    #[must_use]
    pub fn announced(&self) -> Features {
        self.announced
    }

    /// The role that the peer connected to.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Time by the monitor's own clock at which the session opened, be it at another monitor.
    #[must_use]
    pub fn opened(&self) -> Mono {
        self.opened
    }

    /// The newest OSD map epoch sent.
    #[must_use]
    pub fn osd_epoch(&self) -> Epoch {
        self.osd_epoch
    }

    /// The host name that the peer sent with a subscription.
    #[must_use]
    pub fn hostname(&self) -> &str {
        &self.hostname
    }

    /// For the manager role: service and name of the daemon that reports on this session.
    #[must_use]
    pub fn mgr_daemon(&self) -> Option<&(String, String)> {
        self.mgr_daemon.as_ref()
    }

    /// Sets the daemon that reports on this session, or none. Returns the earlier one.
    pub(super) fn set_mgr_daemon(&mut self, daemon: Option<(String, String)>) -> Option<(String, String)> {
        std::mem::replace(&mut self.mgr_daemon, daemon)
    }

    /// The standing or one-time subscription of this name.
    #[must_use]
    pub fn sub(&self, what: &str) -> Option<Sub> {
        self.subs.get(what).copied()
    }

    /// The names of the subscriptions.
    pub fn subs(&self) -> impl Iterator<Item = &String> {
        self.subs.keys()
    }

    /// Notes the host name that a peer sent with a subscription.
    pub(super) fn named_host(&mut self, hostname: String) {
        if !hostname.is_empty() {
            self.hostname = hostname;
        }
    }

    /// Adds or replaces a subscription. False if the session has too many.
    pub(super) fn subscribe(&mut self, topic: Topic, what: &str, sub: Sub) -> bool {
        if self.subs.len() >= MAX_SUBSCRIPTIONS && !self.subs.contains_key(what) {
            return false;
        }
        if topic == Topic::Log {
            // A session follows the log at one level: the newest request counts.
            self.subs.retain(|k, _| !k.starts_with("log-") || k == what);
        }
        self.subs.insert(what.to_owned(), sub);
        if topic == Topic::Config {
            self.config_sent = None;
        }
        true
    }

    /// Moves a subscription on to the version `next` after an answer; a one-time subscription ends.
    pub(super) fn answered(&mut self, what: &str, next: u64) {
        match self.subs.get_mut(what) {
            Some(sub) if sub.onetime => {
                self.subs.remove(what);
            }
            Some(sub) => sub.next = next,
            None => {}
        }
    }

    /// Moves a subscription on to the version `next`; a one-time subscription stays.
    pub(super) fn skip_to(&mut self, what: &str, next: u64) {
        if let Some(sub) = self.subs.get_mut(what) {
            sub.next = next;
        }
    }

    /// Notes that OSD maps up to an epoch were sent.
    pub(super) fn maps_sent(&mut self, last: Epoch) {
        self.osd_epoch = self.osd_epoch.max(last);
    }

    /// Notes the configuration that is sent now. False if it is the last one sent.
    pub(super) fn takes_config(&mut self, config: &BTreeMap<String, String>) -> bool {
        if self.config_sent.as_ref() == Some(config) {
            return false;
        }
        self.config_sent = Some(config.clone());
        if self.subs.get("config").is_some_and(|sub| sub.onetime) {
            self.subs.remove("config");
        }
        true
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
            features: self.features(),
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
            features: self.announced,
            global_id: self.principal.who.global_id,
            since: self.since,
            by: self.by.clone(),
        }
    }
}
