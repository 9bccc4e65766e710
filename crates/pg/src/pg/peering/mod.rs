//! Peering: the start of an interval, and messages among the copies.
//!
//! - `ack`: acknowledgements of writes
//! - `choose`: the primary collects infos, and chooses the version and the acting set
//! - `log_merge`: merging the authoritative log into a copy's own
//! - `member`: a copy that is not the primary
//! - `pieces`: long messages, and those that must be heard
//! - `resend`: unacknowledged writes that are sent again
//! - `shards`: the differences in erasure-coded PGs
//! - `touched`: shards that lack entries but have current bytes
//! - `session`: messages among copies, and their repetition
//! - `settle`: the acting set to stay in, and a clean PG
//! - `failed`: a copy that failed and takes no part

mod ack;
pub(in crate::pg) mod choose;
pub(in crate::pg) mod failed;
pub(in crate::pg) mod log_merge;
pub(in crate::pg) mod member;
pub(in crate::pg) mod pieces;
pub(in crate::pg) mod resend;
pub(in crate::pg) mod session;
pub(in crate::pg) mod settle;
pub(in crate::pg) mod shards;
pub(in crate::pg) mod touched;

use crate::info::PgInfo;
use crate::interval::Prior;
use crate::pace::Applying;
use crate::per_peer::{PerOsd, PerPeer};
use crate::pg::backend::{Sent, Unacked};
use crate::pg::idle::{queue, tree};
use crate::pg::recovery::backfill::Backfill;
use crate::pg::recovery::incoming::Incoming;
use crate::pg::seldom::Seldom;
use crate::shards::PeerId;
use crate::stats::Stamps;
use base::sizes::FRAME_MIN;
use base::{Eversion, HObject, Mono, OsdId};
use bytes::Bytes;
use pieces::Pieces;
use resend::Again;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::Op;

/// A copy that gets every write of the interval. A record: the files of `peering` alone change it.
#[derive(Debug, Default)]
pub(in crate::pg) struct Member {
    /// The encoded `Activate`, until it is answered.
    pub activate: Option<(Bytes, Bytes)>,
    pub activated: bool,
    /// All writes up to this number were sent to the member.
    pub sent: u64,
    /// Writes up to this number are durable there.
    pub acked: u64,
    /// The value of `acked` at the last repetition.
    pub seen: u64,
    /// Writes that are being sent again. Later ones wait for them.
    pub again: Option<Again>,
    /// Most metadata of a transaction that the member's log takes, in bytes, if the member told it.
    pub frame: Option<u64>,
    /// Objects that the member lacks.
    pub missing: BTreeMap<HObject, Eversion>,
    /// Progress of the backfill, if the member is a target.
    pub backfill: Option<Box<Backfill>>,
}

impl Member {
    /// True if the member has the current state of an object.
    pub(in crate::pg) fn has(&self, head: &HObject) -> bool {
        !self.missing.contains_key(head) && self.backfill.as_ref().is_none_or(|b| head <= b.upto())
    }

    /// Most metadata of a transaction that the member's log takes, in bytes; unbounded if the member did not tell.
    pub(in crate::pg) fn frame(&self) -> u64 {
        self.frame.map_or(u64::MAX, |f| f.max(FRAME_MIN as u64))
    }
}

/// A write of the primary.
#[derive(Debug)]
pub(in crate::pg) struct Write {
    pub seq: u64,
    /// Writes up to this number are durable on all members.
    pub stable: u64,
    pub trim: Option<Eversion>,
    pub records: Vec<Bytes>,
    pub ops: Vec<Op>,
    /// Time of its receipt.
    pub received: Mono,
}

