//! Deferred writes: a write that spares a member's shard ([`Touch`]) is sent to that member later.
//!
//! The acknowledgement of a write waits only for the shards that it touches. A spared member gets the record, and the
//! attributes that the write sets, with the next write that touches its shard. It gets them earlier if it would be
//! [`DEFERRED_MAX`] writes behind, if the PG is idle, or before a question that needs a complete log. Until then its
//! log ends before the primary's, while its bytes are current. Peering takes that into account
//! ([`crate::pg::peering::touched`]).
//!
//! Invariants:
//!  1. A member gets all records, in order and without holes.
//!  2. Writes are deferred only while the PG is clean and each shard has a member. When that ends, deferred writes are
//!     sent before anything else.
//!  3. No record is trimmed before every member has it.
//!  4. The writes kept for members that are behind are bounded, in number and in bytes.
//!
//! Tests: `tests/coded_deferred.rs`, `tests/coded_attack_deferred.rs`.

use crate::log::{LogEntry, Touch};
use crate::peer::encode_write;
use crate::pg::Pg;
use crate::pg::backend::Records;
use crate::pg::backend::ec::spare::Spared;
use crate::shards::PeerId;
use base::{Eversion, HObject};
use bytes::Bytes;
use smallvec::SmallVec;
use store::Op;

/// Most writes by which a member may be behind.
pub(in crate::pg) const DEFERRED_MAX: u64 = 32;
/// Most writes that some member has not acknowledged. At this number no further write is deferred, and clients wait for
/// the member, as in a replicated PG. This bounds memory and log while a member accepts nothing, for example because
/// its disk is full.
const UNACKED_MAX: usize = 512;
/// Largest record that is deferred, in bytes. A batch of records is one transaction, and is kept in memory until it is acknowledged.
const RECORD_MAX: usize = 8 << 10;

/// The record of a write that was not sent to the members it spares.
#[derive(Debug)]
pub(in crate::pg) struct Deferred {
    pub soid: HObject,
    /// Version of the object before it.
    prior: Eversion,
    pub touch: Touch,
    record: Bytes,
}

impl Pg {
    /// The record to defer on spared shards, if the write with these entries may be deferred.
    pub(in crate::pg) fn deferrable(
        &self,
        entries: &[LogEntry],
        records: &[Bytes],
        trim: Option<Eversion>,
    ) -> Option<Box<Deferred>> {
        let ([e], [record], None) = (entries, records, trim) else { return None };
        let touch = e.touch.as_deref()?;
        if record.len() > RECORD_MAX || self.peers.unacked().len() >= UNACKED_MAX {
            return None;
        }
        let shards = self.ec.coder.as_ref()?.layout.shards();
        let whole = self.peers.is_clean()
            && self.acting_set().len() == shards
            && self.peers.members().keys().count() + 1 == shards;
        whole.then(|| {
            let (soid, prior, record) = (e.soid.clone(), e.prior_version, record.clone());
            Box::new(Deferred { soid, prior, touch: touch.clone(), record })
        })
    }

    /// The records of the deferred writes after number `sent`, and the changes that they make on a spared shard.
    pub(in crate::pg) fn deferred_since(&self, sent: u64) -> (Records, Vec<Op>) {
        let (mut records, mut spared) = (Records::new(), Spared::default());
        for d in self.peers.unacked().iter().filter(|u| u.seq > sent).filter_map(|u| u.deferred.as_deref()) {
            records.push(d.record.clone());
            spared.set(&d.soid, &d.touch.attrs);
        }
        (records, spared.ops(self.env.cid()).collect())
    }

    /// Sends the deferred writes to all members that are behind.
    pub(in crate::pg) fn send_deferred(&mut self) {
        let seq = self.peers.seq();
        let behind = self.peers.members().iter().filter(|(_, m)| m.sent < seq).map(|(p, m)| (*p, m.sent));
        let behind: SmallVec<[(PeerId, u64); 4]> = behind.collect();
        for (p, sent) in behind {
            let (records, ops) = self.deferred_since(sent);
            let m = encode_write(sent + 1, seq, self.stable_at_members(), None, &records, &ops, self.features(p));
            if let Some(m) = m
                && self.peers.sent_deferred(p, m.clone())
                && !self.is_sent_again(p)
            {
                self.send_encoded(p, m);
            }
        }
    }

    /// The oldest version of an object with which the shard of member `p` has the same bytes as with `version`, its
    /// newest version.
    pub(in crate::pg) fn same_since(&self, p: PeerId, oid: &HObject, version: Eversion) -> Eversion {
        let Some(m) = self.peers.members().get(&p).filter(|m| m.sent < self.peers.seq()) else { return version };
        let mut deferred = self.peers.unacked().iter().filter(|u| u.seq > m.sent).filter_map(|u| u.deferred.as_deref());
        deferred.find(|d| d.soid == *oid).map_or(version, |d| d.prior.min(version))
    }
}
