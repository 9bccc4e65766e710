//! Inputs that wait, and effects that leave at the end of the current input.
//!
//! - `admit`: checks of an arriving operation
//! - `backoff`: telling clients to hold operations that can't be served
//! - `held`: operations that wait for the map or the PG, limited per sender
//! - `postponed`: maps and inputs that wait while the PG changes its collection or moves

pub(in crate::pg) mod admit;
pub(in crate::pg) mod backoff;
pub(in crate::pg) mod held;
pub(in crate::pg) mod postponed;

use crate::effect::Effect;
use crate::event::{OpRequest, SessionId};
use crate::limits::EARLY_PEERS_MAX;
use crate::pg::idle::list;
use backoff::Backoffs;
use base::{Epoch, OsdId};
use held::Held;
use std::collections::VecDeque;
use wire::msg::MPgPeer;

/// Inputs that wait, and effects that leave at the end of the current input.
#[derive(Debug, Default)]
#[repr(C)]
pub(in crate::pg) struct Mail {
    /// Effects to be appended at the end of the current input.
    outbox: Vec<Effect>,
    /// Operations are held until leases are renewed.
    waits_for_lease: bool,
    /// Newest map epoch that a held operation waits for.
    wanted_map: Epoch,
    /// Operations that wait for a newer map or for the PG to become active.
    held: Held,
    /// Sessions that were told to hold their operations.
    backoffs: Backoffs,
    /// Peer messages received while loading or creating.
    early: Vec<(OsdId, Box<MPgPeer>)>,
}

impl Mail {
    /// Prefetches what every operation reads.
    #[inline]
    pub(in crate::pg) fn prefetch(&self) {
        base::prefetch(&self.outbox);
    }

    /// Hands out an effect at the end of the current input.
    pub(in crate::pg) fn post(&mut self, effect: Effect) {
        self.outbox.push(effect);
    }

    /// Hands out effects at the end of the current input.
    pub(in crate::pg) fn post_all(&mut self, effects: &mut Vec<Effect>) {
        self.outbox.append(effects);
    }

    /// Moves the effects that were to leave at the end of the current input to `out`.
    pub(in crate::pg) fn flush(&mut self, out: &mut Vec<Effect>) {
        out.append(&mut self.outbox);
    }

    /// Takes the effects that were to leave at the end of the current input.
    pub(in crate::pg) fn take_posted(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.outbox)
    }

    /// True while operations are held until leases are renewed.
    pub(in crate::pg) fn waits_for_lease(&self) -> bool {
        self.waits_for_lease
    }

    /// Ends the wait for leases: the interval has ended.
    pub(in crate::pg) fn end_interval(&mut self) {
        self.waits_for_lease = false;
    }

    /// Operations that wait for a newer map or for the PG to become active.
    pub(in crate::pg) fn held(&self) -> &Held {
        &self.held
    }

    /// Holds an operation. Returns the sessions to be closed for it; see [`Held::push`].
    #[must_use]
    pub(in crate::pg) fn hold(&mut self, req: Box<OpRequest>) -> Vec<SessionId> {
        self.held.push(req)
    }

    /// Puts older operations ahead of the held ones.
    pub(in crate::pg) fn put_first(&mut self, older: VecDeque<Box<OpRequest>>) {
        self.held.put_first(older);
    }

    /// Takes all held operations, in order.
    pub(in crate::pg) fn take_held(&mut self) -> VecDeque<Box<OpRequest>> {
        self.held.take()
    }

    /// Drops the held operations of a session that ended.
    pub(in crate::pg) fn forget_held(&mut self, session: SessionId) {
        self.held.forget(session);
    }

    /// True if a session has a backoff.
    pub(in crate::pg) fn has_backoffs(&self) -> bool {
        !self.backoffs.is_empty()
    }

    /// Keeps a peer's message while the PG is loaded or created. Beyond the limit it is dropped: its sender repeats
    /// it.
    pub(in crate::pg) fn keep_peer(&mut self, from: OsdId, msg: Box<MPgPeer>) {
        if self.early.len() < EARLY_PEERS_MAX {
            self.early.push((from, msg));
        }
    }

    /// Takes the kept messages of peers, in the order of arrival.
    pub(in crate::pg) fn take_peers(&mut self) -> Vec<(OsdId, Box<MPgPeer>)> {
        std::mem::take(&mut self.early)
    }

    /// Drops the kept messages of peers.
    pub(in crate::pg) fn drop_peers(&mut self) {
        self.early.clear();
    }

    /// Releases unused memory.
    pub(in crate::pg) fn release_memory(&mut self) {
        self.held.release_memory();
        list(&mut self.early);
        list(&mut self.outbox);
    }
}
