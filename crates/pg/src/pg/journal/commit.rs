//! Submission of transactions, and the actions that follow when they are durable.
//!
//! A write waits here until it is durable on this copy and on all members. If a member dies, a map ends the interval
//! (`life`). Unanswered operations are then taken up again in the next interval (`plan`, [`Pg::requeue`]).
//!
//! Invariants:
//!  1. Transactions of a PG become durable in the order of submission, and their actions run in that order.
//!  2. A reply that shows the effect of a transaction leaves after the transaction is durable, also the reply of a
//!     later read.
//!
//! Tests: `tests/order.rs`.

use crate::effect::{Effect, Lane};
use crate::event::{OpRequest, SessionId};
use crate::exec::{Finished, Step, Stop, WatchEffects};
use crate::info::{INFO_EVERY, PgInfo};
use crate::log::LogEntry;
use crate::peer::encode_write;
use crate::pg::backend::Records;
use crate::pg::backend::Unacked;
use crate::pg::backend::ec::defer::Deferred;
use crate::pg::backend::{Sent, Spread};
use crate::pg::journal::action::Action;
use crate::pg::journal::action::Kind;
use crate::pg::journal::action::ScrubAction;
use crate::pg::journal::action::Timing;
use crate::pg::{Pg, State, Turn};
use crate::scrub::message::Answer;
use crate::shards::PeerId;
use crate::stats::OpDump;
use base::errno::{E2BIG, EBUSY, ENOSPC, Errno};
use base::ledger::{Answered, Cause};
use base::planted::{Bug, acts};
use base::unreached;
use base::{Eversion, HObject, Mono, OsdId};
use bytes::Bytes;
use smallvec::SmallVec;
use std::rc::Rc;
use store::{ObjectStore, Op, Tag, Transaction};
use wire::msg::{MOsdOpReply, PeerFeatures};

/// A submitted transaction whose actions have not run.
#[derive(Debug)]
pub(in crate::pg) struct Commit {
    pub tag: Tag,
    pub seq: u64,
    /// Number of the write among those that all members must have; 0 if it is local to this copy.
    pub shared: u64,
    /// Newest log version up to and including this transaction.
    pub version: Eversion,
    /// Time at which it became durable on this copy.
    pub here: Option<Mono>,
    pub actions: SmallVec<[Action; 1]>,
}

impl Commit {
    /// Operations whose replies wait for this transaction.
    pub(in crate::pg) fn waiting(&self, now: Mono) -> impl Iterator<Item = OpDump> + '_ {
        let (stage, cause) = match self.here {
            Some(_) => ("waiting for sub ops", Cause::Replica),
            None => ("waiting for commit", Cause::Commit),
        };
        self.actions.iter().filter_map(move |a| match a {
            Action::Answer(r, _) => {
                let age = now.since(r.received.mono);
                Some(OpDump { client: r.client, tid: r.msg.tid, age, stage, cause })
            }
            Action::Reply(_, r, t, _) => {
                Some(OpDump { client: t.client, tid: r.tid, age: now.since(t.received), stage, cause })
            }
            _ => None,
        })
    }
}

impl Pg {
    /// Submits a vector's changes, and caches the object's new state.
    pub(in crate::pg) fn commit_object(
        &mut self,
        tag: Tag,
        head: &HObject,
        done: Finished,
        store: &mut dyn ObjectStore,
    ) -> Step<()> {
        let Finished { ops, mut entries, mut after, delta, .. } = done;
        self.commit_entries(tag, ops, &mut entries, store)?;
        self.journal.info.stats.add(&delta);
        self.scrub_sees(head, &delta);
        after.last_write = self.journal.submitted;
        self.wrote_damaged(head);
        self.plans.keep_context(head, Rc::new(after));
        Ok(())
    }

