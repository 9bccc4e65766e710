//! Objects that this copy can't read: the store detects the damage and never returns wrong data.
//!
//! The primary replaces such an object from another copy. It durably marks the object as missing here, so that a
//! crash in between does not expose a part of it. Operations on the object wait. If no other copy has it, clients get
//! the error, and copies that need the object find it unfound.
//!
//! Invariants:
//!  1. Another copy is asked only when it has all writes that this copy made to the object. So everything submitted
//!     before must be durable on all members, and no plan may hold the object.
//!  2. An object that no copy can read is searched for once per interval, not by every operation.
//!
//! Tests: `tests/replicated.rs`.

use crate::effect::{Effect, LogLevel};
use crate::exec::{Step, Stop};
use crate::log::LogEntry;
use crate::peer::Body;
use crate::pg::backend::ec::spare::Spared;
use crate::pg::keys::{missing_key, set_missing};
use crate::pg::ops::plan::{Plan, Verdict};
use crate::pg::ops::work::RecoveryWork;
use crate::pg::ops::work::Work;
use crate::pg::seldom::Part;
use crate::pg::{Pg, State, Turn};
use crate::shards::PeerId;
use base::errno::{EIO, Errno};
use base::{Eversion, HObject, Now};
use std::collections::{BTreeMap, BTreeSet};
use store::{ObjectStore, Op};

/// Unreadable objects of a copy up to which each has a line in the cluster log: a disk that rots has thousands.
const TOLD_MAX: usize = 16;

/// Unreadable objects of this copy, as known in this interval.
#[derive(Debug, Default)]
pub(in crate::pg) struct Damage {
    /// Objects to be taken from other copies, each with the transaction that must be durable everywhere first.
    pub wanted: BTreeMap<HObject, u64>,
    /// Those of them that turned out to be unfound, and are to be given up.
    pub unfound: Vec<HObject>,
    /// Those of which the first part of a push has replaced the local object.
    pub replaced: BTreeSet<HObject>,
    /// Objects that no other copy can give.
    pub hopeless: BTreeSet<HObject>,
    /// Objects with a value that exceeds what the log of a member takes at once: the member lacks them until they are
    /// written again. They hold up neither writes nor the recovery of others.
    pub too_large: BTreeSet<(HObject, PeerId)>,
}

impl Damage {
    /// True if the object can't be sent to a member: no copy can give it, or it is too large there.
    pub(in crate::pg) fn bars(&self, head: &HObject, to: PeerId) -> bool {
        self.hopeless.contains(head) || !self.too_large.is_empty() && self.too_large.contains(&(head.clone(), to))
    }
}

impl Part for Damage {
    const EMPTY: &'static Self = &Self {
        wanted: BTreeMap::new(),
        unfound: Vec::new(),
        replaced: BTreeSet::new(),
        hopeless: BTreeSet::new(),
        too_large: BTreeSet::new(),
    };

    fn is_empty(&self) -> bool {
        let pulled = self.wanted.is_empty() && self.unfound.is_empty() && self.replaced.is_empty();
        pulled && self.hopeless.is_empty() && self.too_large.is_empty()
    }
}

impl Pg {
    /// True if an object that is unreadable here can be recovered from other copies.
    pub(in crate::pg) fn can_heal(&self, head: &HObject) -> bool {
        *self.life.state() == State::Active
            && !self.recovery.damage.hopeless.contains(head)
            && self.has_source(head)
            && (!self.ec.others_failed() || self.is_lacked(head))
    }

    /// True if any member lacks the object.
    pub(in crate::pg) fn is_lacked(&self, head: &HObject) -> bool {
        self.recovery.missing.contains_key(head) || self.peers.members().values().any(|m| m.missing.contains_key(head))
    }

    /// Handles a plan that met an unreadable object: the plan waits for its recovery. A shard that some member lacks is
    /// rebuilt there; the own one may be needed for that.
    pub(in crate::pg) fn heal(&mut self, plan: Box<Plan>, head: &HObject, turn: &mut Turn<'_>) {
        if !self.is_coded() || !self.is_lacked(head) {
            self.lose(head, turn);
        }
        self.wait_for_recovery(plan, head.clone());
    }

    /// Marks the object as missing on this copy.
    pub(in crate::pg) fn lose(&mut self, head: &HObject, turn: &mut Turn<'_>) {
        self.plans.forget_context(head);
        if self.recovery.missing.contains_key(head) {
            return;
        }
        tracing::error!(pg = %self.env.spg(), object = %head, "object is unreadable here; recovering it from another copy");
        if self.recovery.damage.wanted.len() < TOLD_MAX {
            let (spg, osd) = (self.env.spg(), self.env.whoami());
            let text = format!("{spg} {head}: unreadable on {osd}; recovering it from another copy");
            turn.out.push(Effect::Log(LogLevel::Error, text));
        }
        // An upper bound of its version: a copy whose log reaches it has the object's current state.
        let need = self.journal.info().last_update;
        self.recovery.lacks([(head.clone(), need)]);
        self.recovery.damage.wanted.insert(head.clone(), self.journal.submitted());
        self.peers.needs_recovery();
        self.start_work(Work::Recovery(RecoveryWork::Missing(head.clone(), Some(need))), None, turn);
    }

