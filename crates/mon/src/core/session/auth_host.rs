//! The monitor's data for handshakes: keys, caps, service keys and fresh global ids.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use auth::rotating::RotatingKeys;
use auth::server::{AUTH_TICKET_TTL, pick};
use auth::{AuthHost, CryptoKey, EntityAuth, Method, ServiceKeys};
use base::{AuthName, EntityKind, Utime};

use crate::core::MonCore;
use crate::state::SessionSummary;

/// The view of keys and caps for handshakes of the monitor or of the manager role.
pub struct MonAuthHost {
    core: Rc<RefCell<MonCore>>,
    service: EntityKind,
}

impl MonAuthHost {
    /// The view for connections to `service`. The monitor checks keys; the manager role checks tickets.
    #[must_use]
    pub fn new(core: Rc<RefCell<MonCore>>, service: EntityKind) -> Self {
        Self { core, service }
    }
}

/// The view for code inside the core.
pub(in crate::core) struct View<'a> {
    core: &'a MonCore,
    service: EntityKind,
    keys: Rc<RefCell<ServiceKeys>>,
}

impl MonCore {
    pub(in crate::core) fn auth_view(&self) -> View<'_> {
        View { core: self, service: EntityKind::MON, keys: self.credentials.keys() }
    }
}

impl AuthHost for View<'_> {
    fn pending_key_used(&self, name: &AuthName, key: &CryptoKey) {
        self.core.credentials.pending_key_used(name.clone(), key.clone());
    }

    fn proof_refused(&self, name: &AuthName) {
        self.core.credentials.proof_refused(name);
    }

    fn service(&self) -> EntityKind {
        self.service
    }

    fn methods(&self) -> Vec<Method> {
        if self.core.state.options.auth.cephx { vec![Method::CEPHX] } else { vec![Method::NONE] }
    }

    fn entity(&self, name: &AuthName) -> Option<EntityAuth> {
        let e = self.core.state.auth.get(name)?;
        Some(EntityAuth { key: e.key.clone(), pending_key: e.pending_key.clone(), caps: e.caps.clone() })
    }

    fn service_key(&self, service: EntityKind, id: Option<u64>) -> Option<(u64, CryptoKey)> {
        pick(self.keys.borrow().get(service)?, id)
    }

    fn rotating_keys(&self, service: EntityKind) -> Option<RotatingKeys> {
        self.keys.borrow().get(service).cloned()
    }

    fn new_global_id(&self) -> Option<u64> {
        self.core.credentials.ids().take()
    }

    fn cluster(&self) -> Option<base::Uuid> {
        Some(self.core.state.fsid)
    }

    fn insecure_reclaim_allowed(&self) -> bool {
        self.core.state.options.auth.allow_insecure_reclaim
    }

    fn keeps_id_by_key(&self, name: &AuthName, global_id: u64, now: Utime) -> bool {
        let state = &self.core.state;
        // Nobody takes the id of a client that is here.
        let of_another = |s: &SessionSummary| s.global_id == global_id && s.name != *name;
        crate::state::lost_tickets::holds(state.lost_tickets, now) && !state.sessions.values().any(of_another)
    }

    fn ticket_ttl(&self, service: EntityKind) -> Duration {
        if service == EntityKind::AUTH { AUTH_TICKET_TTL } else { self.core.state.options.auth.ticket_ttl }
    }
}

impl MonAuthHost {
    fn with<T>(&self, f: impl FnOnce(&View<'_>) -> T) -> T {
        let core = self.core.borrow();
        f(&View { service: self.service, ..core.auth_view() })
    }
}

impl AuthHost for MonAuthHost {
    fn pending_key_used(&self, name: &AuthName, key: &CryptoKey) {
        self.with(|v| v.pending_key_used(name, key));
    }
    fn proof_refused(&self, name: &AuthName) {
        self.with(|v| v.proof_refused(name));
    }
    fn service(&self) -> EntityKind {
        self.service
    }
    fn methods(&self) -> Vec<Method> {
        self.with(|v| v.methods())
    }
    fn entity(&self, name: &AuthName) -> Option<EntityAuth> {
        self.with(|v| v.entity(name))
    }
    fn service_key(&self, service: EntityKind, id: Option<u64>) -> Option<(u64, CryptoKey)> {
        self.with(|v| v.service_key(service, id))
    }
    fn rotating_keys(&self, service: EntityKind) -> Option<RotatingKeys> {
        self.with(|v| v.rotating_keys(service))
    }
    fn new_global_id(&self) -> Option<u64> {
        self.with(|v| v.new_global_id())
    }
    fn cluster(&self) -> Option<base::Uuid> {
        self.with(|v| v.cluster())
    }
    fn insecure_reclaim_allowed(&self) -> bool {
        self.with(|v| v.insecure_reclaim_allowed())
    }
    fn keeps_id_by_key(&self, name: &AuthName, global_id: u64, now: Utime) -> bool {
        self.with(|v| v.keeps_id_by_key(name, global_id, now))
    }
    fn ticket_ttl(&self, service: EntityKind) -> Duration {
        self.with(|v| v.ticket_ttl(service))
    }
}