    /// Submits changes with their log records, here and on all members. The caller adds the records' statistics to
    /// the info.
    pub(in crate::pg) fn commit_entries(
        &mut self,
        tag: Tag,
        ops: Vec<Op>,
        entries: &mut [LogEntry],
        store: &mut dyn ObjectStore,
    ) -> Step<()> {
        let keep = self.journal.keep.as_deref().copied().unwrap_or_else(|| self.env.reserver().keep());
        let share = !self.peers.members().is_empty()
            && *self.life.state() == State::Active
            && !(ops.is_empty() && entries.is_empty());
        let trim = self.journal.log.trim_target(keep).filter(|to| {
            // Trim only what is durable everywhere: a member without a trimmed record would look like one that has
            // it.
            self.journal.commits.front().is_none_or(|c| to.version + entries.len() as u64 + 1 < c.version.version)
                // Only the primary knows which records members still lack.
                && (!self.is_coded() || share && self.peers.unacked().front().is_none_or(|u| to.version <= u.after))
        });
        let mut spread = self.spread(tag, ops, entries, store)?;
        let records: Records = entries.iter().map(LogEntry::to_record).collect();
        if !share {
            let mut own = spread.take_own(self.me());
            self.submit_with_log(tag, &mut own, entries, &records, trim, store)?;
            self.note_entries(0, entries);
            return Ok(());
        }
        if self.is_coded() && matches!(spread, Spread::Same(_)) {
            self.send_deferred();
        }
        let deferred = self.deferrable(entries, &records, trim);
        let full = self.encode_for_members(self.peers.seq() + 1, trim, &records, &spread, deferred.as_deref())?;
        let mut own = spread.take_own(self.me());
        self.submit_with_log(tag, &mut own, entries, &records, trim, store)?;
        self.share_write(entries.last().map(|e| &e.soid), full, trim, &records, deferred);
        self.note_entries(self.peers.seq(), entries);
        Ok(())
    }

    /// Notes what this shard keeps to undo a write.
    pub(in crate::pg) fn note_entries(&mut self, seq: u64, entries: &[LogEntry]) {
        if !self.is_coded() {
            return;
        }
        for e in entries {
            self.note_aside(e);
        }
        if let Some(e) = entries.last() {
            self.note_undo(seq, e.version);
        }
    }

    /// Submits as many of `n` changes as there is room for, from the first on; returns their number. The space that a
    /// store reserves for a transaction grows with its changes and is many times what they use.
    pub(in crate::pg) fn commit_first(
        &mut self,
        tag: Tag,
        mut n: usize,
        first: impl Fn(usize) -> Vec<Op>,
        store: &mut dyn ObjectStore,
    ) -> Step<usize> {
        loop {
            match self.commit_entries(tag, first(n), &mut [], store) {
                Err(Stop::Errno(E2BIG | ENOSPC)) if n > 1 => n = n.div_ceil(2),
                done => return done.map(|()| n),
            }
        }
    }

    /// Sends the write submitted last to all members, or, if some of it may be deferred, to those whose shards it touches.
    pub(in crate::pg) fn share_write(
        &mut self,
        soid: Option<&HObject>,
        full: Sent,
        trim: Option<Eversion>,
        records: &[Bytes],
        deferred: Option<Box<Deferred>>,
    ) {
        let seq = self.peers.next_seq();
        let after = self.journal.info.last_update.version.saturating_sub(records.len() as u64);
        if let Some(c) = self.journal.commits.back_mut() {
            c.shared = seq;
        }
        let bare_for = soid.map(|o| self.peers.leave_bare(o)).unwrap_or_default();
        let bare = if bare_for.is_empty() {
            None
        } else {
            encode_write(seq, seq, self.stable_at_members(), trim, records, &[], PeerFeatures::NONE)
        };
        let to: SmallVec<[PeerId; 4]> = self.peers.members().keys().copied().collect();
        for o in to {
            let m = if bare_for.contains(&o) { bare.clone() } else { full.to(o).cloned() };
            if let Some(m) = m {
                if !self.is_sent_again(o) {
                    self.send_summed(Lane::Data, o, m, full.sums());
                }
                self.peers.sent(o, seq);
            } else {
                self.report.count_spared();
            }
        }
        let hash = soid.map_or(0, |o| o.hash);
        self.peers.await_ack(Unacked {
            seq,
            sent: self.env.meter().now(),
            after,
            hash,
            full,
            bare,
            bare_for,
            deferred,
        });
    }

    /// Submits changes that are local to this copy, together with a new info.
    pub(in crate::pg) fn commit_with_info(
        &mut self,
        tag: Tag,
        info: PgInfo,
        mut ops: Vec<Op>,
        store: &mut dyn ObjectStore,
    ) -> Step<()> {
        let before = std::mem::replace(&mut self.journal.info, info);
        let dirty = std::mem::replace(&mut self.journal.dirty, true);
        let r = self.submit_with_log(tag, &mut ops, &[], &[], None, store);
        if r.is_err() {
            self.journal.info = before;
            self.journal.dirty = dirty;
        }
        r
    }

    /// Submits changes that are local to this copy.
    pub(in crate::pg) fn commit_alone(&mut self, tag: Tag, mut ops: Vec<Op>, store: &mut dyn ObjectStore) -> Step<()> {
        self.submit_with_log(tag, &mut ops, &[], &[], None, store)
    }