    /// Stores that an object is missing, or that it is present.
    pub(in crate::pg) fn run_missing(
        &mut self,
        id: u64,
        head: &HObject,
        need: Option<Eversion>,
        turn: &mut Turn<'_>,
    ) -> Verdict {
        let (cid, oid) = (self.env.cid(), self.meta_missing());
        let op = match &need {
            Some(v) => set_missing(cid, oid, [(head, v)]),
            None => Op::OmapRmKeys { cid, oid, keys: vec![missing_key(head)] },
        };
        match self.commit_alone(self.tag(id), vec![op], turn.store) {
            Ok(()) => Verdict::Submitted,
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }

    /// True if other copies may be asked for the object now; see the module.
    pub(in crate::pg) fn may_pull(&self, head: &HObject) -> bool {
        match self.recovery.damage.wanted.get(head) {
            Some(after) => self.journal.durable() >= *after && !self.plans.is_locked(head),
            None => true,
        }
    }

    /// Notes a write that was submitted although the object is unreadable here, or too large for a member. There it is
    /// tried again.
    pub(in crate::pg) fn wrote_damaged(&mut self, head: &HObject) {
        if let Some(d) = self.recovery.damage.used() {
            d.too_large.retain(|(h, _)| h != head);
            self.recovery.push_again(head);
        }
        if let Some(after) = self.recovery.damage.wanted.get_mut(head) {
            *after = self.journal.submitted();
        }
    }

    /// Gives up unreadable objects that no other copy has: waiting plans get the error. An object of which a part came
    /// is not the old one any more, so it stays unfound.
    pub(in crate::pg) fn give_up(&mut self, turn: &mut Turn<'_>) {
        for head in std::mem::take(&mut self.recovery.damage.unfound) {
            if self.recovery.damage.replaced.contains(&head) || !self.recovery.unfound.remove(&head) {
                continue;
            }
            tracing::error!(pg = %self.env.spg(), object = %head, "object is unreadable on all copies; operations on it fail");
            self.recovery.pulls.remove(&head);
            self.recovery.damage.wanted.remove(&head);
            self.recovery.damage.hopeless.insert(head.clone());
            self.recovery.got(&head);
            self.start_work(Work::Recovery(RecoveryWork::Missing(head.clone(), None)), None, turn);
            self.recovered(&head, turn);
        }
    }

    /// Handles a push whose object is unreadable here: the receiver gets the object later.
    pub(in crate::pg) fn push_failed(
        &mut self,
        to: PeerId,
        head: &HObject,
        errno: base::errno::Errno,
        turn: &mut Turn<'_>,
    ) {
        if errno != EIO {
            return self.fail(errno, turn.out);
        }
        if self.is_coded() {
            return self.rebuild_failed(to, head);
        }
        if let Some(b) = self.peers.backfill_of(to) {
            b.put_back(head);
        }
        if !self.recovery.damage.hopeless.contains(head) {
            self.lose(head, turn);
        }
    }

    /// Handles an object with a value that exceeds what the log of a member takes at once. The copy lacks it; the
    /// member gets the entries of writes.
    pub(in crate::pg) fn push_is_too_large(&mut self, to: PeerId, head: &HObject, out: &mut Vec<Effect>) {
        let text = format!(
            "{} {head}: an attribute or omap value exceeds what the log of {} takes at once; that copy lacks the \
             object until the value is removed or the OSD has a larger device",
            self.env.spg(),
            to.osd
        );
        tracing::error!("{text}");
        out.push(Effect::Log(LogLevel::Error, text));
        if let Some(b) = self.peers.backfill_of(to) {
            b.put_back(head);
        }
        self.recovery.damage.too_large.insert((head.clone(), to));
        // Those that wait for the recovery go on.
        self.recovery.pushed.push(head.clone());
    }

    /// Handles a rebuild with too few readable shards: the object is unfound here, or given up for that shard in this
    /// interval.
    fn rebuild_failed(&mut self, to: PeerId, head: &HObject) {
        tracing::error!(pg = %self.env.spg(), object = %head, shard = %to, "too few shards of the object are readable to rebuild this one");
        if to == self.me() {
            self.recovery.pulls.remove(head);
            self.note_unfound(head.clone());
            return;
        }
        if let Some(b) = self.peers.backfill_of(to) {
            b.put_back(head);
        }
        self.recovery.damage.hopeless.insert(head.clone());
    }

    /// Handles a member's report that it has log records of writes, but not the objects, since its stored data is
    /// unreadable.
    pub(in crate::pg) fn members_lost(&mut self, from: PeerId, objects: Vec<(HObject, Eversion)>, now: Now) {
        let Some(m) = self.peers.members().get(&from) else { return };
        // A member says each object once; one that says it again gets no second line.
        let new = objects.iter().filter(|(h, _)| !m.missing.contains_key(h));
        let (count, first) = (new.clone().count(), new.map(|(h, _)| h).next());
        if let Some(head) = first.filter(|_| m.missing.len() < TOLD_MAX) {
            let spg = self.env.spg();
            let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
            let text = format!("{spg} {head}{more}: unreadable on {}; recovering it there", from.osd);
            self.mail.post(Effect::Log(LogLevel::Error, text));
        }
        for (head, _) in &objects {
            tracing::warn!(pg = %self.env.spg(), object = %head, %from, "object is unreadable on a member; it will be recovered there");
        }
        self.member_lacks(from, objects);
        self.peers.needs_recovery();
        self.report.state_changed(now);
    }

    /// Handles an unreadable object that no client's operation met. The primary recovers it if another copy has it; a
    /// replica reports it.
    pub(in crate::pg) fn lose_found(&mut self, head: &HObject, turn: &mut Turn<'_>) {
        if self.can_heal(head) {
            return self.lose(head, turn);
        }
        // An object that backfill has not filled yet counts as absent anyway.
        let filled = *head <= self.journal.info().last_backfill;
        if *self.life.state() != State::ReplicaActive || !filled || self.recovery.missing.contains_key(head) {
            return;
        }
        tracing::error!(pg = %self.env.spg(), object = %head, "object is unreadable here; asking the primary for it");
        let need = self.journal.info().last_update;
        self.recovery.lacks([(head.clone(), need)]);
        self.start_work(Work::Recovery(RecoveryWork::Missing(head.clone(), Some(need))), None, turn);
        let to = self.primary();
        self.send_reliably(to, &Body::Lacks { objects: vec![(head.clone(), need)] });
    }

    /// As a member: handles a write that can't be applied here, because the object is unreadable (`EIO`) or the write
    /// exceeds a frame of this OSD's log (`E2BIG`). The log record is kept and the object
    /// marked as missing. The primary hears of it before the acknowledgement of the write.
    pub(in crate::pg) fn lose_written(
        &mut self,
        tag: store::Tag,
        why: Errno,
        entries: &[LogEntry],
        records: &[bytes::Bytes],
        trim: Option<Eversion>,
        store: &mut dyn ObjectStore,
    ) -> Step<()> {
        let mut lost: BTreeMap<HObject, Eversion> = BTreeMap::new();
        let shard = self.env.spg().shard;
        for e in entries.iter().filter(|e| e.spares(shard).is_none()) {
            lost.insert(e.soid.head(), e.version);
        }
        // Entries that spare this shard read nothing.
        let mut spared = Spared::default();
        for e in entries {
            match (e.spares(shard), lost.get_mut(&e.soid.head())) {
                (_, Some(v)) => *v = (*v).max(e.version),
                (Some(t), None) => spared.set(&e.soid, &t.attrs),
                (None, None) => {}
            }
        }
        let mut ops = vec![set_missing(self.env.cid(), self.meta_missing(), &lost)];
        ops.extend(spared.ops(self.env.cid()));
        match self.submit_with_log(tag, &mut ops, entries, records, trim, store) {
            // If not even attributes can be set, the spared objects count as missing, too.
            Err(Stop::Errno(EIO)) if entries.iter().any(|e| e.spares(shard).is_some()) => {
                lost.extend(entries.iter().map(|e| (e.soid.head(), e.version)));
                let mut ops = vec![set_missing(self.env.cid(), self.meta_missing(), &lost)];
                self.submit_with_log(tag, &mut ops, entries, records, trim, store)?;
            }
            r => r?,
        }
        for (head, need) in &lost {
            tracing::error!(pg = %self.env.spg(), object = %head, why = base::errno::name(why), "a write can't be applied here; asking the primary for the object");
            self.recovery.lacks([(head.clone(), *need)]);
        }
        let to = self.primary();
        self.send_reliably(to, &Body::Lacks { objects: lost.into_iter().collect() });
        Ok(())
    }

    /// Notes that a member lacks objects that it was thought to have; recovery pushes them.
    pub(in crate::pg) fn member_lacks(&mut self, p: PeerId, objects: impl IntoIterator<Item = (HObject, Eversion)>) {
        let recovery = &mut self.recovery;
        self.peers.member_lacks(p, objects.into_iter().inspect(|(head, _)| recovery.push_again(head)));
    }
}
