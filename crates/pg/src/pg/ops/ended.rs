//! Operations of ended sessions. Their clients resend on a new session what they still want, so whatever has not been
//! submitted is dropped, as Ceph drops operations whose connection is gone: nothing of it is kept, nor takes effect
//! later.

use crate::effect::Effect;
use crate::event::SessionId;
use crate::pg::Pg;
use crate::pg::journal::action::Action;
use crate::pg::ops::plan::Plan;
use crate::pg::ops::work::Work;

impl Plan {
    /// The session of a client's operation.
    pub(in crate::pg) fn session(&self) -> Option<SessionId> {
        match &self.work {
            Work::Client(req, _) => Some(req.session),
            _ => None,
        }
    }
}

impl Pg {
    /// True if operations of the session have not been answered.
    pub(in crate::pg) fn has_operation(&self, session: SessionId) -> bool {
        let waiting = self.recovery.waiting_plans();
        self.plans.all.values().chain(waiting).any(|p| p.session() == Some(session))
            || self.journal.actions().any(|a| may_be_repeated(a, session))
    }

    /// Drops the operations of a session that ended, except those that are submitted.
    pub(in crate::pg) fn drop_operations_of(&mut self, session: SessionId, out: &mut Vec<Effect>) {
        // The client resends on a new session what it still wants.
        self.mail.forget_held(session);
        let dropped: Vec<u64> =
            self.plans.all.values().filter(|p| p.session() == Some(session)).map(|p| p.id).collect();
        for id in &dropped {
            if let Some(plan) = self.plans.all.remove(id) {
                if plan.copy.is_some() {
                    out.push(Effect::CancelFetch(plan.fetch_id()));
                }
                self.ec.forget_questions(*id);
                self.plans.abandoned.push(*id);
                self.leave_spaceless(&plan);
                self.unlock(&plan);
                self.report.count_dropped(1);
            }
        }
        if !dropped.is_empty() {
            self.env.pacer().long.forget(self.env.index(), |id| self.plans.all.contains_key(&id));
        }
        // Operations that wait for objects to be recovered.
        self.report.count_dropped(self.recovery.retain_waiting(|p| p.session() != Some(session)));
        self.journal.take_requests(Some(session)).for_each(drop);
    }
}

/// True if the action is a reply to the session whose request would be taken up again in the next interval.
fn may_be_repeated(a: &Action, session: SessionId) -> bool {
    a.request().is_some_and(|r| r.session == session)
}
