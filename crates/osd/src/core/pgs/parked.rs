//! Messages that wait for a newer map: operations of clients, and messages of other OSDs. Operations also wait for the
//! creation of their PG.
//!
//! Invariant: both kinds are bounded in number and bytes. A client whose operations exceed its share loses its session
//! ([`Waiting`]); a message of an OSD above the limit is dropped, and its sender repeats it.
//!
//! Tests: `tests/pgs/clients.rs` (`operations_for_a_map_that_never_comes_close_only_their_own_session`) for operations;
//! `push_peer` asserts the bound of messages.

use crate::core::session::SessionInfo;
use crate::core::waiting::Waiting;
use base::OsdId;
use pg::SessionId;
use std::collections::VecDeque;
use std::sync::Arc;
use wire::msg::{MOsdOp, MPgPeer};

/// Most messages of other OSDs. Further ones are dropped.
const PEERS_MAX: usize = 16_384;
/// Most bytes of such messages.
const PEERS_BYTES_MAX: usize = 64 << 20;

/// Parked messages of a reactor; see the module.
#[derive(Default)]
pub(super) struct Parked {
    ops: Waiting,
    peers: VecDeque<(OsdId, Box<MPgPeer>)>,
    peers_bytes: usize,
}

impl Parked {
    /// Adds an operation. Returns the session to close, if a limit is exceeded; its operations are removed.
    #[must_use]
    pub(super) fn push_op(&mut self, s: &Arc<SessionInfo>, m: Box<MOsdOp>) -> Option<Arc<SessionInfo>> {
        self.ops.push(s, m)
    }

    /// Takes all operations, in order.
    pub(super) fn take_ops(&mut self) -> VecDeque<(Arc<SessionInfo>, Box<MOsdOp>)> {
        self.ops.take()
    }

    /// Drops the operations of a session that has ended.
    pub(super) fn forget_session(&mut self, id: SessionId) {
        self.ops.forget(id);
    }

    /// Number and bytes of the operations.
    pub(super) fn figures_of_ops(&self) -> (usize, usize) {
        self.ops.figures()
    }

    /// Adds a message of another OSD, or drops it if the limits are reached.
    pub(super) fn push_peer(&mut self, from: OsdId, m: Box<MPgPeer>) {
        let bytes = self.peers_bytes + m.cost();
        if self.peers.len() < PEERS_MAX && bytes <= PEERS_BYTES_MAX {
            self.peers_bytes = bytes;
            self.peers.push_back((from, m));
            debug_assert!(self.peers.len() <= PEERS_MAX && self.peers_bytes <= PEERS_BYTES_MAX);
        } else {
            tracing::warn!(%from, pg = %m.spg, "too many messages of peers wait for a map, dropping");
        }
    }

    /// Takes all messages of other OSDs, in order.
    pub(super) fn take_peers(&mut self) -> VecDeque<(OsdId, Box<MPgPeer>)> {
        self.peers_bytes = 0;
        std::mem::take(&mut self.peers)
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        self.take_ops();
        self.take_peers();
    }

    /// Releases memory of a past burst.
    pub(super) fn shrink_to(&mut self, room: usize) {
        self.ops.shrink_to(room);
        self.peers.shrink_to(room);
    }
}
