//! Plans: work on one object, or on the PG. A plan runs in one go if the store has everything in memory. Otherwise it
//! is parked and run again from its start. A plan whose object must be recovered first waits in `recovery::by_log`.
//!
//! Invariants:
//!  1. Plans on one object either share it as readers or hold it as the only writer; the others wait in order of
//!     arrival. A plan that runs in one go takes no lock, since nothing can come between.
//!  2. A parked plan has changed nothing.
//!
//! Tests: `tests/order.rs`.

use crate::effect::Effect;
use crate::event::{OpRequest, SessionId};
use crate::exec::{CopyDone, CopyState, Progress, Step, Stop, load_context};
use crate::object::ObjectContext;
use crate::pg::backend::ec::read::ShardReads;
use crate::pg::journal::action::Action;
use crate::pg::journal::action::ResizeAction;
use crate::pg::ops::copy::Copying;
use crate::pg::ops::long::LongCall;
use crate::pg::ops::work::PeeringWork;
use crate::pg::ops::work::RecoveryWork;
use crate::pg::ops::work::RelocateWork;
use crate::pg::ops::work::ResizeWork;
use crate::pg::ops::work::TrimWork;
use crate::pg::ops::work::Work;
use crate::pg::{Pg, State, Turn};
use base::errno::ENOSPC;
use base::ledger::Cause;
use base::planted::{Bug, acts};
use base::{HObject, Now};
use std::collections::VecDeque;
use std::rc::Rc;

/// Stage of a plan, for the list of operations in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pg) enum Stage {
    Queued,
    Reading,
    Fetching,
    /// Waits for room among the copies of its reactor.
    CopyRoom,
    /// Waits for bytes of other shards.
    Shards,
    /// Waits for a map in which the pool is not full.
    WaitingForSpace,
    /// Waits for room in the store.
    NoRoom,
    Recovering,
    Scrubbing,
    /// Waits for the turn of its next part.
    NextPart,
}

impl Stage {
    /// Cause of the wait, in an operation's ledger.
    pub(in crate::pg) fn cause(self) -> Cause {
        match self {
            Self::Queued => Cause::Lock,
            Self::Reading => Cause::Read,
            Self::NextPart => Cause::Class,
            Self::Fetching | Self::CopyRoom => Cause::Copy,
            Self::Shards => Cause::Shards,
            Self::WaitingForSpace | Self::NoRoom => Cause::Space,
            Self::Recovering => Cause::Recovery,
            Self::Scrubbing => Cause::Scrub,
        }
    }

    pub(in crate::pg) fn text(self) -> &'static str {
        match self {
            Self::Queued => "waiting for rw locks",
            Self::Reading | Self::NextPart => "started",
            Self::Fetching | Self::CopyRoom => "copying from another object",
            Self::Shards => "waiting for sub ops",
            Self::WaitingForSpace | Self::NoRoom => "waiting for space",
            Self::Recovering => "waiting for missing object",
            Self::Scrubbing => "waiting for scrub",
        }
    }
}

/// A plan; see the module.
#[derive(Debug)]
pub(in crate::pg) struct Plan {
    pub id: u64,
    pub work: Work,
    /// Head of the object; `None` for work on the PG.
    pub head: Option<HObject>,
    /// The plan needs the object exclusively, to write it.
    pub excl: bool,
    /// The plan is counted in its object's lock.
    pub holds: bool,
    /// The plan reads committed state for a copy to another object, so it ignores locks.
    pub bypass: bool,
    pub stage: Stage,
    /// Ranges of other shards that the plan has read.
    pub reads: Option<Box<ShardReads>>,
    pub copy: Option<Box<CopyState>>,
    pub copied: Option<Box<CopyDone>>,
    /// Room for the content of `copy` or `copied`.
    pub copying: Copying,
    /// State of a long call between its parts.
    pub long: Option<Box<LongCall>>,
    /// Progress of a vector of many operations.
    pub progress: Option<Box<Progress>>,
}

/// Lock of an object with parked plans.
#[derive(Debug, Default)]
pub(in crate::pg) struct ObjectLock {
    writer: bool,
    readers: u32,
    waiting: VecDeque<u64>,
}

impl ObjectLock {
    /// True if a plan waits for the lock.
    pub(in crate::pg) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }
}

/// Outcome of running a plan.
#[derive(Default)]
pub(in crate::pg) enum Verdict {
    /// Finished without a transaction; the plan's tag in the store is released.
    #[default]
    Done,
    /// Finished, with a submitted transaction.
    Submitted,
    /// Run the plan again after what the stage names.
    Park(Stage),
    /// The object does not read here; run the plan again when recovery has replaced it.
    Damaged(HObject),
    /// This copy lacks the object; run the plan again when it is recovered or known to be unfound.
    Recover(HObject),
}

