//! Operations that a PG holds until its map, its state or an object lets them run. Limits keep one sender from
//! crowding out the others.
//!
//! Invariants:
//!  1. There are at most [`HELD_OPS_MAX`] operations with [`HELD_BYTES_MAX`] bytes.
//!  2. Beyond that, sessions are closed; single operations are never dropped. The owner with the most bytes loses its
//!     largest sessions, until an eighth is free. Their clients reconnect and resend unanswered operations; those of
//!     other owners stay.
//!
//! Tests: below.

use crate::event::{OpRequest, SessionId};
use crate::limits::{HELD_BYTES_MAX, HELD_OPS_MAX};
use crate::pg::seldom::{Part, Seldom};
use std::collections::{BTreeMap, VecDeque};

/// Bytes that a held operation takes beside its payload.
const OP_BYTES: usize = 1024;

/// Numbers of operations by session and hash.
#[derive(Debug, Default)]
struct Counts(BTreeMap<(SessionId, u32), u32>);

impl Part for Counts {
    const EMPTY: &'static Self = &Self(BTreeMap::new());

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The held operations of a PG; see the module.
#[derive(Debug, Default)]
pub(in crate::pg) struct Held {
    ops: VecDeque<Box<OpRequest>>,
    bytes: usize,
    /// Number of operations by session and hash of the object.
    of: Seldom<Counts>,
}

/// Bytes that an operation takes while it is held.
pub(in crate::pg) fn cost(r: &OpRequest) -> usize {
    OP_BYTES + r.msg.oid.len() + r.msg.ops.iter().map(|o| o.indata.len() + OP_BYTES / 8).sum::<usize>()
}

/// The sessions to close when too much is held. They have an eighth of all bytes, or all bytes of the owner with the
/// most.
pub(in crate::pg) fn heaviest<'a>(all: impl Iterator<Item = &'a OpRequest>) -> Vec<SessionId> {
    let (mut owners, mut sessions) = (BTreeMap::<u64, usize>::new(), BTreeMap::<(u64, SessionId), usize>::new());
    for r in all {
        *owners.entry(r.owner).or_default() += cost(r);
        *sessions.entry((r.owner, r.session)).or_default() += cost(r);
    }
    let enough = owners.values().sum::<usize>() / 8;
    let Some((owner, _)) = owners.into_iter().max_by_key(|(_, bytes)| *bytes) else { return Vec::new() };
    let of_owner = sessions.into_iter().filter(|((o, _), _)| *o == owner);
    let mut of_owner: Vec<(usize, SessionId)> = of_owner.map(|((_, s), bytes)| (bytes, s)).collect();
    of_owner.sort_unstable_by(|a, b| b.cmp(a));
    let mut freed = 0;
    of_owner.retain(|(bytes, _)| {
        let needed = freed < enough;
        freed += bytes;
        needed
    });
    of_owner.into_iter().map(|(_, s)| s).collect()
}

impl Held {
    /// Adds an operation. Returns the sessions to be closed for it; their operations are dropped.
    #[must_use]
    pub(in crate::pg) fn push(&mut self, r: Box<OpRequest>) -> Vec<SessionId> {
        self.bytes += cost(&r);
        *self.of.0.entry((r.session, r.msg.hash)).or_default() += 1;
        self.ops.push_back(r);
        if self.ops.len() <= HELD_OPS_MAX && self.bytes <= HELD_BYTES_MAX {
            return Vec::new();
        }
        let victims = heaviest(self.iter());
        self.ops.retain(|r| !victims.contains(&r.session));
        self.count();
        victims
    }

    /// Counts all operations anew.
    fn count(&mut self) {
        self.bytes = self.ops.iter().map(|r| cost(r)).sum();
        self.of = Seldom::default();
        for r in &self.ops {
            *self.of.0.entry((r.session, r.msg.hash)).or_default() += 1;
        }
    }

    /// True if an operation of the session on an object with this hash is held. Objects with equal hashes count as one.
    pub(in crate::pg) fn holds(&self, session: SessionId, hash: u32) -> bool {
        self.of.0.contains_key(&(session, hash))
    }

    /// Puts older operations ahead of the held ones.
    pub(in crate::pg) fn put_first(&mut self, older: VecDeque<Box<OpRequest>>) {
        let newer = std::mem::replace(&mut self.ops, older);
        self.ops.extend(newer);
        self.count();
    }

    /// Drops the operations of a session that ended.
    pub(in crate::pg) fn forget(&mut self, session: SessionId) {
        self.ops.retain(|r| r.session != session);
        self.count();
    }

    /// Takes all operations, in order.
    pub(in crate::pg) fn take(&mut self) -> VecDeque<Box<OpRequest>> {
        self.bytes = 0;
        self.of = Seldom::default();
        std::mem::take(&mut self.ops)
    }

    pub(in crate::pg) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    pub(in crate::pg) fn iter(&self) -> impl Iterator<Item = &OpRequest> {
        self.ops.iter().map(|r| &**r)
    }

    /// Releases unused memory.
    pub(in crate::pg) fn release_memory(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{EntityAddr, EntityName, Now};
    use wire::msg::{MOsdOp, OsdOp};

    fn op(owner: u64, session: u64, bytes: usize) -> Box<OpRequest> {
        let one = OsdOp { indata: vec![0; bytes].into(), ..OsdOp::default() };
        Box::new(OpRequest {
            session: SessionId(session),
            owner,
            client: EntityName::default(),
            addr: EntityAddr::default(),
            features: 0,
            received: Now::default(),
            ledger: base::ledger::Ledger::default(),
            msg: Box::new(MOsdOp { ops: [one].into_iter().collect(), ..MOsdOp::default() }),
        })
    }

    #[test]
    fn the_owner_that_exceeds_the_limit_loses_its_own_sessions() {
        let mut h = Held::default();
        for _ in 0..100 {
            assert!(h.push(op(1, 1, 4096)).is_empty());
        }
        // Sessions of one owner, each of them small.
        let mut closed = 0;
        for n in 0..2 * HELD_OPS_MAX as u64 {
            let victims = h.push(op(2, 10 + n / 64, 0));
            assert!(!victims.contains(&SessionId(1)));
            closed += victims.len();
            assert!(h.ops.len() <= HELD_OPS_MAX);
        }
        assert!(closed > 0);
        // And an owner with few but large operations.
        for _ in 0..2 * HELD_BYTES_MAX / (16 << 20) {
            assert!(!h.push(op(3, 9, 16 << 20)).contains(&SessionId(1)));
            assert!(h.bytes <= HELD_BYTES_MAX);
        }
        assert_eq!(h.take().iter().filter(|r| r.session == SessionId(1)).count(), 100);
        assert_eq!((h.bytes, h.is_empty()), (0, true));
    }

    #[test]
    fn counted_bytes_are_those_of_the_held_operations() {
        let mut h = Held::default();
        for n in 0..10 {
            assert!(h.push(op(1, n % 2, 100)).is_empty());
        }
        let all = h.bytes;
        h.forget(SessionId(1));
        assert_eq!(h.bytes * 2, all);
        h.put_first([op(1, 5, 100)].into());
        assert_eq!((h.iter().next().map(|r| r.session), h.bytes * 10), (Some(SessionId(5)), all * 6));
        assert!(h.holds(SessionId(5), 0) && h.holds(SessionId(0), 0) && !h.holds(SessionId(1), 0));
        assert!(!h.holds(SessionId(5), 1));
        assert_eq!(h.take().len(), 6);
        assert!(!h.holds(SessionId(5), 0));
    }
}
