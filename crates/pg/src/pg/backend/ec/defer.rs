//! Deferred writes: those that leave a member's bytes as they are, and are sent to it later.
//!
//! A write waits for the shards that it touches. The others get its record, and the attributes it sets, with the next write that touches
//! them, or [`DEFERRED_MAX`] writes later, or when nothing else goes on, or when something is asked of them that must not be behind. Until
//! then their logs are a shorter part of the primary's, and their bytes are right all the same: peering bears that
//! ([`crate::pg::peering::touched`]).
//!
//! Invariants:
//!  1. A member gets all records, in order and without holes.
//!  2. Writes are deferred only while the PG is clean and every shard has its member. When it is clean no more, what is deferred is sent
//!     before anything else.
//!  3. No record is trimmed that some member has not got.
//!  4. What is kept for members that are behind is bounded, in writes and in bytes.

use crate::log::{LogEntry, Touch};
use crate::peer::encode_write;
use crate::pg::Pg;
use crate::pg::backend::Sent;
use crate::pg::ops::commit::Records;
use crate::pg::peering::log_merge::Spared;
use crate::shards::PeerId;
use base::{Eversion, HObject};
use bytes::Bytes;
use smallvec::SmallVec;
use store::Op;

/// Writes that a member is behind, at most.
pub(in crate::pg) const DEFERRED_MAX: u64 = 32;
/// Writes that some member has not acknowledged, beyond which none is deferred: clients then wait for the member, as for a whole copy.
/// So one that takes nothing, as its disk is full, costs no more memory and log than this.
const UNACKED_MAX: usize = 512;
/// Largest record that is deferred, in bytes. A batch of records is one transaction, and is kept in memory until it is acknowledged.
const RECORD_MAX: usize = 8 << 10;

/// A write that was not sent to the members whose shards it leaves as they are.
#[derive(Debug)]
pub(in crate::pg) struct Deferred {
    pub soid: HObject,
    /// Version of the object before it.
    prior: Eversion,
    pub touch: Touch,
    record: Bytes,
}

impl Pg {
    /// The part of a write with these entries that may wait on shards that it does not touch.
    pub(in crate::pg) fn deferrable(
        &self,
        entries: &[LogEntry],
        records: &[Bytes],
        trim: Option<Eversion>,
    ) -> Option<Box<Deferred>> {
        let ([e], [record], None) = (entries, records, trim) else { return None };
        let touch = e.touch.as_deref()?;
        if record.len() > RECORD_MAX || self.peers.unacked.len() >= UNACKED_MAX {
            return None;
        }
        let shards = self.coder.as_ref()?.layout.shards();
        let whole =
            self.peers.clean && self.acting_set().len() == shards && self.peers.members.keys().count() + 1 == shards;
        whole.then(|| {
            let (soid, prior, record) = (e.soid.clone(), e.prior_version, record.clone());
            Box::new(Deferred { soid, prior, touch: touch.clone(), record })
        })
    }

    /// The records of writes after that number, and the changes that they are on a shard they leave as it is.
    pub(in crate::pg) fn deferred_since(&self, sent: u64) -> (Records, Vec<Op>) {
        let (mut records, mut spared) = (Records::new(), Spared::default());
        for d in self.peers.unacked.iter().filter(|u| u.seq > sent).filter_map(|u| u.deferred.as_deref()) {
            records.push(d.record.clone());
            spared.set(&d.soid, &d.touch.attrs);
        }
        (records, spared.ops(self.cid).collect())
    }

    /// Sends all members what was deferred.
    pub(in crate::pg) fn send_deferred(&mut self) {
        let seq = self.peers.seq;
        let behind = self.peers.members.iter().filter(|(_, m)| m.sent < seq).map(|(p, m)| (*p, m.sent));
        let behind: SmallVec<[(PeerId, u64); 4]> = behind.collect();
        for (p, sent) in behind {
            let (records, ops) = self.deferred_since(sent);
            let m = encode_write(sent + 1, seq, self.stable_at_members(), None, &records, &ops);
            let last = self.peers.unacked.back_mut().map(|u| &mut u.full);
            let (Some(m), Some(Sent::Each(all))) = (m, last) else { continue };
            all.push((p, m.clone()));
            if let Some(to) = self.peers.members.get_mut(&p) {
                to.sent = seq;
            }
            self.tell_encoded(p, m);
        }
    }

    /// The oldest version that a member may have of an object of which `version` is the newest, with the same bytes on its shard.
    pub(in crate::pg) fn same_since(&self, p: PeerId, oid: &HObject, version: Eversion) -> Eversion {
        let Some(m) = self.peers.members.get(&p).filter(|m| m.sent < self.peers.seq) else { return version };
        let mut deferred = self.peers.unacked.iter().filter(|u| u.seq > m.sent).filter_map(|u| u.deferred.as_deref());
        deferred.find(|d| d.soid == *oid).map_or(version, |d| d.prior.min(version))
    }
}
