//! Operations that wait for a newer map or for the creation of their PG.
//!
//! The map of an operation is a claim of its client, so any client could make operations wait here forever.
//! Invariants:
//!  1. Each session has at most [`SESSION_OPS_MAX`] operations and [`SESSION_BYTES_MAX`] bytes here, all together at most
//!     [`OPS_MAX`] and [`BYTES_MAX`].
//!  2. A session over its own limits is closed; its client connects again and resends unanswered operations.
//!     When the common limits are reached, the session with the most bytes of the entity with the most is
//!     closed, never another's.
//!
//! Tests: those of this file, and `tests/pgs/clients.rs`.

use crate::core::session::SessionInfo;
use base::AuthName;
use pg::SessionId;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use wire::msg::MOsdOp;

/// Most operations of one session.
pub const SESSION_OPS_MAX: usize = 2048;
/// Most bytes of one session's operations, including their own memory.
pub const SESSION_BYTES_MAX: usize = 64 << 20;
/// Most operations of all sessions of a reactor.
pub const OPS_MAX: usize = 16_384;
/// Most bytes of all sessions of a reactor.
pub const BYTES_MAX: usize = 512 << 20;
/// Bytes that an operation costs besides its data.
const OP_BYTES: usize = 1024;

#[derive(Debug)]
struct Share {
    owner: (AuthName, IpAddr),
    ops: usize,
    bytes: usize,
}

/// Waiting operations of a reactor; see the module.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    ops: VecDeque<(Arc<SessionInfo>, Box<MOsdOp>)>,
    shares: BTreeMap<SessionId, Share>,
    bytes: usize,
}

fn cost(m: &MOsdOp) -> usize {
    OP_BYTES + m.oid.len() + m.ops.iter().map(|o| o.indata.len() + OP_BYTES / 8).sum::<usize>()
}

impl Waiting {
    /// Adds an operation. Returns the session to close, if a limit is exceeded; its operations are removed.
    #[must_use]
    pub(crate) fn push(&mut self, s: &Arc<SessionInfo>, m: Box<MOsdOp>) -> Option<Arc<SessionInfo>> {
        let bytes = cost(&m);
        let share = self.shares.entry(s.id).or_insert_with(|| Share {
            owner: (s.principal.name.clone(), s.principal.socket.ip()),
            ops: 0,
            bytes: 0,
        });
        share.ops += 1;
        share.bytes += bytes;
        self.bytes += bytes;
        let over = share.ops > SESSION_OPS_MAX || share.bytes > SESSION_BYTES_MAX;
        self.ops.push_back((s.clone(), m));
        if !over && self.ops.len() <= OPS_MAX && self.bytes <= BYTES_MAX {
            return None;
        }
        let victim = if over { s.id } else { self.largest()? };
        let info = self.ops.iter().find(|(s, _)| s.id == victim).map(|(s, _)| s.clone());
        self.forget(victim);
        info
    }

    fn largest(&self) -> Option<SessionId> {
        let mut owners: BTreeMap<&(AuthName, IpAddr), usize> = BTreeMap::new();
        for s in self.shares.values() {
            *owners.entry(&s.owner).or_default() += s.bytes;
        }
        let owner = owners.into_iter().max_by_key(|(_, bytes)| *bytes)?.0;
        self.shares.iter().filter(|(_, s)| s.owner == *owner).max_by_key(|(_, s)| s.bytes).map(|(id, _)| *id)
    }

    /// Drops the operations of a session that has ended.
    pub(crate) fn forget(&mut self, id: SessionId) {
        let Some(share) = self.shares.remove(&id) else { return };
        self.bytes = self.bytes.saturating_sub(share.bytes);
        self.ops.retain(|(s, _)| s.id != id);
    }

    /// Takes all operations, in order.
    pub(crate) fn take(&mut self) -> VecDeque<(Arc<SessionInfo>, Box<MOsdOp>)> {
        self.shares.clear();
        self.bytes = 0;
        std::mem::take(&mut self.ops)
    }

    /// Releases memory of a past burst.
    pub(crate) fn shrink_to(&mut self, room: usize) {
        self.ops.shrink_to(room);
    }

    /// Number and bytes of the operations.
    pub(crate) fn figures(&self) -> (usize, usize) {
        (self.ops.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::session::session_id;
    use auth::Principal;
    use base::{EntityAddr, EntityKind};
    use cluster::caps::OsdCaps;
    use net::ConnId;
    use wire::Features;

    fn session(conn: u64, name: &str, ip: [u8; 4]) -> Arc<SessionInfo> {
        let nobody = Principal::nobody((ip, 1).into());
        let principal = Principal { name: AuthName::parse(name).unwrap(), global_id: conn, ..nobody };
        Arc::new(SessionInfo {
            id: session_id(0, ConnId(conn)),
            reactor: 0,
            conn: ConnId(conn),
            entity: principal.entity(0),
            principal,
            addr: EntityAddr::default(),
            features: Features::PACIFIC,
            caps: OsdCaps::default(),
            owner: 0,
        })
    }

    fn op(bytes: usize) -> Box<MOsdOp> {
        let one = wire::msg::OsdOp { indata: vec![0; bytes].into(), ..wire::msg::OsdOp::default() };
        Box::new(MOsdOp { ops: [one].into_iter().collect(), ..MOsdOp::default() })
    }

    #[test]
    fn a_session_over_its_limit_is_closed_alone() {
        let (a, b) = (session(1, "client.a", [10, 0, 0, 1]), session(2, "client.b", [10, 0, 0, 2]));
        let mut w = Waiting::default();
        assert!(w.push(&b, op(0)).is_none());
        for _ in 0..SESSION_OPS_MAX {
            assert!(w.push(&a, op(0)).is_none());
        }
        assert_eq!(w.push(&a, op(0)).unwrap().id, a.id);
        assert_eq!(w.figures().0, 1, "what the other one has waiting stays");
        for _ in 0..SESSION_BYTES_MAX >> 24 {
            let gone = w.push(&a, op(1 << 24));
            assert!(gone.is_none_or(|s| s.id == a.id));
        }
        assert_eq!(w.take().iter().map(|(s, _)| s.id).collect::<Vec<_>>(), [b.id]);
    }

    /// Many small sessions of one entity do not displace another entity's operations.
    #[test]
    fn at_the_common_limit_the_entity_with_the_most_loses_a_session() {
        let honest = session(1, "client.h", [10, 0, 0, 9]);
        let mut w = Waiting::default();
        for _ in 0..100 {
            assert!(w.push(&honest, op(4096)).is_none());
        }
        for n in 0..3 * OPS_MAX as u64 {
            let s = session(2 + n / 4, "client.evil", [10, 0, 0, 1]);
            let closed = w.push(&s, op(0));
            assert!(closed.is_none_or(|c| c.principal.name == s.principal.name));
            let (ops, bytes) = w.figures();
            assert!(ops <= OPS_MAX && bytes <= BYTES_MAX);
        }
        assert!(w.push(&honest, op(4096)).is_none_or(|c| c.id != honest.id));
        assert_eq!(w.take().iter().filter(|(s, _)| s.id == honest.id).count(), 101);
        assert_eq!((w.figures(), EntityKind::CLIENT), ((0, 0), honest.principal.kind));
    }
}