    /// Submits `ops` with the log entries and their stored form, `records`. On error `ops` are unchanged.
    pub(in crate::pg) fn submit_with_log(
        &mut self,
        tag: Tag,
        ops: &mut Vec<Op>,
        entries: &[LogEntry],
        records: &[Bytes],
        trim: Option<Eversion>,
        store: &mut dyn ObjectStore,
    ) -> Step<()> {
        let mut given = ops.len();
        // A shard keeps what the write replaces until all shards have the entry.
        let keeps = self.is_coded() && given > 0;
        if let Some(e) = entries.last().filter(|_| keeps) {
            ops.insert(0, Op::Keep { cid: self.env.cid(), version: e.version });
            given += 1;
        }
        let mut txn = Transaction { ops: std::mem::take(ops) };
        txn.ops.reserve(entries.len() + 2);
        for (e, record) in entries.iter().zip(records) {
            txn.push(Op::LogAppend { cid: self.env.cid(), version: e.version, entry: record.clone() });
        }
        if let Some(to) = trim {
            txn.push(Op::LogTrim { cid: self.env.cid(), to });
        }
        // The info is stored as of before these records; loading replays them.
        let save = self.journal.dirty || trim.is_some() || self.journal.since_info >= INFO_EVERY;
        if save {
            self.journal.info.log_tail = trim.unwrap_or(self.journal.info.log_tail);
            self.journal.info.epoch = self.journal.info.epoch.max(self.epoch());
            txn.push(Op::PgInfo { cid: self.env.cid(), info: self.journal.info.to_blob() });
        }
        // Records without changes are refusals, or writes to objects that this member gets later.
        let own = self.plans.is_internal_step() || given == 0;
        let submitted = if own || self.relocate.departs() {
            let ready = if own { store.prepare_own(tag, &txn) } else { store.prepare(tag, &txn) };
            match ready {
                Ok(()) => {
                    let shipped = if self.relocate.departs() { self.pick_for_move(&txn.ops) } else { Vec::new() };
                    store.submit(tag, txn);
                    Ok(shipped)
                }
                Err(e) => Err((e, txn)),
            }
        } else {
            store.apply(tag, txn).map(|()| Vec::new())
        };
        let shipped = match submitted {
            Ok(shipped) => shipped,
            Err((e, Transaction { ops: mut unchanged })) => {
                unchanged.truncate(given);
                if keeps && !entries.is_empty() {
                    unchanged.remove(0);
                }
                *ops = unchanged;
                return Err(e.into());
            }
        };
        if save {
            self.journal.dirty = false;
            self.journal.since_info = 0;
        }
        self.record(tag, entries, trim);
        if !shipped.is_empty() {
            self.ship(shipped);
        }
        Ok(())
    }

    /// Takes what was submitted into the log: its end, the entries, and a commit that becomes durable.
    fn record(&mut self, tag: Tag, entries: &[LogEntry], trim: Option<Eversion>) {
        if let Some(to) = trim {
            self.journal.log.trim(to);
        }
        for e in entries {
            self.journal.since_info += 1;
            self.journal.info.last_update = e.version;
            self.journal.info.last_user_version = self.journal.info.last_user_version.max(e.user_version);
            self.journal.log.push(e.dup());
        }
        self.journal.submitted += 1;
        self.journal.commits.push_back(Commit {
            tag,
            seq: self.journal.submitted,
            shared: 0,
            version: self.journal.info.last_update,
            here: None,
            actions: SmallVec::new(),
        });
    }

    /// Adds an action to the most recently submitted transaction.
    pub(in crate::pg) fn on_durable(&mut self, a: Action) {
        if let Some(c) = self.journal.commits.back_mut() {
            c.actions.push(a);
        }
    }

    /// Number of the transaction with the given log version, 0 if it is durable.
    pub(in crate::pg) fn commit_of(&self, v: Eversion) -> u64 {
        let at = self.journal.commits.partition_point(|c| c.version < v);
        self.journal.commits.get(at).map_or(0, |c| c.seq)
    }

    /// Sends a reply when transaction `seq` is durable, or at once if it is.
    pub(in crate::pg) fn send_after(
        &mut self,
        seq: u64,
        reply: Box<MOsdOpReply>,
        session: SessionId,
        timing: Timing,
        turn: &mut Turn<'_>,
    ) {
        if seq > self.journal.durable
            && let Some(first) = self.journal.commits.front().map(|c| c.seq)
            && let Some(c) =
                self.journal.commits.get_mut(usize::try_from(seq.saturating_sub(first)).unwrap_or(usize::MAX))
        {
            let again = self.plans.take_request();
            c.actions.push(Action::Reply(session, reply, Box::new(timing), again));
            return;
        }
        self.send(reply, session, &timing, turn);
    }