/// A message that is applied in the order of arrival.
#[derive(Debug)]
pub(in crate::pg) enum Apply {
    Write(Write, #[allow(dead_code, reason = "it is counted")] Applying),
    Push { from: PeerId, id: u64, n: u32, last: bool, background: bool, head: HObject, ops: Vec<Op> },
    Backfilled(HObject),
}

/// Messages of other copies that this copy applies.
#[derive(Debug, Default)]
#[repr(C)]
struct Inflow {
    /// Messages that are applied in the order of arrival.
    queue: VecDeque<Apply>,
    applying: bool,
    /// A write or push from another copy had no space; it is tried again at the next tick.
    stuck: bool,
    incoming: Seldom<Incoming>,
}

/// Most unstable writes among which a read of a member is looked for. Beyond it a member is far behind, and its
/// primary answers reads.
const UNSTABLE_MAX: usize = 1024;

/// State of this copy as an activated member that follows its primary.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::pg) struct Follower {
    /// Number of the next write to be received.
    next_write: u64,
    /// Writes up to this number are durable here.
    durable_write: u64,
    /// The primary is to be told `durable_write`: [`Effect::Acknowledge`] was given out.
    ///
    /// [`Effect::Acknowledge`]: crate::Effect::Acknowledge
    owes: bool,
    /// Writes that may not be durable on all members, oldest first: number, and placement hash of the object. A name
    /// would keep the buffer alive in which its message came.
    unstable: VecDeque<(u64, u32)>,
}

impl Follower {
    /// State at the start of the interval, in which the primary's first write has number 1.
    fn new() -> Self {
        Self { next_write: 1, durable_write: 0, owes: false, unstable: VecDeque::new() }
    }

    /// Drops the writes up to number `seq`, which are durable on all members.
    fn stable(&mut self, seq: u64) {
        while self.unstable.front().is_some_and(|(n, _)| *n <= seq) {
            self.unstable.pop_front();
        }
    }

    /// Notes a write that may not be durable on all members.
    fn unstable(&mut self, seq: u64, hash: u32) {
        debug_assert!(self.unstable.back().is_none_or(|(n, _)| *n <= seq), "writes are applied in order");
        self.unstable.push_back((seq, hash));
    }
}

/// State of the interval in a machine at rest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MemberState {
    /// State as a member that follows its primary; none in the machine that leads.
    follower: Option<Follower>,
    others: Vec<OsdId>,
    /// The members, each with what its log takes at once.
    members: Vec<(PeerId, Option<u64>)>,
    seq: u64,
    told_stable: u64,
    serves: bool,
    incoming: Incoming,
    stamps: Stamps,
}

impl MemberState {
    /// True if the machine leads the interval.
    pub(in crate::pg) fn leads(&self) -> bool {
        self.follower.is_none()
    }

    /// OSDs of the PG other than this one.
    pub(in crate::pg) fn others(&self) -> &[OsdId] {
        &self.others
    }

    /// Times of the PG's states.
    pub(in crate::pg) fn stamps(&self) -> &Stamps {
        &self.stamps
    }
}

/// The other copies: what this one knows of them in the present interval, and what it has promised them; laid out as
/// [`Pg`](crate::pg::Pg) is.
#[derive(Debug, Default)]
#[repr(C)]
pub(in crate::pg) struct Peers {
    // Read by every input; see `Pg`.
    clean: bool,
    /// The interval has started on all members, so everything of older ones is acknowledged.
    serves: bool,
    /// The authoritative log is being merged.
    merging: bool,
    /// The whole store failed, not only this copy.
    store_lost: bool,
    inflow: Inflow,
    /// State as an activated member; none while this copy is not one, as in an interval that it leads.
    follower: Option<Follower>,
    retry_at: Option<Mono>,
    unacked: VecDeque<Unacked>,
    /// Number of the newest write that all members must have.
    seq: u64,
    /// Writes up to this number are stable: as primary, the number last sent to the members; as a member, the number
    /// last received from the primary.
    told_stable: u64,
    members: PerPeer<Member>,

    // As primary, during peering.
    prior: Prior,
    /// Peering asks every OSD, since nobody knows who was a member while this OSD missed maps.
    wide: bool,
    /// Infos of the other copies; `None`: the copy does not exist, or its info is no longer needed.
    known: PerPeer<Option<Box<PgInfo>>>,
    want: Option<Vec<OsdId>>,

    /// Failed copies, which count as down.
    failed: Seldom<BTreeSet<PeerId>>,

    /// Messages in pieces.
    pieces: Seldom<Pieces>,
    /// Primaries of older intervals that may still rely on leases of this OSD, or of a copy that reported it.
    granted: PerOsd<Mono>,
}

