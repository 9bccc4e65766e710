//! Operations of ended sessions. Their clients resend on a new session what they still want, so whatever has not been
//! submitted is dropped, as Ceph drops operations whose connection is gone: nothing of it is kept, nor takes effect
//! later.

use crate::effect::Effect;
use crate::event::SessionId;
use crate::pg::Pg;
use crate::pg::ops::commit::Action;
use crate::pg::ops::plan::{Plan, Work};
use base::HObject;

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
        let waiting = self.peers.waiting.values().flatten();
        self.plans.values().chain(waiting).any(|p| p.session() == Some(session))
            || self.commits.iter().any(|c| c.actions.iter().any(|a| may_be_repeated(a, session)))
    }

    /// Drops the operations of a session that ended, except those that are submitted.
    pub(in crate::pg) fn drop_operations_of(&mut self, session: SessionId, out: &mut Vec<Effect>) {
        // The client resends on a new session what it still wants.
        self.held.forget(session);
        let dropped: Vec<u64> = self.plans.values().filter(|p| p.session() == Some(session)).map(|p| p.id).collect();
        for id in &dropped {
            if let Some(plan) = self.plans.remove(id) {
                if plan.copy.is_some() {
                    out.push(Effect::CancelFetch(plan.fetch_id()));
                }
                if let Some(s) = self.shard.used() {
                    s.asked.remove(id);
                }
                self.abandoned.push(*id);
                self.leave_spaceless(&plan);
                self.unlock(&plan);
                self.counters.dropped += 1;
            }
        }
        if !dropped.is_empty() {
            self.pacer.long.forget(self.cfg.index, |id| self.plans.contains_key(&id));
        }
        self.drop_waiting_of(session);
        for a in self.commits.iter_mut().flat_map(|c| &mut c.actions) {
            if may_be_repeated(a, session)
                && let Action::Reply(.., again) = a
            {
                *again = None;
            }
        }
    }

    /// Drops the session's operations that wait for objects to be recovered. Objects that nobody waits for then lose
    /// their precedence.
    fn drop_waiting_of(&mut self, session: SessionId) {
        let mut free: Vec<HObject> = Vec::new();
        for (head, queue) in &mut self.peers.waiting {
            let before = queue.len();
            queue.retain(|p| p.session() != Some(session));
            self.counters.dropped += (before - queue.len()) as u64;
            if queue.is_empty() {
                free.push(head.clone());
            }
        }
        for head in free {
            self.peers.waiting.remove(&head);
            self.peers.urgent.remove(&head);
        }
    }
}

/// True if the action is a reply to the session whose request would be taken up again in the next interval.
fn may_be_repeated(a: &Action, session: SessionId) -> bool {
    matches!(a, Action::Reply(s, _, _, Some(_)) if *s == session)
}
