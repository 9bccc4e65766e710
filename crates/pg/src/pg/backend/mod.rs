//! Backends: the parts of operations, recovery and scrub that depend on whether copies are whole or shards.
//!
//! A vector is planned on a logical view of its object and results in one logical transaction. [`Pg::spread`] derives
//! the transaction of each copy: the same for all in a replicated PG, an own one for each shard in an erasure-coded
//! one.
//!
//! - `ec`: shards of an erasure-coded PG

pub(in crate::pg) mod ec;

use crate::exec::{Step, Stop};
use crate::log::LogEntry;
use crate::peer::{encode_write, may_be_sent};
use crate::pg::Pg;
use crate::pg::backend::ec::defer::{DEFERRED_MAX, Deferred};
use crate::shards::PeerId;
use base::errno::{E2BIG, EIO};
use base::{Eversion, Summed};
use bytes::Bytes;
use smallvec::SmallVec;
use std::sync::Arc;
use store::{ObjectStore, Op, Tag};
use wire::msg::PeerFeatures;

/// Bytes that the info of a PG takes in a transaction of a member, beside those of a write.
const INFO_BYTES: usize = 4 << 10;

/// Stored forms of a transaction's log entries: nearly always one.
pub(in crate::pg) type Records = SmallVec<[Bytes; 1]>;

/// The changes of one transaction for each copy.
#[derive(Debug)]
pub(in crate::pg) enum Spread {
    /// The same changes for all copies.
    Same(Vec<Op>),
    /// Changes per shard, by shard number.
    Shards(Vec<Vec<Op>>),
}

/// A write message for the members.
#[derive(Clone, Debug)]
pub(in crate::pg) enum Sent {
    /// The same message for all, with the checksums of its data, if they are known.
    Same((Bytes, Bytes), Option<Arc<Summed>>),
    /// A message of its own for each member; none for members for which the write is deferred.
    Each(Vec<(PeerId, (Bytes, Bytes))>),
}

impl Sent {
    /// The message with these changes for all.
    fn same(m: (Bytes, Bytes), ops: &[Op]) -> Self {
        // A message with one write has that write's data.
        let sums = ops.iter().find_map(|o| if let Op::Write { sums, .. } = o { sums.clone() } else { None });
        Self::Same(m, sums)
    }

    /// The message for a member.
    pub(in crate::pg) fn to(&self, peer: PeerId) -> Option<&(Bytes, Bytes)> {
        match self {
            Self::Same(m, _) => Some(m),
            Self::Each(all) => all.iter().find(|(p, _)| *p == peer).map(|(_, m)| m),
        }
    }

    /// Checksums of the data of the message for all.
    pub(in crate::pg) fn sums(&self) -> Option<Arc<Summed>> {
        match self {
            Self::Same(_, sums) => sums.clone(),
            Self::Each(_) => None,
        }
    }
}

impl Sent {
    /// Drops the message of a member that has acknowledged it.
    pub(in crate::pg) fn got(&mut self, peer: PeerId) {
        if let Self::Each(all) = self {
            all.retain(|(p, _)| *p != peer);
        }
    }
}

impl Spread {
    /// Takes the changes for this copy.
    pub(in crate::pg) fn take_own(&mut self, me: PeerId) -> Vec<Op> {
        match self {
            Self::Same(ops) => std::mem::take(ops),
            Self::Shards(all) => {
                let at = usize::try_from(me.shard.0).unwrap_or(usize::MAX);
                all.get_mut(at).map(std::mem::take).unwrap_or_default()
            }
        }
    }
}

/// A write that some member has not acknowledged.
#[derive(Debug)]
pub(in crate::pg) struct Unacked {
    pub seq: u64,
    /// Time of sending.
    pub sent: base::Mono,
    /// Entries with versions up to this number are older than the write.
    pub after: u64,
    /// Hash of the write's object.
    pub hash: u32,
    pub full: Sent,
    /// The message without changes, for members that get the object later.
    pub bare: Option<(Bytes, Bytes)>,
    pub bare_for: Vec<PeerId>,
    /// The record, if the write is deferred on the members it spares.
    pub deferred: Option<Box<Deferred>>,
}