impl From<Stop> for Verdict {
    fn from(s: Stop) -> Self {
        match s {
            Stop::Wait => Self::Park(Stage::Reading),
            Stop::Errno(_) => Self::Done,
        }
    }
}

impl Plan {
    /// Charges a client's operation with its wait, by the stage of the plan.
    fn pass(&mut self, now: Now) {
        if let Work::Client(req, _) = &mut self.work {
            req.ledger.wait(self.stage.cause());
            req.ledger.pass(now.mono);
        }
    }

    /// A new plan, boxed: it is run, parked and run again without copies. A small allocation is usually warm in the
    /// cache, while space inside a mostly idle PG would be cold.
    pub(in crate::pg) fn new(id: u64, work: Work, head: Option<HObject>, excl: bool) -> Box<Self> {
        Box::new(Self {
            id,
            work,
            head,
            excl,
            holds: false,
            bypass: false,
            stage: Stage::Queued,
            reads: None,
            copy: None,
            copied: None,
            copying: Copying::default(),
            long: None,
            progress: None,
        })
    }
}

impl Pg {
    /// Starts internal work of the PG.
    pub(in crate::pg) fn start_work(&mut self, work: Work, head: Option<HObject>, turn: &mut Turn<'_>) {
        let excl = head.is_some();
        let plan = Plan::new(self.new_plan_id(), work, head, excl);
        self.start(plan, turn);
    }

    /// Runs a new plan, or queues it behind those that hold its object.
    pub(in crate::pg) fn start(&mut self, mut plan: Box<Plan>, turn: &mut Turn<'_>) {
        plan.pass(turn.now);
        if self.comes_after_spaceless(&plan) {
            return self.park_without_space(plan, Stage::WaitingForSpace, turn.store);
        }
        if let Some(head) = self.recovers_first(&plan) {
            return self.wait_for_recovery(plan, head);
        }
        if !plan.bypass
            && let Some(lock) = plan.head.as_ref().and_then(|h| self.plans.locks.get_mut(h))
            && (lock.writer || plan.excl && lock.readers > 0 || !lock.waiting.is_empty())
        {
            lock.waiting.push_back(plan.id);
            plan.stage = Stage::Queued;
            self.plans.all.insert(plan.id, plan);
            return;
        }
        self.run(plan, turn);
    }

    /// The plan's object, if it must be recovered before the plan may run.
    fn recovers_first(&self, plan: &Plan) -> Option<HObject> {
        let peers = !self.recovery.missing().is_empty() || !self.peers.members().is_empty();
        let waits = peers && matches!(plan.work, Work::Client(..) | Work::Expire(_) | Work::Trim(TrimWork::Clone(_)));
        plan.head.as_ref().filter(|head| waits && self.must_recover(head, plan.excl)).cloned()
    }

    /// Queues a new plan to run at the end of the current input.
    pub(in crate::pg) fn enqueue(&mut self, plan: Box<Plan>) {
        let id = plan.id;
        if let Some(lock) = plan.head.as_ref().and_then(|h| self.plans.locks.get_mut(h)) {
            lock.waiting.push_back(id);
        } else {
            self.plans.runnable.push_back(id);
        }
        self.plans.all.insert(id, plan);
    }

    /// Runs all plans that are ready.
    pub(in crate::pg) fn run_plans(&mut self, turn: &mut Turn<'_>) {
        while let Some(id) = self.plans.runnable.pop_front() {
            if let Some(plan) = self.plans.all.remove(&id) {
                self.resume(plan, turn);
            }
        }
    }

    /// Runs a plan that waited.
    pub(in crate::pg) fn resume(&mut self, plan: Box<Plan>, turn: &mut Turn<'_>) {
        let Some(plan) = self.refuse_blocklisted(plan, turn) else { return };
        match plan.stage {
            Stage::Queued | Stage::NextPart if plan.holds => self.run_queued(plan, turn),
            _ if plan.holds => self.run(plan, turn),
            _ => self.start(plan, turn),
        }
    }

    /// Runs a plan that has got the lock of its object for the first time, or the next part of a long call. While the
    /// plan waited, a member may have come to lack the object; or the plan was queued behind a push to one of several
    /// members. In both cases the plan waits for recovery, as a new plan would.
    fn run_queued(&mut self, mut plan: Box<Plan>, turn: &mut Turn<'_>) {
        match self.recovers_first(&plan) {
            None => self.run(plan, turn),
            Some(head) => {
                self.unlock(&plan);
                (plan.holds, plan.progress) = (false, None);
                self.wait_for_recovery(plan, head);
            }
        }
    }