    /// A planted bug: sends the replies that wait for durability.
    pub(in crate::pg) fn answer_early(&mut self, turn: &mut Turn<'_>) {
        for i in 0..self.journal.commits.len() {
            for a in std::mem::take(&mut self.journal.commits[i].actions) {
                match a {
                    a @ (Action::Answer(..) | Action::Reply(..)) => self.act(a, turn),
                    a => self.journal.commits[i].actions.push(a),
                }
            }
        }
    }

    /// Builds a reply, and sends it as [`Pg::send_after`] does.
    #[allow(clippy::too_many_arguments, reason = "a reply and when to send it")]
    pub(in crate::pg) fn reply_after(
        &mut self,
        seq: u64,
        req: &mut OpRequest,
        result: i32,
        versions: Option<(Eversion, u64)>,
        kind: Kind,
        turn: &mut Turn<'_>,
    ) {
        let reply = self.build_reply(req, result, versions, true);
        let timing = Timing::new(kind, req, 0, 0);
        self.send_after(seq, reply, req.session, timing, turn);
    }

    /// Sends an error that depends on no object's state, at once.
    pub(in crate::pg) fn reply_error(&mut self, req: &mut OpRequest, errno: Errno, kind: Kind, turn: &mut Turn<'_>) {
        self.reply_after(0, req, errno, None, kind, turn);
    }

    fn send(&mut self, reply: Box<MOsdOpReply>, session: SessionId, t: &Timing, turn: &mut Turn<'_>) {
        self.report.count_op();
        self.env.meter().answered(t.kind, t.received, turn.now.mono, t.read, t.written);
        self.env.meter().book.borrow_mut().add(
            &Answered {
                ledger: &t.ledger,
                client: t.client,
                tid: reply.tid,
                pool: self.env.spg().pg.pool,
                name: &reply.oid,
                hash: t.hash,
                busy: reply.result == EBUSY,
            },
            turn.now.mono,
        );
        turn.out.push(Effect::Reply(session, reply));
    }

    /// Carries out watch operations at once.
    pub(in crate::pg) fn apply_effects(
        &mut self,
        fx: WatchEffects,
        head: &HObject,
        req: &OpRequest,
        user_version: u64,
        turn: &mut Turn<'_>,
    ) {
        if !fx.is_empty() {
            self.watches.apply(fx, head, req.session, req.client, req.addr, user_version, turn.now, turn.out);
        }
    }

    /// Handles the durability of a transaction on this copy.
    pub(in crate::pg) fn handle_durable(&mut self, tag: Tag, turn: &mut Turn<'_>) {
        // A store that failed may still report what it had taken.
        let Some(first) = self.journal.commits.front().map(|c| c.seq) else { return };
        let next = self.journal.local + 1;
        let expected =
            self.journal.commits.get(usize::try_from(next.saturating_sub(first)).unwrap_or(usize::MAX)).map(|c| c.tag);
        if expected != Some(tag) {
            tracing::error!(pg = %self.env.spg(), ?tag, ?expected, "durable out of order");
            self.store_failed(base::errno::EIO, turn.out);
            return;
        }
        self.journal.local = next;
        self.journal.check();
        if let Some(c) = self.journal.commits.get_mut(usize::try_from(next - first).unwrap_or(usize::MAX)) {
            c.here = Some(turn.now.mono);
        }
        self.finish_commits(turn);
        if self.is_primary() {
            self.writes_settled();
        }
        if next == self.journal.settle_point && !self.life.is_stopping() {
            self.settled(turn);
        }
    }

    /// Handles an acknowledgement: the member has all writes up to `seq`. True if writes are sent to it again.
    pub(in crate::pg) fn take_ack(&mut self, from: PeerId, seq: u64, turn: &mut Turn<'_>) -> bool {
        let (meter, now) = (self.env.meter(), turn.now.mono);
        let each = |sent| meter.book.borrow_mut().acked(from.osd, now.since(sent), now);
        let Some(repeated) = self.peers.take_ack(from, seq, each) else { return false };
        self.count_acked();
        if let Some(bytes) = repeated {
            self.go_on_again(from, bytes);
        }
        self.finish_for(Some(from.osd), turn);
        self.writes_settled();
        repeated.is_some()
    }

    /// Marks undo data of writes that are durable on all shards as no longer needed, and wakes the pushes that waited for
    /// such writes.
    pub(in crate::pg) fn writes_settled(&mut self) {
        if !self.is_coded() {
            return;
        }
        self.mark_safe(self.stable_at_members());
        self.plans.ready_all(self.ec.take_settling());
    }