impl Unacked {
    /// True if the acknowledgement of the write waits for member `p`.
    pub(in crate::pg) fn waits_for(&self, p: PeerId) -> bool {
        self.deferred.as_ref().is_none_or(|d| d.touch.touches(p.shard))
    }
}

impl Pg {
    /// Derives the transaction of each copy from a logical one. May return `Wait`; a repeated call then gives the
    /// same result. In an erasure-coded PG the newest entry gets the undo data of the transaction.
    pub(in crate::pg) fn spread(
        &mut self,
        tag: Tag,
        ops: Vec<Op>,
        entries: &mut [LogEntry],
        store: &mut dyn ObjectStore,
    ) -> Step<Spread> {
        if !self.is_coded() || entries.is_empty() {
            return Ok(Spread::Same(ops));
        }
        self.spread_shards(tag, ops, entries, store).map(Spread::Shards)
    }

    /// Encodes the messages that carry a write to the members.
    pub(in crate::pg) fn encode_for_members(
        &self,
        seq: u64,
        trim: Option<Eversion>,
        records: &[Bytes],
        spread: &Spread,
        deferred: Option<&Deferred>,
    ) -> Step<Sent> {
        let fits = |ops: &[Op], records: &[Bytes], m: &(Bytes, Bytes), frame: u64| {
            // The most that such a message may need, by number and length of names.
            let little = ops.len() <= 64 && m.0.len() + m.1.len() <= 64 << 10;
            if little && frame >= 1 << 20 || frame == u64::MAX {
                return true;
            }
            let record =
                |r: &Bytes| Op::LogAppend { cid: self.env.cid(), version: Eversion::default(), entry: r.clone() };
            let records = records.iter().map(|r| record(r).frame_bytes());
            let need = ops.iter().map(Op::frame_bytes).chain(records).sum::<usize>() + INFO_BYTES;
            if need as u64 > frame {
                tracing::info!(pg = %self.env.spg(), need, frame, "a write exceeds what the log of a member takes at once; it is refused");
            }
            need as u64 <= frame
        };
        let encode = |first: u64, records: &[Bytes], ops: &[Op], to: PeerFeatures, frame: u64| {
            let m = encode_write(first, seq, self.stable_at_members(), trim, records, ops, to).ok_or_else(|| {
                tracing::error!(pg = %self.env.spg(), "a write has an operation that can't be sent to other OSDs; it fails");
                Stop::Errno(EIO)
            })?;
            if !fits(ops, records, &m, frame) {
                return Err(Stop::Errno(E2BIG));
            }
            if may_be_sent(&m) {
                return Ok(m);
            }
            tracing::warn!(pg = %self.env.spg(), body = m.0.len(), data = m.1.len(), "a write is too large to be sent to other OSDs; it fails");
            Err(E2BIG.into())
        };
        match spread {
            Spread::Same(ops) => {
                let m = encode(seq, records, ops, self.features_of_members(), self.frame_of_members())?;
                Ok(Sent::same(m, ops))
            }
            Spread::Shards(all) => {
                let mut each = Vec::with_capacity(self.peers.members().keys().count());
                for (p, m) in self.peers.members().iter() {
                    let waits = deferred.is_some_and(|d| !d.touch.touches(p.shard));
                    if waits && seq - m.sent < DEFERRED_MAX {
                        continue;
                    }
                    let own = usize::try_from(p.shard.0).ok().and_then(|at| all.get(at));
                    let own = own.map_or(&[][..], |o| o);
                    if m.sent + 1 >= seq {
                        each.push((*p, encode(seq, records, own, self.features(*p), m.frame())?));
                        continue;
                    }
                    let (mut before, mut ops) = self.deferred_since(m.sent);
                    before.extend(records.iter().cloned());
                    ops.extend_from_slice(own);
                    // The deferred writes are accepted already.
                    each.push((*p, encode(m.sent + 1, &before, &ops, self.features(*p), u64::MAX)?));
                }
                Ok(Sent::Each(each))
            }
        }
    }
}