impl Peers {
    /// Prefetches what every operation reads.
    #[inline]
    pub(in crate::pg) fn prefetch(&self) {
        base::prefetch(&self.clean);
        base::prefetch(&self.retry_at);
        base::prefetch(&self.unacked);
    }

    /// Ends the interval. Leases granted in it may last, and a lost store stays lost.
    pub(in crate::pg) fn end_interval(&mut self) {
        let Self { merging, store_lost, granted, inflow, .. } = std::mem::take(self);
        let inflow = Inflow { stuck: inflow.stuck, ..Inflow::default() };
        *self = Self { merging, store_lost, granted, inflow, ..Self::default() };
    }

    /// Gives up the merge of a log, and what waits for space.
    pub(in crate::pg) fn drop_merge(&mut self) {
        (self.merging, self.inflow.stuck) = (false, false);
    }

    /// Takes over the state of another machine of the PG.
    pub(in crate::pg) fn take_over(&mut self, m: MemberState, granted: PerOsd<Mono>) {
        let member = |acked, frame| Member { activated: true, acked, frame, ..Member::default() };
        let Self { merging, store_lost, inflow, .. } = std::mem::take(self);
        let inflow = Inflow { stuck: inflow.stuck, incoming: Seldom::of(m.incoming), ..Inflow::default() };
        *self = Self {
            members: m.members.into_iter().map(|(o, frame)| (o, member(m.seq, frame))).collect(),
            seq: m.seq,
            told_stable: m.told_stable,
            clean: m.follower.is_none(),
            serves: m.serves,
            inflow,
            follower: m.follower,
            merging,
            store_lost,
            granted,
            ..Self::default()
        };
    }

    /// True if all copies are complete and in place, as far as the primary knows.
    pub(in crate::pg) fn is_clean(&self) -> bool {
        self.clean
    }

    /// Notes that a copy lacks something.
    pub(in crate::pg) fn needs_recovery(&mut self) {
        self.clean = false;
    }

    /// True if this copy is an activated member.
    pub(in crate::pg) fn is_member(&self) -> bool {
        self.follower.is_some()
    }

    /// True if the interval has started on all members, so everything of older ones is acknowledged.
    pub(in crate::pg) fn serves(&self) -> bool {
        self.serves
    }

    /// True while the authoritative log is being merged.
    pub(in crate::pg) fn is_merging(&self) -> bool {
        self.merging
    }

    /// The acting set that the primary has asked for.
    pub(in crate::pg) fn want(&self) -> Option<&Vec<OsdId>> {
        self.want.as_ref()
    }

    /// Time of the next repetition of messages.
    pub(in crate::pg) fn deadline(&self) -> Option<Mono> {
        self.retry_at
    }

    /// The members of the acting set, without this copy, as far as they are activated.
    pub(in crate::pg) fn members(&self) -> &PerPeer<Member> {
        &self.members
    }

    /// Notes that a member was sent all writes up to `seq`.
    #[inline]
    pub(in crate::pg) fn sent(&mut self, to: PeerId, seq: u64) {
        if let Some(m) = self.members.get_mut(&to) {
            m.sent = seq;
        }
    }

    /// Adds a deferred message for a member to the newest write. False if the write has no messages of that kind.
    pub(in crate::pg) fn sent_deferred(&mut self, to: PeerId, message: (Bytes, Bytes)) -> bool {
        let last = self.unacked.back_mut().map(|u| &mut u.full);
        let Some(Sent::Each(all)) = last else { return false };
        all.push((to, message));
        self.sent(to, self.seq);
        true
    }

    /// The members that get only the record of a write to the object: backfill sends it later. It counts as different
    /// there.
    pub(in crate::pg) fn leave_bare(&mut self, soid: &HObject) -> Vec<PeerId> {
        let mut all = Vec::new();
        for (o, m) in self.members.iter_mut() {
            if let Some(b) = &mut m.backfill
                && !b.takes_write(&soid.head())
            {
                all.push(*o);
            }
        }
        all
    }

    /// The progress of the backfill of a member; only `recovery` can use its fields.
    pub(in crate::pg) fn backfill_of(&mut self, p: PeerId) -> Option<&mut Backfill> {
        self.members.get_mut(&p)?.backfill.as_deref_mut()
    }