    fn run(&mut self, mut plan: Box<Plan>, turn: &mut Turn<'_>) {
        plan.pass(turn.now);
        self.plans.internal_step = !matches!(
            plan.work,
            Work::Client(..)
                | Work::Peering(PeeringWork::Apply)
                | Work::Resize(ResizeWork::StoreObjects(..))
                | Work::Relocate(RelocateWork::Load)
        );
        if self.ec.coder().is_some() && matches!(plan.work, Work::Client(..) | Work::Recovery(RecoveryWork::Push(_))) {
            let reads = self.shard_reads(&mut plan);
            self.ec.set_reads(reads);
        }
        let verdict = match plan.work {
            Work::Client(_, ref access) => {
                // Only operations that wait for durability can still be open when the interval ends.
                let may_wait = access.may_write() || !self.journal.is_settled();
                self.plans.keeps_request = may_wait && !self.maps.others().is_empty();
                let v = self.run_client(&mut plan, turn);
                (self.plans.keeps_request, self.plans.again) = (false, None);
                v
            }
            Work::Expire(ref e) => {
                let e = e.clone();
                self.run_expire(plan.id, &e, turn)
            }
            Work::Trim(_) => self.run_trim(&mut plan, turn),
            Work::Life(_) => self.run_life(&mut plan, turn),
            Work::Peering(_) => self.run_peering(&mut plan, turn),
            Work::Recovery(_) => self.run_recovery(&mut plan, turn),
            Work::Resize(_) => self.run_resize(&mut plan, turn),
            Work::Relocate(_) => self.run_relocate(&mut plan, turn),
            Work::Scrub(_) => self.run_scrub(&mut plan, turn),
            Work::Shard(_) => self.run_shard(&mut plan, turn),
        };
        let mut reads = self.ec.take_reads();
        let spaceless = matches!(verdict, Verdict::Park(Stage::NoRoom | Stage::WaitingForSpace | Stage::CopyRoom));
        if !spaceless {
            self.leave_spaceless(&plan);
        }
        match verdict {
            Verdict::Park(stage) if spaceless => {
                if stage == Stage::NoRoom {
                    self.lacks_room(&plan, turn);
                }
                self.park_without_space(plan, stage, turn.store);
            }
            Verdict::Park(stage) => {
                let asks = reads.as_ref().is_some_and(|r| r.wants());
                if let (true, Some(r)) = (asks, &mut reads) {
                    self.ask_shards(&plan, r);
                }
                let stage = if asks && stage == Stage::Reading { Stage::Shards } else { stage };
                plan.reads = reads;
                if stage == Stage::NextPart {
                    self.queue_part(&plan, turn.store);
                }
                self.park(plan, stage);
            }
            Verdict::Damaged(head) => {
                self.ec.forget_questions(plan.id);
                turn.store.release(self.tag(plan.id));
                self.unlock(&plan);
                (plan.holds, plan.progress) = (false, None);
                self.heal(plan, &head, turn);
            }
            Verdict::Recover(head) => {
                turn.store.release(self.tag(plan.id));
                self.unlock(&plan);
                (plan.holds, plan.progress) = (false, None);
                self.wait_for_recovery(plan, head);
            }
            v => {
                if self.plans.room_missed && !self.plans.all.values().any(|p| p.stage == Stage::NoRoom) {
                    self.plans.room_missed = false;
                }
                if matches!(v, Verdict::Done) {
                    turn.store.release(self.tag(plan.id));
                }
                self.unlock(&plan);
                if let (Some(r), Some(head)) = (reads, &plan.head)
                    && r.own_bad
                {
                    self.lose_found(head, turn);
                }
            }
        }
    }

    /// Ends a refused internal step: the plan waits for a read or for room, or the PG fails.
    pub(in crate::pg) fn step_failed(&mut self, stop: Stop, out: &mut Vec<Effect>) -> Verdict {
        match stop {
            Stop::Wait => Verdict::Park(Stage::Reading),
            // Nothing was changed. A stopping PG does not wait for room.
            Stop::Errno(ENOSPC) if self.life.is_stopping() => Verdict::Done,
            Stop::Errno(ENOSPC) => Verdict::Park(Stage::NoRoom),
            Stop::Errno(errno) => {
                self.fail(errno, out);
                Verdict::Done
            }
        }
    }

    /// Keeps a plan that waits, with its lock.
    pub(in crate::pg) fn park(&mut self, mut plan: Box<Plan>, stage: Stage) {
        if let (false, false, Some(head)) = (plan.holds, plan.bypass, &plan.head) {
            let lock = self.plans.locks.entry(head.clone()).or_default();
            if plan.excl {
                lock.writer = true;
            } else {
                lock.readers += 1;
            }
            plan.holds = true;
        }
        plan.stage = stage;
        self.plans.all.insert(plan.id, plan);
    }

