//! Data of handshakes beyond the committed state: rotating service keys, fresh global ids, and the proofs of peers
//! that concern the state.

use std::cell::RefCell;
use std::rc::Rc;

use auth::{CryptoKey, ServiceKeys};
use base::{AuthName, EntityKind};

use super::global_id::GlobalIds;
use crate::state::wrong_keys::Proofs;

/// Keys, ids and proofs of handshakes.
pub(in crate::core) struct Credentials {
    keys: Rc<RefCell<ServiceKeys>>,
    ids: GlobalIds,
    /// Proofs in handshakes that concern the state.
    proofs: RefCell<Proofs>,
}

impl Credentials {
    /// The credentials of a new process, from the records.
    pub(in crate::core) fn new(keys: ServiceKeys, ids: GlobalIds) -> Self {
        Self { keys: Rc::new(RefCell::new(keys)), ids, proofs: RefCell::default() }
    }

    /// The rotating service keys.
    pub(in crate::core) fn keys(&self) -> Rc<RefCell<ServiceKeys>> {
        Rc::clone(&self.keys)
    }

    /// Replaces the service keys by durable ones.
    pub(in crate::core) fn set_keys(&self, keys: ServiceKeys) {
        *self.keys.borrow_mut() = keys;
    }

    /// The allocator of global ids.
    pub(in crate::core) fn ids(&self) -> &GlobalIds {
        &self.ids
    }

    /// True if there are keys and ids, so that clients may connect.
    pub(in crate::core) fn is_ready(&self) -> bool {
        self.keys.borrow().get(EntityKind::AUTH).is_some_and(|k| !k.is_empty()) && self.ids.has_some()
    }

    /// Notes that an entity authenticated with its pending key.
    pub(in crate::core) fn pending_key_used(&self, name: AuthName, key: CryptoKey) {
        self.proofs.borrow_mut().used.push((name, key));
    }

    /// Notes a wrong proof for the name of an entity.
    pub(in crate::core) fn proof_refused(&self, name: &AuthName) {
        self.proofs.borrow_mut().refused(name);
    }

    /// Takes the pending keys that were used.
    pub(in crate::core) fn take_used(&mut self) -> Vec<(AuthName, CryptoKey)> {
        std::mem::take(&mut self.proofs.get_mut().used)
    }

    /// The proofs since the last tick.
    pub(in crate::core) fn proofs_mut(&mut self) -> &mut Proofs {
        self.proofs.get_mut()
    }
}