    /// Notes that backfill has filled a member.
    pub(in crate::pg) fn filled(&mut self, p: PeerId) {
        if let Some(m) = self.members.get_mut(&p) {
            m.backfill = None;
        }
    }

    /// Notes that a member has an object, by a push.
    pub(in crate::pg) fn member_got(&mut self, p: PeerId, head: &HObject) {
        if let Some(m) = self.members.get_mut(&p) {
            m.missing.remove(head);
            if let Some(b) = &mut m.backfill {
                b.pushed(head);
            }
        }
    }

    /// Notes that a member lacks objects.
    pub(in crate::pg) fn member_lacks(&mut self, p: PeerId, objects: impl IntoIterator<Item = (HObject, Eversion)>) {
        if let Some(m) = self.members.get_mut(&p) {
            m.missing.extend(objects);
        }
    }

    /// Notes that all members lack an object, except those that backfill has not filled up to it.
    pub(in crate::pg) fn all_lack(&mut self, head: &HObject, version: Eversion) {
        for m in self.members.values_mut() {
            if m.backfill.as_ref().is_none_or(|b| head <= b.upto()) {
                m.missing.insert(head.clone(), version);
            }
        }
    }

    /// Takes a member's acknowledgement of all writes up to `seq`, and gives `each` the time of sending of those that it
    /// had not acknowledged. `None` if the copy is no member; else the bytes of these writes, if writes are sent to it
    /// again.
    #[inline]
    pub(in crate::pg) fn take_ack(&mut self, from: PeerId, seq: u64, each: impl Fn(Mono)) -> Option<Option<usize>> {
        let m = self.members.get_mut(&from)?;
        let before = m.acked;
        m.acked = before.max(seq.min(m.sent));
        let (acked, mut again) = (m.acked, m.again.is_some().then_some(0));
        // Another member may be far behind: what this one has is passed over at once.
        let had = self.unacked.partition_point(|u| u.seq <= before);
        for u in self.unacked.range_mut(had..).take_while(|u| u.seq <= acked) {
            if let Some(bytes) = &mut again {
                *bytes += u.bytes(from);
            }
            u.full.got(from);
            each(u.sent);
        }
        Some(again)
    }

    /// Infos of the other copies; `None`: the copy does not exist, or its info is no longer needed.
    pub(in crate::pg) fn known(&self) -> &PerPeer<Option<Box<PgInfo>>> {
        &self.known
    }

    /// Forgets the infos of copies whose OSDs are down, and what they have begun to send.
    pub(in crate::pg) fn keep_up(&mut self, up: impl Fn(OsdId) -> bool) {
        self.known.retain(|p, _| up(p.osd));
        if let Some(i) = self.inflow.incoming.used() {
            i.keep_senders(|p| up(p.osd));
        }
        if let Some(p) = self.pieces.used() {
            p.keep(|p| up(p.osd));
        }
    }

    /// True if a copy has failed.
    pub(in crate::pg) fn has_failed(&self, p: PeerId) -> bool {
        self.failed.contains(&p)
    }

    /// Number of the newest write that all members must have.
    pub(in crate::pg) fn seq(&self) -> u64 {
        self.seq
    }

    /// Number of a new write that all members must have.
    pub(in crate::pg) fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    /// Number up to which writes are stable, as told to or by the primary.
    pub(in crate::pg) fn told_stable(&self) -> u64 {
        self.told_stable
    }

    /// Writes that some member has not acknowledged, oldest first.
    pub(in crate::pg) fn unacked(&self) -> &VecDeque<Unacked> {
        &self.unacked
    }

    /// Notes a write that was sent to members.
    #[inline]
    pub(in crate::pg) fn await_ack(&mut self, write: Unacked) {
        debug_assert!(self.unacked.back().is_none_or(|u| u.seq < write.seq), "writes are numbered in order");
        self.unacked.push_back(write);
    }

    /// Drops the writes that all members have acknowledged.
    pub(in crate::pg) fn drop_acked(&mut self) {
        let all = self.members.values().map(|m| m.acked).min().unwrap_or(u64::MAX);
        while self.unacked.front().is_some_and(|u| u.seq <= all) {
            self.unacked.pop_front();
        }
    }