    /// Releases the plan's lock, and readies the next plans of the object.
    pub(in crate::pg) fn unlock(&mut self, plan: &Plan) {
        let (true, Some(head)) = (plan.holds, &plan.head) else { return };
        // A copy that failed while the plan ran has dropped all locks.
        let Some(lock) = self.plans.locks.get_mut(head) else { return };
        if plan.excl {
            lock.writer = false;
        } else {
            lock.readers = lock.readers.saturating_sub(1);
        }
        while let Some(id) = lock.waiting.front() {
            let Some(next) = self.plans.all.get_mut(id) else {
                lock.waiting.pop_front();
                continue;
            };
            if lock.writer || next.excl && lock.readers > 0 {
                break;
            }
            next.holds = true;
            if next.excl {
                lock.writer = true;
            } else {
                lock.readers += 1;
            }
            self.plans.runnable.push_back(*id);
            lock.waiting.pop_front();
        }
        if !lock.writer && lock.readers == 0 && lock.waiting.is_empty() {
            self.plans.locks.remove(head);
        }
    }

    /// Metadata of an object, from the cache or the store.
    pub(in crate::pg) fn context(&mut self, plan: u64, head: &HObject, turn: &mut Turn<'_>) -> Step<Rc<ObjectContext>> {
        if let Some(c) = self.plans.cache.get(head) {
            return Ok(c);
        }
        let mut c = load_context(turn.store, self.tag(plan), self.env.cid(), head)?;
        c.last_write = self.plans.cache.unknown_write();
        // Only the primary expires watches: on a member the removal would add log records of its own.
        if !c.oi.watchers.is_empty() && (*self.life.state() == State::Active || acts(Bug::MembersEndWatches)) {
            self.watches.adopt(head, &c.oi, turn.now);
        }
        let c = Rc::new(c);
        self.plans.cache.put(head, Rc::clone(&c));
        Ok(c)
    }

    /// Collects unanswered operations at the end of an interval, for the next one. Clients resend only if another OSD
    /// becomes primary. Operations that are in the log by then are answered from it.
    pub(in crate::pg) fn requeue(&mut self) {
        let mut all: VecDeque<Box<OpRequest>> = VecDeque::new();
        all.extend(self.journal.take_requests(None));
        let waiting = self.recovery.waiting_plans();
        let mut parked: Vec<(u64, Box<OpRequest>)> = Vec::new();
        for p in self.plans.all.values().chain(waiting) {
            if let Work::Client(req, _) = &p.work {
                parked.push((p.id, req.clone()));
            }
        }
        parked.sort_by_key(|(id, _)| *id);
        for (_, mut req) in parked {
            // An interrupted plan may have left output.
            for op in &mut req.msg.ops {
                op.outdata = bytes::Bytes::new();
                op.rval = 0;
            }
            all.push_back(req);
        }
        self.mail.put_first(all);
    }

    /// Counts an operation that gets no answer, and tells the host, which holds its share of the session's bytes.
    pub(in crate::pg) fn drop_of(&mut self, session: SessionId, tid: u64, out: &mut Vec<Effect>) {
        self.report.count_dropped(1);
        out.push(Effect::Dropped(session, tid));
    }

    /// Drops the actions after commits, replies too, except those of a merge.
    pub(in crate::pg) fn drop_actions(&mut self, out: &mut Vec<Effect>) {
        self.journal.retain_actions(|_, a| {
            out.extend(a.answers().map(|(session, tid)| Effect::Dropped(session, tid)));
            matches!(a, Action::Resize(ResizeAction::PgsMerged(..)))
        });
    }

    /// Drops all client operations with their locks; clients resend them when the map tells them to.
    pub(in crate::pg) fn drop_operations(&mut self, out: &mut Vec<Effect>) {
        self.drop_started(false, out);
        for req in self.mail.take_held() {
            self.drop_of(req.session, req.msg.tid, out);
        }
    }

    /// Drops the client operations that have begun, with their locks. `requeued`: [`Pg::requeue`] has collected them.
    pub(in crate::pg) fn drop_started(&mut self, requeued: bool, out: &mut Vec<Effect>) {
        let waiting = self.recovery.take_waiting();
        let mut clients: Vec<Box<OpRequest>> = Vec::new();
        for plan in waiting {
            if let Work::Client(req, _) = plan.work {
                clients.push(req);
            }
        }
        for (id, plan) in std::mem::take(&mut self.plans.all) {
            if plan.copy.is_some() {
                out.push(Effect::CancelFetch(plan.fetch_id()));
            }
            self.plans.abandoned.push(id);
            if let Work::Client(req, _) = plan.work {
                clients.push(req);
            }
        }
        if requeued {
            self.report.count_dropped(clients.len() as u64);
            clients.clear();
        }
        for req in clients {
            self.drop_of(req.session, req.msg.tid, out);
        }
        self.clear_spaceless();
        self.plans.locks.clear();
        self.plans.runnable.clear();
        self.env.pacer().long.forget(self.env.index(), |_| false);
    }
}
