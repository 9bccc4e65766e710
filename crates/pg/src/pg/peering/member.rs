//! A member that is not the primary: it applies writes and parts of objects in order, and acknowledges them when
//! durable.
//!
//! Invariants:
//!  1. Messages are applied in the order in which the primary sent them; a repeated write is applied once.
//!  2. A write is acknowledged when it and all earlier ones are durable here.
//!
//! Tests: `tests/recovery.rs`, `tests/replicated.rs`.

use crate::effect::{Effect, Lane, LogLevel};
use crate::exec::{Step, Stop};
use crate::limits::FAMILY_MAX;
use crate::log::{LogEntry, LogKind};
use crate::object::{SS_ATTR, SnapSet};
use crate::pace::Class;
use crate::peer::Body;
use crate::pg::journal::action::Action;
use crate::pg::journal::action::PeeringAction;
use crate::pg::journal::action::RecoveryAction;
use crate::pg::keys::index_keys;
use crate::pg::keys::{missing_key, set_missing};
use crate::pg::ops::plan::{Plan, Stage, Verdict};
use crate::pg::ops::work::PeeringWork;
use crate::pg::ops::work::Work;
use crate::pg::peering::{Apply, Write};
use crate::pg::recovery::incoming::Answer;
use crate::pg::{Pg, State, Turn};
use crate::shards::PeerId;
use base::errno::{E2BIG, EIO, ENOSPC};
use base::planted::{Bug, acts};
use base::{Eversion, HObject, SnapId};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::time::Duration;
use store::{ObjectStore, Oid, Op, ReadError};
use wire::msg::PeerFeatures;

impl Pg {
    /// Takes a write that stands for all from number `first` on, with the bytes of its message and of its data.
    pub(in crate::pg) fn take_write(
        &mut self,
        from: PeerId,
        first: u64,
        write: Write,
        (body, data): (usize, usize),
        turn: &mut Turn<'_>,
    ) {
        let seq = write.seq;
        // The interval may have begun before this copy is activated; the primary sends its writes again.
        let Some(f) = &mut self.peers.follower else { return };
        if seq < f.next_write {
            let durable = f.durable_write;
            if seq <= durable {
                f.owes = false;
                self.send_to(from, &Body::WriteAck { seq: durable });
            }
            return;
        }
        if first != f.next_write {
            // A write got lost; the primary sends all unacknowledged writes again.
            tracing::debug!(pg = %self.env.spg(), first, seq, expected = f.next_write, "gap in writes");
            return;
        }
        let inflow = &self.peers.inflow;
        let is_next = inflow.queue.is_empty() && !inflow.applying && !inflow.stuck;
        // Its own bytes count, too.
        let room = (!is_next).then(|| self.env.pacer().applies(body + data));
        if self.env.pacer().applies_too_much() && !inflow.queue.is_empty() {
            // The primary sends it again when those before it are acknowledged.
            tracing::debug!(pg = %self.env.spg(), seq, "too much waits to be applied; a write is left to its repetition");
            return;
        }
        f.next_write = seq.saturating_add(1);
        self.env.meter().replication.writes.add(1);
        self.env.meter().replication.write_bytes.add(data as u64);
        // A shard's own changes come between the inputs, see `Pg::settle`.
        if is_next && !self.is_coded() {
            return self.apply_at_once(write, body + data, turn);
        }
        let room = room.unwrap_or_else(|| self.env.pacer().applies(body + data));
        self.peers.inflow.queue.push_back(Apply::Write(write, room));
    }