    /// Counts acknowledgements of members: drops the writes that all members have, and advances over those that every
    /// touched member has.
    pub(in crate::pg) fn count_acked(&mut self) {
        self.peers.drop_acked();
        let (p, coded) = (&self.peers, self.ec.coder().is_some());
        let (Some(first), true) = (p.unacked().front().map(|u| u.seq), coded) else { return };
        let mut acked = self.ec.acked().max(first - 1);
        let next = usize::try_from(acked + 1 - first).unwrap_or(usize::MAX);
        for u in p.unacked().iter().skip(next) {
            if p.members().iter().any(|(o, m)| m.acked < u.seq && u.waits_for(*o)) {
                break;
            }
            acked = u.seq;
        }
        self.ec.set_acked(acked);
    }

    /// Number up to which all writes are acknowledged by every member that they wait for.
    pub(in crate::pg) fn stable(&self) -> u64 {
        match self.peers.unacked().front() {
            None => self.peers.seq(),
            Some(u) => (u.seq - 1).max(self.ec.acked()),
        }
    }

    /// Number of the newest write that is durable on all members and here, which members may treat as stable: shards drop
    /// what undoes it, and replicas show it to clients. Without this copy it may have to be undone, so it counts, too.
    pub(in crate::pg) fn stable_at_members(&self) -> u64 {
        let here = self.journal.commits.iter().find(|c| c.shared > 0).map_or(self.peers.seq(), |c| c.shared - 1);
        here.min(self.stable())
    }

    /// True if one of the writes up to `seq` that `which` selects may have to be undone: it is not durable here, or
    /// some member has not acknowledged it. A shard that gets such a write by recovery or backfill could not undo it.
    pub(in crate::pg) fn may_be_undone(&self, seq: u64, which: impl Fn(&Unacked) -> bool) -> bool {
        self.is_coded()
            && !acts(Bug::RecoverUnstable)
            && (self.journal.commits.iter().any(|c| c.shared > 0 && c.shared <= seq)
                || self.peers.unacked().iter().take_while(|u| u.seq <= seq).any(which))
    }

    /// Runs the actions of transactions that are durable here and, if shared, on all members.
    pub(in crate::pg) fn finish_commits(&mut self, turn: &mut Turn<'_>) {
        self.finish_for(None, turn);
    }

    /// As [`Pg::finish_commits`], after an acknowledgement of that OSD.
    fn finish_for(&mut self, last: Option<OsdId>, turn: &mut Turn<'_>) {
        let everywhere = if self.peers.unacked().is_empty() { u64::MAX } else { self.stable() };
        while let Some(c) = self.journal.commits.front()
            && c.seq <= self.journal.local
            && (c.shared <= everywhere || acts(Bug::AckBeforeReplicas))
        {
            let Some(c) = self.journal.commits.pop_front() else { return unreached("there is a first commit") };
            debug_assert!(self.journal.durable < c.seq, "actions run in the order of submission");
            self.journal.durable = c.seq;
            for mut a in c.actions {
                let ledger = match &mut a {
                    Action::Answer(req, _) => Some(&mut req.ledger),
                    Action::Reply(_, _, t, _) => Some(&mut t.ledger),
                    _ => None,
                };
                if let Some(l) = ledger {
                    l.durable(c.here.unwrap_or(turn.now.mono), last, turn.now.mono);
                }
                self.act(a, turn);
            }
        }
    }

    fn act(&mut self, a: Action, turn: &mut Turn<'_>) {
        match a {
            Action::Answer(mut req, a) => {
                let reply = self.build_reply(&mut req, 0, Some((a.version, a.user_version)), false);
                self.send(reply, req.session, &Timing::new(a.kind, &req, a.read, a.written), turn);
            }
            Action::Reply(session, reply, timing, _) => self.send(reply, session, &timing, turn),
            Action::Effects(w) => {
                let w = *w;
                let (now, out) = (turn.now, &mut *turn.out);
                self.watches.apply(w.effects, &w.head, w.session, w.client, w.addr, w.user_version, now, out);
            }
            Action::Life(a) => self.act_life(a, turn),
            Action::Peering(a) => self.act_peering(a, turn),
            Action::Recovery(a) => self.act_recovery(a, turn),
            Action::Scrub(ScrubAction::Lacks { to, n }) => self.scrub_answer(to, n, Answer::Lacks),
            Action::Resize(a) => self.act_resize(a, turn),
            Action::Relocate(a) => self.act_relocate(a, turn),
        }
    }
}