    /// True if the object, or another one with its placement hash, has a write that may not be durable on all members.
    /// Of more than [`UNSTABLE_MAX`] such writes any object may have one.
    pub(in crate::pg) fn is_unstable(&self, head: &HObject) -> bool {
        self.follower
            .as_ref()
            .is_some_and(|f| f.unstable.len() > UNSTABLE_MAX || f.unstable.iter().any(|(_, hash)| *hash == head.hash))
    }

    /// Primaries of older intervals that may still rely on leases, with the end of the leases.
    pub(in crate::pg) fn granted(&self) -> &PerOsd<Mono> {
        &self.granted
    }

    /// Notes that a primary of an older interval may rely on leases until then.
    pub(in crate::pg) fn may_serve(&mut self, o: OsdId, until: Mono) {
        self.granted.raise(o, until);
    }

    /// Sets the primaries of older intervals that may still rely on leases.
    pub(in crate::pg) fn set_granted(&mut self, granted: PerOsd<Mono>) {
        self.granted = granted;
    }

    /// True if nothing is under way among the copies.
    pub(in crate::pg) fn is_quiet(&self) -> bool {
        self.unacked.is_empty()
            && self.inflow.queue.is_empty()
            && !self.pieces.awaits()
            && !self.inflow.applying
            && self.members.values().all(|m| m.activated && m.missing.is_empty() && m.backfill.is_none())
    }

    /// The state of a member or a primary at rest, for another machine of the PG.
    pub(in crate::pg) fn hand_over(&self, others: Vec<OsdId>, stamps: Stamps) -> MemberState {
        MemberState {
            // A machine at rest owes nothing.
            follower: self.follower.clone().map(|f| Follower { owes: false, ..f }),
            others,
            members: self.members.iter().map(|(p, m)| (*p, m.frame)).collect(),
            seq: self.seq,
            told_stable: self.told_stable,
            serves: self.serves,
            incoming: Incoming::clone(&self.inflow.incoming),
            stamps,
        }
    }

    /// Releases unused memory.
    pub(in crate::pg) fn release_memory(&mut self) {
        self.failed.release_memory();
        self.inflow.incoming.release_memory();
        if let Some(pieces) = self.pieces.used() {
            pieces.forget_taken();
        }
        self.pieces.release_memory();
        queue(&mut self.unacked);
        queue(&mut self.inflow.queue);
        if let Some(f) = &mut self.follower {
            queue(&mut f.unstable);
        }
        for m in self.members.values_mut() {
            tree(&mut m.missing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;

    /// A member knows the objects with unstable writes as a table of each object's last write does, and keeps nothing of
    /// stable ones.
    #[test]
    fn unstable_objects_are_those_of_a_table() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let (mut peers, mut table) = (Peers::default(), BTreeMap::new());
            peers.follower = Some(Follower::new());
            let head = |hash: u32| HObject { hash, ..HObject::min() }.head();
            for seq in 1..400 {
                let f = peers.follower.as_mut().unwrap();
                // A write may have the records of a clone and its head.
                for _ in 0..=rng.below(2) {
                    let hash = rng.below(30) as u32;
                    f.unstable(seq, hash);
                    table.insert(hash, seq);
                }
                let stable = seq - rng.below(seq.min(20) + 1);
                f.stable(stable);
                table.retain(|_, n| *n > stable);
                (0..30).for_each(|h| assert_eq!(peers.is_unstable(&head(h)), table.contains_key(&h), "seed {seed}"));
                assert!(!table.is_empty() || peers.follower.as_ref().unwrap().unstable.is_empty());
            }
        }
    }

    /// A read is not looked for among any number of writes, and finds a stable object again when few are left.
    #[test]
    fn many_unstable_writes_leave_reads_to_the_primary() {
        let mut peers = Peers { follower: Some(Follower::new()), ..Peers::default() };
        let other = HObject { hash: 9, ..HObject::min() }.head();
        let all = UNSTABLE_MAX as u64 + 100;
        for seq in 1..=all {
            peers.follower.as_mut().unwrap().unstable(seq, 5);
            assert_eq!(peers.is_unstable(&other), seq > UNSTABLE_MAX as u64);
        }
        peers.follower.as_mut().unwrap().stable(100);
        assert!(!peers.is_unstable(&other));
    }
}
