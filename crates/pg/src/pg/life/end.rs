//! Time, and the end of a machine: removal of the PG, and stopping with the OSD.

use crate::effect::Effect;
use crate::exec::Stop;
use crate::limits::DELETE_BATCH_COST;
use crate::object::OI_ATTR;
use crate::pace::Class;
use crate::pg::journal::action::Action;
use crate::pg::journal::action::LifeAction;
use crate::pg::journal::action::ResizeAction;
use crate::pg::life::Ending;
use crate::pg::ops::plan::Stage;
use crate::pg::ops::plan::Verdict;
use crate::pg::ops::work::LifeWork;
use crate::pg::ops::work::Work;
use crate::pg::{Pg, State, Turn};
use base::errno::ENOENT;
use base::{Eversion, SnapId};
use bytes::Bytes;
use store::removal;
use store::{Oid, Op, Transaction};

/// Takes the object info from what the last operation of a step leaves in part: a large object, or the head of a family
/// whose clones go first. Should this copy be filled again after a restart, nobody takes the rest for the object.
fn mark_remains(last: &Op) -> Option<Op> {
    let (cid, oid) = match last {
        Op::OmapRmRange { cid, oid, .. } | Op::Truncate { cid, oid, .. } => (*cid, oid.clone()),
        Op::Remove { cid, oid } if oid.hobj.snap < SnapId::HEAD => (*cid, Oid::new(oid.hobj.head())),
        _ => return None,
    };
    Some(Op::RmAttr { cid, oid, name: Bytes::from_static(OI_ATTR) })
}

impl Pg {
    pub(in crate::pg) fn start_delete(&mut self, turn: &mut Turn<'_>) {
        tracing::debug!(pg = %self.env.spg(), "removing all of the PG");
        self.stay("the PG is being removed");
        self.life.generation += 1;
        self.life.enter(State::Deleting { paused: false });
        // Keeps the name taken, so that no reactor creates the PG meanwhile.
        self.resize.take_name(self.env.reserver(), self.env.spg());
        self.drop_operations(turn.out);
        self.drop_actions(turn.out);
        self.forget_copies();
        // After a crash the remains must not look like a copy.
        self.journal.void_info();
        self.recovery.lacks_nothing();
        self.finish_commits(turn);
        self.watches.clear();
        self.plans.forget_contexts();
        self.start_work(Work::Life(LifeWork::Delete), None, turn);
    }

    /// Goes on with the deletion, if the pacer permits.
    pub(in crate::pg) fn pump_delete(&mut self, turn: &mut Turn<'_>) {
        if self.env.pacer().take(Class::BestEffort, DELETE_BATCH_COST, self.env.index(), turn.now.mono) {
            self.life.pause_deletion(false);
            self.start_work(Work::Life(LifeWork::Delete), None, turn);
            self.settle(turn);
        }
    }

    pub(in crate::pg) fn run_delete(&mut self, id: u64, turn: &mut Turn<'_>) -> Verdict {
        let tag = self.tag(id);
        let found = match removal::step(turn.store, tag, self.env.cid(), self.env.reserver().removal()) {
            Ok(v) => v,
            Err(e) => match Stop::from(e) {
                Stop::Wait => return Verdict::Park(Stage::Reading),
                Stop::Errno(ENOENT) => Vec::new(),
                Stop::Errno(errno) => {
                    self.fail(errno, turn.out);
                    return Verdict::Done;
                }
            },
        };
        if found.is_empty() {
            self.journal.drop_info();
            let txn = Transaction { ops: vec![Op::RemoveCollection { cid: self.env.cid() }] };
            return self.submit_own(id, txn, Action::Life(LifeAction::DeletedAll), turn);
        }
        let rewind = Op::LogRewind { cid: self.env.cid(), to: Eversion::default() };
        let some = |n| {
            let now = || found.iter().take(n);
            let mark = now().last().and_then(mark_remains);
            std::iter::once(&rewind).chain(&mark).chain(now()).cloned().collect()
        };
        // On a full device only this may make room.
        match self.commit_first(tag, found.len(), some, turn.store) {
            Ok(_) => {
                self.on_durable(Action::Life(LifeAction::DeletedSome));
                Verdict::Submitted
            }
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }

    pub(in crate::pg) fn handle_tick(&mut self, turn: &mut Turn<'_>) {
        self.check_lease_wait(turn);
        self.retry_peers(turn.now);
        self.recovery.tick(turn.now);
        self.retry_later(turn);
        if self.mail.waits_for_lease() {
            self.retry_leases(turn);
        }
        for e in self.watches.expire(turn.now, turn.out) {
            let head = e.head.clone();
            let plan = crate::pg::ops::plan::Plan::new(self.new_plan_id(), Work::Expire(e), Some(head), true);
            self.enqueue(plan);
        }
    }

    pub(in crate::pg) fn handle_stop(&mut self, turn: &mut Turn<'_>) {
        if self.life.is_stopping() {
            return;
        }
        self.acknowledge_first();
        self.life.ending = Ending::Asked;
        self.relocate.end();
        self.drop_operations(turn.out);
        // Operations that others have not acknowledged are not answered by this process.
        self.journal.retain_actions(|c, a| c.shared == 0 || matches!(a, Action::Resize(ResizeAction::PgsMerged(..))));
        self.forget_copies();
        self.finish_commits(turn);
        if matches!(self.life.state(), State::Active | State::Peered | State::ReplicaActive | State::Stray)
            && self.journal.is_info_behind()
        {
            self.start_work(Work::Life(LifeWork::SaveInfo), None, turn);
        }
    }

    pub(in crate::pg) fn run_save_info(&mut self, id: u64, turn: &mut Turn<'_>) -> Verdict {
        self.journal.set_reported_seq(self.report.seq());
        let tag = self.tag(id);
        match self.commit_entries(tag, Vec::new(), &mut [], turn.store) {
            Ok(()) => Verdict::Submitted,
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }

    pub(in crate::pg) fn check_stopped(&mut self, out: &mut Vec<Effect>) {
        if self.life.ending == Ending::Asked && self.journal.is_settled() && self.plans.is_empty() {
            if !matches!(self.life.state(), State::Failed(_)) {
                self.life.enter(State::Stopped);
            }
            self.life.ending = Ending::Told;
            out.push(Effect::Stopped);
        }
    }
}