    /// Applies the next write, of so many bytes, without a plan. Where it has to wait for the disk, a plan waits and goes
    /// on with what the store has begun: data that is written early, and what a read brings. After an error a plan of its
    /// own reports it.
    fn apply_at_once(&mut self, mut write: Write, bytes: usize, turn: &mut Turn<'_>) {
        let id = self.new_plan_id();
        self.plans.begin_step_for_others();
        self.writes_stable(write.stable);
        let Err(stop) = self.apply_write(id, &mut write, turn.store) else { return };
        let room = self.env.pacer().applies(bytes);
        self.peers.inflow.queue.push_back(Apply::Write(write, room));
        if matches!(stop, Stop::Wait) {
            self.peers.inflow.applying = true;
            self.park(Plan::new(id, Work::Peering(PeeringWork::Apply), None, false), Stage::Reading);
        } else {
            turn.store.release(self.tag(id));
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of a message")]
    pub(in crate::pg) fn take_push(
        &mut self,
        from: PeerId,
        id: u64,
        n: u32,
        last: bool,
        background: bool,
        head: HObject,
        ops: Vec<Op>,
    ) {
        let wanted = self.peers.is_member() || self.recovery.pulls().get(&head).is_some_and(|p| p.source == Some(from));
        let refuses = self.understands(from, PeerFeatures::PARTS);
        if !wanted && !self.peers.inflow.incoming.knows(from, id, &head) {
            // The primary has the object, or asked another copy for it.
            return match self.is_primary() {
                true if refuses => self.send_to(from, &Body::PushStop { id, n, again: false }),
                true => self.send_to(from, &Body::PushAck { id, n }),
                false => {}
            };
        }
        match self.peers.inflow.incoming.take(from, id, n, &head) {
            Answer::Apply => {}
            Answer::Acknowledge => return self.send_to(from, &Body::PushAck { id, n }),
            Answer::Again if refuses => return self.send_to(from, &Body::PushStop { id, n, again: true }),
            Answer::Again | Answer::Later => return,
        }
        self.peers.inflow.queue.push_back(Apply::Push { from, id, n, last, background, head, ops });
    }

    /// Handles the primary's word that writes up to `seq` are durable on all members.
    pub(in crate::pg) fn writes_stable(&mut self, seq: u64) {
        let durable = match &mut self.peers.follower {
            Some(f) => {
                f.stable(seq);
                f.durable_write
            }
            None => 0,
        };
        self.peers.told_stable = self.peers.told_stable.max(seq);
        self.mark_safe(seq.min(durable));
    }

    /// True if all writes of the interval up to `seq` are applied here.
    pub(in crate::pg) fn has_applied(&self, seq: u64) -> bool {
        let waits = |a: &Apply| matches!(a, Apply::Write(w, _) if w.seq <= seq);
        self.peers.follower.as_ref().is_some_and(|f| f.next_write > seq) && !self.peers.inflow.queue.iter().any(waits)
    }

    /// Starts applying the next message, if none is being applied.
    pub(in crate::pg) fn pump_apply(&mut self, turn: &mut Turn<'_>) {
        while !self.peers.inflow.applying && !self.peers.inflow.stuck && !self.peers.inflow.queue.is_empty() {
            self.peers.inflow.applying = true;
            self.start_work(Work::Peering(PeeringWork::Apply), None, turn);
        }
    }

    pub(in crate::pg) fn run_apply(&mut self, id: u64, turn: &mut Turn<'_>) -> Verdict {
        let Some(mut front) = self.peers.inflow.queue.pop_front() else {
            self.peers.inflow.applying = false;
            return Verdict::Done;
        };
        let done = match &mut front {
            Apply::Write(write, _) => {
                self.writes_stable(write.stable);
                self.apply_write(id, write, turn.store)
            }
            Apply::Push { from, id: push, n, last, head, .. } if self.passes_over(*from, *push, *n, head) => {
                let (from, id, n) = (*from, *push, *n);
                self.peers.inflow.incoming.durable(from, id, n, *last, head);
                self.send_to(from, &Body::PushAck { id, n });
                self.peers.inflow.applying = false;
                return Verdict::Done;
            }
            Apply::Push { from, id: push, n, last, background, head, ops } => {
                self.apply_push(id, *from, *push, *n, *last, *background, head, ops, turn.store)
            }
            Apply::Backfilled(upto) => self.apply_backfilled(id, upto, turn.store),
        };
        match done {
            Ok(()) => {
                self.peers.inflow.applying = false;
                Verdict::Submitted
            }
            Err(Stop::Wait) => {
                self.peers.inflow.queue.push_front(front);
                Verdict::Park(Stage::Reading)
            }
            Err(Stop::Errno(ENOSPC)) if matches!(front, Apply::Push { .. }) => {
                // What comes behind may make room. The sender repeats the part.
                if let Apply::Push { from, id, n, head, .. } = &front {
                    tracing::warn!(pg = %self.env.spg(), object = %head, "no space for a part of an object; recovery waits for it");
                    self.peers.inflow.incoming.dropped(*from, *id, *n, head);
                }
                self.stop_filling();
                self.peers.inflow.applying = false;
                Verdict::Done
            }
            Err(Stop::Errno(ENOSPC)) => {
                // The primary waits, and so do its clients. Tried again at the next tick.
                tracing::warn!(pg = %self.env.spg(), "no space to apply a write of the primary; the PG waits for it");
                self.peers.inflow.queue.push_front(front);
                self.peers.inflow.applying = false;
                self.peers.inflow.stuck = true;
                Verdict::Done
            }
            Err(Stop::Errno(E2BIG)) if matches!(front, Apply::Push { .. }) => {
                self.peers.inflow.applying = false;
                self.push_exceeds_log(&front, turn.out);
                Verdict::Done
            }
            Err(Stop::Errno(errno)) => {
                self.fail(errno, turn.out);
                Verdict::Done
            }
        }
    }

    /// Reports a part of an object with a value that this OSD's log can't take. A primary that lacks such an object
    /// leaves its PG to the other copies.
    fn push_exceeds_log(&mut self, push: &Apply, out: &mut Vec<Effect>) {
        let object = if let Apply::Push { head, .. } = push { head.to_string() } else { String::new() };
        let text = format!(
            "{} {object}: an attribute or omap value exceeds what the log of osd.{} takes at once; this copy lacks \
             the object until the value is removed or the OSD has a larger device",
            self.env.spg(),
            self.env.whoami().0
        );
        tracing::error!("{text}");
        out.push(Effect::Log(LogLevel::Error, text));
        if self.is_primary() {
            self.fail(E2BIG, out);
        }
    }

    /// Submits the changes of a part of a pushed object: in several transactions, if the log takes no such large one.
    /// The object counts as missing until its last part is here, so a part that has to wait may begin anew.
    fn commit_pushed(&mut self, id: u64, mut ops: Vec<Op>, store: &mut dyn ObjectStore) -> Step<()> {
        match self.submit_with_log(self.tag(id), &mut ops, &[], &[], None, store) {
            Err(Stop::Errno(E2BIG)) => {}
            r => return r,
        }
        let (first, rest) = halves(ops).ok_or(E2BIG)?;
        self.commit_pushed(id, first, store)?;
        self.commit_pushed(id, rest, store)
    }

    /// True if this part of a pulled object is to be ignored: the object came by another push, or is coming by one
    /// that began later. Otherwise this push is the one that is applied. Two are in flight if the first source seemed
    /// gone. Clients may have changed the object after the first one finished. On a member nothing is ignored, since
    /// its primary sends each object once.
    fn passes_over(&mut self, from: PeerId, push: u64, n: u32, head: &HObject) -> bool {
        if self.peers.is_member() {
            return false;
        }
        !self.recovery.takes_part(from, push, n, head)
    }

    /// Applies a write. On error it is unchanged.
    fn apply_write(&mut self, id: u64, write: &mut Write, store: &mut dyn ObjectStore) -> Step<()> {
        let Write { seq, trim, ref records, ref mut ops, received, .. } = *write;
        let mut entries: SmallVec<[LogEntry; 1]> = SmallVec::new();
        for r in records {
            let e = LogEntry::from_record(r).map_err(|error| {
                tracing::error!(pg = %self.env.spg(), %error, "log record of the primary does not decode");
                Stop::Errno(EIO)
            })?;
            entries.push(e);
        }
        if entries.first().is_some_and(|e| e.version <= self.journal.info().last_update) {
            tracing::error!(pg = %self.env.spg(), last = %self.journal.info().last_update, "the primary's write does not follow this log");
            return Err(EIO.into());
        }
        // The primary does not wait for an object that is too large for this OSD's log. Its next version may not be.
        let lacks = |e: &LogEntry| e.kind != LogKind::Error && self.recovery.missing().contains_key(&e.soid.head());
        let lacks = !self.is_coded() && !self.recovery.missing().is_empty() && entries.iter().any(lacks);
        let mut delta = crate::stats::StatSum::default();
        // Only one record of a write has its change of the statistics.
        for e in &entries {
            delta.add(&e.delta);
        }
        let grown = self.wanted_newer(&entries);
        let mut more = Vec::new();
        let ops = if grown.is_empty() {
            ops
        } else {
            more.extend_from_slice(ops);
            more.push(set_missing(self.env.cid(), self.meta_missing(), &grown));
            &mut more
        };
        let done = match lacks {
            true => Err(Stop::Errno(E2BIG)),
            false => self.submit_with_log(self.tag(id), ops, &entries, records, trim, store),
        };
        match done {
            // Another OSD's log may take a larger transaction than this one's. The object then comes in parts.
            Err(Stop::Errno(e @ (EIO | E2BIG))) => {
                self.lose_written(self.tag(id), e, &entries, records, trim, store)?;
            }
            r => r?,
        }
        self.recovery.lacks(grown);
        self.journal.add_stats(&delta);
        self.note_entries(seq, &entries);
        let follower = self.peers.follower.as_mut();
        debug_assert!(follower.is_some(), "only members get writes, and these end with the interval");
        let mut unstable = follower.filter(|_| seq > self.peers.told_stable);
        for e in entries {
            let head = HObject { snap: SnapId::HEAD, ..e.soid };
            self.plans.forget_context(&head);
            if let Some(f) = &mut unstable {
                f.unstable(seq, head.hash);
            }
        }
        let to = self.primary();
        self.on_durable(Action::Peering(PeeringAction::WriteDurable { to, seq, received }));
        if acts(Bug::ReplicaAcksBeforeDurable) {
            self.send_to(to, &Body::WriteAck { seq });
        }
        Ok(())
    }

    /// Missing objects of this shard that the entries write, each with the version that is wanted from then on: a member's log names the
    /// versions that the shard must have if its OSD becomes the primary.
    fn wanted_newer(&self, entries: &[LogEntry]) -> BTreeMap<HObject, Eversion> {
        let mut all = BTreeMap::new();
        if self.is_coded() && !self.recovery.missing().is_empty() {
            for e in entries.iter().filter(|e| e.kind != LogKind::Error) {
                let head = e.soid.head();
                if self.recovery.missing().get(&head).is_some_and(|v| *v < e.version) {
                    all.insert(head, e.version);
                }
            }
        }
        all
    }

    /// Everything of an object there is here.
    pub(in crate::pg) fn family(&self, id: u64, head: &HObject, store: &mut dyn ObjectStore) -> Step<Vec<Oid>> {
        self.family_from(id, head, None, FAMILY_MAX, store)
    }

    /// The first `most` of them, at clone `from` or beyond.
    pub(in crate::pg) fn family_from(
        &self,
        id: u64,
        head: &HObject,
        from: Option<&HObject>,
        most: usize,
        store: &mut dyn ObjectStore,
    ) -> Step<Vec<Oid>> {
        let first = from.filter(|f| f.head() == *head).cloned().unwrap_or_else(|| head.at_snap(SnapId(0)));
        let tag = self.tag(id);
        let mut all = Vec::new();
        let mut from = Oid::new(first).at_generation(0);
        loop {
            let (page, next) = store.list(tag, self.env.cid(), &from, None, 64)?;
            for o in page {
                if o.hobj.head() != *head {
                    return Ok(all);
                }
                if o.generation != Oid::NO_GEN {
                    continue;
                }
                all.push(o);
            }
            match next {
                Some(n) if all.len() < most => from = n,
                _ => return Ok(all),
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of a message")]
    fn apply_push(
        &mut self,
        id: u64,
        from: PeerId,
        push: u64,
        n: u32,
        last: bool,
        background: bool,
        head: &HObject,
        ops: &[Op],
        store: &mut dyn ObjectStore,
    ) -> Step<()> {
        let mut all = Vec::with_capacity(ops.len() + 2);
        if n == 0 {
            let tag = self.tag(id);
            // The head goes first: what a power cut leaves of a removal in several transactions is nobody's object.
            for oid in self.family(id, head, store)?.into_iter().rev() {
                let snapset = match store.attr(tag, self.env.cid(), &oid, SS_ATTR) {
                    // An unreadable snapset may be the reason for this push.
                    Err(ReadError::Io { .. }) => None,
                    r => r?,
                };
                if let Some(a) = snapset
                    && let Ok(ss) = SnapSet::from_attr(&a)
                    && !ss.clones.is_empty()
                {
                    let keys = index_keys(head, &ss).collect();
                    all.push(Op::OmapRmKeys { cid: self.env.cid(), oid: self.meta(), keys });
                }
                all.push(Op::Remove { cid: self.env.cid(), oid });
            }
        }
        all.extend(ops.iter().cloned());
        if last && self.recovery.missing().contains_key(head) {
            let keys = vec![missing_key(head)];
            all.push(Op::OmapRmKeys { cid: self.env.cid(), oid: self.meta_missing(), keys });
        }
        let started = self.peers.serves || matches!(self.life.state(), State::Active | State::Quiesced);
        if self.is_coded() && last && !started {
            // Other shards may rewind to a version before that of this object.
            self.journal.raise_undo_floor();
        }
        self.commit_pushed(id, all, store)?;
        if last {
            self.recovery.took_last(from, push, head);
        }
        self.plans.forget_context(head);
        self.on_durable(Action::Recovery(RecoveryAction::PushDurable {
            from,
            id: push,
            n,
            last,
            background,
            head: Box::new(head.clone()),
        }));
        Ok(())
    }

    fn apply_backfilled(&mut self, id: u64, upto: &HObject, store: &mut dyn ObjectStore) -> Step<()> {
        let before = self.journal.set_backfill_bound(upto.clone());
        let r = self.commit_alone(self.tag(id), Vec::new(), store);
        if r.is_err() {
            self.journal.set_backfill_bound(before);
        } else if upto.max {
            tracing::info!(pg = %self.env.spg(), "backfill is complete");
        }
        r
    }

    pub(in crate::pg) fn write_durable(&mut self, to: PeerId, seq: u64, took: Duration) {
        self.env.meter().replication.durable(took);
        self.owe_ack(to, seq);
        if self.is_coded() {
            self.mark_safe(seq.min(self.peers.told_stable));
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of a message")]
    pub(in crate::pg) fn push_durable(
        &mut self,
        from: PeerId,
        id: u64,
        n: u32,
        last: bool,
        background: bool,
        head: &HObject,
        turn: &mut Turn<'_>,
    ) {
        self.peers.inflow.incoming.durable(from, id, n, last, head);
        // The primary sends the next part after this acknowledgement.
        let lane = if background { Lane::Background(Class::Recovery) } else { Lane::Data };
        self.send_on(lane, from, Body::PushAck { id, n }.encode());
        if last {
            self.recovery.got(head);
            if self.is_primary() {
                self.pulled(head, turn);
            }
        }
    }

    /// Removes this copy, since the PG is clean without it.
    pub(in crate::pg) fn remove_stray(&mut self, turn: &mut Turn<'_>) {
        if self.acting_set().contains(self.me())
            || self.up_set().contains(self.me())
            || *self.life.state() != State::Stray
        {
            return;
        }
        if !self.mail.held().is_empty() {
            // Clients have a newer map, in which this OSD is primary.
            return tracing::debug!(pg = %self.env.spg(), "this copy stays: held operations show that a newer map needs it");
        }
        tracing::info!(pg = %self.env.spg(), "removing this copy: the PG is clean without it");
        self.start_delete(turn);
    }
}

/// Splits changes into earlier and later ones, a single one by its entries. `None` if that is not possible.
fn halves(mut ops: Vec<Op>) -> Option<(Vec<Op>, Vec<Op>)> {
    if ops.len() > 1 {
        let rest = ops.split_off(ops.len() / 2);
        return Some((ops, rest));
    }
    let first = ops.first_mut()?;
    let rest = match first {
        Op::SetAttrs { cid, oid, attrs } if attrs.len() > 1 => {
            Op::SetAttrs { cid: *cid, oid: oid.clone(), attrs: attrs.split_off(attrs.len() / 2) }
        }
        Op::OmapSet { cid, oid, entries } if entries.len() > 1 => {
            Op::OmapSet { cid: *cid, oid: oid.clone(), entries: entries.split_off(entries.len() / 2) }
        }
        Op::OmapRmKeys { cid, oid, keys } if keys.len() > 1 => {
            Op::OmapRmKeys { cid: *cid, oid: oid.clone(), keys: keys.split_off(keys.len() / 2) }
        }
        _ => return None,
    };
    Some((ops, vec![rest]))
}
